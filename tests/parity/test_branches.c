/* SPDX-License-Identifier: MIT */
/* Tests stages with several inputs and outputs: on ranks of their own they give
 * the bits of one rank, and the gradients of every tensor are the differences
 * of the loss. A stage with several inputs works on their sum. The evaluation
 * has an empty microbatch, so messages of no rows pass all edges. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "merged.h"
#include "schedule/check/check.h"
#include "schedule/kinds/kind.h"
#include "scratch.h"
#include "small_run.h"
#include "tap.h"

enum { LAYERS = 4, N_UNITS = LAYERS + 3, STAGES = 4, M = 3, MOST = 64 };
#define STEP 1e-5

static const struct pp_model model = SMALL_MODEL(LAYERS);

/* Stages of units first[s] .. first[s + 1] - 1, each with its rank and its
 * inputs, ended by -1. Bit u of frozen: unit u is not trained. */
struct branches {
    const char *name;
    size_t first[STAGES + 1];
    int rank[STAGES], inputs[STAGES][3];
    unsigned frozen;
};

static const struct branches cases[] = {
    {"a diamond",
     {0, 1, 2, 3, N_UNITS},
     {0, 1, 2, 3},
     {{-1}, {0, -1}, {0, -1}, {1, 2, -1}},
     0},
    {"a diamond on two ranks",
     {0, 1, 2, 3, N_UNITS},
     {0, 0, 1, 1},
     {{-1}, {0, -1}, {0, -1}, {1, 2, -1}},
     0},
    {"a stage that feeds the last one too",
     {0, 2, 3, 4, N_UNITS},
     {0, 1, 2, 3},
     {{-1}, {0, -1}, {1, -1}, {0, 2, -1}},
     0},
    {"the same with a frozen stage beside it",
     {0, 2, 3, 4, N_UNITS},
     {0, 1, 2, 3},
     {{-1}, {0, -1}, {1, -1}, {0, 2, -1}},
     1u << 2},
    {"a frozen stage before both",
     {0, 1, 2, 3, N_UNITS},
     {0, 1, 2, 3},
     {{-1}, {0, -1}, {0, -1}, {1, 2, -1}},
     1u << 0 | 1u << 1},
};

struct result {
    double loss[2 * MOST + 1], norm[2 * MOST + 1];
    double want[MOST];  /* slopes along the signs of each tensor ... */
    bool trained[MOST]; /* ... that is not frozen */
    size_t n_tensors;
    bool differentiates; /* change a tensor before every step */
};

static int keep(void *ctx, const struct pp_step_report *r, struct pp_err *err)
{
    (void)err;
    struct result *to = ctx;
    to->loss[r->step - 1] = r->loss;
    to->norm[r->step - 1] = r->grad_norm;
    return 0;
}

static double sign(size_t tensor, size_t i)
{
    return pp_rng_bits(tensor, i) & 1 ? 1 : -1;
}

static void move(const struct pp_parameter *p, size_t tensor, double by)
{
    for (size_t i = 0; i < p->n; i++)
        ((double *)p->w)[i] += by * sign(tensor, i);
}

/* Step 1 has the gradients. Steps 2 k + 2 and 2 k + 3 have the losses with
 * tensor k moved forth and back. */
static int differentiate(void *ctx, const struct pp_inspection *at,
                         struct pp_err *err)
{
    (void)err;
    struct result *r = ctx;
    const struct pp_parameters *p = at->params;
    size_t step = (size_t)at->updates;
    if (!r->differentiates)
        return 0;
    for (size_t k = 0; step == 0 && k < p->n; k++) {
        r->trained[k] = p->at[k].g != NULL;
        for (size_t i = 0; p->at[k].g && i < p->at[k].n; i++)
            r->want[k] += ((const double *)p->at[k].g)[i] * sign(k, i);
    }
    r->n_tensors = p->n;
    size_t tensor = step / 2;
    if (step > 0 && step % 2 == 0 && tensor <= p->n)
        move(&p->at[tensor - 1], tensor - 1, STEP); /* back in place */
    if (tensor < p->n)
        move(&p->at[tensor], tensor, step % 2 ? -2 * STEP : STEP);
    return 0;
}

static int build(const struct branches *b, bool merged, struct pp_arena *a,
                 struct pp_graph *g, struct pp_err *err)
{
    *g = (struct pp_graph){.n_stages = STAGES, .tied = {-1, -1}};
    g->stages = pp_arena_alloc(a, STAGES, sizeof *g->stages);
    for (int s = 0; s < STAGES; s++) {
        struct pp_stage_node *n = &g->stages[s];
        n->row = merged ? 0 : b->rank[s];
        g->n_rows = n->row >= g->n_rows ? n->row + 1 : g->n_rows;
        n->inputs = b->inputs[s];
        while (n->inputs[n->n_inputs] >= 0)
            n->n_inputs++;
        n->frozen = true;
        for (size_t u = b->first[s]; u < b->first[s + 1]; u++)
            n->frozen &= b->frozen >> u & 1;
    }
    return pp_graph_connect(a, g, err);
}

