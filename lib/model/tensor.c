/* SPDX-License-Identifier: MIT */
#include "model/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/group.h"
#include "kernel_sizes.h"

static size_t at_least(size_t a, size_t b)
{
    return a < b ? b : a;
}

size_t pp_table_single(const struct pp_tensor_info *table, size_t n)
{
    size_t first = 0;
    while (first < n && !table[first].n_equal)
        first++;
    return first;
}

size_t pp_table_slots(const struct pp_tensor_info *table, size_t n)
{
    size_t first = pp_table_single(table, n);
    return first < n ? first + (n - first) * table[first].n_equal : n;
}

/* Returns the row of a slot, and sets *number. */
static size_t row_of(size_t first, size_t n, size_t slot, size_t *number)
{
    *number = slot < first ? 0 : (slot - first) / (n - first);
    return slot < first ? slot : first + (slot - first) % (n - first);
}

bool pp_table_at(const struct pp_tensor_info *table, size_t n, size_t slot,
                 struct pp_tensor_info *t)
{
    size_t number, first = pp_table_single(table, n);
    *t = table[row_of(first, n, slot, &number)];
    const char *sign = t->n_equal ? strchr(t->name, '%') : NULL;
    if (sign) {
        char name[PP_FQN_TEXT];
        int before = (int)(sign - t->name);
        /* The bounds are for the compiler's checks. */
        snprintf(name, sizeof name, "%.*s%zu%.26s", before < 48 ? before : 48,
                 t->name, number, sign + 1);
        memcpy(t->name, name, sizeof name);
    }
    t->stack = t->stacks ? t->n_equal : 0;
    t->number = t->stacks ? number : 0;
    t->n_equal = 0;
    return t->name[0];
}

/* Returns the rows from first to end, exclusive, that have a name. */
static size_t named(const struct pp_tensor_info *table, size_t first,
                    size_t end)
{
    size_t n = 0;
    for (size_t row = first; row < end; row++)
        n += table[row].name[0] != 0;
    return n;
}

void pp_table_keep_changing(struct pp_tensor_info *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!pp_tensor_changes(&table[i]))
            table[i].name[0] = '\0';
}

void pp_table_undivide(struct pp_tensor_info *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        table[i].split = PP_SPLIT_NONE;
}

size_t pp_table_order(const struct pp_tensor_info *table, size_t n, size_t slot)
{
    size_t number, first = pp_table_single(table, n);
    size_t row = row_of(first, n, slot, &number);
    if (slot < first)
        return named(table, 0, row);
    size_t before = named(table, first, row), single = named(table, 0, first);
    return table[row].stacks
               ? single + before * table[row].n_equal + number
               : single + number * named(table, first, n) + before;
}

size_t pp_table_tensors(const struct pp_tensor_info *table, size_t n)
{
    size_t sum = 0;
    for (size_t row = 0; row < n; row++)
        if (table[row].name[0])
            sum += at_least(table[row].n_equal, 1);
    return sum;
}

