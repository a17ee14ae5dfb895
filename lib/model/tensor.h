/* SPDX-License-Identifier: MIT */
/* tensor - what pprun needs to know of one parameter tensor: its name and shape
 * in files, its first values, and how tensor-parallel ranks divide it. Every
 * part of a model fills entries of this table; all that handles weights reads
 * them. */
#ifndef PP_MODEL_TENSOR_H
#define PP_MODEL_TENSOR_H

#include <stddef.h>

/* Size of the longest fully qualified name or tensor name, with its NUL. */
#define PP_FQN_TEXT 96

enum pp_tensor_init { PP_INIT_NORMAL, PP_INIT_ONES, PP_INIT_ZEROS };

/* Tensor-parallel ranks divide nothing, as with norms, whose gradients
 * are then sums over these ranks; the rows of a product's outputs; the columns
 * of its inputs. */
enum pp_tensor_split { PP_SPLIT_NONE, PP_SPLIT_ROWS, PP_SPLIT_COLUMNS };

/* Shapes are Hugging Face's: (rows, cols) row-major, cols 1 for a vector. */
struct pp_tensor_info {
    char name[PP_FQN_TEXT]; /* "model.norm.weight"; "": the model has no such
                               tensor, or has it in another form */
    size_t rows, cols;
    int n_dims; /* in the file */
    enum pp_tensor_init init;
    enum pp_tensor_split split;
    size_t n_parts; /* what is divided is never cut inside one of these equal
                       parts, such as the rows of a head; 1 if nothing is */
};

/* Returns the number of elements. */
static inline size_t pp_tensor_elements(const struct pp_tensor_info *t)
{
    return t->rows * t->cols;
}

#endif
