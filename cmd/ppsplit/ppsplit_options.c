/* SPDX-License-Identifier: MIT */
/* The options of ppsplit: what they are called, and what each asks for. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "plan/recompute.h"
#include "ppsplit.h"

enum {
    PLACEMENT = TOOL_LONG,
    METHOD,
    MOE_LAYER_FREQ,
    INPUT_WEIGHT,
    OUTPUT_WEIGHT,
    LAYERS,
    FQNS,
    LAYOUT,
    FIRST,
    LAST,
    ACCOUNT_EMBEDDING,
    ACCOUNT_LOSS,
    LAYERS_PER_STAGE,
    STAGES,
    ROUND,
    ENCODER_LAYERS,
    HYBRID,
    EXPORT,
    SEQ_LEN,
    TOKENS,
    MEMORY,
    DTYPE,
    FOR,
    COSTS,
    RANK_SPEED,
    RECOMPUTE,
    DP,
    TP,
    CP,
    EP,
    UNITS,
    MTP,
    IMAGES,
    IMAGE_PATCHES,
    ENCODER_RANKS
};

const struct tool_option split_options[] = {
    {'p', "ranks", "N", "pipeline ranks"},
    {'c', "chunks", "N", "stages on each rank (default 1)"},
    {PLACEMENT, "placement", "HOW", "loop (default), v or both-ways"},
    {METHOD, "method", "NAME",
     "balanced (default), uniform, weights, megatron, ..."},
    {MOE_LAYER_FREQ, "moe-layer-freq", "FREQ",
     "layers with experts, in Megatron's words"},
    {INPUT_WEIGHT, "input-weight", "N",
     "weights: layers that the embedding counts as"},
    {OUTPUT_WEIGHT, "output-weight", "N",
     "weights: layers that norm and head count as"},
    {LAYERS, "layers", "N,N,...", "decoder layers of each stage"},
    {FQNS, "fqns", "FILE", "names of each stage, a JSON list of lists"},
    {LAYERS_PER_STAGE, "layers-per-stage", "N",
     "weights, automodel: the number of stages follows"},
    {STAGES, "stages", "HOW",
     "weights, automodel: single or multi on each rank"},
    {ROUND, "round", "HOW", "automodel: stages up or down to whole ranks"},
    {ENCODER_LAYERS, "encoder-layers", "N",
     "colossalai: the first N layers are an encoder"},
    {HYBRID, "hybrid-layer-pattern", "PATTERN",
     "megatron: layers by type, such as 'M-M*|M-M-'"},
    {LAYOUT, "layout", "STRING", "a Megatron layout such as 'Ett|t*3|ttL'"},
    {FIRST, "first", "N", "megatron: layers of the first rank"},
    {LAST, "last", "N", "megatron: layers of the last rank"},
    {ACCOUNT_EMBEDDING, "account-embedding", NULL,
     "megatron: the embedding counts as a layer"},
    {ACCOUNT_LOSS, "account-loss", NULL,
     "megatron: the loss counts as a layer"},
    {EXPORT, "export", "FORM",
     "print for megatron, torchtitan, deepspeed, ..."},
    {MTP, "mtp", NULL, "layers for multi-token prediction count"},
    {UNITS, "units", "FILE", "instead of a model: a table of its units"},
    {SEQ_LEN, "seq-len", "N", "tokens of a sequence, for costs"},
    {TOKENS, "micro-batch-tokens", "N", "tokens of a microbatch, for memory"},
    {IMAGES, "images", "N", "images of a sequence (default 1)"},
    {IMAGE_PATCHES, "image-patches", "N", "patches of an image"},
    {ENCODER_RANKS, "encoder-ranks", "N",
     "ranks that hold the encoder of images and nothing else"},
    {TP, "tp", "N", "ranks that divide heads, widths and vocabulary"},
    {CP, "cp", "N", "ranks that divide every sequence"},
    {DP, "dp", "N", "ranks with microbatches of their own"},
    {EP, "ep", "N", "of dp x cp, ranks that divide the experts"},
    {FOR, "for", "KIND", "the schedule that will run (default 1f1b, ...)"},
    {COSTS, "costs", "FILE", "measured costs, from pprun --profile"},
    {RANK_SPEED, "rank-speed", "S,S,...", "how fast each rank is"},
    {RECOMPUTE, "recompute", "MODE",
     "none (default), selective or full, a list by stage, or auto"},
    {'m', "microbatches", "N", "microbatches of a step"},
    {MEMORY, "memory", "SIZE", "refuse a plan that needs more on a rank"},
    {DTYPE, "dtype", "TYPE", "fp32 (default), fp64 or bf16"},
    {'t', "table", NULL, "print a table for people"},
    {0},
};

static int take_count(struct split_job *j, const char *what, int64_t min,
                      int64_t max, int64_t *out)
{
    return pp_parse_int(optarg, what, min, max, out, &j->t.err);
}

/* The size of a group of ranks. */
static int take_size(struct split_job *j, const char *what, int *out)
{
    int64_t v;
    if (take_count(j, what, 1, SPLIT_MAX_RANKS, &v))
        return -1;
    *out = (int)v;
    return 0;
}

