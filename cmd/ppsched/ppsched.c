/* SPDX-License-Identifier: MIT */
/* ppsched - adds a schedule to a manifest, checks it, simulates it, draws it.
 */
#include "ppsched.h"

#include <limits.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "schedule/check/check.h"
#include "schedule/ir/schedule.h"
#include "schedule/kinds/kind.h"
#include "tool_manifest.h"

/* Most stages times microbatches times slices. A plan at the limit takes up to
 * 2 GB of memory; a larger product is likely a typing error. */
enum { MAX_CELLS = 1 << 22 };

static int print_list(struct tool *t)
{
    FILE *f = tool_output(t);
    for (const struct pp_kind *const *k = pp_kinds; f && *k; k++) {
        fprintf(f, "%-15s %s\n%-15s needs: %s\n", (*k)->name, (*k)->summary, "",
                (*k)->constraint);
        tool_entry(f, 16, "", (*k)->paper);
    }
    if (f)
        fprintf(f, "%-15s %s\n%-15s needs: %s\n", "auto",
                "the best order that a search finds within --memory", "",
                "any stages, any -m");
    return f ? 0 : -1;
}

/* Returns the placement of --placement, or the one that the kind needs. */
static enum pp_placement placement_of(const struct ppsched_options *o)
{
    const struct pp_kind *kind = pp_kind_find(o->kind); /* NULL for auto */
    if (!o->placement)
        return kind && kind->copies ? PP_PLACEMENT_BOTH_WAYS
               : kind && kind->v    ? PP_PLACEMENT_V
                                    : PP_PLACEMENT_LOOP;
    return !strcmp(o->placement, "v")           ? PP_PLACEMENT_V
           : !strcmp(o->placement, "both-ways") ? PP_PLACEMENT_BOTH_WAYS
                                                : PP_PLACEMENT_LOOP;
}

static int chunks_of(const struct ppsched_options *o)
{
    const struct pp_kind *kind = pp_kind_find(o->kind);
    int made_for = kind && kind->n_chunks ? kind->n_chunks : 1;
    return o->n_chunks ? o->n_chunks : made_for;
}

int ppsched_abstract(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    struct pp_mesh mesh = {o->n_ranks, 1, 1, 1, 1};
    struct pp_arena arena = {0};
    struct pp_graph graph;
    pp_manifest_init(&p->manifest);
    int rc = pp_graph_chain(&arena, o->n_ranks, chunks_of(o), placement_of(o),
                            &graph, err);
    if (rc == 0) {
        struct pp_plan_stage *stages =
            pp_arena_alloc(&arena, (size_t)graph.n_stages, sizeof *stages);
        rc = pp_manifest_set_stages(&p->manifest, NULL, &mesh, &graph, stages,
                                    err);
    }
    pp_arena_finish(&arena);
    return rc;
}

/* Notes the microbatch sizes that are assumed, if neither an option nor packed
 * data give them. */
static void say_microbatch(const struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    if (!m->has_microbatch || p->data)
        return;
    tool_say(p->tool, TOOL_DETAIL,
             "the split is for microbatches of %" PRId64
             " tokens in sequences of %" PRId64 "%s",
             m->microbatch.tokens, m->microbatch.seq_len,
             p->options.seq_len ? "; --seq-len overrides that here" : "");
}

