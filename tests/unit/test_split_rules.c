/* SPDX-License-Identifier: MIT */
/* test_split_rules - rules against tables of other systems: torchtitan's number
 * of stages and its names, DeepSpeed's dynamic program, ColossalAI's
 * distribution. test_split_megatron.c has Megatron-LM's rules. */
#include "base/rng.h"
#include "split/split.h"
#include "split/colossalai.h"
#include "split/deepspeed.h"
#include "split/torchtitan.h"
#include "tap.h"

#define LENGTH(a) (sizeof(a) / sizeof *(a))

enum { MAX_UNITS = 40 };

/* Layers, weights, ranks, layers per stage, kind; expected stages or message.
 */
static const struct {
    struct pp_torchtitan t;
    const char *want;
} stages[] = {
    {{6, 1, 1, 2, 0, PP_STAGES_SINGLE}, "2"},
    {{6, 1, 1, 2, 4, PP_STAGES_SINGLE}, "2"},
    {{32, 1, 1, 4, 0, PP_STAGES_MULTI}, "8"},
    {{32, 1, 1, 4, 3, PP_STAGES_MULTI}, "12"},
    {{126, 1, 1, 16, 4, PP_STAGES_MULTI}, "32"},
    {{126, 1, 1, 16, 4, PP_STAGES_ANY}, "32"},
    {{32, 1, 1, 8, 4, PP_STAGES_SINGLE},
     "layers per stage: 4 makes 9 stages, which do not divide by 8 ranks; "
     "values that work: none"},
    {{32, 1, 1, 8, 4, PP_STAGES_MULTI},
     "layers per stage: 4 makes 9 stages, which do not divide by 8 ranks; "
     "values that work: none"},
    {{32, 1, 1, 16, 4, PP_STAGES_SINGLE},
     "layers per stage: 4 makes 9 stages, which do not divide by 16 ranks; "
     "values that work: none"},
    {{80, 1, 1, 8, 4, PP_STAGES_MULTI},
     "layers per stage: 4 makes 21 stages, which do not divide by 8 ranks; "
     "values that work: none"},
    {{32, 1, 1, 4, 9, PP_STAGES_MULTI},
     "layers per stage: 9 makes 4 stages, which is fewer than two on each of 4 "
     "ranks; "
     "values that work: 3"},
    {{32, 1, 1, 4, 9, PP_STAGES_ANY}, "4"},
    {{32, 1, 1, 4, 3, PP_STAGES_SINGLE},
     "layers per stage: 3 makes 12 stages, which is more than one on each of 4 "
     "ranks; "
     "values that work: 9-11"},
    {{30, 1, 1, 4, 7, PP_STAGES_ANY},
     "layers per stage: 7 makes 5 stages, which do not divide by 4 ranks; "
     "values that work: 1, 2, 4, 8-10"},
    {{6, 2, 1, 2, 1, PP_STAGES_MULTI},
     "layers per stage: 1 makes 9 stages, which do not divide by 2 ranks; "
     "values that work: none"},
    {{8, 1, 1, 1, 1, PP_STAGES_SINGLE},
     "layers per stage: 1 makes 10 stages, which is more than one on each of 1 "
     "ranks; "
     "values that work: 10 or more"},
    {{0, 1, 1, 2, 0, PP_STAGES_SINGLE}, "the model has no layers"},
};

/* Checks that exactly the values in the list work. */
static bool list_is_right(const struct pp_torchtitan *t)
{
    for (size_t lps = 1; lps <= t->n_layers + 4; lps++) {
        struct pp_torchtitan one = *t;
        struct pp_err err = {0};
        size_t n, counts[256];
        one.layers_per_stage = lps;
        bool good = pp_torchtitan_stages(&one, 256, &n, &err) == 0 &&
                    pp_split_weights(t->n_layers, n, t->input_weight,
                                     t->output_weight, counts, &err) == 0;
        one.layers_per_stage = t->layers_per_stage;
        memset(&err, 0, sizeof err);
        if (pp_torchtitan_stages(&one, 256, &n, &err) == 0)
            return true; /* nothing is listed */
        const char *list = strstr(err.text, "work: ") + strlen("work: ");
        bool listed = false;
        size_t from, to;
        for (int used; sscanf(list, "%zu%n", &from, &used) == 1;) {
            to = from;
            list += used;
            if (sscanf(list, "-%zu%n", &to, &used) == 1)
                list += used;
            if (!strncmp(list, " or more", 8))
                to = SIZE_MAX;
            listed |= lps >= from && lps <= to;
            list += strspn(list, ", ");
        }
        if (listed != good) {
            printf("# %zu: %s\n", lps, err.text);
            return false;
        }
    }
    return true;
}

