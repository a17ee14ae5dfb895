/* SPDX-License-Identifier: MIT */
/* Building blocks in a V. The block is built first; then each rank writes its
 * row in the order of the repeated block, as far as memory allows. */
#include "schedule/search/search_methods.h"

#include <math.h>
#include <stdlib.h>

#include "schedule/ir/play.h"

enum {
    ACTIONS = 4
}; /* actions of a microbatch on a rank, without weight gradients */

/* The times at which a rank runs them for the first microbatch. */
struct slots {
    double begin[ACTIONS], end[ACTIONS];
    int n;
};

struct vblocks {
    const struct pp_search_problem *problem;
    const struct pp_vblock_knobs *knobs;
    double period;
    bool reserve;   /* keep memory for the way back: see has_room */
    double *offset; /* per group but W's: its action's start in the block */
    double *base;   /* per microbatch: start of its block */
    struct slots *slots; /* per rank */
    int32_t *order;
};

struct pp_vblock_knobs pp_vblock_setting(int i)
{
    static const double waits[] = {0, 1, 0.5};
    struct pp_vblock_knobs k = {.min_fill = i % 2 == 0 ? 1 : 0.01};
    i /= 2;
    for (int way = 0; way < ACTIONS; way++, i /= 3)
        k.wait[way] = waits[i % 3];
    return k;
}

/* Returns the end of the slot, of any microbatch, that [at, at + time)
 * overlaps; at if there is none. */
static double pass(const struct vblocks *v, const struct slots *s, double at,
                   double time)
{
    for (int i = 0; i < s->n; i++) {
        double length = s->end[i] - s->begin[i];
        double after = fmod(at - s->begin[i], v->period);
        after += after < 0 ? v->period : 0;
        /* Rounding must not count as an overlap. */
        double slack = 1e-9 * v->period;
        if (after < length - slack)
            return at + length - after;
        if (after + time > v->period + slack)
            return at + v->period - after + length;
    }
    return at;
}

/* Places an action at the first time from ready on that the repeated block
 * leaves free, or at ready if there is none. Returns its end. */
static double place(struct vblocks *v, int row, double ready, double time)
{
    struct slots *s = &v->slots[row];
    double at = ready;
    for (int i = 0; i <= ACTIONS; i++) {
        double next = pass(v, s, at, time);
        if (next <= at)
            break;
        at = next;
    }
    if (pass(v, s, at, time) > at)
        at = ready;
    s->begin[s->n] = at;
    s->end[s->n++] = at + time;
    return at + time;
}

/* Builds the block: each action starts as soon as it fits after the one that it
 * waits for. */
static void plan(struct vblocks *v)
{
    const struct pp_search_problem *j = v->problem;
    int n = j->graph->n_stages;
    double now = 0;
    for (int i = 0; i < 2 * n; i++) {
        int kind = i < n ? PP_PROBLEM_F : PP_PROBLEM_I;
        int stage = i < n ? i : 2 * n - 1 - i;
        int32_t op = pp_problem_op(j, kind, stage, 0);
        int group = j->group[op];
        double time = j->ops.time[op], ready = now;
        for (int32_t e = j->ops.in.first[op]; e < j->ops.in.first[op + 1]; e++)
            if (pp_problem_stage(j, j->ops.in.op[e]) != stage)
                ready = now + j->ops.in.lag[e];
        ready += v->knobs->wait[2 * i / n] * time;
        now = place(v, j->ops.row[op], ready, time);
        v->offset[group] = now - time;
    }
}

/* Returns the busiest rank's work for a microbatch. */
static double work(const struct pp_search_problem *j, int microbatch)
{
    double most = 0;
    int n = j->graph->n_stages;
    for (int s = 0; s < n / 2; s++) {
        double sum = 0;
        for (int kind = PP_PROBLEM_F; kind <= PP_PROBLEM_W; kind++)
            sum += j->ops.time[pp_problem_op(j, kind, s, microbatch)] +
                   j->ops.time[pp_problem_op(j, kind, n - 1 - s, microbatch)];
        most = fmax(most, sum);
    }
    return most;
}

/* A rank's row as it grows. */
struct vblock_row {
    const struct vblocks *v;
    int stage[2]; /* on the way down, and up */
    double limit, clock, held;
    int32_t done[2][3]; /* ops done, by stage and kind */
    int32_t *order;
};

static int32_t next_of_row(const struct vblock_row *r, int i, int kind)
{
    return pp_problem_op(r->v->problem, kind, r->stage[i], r->done[i][kind]);
}

/* Reports if the next op fits in memory. With a reserve, a forward on the way
 * down leaves memory for the one on the way up, so that they cannot deadlock.
 */
static bool has_room(const struct vblock_row *r, int i, int kind)
{
    const struct pp_search_problem *j = r->v->problem;
    double need = j->taken[j->group[next_of_row(r, i, kind)]];
    if (r->v->reserve && i == 0 && kind == PP_PROBLEM_F)
        need +=
            j->taken[j->group[pp_problem_op(j, PP_PROBLEM_F, r->stage[1], 0)]];
    return r->held + need <= r->limit;
}