static int read_manifest(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    if (tool_input(p->tool, &p->name) ||
        tool_read_manifest(p->tool, &p->name, &p->manifest))
        return -1;
    if (!p->manifest.has_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: has no stages; run ppsplit first", p->name);
    if (!p->options.kind && !p->options.import && !p->options.compare &&
        !p->manifest.has_schedule)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: has no schedule; make one with -s", p->name);
    return 0;
}

/* Sets the microbatches of a step from the sequences of --global-batch. */
static int set_batch(struct ppsched *p)
{
    const struct pp_default_microbatch *mb = &p->manifest.microbatch;
    struct ppsched_options *o = &p->options;
    int64_t length = o->seq_len ? o->seq_len : mb->seq_len,
            tokens = o->seq_len ? o->seq_len : mb->tokens;
    if (!o->global_batch)
        return 0;
    if (!p->manifest.has_microbatch && !o->seq_len)
        return tool_usage(p->tool, "--global-batch: the manifest does not say "
                                   "how large a microbatch is; give -m");
    int64_t each = p->manifest.mesh.dp * (tokens / length);
    if (tokens % length || o->global_batch % each)
        return tool_usage(p->tool,
                          "--global-batch: '%d' sequences do not go into "
                          "microbatches of %" PRId64 " tokens on %d "
                          "data-parallel ranks",
                          o->global_batch, tokens, p->manifest.mesh.dp);
    o->n_microbatches = (int)(o->global_batch / each);
    return 0;
}

/* Checks that the manifest's data are present and unchanged. */
static int look_for_data(const struct pp_plan_data *d, struct pp_err *err)
{
    struct pp_packed packed = {0};
    int rc = pp_packed_open(d->path, &packed, err);
    if (rc == 0 && packed.checksum != d->checksum)
        rc = pp_fail(err, PP_EXIT_INPUT,
                     "%s: the data have changed since the manifest was made",
                     d->path);
    pp_packed_finish(&packed);
    return rc;
}

/* Chooses the packed data: --data, or the manifest's if they can be read. A
 * plan may be inspected on a machine that does not have them. */
static int choose_data(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_plan_data *named =
        p->manifest.has_data ? &p->manifest.data : NULL;
    struct pp_err why = {0};
    p->data = o->data;
    if (!o->data && named && !o->seq_len) {
        if (look_for_data(named, &why) == 0)
            p->data = named->path;
        else
            tool_say(p->tool, TOOL_NOTE,
                     "%s; assuming the microbatch size of the split", why.text);
    }
    if (o->step && !p->data)
        return tool_usage(p->tool, "--step needs --data");
    say_microbatch(p);
    return 0;
}

static int check_ranks(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    return pp_packed_check_mesh(&p->packed, p->manifest.mesh.cp, err)
               ? pp_fail_at(err, "%s: ", p->data)
               : 0;
}

/* Opens the data and computes the costs, once. Needs stages and a number of
 * microbatches. */
int ppsched_open_costs(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    if (p->costs.graph)
        return 0;
    if (p->data && (pp_packed_open(p->data, &p->packed, err) ||
                    check_ranks(p) || ppsched_check_streams(p)))
        return -1;
    if (p->data && p->packed.n_bins == 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: has no microbatches", p->data);
    return ppsched_costs_init(p);
}

/* Refuses slices of stages that recompute keys, in terms of options. */
static int check_recompute(struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    for (int s = 0; m->stages && s < m->graph.n_stages; s++)
        if (m->graph.n_slices > 1 && (m->stages[s].recompute & PP_AGAIN_QKV))
            return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                           "%d slices: stage %d recomputes keys and values, so "
                           "it keeps none for later slices; use "
                           "ppsplit --recompute selective",
                           m->graph.n_slices, s);
    return 0;
}

static int build(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_kind *kind = pp_kind_find(o->kind);
    struct pp_kind_options k = {o->n_microbatches, o->group, false};
    struct pp_err *err = &p->tool->err;
    struct pp_graph *g = &p->manifest.graph;
    int slices = o->slices || !kind ? o->slices : kind->slices;
    g->n_slices = slices ? slices : 1;
    /* A time of reductions implies replicas, also without a mesh, and one of
     * gatherings implies divided weights. */
    g->replicas |= o->reduce != NULL;
    if (o->unshard && !g->resident)
        g->resident = INT_MAX;
    if (check_recompute(p))
        return -1;
    if ((int64_t)g->n_stages * g->n_slices > MAX_CELLS / o->n_microbatches)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages, %d microbatches and %d slices make more "
                       "than %d forwards, the limit of a plan",
                       g->n_stages, o->n_microbatches, g->n_slices, MAX_CELLS);
    const struct pp_trainer_order order = {
        .kind = o->kind, .slices = slices, .copies = g->n_copies > 1};
    if (pp_trainer_check_order(ppsched_trainer(p), &order, err))
        return -1;
    p->schedule = &p->built;
    pp_schedule_init(&p->built, g, o->kind, o->n_microbatches);
    if (ppsched_is_auto(o))
        return ppsched_open_costs(p) ? -1 : ppsched_auto(p);
    if (pp_kind_emit(kind, &p->built, &k, err))
        return -1;
    return pp_lower(&p->built, err);
}

/* Completes the error of a schedule that is not valid. If it deadlocks, shows
 * the waits first. */
static int refuse(struct ppsched *p)
{
    struct pp_err why = p->tool->err, unused = {0};
    if (!p->options.semantics && !ppsched_by_pytorch(p) &&
        !pp_check_order(p->schedule, &unused)) {
        p->tool->err = (struct pp_err){0};
        if (ppsched_tell_stuck(p, true))
            return -1;
        p->tool->err = why;
    }
    return p->options.import || p->options.kind
               ? -1
               : pp_fail_at(&p->tool->err, "%s: ", p->name);
}

int ppsched_prepare(struct ppsched *p)
{
    if (!p->schedule)
        p->schedule = &p->manifest.schedule;
    if ((p->options.kind && build(p)) ||
        (p->options.without && ppsched_reroute(p)))
        return -1;
    if (p->options.depth >= 0)
        p->schedule->channel_depth = p->options.depth;
    if (p->options.offload && !ppsched_is_auto(&p->options) &&
        !pp_schedule_copies(p->schedule) &&
        (pp_check_order(p->schedule, &p->tool->err) || ppsched_open_costs(p) ||
         ppsched_offload(p, p->schedule, &p->tool->err)))
        return refuse(p);
    if (p->options.depth == PPSCHED_DEPTH_AUTO &&
        !ppsched_is_auto(&p->options) &&
        (ppsched_open_costs(p) || ppsched_choose_depth(p)))
        return -1;
    if (p->options.import ? ppsched_import_check(p) : ppsched_prove(p))
        return refuse(p);
    return ppsched_open_costs(p);
}

