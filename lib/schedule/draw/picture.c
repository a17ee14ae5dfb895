/* SPDX-License-Identifier: MIT */
#include "schedule/draw/picture.h"

#include <stdlib.h>

int *pp_chunks(const struct pp_graph *g, int *most, struct pp_err *err)
{
    int *n = calloc((size_t)g->n_rows, sizeof *n);
    int *chunk = calloc((size_t)g->n_stages + 1, sizeof *chunk);
    *most = 0;
    if (!n || !chunk) {
        free(n);
        free(chunk);
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        return NULL;
    }
    for (int s = 0; s < g->n_stages; s++) {
        chunk[s] = n[g->stages[s].row]++;
        *most = chunk[s] >= *most ? chunk[s] + 1 : *most;
    }
    free(n);
    return chunk;
}
