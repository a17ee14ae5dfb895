/* SPDX-License-Identifier: MIT */
/* ppsplit - decides which layers each stage of a pipeline holds. Options and
 * checks here; methods in ppsplit_units.c, output beside it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "manifest/model_json.h"
#include "ppsplit.h"
#include "run/weights.h"

enum {
    PLACEMENT = TOOL_LONG,
    METHOD,
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
    EXPORT,
    SEQ_LEN,
    TOKENS,
    MEMORY,
    DTYPE,
    FOR,
    COSTS,
    RANK_SPEED
};

enum {
    MAX_RANKS = SPLIT_MAX_RANKS,
    DEFAULT_SEQ_LEN = 4096,
    DEFAULT_ROUNDS = 4 /* microbatches for each rank */
};

static const struct tool_option options[] = {
    {'p', "ranks", "N", "pipeline ranks"},
    {'c', "chunks", "N", "stages on each rank (default 1)"},
    {PLACEMENT, "placement", "HOW", "loop (default), v or both-ways"},
    {METHOD, "method", "NAME",
     "balanced (default), uniform, weights, megatron, ..."},
    {INPUT_WEIGHT, "input-weight", "N",
     "weights: layers that the embedding counts as"},
    {OUTPUT_WEIGHT, "output-weight", "N",
     "weights: layers that norm and head count as"},
    {LAYERS, "layers", "N,N,...", "decoder layers of each stage"},
    {FQNS, "fqns", "FILE", "names of each stage, a JSON list of lists"},
    {LAYERS_PER_STAGE, "layers-per-stage", "N",
     "weights: the number of stages follows"},
    {STAGES, "stages", "HOW", "weights: single or multi on each rank"},
    {LAYOUT, "layout", "STRING", "a Megatron layout such as 'Ett|t*3|ttL'"},
    {FIRST, "first", "N", "megatron: layers of the first rank"},
    {LAST, "last", "N", "megatron: layers of the last rank"},
    {ACCOUNT_EMBEDDING, "account-embedding", NULL,
     "megatron: the embedding counts as a layer"},
    {ACCOUNT_LOSS, "account-loss", NULL,
     "megatron: the loss counts as a layer"},
    {EXPORT, "export", "FORM",
     "print for megatron, torchtitan, deepspeed, ..."},
    {SEQ_LEN, "seq-len", "N", "tokens of a sequence, for costs"},
    {TOKENS, "micro-batch-tokens", "N", "tokens of a microbatch, for memory"},
    {FOR, "for", "KIND", "the schedule that will run (default 1f1b, ...)"},
    {COSTS, "costs", "FILE", "measured costs, from pprun --profile"},
    {RANK_SPEED, "rank-speed", "S,S,...", "how fast each rank is"},
    {'m', "microbatches", "N", "microbatches of a step"},
    {MEMORY, "memory", "SIZE", "refuse a plan that needs more on a rank"},
    {DTYPE, "dtype", "TYPE", "fp32 (default), fp64 or bf16"},
    {'t', "table", NULL, "print a table for people"},
    {0},
};

/* The place of s in a list of words, or -1 with the error set. */
static int find_word(struct split_job *j, const char *what,
                     const char *const *words, const char *s)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], s))
            return i;
    return tool_usage(&j->t, "%s: '%s' is not known", what, s);
}

static int take_count(struct split_job *j, const char *what, int64_t min,
                      int64_t max, int64_t *out)
{
    return pp_parse_int(optarg, what, min, max, out, &j->t.err);
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
            j, find_word(j, "--method", split_method_names, optarg));
    j->type = optarg + strlen(type);
    return take_method(j, SPLIT_TYPE);
}

static int take_stages(struct split_job *j)
{
    static const char *const words[] = {"single", "multi", NULL};
    int i = find_word(j, "--stages", words, optarg);
    j->stages_kind = i == 0 ? PP_STAGES_SINGLE : PP_STAGES_MULTI;
    return i < 0 ? -1 : 0;
}

static int take_export(struct split_job *j)
{
    int i = find_word(j, "--export", split_export_names, optarg);
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
    int i = find_word(j, "--placement", words, optarg);
    if (i >= 0)
        j->placement = placements[i];
    return i < 0 ? -1 : 0;
}

static int take_dtype(struct split_job *j)
{
    static const char *const words[] = {"fp32", "fp64", "bf16", NULL};
    int i = find_word(j, "--dtype", words, optarg);
    if (i < 0)
        return -1;
    j->precision = pp_precision_find(words[i]);
    return 0;
}

static int take_memory(struct split_job *j)
{
    if (pp_parse_size(optarg, "--memory", &j->memory_bytes, &j->t.err))
        return -1;
    if (j->memory_bytes == 0)
        return tool_usage(&j->t, "--memory: '%s' is nothing", optarg);
    return 0;
}

static int take_option(struct split_job *j, int id)
{
    switch (id) {
    case 'p':
        return take_count(j, "-p", 1, MAX_RANKS, &j->n_ranks);
    case 'c':
        return take_count(j, "-c", 1, MAX_RANKS, &j->n_chunks);
    case 'm':
        return take_count(j, "-m", 1, INT32_MAX, &j->n_microbatches);
    case PLACEMENT:
        return take_placement(j);
    case METHOD:
        return take_method_word(j);
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
        j->kind = optarg;
        return 0;
    case COSTS:
        j->costs_file = optarg;
        return 0;
    case RANK_SPEED:
        j->rank_speed = optarg;
        return 0;
    default:
        j->table = true;
        return 0;
    }
}

