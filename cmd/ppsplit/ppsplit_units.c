/* SPDX-License-Identifier: MIT */
/* Methods: from a model and a number of stages to the boundaries. */
#include <string.h>

#include "base/num.h"
#include "split/split.h"
#include "ppsplit.h"

const char *const split_method_names[] = {
    "balanced",      "uniform",    "weights",           "layers",
    "fqns",          "layout",     "megatron",          "parameters",
    "type",          "colossalai", "colossalai-legacy", "automodel",
    "uniform-units", NULL};

/* A layout's boundaries where it has an m: then the norm is with the last
 * decoder layer. */
static void set_symbols(struct split_job *j)
{
    size_t stage = 0, at = 0, layers = 0;
    for (const char *s = j->symbols; *s; s++) {
        if (*s == '|') {
            j->bounds[++stage] = at;
            continue;
        }
        at++;
        layers += *s == 't';
        at += *s == 't' && layers == j->model.n_layers;
    }
}

/* Boundaries from layers per stage: the embedding lies on the first stage,
 * norm and head on the last. */
static void set_layers(struct split_job *j, const size_t *counts)
{
    size_t n = (size_t)j->graph.n_stages;
    j->bounds[0] = 0;
    j->bounds[1] = pp_model_n_first(&j->model) + counts[0];
    for (size_t s = 1; s < n; s++)
        j->bounds[s + 1] = j->bounds[s] + counts[s];
    j->bounds[n] = j->n_units;
    if (j->method == SPLIT_LAYOUT && j->model.n_mtp > 0)
        set_symbols(j);
}

/* --layers N,N,... */
static int parse_layers(struct split_job *j, size_t *counts)
{
    struct pp_err *err = &j->t.err;
    size_t n = 0, n_stages = (size_t)j->graph.n_stages, sum = 0;
    char *text = pp_arena_strdup(&j->arena, j->layers);
    if (!text)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (char *item; (item = strsep(&text, ",")); n++) {
        int64_t v;
        if (pp_parse_int(item, "--layers", 0, INT32_MAX, &v, err))
            return -1;
        if (n < n_stages)
            counts[n] = (size_t)v;
        sum += (size_t)v;
    }
    if (n != n_stages)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--layers: '%s' is for %zu stages, not %zu", j->layers,
                       n, n_stages);
    if (sum != j->model.n_layers)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--layers: '%s' adds up to %zu, not %zu", j->layers, sum,
                       j->model.n_layers);
    return 0;
}

int split_by_layers(struct split_job *j)
{
    size_t n = (size_t)j->graph.n_stages, layers = j->model.n_layers;
    size_t *counts = pp_arena_alloc(&j->arena, n, sizeof *counts);
    if (!counts)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    if (j->method == SPLIT_LAYERS) {
        if (parse_layers(j, counts))
            return -1;
    } else if (j->method == SPLIT_WEIGHTS) {
        size_t in = j->input_weight < 0 ? 1 : (size_t)j->input_weight;
        size_t out = j->output_weight < 0 ? 1 : (size_t)j->output_weight;
        if (pp_split_weights(layers, n, in, out, counts, &j->t.err))
            return -1;
    } else if (j->method != SPLIT_UNIFORM && j->method != SPLIT_AUTOMODEL) {
        if (split_rule_layers(j, counts))
            return -1;
    } else {
        if (pp_split_uniform(layers, n, j->bounds, &j->t.err))
            return -1;
        for (size_t s = 0; s < n; s++)
            counts[s] = j->bounds[s + 1] - j->bounds[s];
    }
    set_layers(j, counts);
    return 0;
}

/* DeepSpeed's rules count units, the ends among them. */
static bool by_units(const struct split_job *j)
{
    return j->method == SPLIT_PARAMETERS || j->method == SPLIT_TYPE ||
           j->method == SPLIT_UNIFORM_UNITS;
}

/* A stage without units is what somebody asks for by name, not what a rule may
 * leave. */
static int check_enough(struct split_job *j)
{
    size_t n = (size_t)j->graph.n_stages;
    bool units = j->method == SPLIT_BALANCED || by_units(j);
    if (units && n > j->n_units && j->model.table)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu units", n, j->n_units);
    if (units && n > j->n_units)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu units (embedding, "
                       "%zu layers, norm, head)",
                       n, j->n_units, j->model.n_layers);
    if ((j->method == SPLIT_UNIFORM || j->method == SPLIT_AUTOMODEL) &&
        n > j->model.n_layers)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu layers", n,
                       j->model.n_layers);
    return 0;
}

int split_units(struct split_job *j)
{
    if (check_enough(j))
        return -1;
    if (j->method == SPLIT_FQNS)
        return split_read_fqns(j);
    if (by_units(j))
        return split_rule_units(j);
    return j->method == SPLIT_BALANCED ? split_balanced(j) : split_by_layers(j);
}

/* Adds unit i to its stage's sums. */
static void add_unit(const struct split_job *j, struct split_sum *sum, size_t i)
{
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    struct pp_held held = pp_mesh_held(&j->mesh, &j->model, u);
    double bytes[PP_N_SAVED_BLOCKS];
    for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
        bytes[b] =
            pp_mesh_share(&j->mesh) *
            (double)pp_unit_saved_bytes(&j->model, u, split_recompute(j, i),
                                        (enum pp_saved_block)b, j->precision);
    /* What W needs of the output gradients exists for one microbatch only:
     * 1F1B runs W right after I. */
    double kept = bytes[PP_SAVED_ACT_I] + bytes[PP_SAVED_ACT_W];
    sum->params += held.dense + held.experts;
    sum->state_bytes += split_state_bytes(j, i);
    sum->cost += j->costs[i];
    sum->activations_bytes +=
        (kept * sum->live + bytes[PP_SAVED_GRAD_W]) * (double)j->tokens;
}

int split_sums(struct split_job *j)
{
    struct pp_graph *g = &j->graph;
    j->stages =
        pp_arena_alloc(&j->arena, (size_t)g->n_stages, sizeof *j->stages);
    j->ranks = pp_arena_alloc(&j->arena, (size_t)g->n_rows, sizeof *j->ranks);
    if (!j->stages || !j->ranks)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < g->n_stages; s++)
        /* dualpipe keeps for each copy what 1F1B keeps for the only one. */
        j->stages[s].live = pp_live_microbatches(
            g->n_rows, (int)j->n_chunks, j->placement == PP_PLACEMENT_V,
            pp_original(g, s),
            (int)((j->n_microbatches + g->n_copies - 1) / g->n_copies));
    if (split_measure_stages(j))
        return -1;
    for (int s = 0; s < g->n_stages; s++) {
        struct split_sum *sum = &j->stages[s];
        struct split_sum *rank = &j->ranks[g->stages[s].row];
        for (size_t i = split_first(j, s); i < split_end(j, s); i++)
            add_unit(j, sum, i);
        rank->params += sum->params;
        rank->cost += sum->cost;
        rank->state_bytes += sum->state_bytes;
        rank->activations_bytes += sum->activations_bytes;
    }
    return split_measure_ranks(j);
}
