/* SPDX-License-Identifier: MIT */
/* The times of an order: heads and tails of all ops. */
#include "schedule/search/search_problem.h"

#include <math.h>
#include <stdlib.h>

int pp_eval_init(struct pp_eval *e, const struct pp_search_problem *j,
                 struct pp_err *err)
{
    size_t n = (size_t)j->n_ops, p = (size_t)j->graph->n_rows;
    *e = (struct pp_eval){.problem = j};
    e->start = calloc(n, sizeof *e->start);
    e->tail = calloc(n, sizeof *e->tail);
    e->sorted = calloc(n, sizeof *e->sorted);
    e->at = calloc(p, sizeof *e->at);
    e->clock = calloc(p, sizeof *e->clock);
    e->queue = calloc(p, sizeof *e->queue);
    e->queued = calloc(p, sizeof *e->queued);
    if (!e->start || !e->tail || !e->sorted || !e->at || !e->clock ||
        !e->queue || !e->queued)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

void pp_eval_finish(struct pp_eval *e)
{
    free(e->start);
    free(e->tail);
    free(e->sorted);
    free(e->at);
    free(e->clock);
    free(e->queue);
    free(e->queued);
    *e = (struct pp_eval){0};
}

/* Reports if everything that op waits for on other stages is done; raises
 * *ready to that time. */
static inline bool inputs_done(const struct pp_eval *e, int32_t op,
                               double *ready)
{
    const struct pp_search_problem *j = e->problem;
    for (int32_t i = j->first_in[op]; i < j->first_in[op + 1]; i++) {
        int32_t from = j->in[i].op;
        if (e->start[from] < 0)
            return false;
        double t = e->start[from] + j->time[from] + j->in[i].lag;
        *ready = t > *ready ? t : *ready;
    }
    return true;
}

/* A ring of ranks to try. A rank is in it at most once. */
struct ring {
    int first, n;
};

static void push(struct pp_eval *e, struct ring *q, int row)
{
    int p = e->problem->graph->n_rows;
    if (e->queued[row])
        return;
    e->queued[row] = true;
    e->queue[(q->first + q->n++) % p] = row;
}

/* Runs a rank as far as it goes. Returns the number of ops done in all. */
static int32_t run_row(struct pp_eval *e, const int32_t *order, int row,
                       struct ring *q, int32_t n)
{
    const struct pp_search_problem *j = e->problem;
    int32_t end = j->first_order[row + 1], k = e->at[row];
    double clock = e->clock[row];
    for (; k < end; k++) {
        int32_t op = order[k];
        double ready = clock;
        if (!inputs_done(e, op, &ready))
            break;
        e->start[op] = ready;
        e->sorted[n++] = op;
        clock = ready + j->time[op];
        for (int32_t i = j->first_out[op]; i < j->first_out[op + 1]; i++) {
            int other = j->row[j->group[j->out[i].op]];
            if (other != row)
                push(e, q, other);
        }
    }
    e->at[row] = k;
    e->clock[row] = clock;
    return n;
}

bool pp_eval_heads(struct pp_eval *e, const int32_t *order)
{
    const struct pp_search_problem *j = e->problem;
    int p = j->graph->n_rows;
    struct ring q = {0};
    int32_t n = 0;
    for (int32_t op = 0; op < j->n_ops; op++)
        e->start[op] = -1;
    for (int r = 0; r < p; r++) {
        e->at[r] = j->first_order[r];
        e->clock[r] = 0;
        e->queued[r] = false;
        push(e, &q, r);
    }
    while (q.n > 0) {
        int row = e->queue[q.first];
        q.first = (q.first + 1) % p;
        q.n--;
        e->queued[row] = false;
        n = run_row(e, order, row, &q, n);
    }
    e->worst = -INFINITY;
    for (int r = 0; r < p; r++)
        if (e->clock[r] + j->late[r] > e->worst)
            e->worst = e->clock[r] + j->late[r];
    return n == j->n_ops;
}

void pp_eval_tails(struct pp_eval *e)
{
    const struct pp_search_problem *j = e->problem;
    for (int r = 0; r < j->graph->n_rows; r++)
        e->clock[r] = j->late[r];
    for (int32_t k = j->n_ops - 1; k >= 0; k--) {
        int32_t op = e->sorted[k];
        int row = j->row[j->group[op]];
        double tail = e->clock[row];
        for (int32_t i = j->first_out[op]; i < j->first_out[op + 1]; i++) {
            int32_t to = j->out[i].op;
            double t = j->out[i].lag + j->time[to] + e->tail[to];
            tail = t > tail ? t : tail;
        }
        e->tail[op] = tail;
        e->clock[row] = tail + j->time[op];
    }
}

double pp_eval_makespan(const struct pp_eval *e, const int32_t *order)
{
    const struct pp_search_problem *j = e->problem;
    double makespan = 0;
    for (int r = 0; r < j->graph->n_rows; r++) {
        int32_t last = j->first_order[r + 1] - 1;
        if (last >= j->first_order[r])
            makespan =
                fmax(makespan, e->start[order[last]] + j->time[order[last]]);
    }
    return makespan;
}

double pp_eval_span(const struct pp_eval *e, const int32_t *order)
{
    const struct pp_search_problem *j = e->problem;
    double span = 0;
    for (int r = 0; r < j->graph->n_rows; r++) {
        int32_t first = j->first_order[r], last = j->first_order[r + 1] - 1;
        if (first > last)
            continue;
        double t = e->start[order[last]] + j->time[order[last]] -
                   e->start[order[first]];
        span = t > span ? t : span;
    }
    return span;
}
