/* SPDX-License-Identifier: MIT */
/* options - the options of ppsplit, and which of them go together. The
 * options of methods are also checked in methods.c. */
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "model/cost.h"
#include "cost/machine.h"
#include "ppsplit.h"
#include "run/objectives/objective.h"

static const char *const placement_words[] = {"loop", "v", "both-ways", NULL};
static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const stages_words[] = {"single", "multi", NULL};
static const char *const round_words[] = {"up", "down", NULL};
static const char *const recompute_words[] = {
    "none",    "selective", "full", "norms",      "attention", "qkv",  "latent",
    "outputs", "mlp_act",   "mlp",  "expert_act", "experts",   "auto", NULL};

static int set_method(struct split_job *j, int method)
{
    if (method < 0)
        return -1;
    if (j->rule.has_method && j->rule.method != (enum split_method)method)
        return tool_usage(&j->p.t, "methods '%s' and '%s' exclude each other",
                          split_method_names[j->rule.method],
                          split_method_names[method]);
    j->rule.has_method = true;
    j->rule.method = (enum split_method)method;
    return 0;
}

/* Reads NAME, type:REGEX or joint:KINDS. */
static int parse_method(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    static const char type[] = "type:", joint[] = "joint:";
    struct split_job *j = t->base;
    (void)o;
    if (!strncmp(arg, joint, strlen(joint))) {
        j->rule.kinds = arg + strlen(joint);
        return set_method(j, SPLIT_JOINT);
    }
    if (strncmp(arg, type, strlen(type)) != 0)
        return set_method(j, tool_word(t, "--method", arg, split_method_names));
    j->rule.type = arg + strlen(type);
    return set_method(j, SPLIT_TYPE);
}

/* Reads an option that implies a method. */
static int parse_plan(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    struct split_job *j = t->base;
    *(const char **)((char *)j + o->at) = arg;
    return set_method(j, !strcmp(o->name, "layers")   ? SPLIT_LAYERS
                         : !strcmp(o->name, "fqns")   ? SPLIT_FQNS
                         : !strcmp(o->name, "layout") ? SPLIT_LAYOUT
                                                      : SPLIT_MEGATRON);
}

/* Reads an option of Megatron-LM's rule: a flag, or a number of layers. */
static int parse_megatron(struct tool *t, const struct tool_option *o,
                          const char *arg)
{
    struct split_job *j = t->base;
    if (set_method(j, SPLIT_MEGATRON))
        return -1;
    return tool_set(t, o, arg);
}

/* Reads a word of an enum in which 0 means that the option was not given. */
static int parse_word_from_1(struct tool *t, const struct tool_option *o,
                             const char *arg)
{
    int i = tool_word(t, tool_spell(o).text, arg, o->words);
    *(int *)((char *)t->base + o->at) = i + 1;
    return i < 0 ? -1 : 0;
}

static int parse_rate(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    return pp_parse_rate(arg, tool_spell(o).text,
                         (double *)((char *)t->base + o->at), &t->err);
}

/* Reads names of sets with '+' between them. */
static int parse_set(struct tool *t, char *text, enum pp_recompute *set)
{
    unsigned all = 0;
    for (char *item; (item = strsep(&text, "+"));) {
        int i = tool_word(t, "--recompute", item, pp_recompute_names);
        if (i < 0)
            return -1;
        all |= pp_recompute_sets[i];
    }
    *set = (enum pp_recompute)all;
    return 0;
}

/* Reads a set, a list of sets per stage, or auto. */
static int parse_recompute(struct tool *t, const struct tool_option *o,
                           const char *arg)
{
    struct split_job *j = t->base;
    char *text = pp_arena_strdup(&j->p.arena, arg);
    size_t n = 0;
    (void)o;
    j->o.recompute = PP_RECOMPUTE_NONE;
    j->o.recompute_auto = !strcmp(arg, "auto");
    j->o.recompute_list = strchr(arg, ',') ? arg : NULL;
    j->o.sets = pp_arena_alloc(&j->p.arena, strlen(arg) + 1, sizeof *j->o.sets);
    for (char *item; !j->o.recompute_auto && (item = strsep(&text, ","));)
        if (parse_set(t, item, &j->o.sets[n++]))
            return -1;
    if (n == 1)
        j->o.recompute = j->o.sets[0];
    j->o.n_sets = n;
    return 0;
}

static const char *const zero_words[] = {"0", "1", "3", NULL};

