/* SPDX-License-Identifier: MIT */
/* runs - the elements of a tensor that one rank writes, in the order of
 * the file.
 *
 * Tensor-parallel ranks divide some tensors by columns, and some files have the
 * transpose of a tensor. Then the elements of a rank are many short runs of the
 * file. Pure. */
#ifndef PP_RUN_CHECKPOINT_RUNS_H
#define PP_RUN_CHECKPOINT_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#include "run/parameters/parameters.h"

struct pp_runs {
    struct pp_tensor_piece piece; /* of the tensor as the file has it */
    struct pp_range range; /* the elements in memory, of the piece there */
    size_t cols; /* of the piece in memory, if the file has its transpose; else
                    0: both have one order */
};

/* Elements `at` and on of the tensor in the file. In memory the first is
 * element `from` of the range, and the others follow in this step. */
struct pp_file_run {
    size_t at, n, from, step;
};

/* The bytes of an element in memory and in the file (base/elements.h). */
struct pp_element_sizes {
    size_t here, there;
};

struct pp_runs pp_runs_of(const struct pp_tensor_info *t,
                          const struct pp_tensor_piece *piece,
                          struct pp_range range);

/* Finds the first run in a window of the file's tensor, from
 * element `at` on. Returns false if there is none. */
bool pp_runs_find(const struct pp_runs *p, struct pp_range window, size_t at,
                  struct pp_file_run *r);

/* Returns the number of elements in a window. */
size_t pp_runs_count(const struct pp_runs *p, struct pp_range window);

/* Returns a range of the file's tensor that begins with the first run and has
 * all of them. There is one. */
struct pp_range pp_runs_span(const struct pp_runs *p);

/* Returns how many elements of the piece come before element `at` of the file's
 * tensor. */
size_t pp_runs_before(const struct pp_runs *p, size_t at);

/* Copies the elements in a window from memory (the range) to `to`, in the order
 * of the file and without gaps. Returns their number. */
size_t pp_runs_pack(const struct pp_runs *p, struct pp_range window,
                    const char *data, struct pp_element_sizes bytes, char *to);

/* Copies packed elements to their places in a window. */
void pp_runs_unpack(const struct pp_runs *p, struct pp_range window,
                    const char *packed, size_t element_bytes, char *to);

#endif
