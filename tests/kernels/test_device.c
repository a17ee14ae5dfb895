/* SPDX-License-Identifier: MIT */
/* test_device - the trainer on the emulated device. Losses are those of the
 * CPU, bits do not depend on the number of ranks, and a run resumes from a
 * checkpoint with the same bits, or on another device. */
#include "scratch.h"
#include "small_run.h"
#include "tap.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime_api.h"
#include "cuda_stream.h"
#include "device/device.h"
#include "emulated_gate.h"
#include "model/cost.h"
#include "run/checkpoint/ckpt.h"
#include "run/execute/job.h"
#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"

enum { N_SEQUENCES = 6, LONGEST = 12, N_LAYERS = 2, N_UNITS = N_LAYERS + 3 };
enum { M = 4, STEPS = 3, MAX_RANKS = 4, N_ROWS = N_SEQUENCES * LONGEST };

static const struct pp_model model = SMALL_MODEL(N_LAYERS);

static int make_data(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    static const size_t first[] = {0, 2, 3, 5, N_SEQUENCES};
    return small_data(dir, 3, LONGEST, first, 4, p, err);
}

/* Device and kernels of a run. */
struct place {
    const struct pp_device_ops *device;
    const struct pp_kernels *kernels;
};
static const struct place on_cpu = {NULL, &pp_kernels_f32};
static const struct place on_f32 = {&pp_device_cuda, &pp_kernels_cuda_f32};

static const struct place on_bf16 = {&pp_device_cuda, &pp_kernels_cuda_bf16};

/* Reports of a run. */
struct result {
    double loss[STEPS], norm[STEPS], val_loss;
    double logps[N_ROWS];
    int n;
    size_t n_logps;
};

struct run {
    const struct place *place;
    const char *kind;
    int ranks;
    bool v;      /* two stages on each rank, in V placement */
    bool looped; /* the same, in a loop */
    int dp;      /* data-parallel ranks of each row; 0: 1 */
    int64_t steps;
    const char *save, *resume;
    bool score;
    const enum pp_role *roles;   /* of the units; NULL: all are trained */
    enum pp_recompute recompute; /* of all stages */
    const struct pp_packed *data;
    struct result *out;
};

static int keep(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    (void)err;
    struct result *to = ctx;
    to->loss[r->step - 1] = r->loss;
    to->norm[r->step - 1] = r->grad_norm;
    to->val_loss = r->val_loss;
    to->n++;
    return 0;
}

static void keep_logps(void *ctx, const struct pp_token_place *at,
                       const double *values, size_t n)
{
    (void)at;
    struct result *to = ctx;
    for (size_t i = 0; i < n && to->n_logps < N_ROWS; i++)
        to->logps[to->n_logps++] = values[i];
}

/* Divides the units evenly among the stages. */
static void split_units(struct pp_graph *g, struct pp_unit_range *stages)
{
    for (int i = 0; i < g->n_stages; i++) {
        size_t first = (size_t)i * N_UNITS / (size_t)g->n_stages;
        size_t end = (size_t)(i + 1) * N_UNITS / (size_t)g->n_stages;
        stages[i] = (struct pp_unit_range){i, first, end - first, 0};
    }
    g->tied[0] = 0;
    g->tied[1] = g->n_stages - 1;
}

static int prepare(const struct run *run, struct pp_arena *a,
                   struct pp_graph *g, struct pp_unit_range *stages,
                   struct pp_schedule *s, struct pp_schedule *forward,
                   struct pp_err *err)
{
    const struct pp_kind_options o = {.n_microbatches = M};
    if (pp_graph_chain(a, run->ranks, run->v || run->looped ? 2 : 1,
                       run->v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP, g, err))
        return -1;
    split_units(g, stages);
    g->replicas = run->dp > 1;
    pp_schedule_init(s, g, run->kind, M);
    if (pp_kind_emit(pp_kind_find(run->kind), s, &o, err) || pp_lower(s, err) ||
        pp_check(s, err))
        return -1;
    pp_schedule_forward_only(s, forward);
    return 0;
}