/* Reads what ranks divide. A stage's gradients are whole from its first
 * backward to its last, so ranks that divide them too (ZeRO-2) need no less
 * memory at the peak. */
static int parse_zero(struct tool *t, const struct tool_option *o,
                      const char *arg)
{
    struct split_job *j = t->base;
    if (!strcmp(arg, "2"))
        return tool_usage(t, "--zero: '2' saves nothing in a pipeline, as "
                             "gradients are whole until the last backward of "
                             "their stage; use 1, or 3 to divide weights");
    j->o.zero = tool_word(t, "--zero", arg, o->words);
    j->p.mesh.whole_state = j->o.zero == 0;
    j->p.mesh.divided_weights = j->o.zero == 2;
    return j->o.zero < 0 ? -1 : 0;
}

static int parse_mesh_order(struct tool *t, const struct tool_option *o,
                            const char *arg)
{
    struct split_job *j = t->base;
    (void)o;
    if (pp_mesh_read_order(&j->p.mesh, arg))
        return 0;
    return tool_usage(
        t,
        "--mesh-order: '%s' is not an order of tp, cp, dp and pp, "
        "such as 'tp-cp-dp-pp'",
        arg);
}

#define AT(member) TOOL_AT(struct split_job, member)

const struct tool_option split_options[] = {
    {.group = "Model"},
    {0, "units", "FILE", "a table of units instead of a model", AT(o.units)},
    {PLANNER_SEQ_LEN},
    {0, "micro-batch-tokens", "N", "tokens of a microbatch (one sequence)",
     AT(o.tokens), 1, INT32_MAX, .counts = true},
    {0, "micro-batch-size", "N", "sequences of a microbatch (1)",
     AT(o.sequences), 1, INT32_MAX, .excludes = "micro-batch-tokens",
     .also = "mbs"},
    {PLANNER_DTYPE},
    {0, "device", "NAME", "cpu or cuda (default with bf16), for memory",
     AT(o.device), .words = devices, .parse = parse_word_from_1},
    {PLANNER_MTP},
    {0, "freeze", "LIST", "parts and units that are not trained", AT(o.freeze)},
    {0, "lora", "SETTINGS", "train adapters: rank=16,alpha=32,targets=q_proj",
     .parse = split_read_lora, .excludes = "units"},
    {PLANNER_MOE_LAYER_FREQ},
    {0, "images", "N", "images of a sequence (1)", AT(o.items[0].n), 1,
     INT32_MAX},
    {0, "image-patches", "N", "patches of an image (1024)", AT(o.items[0].rows),
     1, INT32_MAX},
    {0, "clips", "N", "clips of audio of a sequence (1)", AT(o.items[1].n), 1,
     INT32_MAX},
    {0, "clip-rows", "N", "rows of a clip (the most that the model takes)",
     AT(o.items[1].rows), 1, INT32_MAX},

    {.group = "Mesh"},
    {'p', "ranks", "N", "number of pipeline ranks", AT(o.n_ranks), 1,
     SPLIT_MAX_RANKS, .also = "pp pp-size pipeline-model-parallel-size"},
    {'c', "chunks", "N", "stages on each rank (1)", AT(o.n_chunks), 1,
     SPLIT_MAX_RANKS,
     .also = "vpp vpp-size "
             "num-virtual-stages-per-pipeline-rank"},
    {0, "placement", "HOW", "loop (default), v or both-ways", AT(o.placement),
     .words = placement_words},
    {0, "dp", "N", "data-parallel ranks (1)", AT(p.mesh.dp), 1, SPLIT_MAX_RANKS,
     .also = "dp-size data-parallel-size"},
    {0, "tp", "N", "tensor-parallel ranks (1)", AT(p.mesh.tp), 1,
     SPLIT_MAX_RANKS,
     .also = "tp-size tensor-parallel-size tensor-model-parallel-size"},
    {0, "cp", "N", "context-parallel ranks (1)", AT(p.mesh.cp), 1,
     SPLIT_MAX_RANKS, .also = "cp-size context-parallel-size"},
    {PLANNER_CP_EXCHANGE},
    {0, "cp-exact", NULL, "scores and losses have the bits of --cp 1",
     AT(p.mesh.cp_exact), .needs = "cp"},
    {0, "ep", "N", "expert-parallel ranks, of dp x cp (1)", AT(p.mesh.ep), 1,
     SPLIT_MAX_RANKS,
     .also = "ep-size expert-parallel-size expert-model-parallel-size"},
    {PLANNER_EXPERT_LIMIT, .needs = "ep"},
    {PLANNER_EXPERT_IMBALANCE, .needs = "ep"},
    {0, "expert-capacity", "F", "most tokens of an expert, over an even share",
     AT(p.mesh.expert_capacity), PP_LEAST_CAPACITY, PP_MOST_CAPACITY,
     .also = "moe-expert-capacity-factor"},
    {0, "expert-drop", "POLICY", "of full experts: position (default) or probs",
     AT(p.mesh.expert_drop), .words = pp_expert_drop_names,
     .needs = "expert-capacity", .also = "moe-token-drop-policy"},
    {0, "expert-padding", NULL, "pad rows of experts to the capacity",
     AT(p.mesh.expert_padding), .needs = "expert-capacity",
     .also = "moe-pad-expert-input-to-capacity"},
    {0, "experts-over-tp", NULL, "cut --ep from dp x cp x tp; whole experts",
     AT(p.mesh.experts_over_tp)},
    {0, "zero", "N", "1: divide optimizer states; 3: weights too (1)",
     AT(o.zero), .words = zero_words, .parse = parse_zero},
    {0, "resident", "N", "--zero 3: stages of a rank that are whole at once",
     AT(p.mesh.resident), 1, SPLIT_MAX_RANKS, .needs = "zero=3"},
    {0, "mesh-order", "ORDER", "axes, fastest first (tp-cp-dp-pp)",
     .parse = parse_mesh_order},
    {0, "head-stages", "N", "more stages, which divide the words of the head",
     AT(o.head_stages), 2, SPLIT_MAX_RANKS,
     .excludes = "units mtp freeze lora chunks placement encoder-ranks "
                 "encoder-mesh combine method layers fqns layout "
                 "hybrid-layer-pattern export compare trainer"},
    {0, "encoder-ranks", "N", "ranks with nothing but encoders",
     AT(o.encoder_ranks), 1, SPLIT_MAX_RANKS, .excludes = "encoder-mesh"},
    {0, "encoder-mesh", "SIZES", "encoder's mesh: pp=1,dp=2 or shared,tp=2",
     .parse = split_read_encoder_mesh},
    {0, "combine", "PLANS", "join plans: vision=FILE,language=FILE",
     AT(o.combine),
     .excludes =
         "units mtp freeze lora ranks chunks placement dp tp cp cp-exchange "
         "cp-exact ep expert-limit expert-imbalance expert-capacity "
         "expert-drop "
         "expert-padding experts-over-tp zero resident mesh-order "
         "encoder-ranks "
         "encoder-mesh recompute method layers fqns layout "
         "hybrid-layer-pattern first last seq-len micro-batch-tokens "
         "micro-batch-size images image-patches clips clip-rows dtype device "
         "compare"},
    {0, "edge", "FROM:TO", "its edge: vision:language",
     .parse = split_read_edge, .needs = "combine"},
    {0, "rank-speed", "S,S,...", "relative speed of each rank",
     AT(o.rank_speed)},

    {.group = "Schedule"},
    {'s', "schedule", "KIND", "the schedule that will run, or auto (1f1b, ...)",
     AT(o.kind), .list = pp_kind_names, .also = "pipeline-parallel-schedule"},
    {'m', "microbatches", "N", "microbatches in a step (4 for each rank)",
     AT(o.n_microbatches), 1, INT32_MAX, .also = "num-microbatches"},
    {0, "global-batch", "N", "sequences in a step, instead of -m",
     AT(o.global_batch), 1, INT32_MAX, .excludes = "microbatches",
     .also = "global-batch-size gbs"},
    {0, "trainer", "NAME", "the trainer of the plan: pprun, megatron, ...",
     AT(p.trainer_name), .list = pp_trainer_names, .excludes = "combine"},
    {0, "costs", "FILE", "measured costs, from pprun --profile",
     AT(o.costs_file)},
    {0, "gpu", "NAME", "seconds on a GPU and its links; its memory", AT(p.gpu),
     .list = pp_machine_names, .excludes = "costs"},
    {PLANNER_MACHINE},
    {PLANNER_NODE},
    {0, "flops", "RATE", "operations a second of a rank, such as 400T",
     AT(o.flops), .parse = parse_rate, .excludes = "costs"},
    {0, "link", "A[,B]", "bytes a second of a rank, in and between nodes",
     .parse = planner_parse_links, .needs = "gpu|machine|flops|costs"},

    {.group = "Memory"},
    {PLANNER_MEMORY},
    {PLANNER_OBJECTIVE},
    {0, "recompute", "MODE", "none, selective, full, parts, by stage, or auto",
     .words = recompute_words, .parse = parse_recompute},

    {.group = "Split"},
    {0, "method", "NAME", "balanced (default), uniform, weights, ...",
     AT(rule.method), .words = split_method_names, .parse = parse_method},
    {0, "layers", "N,N,...", "decoder layers of each stage", AT(rule.layers),
     .parse = parse_plan},
    {0, "fqns", "FILE", "names of each stage's units, a JSON list of lists",
     AT(rule.fqns), .parse = parse_plan},
    {0, "layout", "STRING", "Megatron-LM's layout, such as 'Ett|t*3|ttL'",
     AT(rule.layout), .parse = parse_plan,
     .also = "pipeline-model-parallel-layout"},
    {0, "hybrid-layer-pattern", "PATTERN",
     "megatron: layers by type, such as 'M-M*|M-M-'", AT(rule.pattern),
     .parse = parse_plan, .excludes = "account-embedding account-loss"},
    {0, "first", "N", "megatron: layers of the first rank", AT(rule.first), 1,
     INT32_MAX, .parse = parse_megatron,
     .also = "decoder-first-pipeline-num-layers"},
    {0, "last", "N", "megatron: layers of the last rank", AT(rule.last), 1,
     INT32_MAX, .parse = parse_megatron,
     .also = "decoder-last-pipeline-num-layers"},
    {0, "account-embedding", NULL, "megatron: the embedding counts as a layer",
     AT(rule.account_embedding), .parse = parse_megatron,
     .also = "account-for-embedding-in-pipeline-split"},
    {0, "account-loss", NULL, "megatron: the loss counts as a layer",
     AT(rule.account_loss), .parse = parse_megatron,
     .also = "account-for-loss-in-pipeline-split"},
    {0, "input-weight", "N", "weights: layers that the embedding counts as (1)",
     AT(rule.input_weight), 0, INT32_MAX, .needs = "method=weights"},
    {0, "output-weight", "N", "weights: layers that norm and head count as (1)",
     AT(rule.output_weight), 0, INT32_MAX, .needs = "method=weights"},
    {0, "layers-per-stage", "N",
     "weights, automodel: sets the number of stages", AT(rule.layers_per_stage),
     1, INT32_MAX, .needs = "method=weights|method=automodel"},
    {0, "stages", "HOW", "weights, automodel: single or multi on each rank",
     AT(rule.stages_kind), .words = stages_words, .parse = parse_word_from_1,
     .needs = "method=weights|method=automodel"},
    {0, "round", "HOW", "automodel: stages up or down to whole ranks",
     AT(rule.round), .words = round_words, .parse = parse_word_from_1,
     .needs = "method=automodel layers-per-stage"},
    {0, "encoder-layers", "N", "colossalai: the first N layers are an encoder",
     AT(rule.encoder_layers), 0, INT32_MAX, .needs = "method=colossalai"},

    {.group = "Output"},
    {0, "models", NULL, "list known models, and the values that are refused",
     AT(o.models)},
    {0, "json", NULL, "with -t or --models: JSON instead of a table",
     AT(p.json), .needs = "table|models"},
    {'t', "table", NULL, "print a table for people", AT(p.table)},
    {0, "compare", "KINDS", "print a table of several kinds: A,B,... or all",
     AT(o.compare),
     .excludes = "schedule method layers fqns layout hybrid-layer-pattern "
                 "first last account-embedding account-loss table export"},
    {0, "svg", "FILE", "also draw cost and memory, or --compare", AT(o.svg)},
    {0, "export", "FORM", "print for megatron, torchtitan, deepspeed, ...",
     AT(o.export), .words = split_export_names, .parse = parse_word_from_1,
     .excludes = "table"},
    {0},
};

