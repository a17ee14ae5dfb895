/* SPDX-License-Identifier: MIT */
/* Reading. Cells are parsed first, onto a graph of ranks without stages. Then
 * the graph is made from the stages and ranks of the cells. */
#include "schedule/csv/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/csv/csv_dialect.h"

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

static int read_cell(struct pp_csv *c, int row, const char *text, size_t n,
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
        c->messages |= pp_is_send(a.op) || pp_is_recv(a.op);
        c->sharding |=
            a.op == PP_UNSHARD || a.op == PP_RESHARD || a.op == PP_REDUCE_GRAD;
    }
    return 0;
}

static bool is_blank(char ch)
{
    return ch == ' ' || ch == '\t';
}

static int read_cells(struct pp_csv *c, const struct pp_csv_options *o, int row,
                      const char *text, size_t n, struct pp_csv_waits *waits,
                      struct hole *hole, struct pp_err *err)
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
            c->columns[row][before] = column;
        if (rc)
            pp_fail_at(err, "rank %d, cell %zu: ", row, place);
        if (rc && !pp_faults_take(o->faults, row, column, err))
            return -1;
    }
    return 0;
}

/* Makes room for the columns of a row: a cell has one action or two, and two
 * syncs may follow them, which have none. */
static int add_columns(struct pp_csv *c, int row, const char *text, size_t n,
                       struct pp_err *err)
{
    size_t cells = 1;
    for (size_t i = 0; i < n; i++)
        cells += text[i] == ',';
    c->columns[row] =
        pp_arena_alloc(&c->arena, 2 * cells + 2, sizeof *c->columns[row]);
    return c->columns[row] ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static int read_row(struct pp_csv *c, const struct pp_csv_options *o, int row,
                    const char *text, size_t n, struct hole *hole,
                    struct pp_err *err)
{
    struct pp_csv_waits waits = {0};
    size_t known = o->faults ? o->faults->n : 0;
    int rc = add_columns(c, row, text, n, err) ||
             read_cells(c, o, row, text, n, &waits, hole, err);
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

static int read_rows(struct pp_csv *c, const struct pp_csv_options *o,
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
static int check_hole(const struct pp_csv *c, const struct hole *hole,
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

/* --- stages and microbatches --- */

/* Finds the rank of every stage, -1 if no compute action names it. *n_stages is
 * at most the number of actions. */
static int find_owners(struct pp_csv *c, int **owners, int *n_stages,
                       struct pp_err *err)
{
    size_t most = pp_schedule_n_compute(&c->schedule);
    int *row_of = pp_arena_alloc(&c->arena, most, sizeof *row_of);
    if (!row_of)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < most; i++)
        row_of[i] = -1;
    *n_stages = 0;
    for (int r = 0; r < c->graph.n_rows; r++)
        for (size_t i = 0; i < c->schedule.rows[r].n; i++) {
            struct pp_action a = c->schedule.rows[r].actions[i];
            if (!pp_is_compute(a.op))
                continue;
            if ((size_t)a.stage >= most)
                return pp_fail(err, PP_EXIT_NO,
                               "rank %d, action %zu: stage '%d' is too large "
                               "for %zu compute actions",
                               r, i, a.stage, most);
            if (row_of[a.stage] >= 0 && row_of[a.stage] != r)
                return pp_fail(err, PP_EXIT_NO,
                               "rank %d, action %zu: stage '%d' is already on "
                               "rank %d",
                               r, i, a.stage, row_of[a.stage]);
            row_of[a.stage] = r;
            if (a.stage >= *n_stages)
                *n_stages = a.stage + 1;
        }
    *owners = row_of;
    return 0;
}

static int make_graph(struct pp_csv *c, struct pp_err *err)
{
    int *owners = NULL, n = 0;
    if (find_owners(c, &owners, &n, err))
        return -1;
    if (n == 0)
        return pp_fail(err, PP_EXIT_NO, "the file has no compute actions");
    struct pp_stage_node *nodes =
        pp_arena_alloc(&c->arena, (size_t)n, sizeof *nodes);
    int *inputs = pp_arena_alloc(&c->arena, (size_t)n, sizeof *inputs);
    if (!nodes || !inputs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < n; s++) {
        if (owners[s] < 0)
            return pp_fail(err, PP_EXIT_NO, "stage %d is on no rank", s);
        inputs[s] = s - 1;
        nodes[s] = (struct pp_stage_node){
            .row = owners[s], .n_inputs = s > 0, .inputs = &inputs[s]};
    }
    c->graph.stages = nodes;
    c->graph.n_stages = n;
    return pp_graph_connect(&c->arena, &c->graph, err);
}

/* Returns the largest number of forwards of a stage, or the largest microbatch
 * number plus one if that is less, so that a single wrong number is found. */
static int count_microbatches(const struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    int *forwards = calloc((size_t)g->n_stages, sizeof *forwards);
    int most = 0, last = 0;
    if (!forwards)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.op != PP_F || a.stage >= g->n_stages)
                continue;
            most = ++forwards[a.stage] > most ? forwards[a.stage] : most;
            last = a.microbatch > last ? a.microbatch : last;
        }
    free(forwards);
    return last < most ? last + 1 : most;
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

int pp_csv_parse(const char *text, size_t n, const struct pp_csv_options *o,
                 struct pp_csv *c, struct pp_err *err)
{
    size_t lines = count_lines(text, n);
    struct hole hole = {0};
    *c = (struct pp_csv){.graph = {.tied = {-1, -1}}};
    if (lines == 0)
        return pp_fail(err, PP_EXIT_INPUT, "the file has no rows");
    if (lines > PP_CSV_ROWS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the file has %zu rows, more than %d", lines,
                       PP_CSV_ROWS);
    if (o->on && lines != (size_t)o->on->n_rows)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the file has %zu rows, but the manifest has %d "
                       "pipeline ranks",
                       lines, o->on->n_rows);
    c->graph.n_rows = (int)lines;
    c->columns = pp_arena_alloc(&c->arena, lines, sizeof *c->columns);
    if (!c->columns) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto fail;
    }
    if (pp_schedule_init(&c->schedule, &c->graph, "csv", o->n_microbatches,
                         err) ||
        read_rows(c, o, text, n, &hole, err))
        goto fail;
    if (o->faults && o->faults->n > 0) {
        if (!has_actions(&c->schedule))
            tell_first(o->faults);
        pp_csv_finish(c);
        return 0;
    }
    if (!o->on && make_graph(c, err))
        goto fail;
    c->schedule.graph = o->on ? o->on : &c->graph;
    if (!o->lenient && check_hole(c, &hole, err))
        goto fail;
    pp_schedule_imply_peers(&c->schedule);
    if (o->n_microbatches == 0)
        c->schedule.n_microbatches = count_microbatches(&c->schedule, err);
    if (c->schedule.n_microbatches >= 0)
        return 0;
fail:
    pp_csv_finish(c);
    return -1;
}

void pp_csv_finish(struct pp_csv *c)
{
    pp_schedule_finish(&c->schedule);
    pp_arena_finish(&c->arena);
    *c = (struct pp_csv){0};
}
