/* SPDX-License-Identifier: MIT */
#include "sched/passage.h"

#include <stdlib.h>

#include "sched/kinds.h"

static void sort_by_rank(struct pp_passage *p)
{
    const struct pp_graph *g = p->graph;
    for (int s = 0; s < g->n_stages; s++)
        p->first[g->stages[s].rank + 1]++;
    for (int r = 0; r < g->n_ranks; r++)
        p->first[r + 1] += p->first[r];
    /* Downwards, each rank's end moving to its beginning. */
    for (int s = g->n_stages - 1; s >= 0; s--)
        p->stages[--p->first[g->stages[s].rank + 1]] = s;
    for (int r = 0; r < g->n_ranks; r++)
        p->first[r] = p->first[r + 1];
    p->first[g->n_ranks] = g->n_stages;
}

/* Takes rank r, all of whose outputs have been taken: the ranks before it are
 * at least one deeper. Adds those that then have none left to ready. */
static void take(struct pp_passage *p, int r, int *left, int *ready, int *n)
{
    const struct pp_graph *g = p->graph;
    for (int i = p->first[r]; i < p->first[r + 1]; i++) {
        const struct pp_stage_node *node = &g->stages[p->stages[i]];
        for (int k = 0; k < node->n_inputs; k++) {
            int from = g->stages[node->inputs[k]].rank;
            if (from == r)
                continue;
            if (p->depth[from] <= p->depth[r])
                p->depth[from] = p->depth[r] + 1;
            if (--left[from] == 0)
                ready[(*n)++] = from;
        }
    }
}

/* Depths, from the ranks without outputs on. Returns how many ranks could be
 * taken, or -1 when out of memory. */
static int find_depths(struct pp_passage *p)
{
    const struct pp_graph *g = p->graph;
    int *left = calloc((size_t)g->n_ranks, sizeof *left);
    int *ready = calloc((size_t)g->n_ranks, sizeof *ready);
    int n = 0, taken = 0;
    for (int s = 0; left && s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_outputs; i++)
            left[g->stages[s].rank] +=
                g->stages[g->stages[s].outputs[i]].rank != g->stages[s].rank;
    for (int r = 0; left && ready && r < g->n_ranks; r++)
        if (left[r] == 0)
            ready[n++] = r;
    for (; left && ready && taken < n; taken++) {
        int depth = p->depth[ready[taken]];
        p->longest = depth >= p->longest ? depth + 1 : p->longest;
        take(p, ready[taken], left, ready, &n);
    }
    taken = left && ready ? taken : -1;
    free(left);
    free(ready);
    return taken;
}

static int refuse(const struct pp_schedule *s, const char *what,
                  struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s needs a pipeline that passes each rank once, and with "
                   "%d stages on %d ranks %s: split with 'ppsplit -p %d -c 1', "
                   "or use gpipe",
                   s->kind, g->n_stages, g->n_ranks, what, g->n_ranks);
}

int pp_passage_init(struct pp_passage *p, const struct pp_schedule *s,
                    struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    *p = (struct pp_passage){
        .graph = g,
        .depth = calloc((size_t)g->n_ranks, sizeof(int)),
        .first = calloc((size_t)g->n_ranks + 1, sizeof(int)),
        .stages = calloc((size_t)g->n_stages, sizeof(int))};
    bool ok = p->depth && p->first && p->stages, idle = false;
    if (ok)
        sort_by_rank(p);
    int taken = ok ? find_depths(p) : -1, rc = 0;
    for (int r = 0; taken >= 0 && r < g->n_ranks; r++)
        idle |= p->first[r] == p->first[r + 1];
    if (taken < 0)
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (idle)
        rc = refuse(s, "one has none", err);
    else if (taken < g->n_ranks)
        rc = refuse(s, "one is passed twice", err);
    if (rc)
        pp_passage_finish(p);
    return rc;
}

void pp_passage_finish(struct pp_passage *p)
{
    free(p->depth);
    free(p->first);
    free(p->stages);
    *p = (struct pp_passage){0};
}

int pp_passage_emit(struct pp_schedule *s, const struct pp_passage *p,
                    enum pp_op op, int rank, int microbatch, struct pp_err *err)
{
    int from = p->first[rank], n = p->first[rank + 1] - from;
    for (int i = 0; i < n; i++)
        if (pp_emit(s, op, p->stages[from + (op == PP_F ? i : n - 1 - i)],
                    microbatch, err))
            return -1;
    return 0;
}
