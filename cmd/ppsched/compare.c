/* SPDX-License-Identifier: MIT */
/* --compare: several kinds of schedule, files and the manifest's own
 * schedule for the same work, as a table and as one picture.
 *
 * With -p each kind gets the stages that it is made for, and the work of a rank
 * is the same for all: if a rank has c stages, each costs a c-th of --cost.
 * Memory is counted in microbatches of a whole rank, so a slot is a c-th of
 * one. A message costs the same for all; kinds with more stages send more. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"
#include "ppsched.h"
#include "schedule/kinds/kind.h"

/* One row. It has a run of its own, whose error says why it does not fit. */
struct entry {
    const char *name;           /* in the table */
    const struct pp_kind *kind; /* NULL: a file, or the manifest's own */
    const char *file;           /* to import, or NULL */
    struct tool tool;
    struct ppsched run;
    bool borrowed; /* the manifest is not the run's own */
    double chunks; /* mean stages of a rank; copies of one count once */
    struct ppsched_view view;
    struct ppsched_bytes *bytes; /* per rank */
    double strict;               /* makespan if receives wait in their places */
    double peak;                 /* microbatches of a whole rank */
    bool fits;
};

/* The table's entry of auto, which no kind emits. */
static const struct pp_kind automatic = {.name = "auto"};

struct comparison {
    struct ppsched *p;
    char *list; /* the argument, cut into names */
    struct entry *entries;
    int n, n_fit;
};

static void add_kind(struct comparison *c, const struct pp_kind *kind)
{
    c->entries[c->n].name = kind->name;
    c->entries[c->n++].kind = kind;
}

/* Adds the manifest's own schedule, or that of a file. */
static int add_given(struct comparison *c, const char *name, bool is_file)
{
    struct ppsched *p = c->p;
    if (p->options.n_ranks)
        return tool_usage(p->tool,
                          "--compare %s needs a manifest in place of -p", name);
    if (is_file && access(name, R_OK) != 0)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT, "%s: %s", name,
                       strerror(errno));
    if (!is_file && !p->manifest.has_schedule)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "%s: has no schedule, which --compare own needs",
                       p->name);
    c->entries[c->n++] =
        (struct entry){.name = name, .file = is_file ? name : NULL};
    return 0;
}

/* Adds one name of the list. "all" leaves out auto, as its search is slow. */
static int add_name(struct comparison *c, const char *name)
{
    const char *known[PP_MAX_KINDS];
    if (!strcmp(name, "all")) {
        for (const struct pp_kind *const *k = pp_kinds; *k; k++)
            add_kind(c, *k);
        return 0;
    }
    bool is_file = strpbrk(name, "./");
    if (is_file || !strcmp(name, "own"))
        return add_given(c, name, is_file);
    pp_kind_names(known);
    int i = tool_word(c->p->tool, "--compare", name, known);
    if (i < 0)
        return -1;
    const struct pp_kind *kind = pp_kind_find(known[i]);
    add_kind(c, kind ? kind : &automatic);
    return 0;
}

static int read_kinds(struct comparison *c)
{
    char *rest, *name;
    c->list = rest = pp_strdup(c->p->options.compare);
    /* No name is shorter than "all", which stands for many. */
    size_t n = (strlen(c->p->options.compare) / 4 + 1) * PP_MAX_KINDS;
    c->entries = pp_calloc(n, sizeof *c->entries);
    int rc = 0;
    while (!rc && (name = strsep(&rest, ",")))
        rc = add_name(c, name);
    return rc;
}

/* Sets the costs of a stage that is one of n_chunks on its rank. */
static void share_costs(struct ppsched_options *o, int n_chunks)
{
    if (!o->has_cost)
        memcpy(o->cost, (double[]){1, 1, 1, 0}, sizeof o->cost);
    o->has_cost = true;
    for (int i = 0; i < 3; i++)
        o->cost[i] /= n_chunks;
}

