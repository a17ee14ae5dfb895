/* SPDX-License-Identifier: MIT */
/* Tests the checker on random schedules. A schedule that it accepts at a
 * channel depth ends in a walk that does not use the library's player; a
 * schedule that it refuses as a deadlock gets stuck there. The event graph
 * agrees, and under the other semantics a walk over streams agrees. */
#include "sched_walker.h"
#include "schedule/check/check.h"
#include "schedule/check/stuck.h"

/* --- a walk over streams --- */

struct streams {
    const struct pp_schedule *s;
    const char *name;
    int depth;
    bool done[MAX_RANKS][MAX_ROW];
};

static struct pp_action at(const struct streams *w, int rank, size_t i)
{
    return w->s->rows[rank].actions[i];
}

static int peer_of(const struct streams *w, struct pp_action a)
{
    return w->s->graph->stages[a.peer].row;
}

/* Returns true if b, later in its row, must wait until a is done. */
static bool is_same_stream(const struct streams *w, struct pp_action a,
                           struct pp_action b)
{
    if (!strcmp(w->name, "blocking"))
        return true;
    if (is_message(a) != is_message(b))
        return false;
    if (!is_message(a) || !strcmp(w->name, "rank"))
        return true;
    if (!strcmp(w->name, "buffered") || peer_of(w, a) != peer_of(w, b))
        return false;
    return !strcmp(w->name, "pair") || pp_is_send(a.op) == pp_is_send(b.op);
}

/* Returns true if b, later in its row, consumes the result of a. */
static bool is_input(struct pp_action a, struct pp_action b)
{
    bool back = b.op == PP_B || b.op == PP_I || b.op == PP_W;
    if (a.stage != b.stage || a.microbatch != b.microbatch)
        return false;
    if (b.op == PP_SEND_F)
        return a.op == PP_F;
    if (b.op == PP_SEND_B)
        return a.op == PP_B || a.op == PP_I;
    return (a.op == PP_RECV_F && b.op == PP_F) || (a.op == PP_RECV_B && back);
}

/* Returns true if no earlier action of its row blocks action i, or, for a pair,
 * either of its two. */
static bool is_its_turn(const struct streams *w, int rank, size_t i)
{
    struct pp_action a = at(w, rank, i);
    for (size_t k = 0; k < i; k++) {
        struct pp_action before = at(w, rank, k);
        bool partner = k + 1 == i && before.overlap;
        if (!w->done[rank][k] && !partner &&
            (is_same_stream(w, before, a) || is_input(before, a) ||
             (a.overlap && is_input(before, at(w, rank, i + 1)))))
            return false;
    }
    return true;
}

static bool find_other_end(const struct streams *w, struct pp_action a,
                           int *rank, size_t *i)
{
    struct pp_action b = pp_other_end(a);
    *rank = peer_of(w, a);
    for (*i = 0; *i < w->s->rows[*rank].n; ++*i) {
        struct pp_action c = at(w, *rank, *i);
        if (c.op == b.op && c.stage == b.stage && c.peer == b.peer &&
            c.microbatch == b.microbatch)
            return true;
    }
    return false;
}

/* Returns the number of messages of a's channel that are sent but not received.
 */
static int count_in_flight(const struct streams *w, struct pp_action a,
                           int rank)
{
    int n = 0, r;
    size_t k;
    for (size_t i = 0; i < w->s->rows[rank].n; i++) {
        struct pp_action b = at(w, rank, i);
        if (pp_is_send(b.op) && peer_of(w, b) == peer_of(w, a) &&
            w->done[rank][i] && find_other_end(w, b, &r, &k))
            n += !w->done[r][k];
    }
    return n;
}

static bool try_action(struct streams *w, int rank, size_t i)
{
    struct pp_action a = at(w, rank, i);
    int r;
    size_t k;
    if (w->done[rank][i] || !is_its_turn(w, rank, i))
        return false;
    /* The second action of a pair runs with the first. */
    if (i > 0 && at(w, rank, i - 1).overlap && !w->done[rank][i - 1])
        return false;
    bool endless = !strcmp(w->name, "buffered");
    if (is_message(a)) {
        if (!find_other_end(w, a, &r, &k))
            return false;
        if (pp_is_recv(a.op) && !w->done[r][k])
            return false;
        if (pp_is_send(a.op) && !endless && w->depth == 0) {
            if (!is_its_turn(w, r, k))
                return false;
            w->done[r][k] = true;
        } else if (pp_is_send(a.op) && !endless &&
                   count_in_flight(w, a, rank) >= w->depth) {
            return false;
        }
    }
    w->done[rank][i] = true;
    return true;
}

static bool streams_end(const struct pp_schedule *s, const char *name,
                        int depth)
{
    struct streams w = {.s = s, .name = name, .depth = depth};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->graph->n_rows; r++)
            for (size_t i = 0; i < s->rows[r].n; i++)
                moved |= try_action(&w, r, i);
    }
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (!w.done[r][i])
                return false;
    return true;
}