/* Makes a run. Returns whether it succeeded. */
static bool done_run(const struct run *run)
{
    struct pp_arena a = {0};
    struct pp_graph g = {0};
    struct pp_schedule s = {0}, forward = {0};
    struct pp_unit_range stages[MAX_RANKS];
    enum pp_recompute recompute[MAX_RANKS];
    struct pp_err err = {0};
    for (int i = 0; i < MAX_RANKS; i++)
        recompute[i] = run->recompute;
    memset(run->out, 0, sizeof *run->out);
    struct pp_model m = model;
    m.roles = run->roles;
    if (!prepare(run, &a, &g, stages, &s, &forward, &err)) {
        const struct pp_job job = {
            .model = &m,
            .mesh = {.dp = run->dp},
            .schedule = &s,
            .forward = &forward,
            .stages = stages,
            .recompute = recompute,
            .kernels = run->place->kernels,
            .device = run->place->device,
            .data = run->data,
            .eval = run->score ? NULL : run->data,
            .seed = 3,
            .optim = {.lr = 1e-2,
                      .beta1 = .9,
                      .beta2 = .99,
                      .eps = 1e-8,
                      .weight_decay = .1,
                      .clip = 1,
                      .steps = run->steps},
            .accumulate = 1,
            .save = run->save,
            .resume = run->resume,
            .config_text = "{}\n",
            .score = run->score,
            .scored = keep_logps,
            .report = keep,
            .ctx = run->out,
        };
        int rc = small_ranks(&job, &err);
        (void)rc; /* err says the same */
    }
    if (err.code)
        printf("# %s, %d ranks: %s\n", run->kind, run->ranks, err.text);
    pp_schedule_finish(&forward);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
    return !err.code;
}

static bool same(const struct result *a, const struct result *b)
{
    return a->n == b->n && a->val_loss == b->val_loss &&
           !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(a->norm, b->norm, sizeof a->norm);
}

static double worst(const double *a, const double *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]) / fmax(fabs(b[i]), 1e-3));
    return most;
}

/* Tests that host code cannot read device memory. The other tests rely on it.
 */
static void test_protection(void)
{
    struct pp_device *d = NULL;
    struct pp_err err = {0};
    int status = 0;
    ok(!pp_device_cuda.open(0, &d, &err), "a device");
    int *p = d->ops->alloc(d, sizeof *p), got = 1;
    /* The copy waits for the device, which may read its memory. */
    ok(!d->ops->get(d, &got, p, sizeof got, &err) && got == 0,
       "whose memory is zero");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(*(volatile int *)p);
    ok(child > 0 && waitpid(child, &status, 0) == child &&
           WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV,
       "which the host cannot read but by a copy");
    d->ops->free(d, p);
    d->ops->close(d);
}

/* Puts more than the page-locked buffer holds, in pieces of an odd size, from
 * memory that is overwritten at once. */
static void test_put(void)
{
    enum { BYTES = 20000003, N = 4 };
    struct pp_device *d = NULL;
    struct pp_err err = {0};
    unsigned char *from = malloc(BYTES), *got = malloc((size_t)N * BYTES);
    setenv("PP_EMULATED_JITTER", "2", 1);
    bool good = from && got && !pp_device_cuda.open(0, &d, &err);
    unsigned char *p = good ? d->ops->alloc(d, (size_t)N * BYTES) : NULL;
    good = good && p;
    for (int i = 0; i < N && good; i++) {
        memset(from, 10 + i, BYTES);
        good = !d->ops->put(d, p + (size_t)i * BYTES, from, BYTES, &err);
        memset(from, 0, BYTES);
    }
    good = good && !d->ops->get(d, got, p, (size_t)N * BYTES, &err);
    size_t wrong = 0;
    for (size_t i = 0; good && i < (size_t)N * BYTES; i++)
        wrong += got[i] != 10 + i / BYTES;
    ok(good && !wrong, "what is put is taken when put returns: %zu bytes wrong",
       wrong);
    unsetenv("PP_EMULATED_JITTER");
    if (d) {
        d->ops->free(d, p);
        d->ops->close(d);
    }
    free(from);
    free(got);
}

/* Waits until the host has put what it wants, or for two seconds. */
static atomic_int host_is_done;
static bool host_waited;

