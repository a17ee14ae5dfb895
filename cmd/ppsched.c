/* SPDX-License-Identifier: MIT */
/* ppsched - gives a manifest its schedule, proves it, simulates it, draws it:
 * options and the course of a run. */
#include "ppsched.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "sched/check.h"
#include "sched/draw.h"
#include "sched/kind.h"
#include "sched/lower.h"
#include "version.h"

enum {
    OPT_PLACEMENT = TOOL_LONG,
    OPT_GROUP,
    OPT_COST,
    OPT_DEPTH,
    OPT_DATA,
    OPT_STEP,
    OPT_SEQ_LEN,
    OPT_MEMORY,
    OPT_CSV,
    OPT_EXPORT,
    OPT_CHECK,
    OPT_STATS,
    OPT_LIST,
    OPT_WIDTH,
    OPT_ASCII,
    OPT_COLOR
};

/* What a plan may hold; beyond it a mistyped number is likelier. */
enum {
    MAX_RANKS = 1 << 20,
    MAX_MICROBATCHES = 1 << 24,
    MAX_CELLS = 1 << 26, /* stages times microbatches */
    MAX_WIDTH = 100000,
    DEFAULT_WIDTH = 100,
    DEFAULT_SEQ_LEN = 1024
};

static const struct tool_option options[] = {
    {'s', "schedule", "KIND", "order the work so (see --list)"},
    {'m', "microbatches", "N", "microbatches in a step"},
    {'p', "ranks", "N", "no manifest: plan in the abstract on N ranks"},
    {'c', "chunks", "N", "with -p: stages on each rank (1)"},
    {OPT_PLACEMENT, "placement", "NAME", "with -p: loop (default) or v"},
    {OPT_GROUP, "group", "N", "interleaved: microbatches in a group"},
    {OPT_DEPTH, "depth", "N", "messages in flight on a channel (1)"},
    {OPT_MEMORY, "memory", "N|SIZE", "limit of a rank: slots, or bytes"},
    {OPT_COST, "cost", "F,I,W[,COMM]", "literal costs (1,1,1,0)"},
    {OPT_SEQ_LEN, "seq-len", "N", "tokens of a microbatch (1024)"},
    {OPT_DATA, "data", "DIR", "take microbatch sizes from packed data"},
    {OPT_STEP, "step", "N", "with --data: which step to simulate (1)"},
    {OPT_CSV, "csv", "FILE", "read the schedule from PyTorch's CSV"},
    {OPT_EXPORT, "export", "FORM", "write PyTorch's CSV: csv or csv-comms"},
    {OPT_CHECK, "check", NULL, "only say whether the schedule is valid"},
    {OPT_STATS, "stats", NULL, "print figures as JSON"},
    {'t', "timeline", NULL, "draw the schedule to scale"},
    {OPT_WIDTH, "width", "N", "with -t: columns, 0 for no limit (100)"},
    {OPT_ASCII, "ascii", NULL, "with -t: only ASCII characters"},
    {OPT_COLOR, "color", NULL, "with -t: ANSI colours"},
    {OPT_LIST, "list", NULL, "list the kinds of schedule"},
    {0},
};

/* --- options --- */

static int parse_cost(struct tool *t, struct ppsched_options *o)
{
    char *copy = strdup(optarg), *rest = copy, *item;
    int n = 0;
    if (!copy)
        return pp_fail(&t->err, PP_EXIT_SYSTEM, "out of memory");
    o->has_cost = true;
    while ((item = strsep(&rest, ","))) {
        if (n == 4 ||
            pp_parse_real(item, "--cost", 0, 1e15, &o->cost[n], &t->err))
            break;
        n++;
    }
    if (t->err.code == PP_EXIT_OK && (item || n < 3))
        tool_usage(t, "--cost: '%s' is not F,I,W or F,I,W,COMM", optarg);
    free(copy);
    return t->err.code == PP_EXIT_OK ? 0 : -1;
}

static int parse_memory(struct tool *t, struct ppsched_options *o)
{
    o->has_memory = true;
    o->memory_is_slots = strspn(optarg, "0123456789") == strlen(optarg);
    return pp_parse_size(optarg, "--memory", &o->memory, &t->err);
}