static int set_data(struct ppsched *p)
{
    struct pp_plan_data data = p->costs.data;
    data.path = p->options.data;
    return pp_manifest_set_data(&p->manifest, &data, &p->tool->err);
}

/* Records --seq-len in the manifest. The sizes of an encoder's units are for
 * the images in a sequence of the length that is there. */
static int record_seq_len(struct ppsched *p)
{
    struct pp_default_microbatch mb = p->manifest.microbatch;
    if (!p->options.seq_len || !p->manifest.has_model || mb.items[0].n)
        return 0;
    mb.tokens = mb.seq_len = p->options.seq_len;
    return pp_manifest_set_microbatch(&p->manifest, &mb, &p->tool->err);
}

static int write_manifest(struct ppsched *p, FILE *f)
{
    struct pp_err *err = &p->tool->err;
    /* The schedule is set first: other changes reset the slices of the
     * manifest's graph until it has one. */
    if (ppsched_memory(p, NULL) ||
        pp_manifest_set_schedule(&p->manifest, p->schedule, err) ||
        (p->options.data && set_data(p)) || record_seq_len(p) ||
        tool_write_manifest(p->tool, &p->manifest, f))
        return -1;
    struct pp_err why = {0};
    if (!p->manifest.model.trainer &&
        (tool_runs_of(&p->manifest, TOOL_PLANNER_SCHEDULE, &why) ||
         tool_objective_runs(&p->manifest, p->options.objective, &why)))
        tool_say_refused(p->tool, &why);
    return 0;
}

/* Reads the manifest, the data and the file that the options name. */
static int read_input(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    /* A file has its own stages, so a manifest must be named. */
    bool named = optind < p->tool->argc;
    bool has_manifest = !o->n_ranks && (!o->import || named);
    if (o->n_ranks && named)
        return tool_usage(p->tool, "'%s': -p cannot be used with a manifest",
                          p->tool->argv[optind]);
    if (o->n_ranks && !o->compare && !o->import && ppsched_abstract(p))
        return -1;
    if ((has_manifest && read_manifest(p)) || set_batch(p) || choose_data(p))
        return -1;
    return o->import ? ppsched_import(p, has_manifest) : 0;
}

/* Returns true if the run prints a view or the manifest. A picture on standard
 * output takes the place of the manifest. */
static bool prints(const struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    bool view = o->check || o->stats || o->timeline || o->export || o->overlay;
    bool taken = !p->tool->output && ((o->svg && !strcmp(o->svg, "-")) ||
                                      (o->trace && !strcmp(o->trace, "-")));
    return view || ((o->kind || o->import || o->without) && !taken);
}

static int print(struct ppsched *p, FILE *f)
{
    const struct ppsched_options *o = &p->options;
    if (o->export)
        return ppsched_export(p, f);
    if (o->overlay)
        return ppsched_overlay(p, f);
    if (o->stats)
        return ppsched_stats(p, f);
    if (o->timeline)
        return ppsched_draw(p, f);
    if (!o->check)
        return write_manifest(p, f);
    if (ppsched_memory(p, NULL))
        return -1;
    return ppsched_verdict(p, f);
}

static int run(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    FILE *f;
    if (o->list)
        return print_list(p->tool);
    if (read_input(p))
        return -1;
    if (o->compare)
        return (f = tool_output(p->tool)) ? ppsched_compare(p, f) : -1;
    if (ppsched_is_each(o))
        return (f = tool_output(p->tool)) ? ppsched_each(p, f) : -1;
    if (ppsched_prepare(p))
        return -1;
    if ((o->svg || o->trace) && !o->overlay && ppsched_pictures(p))
        return -1;
    if (!prints(p))
        return 0;
    return (f = tool_output(p->tool)) ? print(p, f) : -1;
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "ppsched",
        .synopsis =
            "-s KIND -m N [options] [MANIFEST]\n"
            "       ppsched --import FILE [options] [MANIFEST]\n"
            "       ppsched --without-rank RANKS|each [options] [MANIFEST]\n"
            "       ppsched --compare KIND,KIND,... -m N [options] [MANIFEST]\n"
            "       ppsched --check | --stats | -t | --svg FILE | --trace FILE "
            "|\n               --overlay TRACE | --export FORM [options] "
            "[MANIFEST]",
        .summary = "Order the work of a pipeline, prove that it cannot "
                   "deadlock, and show its cost.",
        .options = ppsched_option_table,
        .everyday =
            "schedule microbatches import compare list ranks chunks cost "
            "data memory max-in-flight depth check stats timeline svg "
            "trace overlay export output verbose help"};
    struct ppsched p = {.tool = &t};
    if (ppsched_read_options(&t, &p.options, argc, argv) == 0)
        run(&p);
    if (p.options.json && t.err.code)
        ppsched_refused_json(&p);
    ppsched_costs_finish(&p.costs);
    pp_schedule_finish(&p.built);
    pp_import_finish(&p.import);
    pp_packed_finish(&p.packed);
    pp_manifest_finish(&p.manifest);
    return tool_finish(&t);
}
