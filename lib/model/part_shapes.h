/* SPDX-License-Identifier: MIT */
/* part_shapes - the shape of a parameter: for the files that list the parts of
 * units, and private to them. The rows of a matrix are outputs. */
#ifndef PP_MODEL_PART_SHAPES_H
#define PP_MODEL_PART_SHAPES_H

#include "model/tensor.h"

static inline void set_matrix(struct pp_tensor_info *t, size_t rows,
                              size_t cols, enum pp_tensor_split split,
                              size_t n_parts)
{
    *t = (struct pp_tensor_info){.rows = rows,
                                 .cols = cols,
                                 .n_dims = 2,
                                 .init = PP_INIT_NORMAL,
                                 .split = split,
                                 .n_parts = n_parts};
}

static inline void set_vector(struct pp_tensor_info *t, size_t rows,
                              enum pp_tensor_init init,
                              enum pp_tensor_split split, size_t n_parts)
{
    *t = (struct pp_tensor_info){.rows = rows,
                                 .cols = 1,
                                 .n_dims = 1,
                                 .init = init,
                                 .split = split,
                                 .n_parts = n_parts};
}

/* Sets the rows of each part that ranks divide by itself. */
static inline void set_segments(struct pp_tensor_info *t, size_t a, size_t b,
                                size_t c)
{
    t->segments[0] = a;
    t->segments[1] = b;
    t->segments[2] = c;
}

static inline void set_bias(struct pp_tensor_info *t, size_t rows,
                            enum pp_tensor_split split, size_t n_parts)
{
    set_vector(t, rows, PP_INIT_ZEROS, split, n_parts);
}

#endif