static int parse_int(struct tool *t, const char *what, int min, int max,
                     int *out)
{
    int64_t v;
    if (pp_parse_int(optarg, what, min, max, &v, &t->err))
        return -1;
    *out = (int)v;
    return 0;
}

/* A number of tokens, which may end in K, M or G. */
static int parse_tokens(struct tool *t, const char *what, int *out)
{
    size_t v;
    if (pp_parse_size(optarg, what, &v, &t->err))
        return -1;
    if (v < 1 || v > MAX_MICROBATCHES)
        return pp_fail(&t->err, PP_EXIT_INPUT,
                       "%s: '%s' is not between 1 and %d", what, optarg,
                       MAX_MICROBATCHES);
    *out = (int)v;
    return 0;
}

static int set_option(struct tool *t, struct ppsched_options *o, int id)
{
    switch (id) {
    case 's':
        o->kind = optarg;
        return 0;
    case 'm':
        return parse_int(t, "-m", 1, MAX_MICROBATCHES, &o->n_microbatches);
    case 'p':
        return parse_int(t, "-p", 1, MAX_RANKS, &o->n_ranks);
    case 'c':
        return parse_int(t, "-c", 1, MAX_RANKS, &o->n_chunks);
    case 't':
        o->timeline = true;
        return 0;
    case OPT_PLACEMENT:
        o->placement = optarg;
        return 0;
    case OPT_GROUP:
        return parse_int(t, "--group", 1, MAX_MICROBATCHES, &o->group);
    case OPT_DEPTH:
        return parse_int(t, "--depth", 0, MAX_MICROBATCHES, &o->depth);
    case OPT_MEMORY:
        return parse_memory(t, o);
    case OPT_COST:
        return parse_cost(t, o);
    case OPT_SEQ_LEN:
        return parse_tokens(t, "--seq-len", &o->seq_len);
    case OPT_CSV:
        o->csv = optarg;
        return 0;
    case OPT_EXPORT:
        o->export = optarg;
        return 0;
    case OPT_DATA:
        o->data = optarg;
        return 0;
    case OPT_STEP:
        return parse_int(t, "--step", 1, INT32_MAX, &o->step);
    case OPT_WIDTH:
        return parse_int(t, "--width", 0, MAX_WIDTH, &o->width);
    case OPT_CHECK:
        o->check = true;
        return 0;
    case OPT_STATS:
        o->stats = true;
        return 0;
    case OPT_ASCII:
        o->ascii = true;
        return 0;
    case OPT_COLOR:
        o->color = true;
        return 0;
    default:
        o->list = true;
        return 0;
    }
}

/* Which options go together. */
static int check_options(struct tool *t, const struct ppsched_options *o)
{
    int views = o->check + o->stats + o->timeline + (o->export != NULL);
    if (views > 1)
        return tool_usage(t, "--check, --stats, -t and --export exclude each "
                             "other");
    if (o->csv && (o->kind || o->n_ranks))
        return tool_usage(t, "--csv takes the place of -s and -p");
    if (o->export && strcmp(o->export, "csv") && strcmp(o->export, "csv-comms"))
        return tool_usage(t, "--export: '%s' is neither csv nor csv-comms",
                          o->export);
    if (!o->kind && !o->csv && views == 0)
        return tool_usage(t, "nothing to do: -s, --csv, --check, --stats, -t, "
                             "--export or --list is needed");
    if (o->kind && !pp_kind_find(o->kind))
        return tool_usage(t, "-s: '%s' is not a schedule; --list names them",
                          o->kind);
    if (o->kind && !o->n_microbatches)
        return tool_usage(t, "-s needs -m, the number of microbatches");
    if (!o->kind && !o->csv && o->n_microbatches)
        return tool_usage(t, "-m needs -s or --csv");
    if (!o->kind && (o->group || o->n_ranks))
        return tool_usage(t, "-p and --group need -s");
    if (!o->n_ranks && (o->n_chunks || o->placement))
        return tool_usage(t, "-c and --placement need -p");
    if (o->group && strcmp(o->kind, "interleaved"))
        return tool_usage(t, "--group is for -s interleaved");
    if (o->placement && strcmp(o->placement, "loop") &&
        strcmp(o->placement, "v"))
        return tool_usage(t, "--placement: '%s' is neither loop nor v",
                          o->placement);
    if (o->step && !o->data)
        return tool_usage(t, "--step needs --data");
    if (!o->timeline && (o->width >= 0 || o->ascii || o->color))
        return tool_usage(t, "--width, --ascii and --color need -t");
    return 0;
}

