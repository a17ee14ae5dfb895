/* SPDX-License-Identifier: MIT */
/* test_split_more - plans at many limits of memory: more memory never makes the
 * step longer. The models are too large to compare with all splits. */
#include "split/plan.h"

#include "base/rng.h"
#include "tap.h"

enum { MAX_UNITS = 64, N_LIMITS = 6 };

static const struct model {
    const char *what, *kind;
    int64_t p, c, m;
    enum pp_placement placement;
    size_t n_units;
    double head,
        spread; /* the head's cost in layers; 0: all layers are alike */
} models[] = {
    {"a large head", "interleaved", 8, 2, 16, PP_PLACEMENT_LOOP, 50, 6, 0},
    {"unequal layers", "1f1b", 8, 1, 16, PP_PLACEMENT_LOOP, 40, 3, 1},
    {"unequal layers", "zbv", 6, 2, 12, PP_PLACEMENT_V, 38, 3, 1},
    {"equal layers", "zb-h1", 6, 1, 12, PP_PLACEMENT_LOOP, 34, 4, 0},
    {"unequal layers", "zb-interleaved", 4, 3, 8, PP_PLACEMENT_LOOP, 30, 2, 1},
};
enum { N_MODELS = sizeof models / sizeof *models };

struct fixture {
    struct pp_unit_row rows[MAX_UNITS];
    char names[MAX_UNITS][8];
    struct pp_unit_table table;
    struct pp_model model;
    struct pp_split_request request;
};

static void make(struct fixture *x, const struct model *of, uint64_t key)
{
    uint64_t k = 0;
    *x = (struct fixture){.table = {"Random", x->rows, of->n_units, 1}};
    for (size_t i = 0; i < of->n_units; i++) {
        struct pp_unit_row *r = &x->rows[i];
        bool head = i == of->n_units - 1, embed = i == 0;
        double size = 1 + of->spread * pp_rng_uniform(key, k++);
        double part = embed ? 0.01 : head ? of->head : size;
        snprintf(x->names[i], sizeof x->names[i], "u%zu", i);
        *r = (struct pp_unit_row){.fqn = x->names[i],
                                  .class = "Block",
                                  .kind = embed  ? PP_UNIT_EMBED
                                          : head ? PP_UNIT_HEAD
                                                 : PP_UNIT_LAYER,
                                  .costs = {.out_bytes = 64}};
        r->costs.params = (uint64_t)(4000 * (embed ? of->head : part));
        r->costs.fwd_flops[0] = floor(1000 * part);
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            r->costs.act_bytes[b] =
                floor((embed ? 10 : 400) *
                      (1 + of->spread * pp_rng_uniform(key, k++)));
    }
    x->model = (struct pp_model){.architecture = PP_TABLE,
                                 .n_layers = of->n_units - 2,
                                 .table = &x->table};
    x->request = (struct pp_split_request){
        .shard = pp_shard_whole(&x->model),
        .precision = &pp_precisions[0],
        .microbatch = {.tokens = 16, .seq_len = 16},
        .n_ranks = of->p,
        .n_chunks = of->c,
        .n_microbatches = of->m,
        .placement = of->placement,
        .kind = of->kind,
        .shortest = true,
    };
}

/* Returns the step of the plan within a limit, infinite if none fits; 0 if it
 * fails. Sets *need to the bytes of its fullest rank. */
static double step_at(const struct pp_split_request *q, size_t limit,
                      double *need)
{
    struct pp_split_request one = *q;
    struct pp_split_plan plan;
    struct pp_err err = {0};
    double step = 0;
    one.memory_bytes = limit;
    one.plan_buffers = true;
    if (pp_split_plan(&one, &plan, &err)) {
        printf("# %s\n", err.text);
    } else {
        *need = pp_split_plan_need(&plan, pp_split_plan_fullest(&plan));
        step = !limit || pp_split_plan_fits(&plan) ? plan.run.found.makespan
                                                   : INFINITY;
    }
    pp_split_plan_finish(&plan);
    return step;
}

/* Returns about the least limit at which any plan is found. */
static size_t least_limit(const struct pp_split_request *q, double most)
{
    struct pp_split_request any = *q;
    size_t low = 0, high = (size_t)most;
    double need;
    any.fit_only = true;
    while (high - low > high / 256) {
        size_t middle = low + (high - low) / 2;
        if (isfinite(step_at(&any, middle, &need)))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static void test_model(const struct model *of, uint64_t key, size_t n)
{
    static struct fixture x;
    double need, least = INFINITY, worst = 0;
    size_t n_longer = 0, n_fit = 0, n_different = 0;
    make(&x, of, key);
    double all = step_at(&x.request, 0, &need);
    size_t from = least_limit(&x.request, need);
    double until = 1.1 * need;
    for (size_t i = 0; i < n; i++) {
        size_t limit =
            from + (size_t)((until - (double)from) * (double)i / (double)n);
        double step = step_at(&x.request, limit, &need);
        if (step == 0) {
            ok(false, "%s: a plan failed", of->what);
            return;
        }
        n_fit += isfinite(step);
        n_longer += step > least * (1 + 1e-9);
        if (isfinite(least))
            worst = fmax(worst, step / least - 1);
        n_different += step < least;
        least = fmin(least, step);
    }
    printf("# %zu limits fit, %zu steps; %zu are longer, by %.2f %% at most; "
           "the last is %.2f %% above the step without a limit\n",
           n_fit, n_different, n_longer, 100 * worst, 100 * (least / all - 1));
    ok(n_longer == 0 && n_different > 1,
       "%s, %s: more memory never makes the step longer", of->what, of->kind);
}

/* The arguments are the number of limits, and of models of each kind. */
int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : N_LIMITS;
    uint64_t n_keys = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (uint64_t key = 0; key < n_keys; key++)
        for (size_t k = 0; k < N_MODELS; k += (size_t)fewer())
            test_model(&models[k], key, n);
    return done();
}
