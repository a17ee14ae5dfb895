/* SPDX-License-Identifier: MIT */
/* test_ckpt_shards - the bytes of a checkpoint are the same under every split,
 * and failed writes of its tensors. */
#include "ckpt_job.h"
#include "on_host.h"
#include "scratch.h"
#include "tap.h"

#include <unistd.h>

#include "run/checkpoint/shards.h"

static void test_bytes(const char *dir)
{
    static const size_t sizes[] = {1, 3000, PP_CKPT_SHARD_SIZE};
    char path[2][PP_PATH_TEXT];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int from = 0; from < N_SPLITS; from++) {
            struct job j = make_job(path[from > 0], from, 1);
            struct pp_err err = {0};
            if (pp_path(path[from > 0], &err, "%s/%zu-%d", dir, k, from) ||
                pp_dir_make(path[from > 0], &err))
                give_up("%s", err.text);
            j.shard_size = sizes[k];
            is_str(run_job(&j).text, "", "saves");
            is_str(loads(path[from > 0], 1, 1), "", "loads shards");
            if (pp_path(path[from > 0], &err, "%s/%zu-%d/step-00000001", dir, k,
                        from))
                return;
            ok(same_bytes(path[0], path[from > 0]),
               "split %d writes shards of %zu bytes as one rank does", from,
               sizes[k]);
        }
        ok(has(path[1], "model.safetensors") == (k == 2) &&
               has(path[1], "optimizer/exp_avg.safetensors.index.json") ==
                   (k < 2),
           "an index belongs to several files");
    }
    ok(has(path[0], "../../0-0/step-00000001/model-00001-of-00035.safetensors"),
       "each tensor has a file");
    struct job other = make_job(dir, 0, 2);
    other.state.step = 1;
    is_str(run_job(&other).text, "", "saves another seed");
    struct pp_err err = {0};
    ok(!pp_path(path[1], &err, "%s/step-00000001", dir) &&
           !same_bytes(path[0], path[1]),
       "the comparison sees another seed");
}

/* The disk is full when the tensors are written. */
static void test_full(const char *dir)
{
    struct pp_parameters p;
    struct pp_unit_range all = {0, 0, 6, 0};
    struct pp_shards s = {0};
    struct pp_comm comm = {.rank = 0, .size = 1};
    const struct pp_group alone = {.n = 1};
    struct pp_exchange x;
    struct pp_err err = {0};
    char path[PP_PATH_TEXT];
    if (pp_parameters_init(&p, &tied, &all, 1, &floats, 0, &err) ||
        pp_shards_init(&s, &tied, &p, PP_CKPT_SHARD_SIZE, 0, &err) ||
        pp_exchange_init(&x, &comm, NULL, &alone, PP_DIRECTION_DATA, NULL, 0,
                         &err) ||
        pp_dir_make(dir, &err) ||
        pp_path(path, &err, "%s/model.safetensors", dir))
        give_up("%s", err.text);
    ok(!symlink("/dev/full", path), "a full disk");
    is_int(pp_shards_fill(&s, &x, &x, dir, &err), -1, "fails");
    ok(strstr(err.text, "model.safetensors: cannot write: No space left"), "%s",
       err.text);
    pp_exchange_finish(&x);
    pp_shards_finish(&s);
    pp_parameters_finish(&p);
}

int main(void)
{
    char root[SCRATCH_TEXT], dir[64];
    scratch_make(root);
    alarm(120);
    snprintf(dir, sizeof dir, "%s/bytes", root);
    test_bytes(dir);
    snprintf(dir, sizeof dir, "%s/full", root);
    test_full(dir);
    scratch_remove(root);
    return done();
}
