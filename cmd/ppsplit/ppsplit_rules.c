/* SPDX-License-Identifier: MIT */
/* The rules of other systems: which of their options go together, how many
 * stages they make, and their layers or units. The rules themselves are in
 * lib/split. */
#include <inttypes.h>
#include <regex.h>

#include "model/moe_frequency.h"
#include "split/split.h"
#include "split/split_colossalai.h"
#include "split/split_deepspeed.h"
#include "split/split_megatron.h"
#include "ppsplit.h"

/* Two copies of the weights. */
static int check_both_ways(struct split_job *j)
{
    struct tool *t = &j->t;
    if (j->placement != PP_PLACEMENT_BOTH_WAYS)
        return 0;
    if (j->n_ranks % 2)
        return tool_usage(t,
                          "--placement both-ways needs an even number of "
                          "ranks, not '%" PRId64 "'",
                          j->n_ranks);
    if (j->n_chunks > 1)
        return tool_usage(t,
                          "--placement both-ways has one stage of each copy "
                          "on a rank, not '%" PRId64 "' (-c)",
                          j->n_chunks);
    if (j->export)
        return tool_usage(t, "--export: no other system places stages both "
                             "ways");
    return 0;
}

int split_check_rules(struct split_job *j)
{
    struct tool *t = &j->t;
    if (j->method == SPLIT_LAYOUT && !j->layout)
        return tool_usage(t, "--method layout needs --layout");
    if (j->method == SPLIT_TYPE && (!j->type || !*j->type))
        return tool_usage(t, "--method type needs an expression: type:REGEX");
    if ((j->method == SPLIT_LAYOUT || j->method == SPLIT_MEGATRON) &&
        j->placement != PP_PLACEMENT_LOOP)
        return tool_usage(t, "Megatron places stages in a loop, not %s",
                          j->placement == PP_PLACEMENT_V ? "in a V"
                                                         : "both ways");
    return check_both_ways(j);
}

static size_t weight_of(int64_t given)
{
    return given < 0 ? 1 : (size_t)given;
}

/* torchtitan's number of stages, and that -c says nothing else. */
static int torchtitan_chunks(struct split_job *j)
{
    bool automodel = j->method == SPLIT_AUTOMODEL;
    size_t n_stages;
    const struct pp_torchtitan t = {
        .n_layers = j->model.n_layers,
        .input_weight = automodel ? 0 : weight_of(j->input_weight),
        .output_weight = automodel ? 0 : weight_of(j->output_weight),
        .n_ranks = (size_t)j->n_ranks,
        .layers_per_stage = (size_t)j->layers_per_stage,
        .kind = j->stages_kind,
        .round = j->round,
    };
    if (pp_torchtitan_stages(&t, SPLIT_MAX_RANKS, &n_stages, &j->t.err))
        return -1;
    int64_t chunks = (int64_t)n_stages / j->n_ranks;
    if (j->n_chunks > 0 && j->n_chunks != chunks)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "-c %" PRId64 " is not the %" PRId64
                       " chunks on each rank that %s's rule makes",
                       j->n_chunks, chunks,
                       automodel ? "NeMo-Automodel" : "torchtitan");
    j->n_chunks = chunks;
    return 0;
}

static int layout_chunks(struct split_job *j)
{
    struct pp_layout_check check = {
        .n_ranks = (size_t)j->n_ranks,
        .n_chunks = (size_t)j->n_chunks,
        .n_layers = j->model.n_layers,
        .n_mtp = j->model.n_mtp,
    };
    if (split_read_layout(j))
        return -1;
    if (pp_layout_check(j->symbols, &check, &j->t.err))
        return pp_fail_at(&j->t.err, "--layout: ");
    j->n_chunks = (int64_t)check.n_chunks;
    return 0;
}

static int pattern_chunks(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    size_t n, layers = j->model.n_layers;
    if (pp_hybrid_parse(j->pattern, &j->hybrid, err))
        return pp_fail_at(err, "--hybrid-layer-pattern: ");
    if (j->hybrid.n_layers != layers)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--hybrid-layer-pattern: '%s' has %zu layers, the model "
                       "has %zu",
                       j->pattern, j->hybrid.n_layers, layers);
    if (j->hybrid.n_mtp != j->model.n_mtp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--hybrid-layer-pattern: '%s' has %zu depths of "
                       "multi-token prediction, the model has %zu",
                       j->pattern, j->hybrid.n_mtp, j->model.n_mtp);
    if (pp_hybrid_chunks(&j->hybrid, (size_t)j->n_ranks, (size_t)j->n_chunks,
                         &n, err))
        return pp_fail_at(err, "--hybrid-layer-pattern: ");
    j->n_chunks = (int64_t)n;
    return 0;
}

