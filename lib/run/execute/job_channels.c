/* SPDX-License-Identifier: MIT */
/* job_channels - the channels that the ranks of a job use, and the messages in
 * each; the sets of ranks that exchange messages. */
#include "run/execute/job.h"

#include <stdlib.h>

#include "base/vec.h"
#include "comm/sets.h"
#include "comm/tree.h"
#include "run/execute/sync.h"
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

/* Counts receives when they are posted: receives up to the next compute action.
 */
static int most_of_row(const struct pp_row *row, struct held *h)
{
    int most = 1;
    size_t end = 0;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        bool uses = a.op == PP_F ||
                    (pp_is_compute(a.op) && pp_consumes_gradient(h->graph, a));
        for (bool next = true; next && end < row->n; end += next) {
            struct pp_action b = row->actions[end];
            int n = pp_is_recv(b.op) ? ++*held_of(h, b.peer, b.op) : 0;
            most = n > most ? n : most;
            next = end <= i || !pp_is_compute(b.op) ||
                   pp_is_second_of_pair(row, end);
        }
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

int pp_job_channel_capacity(const struct pp_job *j,
                            struct pp_comm_capacity *capacity,
                            struct pp_err *err)
{
    int forward = 1;
    capacity->depth = j->schedule->channel_depth;
    if (pp_job_receives(j->schedule, &capacity->receives, err) ||
        (j->forward && pp_job_receives(j->forward, &forward, err)))
        return -1;
    capacity->receives =
        forward > capacity->receives ? forward : capacity->receives;
    return 0;
}

/* The messages from a rank: as channels, or as sets of ranks. */
struct uses {
    struct pp_layout layout;
    int from;
    int only; /* a rank: lists the channels that it sends or receives in; or
                 -1 */
    struct pp_comm_sets *sets; /* NULL: channels */
    struct {
        struct pp_comm_channel *items;
        size_t n, capacity;
    } list;
};

static void use(struct uses *u, int to, enum pp_direction direction)
{
    const struct pp_comm_channel x = {u->from, to, direction};
    if (to == u->from || (u->only >= 0 && u->only != to && u->only != u->from))
        return;
    if (u->sets)
        pp_comm_sets_add_pair(u->sets, u->from, to, direction);
    else
        PP_VEC_PUSH(&u->list, x);
}

static void use_group(struct uses *u, const struct pp_group *g,
                      enum pp_direction direction)
{
    if (u->sets)
        pp_comm_sets_add_group(u->sets, g, direction);
    for (int i = 0; i < g->n && !u->sets; i++)
        use(u, pp_group_rank(g, i), direction);
}

/* The ranks of two rows that hold the same weights. */
static void sync_rows(struct uses *u, const struct pp_place *p, int a, int b)
{
    if ((p->row != a && p->row != b) || a == b)
        return;
    const struct pp_group g =
        pp_group_pair(pp_layout_peer(&u->layout, p, a),
                      pp_layout_peer(&u->layout, p, b), p->row == a ? 0 : 1);
    use_group(u, &g, PP_DIRECTION_SYNC);
}

static void use_for_messages(struct uses *u, const struct pp_schedule *s,
                             const struct pp_place *p)
{
    const struct pp_row *row = &s->rows[p->row];
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (!pp_is_send(a.op))
            continue;
        const struct pp_group to =
            pp_layout_partners(&u->layout, p, s->graph->stages[a.peer].row);
        for (int k = 0; k < to.n; k++)
            use(u, pp_group_rank(&to, k),
                a.op == PP_SEND_F ? PP_DIRECTION_FORWARD
                                  : PP_DIRECTION_BACKWARD);
    }
}

/* Channels between stages that hold the same weights, tied or copied. Copies
 * are all in the language model. */
static void use_for_same_weights(struct uses *u, const struct pp_graph *g,
                                 const struct pp_place *p)
{
    int copied = g->n_stages / g->n_copies;
    bool language =
        &u->layout.components[p->component] == pp_layout_language(&u->layout);
    for (int k = 0; g->tied[0] >= 0 && k < g->n_copies && language; k++)
        sync_rows(u, p, g->stages[g->tied[0] + k * copied].row,
                  g->stages[g->tied[1] + k * copied].row);
    for (int s = 0; g->n_copies > 1 && s < copied; s++) {
        struct pp_copy_rows rows;
        const struct pp_group of = pp_group_of_copies(&u->layout, p, g, s);
        pp_copy_rows(g, s, &rows);
        if (pp_in_copy_rows(&rows, p->row))
            use_group(u, &of, PP_DIRECTION_SYNC);
    }
}

