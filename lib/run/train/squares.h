/* SPDX-License-Identifier: MIT */
/* squares - sums of squares of gradients, for the norm, and a search for values
 * that are not finite. Private to lib/run/train. */
#ifndef PP_RUN_TRAIN_SQUARES_H
#define PP_RUN_TRAIN_SQUARES_H

#include "run/train/rank.h"

/* Sets r->mine of every tensor that this rank counts in the norm to the sum of
 * squares of its gradient. Collective over the ranks that divide the
 * optimizer's state. */
int pp_squares_of_gradients(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Sets *found to the first tensor of this rank of which the block (PP_BLOCK_W
 * or PP_BLOCK_G) is not finite, or to NULL. Looks at master weights if there
 * are any. */
int pp_squares_find_infinite(struct pp_rank *r, enum pp_weights_block block,
                             const struct pp_parameter **found,
                             struct pp_err *err) PP_MUST_USE;

#endif
