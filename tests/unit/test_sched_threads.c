/* SPDX-License-Identifier: MIT */
/* Runs random schedules on the threads transport, with one thread per rank and
 * one message per send. If a RECV waits in its place, a schedule that the
 * checker accepts at its channel depth ends with correct messages, and a
 * schedule that it refuses as a deadlock gets stuck. If a RECV is posted and
 * the action that uses the message waits, as in the executor, every accepted
 * schedule ends too.
 *
 * The test uses no timeouts. Under one lock, ranks record which calls they
 * start and finish. When every rank that has not ended is in a call that cannot
 * return under the contract of comm.h, that is the deadlock, and the last of
 * them calls abort. */
#include <pthread.h>
#include <unistd.h>

#include "comm/comm.h"
#include "run/execute/job.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/play.h"
#include "sched_dice.h"

struct direction {
    int begun, posted; /* sends and receives */
    int awaited;       /* receives that were waited for */
};

struct call {
    bool waits, is_send; /* in a call now; the call is a send */
    int from, to, direction;
    int number; /* of the message, if the call waits for a receive */
};

struct run {
    const struct pp_schedule *s;
    pthread_mutex_t lock;
    struct direction directions[MAX_RANKS][MAX_RANKS]
                               [2]; /* from, to, backward */
    struct call calls[MAX_RANKS];
    bool at_end[MAX_RANKS];
    bool posts;   /* a RECV does not wait */
    int receives; /* room of a channel, by pp_job_receives */
    int reached;  /* most receives of a channel that nobody had waited for */
    bool stopped; /* a deadlock was found */
    int n_wrong;  /* wrong messages and failed calls */
};

struct receive {
    struct pp_action recv, got;
    struct call call;
    bool checked;
};

struct rank {
    struct run *run;
    struct pp_comm *comm;
    int rank;
    struct receive received[MAX_ROW];
    int n_received;
    struct pp_action now; /* the compute action */
    struct pp_err *err;
    struct pp_action
        sent[MAX_ROW]; /* the transport uses them until send_wait */
    int n_sent;
    size_t pc, n_early; /* receives before this place have been posted */
};

/* Returns true if the contract lets the call return. */
static bool can_return(const struct run *r, const struct call *c)
{
    const struct direction *l = &r->directions[c->from][c->to][c->direction];
    if (c->is_send)
        return l->begun - l->posted <= r->s->channel_depth;
    return l->begun > c->number;
}

/* Returns true if no rank can move and some rank has not ended. Needs the lock.
 */
static bool is_deadlock(const struct run *r)
{
    int waiting = 0;
    for (int i = 0; i < r->s->graph->n_rows; i++) {
        if (r->at_end[i])
            continue;
        if (!r->calls[i].waits || can_return(r, &r->calls[i]))
            return false;
        waiting++;
    }
    return waiting > 0;
}

static void look_for_deadlock(struct run *r, struct pp_comm *comm)
{
    if (r->stopped || !is_deadlock(r))
        return;
    r->stopped = true;
    comm->ops->abort(comm, "deadlock");
}

static void begin(struct rank *k, struct call c)
{
    struct run *r = k->run;
    pthread_mutex_lock(&r->lock);
    r->calls[k->rank] = c;
    r->directions[c.from][c.to][c.direction].begun += c.is_send;
    look_for_deadlock(r, k->comm);
    pthread_mutex_unlock(&r->lock);
}

/* Records the end of a call and returns rc. A call may fail only after an
 * abort. */
