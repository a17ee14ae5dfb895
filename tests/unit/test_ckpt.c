/* SPDX-License-Identifier: MIT */
/* test_ckpt - checkpoints across splits, failures and kills. */
#include "ckpt_job.h"
#include "on_host.h"
#include "scratch.h"
#include "tap.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"
#include "run/parameters/weights.h"

static void test_splits(const char *dir)
{
    for (int from = 0; from < N_SPLITS; from++) {
        struct job j = make_job(dir, from, 10 + from);
        is_str(run_job(&j).text, "", "saves");
        for (int to = 0; to < N_SPLITS; to++) {
            const char *text = loads(dir, to, 10 + from);
            ok(!*text, "split %d loads what split %d saved %s", to, from, text);
        }
    }
    ok(has(dir, "step-00000013/model.safetensors") &&
           has(dir, "step-00000013/optimizer/exp_avg_sq.safetensors"),
       "four ranks write one small file");
    ok(has(dir, "step-00000013/config.json"), "config.json is there");
    struct job other = make_job(dir, 1, 14);
    ok(!run_job(&other).code && *loads(dir, 1, 15),
       "the comparison sees another seed");
}

static void test_double(const char *dir)
{
    struct job j = make_job(dir, 1, 1);
    j.element_bytes = sizeof(double);
    is_str(run_job(&j).text, "", "saves doubles");
    char *path;
    struct pp_err err = {0};
    if (pp_ckpt_find(dir, &path, &err))
        return;
    struct job k = make_job(dir, 2, 1);
    k.element_bytes = sizeof(double);
    k.load = path;
    ok(!run_job(&k).code && !k.differ[0] && !k.differ[1],
       "loads the same bits");
    free(path);
}

static void test_names(const char *dir)
{
    is_str(newest(dir), "", "a missing directory has no checkpoint");
    for (int64_t step = 1; step <= 4; step++) {
        struct job j = make_job(dir, 1, step);
        j.keep = 2;
        is_str(run_job(&j).text, "", "saves");
    }
    is_str(newest(dir), "step-00000004", "finds the newest");
    ok(has(dir, "step-00000003") && !has(dir, "step-00000002") &&
           !has(dir, "step-00000001"),
       "keeps two");
    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    if (pp_path(path, &err, "%s/step-00000003", dir))
        return;
    is_str(newest(path), "step-00000003", "a checkpoint finds itself");

    struct job again = make_job(dir, 2, 4);
    again.state.microbatches = again.seed = 4;
    again.state.step_microbatches = 99;
    is_str(run_job(&again).text, "", "the same step is saved again");
    is_str(loads(dir, 0, 4), "counters differ", "replaces the earlier one");
    struct job anew = make_job(dir, 1, 2);
    anew.keep = 1;
    is_str(run_job(&anew).text, "", "a run starts again");
    is_str(newest(dir), "step-00000002", "its checkpoint is the newest");
    ok(!has(dir, "step-00000003") && !has(dir, "step-00000004"),
       "the checkpoints of the old run go");
}

static int make_unfinished(const char *dir, const char *name, const char *owner)
{
    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    return pp_path(path, &err, "%s/%s", dir, name) || pp_dir_make(path, &err) ||
           pp_path(path, &err, "%s/%s/owner", dir, name) ||
           pp_file_write(path, owner, strlen(owner), &err);
}

