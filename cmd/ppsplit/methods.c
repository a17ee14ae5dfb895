/* SPDX-License-Identifier: MIT */
/* methods - the methods other than balanced, most of them rules of
 * other systems: which of their options go together, how many stages they make,
 * and the bounds. The rules themselves are in lib/split. */
#include <inttypes.h>
#include <regex.h>
#include <string.h>

#include "base/num.h"
#include "model/moe_frequency.h"
#include "ppsplit.h"
#include "split/split.h"
#include "split/colossalai.h"
#include "split/deepspeed.h"
#include "split/megatron.h"

const char *const split_method_names[] = {
    "balanced",   "joint",         "uniform",    "weights",
    "layers",     "fqns",          "layout",     "megatron",
    "parameters", "type",          "colossalai", "colossalai-legacy",
    "automodel",  "uniform-units", NULL};

/* --- which options go together --- */

static int check_both_ways(struct split_job *j)
{
    struct tool *t = &j->p.t;
    if (j->o.placement != PP_PLACEMENT_BOTH_WAYS)
        return 0;
    if (j->o.n_ranks % 2)
        return tool_usage(t,
                          "--placement both-ways needs an even number of "
                          "ranks, not '%" PRId64 "'",
                          j->o.n_ranks);
    if (j->o.n_chunks > 1)
        return tool_usage(t,
                          "--placement both-ways has one stage of each copy "
                          "on a rank, not '%" PRId64 "' (-c)",
                          j->o.n_chunks);
    if (j->o.export)
        return tool_usage(t, "--export: no other system places stages both "
                             "ways");
    return 0;
}

static int check_joint(struct split_job *j)
{
    struct tool *t = &j->p.t;
    if (j->rule.method != SPLIT_JOINT)
        return 0;
    if (j->o.kind)
        return tool_usage(t, "--method joint chooses the schedule; omit -s");
    if (j->o.recompute_list)
        return tool_usage(t, "--method joint chooses the stages; give one mode "
                             "of --recompute, or auto");
    if (j->o.placement == PP_PLACEMENT_BOTH_WAYS || j->o.encoder_ranks)
        return tool_usage(t, "--method joint has no %s",
                          j->o.encoder_ranks ? "--encoder-ranks"
                                             : "--placement both-ways");
    return 0;
}

int split_check_methods(struct split_job *j)
{
    struct tool *t = &j->p.t;
    if (j->rule.method == SPLIT_LAYOUT && !j->rule.layout)
        return tool_usage(t, "--method layout needs --layout");
    if (j->rule.method == SPLIT_TYPE && (!j->rule.type || !*j->rule.type))
        return tool_usage(t, "--method type needs an expression: type:REGEX");
    if ((j->rule.method == SPLIT_LAYOUT || j->rule.method == SPLIT_MEGATRON) &&
        j->o.placement != PP_PLACEMENT_LOOP)
        return tool_usage(t, "Megatron places stages in a loop, not %s",
                          j->o.placement == PP_PLACEMENT_V ? "in a V"
                                                           : "both ways");
    return check_both_ways(j) || check_joint(j) ? -1 : 0;
}

/* --- the number of stages --- */

static size_t weight_of(int64_t given)
{
    return given < 0 ? 1 : (size_t)given;
}

/* Sets n_chunks by torchtitan's rule, and refuses another -c. */
static int torchtitan_chunks(struct split_job *j)
{
    bool automodel = j->rule.method == SPLIT_AUTOMODEL;
    size_t n_stages;
    const struct pp_torchtitan t = {
        .n_layers = j->p.model.n_layers,
        .input_weight = automodel ? 0 : weight_of(j->rule.input_weight),
        .output_weight = automodel ? 0 : weight_of(j->rule.output_weight),
        .n_ranks = (size_t)j->o.n_ranks,
        .layers_per_stage = (size_t)j->rule.layers_per_stage,
        .kind = j->rule.stages_kind,
        .round = j->rule.round,
    };
    if (pp_torchtitan_stages(&t, SPLIT_MAX_RANKS, &n_stages, &j->p.t.err))
        return -1;
    int64_t chunks = (int64_t)n_stages / j->o.n_ranks;
    if (j->o.n_chunks > 0 && j->o.n_chunks != chunks)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "-c: '%" PRId64 "', but %s's rule makes %" PRId64
                       " chunks on each rank",
                       j->o.n_chunks,
                       automodel ? "NeMo-Automodel" : "torchtitan", chunks);
    j->o.n_chunks = chunks;
    return 0;
}

static int layout_chunks(struct split_job *j)
{
    struct pp_layout_check check = {
        .n_ranks = (size_t)j->o.n_ranks,
        .n_chunks = (size_t)j->o.n_chunks,
        .n_layers = j->p.model.n_layers,
        .n_mtp = j->p.model.n_mtp,
    };
    if (split_read_layout(j))
        return -1;
    if (pp_layout_check(j->symbols, &check, &j->p.t.err))
        return pp_fail_at(&j->p.t.err, "--layout: ");
    j->o.n_chunks = (int64_t)check.n_chunks;
    return 0;
}

