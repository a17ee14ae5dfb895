/* SPDX-License-Identifier: MIT */
/* options - the options of ppsched, and their combinations. */
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "ppsched.h"
#include "run/objectives/objective.h"
#include "schedule/kinds/kind.h"
#include "schedule/search/search.h"

/* Larger numbers are likely typing errors. */
enum {
    MAX_RANKS = 1 << 20,
    MAX_MICROBATCHES = 1 << 24,
    MAX_WIDTH = 100000,
    MIN_PIXELS = 400,
    DEFAULT_WIDTH = 100
};

static const char *const offload_words[] = {"auto", NULL};
static const char *const minimize_words[] = {"time", "span", "memory", NULL};
static const char *const dialect_words[] = {"pytorch", "no-wait", NULL};
static const char *const export_words[] = {"csv", "csv-comms", NULL};
static const char *const placement_words[] = {"loop", "v", "both-ways", NULL};
/* The last word means all of the others. */
static const char *const semantics_words[] = {
    "buffered", "channel",  "rendezvous", "pair",
    "rank",     "blocking", "all",        NULL};

static int parse_costs(struct tool *t, const struct tool_option *option,
                       const char *arg)
{
    struct ppsched_options *o = t->base;
    size_t n;
    (void)option;
    o->has_cost = true;
    if (pp_parse_reals(arg, "--cost", 0, 1e15, o->cost, 4, &n, &t->err))
        return -1;
    return n == 3 || n == 4
               ? 0
               : tool_usage(t, "--cost: '%s' must be F,I,W or F,I,W,COMM", arg);
}

static int parse_depth(struct tool *t, const struct tool_option *option,
                       const char *arg)
{
    struct ppsched_options *o = t->base;
    if (strcmp(arg, "auto"))
        return tool_set(t, option, arg);
    o->depth = PPSCHED_DEPTH_AUTO;
    return 0;
}

static int parse_color(struct tool *t, const struct tool_option *option,
                       const char *arg)
{
    struct ppsched_options *o = t->base;
    (void)arg;
    o->color =
        strcmp(option->name, "color") ? PPSCHED_COLOR_OFF : PPSCHED_COLOR_ON;
    return 0;
}

#define AT(member) TOOL_AT(struct ppsched_options, member)

