/* SPDX-License-Identifier: MIT */
/* split_colossalai - ColossalAI's distribution of layers over stages. Pure. */
#ifndef PP_PLAN_SPLIT_COLOSSALAI_H
#define PP_PLAN_SPLIT_COLOSSALAI_H

#include <stddef.h>

#include "base/err.h"

/* distribute_layers: n_layers div n_stages each, and what does not divide one
 * by one to the stages in the middle. Stages may be left without a layer, the
 * first among them. */
int pp_split_colossalai(size_t n_layers, size_t n_stages, size_t *counts,
                        struct pp_err *err) PP_MUST_USE;

#endif
