/* SPDX-License-Identifier: MIT */
#include "schedule/draw/picture.h"

#include <stdlib.h>

#include "base/alloc.h"

int *pp_chunks(const struct pp_graph *g, int *most)
{
    int *n = pp_calloc((size_t)g->n_rows, sizeof *n);
    int *chunk = pp_calloc((size_t)g->n_stages + 1, sizeof *chunk);
    *most = 0;
    for (int s = 0; s < g->n_stages; s++) {
        chunk[s] = n[g->stages[s].row]++;
        *most = chunk[s] >= *most ? chunk[s] + 1 : *most;
    }
    free(n);
    return chunk;
}
