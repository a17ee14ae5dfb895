/* SPDX-License-Identifier: MIT */
/* test_ckpt_writes - ranks that hold short runs of a tensor exchange them, and
 * write it in large pieces. The calls are counted, not timed. */
#include "ckpt_job.h"
#include "scratch.h"
#include "tap.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "run/checkpoint/exchange.h"

/* The writes behind headers: their number, and which of them fails (0: none).
 */
static atomic_int n_writes, fails_at;

/* Replaces the C library's. Its symbol is pwrite64, like that of all calls with
 * 64-bit offsets. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    if (offset > 0 && ++n_writes == fails_at) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, n, offset);
}

/* A layer with matrices of up to 1.5 MiB. GPT-2 has their transposes in files.
 */
static struct pp_model large(enum pp_architecture architecture)
{
    struct pp_model m = tied;
    m.architecture = architecture;
    m.hidden = 256;
    m.intermediate = 1536;
    m.n_layers = 1;
    m.n_heads = 4;
    m.n_kv_heads = 4;
    m.head_dim = 64;
    m.qk_norm = architecture != PP_GPT2;
    m.o_bias = m.mlp_bias = architecture == PP_GPT2;
    m.max_position = 16;
    return m;
}

#define ALL            \
    {                  \
        {              \
            0, 0, 4, 0 \
        }              \
    }
#define FOUR               \
    {                      \
        ALL, ALL, ALL, ALL \
    }
static const struct split one = {1, 1, {ALL}, 0};
static const struct layout {
    const char *name;
    enum pp_architecture architecture;
    struct split split;
    size_t save_bytes;
    bool small; /* also with little room for messages */
} layouts[] = {
    {"tp 4", PP_QWEN3, {4, 4, FOUR, 0}, 0},
    {"tp 2 in bf16", PP_QWEN3, {2, 2, {ALL, ALL}, 0}, 2},
    {"tp 2 and 2 owners", PP_QWEN3, {4, 2, FOUR, 2}, 0, true},
    {"transposes", PP_GPT2, {4, 2, FOUR, 2}, 0},
    {"transposes in two turns", PP_GPT2, {4, 2, FOUR, 2, true}, 0, true},
    {"transposes of 4 owners in bf16", PP_GPT2, {4, 1, FOUR, 4, true}, 2},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* Saves under a split. Returns the number of writes. */
static int save(const char *dir, const struct layout *l,
                const struct split *split, size_t room)
{
    const struct pp_model m = large(l->architecture);
    struct job j = make_job(dir, 0, 1);
    struct pp_err err = {0};
    j.model = &m;
    j.split = split;
    j.save_bytes = l->save_bytes;
    j.room = room;
    if (pp_dir_make(dir, &err))
        give_up("%s", err.text);
    n_writes = 0;
    is_str(run_job(&j).text, "", "saves");
    return n_writes;
}

/* Returns the most writes if each has 1 MiB or all of what a rank has without a
 * gap, in a tensor of one of three blocks. */
static int most_writes(const struct layout *l)
{
    const struct pp_model m = large(l->architecture);
    size_t bytes = 3 * sizeof(float) * (size_t)pp_model_n_elements(&m);
    return (int)(bytes / PP_WINDOW_LEAST) +
           3 * l->split.size * (int)pp_model_n_tensors(&m);
}

static void test_layout(const char *root, const struct layout *l)
{
    static const size_t rooms[] = {0, 1 << 15, 2 * PP_WINDOW_MOST};
    char dir[96], step[2][128];
    int writes[3];
    snprintf(dir, sizeof dir, "%s/one", root);
    snprintf(step[0], sizeof step[0], "%s/step-00000001", dir);
    save(dir, l, &one, 0);
    for (int k = 0; k < 3; k++) {
        if (k == 1 && !l->small)
            continue;
        snprintf(dir, sizeof dir, "%s/%d", root, k);
        snprintf(step[1], sizeof step[1], "%s/step-00000001", dir);
        writes[k] = save(dir, l, &l->split, rooms[k]);
        ok(same_bytes(step[0], step[1]),
           "%s: with %zu bytes for messages the files are those of one rank",
           l->name, rooms[k]);
    }
    ok(writes[2] <= most_writes(l), "%s: %d writes, at most %d", l->name,
       writes[2], most_writes(l));
    ok(writes[0] > 10 * writes[2], "%s: %d without messages", l->name,
       writes[0]);
}

/* The disk is full for one rank, in its first writes and later. */
static void test_full(const char *dir, const struct layout *l)
{
    const struct pp_model m = large(l->architecture);
    struct job j = make_job(dir, 0, 1);
    j.model = &m;
    j.split = &l->split;
    j.room = 1 << 16;
    for (int at = 1; at < 200; at += 90) {
        n_writes = 0;
        fails_at = at;
        run_job(&j);
        for (int r = 0; r < j.split->size; r++)
            ok(j.err[r].code == PP_EXIT_SYSTEM &&
                   strstr(j.err[r].text, "cannot write: No space left"),
               "%s: write %d fails at rank %d: %s", l->name, at, r,
               j.err[r].text);
        ok(!has(dir, "latest"), "no checkpoint is left");
    }
    fails_at = 0;
}

int main(void)
{
    char root[SCRATCH_TEXT], dir[64];
    scratch_make(root);
    alarm(240);
    for (int i = 0; i < N_LAYOUTS; i++) {
        snprintf(dir, sizeof dir, "%s/%d", root, i);
        test_layout(dir, &layouts[i]);
    }
    snprintf(dir, sizeof dir, "%s/full", root);
    test_full(dir, &layouts[2]);
    snprintf(dir, sizeof dir, "%s/full-turns", root);
    test_full(dir, &layouts[4]);
    scratch_remove(root);
    return done();
}
