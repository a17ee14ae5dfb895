/* SPDX-License-Identifier: MIT */
#include "run/parts/experts/top_k.h"

#include <stdbool.h>

static bool comes_before(struct pp_candidate a, struct pp_candidate b)
{
    return a.value != b.value ? a.value > b.value : a.id < b.id;
}

void pp_top_k_merge(const struct pp_candidate *candidates, size_t n, size_t k,
                    struct pp_candidate *out)
{
    size_t held = 0;
    for (size_t c = 0; c < n; c++) {
        if (candidates[c].id < 0)
            continue;
        if (held == k && !comes_before(candidates[c], out[k - 1]))
            continue;
        size_t i = held < k ? held++ : k - 1;
        for (; i > 0 && comes_before(candidates[c], out[i - 1]); i--)
            out[i] = out[i - 1];
        out[i] = candidates[c];
    }
    for (; held < k; held++)
        out[held].id = -1;
}
