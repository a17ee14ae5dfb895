/* SPDX-License-Identifier: MIT */
/* job_channels - the channels that the ranks of a job use, and the messages in
 * each. */
#include "run/execute/job.h"

#include <stdlib.h>

#include "base/num.h"
#include "schedule/ir/deps.h"

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

/* The channels in use, by (from, to, direction). */
struct uses {
    struct pp_layout layout;
    int n_ranks;
    unsigned char *at;
};

static unsigned char *use_of(const struct uses *u, int from, int to,
                             int direction)
{
    size_t pair = (size_t)from * (size_t)u->n_ranks + (size_t)to;
    return &u->at[pair * PP_N_DIRECTIONS + (size_t)direction];
}

static void use_both_ways(const struct uses *u, int a, int b,
                          enum pp_direction direction)
{
    if (a == b)
        return;
    *use_of(u, a, b, direction) = 1;
    *use_of(u, b, a, direction) = 1;
}

static void sync_rows(const struct uses *u, const struct pp_place *p, int a,
                      int b)
{
    use_both_ways(u, pp_layout_peer(&u->layout, p, a),
                  pp_layout_peer(&u->layout, p, b), PP_DIRECTION_SYNC);
}

/* Marks those of the messages that a rank sends. */
static void use_for_messages(const struct uses *u, const struct pp_schedule *s,
                             const struct pp_place *p, int rank)
{
    const struct pp_row *row = &s->rows[p->row];
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (!pp_is_send(a.op))
            continue;
        const struct pp_group to =
            pp_layout_partners(&u->layout, p, s->graph->stages[a.peer].row);
        for (int k = 0; k < to.n; k++)
            *use_of(u, rank, pp_group_rank(&to, k),
                    a.op == PP_SEND_F ? PP_DIRECTION_FORWARD
                                      : PP_DIRECTION_BACKWARD) = 1;
    }
}

/* Marks those between stages that hold the same weights, tied or copied. Copies
 * are all in the language model. */
static void use_for_same_weights(const struct uses *u, const struct pp_graph *g,
                                 const struct pp_place *p)
{
    int copied = g->n_stages / g->n_copies;
    bool language =
        &u->layout.components[p->component] == pp_layout_language(&u->layout);
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies && language; k++)
        sync_rows(u, p, g->stages[g->tied[0] + k * copied].row,
                  g->stages[g->tied[1] + k * copied].row);
    for (int i = copied; i < g->n_stages; i++)
        sync_rows(u, p, g->stages[i % copied].row, g->stages[i].row);
}

/* Marks those within the groups that a rank is in. */
static void use_for_groups(const struct uses *u, const struct pp_place *p,
                           int rank)
{
    static const struct {
        enum pp_group_kind kind;
        enum pp_direction direction;
        bool encoder; /* only if the encoder divides the ranks in its own way */
    } within[] = {{PP_GROUP_DATA, PP_DIRECTION_WEIGHTS, false},
                  {PP_GROUP_EXPERT_DATA, PP_DIRECTION_WEIGHTS, false},
                  {PP_GROUP_TP, PP_DIRECTION_DATA, false},
                  {PP_GROUP_EP, PP_DIRECTION_DATA, false},
                  {PP_GROUP_SHARERS, PP_DIRECTION_DATA, false},
                  {PP_GROUP_FEATURES, PP_DIRECTION_DATA, true},
                  {PP_GROUP_ENCODER_DATA, PP_DIRECTION_WEIGHTS, true}};
    bool own = pp_layout_language(&u->layout)->mesh.encoder_tp > 0;
    for (size_t k = 0; k < sizeof within / sizeof *within; k++) {
        if (within[k].encoder && !own)
            continue;
        struct pp_group group = pp_layout_group(&u->layout, p, within[k].kind);
        for (int i = 0; i < group.n; i++)
            use_both_ways(u, rank, pp_group_rank(&group, i),
                          within[k].direction);
    }
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

int pp_job_channels(const struct pp_job *j, struct pp_comm_channel **at,
                    size_t *n, struct pp_err *err)
{
    struct uses u = {.layout = pp_job_layout(j)};
    size_t ranks, most;
    u.n_ranks = pp_layout_ranks(&u.layout);
    ranks = (size_t)u.n_ranks;
    *n = 0;
    if (pp_mul(ranks * PP_N_DIRECTIONS, ranks, &most, err))
        return -1;
    u.at = calloc(most, 1);
    *at = calloc(most, sizeof **at);
    if (!u.at || !*at) {
        free(u.at);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    for (int rank = 0; rank < u.n_ranks; rank++) {
        struct pp_place p;
        if (!pp_layout_find(&u.layout, rank, &p))
            continue;
        use_for_messages(&u, j->schedule, &p, rank);
        use_for_same_weights(&u, j->schedule->graph, &p);
        use_for_groups(&u, &p, rank);
    }
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
