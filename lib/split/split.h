/* SPDX-License-Identifier: MIT */
/* split - contiguous partitions of a list of units by their costs. Pure. */
#ifndef PP_SPLIT_SPLIT_H
#define PP_SPLIT_SPLIT_H

#include <stddef.h>

#include "base/err.h"

/* A partition of n units into n_stages is n_stages + 1 boundaries that do not
 * decrease, from 0 to n. Stage s holds units bounds[s] .. bounds[s + 1] - 1. It
 * may be empty. */

/* Finds the partition whose most expensive stage (the bottleneck) is cheapest.
 * Ties go to the least sum of squares of the stages' costs, then to the
 * earliest boundaries. So the remainder goes to later stages, which have fewer
 * microbatches in flight under 1F1B. No stage is empty unless there are fewer
 * units than stages. Costs are finite and not negative, and are rounded to
 * 2^-30 of their total. There is at least one stage. */
void pp_split_balanced(const double *costs, size_t n, size_t n_stages,
                       size_t *bounds);

/* Finds a partition for ranks with several stages: stage s is on rank[s]. It
 * minimizes the most expensive rank, then the sum of squares of ranks, then
 * that of stages. With one stage per rank the result is pp_split_balanced's.
 * Otherwise a local search starts there and moves units between any two stages
 * while that helps. Then a search of all partitions looks for one that is
 * better by more than 1 %; it stops after a fixed number of steps. If it
 * completes, the result is within 1 % of the optimum. */
void pp_split_balanced_ranks(const double *costs, size_t n, size_t n_stages,
                             const int *rank, size_t n_ranks, size_t *bounds);

/* Splits like DeepSpeed's partition_uniform: n div n_stages units for each
 * stage, and one more for each of the first n mod n_stages stages. */
int pp_split_uniform(size_t n, size_t n_stages, size_t *bounds,
                     struct pp_err *err) PP_MUST_USE;

/* Splits layers like torchtitan. counts[s] becomes the layers of stage s. The
 * embedding counts as input_weight layers, norm and head together as
 * output_weight. Errors are torchtitan's, in its order. */
int pp_split_weights(size_t n_layers, size_t n_stages, size_t input_weight,
                     size_t output_weight, size_t *counts,
                     struct pp_err *err) PP_MUST_USE;

#endif
