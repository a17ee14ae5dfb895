/* SPDX-License-Identifier: MIT */
/* split - contiguous partitions of a list of unit costs. Pure. */
#ifndef PP_SPLIT_SPLIT_H
#define PP_SPLIT_SPLIT_H

#include <stddef.h>

#include "base/err.h"

/* A partition of n units into n_stages is n_stages + 1 boundaries, the first 0
 * and the last n, not decreasing: stage s holds units bounds[s] .. bounds[s+1]
 * - 1 and may be empty. */

/* The partition with the smallest largest stage (the bottleneck), by bisection.
 * Among those the most even one: the least sum of squares of the stages' costs.
 * Among those the earliest boundaries: later stages, which keep fewer
 * microbatches alive under 1F1B, get what does not divide. No stage is empty
 * unless there are fewer units than stages. Costs are compared after rounding
 * to 2^-30 of their total; negative ones and not-a-numbers are PP_EXIT_INPUT.
 */
int pp_split_balanced(const double *costs, size_t n, size_t n_stages,
                      size_t *bounds, struct pp_err *err) PP_MUST_USE;

/* As above where one rank holds several stages and the largest rank counts,
 * then the evenness of ranks, then that of stages; stage s lies on rank[s].
 * Exact for one stage per rank. Otherwise a local search that starts from the
 * split above and moves units between any two stages while that helps, then a
 * search of all splits for one that is better by more than 1 %, given up after
 * a fixed number of steps: within 1 % of the optimum where it came to its
 * end. */
int pp_split_balanced_ranks(const double *costs, size_t n, size_t n_stages,
                            const int *rank, size_t n_ranks, size_t *bounds,
                            struct pp_err *err) PP_MUST_USE;

/* DeepSpeed's partition_uniform: n <= n_stages gives one unit to each leading
 * stage; otherwise n div n_stages each and the rest to the first stages. */
int pp_split_uniform(size_t n, size_t n_stages, size_t *bounds,
                     struct pp_err *err) PP_MUST_USE;

/* torchtitan's rule, in layers: counts[s] layers for each stage when the
 * embedding counts as input_weight layers and norm with head as output_weight.
 * Errors are torchtitan's, in its order. */
int pp_split_weights(size_t n_layers, size_t n_stages, size_t input_weight,
                     size_t output_weight, size_t *counts,
                     struct pp_err *err) PP_MUST_USE;

#endif
