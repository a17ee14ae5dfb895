/* SPDX-License-Identifier: MIT */
#include "split/nearby.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void pp_move_apply(size_t n_stages, const size_t *bounds,
                   struct pp_boundary_move m, size_t *trial)
{
    memcpy(trial, bounds, (n_stages + 1) * sizeof *trial);
    for (size_t b = m.first; b <= m.last; b++)
        trial[b] = m.by > 0 ? trial[b] + 1 : trial[b] - 1;
}

/* Lists the boundaries of each rank's stages, in order. */
static void list_sides(struct pp_nearby *x)
{
    const struct pp_split_memory *m = x->problem->memory;
    for (int r = 0; r < m->graph->n_rows; r++) {
        size_t *side = &x->sides[(size_t)r * x->width], n = 0;
        for (int i = m->first_stage[r]; i < m->first_stage[r + 1]; i++) {
            size_t s = (size_t)pp_original(m->graph, m->stages[i]);
            for (size_t b = s; b <= s + 1; b++) {
                size_t at = n++;
                for (; at > 0 && side[at - 1] > b; at--)
                    side[at] = side[at - 1];
                side[at] = b;
            }
        }
        x->n_sides[r] = n;
    }
}

void pp_nearby_init(struct pp_nearby *x, const struct pp_split_step *p)
{
    const struct pp_split_memory *m = p->memory;
    size_t ranks = (size_t)m->graph->n_rows;
    *x = (struct pp_nearby){
        .problem = p,
        .n_stages = (size_t)(m->graph->n_stages / m->graph->n_copies)};
    for (size_t r = 0; r < ranks; r++) {
        size_t n = 2 * (size_t)(m->first_stage[r + 1] - m->first_stage[r]);
        x->width = n > x->width ? n : x->width;
    }
    x->bounds = pp_calloc(x->n_stages + 1, sizeof *x->bounds);
    x->trial = pp_calloc(x->n_stages + 1, sizeof *x->trial);
    x->sides = pp_calloc(ranks, x->width * sizeof *x->sides);
    x->n_sides = pp_calloc(ranks, sizeof *x->n_sides);
    x->needs = pp_calloc(ranks, 2 * (x->width + 1) * (x->width + 1) *
                                    sizeof *x->needs);
    list_sides(x);
}

void pp_nearby_finish(struct pp_nearby *x)
{
    free(x->bounds);
    free(x->trial);
    free(x->sides);
    free(x->n_sides);
    free(x->needs);
    *x = (struct pp_nearby){0};
}

void pp_nearby_set(struct pp_nearby *x, const size_t *bounds)
{
    size_t ranks = (size_t)x->problem->memory->graph->n_rows;
    size_t n = ranks * 2 * (x->width + 1) * (x->width + 1);
    memmove(x->bounds, bounds, (x->n_stages + 1) * sizeof *bounds);
    for (size_t i = 0; i < n; i++)
        x->needs[i] = NAN;
}

double pp_nearby_over(struct pp_nearby *x, int rank, struct pp_boundary_move m)
{
    const struct pp_split_memory *memory = x->problem->memory;
    size_t r = (size_t)rank, n = x->n_sides[r], i = 0, j;
    const size_t *side = &x->sides[r * x->width];
    while (i < n && side[i] < m.first)
        i++;
    for (j = i; j < n && side[j] <= m.last; j++)
        ;
    if (i == j) /* no side moves */
        i = j = 0;
    size_t row = x->width + 1;
    double *need = &x->needs[((r * row + i) * row + j) * 2 + (m.by > 0)];
    if (isnan(*need)) {
        pp_move_apply(x->n_stages, x->bounds, m, x->trial);
        *need = pp_split_memory_need(memory, x->trial, rank);
        x->n_sums++;
    }
    return *need - x->problem->limit[r];
}