static int pattern_chunks(struct split_job *j)
{
    struct pp_err *err = &j->p.t.err;
    size_t n, layers = j->p.model.n_layers;
    if (pp_hybrid_parse(j->rule.pattern, &j->hybrid, err))
        return pp_fail_at(err, "--hybrid-layer-pattern: ");
    if (j->hybrid.n_layers != layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--hybrid-layer-pattern: '%s' has %zu layers, the model "
                       "has %zu",
                       j->rule.pattern, j->hybrid.n_layers, layers);
    if (j->hybrid.n_mtp != j->p.model.n_mtp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--hybrid-layer-pattern: '%s' has %zu depths of "
                       "multi-token prediction, the model has %zu",
                       j->rule.pattern, j->hybrid.n_mtp, j->p.model.n_mtp);
    if (pp_hybrid_chunks(&j->hybrid, (size_t)j->o.n_ranks,
                         (size_t)j->o.n_chunks, &n, err))
        return pp_fail_at(err, "--hybrid-layer-pattern: ");
    j->o.n_chunks = (int64_t)n;
    return 0;
}

static int set_experts(struct split_job *j)
{
    struct pp_model *m = &j->p.model;
    if (!j->p.moe_layer_freq)
        return 0;
    if (!m->moe.n_experts)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "--moe-layer-freq: '%s' has no experts", j->p.source);
    if (pp_moe_frequency(j->p.moe_layer_freq, m->n_layers, &m->moe.layers,
                         &j->p.t.err))
        return pp_fail_at(&j->p.t.err, "--moe-layer-freq: ");
    return 0;
}

int split_set_chunks(struct split_job *j)
{
    int rc = 0;
    if (set_experts(j))
        return -1;
    if (j->rule.method == SPLIT_LAYOUT)
        rc = layout_chunks(j);
    else if (j->rule.pattern)
        rc = pattern_chunks(j);
    else if (j->rule.layers_per_stage > 0 ||
             j->rule.stages_kind != PP_STAGES_ANY)
        rc = torchtitan_chunks(j);
    if (j->o.n_chunks == 0 && j->rule.method != SPLIT_JOINT)
        j->o.n_chunks = 1;
    if (rc == 0 && j->o.n_ranks * j->o.n_chunks > SPLIT_MAX_RANKS)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%" PRId64 " ranks of %" PRId64
                       " chunks are more than %d stages",
                       j->o.n_ranks, j->o.n_chunks, SPLIT_MAX_RANKS);
    return rc;
}

/* --- bounds by layers --- */

static int read_layers(struct split_job *j, size_t *counts)
{
    struct pp_err *err = &j->p.t.err;
    size_t n = 0, sum = 0;
    char *text = pp_arena_strdup(&j->p.arena, j->rule.layers);
    for (char *item; (item = strsep(&text, ",")); n++) {
        int64_t v;
        if (pp_parse_int(item, "--layers", 0, INT32_MAX, &v, err))
            return -1;
        if (n < j->n_stages)
            counts[n] = (size_t)v;
        sum += (size_t)v;
    }
    if (n != j->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--layers: '%s' is for %zu stages, not %zu",
                       j->rule.layers, n, j->n_stages);
    if (sum != j->p.model.n_layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--layers: '%s' adds up to %zu, not %zu", j->rule.layers,
                       sum, j->p.model.n_layers);
    return 0;
}

/* The rule of torchtitan with weights 0, as NeMo-Automodel has it, is uniform
 * too. */
static int count_uniform(struct split_job *j, size_t *counts)
{
    size_t layers = j->p.model.n_layers;
    if (j->n_stages > layers)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%zu stages are too many for %zu layers", j->n_stages,
                       layers);
    if (pp_split_uniform(layers, j->n_stages, j->bounds, &j->p.t.err))
        return -1;
    for (size_t s = 0; s < j->n_stages; s++)
        counts[s] = j->bounds[s + 1] - j->bounds[s];
    return 0;
}

static int count_colossalai(struct split_job *j, size_t *counts)
{
    size_t layers = j->p.model.n_layers,
           encoder = (size_t)j->rule.encoder_layers;
    size_t decoder_stage;
    if (j->rule.encoder_layers < 0)
        return pp_split_colossalai(layers, j->n_stages, counts, &j->p.t.err);
    if (encoder > layers)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "--encoder-layers: '%zu' is more than the model's %zu",
                       encoder, layers);
    return pp_split_encoder_decoder(encoder, layers - encoder, j->n_stages,
                                    counts, &decoder_stage, &j->p.t.err);
}