static int set_experts(struct split_job *j)
{
    struct pp_model *m = &j->model;
    if (!j->moe_layer_freq)
        return 0;
    if (!m->moe.n_experts)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--moe-layer-freq: '%s' has no experts", j->source);
    if (pp_moe_frequency(j->moe_layer_freq, m->n_layers, &m->moe.layers,
                         &j->t.err))
        return pp_fail_at(&j->t.err, "--moe-layer-freq: ");
    return 0;
}

int split_chunks(struct split_job *j)
{
    int rc = set_experts(j);
    if (rc)
        return -1;
    if (j->method == SPLIT_LAYOUT)
        rc = layout_chunks(j);
    else if (j->pattern)
        rc = pattern_chunks(j);
    else if (j->layers_per_stage > 0 || j->stages_kind != PP_STAGES_ANY)
        rc = torchtitan_chunks(j);
    if (j->n_chunks == 0)
        j->n_chunks = 1;
    if (rc == 0 && j->n_ranks * j->n_chunks > SPLIT_MAX_RANKS)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%" PRId64 " ranks of %" PRId64
                       " chunks are more than %d stages",
                       j->n_ranks, j->n_chunks, SPLIT_MAX_RANKS);
    return rc;
}

static int colossalai(struct split_job *j, size_t *counts)
{
    size_t n_stages = (size_t)j->graph.n_stages, decoder;
    size_t layers = j->model.n_layers, encoder = (size_t)j->encoder_layers;
    if (j->encoder_layers < 0)
        return pp_split_colossalai(layers, n_stages, counts, &j->t.err);
    if (encoder > layers)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--encoder-layers: '%zu' is more than the model's %zu",
                       encoder, layers);
    return pp_split_encoder_decoder(encoder, layers - encoder, n_stages, counts,
                                    &decoder, &j->t.err);
}

int split_rule_layers(struct split_job *j, size_t *counts)
{
    struct pp_err *err = &j->t.err;
    if (j->method == SPLIT_LAYOUT) {
        pp_layout_counts(j->symbols, counts);
        return 0;
    }
    if (j->method == SPLIT_COLOSSALAI)
        return colossalai(j, counts);
    if (j->method == SPLIT_COLOSSALAI_LEGACY)
        return pp_split_colossalai_legacy(j->model.n_layers, (size_t)j->n_ranks,
                                          (size_t)j->n_chunks, counts, err);
    const struct pp_megatron m = {
        .n_layers = j->model.n_layers,
        .n_ranks = (size_t)j->n_ranks,
        .n_chunks = (size_t)j->n_chunks,
        .first = (size_t)j->first,
        .last = (size_t)j->last,
        .embedding = j->account_embedding,
        .loss = j->account_loss,
    };
    return j->pattern ? pp_hybrid_split(&j->hybrid, &m, counts, err)
                      : pp_split_megatron(&m, counts, err);
}

/* type:REGEX: 1 where the unit's class matches, 0 elsewhere. */
static int match_types(struct split_job *j, double *weights)
{
    struct pp_err *err = &j->t.err;
    regex_t regex;
    char class[PP_FQN_TEXT], why[128];
    bool any = false;
    int rc = regcomp(&regex, j->type, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    if (rc) {
        regerror(rc, &regex, why, sizeof why);
        return pp_fail(err, PP_EXIT_INPUT, "--method: 'type:%s': %s", j->type,
                       why);
    }
    for (size_t i = 0; i < j->n_units; i++) {
        pp_unit_class(&j->model, pp_model_unit(&j->model, i), class);
        weights[i] = regexec(&regex, class, 0, NULL, 0) == 0;
        any |= weights[i] > 0;
    }
    regfree(&regex);
    if (any)
        return 0;
    pp_unit_class(&j->model,
                  pp_model_unit(&j->model, pp_model_n_first(&j->model)), class);
    return pp_fail(err, PP_EXIT_INPUT,
                   "--method: no class matches 'type:%s'; a layer is a '%s'",
                   j->type, class);
}

int split_rule_units(struct split_job *j)
{
    if (j->method == SPLIT_UNIFORM_UNITS)
        return pp_split_uniform(j->n_units, (size_t)j->graph.n_stages,
                                j->bounds, &j->t.err);
    double *weights = pp_arena_alloc(&j->arena, j->n_units, sizeof *weights);
    if (!weights)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++)
        weights[i] =
            (double)pp_unit_n_params(&j->model, pp_model_unit(&j->model, i));
    if (j->method == SPLIT_TYPE && match_types(j, weights))
        return -1;
    return pp_split_deepspeed(weights, j->n_units, (size_t)j->graph.n_stages,
                              j->bounds, &j->t.err);
}
