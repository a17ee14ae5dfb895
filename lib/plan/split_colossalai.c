/* SPDX-License-Identifier: MIT */
#include "plan/split_colossalai.h"

int pp_split_colossalai(size_t n_layers, size_t n_stages, size_t *counts,
                        struct pp_err *err)
{
    if (n_stages == 0)
        return pp_fail(err, PP_EXIT_INPUT, "no stages to split into");
    size_t rest = n_layers % n_stages;
    size_t first = n_stages / 2 - rest / 2;
    for (size_t s = 0; s < n_stages; s++)
        counts[s] =
            n_layers / n_stages + (s >= first && s - first < rest ? 1 : 0);
    return 0;
}
