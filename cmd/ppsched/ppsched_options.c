/* SPDX-License-Identifier: MIT */
/* The options of ppsched: which there are, what they mean, what goes
 * together. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "ppsched.h"
#include "sched/kind.h"
#include "sched/progress.h"
#include "sched/search.h"

enum {
    OPT_PLACEMENT = TOOL_LONG,
    OPT_GROUP,
    OPT_SLICES,
    OPT_COST,
    OPT_COMM,
    OPT_PAIR_COST,
    OPT_DEPTH,
    OPT_TIME,
    OPT_SEED,
    OPT_WHOLE_BACKWARD,
    OPT_MINIMIZE,
    OPT_DATA,
    OPT_STEP,
    OPT_SEQ_LEN,
    OPT_MEMORY,
    OPT_CSV,
    OPT_EXPORT,
    OPT_DIALECT,
    OPT_LENIENT,
    OPT_CHECK,
    OPT_SEMANTICS,
    OPT_STATS,
    OPT_LIST,
    OPT_WIDTH,
    OPT_ASCII,
    OPT_COLOR,
    OPT_NO_COLOR,
    OPT_SVG,
    OPT_TRACE,
    OPT_OVERLAY,
    OPT_COMPARE
};

/* What a plan may hold; beyond it a mistyped number is likelier. */
enum {
    MAX_RANKS = 1 << 20,
    MAX_MICROBATCHES = 1 << 24,
    MAX_WIDTH = 100000,
    MIN_PIXELS = 400,
    DEFAULT_WIDTH = 100
};

const struct tool_option ppsched_option_table[] = {
    {'s', "schedule", "KIND", "order the work so (see --list)"},
    {'m', "microbatches", "N", "microbatches in a step"},
    {'p', "ranks", "N", "no manifest: plan in the abstract on N ranks"},
    {'c', "chunks", "N", "with -p: stages on each rank (1)"},
    {OPT_PLACEMENT, "placement", "NAME", "with -p: loop, v or both-ways"},
    {OPT_GROUP, "group", "N", "interleaved: microbatches in a group"},
    {OPT_SLICES, "slices", "N", "seq1f1b, gpipe: parts of each sequence"},
    {OPT_DEPTH, "depth", "N", "messages in flight on a channel (1)"},
    {OPT_MEMORY, "memory", "N|SIZE", "limit of a rank: slots, or bytes"},
    {OPT_TIME, "time", "SECONDS", "auto: how long to search, about (3)"},
    {OPT_SEED, "seed", "N", "auto: of the random numbers (1)"},
    {OPT_WHOLE_BACKWARD, "whole-backward", NULL, "auto: B, not I and W"},
    {OPT_MINIMIZE, "minimize", "WHAT", "auto: makespan (default) or span"},
    {OPT_COST, "cost", "F,I,W[,COMM]", "literal costs (1,1,1,0)"},
    {OPT_COMM, "comm", "T[,T...]", "time of a message, across each boundary"},
    {OPT_PAIR_COST, "pair-cost", "X",
     "time of an overlap pair, of its sum (1)"},
    {OPT_SEQ_LEN, "seq-len", "N",
     "tokens of a microbatch (the split's, or 1024)"},
    {OPT_DATA, "data", "DIR", "take microbatch sizes from packed data"},
    {OPT_STEP, "step", "N", "with --data: which step to simulate (1)"},
    {OPT_CSV, "csv", "FILE", "read the schedule from PyTorch's CSV"},
    {OPT_DIALECT, "dialect", "NAME", "CSV: pytorch (default), unwaited or old"},
    {OPT_LENIENT, "lenient", NULL, "with --csv: skip cells that are empty"},
    {OPT_EXPORT, "export", "FORM", "write PyTorch's CSV: csv or csv-comms"},
    {OPT_CHECK, "check", NULL, "only say whether the schedule is valid"},
    {OPT_SEMANTICS, "semantics", "NAME", "with --check: how messages wait"},
    {OPT_STATS, "stats", NULL, "print figures as JSON"},
    {'t', "timeline", NULL, "draw the schedule to scale"},
    {OPT_SVG, "svg", "FILE", "also draw a picture"},
    {OPT_TRACE, "trace", "FILE", "also write a trace for Perfetto"},
    {OPT_OVERLAY, "overlay", "TRACE", "hold a measured trace against the plan"},
    {OPT_COMPARE, "compare", "KINDS", "a table of several kinds: A,B,..."},
    {OPT_WIDTH, "width", "N", "columns of -t (0: no limit), pixels of --svg"},
    {OPT_ASCII, "ascii", NULL, "with -t: only ASCII characters"},
    {OPT_COLOR, "color", NULL, "with -t: ANSI colours, not only on terminals"},
    {OPT_NO_COLOR, "no-color", NULL, "with -t: no ANSI colours"},
    {OPT_LIST, "list", NULL, "list the kinds of schedule"},
    {0},
};