struct pp_tensor_piece pp_tensor_piece(const struct pp_tensor_info *t,
                                       size_t size, size_t rank)
{
    /* A tensor that is not divided is one part, which all ranks hold. */
    size_t n_parts = t->split == PP_SPLIT_NONE ? 1 : t->n_parts;
    size_t first = pp_part_begin(n_parts, 1, size, rank);
    size_t end = at_least(pp_part_begin(n_parts, 1, size, rank + 1), first + 1);
    bool by_cols = t->split == PP_SPLIT_COLUMNS;
    struct pp_tensor_piece p = {
        .rows = t->rows,
        .cols = t->cols,
        .count = {t->rows * t->cols},
        .stride = t->rows * t->cols,
        .n = 1,
        .replica =
            rank > 0 && pp_part_begin(n_parts, 1, size, rank - 1) == first,
    };
    if (end - first == n_parts)
        return p;
    if (by_cols) {
        size_t width = t->cols / n_parts;
        p.n = t->rows;
        p.stride = t->cols;
        p.cols = p.count[0] = (end - first) * width;
        p.offset[0] = first * width;
        return p;
    }
    const size_t one[PP_TENSOR_SEGMENTS] = {t->rows};
    const size_t *segments = t->segments[0] ? t->segments : one;
    p.rows = 0;
    for (size_t s = 0, row = 0; s < PP_TENSOR_SEGMENTS; s++) {
        size_t width = segments[s] / n_parts;
        p.offset[s] = (row + first * width) * t->cols;
        p.count[s] = (end - first) * width * t->cols;
        p.rows += (end - first) * width;
        row += segments[s];
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
    if (p->rows == t->rows) { /* rows of the transpose */
        f.n = 1;
        f.count[0] = f.stride = f.rows * f.cols;
        f.offset[0] *= t->rows;
    } else { /* segments of each row of the transpose */
        f.n = f.rows;
        f.stride = t->rows;
        for (size_t s = 0; s < PP_TENSOR_SEGMENTS; s++) {
            f.offset[s] /= t->cols;
            f.count[s] /= t->cols;
        }
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

static size_t run_elements(const struct pp_tensor_piece *p)
{
    return p->count[0] + p->count[1] + p->count[2];
}

size_t pp_piece_place(const struct pp_tensor_piece *p, size_t element,
                      size_t *left)
{
    size_t all = run_elements(p), in = element % all, s = 0;
    while (in >= p->count[s])
        in -= p->count[s++];
    *left = p->count[s] - in;
    return p->offset[s] + element / all * p->stride + in;
}

size_t pp_piece_behind(const struct pp_tensor_piece *p, size_t at)
{
    size_t again = at < p->offset[0] ? 0 : (at - p->offset[0]) / p->stride;
    size_t element = again * run_elements(p), in = at - again * p->stride;
    for (size_t s = 0; s < PP_TENSOR_SEGMENTS && in > p->offset[s]; s++) {
        size_t n = in - p->offset[s];
        element += n < p->count[s] ? n : p->count[s];
    }
    return element;
}

bool pp_piece_run(const struct pp_tensor_piece *p, struct pp_range range,
                  size_t at, struct pp_run *r)
{
    if (at >= range.n)
        return false;
    size_t left = range.n - at, n;
    size_t whole = pp_piece_place(p, range.first + at, &n);
    *r = (struct pp_run){.whole = whole, .at = at, .n = n < left ? n : left};
    return true;
}

struct pp_range pp_owned_range(size_t n, size_t turn, size_t size, size_t rank)
{
    size_t k = (rank + size - turn % size) % size;
    size_t first = pp_part_begin(n, PP_SQUARES_BLOCK, size, k);
    size_t end = pp_part_begin(n, PP_SQUARES_BLOCK, size, k + 1);
    return (struct pp_range){first, end - first};
}

enum { MOST_ROWS = 96 }; /* of the table of a unit */

/* Fills in the elements of the pieces of a rank by row, 0 without a name.
 * Returns whether they were the same before. */
static bool count_elements(const struct pp_tensor_info *table, size_t n,
                           size_t tp, size_t rank, bool over_tp,
                           size_t *elements)
{
    bool same = true;
    for (size_t row = 0; row < n; row++) {
        size_t now = 0;
        if (table[row].name[0]) {
            bool whole = over_tp && table[row].n_equal;
            struct pp_tensor_piece p =
                pp_tensor_piece(&table[row], whole ? 1 : tp, whole ? 0 : rank);
            now = pp_piece_elements(&p);
        }
        same = same && now == elements[row];
        elements[row] = now;
    }
    return same;
}

bool pp_table_holds(const struct pp_tensor_info *table, size_t n, size_t slot,
                    const struct pp_holders *h)
{
    size_t number, first = pp_table_single(table, n), ep = at_least(h->ep, 1);
    if (slot < first)
        return true;
    const struct pp_tensor_info *row = &table[row_of(first, n, slot, &number)];
    return number / (row->n_equal / ep) == h->index % ep;
}

struct pp_range pp_table_owned(const struct pp_tensor_info *table, size_t n,
                               size_t slot, size_t elements,
                               const struct pp_holders *h)
{
    size_t first = pp_table_single(table, n), number;
    size_t ep = slot < first ? 1 : at_least(h->ep, 1);
    size_t turn = pp_tensor_turn(&table[row_of(first, n, slot, &number)], slot);
    return h->whole_state
               ? (struct pp_range){0, elements}
               : pp_owned_range(elements, turn, h->n / ep, h->index / ep);
}

enum { HOLDERS_AT_ONCE = 4096 };

/* The elements that the holders first .. first + n - 1 own. */
struct owned {
    size_t first, n, of[HOLDERS_AT_ONCE];
};

/* Owner k of `size` that share a tensor is number offset + k * step of the
 * ranks. Owners of one piece, which count, are first + i * each for holder i.
 */
struct owners {
    size_t size, step, offset;
    size_t first, each;
};

static void add_owned(struct owned *s, const struct owners *o, size_t owner,
                      size_t elements)
{
    size_t rank = o->offset + owner * o->step, holder = rank / o->each;
    if (rank % o->each == o->first && holder >= s->first &&
        holder < s->first + s->n)
        s->of[holder - s->first] += elements;
}

/* Adds the ranges of pp_owned_range. There may be many more owners than parts
 * with a block, so it looks at the parts. */
static void add_parts(struct owned *s, const struct owners *o, size_t elements,
                      size_t turn)
{
    size_t n = o->size;
    size_t blocks =
        elements / PP_SQUARES_BLOCK + (elements % PP_SQUARES_BLOCK > 0);
    size_t each = blocks / n, more = blocks % n;
    for (size_t k = 0; each > 0 && k < n; k++)
        add_owned(s, o, k, each * PP_SQUARES_BLOCK);
    /* Part k begins at block more k / n of these. */
    for (size_t j = 1; j <= more; j++) {
        size_t k = (j * n + more - 1) / more - 1;
        add_owned(s, o, (k + turn) % n, PP_SQUARES_BLOCK);
    }
    /* The last block is in the last part. */
    size_t absent = blocks * PP_SQUARES_BLOCK - elements;
    add_owned(s, o, (n - 1 + turn) % n, (size_t)0 - absent);
}

/* Fills in the sums of some holders of the pieces of rank `rank` of tp.
 * elements: of a tensor, by row. */
static void count_owned(const struct pp_tensor_info *table, size_t n, size_t tp,
                        size_t rank, const size_t *elements,
                        const struct pp_holders *h, struct owned *s)
{
    size_t first = pp_table_single(table, n), ep = at_least(h->ep, 1), number;
    size_t each = h->over_tp ? tp : 1;
    memset(s->of, 0, s->n * sizeof *s->of);
    for (size_t slot = 0; slot < pp_table_slots(table, n); slot++) {
        size_t row = row_of(first, n, slot, &number);
        struct owners o = {h->n, 1, 0, 0, 1};
        if (slot >= first)
            o = (struct owners){h->n * each / ep, ep,
                                number / (table[row].n_equal / ep), rank % each,
                                each};
        add_parts(s, &o, elements[row], pp_tensor_turn(&table[row], slot));
    }
}

size_t pp_owned_most(const struct pp_tensor_info *table, size_t n, size_t tp,
                     const struct pp_holders *h)
{
    size_t elements[MOST_ROWS] = {0}, most = 0;
    assert(n <= MOST_ROWS && !h->whole_state);
    for (size_t rank = 0; rank < tp; rank++) {
        bool same = count_elements(table, n, tp, rank, h->over_tp, elements);
        if (same && !h->over_tp)
            continue;
        struct owned s;
        for (s.first = 0; s.first < h->n; s.first += s.n) {
            size_t left = h->n - s.first;
            s.n = left < HOLDERS_AT_ONCE ? left : HOLDERS_AT_ONCE;
            count_owned(table, n, tp, rank, elements, h, &s);
            for (size_t i = 0; i < s.n; i++)
                most = at_least(most, s.of[i]);
        }
    }
    return most;
}

size_t pp_tensor_most(const struct pp_tensor_info *t, size_t size)
{
    size_t n_parts = t->split == PP_SPLIT_NONE ? 1 : t->n_parts;
    size_t most = n_parts / size + (n_parts % size > 0);
    return pp_tensor_elements(t) / n_parts * most;
}
