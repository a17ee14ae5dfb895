/* SPDX-License-Identifier: MIT */
/* Megatron's orders: numbers between brackets, parentheses and commas.
 *
 * The warmup of a table is that of
 * forward_backward_pipelining_with_interleaving, or with one chunk of
 * forward_backward_pipelining_without_interleaving. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "schedule/files/import.h"

/* A number of the text, and the list that it is in. */
struct number {
    int64_t value;
    struct pp_text_place place;
    size_t list;
};

struct numbers {
    struct number *items;
    size_t n, capacity;
    size_t n_lists; /* with a number in them */
};

bool pp_is_orders(const char *text, size_t n)
{
    bool digits = false;
    for (size_t i = 0; i < n; i++) {
        digits |= text[i] >= '0' && text[i] <= '9';
        if (!text[i] || !strchr("0123456789-,[]() \t\r\n", text[i]))
            return false;
    }
    return digits;
}

/* A file that is being read. */
struct orders {
    const struct pp_import_options *options;
    struct numbers numbers;
    struct pp_err *err;
};

/* Puts the error at a place of the file. Returns -1. */
static int fault(struct orders *r, struct pp_text_place at)
{
    pp_faults_take(r->options->faults, (int)at.line - 1, at.column, r->err);
    return -1;
}

/* Reads a number at *s. Nine digits are more than any schedule has. */
static int read_number(struct orders *r, const char **s, const char *end,
                       struct number *x)
{
    const char *from = *s;
    bool negative = *from == '-';
    const char *p = from + negative;
    x->value = 0;
    while (p < end && *p >= '0' && *p <= '9' && p - from < 10)
        x->value = 10 * x->value + (*p++ - '0');
    if (p == from + negative || p - from == 10) {
        pp_fail(r->err, PP_EXIT_INPUT, "'%.*s' is not a number of an order",
                (int)(p - from), from);
        return fault(r, x->place);
    }
    x->value = negative ? -x->value : x->value;
    *s = p;
    return 0;
}

/* Reads all numbers. A list ends with its line, or with its bracket if the file
 * has brackets. */
static int read_numbers(struct orders *r, const char *text, size_t n)
{
    const char *end = text + n, *line = text;
    char ends = memchr(text, ']', n) ? ']' : '\n';
    struct number x = {.place.line = 1};
    bool any = false;
    for (const char *s = text; s < end;) {
        if (*s == '-' || (*s >= '0' && *s <= '9')) {
            x.place.column = (size_t)(s - line) + 1;
            if (read_number(r, &s, end, &x))
                return -1;
            PP_VEC_PUSH(&r->numbers, x);
            any = true;
            continue;
        }
        if (*s == ends) {
            x.list += any;
            any = false;
        }
        if (*s++ == '\n') {
            x.place.line++;
            line = s;
        }
    }
    r->numbers.n_lists = x.list + any;
    return 0;
}

/* --- a list for each rank --- */

static int add_action(struct pp_import *c, int row, int64_t chunk,
                      enum pp_op op, int64_t microbatch, struct pp_err *err)
{
    int64_t stage = chunk * c->graph.n_rows + row;
    if (stage > INT32_MAX)
        return pp_fail(err, PP_EXIT_NO, "rank %d: chunk %lld is too large", row,
                       (long long)chunk);
    struct pp_action a = {.stage = (int32_t)stage,
                          .microbatch = (int32_t)microbatch,
                          .peer = -1,
                          .op = (uint8_t)op};
    pp_schedule_add(&c->schedule, row, a);
    return 0;
}

/* Reads n numbers as the order of a rank. */
static int read_order(struct orders *r, struct pp_import *c, int row,
                      const struct number *at, size_t n)
{
    struct pp_err *err = r->err;
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = llabs(at[i].value) > most ? llabs(at[i].value) : most;
    if (most > (int64_t)n)
        return pp_fail(err, PP_EXIT_NO,
                       "rank %d: chunk %lld is too large for %zu entries", row,
                       (long long)most - 1, n);
    /* By chunk: forwards and backwards so far. */
    int64_t(*passed)[2] = pp_calloc((size_t)most + 1, sizeof *passed);
    pp_import_add_places(c, row, n);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t chunk = llabs(at[i].value) - 1;
        bool back = at[i].value < 0;
        c->places[row][i] = at[i].place;
        if (chunk >= 0) {
            rc = add_action(c, row, chunk, back ? PP_B : PP_F,
                            passed[chunk][back]++, err);
            continue;
        }
        pp_fail(err, PP_EXIT_INPUT,
                "'0' is no chunk of an order: they count from 1");
        rc = fault(r, at[i].place);
    }
    free(passed);
    return rc;
}