/* --- verdicts --- */

struct counts {
    int accepted, deadlocked, other, wrong, apart;
    int broken;                           /* circles of waits */
    int passed, stopped, swapped, astray; /* other semantics */
};

/* Returns true if there is a circle of waits of ranks that stopped, each for an
 * action that the next one has not reached, or none if all reach their ends. */
static bool circle_fits(const struct pp_schedule *s, bool deadlocks)
{
    struct pp_stuck k;
    struct pp_err err = {0};
    if (pp_stuck_find(s, true, &k, &err))
        return false;
    bool fits = (k.n_circle > 1) == deadlocks;
    for (size_t i = 0; i < k.n_circle && fits; i++) {
        const struct pp_wait *w = &k.circle[i];
        fits = w->place == k.done[w->row] &&
               w->on_row == k.circle[(i + 1) % k.n_circle].row &&
               w->on_place >= k.done[w->on_row] &&
               w->on_place < s->rows[w->on_row].n;
    }
    pp_stuck_finish(&k);
    return fits;
}

static void compare(struct fixture *f, struct counts *c)
{
    struct pp_err err = {0}, why = {0};
    int rc = pp_check(&f->s, &err);
    if (rc && !strstr(err.text, "deadlock")) {
        c->other++; /* wrong order, or incomplete */
        return;
    }
    c->accepted += !rc;
    c->deadlocked += rc != 0;
    c->apart += rc != pp_check_deadlock(&f->s, pp_semantics_find("channel"),
                                        f->s.channel_depth, &why);
    c->broken += !circle_fits(&f->s, rc != 0);
    if (reaches_end(&f->s) != (rc == 0)) {
        c->wrong++;
        printf("# depth %d: %s\n", f->s.channel_depth, err.text);
    }
}

static void compare_semantics(struct fixture *f, struct counts *c)
{
    struct pp_err err = {0};
    if (pp_check_order(&f->s, &err))
        return;
    for (int i = 0; i < PP_N_SEMANTICS; i++) {
        const struct pp_semantics *m = &pp_semantics[i];
        struct pp_err why = {0};
        if (m->by_depth)
            continue;
        int rc = pp_check_deadlock(&f->s, m, f->s.channel_depth, &why);
        if (rc && !strstr(why.text, "deadlock")) {
            c->swapped++;
            continue;
        }
        c->passed += !rc;
        c->stopped += rc != 0;
        if (streams_end(&f->s, m->name, f->s.channel_depth) != (rc == 0)) {
            c->astray++;
            printf("# depth %d, %s: %s\n", f->s.channel_depth, m->name,
                   why.text);
        }
    }
}

/* Lowering makes every feasible order run. */
static void test_lowered(struct dice *d)
{
    int refused = 0, bad = 0;
    for (int i = 0; i < 1000; i++) {
        struct fixture f;
        random_graph(&f, d);
        int m = 1 + roll(d, MAX_MICROBATCHES);
        pp_schedule_init(&f.s, &f.graph, "test", m);
        random_computes(&f, d, m);
        refused += pp_lower(&f.s, &f.err) || pp_check_order(&f.s, &f.err);
        for (int k = 0; k < PP_N_SEMANTICS && !f.err.code; k++)
            bad += pp_check_deadlock(&f.s, &pp_semantics[k], 0, &f.err) != 0;
        drop(&f);
    }
    ok(refused == 0, "every feasible order can be lowered");
    ok(bad == 0, "lowered orders run under all semantics without buffers");
}

int main(void)
{
    struct dice d = {.key = pp_rng_key(7, "schedules")};
    struct counts c = {0};
    enum { N = 10000 };
    for (int i = 0; i < N; i++) {
        struct fixture f;
        random_schedule(&f, &d);
        compare(&f, &c);
        if (i % 8 == 0)
            compare_semantics(&f, &c);
        drop(&f);
    }
    printf("# %d schedules: %d accepted, %d deadlocks, %d others\n", N,
           c.accepted, c.deadlocked, c.other);
    printf("# other semantics: %d ends, %d deadlocks, %d swapped\n", c.passed,
           c.stopped, c.swapped);
    ok(c.accepted > N / 4 && c.deadlocked > N / 4 && c.other > N / 10,
       "all verdicts occur");
    ok(c.wrong == 0, "the checker agrees with the walk");
    ok(c.apart == 0, "the event graph agrees with the player");
    ok(c.passed > 500 && c.stopped > 300 && c.swapped > 50,
       "all verdicts of the other semantics occur");
    ok(c.broken == 0, "deadlocks, and they alone, have a circle of waits");
    ok(c.astray == 0, "under them the event graph agrees with the walk");
    test_lowered(&d);
    return done();
}