static const char *const minimize_words[] = {"makespan", "span", NULL};
static const char *const dialect_words[] = {"pytorch", "unwaited", "old", NULL};
static const char *const export_words[] = {"csv", "csv-comms", NULL};
static const char *const placement_words[] = {"loop", "v", "both-ways", NULL};
/* The last is for all the others. */
static const char *const semantics_words[] = {
    "buffered", "channel",  "rendezvous", "pair",
    "rank",     "blocking", "all",        NULL};

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
    case OPT_SLICES:
        return parse_int(t, "--slices", 1, PP_MAX_SLICES, &o->slices);
    case OPT_DEPTH:
        return parse_int(t, "--depth", 0, MAX_MICROBATCHES, &o->depth);
    case OPT_MEMORY:
        return parse_memory(t, o);
    case OPT_TIME:
        o->is_search = true;
        return pp_parse_real(optarg, "--time", 0, 1e6, &o->seconds, &t->err);
    case OPT_SEED:
        o->is_search = true;
        return parse_int(t, "--seed", 0, INT32_MAX, &o->seed);
    case OPT_WHOLE_BACKWARD:
        o->is_search = o->whole_backward = true;
        return 0;
    case OPT_MINIMIZE:
        o->is_search = true;
        o->minimize_span = !strcmp(optarg, "span");
        return tool_word(t, "--minimize", optarg, minimize_words) < 0 ? -1 : 0;
    case OPT_COST:
        return parse_cost(t, o);
    case OPT_COMM:
        o->comm = optarg;
        return 0;
    case OPT_PAIR_COST:
        return pp_parse_real(optarg, "--pair-cost", 0, 1000, &o->pair_cost,
                             &t->err);
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
    case OPT_DIALECT:
        o->dialect = optarg;
        return 0;
    case OPT_LENIENT:
        o->lenient = true;
        return 0;
    case OPT_SEMANTICS:
        o->semantics = optarg;
        return 0;
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
    case OPT_NO_COLOR:
        o->color = id == OPT_COLOR ? PPSCHED_COLOR_ON : PPSCHED_COLOR_OFF;
        return 0;
    case OPT_SVG:
        o->svg = optarg;
        return 0;
    case OPT_TRACE:
        o->trace = optarg;
        return 0;
    case OPT_OVERLAY:
        o->overlay = optarg;
        return 0;
    case OPT_COMPARE:
        o->compare = optarg;
        return 0;
    default:
        o->list = true;
        return 0;
    }
}

bool ppsched_is_auto(const struct ppsched_options *o)
{
    return o->kind && !strcmp(o->kind, "auto");
}

static int check_dialect(struct tool *t, const struct ppsched_options *o)
{
    bool comms = o->export && !strcmp(o->export, "csv-comms");
    if (!o->csv && o->lenient)
        return tool_usage(t, "--lenient needs --csv");
    if (!o->dialect || !strcmp(o->dialect, "pytorch"))
        return o->dialect && !o->csv && !comms
                   ? tool_usage(t, "--dialect needs --csv or --export "
                                   "csv-comms")
                   : 0;
    if (!strcmp(o->dialect, "unwaited"))
        return comms ? 0
                     : tool_usage(t, "--dialect unwaited needs --export "
                                     "csv-comms");
    if (tool_word(t, "--dialect", o->dialect, dialect_words) < 0)
        return -1;
    return o->csv ? 0 : tool_usage(t, "--dialect old needs --csv");
}

/* Of the terminal that -t draws on, or what fits on most. */
static int columns(const struct tool *t)
{
    return !t->output && isatty(STDOUT_FILENO)
               ? tool_columns(STDOUT_FILENO, DEFAULT_WIDTH)
               : DEFAULT_WIDTH;
}