/* Gives the entry's run its options and stages. */
static int place(struct comparison *c, struct entry *e)
{
    struct ppsched_options *o = &e->run.options;
    e->tool = *c->p->tool;
    e->run.tool = &e->tool;
    e->run.data = c->p->data;
    *o = c->p->options;
    o->kind = e->kind ? e->kind->name : NULL;
    o->import = e->file;
    if (e->kind != &automatic)
        o->slots = 0;
    if (!e->kind || e->kind == &automatic)
        o->slices = NULL;
    if (!o->n_ranks) {
        e->run.name = c->p->name;
        e->run.manifest = c->p->manifest;
        e->borrowed = true;
        return e->file ? ppsched_import(&e->run, true) : 0;
    }
    int chunks = e->kind->n_chunks ? e->kind->n_chunks : 1;
    bool asked = e->kind == &automatic || (chunks > 1 && !e->kind->v);
    if (asked && o->n_chunks)
        chunks = o->n_chunks;
    o->n_chunks = chunks;
    if (!e->kind->copies && e->kind != &automatic)
        o->placement = e->kind->v ? "v" : "loop";
    o->slots *= chunks;
    share_costs(o, chunks);
    return ppsched_abstract(&e->run);
}

/* Checks the peak, in microbatches of a whole rank, against a limit of slots.
 * Then converts the run's limit to its own slots. */
static int check_slots(const struct comparison *c, struct entry *e)
{
    const struct ppsched_options *o = &c->p->options;
    const struct pp_graph *g = &e->run.manifest.graph;
    e->chunks = (double)g->n_stages / g->n_rows / g->n_copies;
    for (int r = 0; r < g->n_rows; r++) {
        double peak = ppsched_slots(&e->run, r) / e->chunks;
        double over = peak - (double)o->slots;
        if (o->slots && over > 1e-9)
            return pp_fail(&e->tool.err, PP_EXIT_NO,
                           "rank %d keeps %.4g microbatches alive, %.4g more "
                           "than the limit of '%" PRId64 "'",
                           r, peak, over, o->slots);
        e->peak = fmax(e->peak, peak);
    }
    e->run.options.slots = (int64_t)((double)o->slots * e->chunks + 1e-9);
    return 0;
}

/* Converts the view's slots to microbatches of a whole rank. */
static void scale_view(struct entry *e)
{
    for (int r = 0; r < e->run.manifest.graph.n_rows; r++) {
        pp_memory_timeline_scale(&e->view.slots[r], 1 / e->chunks);
        if (e->run.options.slots)
            e->view.limit[r] /= e->chunks;
    }
}

/* Refuses a given schedule of other work. */
static int check_work(const struct comparison *c, struct entry *e)
{
    int n = e->run.schedule->n_microbatches, m = c->p->options.n_microbatches;
    return n == m ? 0
                  : pp_fail(&e->tool.err, PP_EXIT_NO,
                            "it has %d microbatches, not %d", n, m);
}

static int find_memory(struct entry *e)
{
    size_t n = (size_t)e->run.manifest.graph.n_rows;
    e->bytes = pp_calloc(n, sizeof *e->bytes);
    return ppsched_memory(&e->run, e->bytes);
}

/* Plans one kind. It is no failure if the kind does not fit; e keeps the
 * reason. */
static int plan(struct comparison *c, struct entry *e)
{
    struct ppsched *q = &e->run;
    int rc = place(c, e) || ppsched_prepare(q) || check_work(c, e) ||
             check_slots(c, e) || find_memory(e) ||
             ppsched_view_init(q, &e->view) || ppsched_strict(q, &e->strict);
    e->fits = !rc;
    c->n_fit += e->fits;
    if (e->fits)
        scale_view(e);
    if (rc && e->tool.err.code != PP_EXIT_NO &&
        e->tool.err.code != PP_EXIT_INPUT)
        return pp_fail(&c->p->tool->err, e->tool.err.code, "%s",
                       e->tool.err.text);
    return 0;
}

/* --- the table --- */

enum { KIND_COLUMNS = 15 };

/* Writes a number in at most eight characters. */
static void format_time(double x, char buf[32])
{
    if (snprintf(buf, 32, "%.5g", x) > 8)
        snprintf(buf, 32, "%.3g", x);
}