static int count_megatron(struct split_job *j, size_t *counts)
{
    const struct pp_megatron m = {
        .n_layers = j->p.model.n_layers,
        .n_ranks = (size_t)j->o.n_ranks,
        .n_chunks = (size_t)j->o.n_chunks,
        .first = (size_t)j->rule.first,
        .last = (size_t)j->rule.last,
        .embedding = j->rule.account_embedding,
        .loss = j->rule.account_loss,
    };
    return j->rule.pattern
               ? pp_hybrid_split(&j->hybrid, &m, counts, &j->p.t.err)
               : pp_split_megatron(&m, counts, &j->p.t.err);
}

/* Sets the decoder layers of each stage. */
static int count_layers(struct split_job *j, size_t *counts)
{
    struct pp_err *err = &j->p.t.err;
    switch (j->rule.method) {
    case SPLIT_LAYERS:
        return read_layers(j, counts);
    case SPLIT_UNIFORM:
    case SPLIT_AUTOMODEL:
        return count_uniform(j, counts);
    case SPLIT_WEIGHTS:
        return pp_split_weights(j->p.model.n_layers, j->n_stages,
                                weight_of(j->rule.input_weight),
                                weight_of(j->rule.output_weight), counts, err);
    case SPLIT_LAYOUT:
        pp_layout_counts(j->symbols, counts);
        return 0;
    case SPLIT_COLOSSALAI:
        return count_colossalai(j, counts);
    case SPLIT_COLOSSALAI_LEGACY:
        return pp_split_colossalai_legacy(j->p.model.n_layers,
                                          (size_t)j->o.n_ranks,
                                          (size_t)j->o.n_chunks, counts, err);
    default:
        return count_megatron(j, counts);
    }
}

/* Sets the bounds of a layout with multi-token prediction: there the norm goes
 * with the last decoder layer. */
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
        at += *s == 't' && layers == j->p.model.n_layers;
    }
}

static int split_by_layers(struct split_job *j)
{
    size_t *counts = pp_arena_alloc(&j->p.arena, j->n_stages, sizeof *counts);
    if (count_layers(j, counts))
        return -1;
    pp_split_layer_bounds(&j->p.model, counts, j->n_stages, j->bounds);
    if (j->rule.method == SPLIT_LAYOUT && j->p.model.n_mtp > 0)
        set_symbols(j);
    return 0;
}

/* --- bounds by units, as in DeepSpeed --- */

/* Sets the weight of a unit to 1 if its class matches, otherwise to 0. */
static int match_types(struct split_job *j, double *weights)
{
    struct pp_err *err = &j->p.t.err;
    regex_t regex;
    char class[PP_FQN_TEXT], why[128];
    bool any = false;
    int rc =
        regcomp(&regex, j->rule.type, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    if (rc) {
        regerror(rc, &regex, why, sizeof why);
        return pp_fail(err, PP_EXIT_INPUT, "--method: 'type:%s': %s",
                       j->rule.type, why);
    }
    for (size_t i = 0; i < j->n_units; i++) {
        pp_unit_class(&j->p.model, pp_model_unit(&j->p.model, i), class);
        weights[i] = regexec(&regex, class, 0, NULL, 0) == 0;
        any |= weights[i] > 0;
    }
    regfree(&regex);
    if (any)
        return 0;
    pp_unit_class(&j->p.model,
                  pp_model_unit(&j->p.model, pp_model_n_first(&j->p.model)),
                  class);
    return pp_fail(err, PP_EXIT_INPUT,
                   "--method: no class matches 'type:%s'; a layer is a '%s'",
                   j->rule.type, class);
}

static int split_by_units(struct split_job *j)
{
    struct pp_err *err = &j->p.t.err;
    if (pp_split_check_stages(&j->p.model, j->n_stages, err))
        return -1;
    if (j->rule.method == SPLIT_UNIFORM_UNITS)
        return pp_split_uniform(j->n_units, j->n_stages, j->bounds, err);
    double *weights = pp_arena_alloc(&j->p.arena, j->n_units, sizeof *weights);
    for (size_t i = 0; i < j->n_units; i++)
        weights[i] = (double)pp_unit_n_params(&j->p.model,
                                              pp_model_unit(&j->p.model, i));
    if (j->rule.method == SPLIT_TYPE && match_types(j, weights))
        return -1;
    return pp_split_deepspeed(weights, j->n_units, j->n_stages, j->bounds, err);
}

int split_set_bounds(struct split_job *j)
{
    if (j->rule.method == SPLIT_BALANCED || j->rule.method == SPLIT_JOINT ||
        j->bounds)
        return 0;
    j->bounds = pp_arena_alloc(&j->p.arena, j->n_stages + 1, sizeof *j->bounds);
    switch (j->rule.method) {
    case SPLIT_FQNS:
        return split_read_fqns(j);
    case SPLIT_PARAMETERS:
    case SPLIT_TYPE:
    case SPLIT_UNIFORM_UNITS:
        return split_by_units(j);
    default:
        return split_by_layers(j);
    }
}
