/* SPDX-License-Identifier: MIT */
/* --slices: their number, with ",work" for slices of equal work, or their
 * parts. */
#include <string.h>

#include "base/num.h"
#include "cost/slices.h"
#include "ppsched.h"

static const char work[] = ",work";

/* Reads the parts of slices: how much of a microbatch each has. */
static int read_parts(struct ppsched *p, const char *text)
{
    struct pp_err *err = &p->tool->err;
    struct pp_slices *slices = &p->manifest.graph.slices;
    size_t n = 1;
    for (const char *at = text; (at = strchr(at, ',')); at++)
        n++;
    if (n > PP_MAX_SLICES)
        return tool_usage(p->tool, "--slices: '%zu' parts, but at most %d", n,
                          PP_MAX_SLICES);
    char *copy = pp_arena_strdup(&p->manifest.arena, text);
    int32_t *ends = pp_arena_alloc(&p->manifest.arena, n, sizeof *ends);
    int64_t part, all = 0;
    for (size_t q = 0; q < n; q++) {
        if (pp_parse_int(strsep(&copy, ","), "--slices", 1, PP_MAX_SLICE_PARTS,
                         &part, err))
            return -1;
        all += part;
        if (all > PP_MAX_SLICE_PARTS)
            return tool_usage(p->tool,
                              "--slices: the parts are more than %d in all",
                              PP_MAX_SLICE_PARTS);
        ends[q] = (int32_t)all;
    }
    *slices = pp_slices_reduced((int)n, ends);
    return 0;
}

/* Cuts slices of equal work: of the first microbatches of the data, or as the
 * plan assumes them. */
static int balance(struct ppsched *p)
{
    enum { CELLS = 4096, MOST_MEASURED = 64 };
    struct pp_graph *g = &p->manifest.graph, cells = *g;
    struct pp_plan plan = pp_manifest_plan(&p->manifest);
    struct pp_step step;
    int n = g->slices.n, m = p->options.n_microbatches;
    if (ppsched_open_data(p))
        return -1;
    m = m < MOST_MEASURED ? m : MOST_MEASURED;
    int64_t groups = (int64_t)(ppsched_most_tokens(p) /
                               pp_mesh_slice_grain(&p->manifest.mesh));
    groups = groups < CELLS ? groups : CELLS;
    cells.slices = (struct pp_slices){n > groups ? n : (int)groups, NULL};
    plan.graph = &cells;
    pp_step_init(&step, plan, m);
    bool known = pp_stage_costs_known(&step.costs) && !p->options.has_cost;
    if (known) {
        int32_t *ends =
            pp_arena_alloc(&p->manifest.arena, (size_t)n, sizeof *ends);
        ppsched_measure(p, &step, 1, m);
        pp_slices_balance(&step, m, n, ends);
        g->slices = pp_slices_reduced(n, ends);
    }
    pp_step_finish(&step);
    return known ? 0
                 : tool_usage(p->tool, "--slices: the stages have no costs of "
                                       "which work follows; give the parts of "
                                       "slices");
}

int ppsched_set_slices(struct ppsched *p, int usual)
{
    const char *text = p->options.slices;
    struct pp_slices *slices = &p->manifest.graph.slices;
    int64_t n = usual;
    *slices = (struct pp_slices){usual, NULL};
    if (!text)
        return 0;
    size_t length = strlen(text);
    size_t digits = strcspn(text, ",");
    bool by_work = !strcmp(text + digits, work);
    if (digits < length && !by_work)
        return read_parts(p, text);
    char *number = pp_arena_strdup(&p->manifest.arena, text);
    number[digits] = '\0';
    if (pp_parse_int(number, "--slices", 1, PP_MAX_SLICES, &n, &p->tool->err))
        return -1;
    slices->n = (int)n;
    return by_work && n > 1 ? balance(p) : 0;
}
