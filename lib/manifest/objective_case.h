/* SPDX-License-Identifier: MIT */
/* objective_case - reads one line of a file of cases for objectives: the
 * numbers of a microbatch and the options. pp-objectives(7) has the format. */
#ifndef PP_MANIFEST_OBJECTIVE_CASE_H
#define PP_MANIFEST_OBJECTIVE_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* The arrays of a case; one that the line leaves out is NULL. */
enum pp_case_array {
    PP_CASE_X,
    PP_CASE_P,
    PP_CASE_Q,
    PP_CASE_F,
    PP_CASE_ADVANTAGES,
    PP_CASE_MASK,
    PP_N_CASE_ARRAYS
};

struct pp_objective_case {
    const char *id; /* as JSON */
    size_t n_sequences, n_tokens;
    const int32_t *cu_seqlens; /* (n_sequences + 1) */
    /* (n_tokens) each; null in the line is -infinity here. Advantages with an
     * element per sequence are spread over its tokens. */
    const double *arrays[PP_N_CASE_ARRAYS];
    bool pairs_fit;   /* without groups, or with two sequences in each */
    double counts[4]; /* tokens, sequences, pairs, tokens of chosen sequences of
                         the step; -1: not given */
};

/* Receives the objective of a case, with the name "objective", and then the
 * options: a value as text, or NULL for null. */
typedef int pp_case_option_fn(void *ctx, const char *name, const char *value,
                              struct pp_err *err);

/* Reads a line of n bytes. The arena owns everything. */
int pp_objective_case_parse(const char *text, size_t n, const char *name,
                            struct pp_arena *a, pp_case_option_fn *set,
                            void *ctx, struct pp_objective_case *out,
                            struct pp_err *err) PP_MUST_USE;

#endif
