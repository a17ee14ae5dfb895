/* SPDX-License-Identifier: MIT */
/* Random schedules on random graphs: whatever the checker accepts at a channel
 * depth runs to its end in a round-robin walk that knows nothing of the
 * library's player, and whatever it refuses as a deadlock stops there. */
#include "sched_fixture.h"

#include "base/rng.h"
#include "sched/deps.h"

struct dice {
    uint64_t key, at;
};

static int roll(struct dice *d, int n)
{
    return (int)(pp_rng_bits(d->key, d->at++) % (uint64_t)n);
}

enum { MAX_STAGES = 6, MAX_RANKS = 4, MAX_MICROBATCHES = 8, MAX_ROW = 900 };

/* A random DAG with one sink, every rank in use. */
static void random_graph(struct fixture *f, struct dice *d)
{
    int n = 1 + roll(d, MAX_STAGES), p = 1 + roll(d, n);
    p = p > MAX_RANKS ? MAX_RANKS : p;
    *f = (struct fixture){0};
    struct pp_stage_node *nodes =
        pp_arena_alloc(&f->arena, (size_t)n, sizeof *nodes);
    for (int s = 0; s < n; s++) {
        int *inputs = pp_arena_alloc(&f->arena, (size_t)n, sizeof *inputs);
        int count = 0;
        for (int i = 0; i < s; i++)
            if (i == s - 1 ? roll(d, 4) > 0 : roll(d, 5) == 0)
                inputs[count++] = i;
        nodes[s] = (struct pp_stage_node){.rank = s < p ? s : roll(d, p),
                                          .n_inputs = count,
                                          .inputs = inputs};
    }
    f->graph = (struct pp_graph){
        .n_ranks = p, .n_stages = n, .stages = nodes, .tied = {-1, -1}};
    if (pp_graph_connect(&f->arena, &f->graph, &f->err))
        printf("# %s\n", f->err.text);
}

/* --- a walk of its own --- */

struct message {
    struct pp_action action;
    int from, to;
};

struct world {
    const struct pp_schedule *s;
    size_t pc[MAX_RANKS];
    /* Messages sent and not yet received, oldest first. */
    struct message pending[4 * MAX_ROW];
    int n;
};

static bool is_backward(enum pp_op op)
{
    return op == PP_SEND_B || op == PP_RECV_B;
}

static int in_flight(const struct world *w, int from, int to, bool backward)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->pending[i].from == from && w->pending[i].to == to &&
             is_backward(w->pending[i].action.op) == backward;
    return n;
}

static bool waits_to_receive(const struct world *w, int rank, int from,
                             bool backward)
{
    if (w->pc[rank] == w->s->rows[rank].n)
        return false;
    struct pp_action a = w->s->rows[rank].actions[w->pc[rank]];
    return pp_is_recv(a.op) && is_backward(a.op) == backward &&
           w->s->graph->stages[a.peer].rank == from;
}

/* One action of a rank, if it can be done now. */
static bool advance(struct world *w, int rank)
{
    if (w->pc[rank] == w->s->rows[rank].n)
        return false;
    struct pp_action a = w->s->rows[rank].actions[w->pc[rank]];
    bool backward = is_backward(a.op);
    int depth = w->s->channel_depth;
    if (pp_is_send(a.op)) {
        int to = w->s->graph->stages[a.peer].rank;
        int n = in_flight(w, rank, to, backward);
        if (depth ? n >= depth
                  : n > 0 || !waits_to_receive(w, to, rank, backward))
            return false;
        w->pending[w->n++] = (struct message){a, rank, to};
    } else if (pp_is_recv(a.op)) {
        int from = w->s->graph->stages[a.peer].rank, i = 0;
        while (i < w->n &&
               !(w->pending[i].from == from && w->pending[i].to == rank &&
                 is_backward(w->pending[i].action.op) == backward))
            i++;
        if (i == w->n)
            return false;
        memmove(w->pending + i, w->pending + i + 1,
                (size_t)(w->n - i - 1) * sizeof *w->pending);
        w->n--;
    }
    w->pc[rank]++;
    return true;
}

static bool reaches_end(const struct pp_schedule *s)
{
    struct world w = {.s = s};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->graph->n_ranks; r++)
            while (advance(&w, r))
                moved = true;
    }
    for (int r = 0; r < s->graph->n_ranks; r++)
        if (w.pc[r] < s->rows[r].n)
            return false;
    return w.n == 0;
}

/* --- random orders --- */

static bool is_done(const struct pp_action *done, int n, int stage,
                    unsigned ops, int microbatch)
{
    for (int i = 0; i < n; i++)
        if (done[i].stage == stage && done[i].microbatch == microbatch &&
            ops & 1u << done[i].op)
            return true;
    return false;
}

struct ready {
    const struct pp_action *done;
    int n, microbatch;
};

static int visit(void *ctx, struct pp_dep dep)
{
    struct ready *r = ctx;
    return !is_done(r->done, r->n, dep.stage, dep.ops, r->microbatch);
}

/* Whether every earlier microbatch has been through the same stage and op. */
static bool is_next(const struct pp_action *done, int n, struct pp_action a)
{
    for (int k = 0; k < a.microbatch; k++)
        if (!is_done(done, n, a.stage, 1u << a.op, k))
            return false;
    return true;
}

