/* SPDX-License-Identifier: MIT */
/* The stages and microbatches of an imported schedule. Its actions are read
 * first, onto a graph of ranks without stages; then they say which stages there
 * are. */
#include "schedule/files/import.h"

#include <stdlib.h>

#include "base/alloc.h"

int pp_import_begin(struct pp_import *c, const char *kind, size_t n_rows,
                    const struct pp_import_options *o, struct pp_err *err)
{
    *c = (struct pp_import){.graph = {.tied = {-1, -1}}};
    if (n_rows == 0)
        return pp_fail(err, PP_EXIT_INPUT, "the file has no rows");
    if (n_rows > PP_IMPORT_ROWS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the file has %zu rows, more than %d", n_rows,
                       PP_IMPORT_ROWS);
    if (o->n_rows && n_rows != (size_t)o->n_rows)
        return pp_fail(err, PP_EXIT_INPUT,
                       "the file has %zu rows, but %s %d pipeline ranks",
                       n_rows, o->on ? "the manifest has" : "there are",
                       o->n_rows);
    c->graph.n_rows = (int)n_rows;
    pp_schedule_init(&c->schedule, &c->graph, kind, o->n_microbatches);
    return 0;
}

void pp_import_add_places(struct pp_import *c, int row, size_t n)
{
    size_t rows = (size_t)c->graph.n_rows;
    if (!c->places)
        c->places = pp_arena_alloc(&c->arena, rows, sizeof *c->places);
    if (c->places)
        c->places[row] = pp_arena_alloc(&c->arena, n, sizeof **c->places);
}

/* Finds the rank of every stage, -1 if no compute action names it. *n_stages is
 * at most the number of actions. */
static int find_owners(struct pp_import *c, int **owners, int *n_stages,
                       struct pp_err *err)
{
    size_t most = pp_schedule_count(&c->schedule, PP_COMPUTE_OPS);
    int *row_of = pp_arena_alloc(&c->arena, most, sizeof *row_of);
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

/* Returns the number of slices of a microbatch. */
static int count_slices(const struct pp_schedule *s)
{
    int most = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (s->rows[r].actions[i].slice > most)
                most = s->rows[r].actions[i].slice;
    return most + 1;
}

static int make_graph(struct pp_import *c, struct pp_err *err)
{
    int *owners = NULL, n = 0;
    if (find_owners(c, &owners, &n, err))
        return -1;
    if (n == 0)
        return pp_fail(err, PP_EXIT_NO, "the file has no compute actions");
    struct pp_stage_node *nodes =
        pp_arena_alloc(&c->arena, (size_t)n, sizeof *nodes);
    int *inputs = pp_arena_alloc(&c->arena, (size_t)n, sizeof *inputs);
    int copies = c->graph.n_copies ? c->graph.n_copies : 1;
    for (int s = 0; s < n; s++) {
        bool first = s == 0 || (s % (n / copies) == 0 && n % copies == 0);
        if (owners[s] < 0)
            return pp_fail(err, PP_EXIT_NO, "stage %d is on no rank", s);
        inputs[s] = s - 1;
        nodes[s] = (struct pp_stage_node){
            .row = owners[s], .n_inputs = !first, .inputs = &inputs[s]};
    }
    c->graph.stages = nodes;
    c->graph.n_stages = n;
    return pp_graph_connect(&c->arena, &c->graph, err);
}

/* Returns the largest number of forwards of a stage, or the largest microbatch
 * number plus one if that is less, so that a single wrong number is found. */
static int count_microbatches(const struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    int *forwards = pp_calloc((size_t)g->n_stages, sizeof *forwards);
    int most = 0, last = 0;
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

int pp_import_complete(struct pp_import *c, const struct pp_import_options *o,
                       struct pp_err *err)
{
    c->graph.slices.n = count_slices(&c->schedule);
    if (!o->on && make_graph(c, err))
        return -1;
    c->schedule.graph = o->on ? o->on : &c->graph;
    pp_schedule_imply_peers(&c->schedule);
    if (c->schedule.n_microbatches == 0)
        c->schedule.n_microbatches = count_microbatches(&c->schedule);
    return c->schedule.n_microbatches < 0 ? -1 : 0;
}

void pp_import_finish(struct pp_import *c)
{
    pp_schedule_finish(&c->schedule);
    pp_arena_finish(&c->arena);
    *c = (struct pp_import){0};
}