/* Channels within the groups that the rank is in. */
static void use_for_groups(struct uses *u, const struct pp_job *j,
                           const struct pp_place *p)
{
    bool apart = pp_layout_language(&u->layout)->mesh.encoder_tp > 0;
    bool is_host = !j->device || j->device->is_host;
    const struct {
        enum pp_group_kind kind;
        enum pp_direction direction;
        bool used;
    } within[] = {{PP_GROUP_DATA, PP_DIRECTION_WEIGHTS, true},
                  {PP_GROUP_EXPERT_DATA, PP_DIRECTION_WEIGHTS, true},
                  {PP_GROUP_TP, PP_DIRECTION_DATA, true},
                  {PP_GROUP_EP, PP_DIRECTION_DATA, true},
                  {PP_GROUP_SHARERS, PP_DIRECTION_DATA, true},
                  /* An encoder that divides the ranks in its own way. */
                  {PP_GROUP_FEATURES, PP_DIRECTION_DATA, apart},
                  {PP_GROUP_ENCODER_DATA, PP_DIRECTION_WEIGHTS, apart},
                  /* Runs of tensors that are saved (run/train/save.c). */
                  {PP_GROUP_ROW, PP_DIRECTION_DATA,
                   is_host && (j->save || j->stream.path)}};
    for (size_t k = 0; k < sizeof within / sizeof *within; k++) {
        if (!within[k].used)
            continue;
        struct pp_group group = pp_layout_group(&u->layout, p, within[k].kind);
        use_group(u, &group, within[k].direction);
    }
}

/* Channels of PP_DIRECTION_HOST. */
static void use_for_host(struct uses *u, int n_ranks)
{
    int rank = u->from;
    if (rank > 0)
        use(u, pp_tree_parent(rank), PP_DIRECTION_HOST);
    if (rank > 0)
        use(u, 0, PP_DIRECTION_HOST);
    for (int k = 0; k < pp_tree_n_children(rank, n_ranks); k++)
        use(u, rank + (1 << k), PP_DIRECTION_HOST);
    for (int to = 1; rank == 0 && to < n_ranks; to++)
        use(u, to, PP_DIRECTION_HOST);
}

static int by_receiver(const void *a, const void *b)
{
    const struct pp_comm_channel *x = a, *y = b;
    return x->to != y->to
               ? (x->to > y->to) - (x->to < y->to)
               : (x->direction > y->direction) - (x->direction < y->direction);
}

/* Sorts the channels from first on, which have one sender, and drops channels
 * that are there twice. */
static void sort_channels(struct uses *u, size_t first)
{
    struct pp_comm_channel *at = u->list.items;
    size_t n = first;
    if (u->list.n == first)
        return;
    qsort(at + first, u->list.n - first, sizeof *at, by_receiver);
    for (size_t i = first + 1; i < u->list.n; i++)
        if (by_receiver(&at[n], &at[i]) != 0)
            at[++n] = at[i];
    u->list.n = n + 1;
}

/* Channels of the rank u->from in the schedule. */
static void use_for_place(struct uses *u, const struct pp_job *j)
{
    struct pp_place p;
    if (!pp_layout_find(&u->layout, u->from, &p))
        return;
    use_for_messages(u, j->schedule, &p);
    use_for_same_weights(u, j->schedule->graph, &p);
    use_for_groups(u, j, &p);
}

void pp_job_channels(const struct pp_job *j, int only,
                     struct pp_comm_channel **at, size_t *n)
{
    struct uses u = {.layout = pp_job_layout(j), .only = only};
    int n_ranks = pp_layout_ranks(&u.layout);
    *at = NULL;
    /* Never an empty list, which would be NULL. */
    PP_VEC_RESERVE(&u.list, 1);
    for (u.from = 0; u.from < n_ranks; u.from++) {
        size_t first = u.list.n;
        use_for_host(&u, n_ranks);
        use_for_place(&u, j);
        sort_channels(&u, first);
    }
    *at = u.list.items;
    *n = u.list.n;
}

void pp_job_comm_sets(const struct pp_job *j, struct pp_comm_sets *sets)
{
    struct uses u = {.layout = pp_job_layout(j), .only = -1, .sets = sets};
    int n_ranks = pp_layout_ranks(&u.layout);
    *sets = (struct pp_comm_sets){0};
    for (u.from = 0; u.from < n_ranks; u.from++)
        use_for_place(&u, j);
    pp_comm_sets_order(sets, n_ranks);
}