/* A killed run may leave half a directory, or a link to nothing. */
static void test_leftovers(const char *dir)
{
    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    struct job j = make_job(dir, 1, 5);
    is_str(run_job(&j).text, "", "saves");
    if (pp_path(path, &err, "%s/step-00000009.tmp/optimizer", dir) ||
        pp_dir_make(path, &err) ||
        pp_path(path, &err, "%s/step-00000009.tmp/optimizer/x", dir) ||
        pp_file_write(path, "x", 1, &err) ||
        pp_path(path, &err, "%s/step-00000009.tmp/owner", dir) ||
        pp_file_write(path, "pptools host 1\n", 15, &err) ||
        make_unfinished(dir, "step-00000008.tmp", "pptools host 1\n") ||
        make_unfinished(dir, "step-00000007.tmp", "mine\n") ||
        make_unfinished(dir, "step-00000005", "pptools host 1\n") ||
        make_unfinished(dir, "latest.tmp", "mine\n") ||
        pp_path(path, &err, "%s/step-7", dir) || pp_dir_make(path, &err))
        give_up("%s", err.text);
    is_str(newest(dir), "step-00000005", "a .tmp is not a checkpoint");
    if (pp_path(path, &err, "%s/latest", dir))
        return;
    unlink(path);
    is_str(newest(dir), "step-00000005", "finds it without the link");
    ok(!symlink("step-00000077", path), "makes a link to nothing");
    is_str(newest(dir), "step-00000005", "does not follow it");
    int live = -1;
    if (!pp_path(path, &err, "%s/step-00000008.tmp/owner", dir))
        live = open(path, O_RDWR);
    flock(live, LOCK_EX);
    if (pp_path(path, &err, "%s/latest", dir))
        return;
    struct job next = make_job(dir, 1, 6);
    is_str(run_job(&next).text, "", "saves the next one");
    is_str(newest(dir), "step-00000006", "repairs the link");
    ok(!has(dir, "step-00000009.tmp"), "removes the .tmp of a killed run");
    ok(has(dir, "step-00000008.tmp"), "not that of a live run");
    ok(has(dir, "step-00000007.tmp"), "nor one without our owner file");
    ok(has(dir, "latest.tmp"), "nor a directory that is not a step");
    ok(!has(dir, "step-00000005/owner"), "a complete one has no owner");
    ok(!has(dir, "step-00000006/owner"), "nor has the new one");
    struct job taken = make_job(dir, 1, 8);
    run_job(&taken);
    ok(strstr(taken.err[0].text, "step-00000008.tmp: another run is writing"),
       "the step of a live run is an error: %s", taken.err[0].text);
    ok(has(dir, "step-00000008.tmp/owner"), "its directory stays");
    close(live);
    is_str(run_job(&taken).text, "", "a dead owner's step is saved");
    is_str(newest(dir), "step-00000008", "and complete");
    ok(has(dir, "step-7"), "other files stay");
}

/* After a failure the earlier checkpoint is unchanged, the new one is gone, and
 * every rank has the same error. */
static void test_failure(const char *dir)
{
    struct job good = make_job(dir, 1, 1);
    is_str(run_job(&good).text, "", "saves");
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    struct rlimit small = {3000, limit.rlim_max};
    /* Only rank 1 needs more: rank 0 has the embedding, which fills a file. */
    struct split uneven = {2, 1, {{{0, 0, 1}}, {{1, 1, 4}}}};
    struct job full = make_job(dir, 1, 2);
    full.split = &uneven;
    full.shard_size = 2200;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    run_job(&full);
    setrlimit(RLIMIT_FSIZE, &limit);
    is_int(full.err[0].code, PP_EXIT_SYSTEM, "a full disk is a system error");
    ok(strstr(full.err[0].text, "step-00000002.tmp/model-00002-of-00004."
                                "safetensors: cannot write: File too large"),
       "rank 0 has the error of rank 1");
    printf("# %s\n", full.err[0].text);
    is_str(full.err[1].text, full.err[0].text, "rank 1 has it too");
    ok(!has(dir, "step-00000002.tmp") && !has(dir, "step-00000002"),
       "the new one is gone");
    is_str(loads(dir, 0, 1), "", "the earlier one is intact");

    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    if (pp_path(path, &err, "%s/step-00000001/config.json/x", dir))
        return;
    struct job nowhere = make_job(path, 1, 1);
    is_int(run_job(&nowhere).code, PP_EXIT_SYSTEM,
           "the directory cannot be made");
    ok(strstr(nowhere.err[1].text, "cannot make the directory: Not a"),
       "every rank has the error");
    if (pp_path(path, &err, "%s/step-00000001/config.json", dir))
        return;
    is_str(newest(path), "!", "a file has no checkpoints");
}