static int end(struct rank *k, int rc)
{
    struct run *r = k->run;
    pthread_mutex_lock(&r->lock);
    r->calls[k->rank].waits = false;
    r->n_wrong += rc && !r->stopped;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static enum pp_direction direction_of(struct pp_action a)
{
    bool back = a.op == PP_SEND_B || a.op == PP_RECV_B;
    return back ? PP_DIRECTION_BACKWARD : PP_DIRECTION_FORWARD;
}

static int send(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct rank *k = ctx;
    struct pp_action *buf = &k->sent[k->n_sent++];
    *buf = a;
    struct call c = {true, true, k->rank, peer, (int)direction_of(a), 0};
    begin(k, c);
    return end(k, k->comm->ops->send(k->comm, peer, direction_of(a), buf,
                                     sizeof *buf, err));
}

/* Waits for a receive and checks its message. */
static int await(struct rank *k, struct receive *m)
{
    struct pp_action got, want = pp_other_end(m->recv);
    struct call c = m->call;
    if (m->checked)
        return 0;
    begin(k, c);
    int posted = k->run->directions[c.from][c.to][c.direction].posted;
    if (end(k, k->comm->ops->recv_wait(k->comm, c.from, direction_of(m->recv),
                                       posted - c.number - 1, k->err)))
        return -1;
    got = m->got;
    m->checked = true;
    pthread_mutex_lock(&k->run->lock);
    struct direction *l = &k->run->directions[c.from][c.to][c.direction];
    l->awaited = c.number + 1 > l->awaited ? c.number + 1 : l->awaited;
    pthread_mutex_unlock(&k->run->lock);
    if (got.op == want.op && got.stage == want.stage &&
        got.microbatch == want.microbatch && got.slice == want.slice &&
        got.peer == want.peer)
        return 0;
    pthread_mutex_lock(&k->run->lock);
    k->run->n_wrong++;
    pthread_mutex_unlock(&k->run->lock);
    return 0;
}

static int post(struct rank *k, struct pp_action a, int peer,
                struct pp_err *err)
{
    struct run *r = k->run;
    int direction = (int)direction_of(a);
    struct receive *m = &k->received[k->n_received++];
    pthread_mutex_lock(&r->lock);
    struct direction *l = &r->directions[peer][k->rank][direction];
    *m = (struct receive){
        .recv = a,
        .call = {true, false, peer, k->rank, direction, l->posted++}};
    int waiting = l->posted - l->awaited;
    r->reached = waiting > r->reached ? waiting : r->reached;
    r->n_wrong += waiting > r->receives;
    pthread_mutex_unlock(&r->lock);
    k->err = err;
    if (k->comm->ops->recv(k->comm, peer, direction_of(a), &m->got,
                           sizeof m->got, err))
        return -1;
    return r->posts ? 0 : await(k, m);
}

static int recv(void *ctx, struct pp_action a, int peer, struct pp_err *err)
{
    struct rank *k = ctx;
    return k->pc < k->n_early ? 0 : post(k, a, peer, err);
}

/* Posts the receives before the next compute action. */
static int post_early(struct rank *k, struct pp_err *err)
{
    const struct pp_row *list = &k->run->s->rows[k->rank];
    size_t i = k->pc + 1 + list->actions[k->pc].overlap;
    for (i = i > k->n_early ? i : k->n_early; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        bool receives = a.op == PP_RECV_F || a.op == PP_RECV_B;
        if (!receives && a.op != PP_SEND_F && a.op != PP_SEND_B)
            break;
        k->n_early = i + 1;
        if (receives && post(k, a, k->run->s->graph->stages[a.peer].row, err))
            return -1;
    }
    return 0;
}

static int await_message(void *ctx, struct pp_dep dep)
{
    struct rank *k = ctx;
    for (int i = 0; i < k->n_received; i++) {
        struct receive *m = &k->received[i];
        if (m->recv.op == dep.message && m->recv.stage == k->now.stage &&
            m->recv.peer == dep.stage && m->recv.slice == dep.slice &&
            m->recv.microbatch == k->now.microbatch)
            return await(k, m);
    }
    return 0;
}

static int compute(void *ctx, struct pp_action a, struct pp_err *err)
{
    struct rank *k = ctx;
    k->now = a;
    k->err = err;
    if (!k->run->posts)
        return 0;
    return post_early(k, err) || pp_deps(k->run->s->graph, a, await_message, k)
               ? -1
               : 0;
}

static void *run_rank(void *arg)
{
    static const struct pp_player player = {compute, send, recv, NULL};
    struct rank *k = arg;
    struct run *r = k->run;
    struct pp_err err = {0};
    int rc = pp_play(r->s, k->rank, &k->pc, &player, k, &err);
    pthread_mutex_lock(&r->lock);
    if (!rc) {
        r->at_end[k->rank] = true;
        look_for_deadlock(r, k->comm);
    }
    pthread_mutex_unlock(&r->lock);
    /* Keep the buffers until all messages are received. */
    for (int to = 0; to < r->s->graph->n_rows && !rc; to++)
        for (int direction = 0; direction < 2 && !rc; direction++)
            rc = k->comm->ops->send_wait(k->comm, to,
                                         (enum pp_direction)direction, 0, &err);
    k->comm->ops->close(k->comm);
    return NULL;
}

/* Returns true if the run ended. Adds the number of failures to *n_wrong, and 1
 * to *n_full if a channel had as many receives as there was room for. */
static bool run_threads(const struct pp_schedule *s, bool posts, int *n_wrong,
                        int *n_full)
{
    struct run run = {.s = s, .posts = posts};
    struct pp_comm_capacity capacity = {s->channel_depth, 1};
    struct pp_comm_world *world = NULL;
    struct pp_err err = {0};
    int n = s->graph->n_rows;
    struct rank *ranks = calloc((size_t)n, sizeof *ranks);
    pthread_t threads[MAX_RANKS];
    pthread_mutex_init(&run.lock, NULL);
    if (!ranks || pp_job_receives(s, &capacity.receives, &err) ||
        pp_comm_world_create(n, capacity, NULL, 0, &world, &err))
        exit(3);
    run.receives = capacity.receives;
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct rank){.run = &run, .rank = i};
        ranks[i].comm = pp_comm_threads_open(world, i);
    }
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]))
            exit(3);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pp_comm_world_destroy(world);
    pthread_mutex_destroy(&run.lock);
    free(ranks);
    *n_wrong += run.n_wrong;
    *n_full += capacity.receives > 1 && run.reached == capacity.receives;
    return !run.stopped;
}

