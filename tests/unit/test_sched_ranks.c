/* SPDX-License-Identifier: MIT */
/* Tests the lemma of check.h: a mesh whose groups play one row runs to its end
 * if and only if the rows do.
 *
 * A walk of ranks, written independently of the walk of rows. A compute action
 * ends when all ranks of its tensor- and context-parallel groups are in it, a
 * sync when all ranks that take part are in it. Over a bridge a rank sends to
 * all ranks of the other row, one after another, and receives from all of them.
 * A rank is tried in any order, one step at a time. */
#include "base/rng.h"
#include "model/layout.h"
#include "sched_place.h"

enum { MOST_RANKS = 48, MOST_JOINS = 2 };

struct world {
    const struct pp_schedule *s;
    struct pp_layout layout;
    int n_ranks;
    enum pp_group_kind joins[MOST_JOINS]; /* of a compute action */
    int n_joins;
    struct pp_place place[MOST_RANKS];
    int row[MOST_RANKS]; /* the row that the rank plays */
    size_t pc[MOST_RANKS];
    int phase[MOST_RANKS];    /* collectives, or messages, done inside the
                                 action */
    bool arrived[MOST_RANKS]; /* at the next one */
    bool posted[MOST_RANKS];  /* the receive at pc */
    int flight[MOST_RANKS][MOST_RANKS][2]; /* messages sent, not received */
    bool mixed;                            /* ranks met in different actions */
    bool idles; /* rank 0 sends nothing over a bridge */
};

static void world_init(struct world *w, const struct pp_schedule *s,
                       struct pp_mesh mesh)
{
    mesh.pp = s->graph->n_rows;
    *w = (struct world){.s = s,
                        .layout = {{{.mesh = mesh}}, 1},
                        .joins = {PP_GROUP_TP, PP_GROUP_CP},
                        .n_joins = 2};
    w->n_ranks = pp_layout_ranks(&w->layout);
    for (int r = 0; r < w->n_ranks; r++) {
        pp_layout_place(&w->layout, 0, r, &w->place[r]);
        w->row[r] = w->place[r].row;
    }
}

/* Gives the first rows to an encoder with ranks of its own. */
static void world_divide(struct world *w, const struct pp_schedule *s, int rows,
                         struct pp_mesh encoder, struct pp_mesh mesh)
{
    world_init(w, s, mesh);
    encoder.pp = rows;
    mesh.pp = s->graph->n_rows - rows;
    w->layout = (struct pp_layout){
        .components = {{encoder, 0, 0}, {mesh, pp_mesh_ranks(&encoder), rows}},
        .n_components = 2};
    w->n_ranks = pp_layout_ranks(&w->layout);
    for (int r = 0; r < w->n_ranks && r < MOST_RANKS; r++) {
        pp_layout_find(&w->layout, r, &w->place[r]);
        w->row[r] = w->place[r].row;
    }
}

static const struct pp_row *row_of(const struct world *w, int rank)
{
    return &w->s->rows[w->row[rank]];
}

static bool at_end(const struct world *w, int rank)
{
    return w->pc[rank] == row_of(w, rank)->n;
}

static struct pp_action action_of(const struct world *w, int rank)
{
    return row_of(w, rank)->actions[w->pc[rank]];
}

static bool same_action(struct pp_action a, struct pp_action b)
{
    return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch &&
           a.slice == b.slice;
}

/* Reports whether a member has come to the collective that `rank` waits in, or
 * is past it. Members that are there in another action mix their data. */
static bool is_there(struct world *w, int rank, int member)
{
    size_t a = w->pc[rank], b = w->pc[member];
    int x = w->phase[rank], y = w->phase[member];
    if (b != a)
        return b > a;
    if (y != x)
        return y > x;
    if (!w->arrived[member])
        return false;
    w->mixed |= !same_action(action_of(w, rank), action_of(w, member));
    return true;
}

static bool join_group(struct world *w, int rank, enum pp_group_kind kind)
{
    struct pp_group g = pp_layout_group(&w->layout, &w->place[rank], kind);
    bool all = true;
    for (int i = 0; i < g.n; i++)
        all &= is_there(w, rank, pp_group_rank(&g, i));
    return all;
}

/* Waits for the ranks at the same place of all rows that have this sync. */
static bool join_rows(struct world *w, int rank, enum pp_op op)
{
    struct pp_group g =
        pp_layout_group(&w->layout, &w->place[rank], PP_GROUP_PP);
    for (int i = 0; i < g.n; i++) {
        int other = pp_group_rank(&g, i);
        const struct pp_row *row = row_of(w, other);
        for (size_t k = w->pc[other]; k < row->n; k++)
            if (row->actions[k].op == op &&
                !(k == w->pc[other] && w->arrived[other]))
                return false;
    }
    return true;
}