/* Which options go together. */
static int check_options(struct tool *t, const struct ppsched_options *o)
{
    int views = o->check + o->stats + o->timeline + (o->export != NULL);
    if (views > 1)
        return tool_usage(t, "--check, --stats, -t and --export exclude each "
                             "other");
    if (o->overlay && (o->check || o->stats || o->export || o->trace))
        return tool_usage(t, "--overlay goes with none of --check, --stats, "
                             "--export and --trace");
    if (check_dialect(t, o))
        return -1;
    if (o->semantics && !o->check)
        return tool_usage(t, "--semantics needs --check");
    if (o->semantics && strcmp(o->semantics, "all") &&
        !pp_semantics_find(o->semantics))
        return tool_word(t, "--semantics", o->semantics, semantics_words);
    if (o->csv && (o->kind || o->n_ranks))
        return tool_usage(t, "--csv takes the place of -s and -p");
    if (o->export && tool_word(t, "--export", o->export, export_words) < 0)
        return -1;
    if (!o->kind && !o->csv && views == 0 && !o->svg && !o->trace &&
        !o->overlay)
        return tool_usage(t, "nothing to do: -s, --csv, --compare, --check, "
                             "--stats, -t, --svg, --trace, --overlay, "
                             "--export or --list is needed");
    const char *kinds[PP_MAX_KINDS];
    pp_kind_names(kinds);
    if (o->kind && tool_word(t, "-s", o->kind, kinds) < 0)
        return -1;
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
    if (o->is_search && !ppsched_is_auto(o))
        return tool_usage(t, "--time, --seed, --whole-backward and --minimize "
                             "are for -s auto");
    if (o->slices && !o->kind)
        return tool_usage(t, "--slices needs -s");
    if (o->placement &&
        tool_word(t, "--placement", o->placement, placement_words) < 0)
        return -1;
    return 0;
}

/* Options of pictures, and what goes to standard output. */
static int check_pictures(struct tool *t, const struct ppsched_options *o)
{
    bool svg = o->svg && !strcmp(o->svg, "-");
    bool trace = o->trace && !strcmp(o->trace, "-");
    bool prints = o->check || o->stats || o->timeline || o->export ||
                  o->compare || o->overlay;
    if (svg + trace + (prints && !t->output) > 1)
        return tool_usage(t, "--svg, --trace and what is printed cannot all go "
                             "to standard output");
    if (!o->timeline && (o->ascii || o->color != PPSCHED_COLOR_AUTO))
        return tool_usage(t, "--ascii, --color and --no-color need -t");
    if (o->width >= 0 && !o->timeline == !o->svg)
        return tool_usage(t, "--width needs either -t or --svg");
    if (o->width >= 0 && o->svg && o->width < MIN_PIXELS)
        return tool_usage(t, "--width: a picture has %d pixels or more",
                          MIN_PIXELS);
    return 0;
}

/* --compare stands where -s would. */
static int check_compare(struct tool *t, const struct ppsched_options *o)
{
    if (o->kind || o->csv || o->check || o->stats || o->timeline || o->export ||
        o->trace || o->overlay)
        return tool_usage(t, "--compare goes with none of -s, --csv, --check, "
                             "--stats, -t, --export, --trace and --overlay");
    if (!o->n_microbatches)
        return tool_usage(t, "--compare needs -m, the number of microbatches");
    if (o->placement || o->group)
        return tool_usage(t, "--compare places every kind as it needs and "
                             "groups microbatches by default");
    if (o->n_chunks && !o->n_ranks)
        return tool_usage(t, "-c needs -p");
    return 0;
}

/* Reads the command line. Returns 0, or -1 when the run is over. */
int ppsched_read_options(struct tool *t, struct ppsched_options *o, int argc,
                         char **argv)
{
    int id;
    *o = (struct ppsched_options){.depth = -1,
                                  .seconds = PP_SEARCH_SECONDS,
                                  .seed = 1,
                                  .width = -1,
                                  .pair_cost = 1};
    while ((id = tool_option(t, argc, argv)) != TOOL_END)
        if (id == TOOL_STOP || set_option(t, o, id))
            return -1;
    if (!o->list && ((o->compare ? check_compare : check_options)(t, o) ||
                     check_pictures(t, o)))
        return -1;
    if (o->width < 0)
        o->width = o->timeline ? columns(t) : 0;
    return 0;
}