/* Reads the command line. Returns 0, or -1 when the run is over. */
static int read_options(struct tool *t, struct ppsched_options *o, int argc,
                        char **argv)
{
    int id;
    while ((id = tool_option(t, argc, argv)) != TOOL_END)
        if (id == TOOL_STOP || set_option(t, o, id))
            return -1;
    return o->list ? 0 : check_options(t, o);
}

/* --- the run --- */

static int print_list(struct tool *t)
{
    FILE *f = tool_output(t);
    for (const struct pp_kind *const *k = pp_kinds; f && *k; k++)
        fprintf(f, "%-15s %s\n%-15s needs: %s\n%-15s %s\n", (*k)->name,
                (*k)->summary, "", (*k)->constraint, "", (*k)->paper);
    return f ? 0 : -1;
}

/* A manifest with stages that have no units. */
static int make_abstract(struct ppsched *p, int argc, char **argv)
{
    const struct ppsched_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    struct pp_mesh mesh = {o->n_ranks, 1, 1, 1, 1};
    struct pp_arena arena = {0};
    struct pp_graph graph;
    bool v = o->placement && !strcmp(o->placement, "v");
    int rc = -1;
    if (optind < argc)
        return tool_usage(p->tool, "'%s': with -p there is no manifest to read",
                          argv[optind]);
    if (pp_manifest_init(&p->manifest, err) ||
        pp_graph_chain(&arena, o->n_ranks, o->n_chunks ? o->n_chunks : 1,
                       v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP, &graph, err))
        goto out;
    struct pp_manifest_stage *stages =
        pp_arena_alloc(&arena, (size_t)graph.n_stages, sizeof *stages);
    if (!stages) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    rc = pp_manifest_set_stages(&p->manifest, &mesh, &graph, stages, err);
out:
    pp_arena_finish(&arena);
    return rc;
}

static int read_manifest(struct ppsched *p, int argc, char **argv)
{
    struct pp_err *err = &p->tool->err;
    const char *name;
    if (tool_input(p->tool, argc, argv, &name))
        return -1;
    bool is_stdin = !strcmp(name, "-");
    FILE *f = is_stdin ? stdin : fopen(name, "r");
    if (!f)
        return pp_fail_errno(err, "%s", name), err->code = PP_EXIT_INPUT, -1;
    int rc =
        pp_manifest_read(f, is_stdin ? "<stdin>" : name, &p->manifest, err);
    if (!is_stdin)
        fclose(f);
    if (rc)
        return -1;
    if (!p->manifest.has_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: there are no stages; ppsplit makes them",
                       is_stdin ? "<stdin>" : name);
    if (!p->options.kind && !p->options.csv && !p->manifest.has_schedule)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: there is no schedule; -s makes one",
                       is_stdin ? "<stdin>" : name);
    return 0;
}

static int build(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_kind *kind = pp_kind_find(o->kind);
    struct pp_kind_options k = {o->n_microbatches, o->group, false};
    struct pp_err *err = &p->tool->err;
    if ((int64_t)p->manifest.graph.n_stages * o->n_microbatches > MAX_CELLS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages of %d microbatches are more than %d actions",
                       p->manifest.graph.n_stages, o->n_microbatches,
                       MAX_CELLS);
    p->schedule = &p->built;
    if (pp_schedule_init(&p->built, &p->manifest.graph, kind->name,
                         o->n_microbatches, err) ||
        kind->emit(&p->built, &k, err))
        return -1;
    return pp_lower(&p->built, err);
}

/* The schedule to look at: built, or the manifest's. Nothing is shown or
 * written that has not been checked. */
static int prepare(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    if (!p->schedule)
        p->schedule = &p->manifest.schedule;
    if (p->options.kind && build(p))
        return -1;
    if (p->options.depth >= 0)
        p->schedule->channel_depth = p->options.depth;
    if (p->options.csv ? ppsched_csv_check(p) : pp_check(p->schedule, err))
        return -1;
    if (p->options.data && pp_packed_open(p->options.data, &p->packed, err))
        return -1;
    if (p->options.data && p->packed.n_bins == 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: there are no microbatches",
                       p->options.data);
    return ppsched_costs_init(p);
}