static int *flight_of(struct world *w, int from, int to, struct pp_action a)
{
    return &w->flight[from][to][a.op == PP_SEND_B || a.op == PP_RECV_B];
}

static bool send_message(struct world *w, int rank, int peer)
{
    struct pp_action a = action_of(w, rank);
    int *n = flight_of(w, rank, peer, a);
    bool meets = !at_end(w, peer) && w->posted[peer] && *n == 0 &&
                 same_action(action_of(w, peer), pp_other_end(a));
    if (w->s->channel_depth ? *n >= w->s->channel_depth : !meets)
        return false;
    ++*n;
    return true;
}

static bool receive_message(struct world *w, int rank, int peer)
{
    int *n = flight_of(w, peer, rank, action_of(w, rank));
    w->posted[rank] = true;
    if (*n == 0)
        return false;
    --*n;
    return true;
}

/* Tries the next step of a rank: a message, or one collective. Returns whether
 * anything has changed. */
static bool try_step(struct world *w, int rank)
{
    bool arrived = w->arrived[rank], posted = w->posted[rank], done;
    struct pp_action a = action_of(w, rank);
    bool message = pp_is_send(a.op) || pp_is_recv(a.op), last = true;
    w->arrived[rank] = !message;
    if (message) {
        const struct pp_group with = pp_layout_partners(
            &w->layout, &w->place[rank], w->s->graph->stages[a.peer].row);
        int peer = pp_group_rank(&with, w->phase[rank]);
        bool idles = w->idles && rank == 0 && with.n > 1;
        done = pp_is_send(a.op) ? idles || send_message(w, rank, peer)
                                : receive_message(w, rank, peer);
        last = w->phase[rank] + 1 == with.n;
    } else if (pp_is_compute(a.op)) {
        done = join_group(w, rank, w->joins[w->phase[rank]]);
        last = w->phase[rank] + 1 == w->n_joins;
    } else if (a.op == PP_SYNC_TIED || a.op == PP_SYNC_COPIES) {
        done = join_rows(w, rank, (enum pp_op)a.op);
    } else {
        done = join_group(w, rank, PP_GROUP_DATA);
    }
    if (!done)
        return w->arrived[rank] != arrived || w->posted[rank] != posted;
    w->arrived[rank] = false;
    w->posted[rank] = pp_is_recv(a.op) && !last; /* posted from all at once */
    w->phase[rank] = last ? 0 : w->phase[rank] + 1;
    w->pc[rank] += last;
    return true;
}

/* Walks all ranks, in an order that the seed decides. Returns whether all reach
 * the end. */
static bool walk_ranks(struct world *w, uint64_t seed)
{
    uint64_t key = pp_rng_key(seed, "ranks"), tries = 0;
    int idle = 0, ended = 0;
    while (idle < w->n_ranks) {
        int first = (int)(pp_rng_bits(key, tries++) % (uint64_t)w->n_ranks);
        idle = 0;
        while (idle < w->n_ranks) {
            int rank = (first + idle) % w->n_ranks;
            if (!at_end(w, rank) && try_step(w, rank))
                break;
            idle++;
        }
    }
    for (int r = 0; r < w->n_ranks; r++)
        ended += at_end(w, r);
    return ended == w->n_ranks;
}

static const struct pp_mesh meshes[] = {
    {.tp = 1, .cp = 1, .dp = 2, .ep = 1},
    {.tp = 2, .cp = 1, .dp = 1, .ep = 1},
    {.tp = 2, .cp = 2, .dp = 1, .ep = 1},
    {.tp = 2, .cp = 1, .dp = 3, .ep = 1},
    {.tp = 2,
     .cp = 2,
     .dp = 2,
     .ep = 1,
     .order = 9}, /* another order of axes */
};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

/* Counts the meshes and seeds in which ranks do other than the rows. */
static int count_faults(const struct pp_schedule *s, bool rows_end)
{
    int faults = 0;
    for (int i = 0; i < N_MESHES; i++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            static struct world w;
            world_init(&w, s, meshes[i]);
            if (w.n_ranks > MOST_RANKS)
                continue;
            faults += walk_ranks(&w, seed) != rows_end || w.mixed;
        }
    return faults;
}