/* Reports if the rank has run everything that the next op of that kind needs.
 */
static bool is_due(const struct vblock_row *r, int i, int kind)
{
    int32_t m = r->done[i][kind];
    if (m == r->v->problem->n_microbatches)
        return false;
    if (kind == PP_PROBLEM_F)
        return i == 0 || m < r->done[0][PP_PROBLEM_F];
    return m < r->done[i][PP_PROBLEM_F] &&
           (i == 1 || m < r->done[1][PP_PROBLEM_I]);
}

/* Returns the stage that owes more weight gradients, or -1. */
static int owing(const struct vblock_row *r)
{
    int owes[2];
    for (int i = 0; i < 2; i++)
        owes[i] = r->done[i][PP_PROBLEM_I] - r->done[i][PP_PROBLEM_W];
    int i = owes[1] > owes[0];
    return owes[i] > 0 ? i : -1;
}

static void add_op(struct vblock_row *r, int i, int kind)
{
    const struct pp_search_problem *j = r->v->problem;
    int32_t op = next_of_row(r, i, kind);
    r->clock += j->ops.time[op];
    r->held += j->taken[j->group[op]] - j->freed[j->group[op]];
    r->done[i][kind]++;
    *r->order++ = op;
}

/* Finds the next action of the block that fits in memory, or that fits after
 * weight gradients free some. Returns its time, or INFINITY at the end. */
static double next_of_block(const struct vblock_row *r, bool can_make,
                            int *stage, int *kind)
{
    double first = INFINITY;
    for (int i = 0; i < 2; i++)
        for (int k = PP_PROBLEM_F; k <= PP_PROBLEM_I; k++) {
            if (!is_due(r, i, k) || (!can_make && !has_room(r, i, k)))
                continue;
            int group = r->v->problem->group[next_of_row(r, i, k)];
            double at = r->v->offset[group] + r->v->base[r->done[i][k]];
            if (at < first) {
                first = at;
                *stage = i;
                *kind = k;
            }
        }
    return first;
}

/* Writes a row in the block's order, with weight gradients when they fit and
 * when their memory is needed. Returns false if memory does not suffice. */
static bool write_row(struct vblocks *v, int row)
{
    const struct pp_search_problem *j = v->problem;
    struct vblock_row r = {
        .v = v,
        .stage = {row, j->graph->n_stages - 1 - row},
        .limit = j->limit ? j->limit[row] + j->slack : INFINITY,
        .order = v->order + j->ops.first_order[row],
    };
    for (int32_t left = j->ops.first_order[row + 1] - j->ops.first_order[row];
         left > 0; left--) {
        int i = 0, kind = 0, weight = owing(&r);
        double at = next_of_block(&r, weight >= 0, &i, &kind);
        bool none = at == INFINITY || !has_room(&r, i, kind);
        if (none && weight < 0)
            return false;
        if (none ||
            (weight >= 0 &&
             r.clock + v->knobs->min_fill *
                           j->ops.time[next_of_row(&r, weight, PP_PROBLEM_W)] <=
                 at)) {
            add_op(&r, weight, PP_PROBLEM_W);
        } else {
            r.clock = fmax(r.clock, at);
            add_op(&r, i, kind);
        }
    }
    return true;
}

/* Reports if the stages are a chain, placed in a V. */
static bool is_v(const struct pp_search_problem *j)
{
    const struct pp_graph *g = j->graph;
    if (j->n_kinds < 3 || g->n_stages != 2 * g->n_rows ||
        j->ops.n != 3 * g->n_stages * j->n_microbatches)
        return false;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *node = &g->stages[s];
        int row = s < g->n_rows ? s : g->n_stages - 1 - s;
        if (node->row != row || node->n_inputs != (s > 0) ||
            (s > 0 && node->inputs[0] != s - 1))
            return false;
    }
    return true;
}

static bool write_all(struct vblocks *v)
{
    for (int r = 0; r < v->problem->graph->n_rows; r++)
        if (!write_row(v, r))
            return false;
    return true;
}

static bool run_vblocks(struct vblocks *v)
{
    const struct pp_search_problem *j = v->problem;
    v->period = work(j, 0);
    for (int m = 1; m < j->n_microbatches; m++)
        v->base[m] = v->base[m - 1] + work(j, m - 1);
    plan(v);
    if (write_all(v))
        return true;
    v->reserve = true;
    return write_all(v);
}

int pp_vblocks_run(const struct pp_search_problem *j,
                   const struct pp_vblock_knobs *knobs, int32_t *order,
                   struct pp_err *err)
{
    struct vblocks v = {.problem = j, .knobs = knobs, .order = order};
    size_t stages = (size_t)j->graph->n_stages;
    int rc = PP_AGAIN;
    if (!is_v(j))
        return PP_AGAIN;
    v.offset = calloc(2 * stages, sizeof *v.offset);
    v.base = calloc((size_t)j->n_microbatches, sizeof *v.base);
    v.slots = calloc(stages / 2, sizeof *v.slots);
    if (!v.offset || !v.base || !v.slots)
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (run_vblocks(&v))
        rc = 0;
    free(v.offset);
    free(v.base);
    free(v.slots);
    return rc;
}
