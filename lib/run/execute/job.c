/* SPDX-License-Identifier: MIT */
/* job - the memory and the channels that the ranks of a job need. */
#include "run/execute/job.h"

#include <stdlib.h>

#include "base/num.h"
#include "run/execute/sync.h"
#include "schedule/ir/deps.h"

/* Returns the most tokens, with padding, that a buffer must hold. */
static size_t most_tokens(const struct pp_job *j, const struct pp_packed *p)
{
    return j->shapes == PP_MESSAGE_MAX ? p->capacity : p->max_tokens;
}

static size_t largest(const struct pp_job *j, bool tokens)
{
    size_t a = tokens ? most_tokens(j, j->data) : j->data->max_seqlen, b = 0;
    if (j->eval)
        b = tokens ? most_tokens(j, j->eval) : j->eval->max_seqlen;
    return a > b ? a : b;
}

static const struct pp_device_ops *device_of(const struct pp_job *j)
{
    return j->device ? j->device : &pp_device_cpu;
}

void pp_job_room(const struct pp_job *j, struct pp_engine_room *room)
{
    size_t slices = (size_t)j->schedule->graph->n_slices;
    size_t capacity = largest(j, true), positions = largest(j, false);
    *room = (struct pp_engine_room){
        .capacity = capacity,
        .tokens =
            pp_device_rows(device_of(j), (capacity + slices - 1) / slices),
        .positions = positions,
        .context = slices > 1 ? positions : 0};
}

enum pp_recompute pp_job_recompute(const struct pp_job *j, int stage)
{
    return j->recompute ? j->recompute[stage] : PP_RECOMPUTE_NONE;
}

void pp_job_sizes(const struct pp_job *j, struct pp_stage_bytes *out)
{
    struct pp_engine_room room;
    pp_job_room(j, &room);
    for (int s = 0; s < j->schedule->graph->n_stages; s++)
        pp_stage_sizes(j->model, j->stages[s].first, j->stages[s].n,
                       pp_job_recompute(j, s), j->kernels, room.tokens,
                       &out[s]);
}

bool pp_job_overlaps(const struct pp_job *j, int rank)
{
    const struct pp_row *row = &j->schedule->rows[rank];
    if (!device_of(j)->streams || j->time_products || j->record.layers ||
        j->optim.steps == 0 || j->score)
        return false;
    for (size_t i = 0; i < row->n; i++)
        if (row->actions[i].overlap)
            return true;
    return false;
}

/* Returns the elements to receive gradients of the tied embedding or head from
 * another rank. */
static size_t tied_elements(const struct pp_job *j, int rank)
{
    const struct pp_graph *g = j->schedule->graph;
    size_t n = 0;
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies; k++) {
        int first = k * (g->n_stages / g->n_copies);
        int embed = g->stages[g->tied[0] + first].row;
        int head = g->stages[g->tied[1] + first].row;
        if (embed != head && (rank == embed || rank == head))
            n += j->model->vocab * j->model->hidden;
    }
    return n;
}

size_t pp_job_workspace(const struct pp_job *j, int rank)
{
    const struct pp_kernels *k = j->kernels;
    struct pp_engine_room room;
    pp_job_room(j, &room);
    size_t engines = pp_job_overlaps(j, rank) ? 2 : 1;
    size_t engine = device_of(j)->handle_bytes +
                    pp_engine_scratch(j, rank, &room) * k->element_bytes +
                    pp_batch_bytes(room.capacity);
    size_t wide = room.positions * (j->model->head_dim / 2) * 2;
    wide += tied_elements(j, rank);
    if (j->schedule->graph->n_copies > 1)
        wide += PP_COPIED_PART;
    return engines * engine + wide * k->accumulator_bytes;
}

/* The messages of a row that are posted and not yet used. */
struct held {
    const struct pp_graph *graph;
    int *n; /* by 2 * peer row + direction */
};

static int *held_of(const struct held *h, int peer, enum pp_op recv)
{
    return &h->n[2 * h->graph->stages[peer].row + (recv == PP_RECV_B)];
}

static int use_held(void *ctx, struct pp_dep dep)
{
    if (dep.message != PP_N_OPS)
        --*held_of(ctx, dep.stage, dep.message);
    return 0;
}

