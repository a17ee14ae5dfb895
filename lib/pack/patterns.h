/* SPDX-License-Identifier: MIT */
/* patterns - the linear program of bin packing by Gilmore and Gomory: how
 * many bins of each pattern. A pattern is a set of lengths that fit into a bin.
 *
 * Floating point chooses patterns and weights only. A bound is proved from the
 * weights in integers, by pp_pack_weighted_bound. */
#ifndef PP_PACK_PATTERNS_H
#define PP_PACK_PATTERNS_H

#include "pack/rule.h"

/* A number of bins may be so much above its goal, and a positive amount is so
 * much above 0. */
#define PP_PATTERN_SLACK 1e-6

struct pp_pattern_part {
    uint32_t class, count;
};

/* A sequence of the class goes into the open bin. */
struct pp_bin_choice {
    uint32_t class;
    bool opens; /* it is the first of its bin */
};

struct pp_pattern_program {
    size_t n;         /* classes */
    uint32_t *length; /* by class, above 0 */
    uint32_t *demand; /* by class: sequences to pack */
    uint32_t capacity;
    uint64_t work; /* left; a unit is about one multiplication */

    /* Pattern k has parts[first[k]..first[k+1]). Pattern k < n is one sequence
     * of class k. */
    size_t n_patterns, first_capacity, parts_capacity;
    size_t *first;
    struct pp_pattern_part *parts;

    /* The basis of the simplex method; a row is a class with demand. */
    size_t n_rows;
    uint32_t *row_class, *class_row;
    size_t *basis;   /* by row: a pattern, or ~row for the surplus of a row */
    double *inverse; /* n_rows by n_rows: of the matrix of the basis */
    double *amount;  /* by row: how many bins have the basis's pattern */
    double *dual;    /* by class: the weight of a sequence; 1 is a full bin */
    double *column;  /* by row: scratch */
    double *value;   /* the table of the knapsack */
    size_t value_rows;
};

/* Makes the program of the classes, whose lengths are above 0. work limits the
 * work of all solutions. */
void pp_pattern_program_init(struct pp_pattern_program *p,
                             const struct pp_classes *classes,
                             uint32_t capacity, uint64_t work);

void pp_pattern_program_finish(struct pp_pattern_program *p);

/* Begins anew, with the patterns that are known. The caller must do this before
 * the first solution and if the demand has changed. */
void pp_pattern_program_begin(struct pp_pattern_program *p);

/* Looks for amounts that pack the demand into at most n_bins bins, where
 * fractions of bins count. PP_PACK_FOUND leaves the basis and the amounts;
 * PP_PACK_IMPOSSIBLE means that the duals are weights that exclude n_bins up
 * to rounding. */
void pp_pattern_program_solve(struct pp_pattern_program *p, size_t n_bins,
                              enum pp_pack_answer *answer);

/* Computes the lower bound that weights prove, for any weights below 2^31: no
 * bin has more than the heaviest set of sequences that fits. The work is
 * classes times capacity, and more for repeated lengths. */
void pp_pack_weighted_bound(const struct pp_classes *classes, uint32_t capacity,
                            const uint64_t *weight, size_t *bound);

/* Looks for a packing of left[c] sequences of each class into n_bins bins by
 * completing bin after bin. If it finds one, the choices are in chosen, which
 * has room for all sequences. left is changed. */
enum pp_pack_answer pp_pack_complete(const struct pp_classes *classes,
                                     uint32_t *left, uint32_t capacity,
                                     size_t n_bins, uint64_t steps,
                                     struct pp_bin_choice *chosen);

/* Makes the bins of n choices, one for each sequence. Sequences of a class are
 * taken in their order. */
void pp_bins_of_choices(const struct pp_classes *classes,
                        const struct pp_bin_choice *chosen, size_t n,
                        struct pp_bins *out);

/* Raises a lower bound by the linear program; n_bins is the size of a known
 * packing. If best is not NULL, it holds that packing, and it is replaced if
 * rounding the program gives one with fewer bins. The work is bounded and
 * depends only on the arguments. */
void pp_pack_by_patterns(const uint32_t *lengths, size_t n, uint32_t capacity,
                         size_t n_bins, size_t *bound, struct pp_bins *best);

#endif