/* Sets source to the model operand, or to the table of units instead of it. */
static int set_source(struct split_job *j, int argc, char **argv)
{
    struct tool *t = &j->p.t;
    if (j->o.units && optind < argc)
        return tool_usage(t,
                          "unexpected operand '%s': --units replaces the model",
                          argv[optind]);
    if (!j->o.units && optind >= argc)
        return tool_usage(t, "give a model: its directory or config.json");
    if (!j->o.units && argc - optind > 1)
        return tool_usage(t, "unexpected operand '%s'", argv[optind + 1]);
    j->p.source = j->o.units ? j->o.units : argv[optind];
    return 0;
}

/* Checks the sets of stages: that the trainer and the model have them, and that
 * a manifest can hold their costs. */
static int check_sets(struct split_job *j)
{
    const struct pp_trainer *trainer = j->p.trainer;
    struct tool *t = &j->p.t;
    size_t n_different = 0;
    for (size_t i = 0; i < j->o.n_sets; i++) {
        enum pp_recompute r = j->o.sets[i];
        char text[PP_RECOMPUTE_TEXT];
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= j->o.sets[k] == r;
        n_different += r && !again;
        if (n_different > PP_MOST_MODES)
            return tool_usage(t, "--recompute: stages have more than %d sets",
                              PP_MOST_MODES);
        if (pp_trainer_recomputes(trainer, r))
            continue;
        if (trainer->parts)
            return tool_usage(
                t, "--recompute: %s does not recompute %s alone", trainer->name,
                pp_recompute_text((enum pp_recompute)(r & ~trainer->parts),
                                  text));
        return tool_usage(t, "--recompute: %s has 'none'%s and 'full'",
                          trainer->name,
                          trainer->selective ? ", 'selective'" : "");
    }
    return 0;
}