int main(void)
{
    alarm(60); /* a rank that waits against the contract is a failure */
    struct dice d = {.key = pp_rng_key(11, "threads")};
    int accepted = 0, deadlocked = 0, apart = 0, n_wrong = 0;
    int stuck = 0, rescued = 0, n_full = 0;
    while (accepted + deadlocked < 200) {
        struct fixture f;
        struct pp_err err = {0};
        random_schedule(&f, &d);
        int rc = pp_check(&f.s, &err);
        if (!rc || strstr(err.text, "deadlock")) {
            accepted += !rc;
            deadlocked += rc != 0;
            if (run_threads(&f.s, false, &n_wrong, &n_full) != (rc == 0)) {
                apart++;
                printf("# depth %d: %s\n", f.s.channel_depth, err.text);
            }
            bool ended = run_threads(&f.s, true, &n_wrong, &n_full);
            stuck += !ended && rc == 0;
            rescued += ended && rc != 0;
        }
        drop(&f);
    }
    printf("# %d accepted, %d deadlocks, %d of them not with posted receives\n",
           accepted, deadlocked, rescued);
    ok(accepted > 50 && deadlocked > 50, "both verdicts occur");
    ok(apart == 0, "accepted schedules end, refused schedules get stuck");
    ok(stuck == 0 && rescued > 0,
       "posted receives end accepted schedules, and some of the others");
    printf("# %d runs filled a channel with receives\n", n_full);
    ok(n_full > 20, "there is room for the receives, and no more than needed");
    ok(n_wrong == 0, "every message is received as what it is");
    return done();
}
