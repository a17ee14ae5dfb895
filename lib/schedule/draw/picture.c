/* SPDX-License-Identifier: MIT */
/* Ticks, short numbers and chunk numbers for pictures. */
#include "schedule/draw/picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double pp_axis_step(double least)
{
    static const double steps[] = {1, 2, 5};
    double decade = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++)
        if (steps[i] * decade >= least)
            return steps[i] * decade;
    return 10 * decade;
}

int pp_axis_format(double v, char *text)
{
    static const char units[] = " kMGTPE";
    size_t u = 0;
    while (v >= 10000 && units[u + 1]) {
        v /= 1000;
        u++;
    }
    int n = snprintf(text, PP_AXIS_TEXT, "%.4g", v);
    if (u > 0)
        n += snprintf(text + n, (size_t)(PP_AXIS_TEXT - n), "%c", units[u]);
    return n;
}

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
