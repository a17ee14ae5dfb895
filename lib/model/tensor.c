/* SPDX-License-Identifier: MIT */
#include "model/tensor.h"

#include <string.h>

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
    size_t n_segments = at_least(t->n_segments, 1);
    size_t first = part_begin(n_parts, size, rank);
    size_t end = at_least(part_begin(n_parts, size, rank + 1), first + 1);
    bool by_cols = t->split == PP_SPLIT_COLUMNS;
    size_t segment = t->rows / n_segments; /* rows of one */
    size_t width = (by_cols ? t->cols : segment) / n_parts;
    size_t rows = by_cols ? segment : (end - first) * width;
    struct pp_tensor_piece p = {
        .rows = n_segments * rows,
        .cols = by_cols ? (end - first) * width : t->cols,
        .offset = first * width * (by_cols ? 1 : t->cols),
        .replica = rank > 0 && part_begin(n_parts, size, rank - 1) == first,
    };
    if (p.rows == t->rows && p.cols == t->cols) { /* whole */
        p.n = 1;
        p.count = p.stride = p.rows * p.cols;
    } else if (by_cols) {
        p.n = p.rows;
        p.count = p.cols;
        p.stride = t->cols;
    } else {
        p.n = n_segments;
        p.count = rows * t->cols;
        p.stride = segment * t->cols;
    }
    return p;
}

struct pp_tensor_piece pp_tensor_in_file(const struct pp_tensor_info *t,
                                         const struct pp_tensor_piece *p)
{
    struct pp_tensor_piece f = *p;
    if (!t->transposed)
        return f;
    f.rows = p->cols;
    f.cols = p->rows;
    f.offset = p->offset / t->cols + p->offset % t->cols * t->rows;
    if (p->rows == t->rows) { /* rows of the transpose */
        f.n = 1;
        f.count = f.stride = f.rows * f.cols;
    } else { /* equal segments of each row of the transpose */
        f.n = p->n * f.rows;
        f.count = f.cols / p->n;
        f.stride = t->rows / p->n;
    }
    return f;
}

/* Rows at a time, whose elements of a column share cache lines of out. */
enum { BLOCK = 16 };

/* The size of the copies is a constant where this is inlined. */
static inline void transpose(char *out, const char *in, size_t rows,
                             size_t cols, size_t bytes)
{
    for (size_t r = 0; r < rows; r += BLOCK)
        for (size_t c = 0; c < cols; c++)
            for (size_t i = r; i < rows && i < r + BLOCK; i++)
                memcpy(out + (c * rows + i) * bytes,
                       in + (i * cols + c) * bytes, bytes);
}

void pp_transpose(void *out, const void *in, size_t rows, size_t cols,
                  size_t element_bytes)
{
    if (element_bytes == 2)
        transpose(out, in, rows, cols, 2);
    else if (element_bytes == 4)
        transpose(out, in, rows, cols, 4);
    else
        transpose(out, in, rows, cols, 8);
}

size_t pp_tensor_most(const struct pp_tensor_info *t, size_t size)
{
    size_t n_parts = t->split == PP_SPLIT_NONE ? 1 : t->n_parts;
    size_t most = n_parts / size + (n_parts % size > 0);
    return pp_tensor_elements(t) / n_parts * most;
}