const struct tool_option ppsched_option_table[] = {
    {.group = "Schedule"},
    {'s', "schedule", "KIND", "kind of schedule (see --list)", AT(kind),
     .list = pp_kind_names, .needs = "microbatches|global-batch",
     .also = "pipeline-parallel-schedule"},
    {'m', "microbatches", "N", "microbatches in a step", AT(n_microbatches), 1,
     MAX_MICROBATCHES, .needs = "schedule|import|?compare",
     .also = "num-microbatches"},
    {0, "global-batch", "N", "sequences in a step, instead of -m",
     AT(global_batch), 1, MAX_MICROBATCHES, .needs = "schedule|import|?compare",
     .excludes = "microbatches ranks", .also = "global-batch-size gbs"},
    {0, "group", "N", "interleaved: microbatches in a group", AT(group), 1,
     MAX_MICROBATCHES, .needs = "schedule=interleaved"},
    {0, "slices", "N[,work]", "slices of each sequence, or their parts A,B,...",
     AT(slices), .needs = "schedule|?compare"},
    {0, "import", "FILE", "read a schedule of PyTorch, Megatron or a trace",
     AT(import), .also = "csv", .excludes = "schedule"},
    {0, "dialect", "NAME", "CSV: pytorch (default) or no-wait", AT(dialect),
     .words = dialect_words, .needs = "import|export=csv-comms"},
    {0, "lenient", NULL, "with --import: skip empty cells of a CSV file",
     AT(lenient), .needs = "import"},
    {0, "without-rank", "RANKS",
     "plan without ranks that are lost; each: a table", AT(without),
     .excludes = "schedule import compare ranks"},
    {0, "compare", "KINDS", "a table: of kinds A,B,..., all, own, FILE",
     AT(compare), .needs = "microbatches|global-batch",
     .excludes = "schedule import check stats timeline export trace overlay "
                 "placement group"},
    {0, "list", NULL, "list the kinds of schedule", AT(list)},

    {.group = "Mesh, without a manifest"},
    {'p', "ranks", "N", "number of pipeline ranks", AT(n_ranks), 1, MAX_RANKS,
     .needs = "schedule|?import|?compare",
     .also = "pp pp-size pipeline-model-parallel-size"},
    {'c', "chunks", "N", "stages on each rank (1)", AT(n_chunks), 1, MAX_RANKS,
     .needs = "ranks",
     .also = "vpp vpp-size num-virtual-stages-per-pipeline-rank"},
    {0, "placement", "NAME", "order of stages on ranks: loop, v or both-ways",
     AT(placement), .words = placement_words, .needs = "ranks"},

    {.group = "Search (-s auto)"},
    {0, "time", "SECONDS", "approximate time of the search (3)", AT(seconds), 0,
     1e6, .needs = "schedule=auto|?compare|?without-rank"},
    {0, "seed", "N", "seed of the search (1)", AT(seed), 0, INT32_MAX,
     .needs = "schedule=auto|?compare|?without-rank"},
    {0, "whole-backward", NULL, "use B instead of I and W", AT(whole_backward),
     .needs = "schedule=auto|?compare|?without-rank"},
    {0, "minimize", "WHAT", "time (default), span or memory", AT(minimize),
     .words = minimize_words, .needs = "schedule=auto|?compare|?without-rank"},

    {.group = "Costs"},
    {0, "cost", "F,I,W[,COMM]", "cost of each action (1,1,1,0)",
     .parse = parse_costs},
    {0, "comm", "T[,T...]", "time of a message, for each stage boundary",
     AT(time[PPSCHED_COMM])},
    {0, "reduce", "T[,T...]", "time of REDUCE_GRAD, for each stage",
     AT(time[PPSCHED_REDUCE])},
    {0, "unshard", "T[,T...]", "time of UNSHARD, for each stage",
     AT(time[PPSCHED_UNSHARD])},
    {0, "copy", "T[,T...]", "time of OFFLOAD and of RELOAD, for each stage",
     AT(time[PPSCHED_COPY])},
    {0, "copy-rate", "SIZE", "bytes that each of them copies in a second",
     AT(copy_rate), .excludes = "copy"},
    {0, "overlap-cost", "X", "time of an overlap pair over its sum (1)",
     AT(pair_cost), 0, 1000},
    {0, "seq-len", "N", "tokens of a microbatch (the manifest's, or 4096)",
     AT(seq_len), 1, MAX_MICROBATCHES, .counts = true,
     .also = "seq-length sequence-length"},
    {0, "data", "DIR", "take microbatch sizes from packed data", AT(data)},
    {0, "step", "N", "with --data: the step to simulate (1)", AT(step), 1,
     INT32_MAX},

    {.group = "Memory"},
    {0, "memory", "SIZE", "limit of a rank, such as 80GiB", AT(memory)},
    {0, "max-in-flight", "N", "most microbatches in flight on a rank",
     AT(slots), 1, INT32_MAX, .excludes = "memory"},
    {0, "offload", "auto", "offload activations that do not fit", AT(offload),
     .words = offload_words, .needs = "memory|max-in-flight"},
    {0, "objective", "NAME", "that trains, as of pprun (sft)", AT(objective),
     .words = pp_objective_names},
    {0, "depth", "N", "messages in flight on a channel (1), or auto", AT(depth),
     0, MAX_MICROBATCHES, .parse = parse_depth},

    {.group = "Output"},
    {0, "check", NULL, "only check that the schedule is valid", AT(check),
     .excludes = "stats timeline export overlay"},
    {0, "json", NULL, "with --check or --without-rank each: print JSON",
     AT(json), .needs = "check|?without-rank", .excludes = "semantics=all"},
    {0, "semantics", "NAME", "with --check: how messages block", AT(semantics),
     .words = semantics_words, .needs = "check"},
    {0, "stats", NULL, "print figures as JSON", AT(stats),
     .excludes = "timeline export overlay"},
    {'t', "timeline", NULL, "draw the schedule to scale", AT(timeline),
     .excludes = "export"},
    {0, "svg", "FILE", "also draw a picture", AT(svg)},
    {0, "trace", "FILE", "also write a trace for Perfetto", AT(trace)},
    {0, "overlay", "TRACE", "compare a measured trace with the plan",
     AT(overlay), .excludes = "export trace"},
    {0, "export", "FORM", "write PyTorch's CSV: csv or csv-comms", AT(export),
     .words = export_words},
    {0, "width", "N", "columns of -t (0: no limit) or pixels of --svg",
     AT(width), 0, MAX_WIDTH, .needs = "timeline|svg"},
    {0, "ascii", NULL, "with -t: only ASCII characters", AT(ascii),
     .needs = "timeline"},
    {0, "color", NULL, "with -t: always use ANSI colours", .parse = parse_color,
     .needs = "timeline"},
    {0, "no-color", NULL, "with -t: never use ANSI colours",
     .parse = parse_color, .needs = "timeline"},
    {0},
};