/* Returns the bytes of the fullest rank. */
static size_t most_bytes(const struct entry *e)
{
    size_t most = 0;
    for (int r = 0; r < e->run.manifest.graph.n_rows; r++) {
        size_t total = pp_rank_total(&e->bytes[r].all);
        most = total > most ? total : most;
    }
    return most;
}

static void print_entry(const struct entry *e, FILE *f)
{
    const struct pp_sim *sim = &e->view.sim;
    char makespan[32], strict[32], gap[32] = "-", memory[32] = "";
    if (!e->fits) {
        char text[sizeof e->tool.err.text + 32];
        snprintf(text, sizeof text, "does not fit: %s", e->tool.err.text);
        tool_entry(f, KIND_COLUMNS, e->name, text);
        return;
    }
    format_time(sim->makespan, makespan);
    format_time(e->strict, strict);
    if (e->view.bound > 0)
        snprintf(gap, sizeof gap, "%.1f%%",
                 100 * (sim->makespan / e->view.bound - 1));
    if (e->view.bytes)
        pp_format_short_size(most_bytes(e), memory);
    fprintf(f, "%-14s %6.3g %5d %8s %5.1f%% %5.1f%% %6s %8s %4.3g", e->name,
            e->chunks, e->run.schedule->channel_depth, makespan,
            100 * sim->bubble, 100 * ppsched_span_bubble(sim), gap, strict,
            e->peak);
    if (e->view.bytes)
        fprintf(f, " %6s", memory);
    fputc('\n', f);
}

static void print_comparison(const struct comparison *c, FILE *f)
{
    const struct entry *first = NULL;
    for (int i = c->n; i-- > 0;)
        if (c->entries[i].fits)
            first = &c->entries[i];
    if (first)
        fprintf(f, "%-14s %6s %5s %8s %6s %6s %6s %8s %4s%s\n", "kind",
                "chunks", "depth", "makespan", "bubble", "span", "gap",
                "strict", "peak", first->view.bytes ? " memory" : "");
    for (int i = 0; i < c->n; i++)
        print_entry(&c->entries[i], f);
}

/* --- the picture --- */

static int draw(struct comparison *c)
{
    struct ppsched *p = c->p;
    struct pp_svg_panel *panels = pp_calloc((size_t)c->n, sizeof *panels);
    const char *unit = NULL;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const struct entry *e = &c->entries[i];
        if (!e->fits)
            continue;
        panels[n] = ppsched_panel(&e->run, &e->view);
        if (panels[n].memory_unit)
            panels[n].memory_unit = "microbatch";
        unit = ppsched_unit(&e->run);
        n++;
    }
    int rc = ppsched_write_svg(p, panels, n, unit);
    free(panels);
    return rc;
}

static void finish_entry(struct entry *e)
{
    ppsched_view_finish(&e->run, &e->view);
    free(e->bytes);
    ppsched_costs_finish(&e->run.costs);
    pp_schedule_finish(&e->run.built);
    pp_import_finish(&e->run.import);
    pp_packed_finish(&e->run.packed);
    if (!e->borrowed)
        pp_manifest_finish(&e->run.manifest);
}

/* Says why no kind is left, by the first that only lacks memory, or else by the
 * first of the kinds that cannot run. */
static void tell_none(const struct comparison *c)
{
    const struct entry *e = c->entries;
    for (int i = c->n; i-- > 0;)
        if (c->entries[i].tool.err.code == PP_EXIT_NO)
            e = &c->entries[i];
    c->p->tool->status = e->tool.err.code;
    tool_say(c->p->tool, TOOL_WARNING, "--compare: no kind fits: %s: %s",
             e->name, e->tool.err.text);
}

int ppsched_compare(struct ppsched *p, FILE *f)
{
    struct comparison c = {.p = p};
    int rc = read_kinds(&c);
    for (int i = 0; i < c.n && !rc; i++)
        rc = plan(&c, &c.entries[i]);
    if (!rc && p->options.svg && c.n_fit > 0)
        rc = draw(&c);
    if (!rc)
        print_comparison(&c, f);
    if (!rc && c.n_fit == 0)
        tell_none(&c);
    for (int i = 0; i < c.n; i++)
        finish_entry(&c.entries[i]);
    free(c.entries);
    free(c.list);
    return rc ? -1 : 0;
}