static int train(const struct branches *b, const struct pp_schedule *s,
                 const struct pp_packed data[2], int64_t steps, double lr,
                 struct result *out, struct pp_err *err)
{
    struct pp_model m = model;
    struct pp_unit_range stages[STAGES];
    enum pp_role roles[N_UNITS];
    struct pp_schedule forward = {0};
    m.tied = false;
    m.roles = roles;
    for (size_t u = 0; u < N_UNITS; u++) {
        /* The first units of the model come before all others. */
        unsigned below = (1u << u) - 1;
        roles[u] = !(b->frozen >> u & 1)          ? PP_ROLE_TRAINED
                   : (b->frozen & below) == below ? PP_ROLE_FORWARD
                                                  : PP_ROLE_PASSED;
    }
    for (int i = 0; i < STAGES; i++)
        stages[i] = (struct pp_unit_range){i, b->first[i],
                                           b->first[i + 1] - b->first[i], 0};
    pp_schedule_forward_only(s, &forward);
    const struct pp_job job = {
        .model = &m,
        .schedule = s,
        .forward = &forward,
        .eval = out->differentiates ? NULL : &data[1],
        .stages = stages,
        .kernels = &pp_kernels_f64,
        .data = data,
        .seed = 3,
        .optim = {.optimizer = PP_SGD_OPTIMIZER, .lr = lr, .steps = steps},
        .accumulate = 1,
        .inspect = differentiate,
        .report = keep,
        .ctx = out,
    };
    int rc = small_ranks(&job, err);
    pp_schedule_finish(&forward);
    return rc;
}

/* Returns the largest error of a slope, over the largest slope. */
static double worst_slope(const struct result *r)
{
    double worst = 0, most = 0;
    for (size_t k = 0; k < r->n_tensors; k++) {
        double slope = (r->loss[2 * k + 1] - r->loss[2 * k + 2]) / (2 * STEP);
        most = fmax(most, fabs(slope));
        if (r->trained[k])
            worst = fmax(worst, fabs(slope - r->want[k]));
    }
    return worst / most;
}

static void run_case(const struct branches *b, const char *kind,
                     const struct pp_packed data[2])
{
    struct pp_arena a = {0};
    struct pp_graph g = {0}, one = {0};
    struct pp_schedule s = {0}, merged = {0};
    struct pp_err err = {0};
    struct result many = {0}, single = {0}, slopes = {.differentiates = true};
    const struct pp_kind_options o = {.n_microbatches = M};
    bool good = !build(b, false, &a, &g, &err) &&
                !build(b, true, &a, &one, &err) &&
                (pp_schedule_init(&s, &g, kind, M), true) &&
                !pp_kind_emit(pp_kind_find(kind), &s, &o, &err) &&
                !pp_lower(&s, &err) && !pp_check(&s, &err) &&
                !merge_rows(&s, &one, &merged, &err) &&
                !train(b, &s, data, 3, 0.1, &many, &err) &&
                !train(b, &merged, data, 3, 0.1, &single, &err);
    ok(good && !memcmp(many.loss, single.loss, sizeof many.loss) &&
           !memcmp(many.norm, single.norm, sizeof many.norm) &&
           many.loss[0] != many.loss[2],
       "%s, %s: the ranks have the bits of one %s", b->name, kind, err.text);
    good = good && !train(b, &merged, data, 2 * MOST + 1, 0, &slopes, &err);
    double off = good ? worst_slope(&slopes) : INFINITY;
    ok(off < 1e-6, "  its gradients are slopes of the loss: %.2g off", off);
    pp_schedule_finish(&merged);
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
}

int main(void)
{
    static const size_t first[] = {0, 2, 4, 5, 6};
    char dir[SCRATCH_TEXT], path[2][64];
    struct pp_packed data[2] = {{0}}; /* to train on, and to evaluate */
    struct pp_err err = {0};
    scratch_make(dir);
    snprintf(path[0], sizeof path[0], "%s/packed", dir);
    snprintf(path[1], sizeof path[1], "%s/eval", dir);
    if (ok(!small_data(path[0], 3, 7, first, M, &data[0], &err) &&
               !small_data(path[1], 3, 7, first, M + 1, &data[1], &err),
           "packed data %s", err.text))
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            run_case(&cases[i], "gpipe", data);
            if (i != 1) /* two stages on a rank */
                run_case(&cases[i], "zb-h1", data);
        }
    pp_packed_finish(&data[0]);
    pp_packed_finish(&data[1]);
    scratch_remove(dir);
    return done();
}
