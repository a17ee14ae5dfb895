/* SPDX-License-Identifier: MIT */
/* slices - cuts microbatches into slices of equal work.
 *
 * A later token attends to more tokens, so that the last one of equal slices
 * takes longest, and ranks wait for each other wherever slices of different
 * numbers run side by side. Seq1F1B (Sun et al., NAACL 2025) cuts whole
 * sequences by a formula; here the cuts follow from the costs of the stages and
 * from the sequences that microbatches have. */
#ifndef PP_COST_SLICES_H
#define PP_COST_SLICES_H

#include "cost/step.h"

/* Fills ends, for struct pp_slices: n slices whose longest takes as little time
 * as possible, on the stage where each takes longest. The slices of x are many
 * equal cells, at least n, which a cut does not divide; its n_microbatches have
 * sizes, and are cut as their mean is. */
void pp_slices_balance(const struct pp_step *x, int n_microbatches, int n,
                       int32_t *ends);

/* Returns n slices with these ends, which are divided by what divides all of
 * them. Equal slices have none. */
struct pp_slices pp_slices_reduced(int n, int32_t *ends);

#endif