static void test_stages(void)
{
    for (size_t i = 0; i < LENGTH(stages); i++) {
        struct pp_err err = {0};
        size_t n = 0;
        char got[512], what[64];
        snprintf(what, sizeof what, "torchtitan: %zu layers, %zu ranks, %zu",
                 stages[i].t.n_layers, stages[i].t.n_ranks,
                 stages[i].t.layers_per_stage);
        if (pp_torchtitan_stages(&stages[i].t, 65536, &n, &err))
            snprintf(got, sizeof got, "%s", err.text);
        else
            snprintf(got, sizeof got, "%zu", n);
        is_str(got, stages[i].want, what);
    }
    int wrong = 0;
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t key = pp_rng_key(i, "stages");
        const struct pp_torchtitan t = {
            .n_layers = 1 + pp_rng_bits(key, 0) % 40,
            .input_weight = pp_rng_bits(key, 1) % 3,
            .output_weight = pp_rng_bits(key, 2) % 3,
            .n_ranks = 1 + pp_rng_bits(key, 3) % 8,
            .layers_per_stage = 1 + pp_rng_bits(key, 4) % 9,
            .kind = (enum pp_stages_kind)(i % 3),
        };
        wrong += !list_is_right(&t);
    }
    is_int(wrong, 0, "300 times, the values listed are those that work");
}

static void test_names(void)
{
    const struct pp_model m = {.n_layers = 12};
    static const char *const good[] = {"tok_embeddings", "layers.0",
                                       "layers.11", "norm", "lm_head"};
    static const char *const bad[] = {
        "layers.12", "layers.01", "layers.1x",      "layers.",  "layers.-1",
        "Norm",      "",          "model.layers.1", "lm_head ", "embed_tokens"};
    struct pp_unit_id u;
    char name[PP_FQN_TEXT];
    for (size_t i = 0; i < LENGTH(good); i++) {
        bool found = pp_torchtitan_by_fqn(&m, good[i], &u);
        if (found)
            pp_torchtitan_fqn(u, PP_TORCHTITAN_LM_HEAD, name);
        is_str(found ? name : "none", good[i], "a name of torchtitan");
    }
    for (size_t i = 0; i < LENGTH(bad); i++)
        ok(!pp_torchtitan_by_fqn(&m, bad[i], &u), "'%s' is not a name", bad[i]);
    ok(pp_torchtitan_by_fqn(&m, "output", &u) && u.kind == PP_UNIT_HEAD,
       "the head of older releases");
    pp_torchtitan_fqn(u, PP_TORCHTITAN_OUTPUT, name);
    is_str(name, "output", "the name of the head in older releases");
}

static const char *join(const size_t *values, size_t n_values, char buf[512])
{
    int n = 0;
    for (size_t i = 0; i < n_values; i++)
        n += snprintf(buf + n, 512 - (size_t)n, "%s%zu", i ? "," : "",
                      values[i]);
    return buf;
}

static const struct {
    size_t n, n_stages;
    double weights[12];
    const char *want;
} deepspeed[] = {
    {10, 1, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "0,10"},
    {8, 4, {1, 1, 1, 1, 1, 1, 1, 1}, "0,2,4,6,8"},
    {6, 4, {0, 1.1, 1.9, 3, 3, 3}, "0,3,4,5,6"},
    {4, 3, {0, 1.1, 30, 3}, "0,2,3,4"},
    {3, 4, {1, 2, 1}, "0,1,2,3,3"},
    {5, 4, {1, 1, 1, 1, 1}, "0,2,3,4,5"},
    /* Not optimal: 5 instead of 4, and 13 instead of 11. */
    {4, 3, {1, 4, 2, 2}, "0,2,3,4"},
    {8, 5, {4, 9, 3, 3, 6, 4, 5, 6}, "0,2,4,5,7,8"},
};