static int check_options(struct split_job *j, int argc, char **argv)
{
    struct tool *t = &j->t;
    if (j->n_ranks == 0)
        return tool_usage(t, "the number of ranks is needed (-p)");
    if (j->n_ranks * j->n_chunks > MAX_RANKS)
        return tool_usage(t,
                          "%" PRId64 " ranks of %" PRId64
                          " chunks are more than %d stages",
                          j->n_ranks, j->n_chunks, MAX_RANKS);
    if (j->method == SPLIT_LAYERS && !j->layers)
        return tool_usage(t, "--method layers needs --layers");
    if (j->method == SPLIT_FQNS && !j->fqns)
        return tool_usage(t, "--method fqns needs --fqns");
    if (split_check_rules(j))
        return -1;
    if (optind >= argc)
        return tool_usage(t, "a model is needed: its directory or config.json");
    if (argc - optind > 1)
        return tool_usage(t, "one model, not '%s' too", argv[optind + 1]);
    j->source = argv[optind];
    return 0;
}

/* Weights beside the config are compared with it: a plan for tensors that are
 * not there would only fail later, on every rank. */
static int check_weights(struct split_job *j)
{
    struct pp_tensors *tensors;
    if (!pp_file_is_dir(j->source) || !pp_tensors_exist(j->source))
        return 0;
    if (pp_tensors_open(j->source, &tensors, &j->t.err))
        return -1;
    int rc = pp_weights_check(&j->model, tensors, &j->t.err);
    if (rc)
        pp_fail_at(&j->t.err, "%s: ", j->source);
    pp_tensors_close(tensors);
    return rc;
}

static void set_defaults(struct split_job *j)
{
    int64_t most = (int64_t)j->model.max_position;
    if (j->seq_len == 0)
        j->seq_len =
            most > 0 && most < DEFAULT_SEQ_LEN ? most : DEFAULT_SEQ_LEN;
    if (j->tokens == 0)
        j->tokens = j->seq_len;
    j->shorten =
        j->method == SPLIT_BALANCED &&
        (j->n_microbatches > 0 || j->kind || j->costs_file || j->rank_speed);
    if (j->n_microbatches == 0)
        j->n_microbatches = DEFAULT_ROUNDS * j->n_ranks;
}

/* The model is split for one copy of the weights, then the other is placed. */
static int place(struct split_job *j, bool all)
{
    enum pp_placement placement = j->placement;
    if (placement == PP_PLACEMENT_BOTH_WAYS && !all)
        placement = PP_PLACEMENT_LOOP;
    return pp_graph_chain(&j->arena, (int)j->n_ranks, (int)j->n_chunks,
                          placement, &j->graph, &j->t.err);
}

int split_plan(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    set_defaults(j);
    j->n_units = pp_model_n_units(&j->model);
    if (split_chunks(j) || split_schedule(j) || place(j, false) ||
        split_read_costs(j) || split_read_speeds(j))
        return -1;
    j->costs = pp_arena_alloc(&j->arena, j->n_units, sizeof *j->costs);
    j->bounds = pp_arena_alloc(&j->arena, (size_t)j->graph.n_stages + 1,
                               sizeof *j->bounds);
    if (!j->costs || !j->bounds)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++)
        j->costs[i] = split_token_cost(j, i);
    if (split_run_init(j) || split_units(j) || place(j, true))
        return -1;
    return split_sums(j);
}

static int print(struct split_job *j, int argc, char **argv)
{
    FILE *f = tool_output(&j->t);
    if (!f)
        return -1;
    if (j->table)
        return split_print_table(j, f, &j->t.err);
    if (j->export)
        return split_print_export(j, f, &j->t.err);
    char *command = tool_command(argc, argv);
    if (!command)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    int rc = split_print_manifest(j, command, f, &j->t.err);
    free(command);
    return rc;
}

static int run(struct split_job *j, int argc, char **argv)
{
    if (check_options(j, argc, argv) ||
        pp_model_read(j->source, &j->model, &j->t.err) || check_weights(j) ||
        split_plan(j) || split_check_memory(j))
        return -1;
    return print(j, argc, argv);
}

/* With -v: what was split, and how good that is. */
static void say(struct split_job *j)
{
    const struct pp_split_found *x = &j->run.found;
    tool_say(&j->t, PP_LOG_DETAIL, "%d stages, %zu units", j->graph.n_stages,
             j->n_units);
    if (j->shorten)
        tool_say(&j->t, PP_LOG_DETAIL,
                 "%s, %" PRId64 " microbatches: a step of %g %s, at least %g "
                 "for any split (gap %.2f %%), %zu simulated",
                 j->run.kind->name, j->n_microbatches, x->makespan,
                 j->measured ? "s" : "flop", x->bound,
                 100 * (1 - x->bound / x->makespan), x->n_simulated);
}

int main(int argc, char **argv)
{
    struct split_job j = {
        .t = {.name = "ppsplit",
              .synopsis = "-p RANKS [-c CHUNKS] [options] MODEL",
              .summary = "Decide which layers each stage of a pipeline holds; "
                         "print a manifest.",
              .options = options},
        .input_weight = -1,
        .output_weight = -1,
        .precision = &pp_precisions[0],
    };
    int id;
    while ((id = tool_option(&j.t, argc, argv)) >= 0)
        if (take_option(&j, id))
            break;
    if (id == TOOL_END && run(&j, argc, argv) == 0)
        say(&j);
    split_run_finish(&j.run);
    pp_arena_finish(&j.arena);
    return tool_finish(&j.t);
}