static int read_orders(struct orders *r, struct pp_import *c)
{
    const struct numbers *all = &r->numbers;
    size_t from = 0, to;
    for (int row = 0; row < c->graph.n_rows; row++, from = to) {
        for (to = from;
             to < all->n && all->items[to].list == all->items[from].list;)
            to++;
        if (read_order(r, c, row, all->items + from, to - from))
            return -1;
    }
    return 0;
}

/* --- a table of all ranks --- */

struct table {
    const struct number *at; /* microbatch and chunk of each forward */
    size_t n;                /* forwards */
    int64_t n_chunks;
    size_t group; /* forwards of chunk 0 at the beginning */
};

static int read_table(struct orders *r, struct table *t)
{
    const struct numbers *all = &r->numbers;
    *t = (struct table){.at = all->items, .n = all->n / 2};
    if (all->n % 2)
        return pp_fail(r->err, PP_EXIT_INPUT,
                       "the table has %zu numbers, which are no pairs "
                       "(microbatch, chunk)",
                       all->n);
    for (size_t i = 0; i < t->n; i++) {
        const struct number *pair = &all->items[2 * i];
        if (pair[0].value < 0 || pair[1].value < 0) {
            pp_fail(r->err, PP_EXIT_INPUT,
                    "(%lld, %lld) is not (microbatch, chunk)",
                    (long long)pair[0].value, (long long)pair[1].value);
            return fault(r, pair->place);
        }
        if (pair[1].value >= t->n_chunks)
            t->n_chunks = pair[1].value + 1;
    }
    while (t->group < t->n && t->at[2 * t->group + 1].value == 0)
        t->group++;
    return 0;
}

static int add_entry(struct pp_import *c, const struct table *t, int row,
                     size_t k, bool back, struct pp_err *err)
{
    const struct number *pair = &t->at[2 * k];
    int64_t chunk = back ? t->n_chunks - 1 - pair[1].value : pair[1].value;
    c->places[row][c->schedule.rows[row].n] = pair->place;
    return add_action(c, row, chunk, back ? PP_B : PP_F, pair[0].value, err);
}

/* Gives each rank the table's forwards in its order, and backwards in the same
 * order from the last chunk on. */
static int run_table(struct pp_import *c, const struct table *t,
                     struct pp_err *err)
{
    for (int row = 0; row < c->graph.n_rows; row++) {
        size_t later = (size_t)(c->graph.n_rows - row - 1);
        size_t warmup = t->n_chunks == 1
                            ? later
                            : 2 * later + (size_t)(t->n_chunks - 1) * t->group;
        size_t f = 0;
        pp_import_add_places(c, row, 2 * t->n);
        while (f < t->n && f < warmup)
            if (add_entry(c, t, row, f++, false, err))
                return -1;
        for (size_t b = 0; b < t->n; b++)
            if ((f < t->n && add_entry(c, t, row, f++, false, err)) ||
                add_entry(c, t, row, b, true, err))
                return -1;
    }
    return 0;
}

static int parse(struct orders *r, const char *text, size_t n,
                 struct pp_import *c)
{
    const struct pp_import_options *o = r->options;
    struct pp_err *err = r->err;
    struct table t;
    if (read_numbers(r, text, n))
        return -1;
    if (!memchr(text, '(', n))
        return pp_import_begin(c, "megatron", r->numbers.n_lists, o, err) ||
               read_orders(r, c) || pp_import_complete(c, o, err);
    if (!o->n_rows)
        return pp_fail_setting(err, PP_EXIT_INPUT, "ranks", NULL,
                               "the table does not say how many ranks run it");
    return read_table(r, &t) ||
           pp_import_begin(c, "megatron", (size_t)o->n_rows, o, err) ||
           run_table(c, &t, err) || pp_import_complete(c, o, err);
}

int pp_orders_parse(const char *text, size_t n,
                    const struct pp_import_options *o, struct pp_import *c,
                    struct pp_err *err)
{
    struct orders r = {.options = o, .err = err};
    *c = (struct pp_import){0};
    int rc = parse(&r, text, n, c);
    free(r.numbers.items);
    if (!rc)
        return 0;
    pp_import_finish(c);
    if (err->code == PP_EXIT_OK)
        return 0; /* the list of faults has it */
    return pp_fail_at(err, "%s: ", o->name);
}
