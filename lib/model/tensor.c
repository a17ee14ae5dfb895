/* SPDX-License-Identifier: MIT */
#include "model/tensor.h"

/* Returns the first part of a rank. */
static size_t part_begin(size_t n_parts, size_t size, size_t rank)
{
    return n_parts / size * rank + n_parts % size * rank / size;
}

static size_t at_least(size_t a, size_t b)
{
    return a < b ? b : a;
}

struct pp_tensor_piece pp_tensor_piece(const struct pp_tensor_info *t,
                                       size_t size, size_t rank)
{
    /* A tensor that is not divided is one part, which all ranks hold. */
    size_t n_parts = t->split == PP_SPLIT_NONE ? 1 : t->n_parts;
    size_t first = part_begin(n_parts, size, rank);
    size_t end = at_least(part_begin(n_parts, size, rank + 1), first + 1);
    bool by_cols = t->split == PP_SPLIT_COLUMNS;
    size_t width = (by_cols ? t->cols : t->rows) / n_parts;
    struct pp_tensor_piece p = {
        .rows = by_cols ? t->rows : (end - first) * width,
        .cols = by_cols ? (end - first) * width : t->cols,
        .offset = first * width * (by_cols ? 1 : t->cols),
        .replica = rank > 0 && part_begin(n_parts, size, rank - 1) == first,
    };
    bool is_one = p.cols == t->cols;
    p.n = is_one ? 1 : p.rows;
    p.count = is_one ? p.rows * p.cols : p.cols;
    p.stride = is_one ? p.count : t->cols;
    return p;
}

size_t pp_tensor_most(const struct pp_tensor_info *t, size_t size)
{
    size_t n_parts = t->split == PP_SPLIT_NONE ? 1 : t->n_parts;
    size_t most = n_parts / size + (n_parts % size > 0);
    return pp_tensor_elements(t) / n_parts * most;
}