bool ppsched_is_auto(const struct ppsched_options *o)
{
    return o->kind && !strcmp(o->kind, "auto");
}

bool ppsched_is_each(const struct ppsched_options *o)
{
    return o->without && !strcmp(o->without, "each");
}

static int check_dialect(struct tool *t, const struct ppsched_options *o)
{
    bool comms = o->export && !strcmp(o->export, "csv-comms");
    if (!o->dialect)
        return 0;
    if (!strcmp(o->dialect, "no-wait") && !comms)
        return tool_usage(t, "--dialect no-wait needs --export csv-comms");
    return 0;
}

/* Returns the width of the terminal that -t draws on, or a common width. */
static int default_width(const struct tool *t)
{
    return !t->output && isatty(STDOUT_FILENO)
               ? tool_columns(STDOUT_FILENO, DEFAULT_WIDTH)
               : DEFAULT_WIDTH;
}

static int check_purpose(struct tool *t, const struct ppsched_options *o)
{
    bool views = o->check || o->stats || o->timeline || o->export;
    if (!o->kind && !o->import && !o->without && !views && !o->svg &&
        !o->trace && !o->overlay && !o->compare)
        return tool_usage(t, "nothing to do: give -s, --import, --compare, "
                             "--check, --stats, -t, --svg, --trace, --overlay, "
                             "--export or --list");
    return 0;
}

/* Checks --width, and that one result at most goes to standard output. */
static int check_outputs(struct tool *t, const struct ppsched_options *o)
{
    bool svg = o->svg && !strcmp(o->svg, "-");
    bool trace = o->trace && !strcmp(o->trace, "-");
    bool prints = o->check || o->stats || o->timeline || o->export ||
                  o->compare || o->overlay;
    if (svg + trace + (prints && !t->output) > 1)
        return tool_usage(t, "only one of --svg, --trace and the printed "
                             "result can go to standard output");
    if (o->width >= 0 && o->timeline && o->svg)
        return tool_usage(t, "--width needs -t or --svg, not both");
    if (o->width >= 0 && o->svg && o->width < MIN_PIXELS)
        return tool_usage(t, "--width: '%d' is less than %d pixels", o->width,
                          MIN_PIXELS);
    return 0;
}

/* Checks that --without-rank each is alone, and --json has something to print.
 */
static int check_each(struct tool *t, const struct ppsched_options *o)
{
    bool each = ppsched_is_each(o);
    if (each && (o->check || o->stats || o->timeline || o->export ||
                 o->overlay || o->svg || o->trace))
        return tool_usage(t, "--without-rank each prints a table, and nothing "
                             "else");
    if (o->json && !o->check && !each)
        return tool_usage(t, "--json needs --check or --without-rank each");
    return 0;
}

int ppsched_read_options(struct tool *t, struct ppsched_options *o, int argc,
                         char **argv)
{
    *o = (struct ppsched_options){.depth = -1,
                                  .seconds = PP_SEARCH_SECONDS,
                                  .seed = 1,
                                  .width = -1,
                                  .pair_cost = 1};
    t->base = o;
    if (tool_read_options(t, argc, argv))
        return -1;
    if (!o->list &&
        (tool_check_options(t) || check_dialect(t, o) || check_purpose(t, o) ||
         check_outputs(t, o) || check_each(t, o)))
        return -1;
    if (o->width < 0)
        o->width = o->timeline ? default_width(t) : 0;
    return 0;
}