static void test_damage(const char *dir)
{
    const char *names[] = {"optimizer/exp_avg_sq.safetensors",
                           "optimizer/state.safetensors", "model.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        char path[PP_PATH_TEXT];
        struct pp_err err = {0};
        struct job j = make_job(dir, 0, 1);
        ok(!run_job(&j).code && !*loads(dir, 0, 1), "whole");
        if (pp_path(path, &err, "%s/step-00000001/%s", dir, names[i]))
            return;
        unlink(path);
        const char *text = loads(dir, 0, 1);
        ok(strstr(text, names[i]) || strstr(text, "model.safetensors"),
           "without %s: %s", names[i], text);
    }
    struct job odd = make_job(dir, 0, 1);
    odd.state.step_microbatches = 0;
    run_job(&odd);
    ok(strstr(loads(dir, 0, 1),
              "state.safetensors: 'step_microbatches' is out of range: '0'"),
       "names a counter out of range");
    struct job j = make_job(dir, 0, 1);
    struct pp_model wider = tied;
    wider.vocab = 65;
    run_job(&j);
    struct job k = make_job(dir, 1, 1);
    char path[PP_PATH_TEXT];
    if (pp_path(path, &k.err[0], "%s/step-00000001", dir))
        return;
    k.model = &wider;
    k.load = path;
    struct pp_err err = run_job(&k);
    is_int(err.code, PP_EXIT_INPUT, "another model is an input error");
    ok(strstr(err.text, "'model.embed_tokens.weight' is [63, 8], expected "
                        "[65, 8]"),
       "%s", err.text);
}

static int64_t newest_step(const char *dir)
{
    int64_t step = 0;
    return sscanf(newest(dir), "step-%" SCNd64, &step) == 1 ? step : 0;
}

_Noreturn static void save_until_killed(const char *dir, int64_t step)
{
    for (;; step++) {
        struct job j = make_job(dir, 1, step);
        j.keep = 1;
        if (run_job(&j).code)
            _exit(1);
    }
}

/* Saves step after step, from the last checkpoint on, in a child. */
static void test_kill(const char *dir)
{
    enum { N_KILLS = 8 };
    int n_whole = 0, n_killed = 0, status;
    for (useconds_t i = 0; i < N_KILLS; i++) {
        int64_t before = newest_step(dir);
        pid_t child = fork();
        if (child == 0)
            save_until_killed(dir, before + 1);
        while (newest_step(dir) == before &&
               waitpid(child, &status, WNOHANG) == 0)
            usleep(500);
        usleep(1700 * i); /* somewhere in a later step */
        kill(child, SIGKILL);
        n_killed += waitpid(child, &status, 0) == child && WIFSIGNALED(status);
        const char *text = loads(dir, 2, newest_step(dir));
        n_whole += !*text;
        printf("# killed, found %s %s\n", newest(dir), text);
    }
    is_int(n_killed, N_KILLS, "runs are killed while they save");
    is_int(n_whole, N_KILLS, "the newest checkpoint is complete");
}

static void test_grads(const char *dir)
{
    char path[PP_PATH_TEXT];
    struct pp_err err = {0};
    if (pp_dir_make(dir, &err) || pp_path(path, &err, "%s/g", dir))
        return;
    for (int s = 0; s < N_SPLITS; s++) {
        struct job j = make_job(dir, s, 3);
        struct pp_tensors *t = NULL;
        j.grads = path;
        j.element_bytes = s % 2 ? sizeof(double) : sizeof(float);
        is_str(run_job(&j).text, "", "dumps");
        if (pp_tensors_open(path, &t, &err)) {
            ok(false, "%s", err.text);
            return;
        }
        bool same = true;
        struct pp_parameters whole;
        struct pp_unit_range all = {0, 0, 6, 0};
        if (pp_parameters_init(&whole, &tied, &all, 1, &floats, 0, &err))
            return;
        for (size_t k = 0; k < whole.n; k++) {
            const struct pp_tensor *x =
                pp_tensors_find(t, pp_parameter_file_name(&whole.at[k]));
            bool wide = j.element_bytes == sizeof(double);
            same = same && x && x->n == whole.at[k].n &&
                   x->dtype == (wide ? PP_DTYPE_F64 : PP_DTYPE_F32);
            for (size_t i = 0; same && i < x->n; i++) {
                double got, want = value(&j, &whole.at[k], PP_BLOCK_G, i);
                same = !pp_tensor_read_f64(x, i, 1, &got, &err) &&
                       got == (wide ? want : (double)(float)want);
            }
        }
        ok(same, "every gradient in the type of the run");
        is_int((long long)pp_tensors_n(t), (long long)whole.n - 1,
               "the tied gradient is there once");
        pp_parameters_finish(&whole);
        pp_tensors_close(t);
    }
    struct job j = make_job(dir, 1, 3);
    j.grads = "/dev/full";
    run_job(&j);
    is_int(j.err[1].code, PP_EXIT_SYSTEM, "a full disk fails on every rank");
    is_str(j.err[1].text, j.err[0].text, "every rank has the same error");
    printf("# %s\n", j.err[0].text);
    ok(pp_file_exists("/dev/full"), "a device file is not removed");
}

