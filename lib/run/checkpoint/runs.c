/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/runs.h"

#include <stdint.h>
#include <string.h>

#include "base/elements.h"

struct pp_runs pp_runs_of(const struct pp_tensor_info *t,
                          const struct pp_tensor_piece *piece,
                          struct pp_range range)
{
    return (struct pp_runs){.piece = pp_tensor_in_file(t, piece),
                            .range = range,
                            .cols = t->transposed ? piece->cols : 0};
}

size_t pp_runs_before(const struct pp_runs *p, size_t at)
{
    size_t n = pp_piece_behind(&p->piece, at),
           most = pp_piece_elements(&p->piece);
    return n < most ? n : most;
}

/* Returns the rows of a column whose elements come before element `at` of a
 * matrix of so many columns. */
static size_t rows_before(size_t column, size_t at, size_t cols)
{
    return at > column ? (at - column - 1) / cols + 1 : 0;
}

/* Finds the run from element *element of the transpose on. *end is the end of
 * its column. */
static bool find_in_column(const struct pp_runs *p, size_t *element,
                           size_t *end, struct pp_file_run *r)
{
    size_t rows = p->piece.cols, row = *element % rows;
    for (size_t c = *element / rows; c < p->cols; c++, row = 0) {
        size_t first = rows_before(c, p->range.first, p->cols);
        size_t last = rows_before(c, p->range.first + p->range.n, p->cols);
        row = row > first ? row : first;
        if (row < last) {
            *element = c * rows + row;
            *end = c * rows + last;
            r->from = row * p->cols + c - p->range.first;
            r->step = p->cols;
            return true;
        }
    }
    return false;
}

bool pp_runs_find(const struct pp_runs *p, struct pp_range window, size_t at,
                  struct pp_file_run *r)
{
    const struct pp_tensor_piece *f = &p->piece;
    size_t element = pp_piece_behind(f, at), end = p->range.first + p->range.n;
    if (p->cols) {
        if (!find_in_column(p, &element, &end, r))
            return false;
    } else {
        element = element > p->range.first ? element : p->range.first;
        r->from = element - p->range.first;
        r->step = 1;
    }
    if (element >= end)
        return false;
    size_t n, stop = window.first + window.n;
    r->at = pp_piece_place(f, element, &n);
    r->n = n < end - element ? n : end - element;
    if (r->at >= stop)
        return false;
    r->n = r->n < stop - r->at ? r->n : stop - r->at;
    return true;
}

struct pp_range pp_runs_span(const struct pp_runs *p)
{
    const struct pp_range all = {0, SIZE_MAX};
    size_t last =
        p->cols ? pp_piece_elements(&p->piece) : p->range.first + p->range.n;
    struct pp_file_run r = {0};
    bool found = pp_runs_find(p, all, 0, &r);
    (void)found;
    size_t left, end = pp_piece_place(&p->piece, last - 1, &left) + 1;
    return (struct pp_range){r.at, end - r.at};
}

size_t pp_runs_count(const struct pp_runs *p, struct pp_range window)
{
    struct pp_file_run r;
    size_t n = 0;
    for (size_t at = window.first; pp_runs_find(p, window, at, &r);
         at = r.at + r.n)
        n += r.n;
    return n;
}

static inline void strided(char *to, const char *from, size_t n, size_t step,
                           size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * bytes, from + i * step * bytes, bytes);
}

/* The size of the copies is a constant where strided is inlined. */
static void take_elements(char *to, const char *from, size_t n, size_t step,
                          size_t bytes)
{
    if (bytes == 2)
        strided(to, from, n, step, 2);
    else if (bytes == 4)
        strided(to, from, n, step, 4);
    else
        strided(to, from, n, step, 8);
}

static void copy_run(const struct pp_file_run *r, const char *data,
                     struct pp_element_sizes bytes, char *to)
{
    uint64_t some[256];
    enum { MOST = sizeof some / sizeof *some };
    const char *from = data + r->from * bytes.here;
    if (r->step == 1) {
        pp_elements_convert(to, bytes.there, from, bytes.here, r->n);
        return;
    }
    for (size_t i = 0; i < r->n; i += MOST) {
        size_t n = r->n - i < MOST ? r->n - i : MOST;
        take_elements((char *)some, from + i * r->step * bytes.here, n, r->step,
                      bytes.here);
        pp_elements_convert(to + i * bytes.there, bytes.there, some, bytes.here,
                            n);
    }
}

size_t pp_runs_pack(const struct pp_runs *p, struct pp_range window,
                    const char *data, struct pp_element_sizes bytes, char *to)
{
    struct pp_file_run r;
    size_t n = 0;
    for (size_t at = window.first; pp_runs_find(p, window, at, &r);
         at = r.at + r.n) {
        copy_run(&r, data, bytes, to + n * bytes.there);
        n += r.n;
    }
    return n;
}

void pp_runs_unpack(const struct pp_runs *p, struct pp_range window,
                    const char *packed, size_t element_bytes, char *to)
{
    struct pp_file_run r;
    size_t n = 0;
    for (size_t at = window.first; pp_runs_find(p, window, at, &r);
         at = r.at + r.n) {
        memcpy(to + (r.at - window.first) * element_bytes,
               packed + n * element_bytes, r.n * element_bytes);
        n += r.n;
    }
}
