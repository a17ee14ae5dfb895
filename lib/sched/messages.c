/* SPDX-License-Identifier: MIT */
#include "sched/messages.h"

#include <limits.h>
#include <stdlib.h>

#include "base/num.h"
#include "sched/cells.h"
#include "sched/deps.h"

enum { N_CLASSES = 3 }; /* of compute actions: F, I or B, W or B */

/* Where everything is, in its rank's row. */
struct places {
    struct pp_cells cells;
    size_t *compute; /* by cell and class */
    size_t *recv;    /* by link and direction */
};

static size_t *compute_at(const struct places *p, struct pp_action a, int stage,
                          int class)
{
    size_t cell = pp_cell(&p->cells, stage, a.microbatch, a.slice);
    return &p->compute[N_CLASSES * cell + (size_t) class];
}

/* The place of the RECV that a SEND or RECV belongs to. */
static size_t *recv_at(const struct places *p, struct pp_action a)
{
    struct pp_action send = pp_is_send(a.op) ? a : pp_other_end(a);
    bool backward = send.op == PP_SEND_B;
    int from = backward ? send.peer : send.stage;
    int to = backward ? send.stage : send.peer;
    size_t link = pp_link(&p->cells, from, to, a.microbatch, a.slice);
    return &p->recv[2 * link + backward];
}

static int init(struct places *p, const struct pp_schedule *s,
                struct pp_err *err)
{
    size_t n, bytes, n_recv, recv_bytes;
    if (pp_cells_init(&p->cells, s, err) ||
        pp_mul(p->cells.n_cells, N_CLASSES, &n, err) ||
        pp_mul(n, sizeof *p->compute, &bytes, err) ||
        pp_mul(p->cells.n_links, 2, &n_recv, err) ||
        pp_mul(n_recv, sizeof *p->recv, &recv_bytes, err))
        return -1;
    p->compute = malloc(bytes + 1);
    p->recv = malloc(recv_bytes + 1);
    return p->compute && p->recv
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static void finish(struct places *p)
{
    free(p->compute);
    free(p->recv);
    pp_cells_finish(&p->cells);
}

static void note_row(const struct places *p, const struct pp_row *row)
{
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (a.op == PP_F)
            *compute_at(p, a, a.stage, 0) = i;
        if (a.op == PP_I || a.op == PP_B)
            *compute_at(p, a, a.stage, 1) = i;
        if (a.op == PP_W || a.op == PP_B)
            *compute_at(p, a, a.stage, 2) = i;
        if (pp_is_recv(a.op))
            *recv_at(p, a) = i;
    }
}

/* Where a received message is used. */
static int consumer_class(const struct pp_graph *g, struct pp_action send)
{
    if (send.op == PP_SEND_F)
        return 0;
    return g->stages[send.peer].input_grad ? 1 : 2;
}

/* When the producer is done, an overlap pair being done as a whole. */
static double done(const struct pp_schedule *s, const struct pp_sim_rank *ranks,
                   const struct pp_message *m)
{
    size_t i = m->producer;
    return ranks[m->from].spans[i + s->rows[m->from].actions[i].overlap].end;
}

/* What pp_simulate's two players make of the ends: see sim.c. */
static void set_times(const struct pp_schedule *s,
                      const struct pp_sim_rank *ranks,
                      const struct pp_costs *costs, int depth,
                      struct pp_message *m)
{
    const struct pp_span *send = &ranks[m->from].spans[m->send];
    if (!costs) {
        m->leaves = send->start;
        m->arrives = ranks[m->to].spans[m->recv].end;
        return;
    }
    double time = costs->time(costs->ctx, m->action);
    m->leaves = depth == INT_MAX ? done(s, ranks, m)
                : depth == 0     ? send->end - time
                                 : send->end;
    m->arrives = m->leaves + time;
}

static size_t count(const struct pp_schedule *s)
{
    size_t n = 0;
    for (int r = 0; r < s->graph->n_ranks; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            n += pp_is_send(s->rows[r].actions[i].op);
    return n;
}

int pp_messages_find(const struct pp_schedule *s,
                     const struct pp_sim_rank *ranks,
                     const struct pp_costs *costs, int depth,
                     struct pp_messages *m, struct pp_err *err)
{
    struct places p = {0};
    const struct pp_graph *g = s->graph;
    *m = (struct pp_messages){0};
    m->at = calloc(count(s) + 1, sizeof *m->at);
    int rc = m->at ? init(&p, s, err)
                   : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < g->n_ranks && !rc; r++)
        note_row(&p, &s->rows[r]);
    for (int r = 0; r < g->n_ranks && !rc; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_send(a.op))
                continue;
            struct pp_message *k = &m->at[m->n++];
            *k = (struct pp_message){.action = a, .from = r, .send = i};
            k->to = g->stages[a.peer].rank;
            k->recv = *recv_at(&p, a);
            k->producer = *compute_at(&p, a, a.stage, a.op == PP_SEND_B);
            k->consumer = *compute_at(&p, a, a.peer, consumer_class(g, a));
            set_times(s, ranks, costs, depth, k);
        }
    finish(&p);
    if (rc)
        pp_messages_finish(m);
    return rc;
}

void pp_messages_finish(struct pp_messages *m)
{
    free(m->at);
    *m = (struct pp_messages){0};
}