/* DeepSpeed's dynamic program with its own loop order and arrays. */
static void reference(const double *weights, size_t n, size_t m, size_t *parts)
{
    static double max[MAX_UNITS + 1][MAX_UNITS + 1];
    static double min[MAX_UNITS + 1][MAX_UNITS + 1];
    static double cost[MAX_UNITS + 1][MAX_UNITS + 1];
    static size_t at[MAX_UNITS + 1][MAX_UNITS + 1];
    double before[MAX_UNITS + 1] = {0};
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            max[i][j] = min[i][j] = cost[i][j] = INFINITY;
            at[i][j] = 0;
        }
    for (size_t i = 0; i < n; i++)
        before[i + 1] = before[i] + weights[i];
    max[0][0] = cost[0][0] = 0;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= (i < m ? i : m); j++)
            for (size_t k = 0; k < i; k++) {
                double high = fmax(max[k][j - 1], before[i] - before[k]);
                double low = fmin(min[k][j - 1], before[i] - before[k]);
                if (cost[i][j] >= high - low) {
                    cost[i][j] = high - low;
                    max[i][j] = high;
                    min[i][j] = low;
                    at[i][j] = k;
                }
            }
    parts[m] = n;
    for (size_t j = m; j > 0; j--)
        parts[j - 1] = at[parts[j]][j];
}

static void test_deepspeed(void)
{
    size_t bounds[MAX_UNITS + 1], want[MAX_UNITS + 1];
    char buf[512], what[64];
    struct pp_err err = {0};
    for (size_t i = 0; i < LENGTH(deepspeed); i++) {
        snprintf(what, sizeof what, "DeepSpeed %zu", i);
        if (pp_split_deepspeed(deepspeed[i].weights, deepspeed[i].n,
                               deepspeed[i].n_stages, bounds, &err))
            is_str(err.text, deepspeed[i].want, what);
        else
            is_str(join(bounds, deepspeed[i].n_stages + 1, buf),
                   deepspeed[i].want, what);
    }
    int wrong = 0;
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t key = pp_rng_key(i, "deepspeed");
        double weights[MAX_UNITS];
        size_t n = 2 + pp_rng_bits(key, 0) % (MAX_UNITS - 1);
        size_t m = 1 + pp_rng_bits(key, 1) % (n - 1);
        for (size_t u = 0; u < n; u++)
            weights[u] = i % 3 == 0   ? pp_rng_uniform(key, 10 + u)
                         : i % 3 == 1 ? (double)(pp_rng_bits(key, 10 + u) % 10)
                                      : (double)(pp_rng_bits(key, 10 + u) % 2);
        reference(weights, n, m, want);
        if (pp_split_deepspeed(weights, n, m, bounds, &err))
            wrong++;
        else
            wrong += memcmp(bounds, want, (m + 1) * sizeof *want) != 0;
    }
    is_int(wrong, 0, "400 random instances agree with DeepSpeed's program");
    ok(pp_split_deepspeed(deepspeed[0].weights, 3, 0, bounds, &err) != 0,
       "no stages are refused");
}

static void test_classes(void)
{
    static const char *const want[] = {"Embedding", "Qwen2DecoderLayer",
                                       "Qwen2RMSNorm", "Linear"};
    const struct pp_model m = {.architecture = PP_QWEN2, .n_layers = 1};
    char name[PP_FQN_TEXT];
    for (size_t i = 0; i < LENGTH(want); i++) {
        pp_unit_class(&m, pp_model_unit(&m, i), name);
        is_str(name, want[i], "the class of a unit");
    }
}

static void test_colossalai(void)
{
    static const struct {
        size_t n_layers, n_stages;
        const char *want;
    } rows[] = {
        {8, 8, "1,1,1,1,1,1,1,1"},
        {10, 4, "2,3,3,2"},
        {7, 4, "1,2,2,2"},
        {10, 3, "3,4,3"},
        {12, 8, "1,1,2,2,2,2,1,1"},
        {3, 4, "0,1,1,1"},
        {0, 2, "0,0"},
        {5, 1, "5"},
    };
    struct pp_err err = {0};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t counts[8] = {0};
        char buf[512], what[64];
        snprintf(what, sizeof what, "ColossalAI %zu on %zu", rows[i].n_layers,
                 rows[i].n_stages);
        int rc = pp_split_colossalai(rows[i].n_layers, rows[i].n_stages, counts,
                                     &err);
        is_str(rc ? err.text : join(counts, rows[i].n_stages, buf),
               rows[i].want, what);
    }
    size_t counts[1];
    ok(pp_split_colossalai(1, 0, counts, &err) != 0, "0 stages are refused");
}

int main(void)
{
    test_stages();
    test_names();
    test_deepspeed();
    test_classes();
    test_colossalai();
    return done();
}
