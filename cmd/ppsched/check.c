/* SPDX-License-Identifier: MIT */
/* --check and --semantics: the proof of a schedule, and its verdict. */
#include <limits.h>
#include <string.h>

#include "ppsched.h"
#include "schedule/check/check.h"
#include "schedule/simulate/depth.h"

int ppsched_choose_depth(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct pp_schedule *s = p->schedule;
    const struct pp_depth_options options = {
        .costs = &p->costs.costs,
        .fits = ppsched_fits,
        .ctx = p,
        .fixed = -1,
        .lowered = o->kind || (o->import && !p->import.messages)};
    struct pp_depth_found found;
    struct pp_err why = {0};
    int given = s->channel_depth;
    if (pp_check_order(s, &why))
        return 0;
    if (pp_depth_choose(s, &options, &found, &why)) {
        s->channel_depth = given;
        return why.code == PP_EXIT_NO
                   ? 0
                   : pp_fail(&p->tool->err, why.code, "%s", why.text);
    }
    tool_say(p->tool, TOOL_DETAIL, "the channel depth is %d", s->channel_depth);
    if (found.fits && found.makespan > found.unbounded * 1.001)
        tool_say(p->tool, TOOL_NOTE,
                 "channel depth %d is the largest that fits; without a limit "
                 "the step takes %.1f%% less",
                 s->channel_depth,
                 100 * (1 - found.unbounded / found.makespan));
    return 0;
}

bool ppsched_by_pytorch(const struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    return o->import && p->import.messages && o->check && !o->semantics;
}

int ppsched_check_by_pytorch(const struct ppsched *p, struct pp_err *err)
{
    const struct pp_semantics *m = pp_semantics_find("rendezvous");
    struct pp_err why = {0};
    if (pp_check_order(p->schedule, err))
        return -1;
    if (!pp_check_deadlock(p->schedule, m,
                           pp_semantics_depth(m, p->schedule, p->options.depth),
                           &why))
        return 0;
    if (why.code != PP_EXIT_NO)
        return pp_fail(err, why.code, "%s", why.text);
    return pp_fail(err, PP_EXIT_NO,
                   "%s, by PyTorch's transport (--semantics rendezvous): lower "
                   "without defer_pp_recv, or place the messages anew with "
                   "'--export csv' and then 'ppsched --import - --export "
                   "csv-comms'",
                   why.text);
}

int ppsched_prove(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    if (!o->semantics)
        return pp_check(p->schedule, err);
    if (pp_check_order(p->schedule, err))
        return -1;
    const struct pp_semantics *m = pp_semantics_find(o->semantics);
    if (!m)
        return 0;
    return pp_check_deadlock(p->schedule, m,
                             pp_semantics_depth(m, p->schedule, o->depth), err);
}

static int print_all(struct ppsched *p, FILE *f)
{
    fprintf(f, "%-11s %5s  %s\n", "semantics", "depth", "verdict");
    for (int i = 0; i < PP_N_SEMANTICS; i++) {
        const struct pp_semantics *m = &pp_semantics[i];
        int depth = pp_semantics_depth(m, p->schedule, p->options.depth);
        struct pp_err verdict = {0};
        if (pp_check_deadlock(p->schedule, m, depth, &verdict)) {
            if (verdict.code != PP_EXIT_NO)
                return pp_fail(&p->tool->err, verdict.code, "%s", verdict.text);
            p->tool->status = PP_EXIT_NO;
        }
        char label[32];
        if (depth == INT_MAX)
            snprintf(label, sizeof label, "%-11s %5s", m->name, "-");
        else
            snprintf(label, sizeof label, "%-11s %5d", m->name, depth);
        tool_entry(f, 19, label, verdict.code ? verdict.text : "ok");
    }
    return 0;
}

/* Prints the verdict of a valid schedule, and its cost beside the bound. */
static int print_json(struct ppsched *p, FILE *f)
{
    const struct pp_schedule *s = p->schedule;
    struct pp_bound bound;
    struct pp_sim sim;
    if (pp_simulate(s, &p->costs.costs, s->channel_depth, &sim, &p->tool->err))
        return -1;
    int rc = ppsched_bound(p, sim.makespan, &bound);
    if (!rc) {
        struct pp_json_writer w = pp_json_lines(f);
        pp_json_bool(&w, "valid", true);
        pp_json_bool(&w, "canonical", pp_schedule_is_canonical(s));
        pp_json_int(&w, "ranks", s->graph->n_rows);
        pp_json_int(&w, "stages", s->graph->n_stages);
        pp_json_int(&w, "microbatches", s->n_microbatches);
        pp_json_int(&w, "depth", s->channel_depth);
        pp_json_real(&w, "makespan", sim.makespan);
        pp_json_real(&w, "bubble", sim.bubble);
        ppsched_print_bound(&w, &sim, &bound);
        pp_json_finish(&w);
    }
    pp_sim_finish(&sim);
    return rc;
}

int ppsched_verdict(struct ppsched *p, FILE *f)
{
    const char *semantics = p->options.semantics;
    if (semantics && !strcmp(semantics, "all"))
        return print_all(p, f);
    if (p->options.json)
        return print_json(p, f);
    fprintf(f, "valid, %s%s\n",
            pp_schedule_is_canonical(p->schedule) ? "canonical"
                                                  : "not canonical",
            ppsched_by_pytorch(p) ? ", by PyTorch's transport" : "");
    return 0;
}
