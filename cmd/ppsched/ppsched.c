/* SPDX-License-Identifier: MIT */
/* ppsched - adds a schedule to a manifest, checks it, simulates it, draws it.
 */
#include "ppsched.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "schedule/kinds/kind.h"
#include "tool_manifest.h"

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