static int check_recompute(struct split_job *j)
{
    struct tool *t = &j->p.t;
    bool by_stage = j->o.recompute_list || j->o.recompute_auto;
    if (j->o.units && (j->o.recompute != PP_RECOMPUTE_NONE || by_stage))
        return tool_usage(t, "--recompute needs a model: a table of units does "
                             "not say what they could recompute");
    if (j->o.search_order && by_stage)
        return tool_usage(t, "-s auto needs one mode of --recompute for all "
                             "stages");
    if (check_sets(j))
        return -1;
    if (by_stage && !j->o.recompute_auto && !j->p.trainer->modes)
        return tool_usage(t,
                          "--recompute: '%s', but all stages of %s have one "
                          "mode",
                          j->o.recompute_list, j->p.trainer->name);
    return 0;
}

int split_read_options(struct split_job *j, int argc, char **argv)
{
    struct tool *t = &j->p.t;
    t->base = j;
    if (tool_read_options(t, argc, argv))
        return -1;
    planner_set_trainer(&j->p, j->p.trainer_name);
    if (!tool_given(t, "zero"))
        j->p.mesh.divided_weights = !(j->p.trainer->zero >> 1 & 1);
    if (j->o.models)
        return optind < argc
                   ? tool_usage(t, "unexpected operand '%s'", argv[optind])
                   : tool_check_options(t);
    j->o.search_order = j->o.kind && !strcmp(j->o.kind, "auto");
    bool is_manifest = j->o.n_ranks == 0;
    if (j->o.combine && optind < argc)
        return tool_usage(t,
                          "unexpected operand '%s': --combine names the plans",
                          argv[optind]);
    bool prints = j->p.table || j->o.export || j->o.svg;
    if (is_manifest && !j->o.combine &&
        (j->o.units || (argc - optind != 1 && (optind < argc || !prints))))
        return tool_usage(t, "give the number of ranks (-p)");
    if (j->o.n_ranks * j->o.n_chunks > SPLIT_MAX_RANKS)
        return tool_usage(t,
                          "%" PRId64 " ranks of %" PRId64
                          " chunks are more than %d stages",
                          j->o.n_ranks, j->o.n_chunks, SPLIT_MAX_RANKS);
    if (j->o.svg && !strcmp(j->o.svg, "-") && !t->output)
        return tool_usage(t, "only one of --svg and the result can go to "
                             "standard output");
    if (j->rule.method == SPLIT_LAYERS && !j->rule.layers)
        return tool_usage(t, "--method layers needs --layers");
    if (j->rule.method == SPLIT_FQNS && !j->rule.fqns)
        return tool_usage(t, "--method fqns needs --fqns");
    if (tool_check_options(t) || (!is_manifest && split_check_methods(j)) ||
        check_recompute(j))
        return -1;
    const char *name;
    if (j->o.combine)
        return split_generates(j) ? 0 : split_combine(j);
    if (!is_manifest)
        return set_source(j, argc, argv);
    return tool_input(t, &name) ? -1 : split_take_given(j, name);
}
