/* SPDX-License-Identifier: MIT */
#include "run/train/job_channels.h"

#include <stdlib.h>

#include "base/num.h"

/* Whether a channel is used, by (from, to, lane). */
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

/* Pairs that begin at an even rank, then the others. */
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