static void hold_stream(void *arg)
{
    (void)arg;
    for (int ms = 0; ms < 2000 && !host_is_done; ms++)
        usleep(1000);
    host_waited = !host_is_done;
}

/* A buffer of 16 MiB that is free again does not wait for work behind its
 * copies. */
static void test_put_beside_kernels(void)
{
    enum { HALF = 16 << 20 };
    struct pp_device *d = NULL;
    struct pp_err err = {0};
    unsigned char *from = calloc(1, HALF);
    bool good = from && !pp_device_cuda.open(0, &d, &err);
    unsigned char *p = good ? d->ops->alloc(d, HALF) : NULL;
    good = p && !d->ops->put(d, p, from, HALF, &err) &&
           !cudaLaunchHostFunc(((struct pp_cuda_stream *)d->stream)->stream,
                               hold_stream, NULL) &&
           !d->ops->put(d, p, from, HALF, &err) &&
           !d->ops->put(d, p, from, 1, &err);
    host_is_done = 1;
    good = good && !d->ops->wait(d, &err);
    ok(good && !host_waited, "put waits for the copies of a buffer alone");
    if (d) {
        d->ops->free(d, p);
        d->ops->close(d);
    }
    free(from);
}

static void test_place(const struct place *place, double bound,
                       const struct result *cpu, const struct result *scores,
                       const struct pp_packed *data)
{
    static const char *const kinds[] = {"1f1b", "gpipe", "zb-h1"};
    const char *name = place->kernels->name;
    struct result one, many;
    struct run run = {.place = place,
                      .kind = "1f1b",
                      .ranks = 1,
                      .steps = STEPS,
                      .data = data,
                      .out = &one};
    ok(done_run(&run), "%s trains on one rank", name);
    double loss = worst(one.loss, cpu->loss, STEPS);
    double norm = worst(one.norm, cpu->norm, STEPS);
    ok(loss < bound && norm < 10 * bound && loss > 0,
       "%s: the CPU's losses (%.2g off) and norms (%.2g)", name, loss, norm);
    ok(worst(&one.val_loss, &cpu->val_loss, 1) < bound,
       "%s: and validation loss", name);
    run.out = &many;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run.kind = kinds[i];
        run.ranks = i == 0 ? 4 : 2;
        ok(done_run(&run) && same(&one, &many), "%s: %s on %d: the same bits",
           name, run.kind, run.ranks);
    }
    for (int r = 1; r < PP_N_RECOMPUTES; r++) {
        run.recompute = pp_recompute_levels[r];
        ok(done_run(&run) && same(&one, &many),
           "%s: %s with recomputation %d: the same bits", name, run.kind, r);
    }
    run.score = true;
    ok(done_run(&run) && many.n_logps == scores->n_logps &&
           worst(many.logps, scores->logps, scores->n_logps) < 10 * bound,
       "%s: the CPU's log-probabilities", name);
}

/* Runs forward and backward of a pair on two streams with random delays. */
static void test_pairs(const struct place *place, const struct pp_packed *data)
{
    const char *name = place->kernels->name;
    struct result one, many;
    struct run run = {.place = place,
                      .kind = "1f1b",
                      .ranks = 1,
                      .steps = STEPS,
                      .data = data,
                      .out = &one};
    setenv("PP_EMULATED_JITTER", "1", 1);
    uint64_t before = pp_emulated_passed();
    ok(done_run(&run) && pp_emulated_passed() == before,
       "%s: without pairs every kernel waits for the one before", name);
    run.kind = "dualpipev";
    run.ranks = 2;
    run.v = true;
    run.out = &many;
    for (int r = 0; r < PP_N_RECOMPUTES; r++) {
        run.recompute = pp_recompute_levels[r];
        before = pp_emulated_passed();
        ok(done_run(&run) && same(&one, &many),
           "%s: dualpipev, recomputation %d: the same bits", name, r);
        ok(pp_emulated_passed() > before, "%s: and %d kernels passed others",
           name, (int)(pp_emulated_passed() - before));
    }
    unsetenv("PP_EMULATED_JITTER");
}