static int draw(struct ppsched *p, FILE *f)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_schedule *s = p->schedule;
    struct pp_draw d = {o->width >= 0 ? o->width : DEFAULT_WIDTH, o->color,
                        o->ascii, p->costs.literal ? NULL : "flop"};
    struct pp_err *err = &p->tool->err;
    struct pp_sim sim = {0};
    if (ppsched_memory(p, NULL) ||
        pp_simulate(s, &p->costs.costs, s->channel_depth, &sim, err))
        return -1;
    fprintf(f, "%s: %d rank%s, %d stage%s, %d microbatch%s, channel depth %d\n",
            s->kind, s->graph->n_ranks, s->graph->n_ranks == 1 ? "" : "s",
            s->graph->n_stages, s->graph->n_stages == 1 ? "" : "s",
            s->n_microbatches, s->n_microbatches == 1 ? "" : "es",
            s->channel_depth);
    int rc = pp_draw(f, s, &sim, &d, err);
    pp_sim_finish(&sim);
    return rc;
}

static int set_data(struct ppsched *p)
{
    const struct pp_packed *k = &p->packed;
    struct pp_manifest_data data = {.path = p->options.data,
                                    .checksum = k->checksum,
                                    .n_bins = k->n_bins,
                                    .n_sequences = k->n_sequences,
                                    .capacity = k->capacity,
                                    .align = k->align,
                                    .max_tokens = k->max_tokens};
    return pp_manifest_set_data(&p->manifest, &data, &p->tool->err);
}

static int write_manifest(struct ppsched *p, FILE *f, int argc, char **argv)
{
    struct pp_err *err = &p->tool->err;
    if (ppsched_memory(p, NULL) || (p->options.data && set_data(p)) ||
        pp_manifest_set_schedule(&p->manifest, p->schedule, err))
        return -1;
    char *args = tool_command(argc, argv);
    if (!args)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc =
        pp_manifest_add_history(&p->manifest, "ppsched", PP_VERSION, args, err);
    free(args);
    return rc ? -1 : pp_manifest_write(&p->manifest, f, err);
}

static int run(struct ppsched *p, int argc, char **argv)
{
    const struct ppsched_options *o = &p->options;
    if (o->list)
        return print_list(p->tool);
    /* A CSV file has its own stages; a manifest is read when one is named. */
    bool has_manifest = !o->n_ranks && (!o->csv || optind < argc);
    if (o->n_ranks && make_abstract(p, argc, argv))
        return -1;
    if (has_manifest && read_manifest(p, argc, argv))
        return -1;
    if (o->csv && ppsched_csv_read(p, has_manifest))
        return -1;
    if (prepare(p))
        return -1;
    FILE *f = tool_output(p->tool);
    if (!f)
        return -1;
    if (o->export)
        return ppsched_csv_export(p, f);
    if (o->stats)
        return ppsched_stats(p, f);
    if (o->timeline)
        return draw(p, f);
    if (!o->check)
        return write_manifest(p, f, argc, argv);
    if (ppsched_memory(p, NULL))
        return -1;
    fprintf(f, "valid, %s\n",
            pp_schedule_is_canonical(p->schedule) ? "canonical"
                                                  : "not canonical");
    return 0;
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "ppsched",
        .synopsis =
            "-s KIND -m N [options] [MANIFEST]\n"
            "       ppsched --csv FILE [options] [MANIFEST]\n"
            "       ppsched --check | --stats | -t | --export FORM [options] "
            "[MANIFEST]",
        .summary = "Order the work of a pipeline, prove the order, and show "
                   "what it costs.",
        .options = options};
    struct ppsched p = {
        .tool = &t,
        .options = {.depth = -1, .width = -1, .seq_len = DEFAULT_SEQ_LEN}};
    if (read_options(&t, &p.options, argc, argv) == 0) {
        if (p.options.data && !p.options.step)
            p.options.step = 1;
        run(&p, argc, argv);
    }
    ppsched_costs_finish(&p.costs);
    pp_schedule_finish(&p.built);
    pp_csv_finish(&p.csv);
    pp_packed_finish(&p.packed);
    pp_manifest_finish(&p.manifest);
    return tool_finish(&t);
}