static const struct {
    int rows;
    struct pp_mesh encoder, language;
} bridges[] = {
    {1,
     {.dp = 1, .tp = 1, .cp = 1, .ep = 1},
     {.dp = 2, .tp = 1, .cp = 1, .ep = 1}},
    {1,
     {.dp = 3, .tp = 1, .cp = 1, .ep = 1},
     {.dp = 2, .tp = 1, .cp = 1, .ep = 1}},
    {2,
     {.dp = 2, .tp = 1, .cp = 1, .ep = 1},
     {.dp = 1, .tp = 2, .cp = 2, .ep = 1}},
};
enum { N_BRIDGES = sizeof bridges / sizeof *bridges };

/* The same for a row or two of an encoder on ranks of its own. */
static int count_bridge_faults(const struct pp_schedule *s, bool rows_end)
{
    int faults = 0;
    for (int i = 0; i < N_BRIDGES; i++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            static struct world w;
            world_divide(&w, s, bridges[i].rows, bridges[i].encoder,
                         bridges[i].language);
            faults += walk_ranks(&w, seed) != rows_end || w.mixed;
        }
    return faults;
}

/* Compares ranks with rows at every depth. Returns the number of depths at
 * which the rows deadlock. */
static int compare(struct fixture *f, const char *name)
{
    int stuck = 0;
    for (int depth = 0; depth <= 2; depth++) {
        f->s.channel_depth = depth;
        bool end = !pp_check(&f->s, &f->err);
        stuck += !end;
        ok(count_faults(&f->s, end) == 0, "%s, depth %d: rows and ranks %s",
           name, depth, end ? "end" : "deadlock");
        bool chained = f->graph.n_stages == f->graph.n_rows;
        if (chained && f->graph.n_copies == 1)
            ok(count_bridge_faults(&f->s, end) == 0, "  and over bridges");
    }
    return stuck;
}

static void test_kinds(void)
{
    static const struct kind_case cases[] = {
        {"gpipe", 3, 1, 5, PP_PLACEMENT_LOOP},
        {"1f1b", 4, 1, 7, PP_PLACEMENT_LOOP},
        {"interleaved", 2, 2, 4, PP_PLACEMENT_LOOP},
        {"interleaved", 4, 2, 8, PP_PLACEMENT_LOOP},
        {"zb-h1", 4, 1, 6, PP_PLACEMENT_LOOP},
        {"zbv", 3, 2, 6, PP_PLACEMENT_V},
        {"dualpipe", 4, 1, 8, PP_PLACEMENT_BOTH_WAYS},
    };
    int stuck = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        char name[64];
        chain(&f, cases[i].p, cases[i].c, cases[i].placement);
        f.graph.replicas = true; /* a collective after each stage */
        if (emit(&f, cases[i].kind, cases[i].m, 0) || pp_lower(&f.s, &f.err))
            printf("# %s\n", f.err.text);
        stuck += compare(&f, cases[i].kind);
        drop(&f);
        /* Messages that are placed by hand deadlock if channels are short. */
        chain(&f, cases[i].p, cases[i].c, cases[i].placement);
        f.graph.replicas = true;
        if (emit(&f, cases[i].kind, cases[i].m, 0))
            printf("# %s\n", f.err.text);
        place(&f, true);
        pp_lower_syncs(&f.s);
        snprintf(name, sizeof name, "%s by hand", cases[i].kind);
        stuck += compare(&f, name);
        drop(&f);
    }
    ok(stuck > 0, "%d settings deadlock", stuck);
}

/* Without the conditions of the lemma, ranks mix their data or stop. */
static void test_conditions(void)
{
    static struct world w;
    struct fixture f;
    chain(&f, 3, 1, PP_PLACEMENT_LOOP);
    if (emit(&f, "1f1b", 6, 0) || pp_lower(&f.s, &f.err))
        printf("# %s\n", f.err.text);
    world_init(&w, &f.s, meshes[1]);
    w.row[0] = 1; /* and its group plays row 0 */
    ok(!walk_ranks(&w, 0) || w.mixed, "a group that plays two rows");
    world_init(&w, &f.s, meshes[1]);
    w.joins[0] = PP_GROUP_PP;
    ok(!walk_ranks(&w, 0) || w.mixed, "a collective of several rows in an F");
    world_init(&w, &f.s, meshes[1]);
    ok(walk_ranks(&w, 0) && !w.mixed, "neither: all ranks end");
    world_divide(&w, &f.s, 1, bridges[1].encoder, bridges[1].language);
    w.idles = true;
    ok(!walk_ranks(&w, 0), "a rank that sends nothing over a bridge");
    drop(&f);
}

int main(void)
{
    test_kinds();
    test_conditions();
    return done();
}