/* A number of tokens, which may end in K, M or G. */
static int take_tokens(struct split_job *j, const char *what, int64_t *out)
{
    size_t v;
    if (pp_parse_size(optarg, what, &v, &j->t.err))
        return -1;
    if (v < 1 || v > INT32_MAX)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: '%s' is not between 1 and %d", what, optarg,
                       INT32_MAX);
    *out = (int64_t)v;
    return 0;
}

static int take_method(struct split_job *j, int method)
{
    if (method < 0)
        return -1;
    if (j->has_method && j->method != (enum split_method)method)
        return tool_usage(&j->t, "methods '%s' and '%s' exclude each other",
                          split_method_names[j->method],
                          split_method_names[method]);
    j->has_method = true;
    j->method = (enum split_method)method;
    return 0;
}

/* --method NAME, or type:REGEX. */
static int take_method_word(struct split_job *j)
{
    static const char type[] = "type:";
    if (strncmp(optarg, type, strlen(type)))
        return take_method(
            j, tool_word(&j->t, "--method", optarg, split_method_names));
    j->type = optarg + strlen(type);
    return take_method(j, SPLIT_TYPE);
}

static int take_stages(struct split_job *j)
{
    static const char *const words[] = {"single", "multi", NULL};
    int i = tool_word(&j->t, "--stages", optarg, words);
    j->stages_kind = i == 0 ? PP_STAGES_SINGLE : PP_STAGES_MULTI;
    return i < 0 ? -1 : 0;
}

static int take_round(struct split_job *j)
{
    static const char *const words[] = {"up", "down", NULL};
    int i = tool_word(&j->t, "--round", optarg, words);
    j->round = i == 0 ? PP_ROUND_UP : PP_ROUND_DOWN;
    return i < 0 ? -1 : 0;
}

static int take_export(struct split_job *j)
{
    int i = tool_word(&j->t, "--export", optarg, split_export_names);
    j->export = (enum split_export)(i + 1);
    return i < 0 ? -1 : 0;
}

/* An option that is one of Megatron's rules by itself. */
static int take_megatron(struct split_job *j, int id)
{
    if (take_method(j, SPLIT_MEGATRON))
        return -1;
    j->account_embedding |= id == ACCOUNT_EMBEDDING;
    j->account_loss |= id == ACCOUNT_LOSS;
    if (id == FIRST)
        return take_count(j, "--first", 1, INT32_MAX, &j->first);
    if (id == LAST)
        return take_count(j, "--last", 1, INT32_MAX, &j->last);
    return 0;
}

static int take_placement(struct split_job *j)
{
    static const char *const words[] = {"loop", "v", "both-ways", NULL};
    static const enum pp_placement placements[] = {
        PP_PLACEMENT_LOOP, PP_PLACEMENT_V, PP_PLACEMENT_BOTH_WAYS};
    int i = tool_word(&j->t, "--placement", optarg, words);
    if (i >= 0)
        j->placement = placements[i];
    return i < 0 ? -1 : 0;
}

static int take_dtype(struct split_job *j)
{
    static const char *const words[] = {"fp32", "fp64", "bf16", NULL};
    int i = tool_word(&j->t, "--dtype", optarg, words);
    if (i < 0)
        return -1;
    j->precision = pp_precision_find(words[i]);
    return 0;
}

static int take_kind(struct split_job *j)
{
    const char *kinds[PP_MAX_KINDS];
    pp_kind_names(kinds);
    j->kind = optarg;
    j->automatic = !strcmp(optarg, "auto");
    return tool_word(&j->t, "--for", optarg, kinds) < 0 ? -1 : 0;
}

static int take_memory(struct split_job *j)
{
    if (pp_parse_size(optarg, "--memory", &j->memory_bytes, &j->t.err))
        return -1;
    if (j->memory_bytes == 0)
        return tool_usage(&j->t, "--memory: '%s' is nothing", optarg);
    return 0;
}