/* Adds gradients of two stages over two ranks. Those of the second stage are
 * added while the backward of the first one runs, and the update waits for
 * both. */
static void test_reduce(const struct pp_packed *data)
{
    struct result host, gpu;
    struct run run = {.place = &on_cpu,
                      .kind = "looped-bfs",
                      .ranks = 1,
                      .looped = true,
                      .dp = 2,
                      .steps = STEPS,
                      .data = data,
                      .out = &host};
    ok(done_run(&run), "the CPU trains on two data-parallel ranks");
    run.place = &on_f32;
    run.out = &gpu;
    for (int seed = 1; seed <= 3; seed++) {
        char text[] = {(char)('0' + seed), 0};
        setenv("PP_EMULATED_JITTER", text, 1);
        uint64_t before = pp_emulated_passed();
        ok(done_run(&run) && worst(gpu.loss, host.loss, STEPS) < 1e-5 &&
               worst(gpu.norm, host.norm, STEPS) < 1e-4,
           "the CPU's losses and norms, delays %d", seed);
        ok(pp_emulated_passed() > before, "%d kernels passed sums of gradients",
           (int)(pp_emulated_passed() - before));
    }
    unsetenv("PP_EMULATED_JITTER");
}

/* Makes two steps on two ranks and saves them, and one more on one rank, on the
 * device and on the CPU. roles: of the units, or NULL; no stage is frozen. */
static void test_resume(const struct place *place, double bound,
                        const enum pp_role *roles, const char *scratch,
                        const struct pp_packed *data)
{
    const char *name = place->kernels->name;
    struct result whole, part;
    char dir[SCRATCH_TEXT + 32], path[SCRATCH_TEXT + 64];
    snprintf(dir, sizeof dir, "%s/%s%s", scratch, name, roles ? "-part" : "");
    snprintf(path, sizeof path, "%s/step-00000002", dir);
    struct run run = {.place = place,
                      .kind = "1f1b",
                      .ranks = 2,
                      .steps = STEPS,
                      .roles = roles,
                      .data = data,
                      .out = &whole};
    ok(done_run(&run), "%s: three steps at once%s", name,
       roles ? ", with a frozen layer" : "");
    run.steps = 2;
    run.save = dir;
    run.out = &part;
    ok(done_run(&run), "%s: two steps, saved", name);
    run.steps = STEPS;
    run.save = NULL;
    run.resume = path;
    run.ranks = 1;
    ok(done_run(&run) && part.n == 1 && part.loss[2] == whole.loss[2] &&
           part.norm[2] == whole.norm[2] && part.val_loss == whole.val_loss,
       "%s: the third goes on with the same bits", name);
    run.place = &on_cpu;
    ok(done_run(&run) && worst(&part.loss[2], &whole.loss[2], 1) < bound &&
           part.loss[2] != whole.loss[2],
       "%s: and on the CPU as near as it can", name);
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[64];
    struct pp_packed data = {0};
    struct pp_err err = {0};
    struct result cpu, scores;
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/packed", dir);
    test_protection();
    test_put();
    test_put_beside_kernels();
    if (ok(!make_data(path, &data, &err), "packed data %s", err.text)) {
        struct run run = {.place = &on_cpu,
                          .kind = "1f1b",
                          .ranks = 1,
                          .steps = STEPS,
                          .data = &data,
                          .out = &cpu};
        ok(done_run(&run), "the CPU trains");
        run.score = true;
        run.out = &scores;
        ok(done_run(&run) && scores.n_logps > 0, "and scores");
        test_place(&on_f32, 1e-5, &cpu, &scores, &data);
        test_resume(&on_f32, 1e-5, NULL, dir, &data);
        test_pairs(&on_f32, &data);
        test_reduce(&data);
        test_place(&on_bf16, 2e-2, &cpu, &scores, &data);
        test_resume(&on_bf16, 2e-2, NULL, dir, &data);
        /* Its weights have no exact copy. */
        const enum pp_role roles[N_UNITS] = {[1] = PP_ROLE_PASSED};
        test_resume(&on_bf16, 2e-2, roles, dir, &data);
    }
    pp_packed_finish(&data);
    scratch_remove(dir);
    return done();
}