static int most_of_row(const struct pp_row *row, struct held *h)
{
    int most = 1;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        bool uses = a.op == PP_F ||
                    (pp_is_compute(a.op) && pp_consumes_gradient(h->graph, a));
        int n = pp_is_recv(a.op) ? ++*held_of(h, a.peer, a.op) : 0;
        most = n > most ? n : most;
        if (uses)
            pp_deps(h->graph, a, use_held, h);
    }
    return most;
}

int pp_job_receives(const struct pp_schedule *s, int *most, struct pp_err *err)
{
    size_t n = 2 * (size_t)s->graph->n_rows;
    struct held h = {s->graph, calloc(n, sizeof *h.n)};
    if (!h.n)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    *most = 1;
    for (int r = 0; r < s->graph->n_rows; r++) {
        int of_row = most_of_row(&s->rows[r], &h);
        *most = of_row > *most ? of_row : *most;
    }
    free(h.n);
    return 0;
}

int pp_job_channel_room(const struct pp_job *j, struct pp_comm_room *room,
                        struct pp_err *err)
{
    int forward = 1;
    room->depth = j->schedule->channel_depth;
    if (pp_job_receives(j->schedule, &room->receives, err) ||
        (j->forward && pp_job_receives(j->forward, &forward, err)))
        return -1;
    room->receives = forward > room->receives ? forward : room->receives;
    return 0;
}

/* Marks the channels in use, by (from, to, direction). */
struct uses {
    int n_ranks;
    unsigned char *at;
};

static unsigned char *use_of(const struct uses *u, int from, int to,
                             int direction)
{
    size_t pair = (size_t)from * (size_t)u->n_ranks + (size_t)to;
    return &u->at[pair * PP_N_DIRECTIONS + (size_t)direction];
}

static void use_both_ways(const struct uses *u, int a, int b)
{
    if (a == b)
        return;
    *use_of(u, a, b, PP_DIRECTION_SYNC) = 1;
    *use_of(u, b, a, PP_DIRECTION_SYNC) = 1;
}

static void find_uses(const struct pp_schedule *s, const struct uses *u)
{
    const struct pp_graph *g = s->graph;
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (a.op == PP_SEND_F || a.op == PP_SEND_B)
                *use_of(u, r, g->stages[a.peer].row,
                        a.op == PP_SEND_F ? PP_DIRECTION_FORWARD
                                          : PP_DIRECTION_BACKWARD) = 1;
        }
    int copied = g->n_stages / g->n_copies;
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies; k++)
        use_both_ways(u, g->stages[g->tied[0] + k * copied].row,
                      g->stages[g->tied[1] + k * copied].row);
    for (int i = copied; i < g->n_stages; i++)
        use_both_ways(u, g->stages[i % copied].row, g->stages[i].row);
}

/* Sorts pairs whose lower rank is even before the others. */
static int in_order(const void *a, const void *b)
{
    const struct pp_comm_channel *x = a, *y = b;
    int x_low = x->from < x->to ? x->from : x->to;
    int y_low = y->from < y->to ? y->from : y->to;
    const int keys[][2] = {{x_low % 2, y_low % 2},
                           {x_low, y_low},
                           {x->from + x->to, y->from + y->to},
                           {x->from, y->from},
                           {(int)x->direction, (int)y->direction}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

int pp_job_channels(const struct pp_schedule *s, struct pp_comm_channel **at,
                    size_t *n, struct pp_err *err)
{
    size_t ranks = (size_t)s->graph->n_rows, most;
    *n = 0;
    if (pp_mul(ranks * PP_N_DIRECTIONS, ranks, &most, err))
        return -1;
    struct uses u = {s->graph->n_rows, calloc(most, 1)};
    *at = calloc(most, sizeof **at);
    if (!u.at || !*at) {
        free(u.at);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    find_uses(s, &u);
    for (int from = 0; from < u.n_ranks; from++)
        for (int to = 0; to < u.n_ranks; to++)
            for (int direction = 0; direction < PP_N_DIRECTIONS; direction++)
                if (*use_of(&u, from, to, direction))
                    (*at)[(*n)++] = (struct pp_comm_channel){
                        from, to, (enum pp_direction)direction};
    qsort(*at, *n, sizeof **at, in_order);
    free(u.at);
    return 0;
}
