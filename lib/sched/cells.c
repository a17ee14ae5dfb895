/* SPDX-License-Identifier: MIT */
#include "sched/cells.h"

#include <stdlib.h>

#include "base/num.h"

int pp_cells_init(struct pp_cells *c, const struct pp_schedule *s,
                  struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    size_t per_stage, n = (size_t)g->n_stages, n_edges = 0;
    *c = (struct pp_cells){.graph = g,
                           .n_microbatches = (size_t)s->n_microbatches,
                           .n_slices = (size_t)g->n_slices};
    c->first_edge = calloc(n + 1, sizeof *c->first_edge);
    if (!c->first_edge)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        c->first_edge[i] = n_edges;
        n_edges += (size_t)g->stages[i].n_inputs;
    }
    c->first_edge[n] = n_edges;
    if (pp_mul(c->n_microbatches, c->n_slices, &per_stage, err) ||
        pp_mul(n, per_stage, &c->n_cells, err) ||
        pp_mul(n_edges, per_stage, &c->n_links, err)) {
        pp_cells_finish(c);
        return -1;
    }
    return 0;
}

void pp_cells_finish(struct pp_cells *c)
{
    free(c->first_edge);
    c->first_edge = NULL;
}

size_t pp_link(const struct pp_cells *c, int from, int to, int microbatch,
               int slice)
{
    const struct pp_stage_node *n = &c->graph->stages[to];
    int lo = 0, hi = n->n_inputs;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (n->inputs[mid] < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == n->n_inputs || n->inputs[lo] != from)
        return (size_t)-1;
    return ((c->first_edge[to] + (size_t)lo) * c->n_microbatches +
            (size_t)microbatch) *
               c->n_slices +
           (size_t)slice;
}