/* Files beside a model, and whether a checkpoint gets them: from the directory
 * of the model, and from the folder of a config.json, which may have anything.
 */
static const struct {
    const char *name;
    bool whole, named;
} beside[] = {
    {"tokenizer.json", true, true},
    {"preprocessor_config.json", true, true},
    {"processor_config.json", true, true},
    {"chat_template.json", true, true},
    {"chat_template.jinja", true, true},
    {"additional_chat_templates/tools.jinja", true, true},
    {"generation_config.json", true, true},
    {"notes.txt", true, false},
    {"LICENSE", true, false},
    {"modeling.py", true, false},
    {"model-00001-of-00002.safetensors", false, false},
    {"pytorch_model.bin", false, false},
    {"pytorch_model.bin.index.json", false, false},
    {"model.gguf", false, false},
    {"model.onnx_data", false, false},
    {"adapter_config.json", false, false},
    {".gitattributes", false, false},
    {"two\nlines", false, false},
};
enum { BESIDE = sizeof beside / sizeof *beside };

static void test_companions(const char *dir)
{
    char source[PP_PATH_TEXT], path[PP_PATH_TEXT];
    struct pp_err err = {0};
    if (pp_path(source, &err, "%s/source", dir) || pp_dir_make(source, &err) ||
        pp_path(path, &err, "%s/.git", source) || pp_dir_make(path, &err) ||
        pp_path(path, &err, "%s/additional_chat_templates", source) ||
        pp_dir_make(path, &err) ||
        pp_path(path, &err, "%s/config.json", source) ||
        pp_file_write(path, "{}", 2, &err))
        return;
    for (int i = 0; i < BESIDE; i++)
        if (pp_path(path, &err, "%s/%s", source, beside[i].name) ||
            pp_file_write(path, "{}", 2, &err))
            return;
    for (int whole = 0; whole < 2; whole++) {
        struct job j = make_job(dir, 1, 1 + whole);
        if (pp_path(path, &err, "%s%s", source, whole ? "" : "/config.json"))
            return;
        j.source = path;
        is_str(run_job(&j).text, "", "saves beside a source");
        for (int i = 0; i < BESIDE; i++) {
            char name[PP_PATH_TEXT];
            if (pp_path(name, &err, "step-0000000%d/%s", 1 + whole,
                        beside[i].name) == 0)
                ok(has(dir, name) ==
                       (whole ? beside[i].whole : beside[i].named),
                   "file %d of %s", i, whole ? "a directory" : "a folder");
        }
    }
}

int main(void)
{
    static void (*const tests[])(const char *) = {
        test_splits, test_double, test_names, test_leftovers,  test_failure,
        test_damage, test_kill,   test_grads, test_companions,
    };
    char root[SCRATCH_TEXT], dir[64];
    scratch_make(root);
    alarm(120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        snprintf(dir, sizeof dir, "%s/run%zu/ckpt", root, i);
        tests[i](dir);
    }
    scratch_remove(root);
    return done();
}