/* Runs ready actions in a random order; each rank's order is then feasible.
 * Mostly with microbatches in order, else channels rarely are. */
static void random_computes(struct fixture *f, struct dice *d, int m)
{
    struct pp_action todo[MAX_STAGES * MAX_MICROBATCHES * 3],
        done[MAX_STAGES * MAX_MICROBATCHES * 3];
    int n = 0, n_done = 0;
    bool split = roll(d, 2), in_order = roll(d, 4) > 0;
    for (int s = 0; s < f->graph.n_stages; s++)
        for (int k = 0; k < m; k++)
            for (int op = PP_F; op <= PP_W; op++)
                if (op == PP_F || (op == PP_B) != split)
                    todo[n++] = (struct pp_action){.stage = s,
                                                   .microbatch = k,
                                                   .peer = -1,
                                                   .op = (uint8_t)op};
    while (n > 0) {
        int i = roll(d, n);
        struct ready r = {done, n_done, todo[i].microbatch};
        if (pp_deps(&f->graph, todo[i], visit, &r) ||
            (in_order && !is_next(done, n_done, todo[i])))
            continue;
        done[n_done++] = todo[i];
        if (pp_schedule_add(&f->s, f->graph.stages[todo[i].stage].rank, todo[i],
                            &f->err))
            return;
        todo[i] = todo[--n];
    }
}

/* Receives right before their first use, sends right after: what one would
 * write by hand. */
struct naive {
    struct pp_schedule *to;
    struct pp_action action;
    bool *received; /* by [from][to][microbatch][backward] */
    struct pp_err *err;
};

static int add_recv(void *ctx, struct pp_dep dep)
{
    struct naive *n = ctx;
    struct pp_action a = n->action;
    if (dep.message == PP_N_OPS)
        return 0;
    bool *seen =
        &n->received[((dep.stage * MAX_STAGES + a.stage) * MAX_MICROBATCHES +
                      a.microbatch) *
                         2 +
                     (dep.message == PP_RECV_B)];
    if (*seen)
        return 0;
    *seen = true;
    a.op = (uint8_t)dep.message;
    a.peer = dep.stage;
    return pp_schedule_add(n->to, n->to->graph->stages[a.stage].rank, a,
                           n->err);
}

static int add_send(void *ctx, struct pp_action send)
{
    struct naive *n = ctx;
    return pp_schedule_add(n->to, n->to->graph->stages[send.stage].rank, send,
                           n->err);
}

static void place_naively(struct fixture *f)
{
    static bool received[MAX_STAGES * MAX_STAGES * MAX_MICROBATCHES * 2];
    struct pp_schedule to;
    memset(received, 0, sizeof received);
    if (pp_schedule_init(&to, &f->graph, "test", f->s.n_microbatches, &f->err))
        return;
    struct naive n = {.to = &to, .received = received, .err = &f->err};
    for (int r = 0; r < f->graph.n_ranks; r++)
        for (size_t i = 0; i < f->s.rows[r].n; i++) {
            n.action = f->s.rows[r].actions[i];
            if (pp_deps(&f->graph, n.action, add_recv, &n) ||
                pp_schedule_add(&to, r, n.action, &f->err) ||
                pp_transfers(&f->graph, n.action, add_send, &n))
                printf("# %s\n", f->err.text);
        }
    pp_schedule_finish(&f->s);
    f->s = to;
}

struct counts {
    int accepted, deadlocked, other, wrong;
};

/* The verdict at every depth against the walk. */
static void compare(struct fixture *f, struct counts *c)
{
    for (int depth = 0; depth < 4; depth++) {
        struct pp_err err = {0};
        f->s.channel_depth = depth;
        int rc = pp_check(&f->s, &err);
        if (rc && !strstr(err.text, "deadlock")) {
            c->other++; /* received in another order than sent */
            return;
        }
        c->accepted += !rc;
        c->deadlocked += rc != 0;
        if (reaches_end(&f->s) != (rc == 0)) {
            c->wrong++;
            printf("# depth %d: %s\n", depth, err.text);
        }
    }
}

int main(void)
{
    struct dice d = {.key = pp_rng_key(7, "schedules")};
    struct counts lowered = {0}, naive = {0};
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
        struct fixture f;
        random_graph(&f, &d);
        int m = 1 + roll(&d, MAX_MICROBATCHES);
        if (pp_schedule_init(&f.s, &f.graph, "test", m, &f.err))
            return 1;
        random_computes(&f, &d, m);
        if (i % 2) {
            refused += pp_lower(&f.s, &f.err) != 0;
            compare(&f, &lowered);
        } else {
            place_naively(&f);
            compare(&f, &naive);
        }
        drop(&f);
    }
    printf("# lowered: %d accepted, %d deadlocks, %d others\n",
           lowered.accepted, lowered.deadlocked, lowered.other);
    printf("# naive: %d accepted, %d deadlocks, %d out of order\n",
           naive.accepted, naive.deadlocked, naive.other);
    ok(refused == 0, "every feasible order can be lowered");
    ok(lowered.accepted == 1500 * 4,
       "what was lowered is accepted at every depth, rendezvous included");
    ok(naive.accepted > 1000 && naive.deadlocked > 500 && naive.other > 10,
       "naive placement gives all verdicts");
    ok(naive.wrong == 0 && lowered.wrong == 0,
       "the checker's verdict is what happens");
    return done();
}