int split_take_option(struct split_job *j, int id)
{
    switch (id) {
    case 'p':
        return take_count(j, "-p", 1, SPLIT_MAX_RANKS, &j->n_ranks);
    case 'c':
        return take_count(j, "-c", 1, SPLIT_MAX_RANKS, &j->n_chunks);
    case 'm':
        return take_count(j, "-m", 1, INT32_MAX, &j->n_microbatches);
    case PLACEMENT:
        return take_placement(j);
    case METHOD:
        return take_method_word(j);
    case MOE_LAYER_FREQ:
        j->moe_layer_freq = optarg;
        return 0;
    case INPUT_WEIGHT:
        return take_count(j, "--input-weight", 0, INT32_MAX, &j->input_weight);
    case OUTPUT_WEIGHT:
        return take_count(j, "--output-weight", 0, INT32_MAX,
                          &j->output_weight);
    case LAYERS:
        j->layers = optarg;
        return take_method(j, SPLIT_LAYERS);
    case FQNS:
        j->fqns = optarg;
        return take_method(j, SPLIT_FQNS);
    case LAYOUT:
        j->layout = optarg;
        return take_method(j, SPLIT_LAYOUT);
    case FIRST:
    case LAST:
    case ACCOUNT_EMBEDDING:
    case ACCOUNT_LOSS:
        return take_megatron(j, id);
    case LAYERS_PER_STAGE:
        return take_count(j, "--layers-per-stage", 1, INT32_MAX,
                          &j->layers_per_stage);
    case STAGES:
        return take_stages(j);
    case ROUND:
        return take_round(j);
    case ENCODER_LAYERS:
        return take_count(j, "--encoder-layers", 0, INT32_MAX,
                          &j->encoder_layers);
    case HYBRID:
        j->pattern = optarg;
        return take_method(j, SPLIT_MEGATRON);
    case EXPORT:
        return take_export(j);
    case SEQ_LEN:
        return take_tokens(j, "--seq-len", &j->seq_len);
    case TOKENS:
        return take_tokens(j, "--micro-batch-tokens", &j->tokens);
    case MEMORY:
        return take_memory(j);
    case DTYPE:
        return take_dtype(j);
    case FOR:
        return take_kind(j);
    case COSTS:
        j->costs_file = optarg;
        return 0;
    case RANK_SPEED:
        j->rank_speed = optarg;
        return 0;
    case MTP:
        j->mtp = true;
        return 0;
    case IMAGES:
        return take_count(j, "--images", 1, INT32_MAX, &j->n_images);
    case IMAGE_PATCHES:
        return take_count(j, "--image-patches", 1, INT32_MAX,
                          &j->image_patches);
    case ENCODER_RANKS:
        return take_count(j, "--encoder-ranks", 1, SPLIT_MAX_RANKS,
                          &j->encoder_ranks);
    case UNITS:
        j->units = optarg;
        return 0;
    case RECOMPUTE:
        return split_take_recompute(j);
    case DP:
        return take_size(j, "--dp", &j->mesh.dp);
    case TP:
        return take_size(j, "--tp", &j->mesh.tp);
    case CP:
        return take_size(j, "--cp", &j->mesh.cp);
    case EP:
        return take_size(j, "--ep", &j->mesh.ep);
    default:
        j->table = true;
        return 0;
    }
}

int split_check_options(struct split_job *j, int argc, char **argv)
{
    struct tool *t = &j->t;
    if (j->n_ranks == 0)
        return tool_usage(t, "the number of ranks is needed (-p)");
    if (j->n_ranks * j->n_chunks > SPLIT_MAX_RANKS)
        return tool_usage(t,
                          "%" PRId64 " ranks of %" PRId64
                          " chunks are more than %d stages",
                          j->n_ranks, j->n_chunks, SPLIT_MAX_RANKS);
    if (j->method == SPLIT_LAYERS && !j->layers)
        return tool_usage(t, "--method layers needs --layers");
    if (j->method == SPLIT_FQNS && !j->fqns)
        return tool_usage(t, "--method fqns needs --fqns");
    if (split_check_rules(j))
        return -1;
    if (j->units && optind < argc)
        return tool_usage(t, "a model or --units, not both: '%s'",
                          argv[optind]);
    if (j->units && (j->recompute != PP_RECOMPUTE_NONE || split_by_stage(j)))
        return tool_usage(t, "--recompute: a table of units says what they "
                             "keep, not what they could make again");
    if (j->automatic && split_by_stage(j))
        return tool_usage(&j->t, "--for auto looks for an order with one "
                                 "--recompute for all stages");
    if (j->recompute_auto && j->memory_bytes == 0)
        return tool_usage(t, "--recompute auto needs --memory");
    j->source = j->units;
    if (j->units)
        return 0;
    if (optind >= argc)
        return tool_usage(t, "a model is needed: its directory or config.json");
    if (argc - optind > 1)
        return tool_usage(t, "one model, not '%s' too", argv[optind + 1]);
    j->source = argv[optind];
    return 0;
}
