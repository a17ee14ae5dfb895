/* SPDX-License-Identifier: MIT */
#include "run/execute/window_order.h"

#include "base/num.h"

size_t pp_window_order(const struct pp_grid *g, const struct pp_window_sides *s,
                       int32_t first, int32_t *places, int32_t *ends)
{
    size_t rows = g->rows / s->merge, columns = g->columns / s->merge, n = 0;
    int32_t merged = (int32_t)(s->merge * s->merge), next = first;
    for (size_t top = 0; top < rows; top += s->window)
        for (size_t left = 0; left < columns; left += s->window) {
            size_t bottom = pp_least(rows, top + s->window);
            size_t right = pp_least(columns, left + s->window);
            for (size_t row = top; row < bottom; row++)
                for (size_t column = left; column < right; column++)
                    places[row * columns + column] = next++;
            ends[n++] = next * merged;
        }
    return n;
}
