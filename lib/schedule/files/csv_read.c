/* SPDX-License-Identifier: MIT */
/* Reading. */
#include "schedule/files/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/files/csv_dialect.h"

/* The first empty cell of a file. */
struct hole {
    bool found;
    int row;
    size_t cell;
};

/* Reports if PyTorch has the action: it has no peers, slices or SYNC_TIED. */
static bool is_torch(struct pp_action a)
{
    return pp_has_stage(a.op) && a.slice == 0 && a.peer < 0;
}

static int read_cell(struct pp_import *c, int row, const char *text, size_t n,
                     struct pp_err *err)
{
    struct pp_row *list = &c->schedule.rows[row];
    size_t before = list->n;
    int shown = n > 60 ? 60 : (int)n;
    if (pp_schedule_parse_cell(&c->schedule, row, text, n, err))
        return -1;
    for (; before < list->n; before++) {
        struct pp_action a = list->actions[before];
        if (!is_torch(a))
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%.*s' is not an action of PyTorch", shown, text);
        c->messages |= pp_is_message(a.op);
        c->sharding |=
            a.op == PP_UNSHARD || a.op == PP_RESHARD || a.op == PP_REDUCE_GRAD;
    }
    return 0;
}

static bool is_blank(char ch)
{
    return ch == ' ' || ch == '\t';
}

static int read_cells(struct pp_import *c, const struct pp_import_options *o,
                      int row, const char *text, size_t n,
                      struct pp_csv_waits *waits, struct hole *hole,
                      struct pp_err *err)
{
    const char *line = text, *end = text + n;
    for (size_t place = 0; text <= end; place++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *from = text, *to = comma ? comma : end;
        size_t before = c->schedule.rows[row].n;
        text = to + 1;
        while (from < to && is_blank(*from))
            from++;
        while (from < to && is_blank(to[-1]))
            to--;
        if (from == to && !hole->found)
            *hole = (struct hole){true, row, place};
        size_t length = (size_t)(to - from);
        int rc = length == 0 ? 0
                 : pp_csv_is_wait(from, length)
                     ? pp_csv_add_wait(waits, from, length,
                                       c->schedule.rows[row].n, place, err)
                     : read_cell(c, row, from, length, err);
        size_t column = (size_t)(from - line) + 1;
        for (; before < c->schedule.rows[row].n; before++)
            c->places[row][before] =
                (struct pp_text_place){(size_t)row + 1, column};
        if (rc)
            pp_fail_at(err, "rank %d, cell %zu: ", row, place);
        if (rc && !pp_faults_take(o->faults, row, column, err))
            return -1;
    }
    return 0;
}

/* A cell has one action or two, and two syncs may follow them, which have no
 * place. */
static void add_places(struct pp_import *c, int row, const char *text, size_t n)
{
    size_t cells = 1;
    for (size_t i = 0; i < n; i++)
        cells += text[i] == ',';
    pp_import_add_places(c, row, 2 * cells + 2);
}

static int read_row(struct pp_import *c, const struct pp_import_options *o,
                    int row, const char *text, size_t n, struct hole *hole,
                    struct pp_err *err)
{
    struct pp_csv_waits waits = {0};
    size_t known = o->faults ? o->faults->n : 0;
    add_places(c, row, text, n);
    int rc = read_cells(c, o, row, text, n, &waits, hole, err);
    const struct pp_row *list = &c->schedule.rows[row];
    bool all = !o->faults || o->faults->n == known; /* cells were read */
    if (!rc && all && pp_csv_check_waits(&waits, list, err))
        rc = pp_fail_at(err, "rank %d, ", row);
    if (!rc && all && list->n == 0)
        rc = pp_fail(err, PP_EXIT_NO, "rank %d has no actions", row);
    free(waits.list);
    return rc && !pp_faults_take(o->faults, row, PP_NO_PLACE, err) ? -1 : 0;
}

static size_t count_lines(const char *text, size_t n)
{
    size_t lines = n > 0 && text[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static int read_rows(struct pp_import *c, const struct pp_import_options *o,
                     const char *text, size_t n, struct hole *hole,
                     struct pp_err *err)
{
    const char *end = text + n;
    for (int row = 0; text < end; row++) {
        const char *lf = memchr(text, '\n', (size_t)(end - text));
        const char *to = lf ? lf : end;
        size_t length = (size_t)(to - text);
        if (length > 0 && text[length - 1] == '\r')
            length--;
        if (read_row(c, o, row, text, length, hole, err))
            return -1;
        text = to + 1;
    }
    return 0;
}

/* Refuses an empty cell in a file in which no rank idles. */
static int check_hole(const struct pp_import *c, const struct hole *hole,
                      struct pp_err *err)
{
    const char *where = NULL;
    if (c->messages || c->sharding)
        where = "with communication";
    else if (c->schedule.graph->n_stages == 1)
        where = "with one stage";
    if (!hole->found || !where)
        return 0;
    return pp_fail_setting(err, PP_EXIT_INPUT, "lenient", NULL,
                           "rank %d, cell %zu: the cell is empty, in a file %s",
                           hole->row, hole->cell, where);
}

static bool has_actions(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        if (s->rows[r].n > 0)
            return true;
    return false;
}

/* Keeps the first of several faults: the file is of another kind. */
static void tell_first(struct pp_faults *f)
{
    struct pp_fault *first = &f->at[0];
    size_t n = strlen(first->err.text);
    if (f->n == 1)
        return;
    f->n = 1;
    snprintf(first->err.text + n, sizeof first->err.text - n,
             "; the file has none, such as '0F0'");
}

int pp_csv_parse(const char *text, size_t n, const struct pp_import_options *o,
                 struct pp_import *c, struct pp_err *err)
{
    struct hole hole = {0};
    if (pp_import_begin(c, "csv", count_lines(text, n), o, err) ||
        read_rows(c, o, text, n, &hole, err))
        goto fail;
    c->pytorch = true;
    if (o->faults && o->faults->n > 0) {
        if (!has_actions(&c->schedule))
            tell_first(o->faults);
        pp_import_finish(c);
        return 0;
    }
    if (pp_import_complete(c, o, err) ||
        (!o->lenient && check_hole(c, &hole, err)))
        goto fail;
    return 0;
fail:
    pp_import_finish(c);
    return pp_fail_at(err, "%s: ", o->name);
}
