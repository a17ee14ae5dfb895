/* SPDX-License-Identifier: MIT */
/* Little's law: the memory that all microbatches hold on a rank, times the
 * least time that they hold it, fits into the rank's limit times the makespan,
 * less the memory that cannot be used yet at the start or any more at the end.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

/* Returns the lag between two operations of a microbatch; 0 if one does not
 * wait for the other. */
static double lag(const struct pp_bound_case *c, int32_t from, int32_t to)
{
    const struct pp_op_edges *in = &c->data.in;
    for (int32_t i = in->first[to]; i < in->first[to + 1]; i++)
        if (in->op[i] == from)
            return in->lag[i];
    return 0;
}

/* Adds to hold, per stage, the time of each microbatch from the start of F to
 * the end of I, there and back through the later stages. once is scratch
 * space, per stage. */
static void add_holds(const struct pp_bound_case *c, double *hold, double *once)
{
    const struct pp_graph *g = c->g;
    for (size_t k = 0; k < c->n; k++) {
        for (int s = 0; s < g->n_stages; s++)
            once[s] = 0;
        for (int s = g->n_stages; s-- > 0;) {
            size_t at = (size_t)s * c->n + k;
            once[s] += c->times[PP_BOUND_F][at] + c->times[PP_BOUND_I][at];
            hold[s] += once[s];
            for (int i = 0; i < g->stages[s].n_inputs; i++) {
                int t = g->stages[s].inputs[i], back = PP_BOUND_I * g->n_stages;
                pp_bound_raise(&once[t], once[s] + lag(c, t, s) +
                                             lag(c, back + s, back + t));
            }
        }
    }
}

double *pp_bound_holds(const struct pp_bound_case *c)
{
    size_t n = (size_t)c->g->n_stages;
    double *hold = pp_calloc(n, sizeof *hold),
           *once = pp_calloc(n, sizeof *once);
    add_holds(c, hold, once);
    free(once);
    return hold;
}

/* The actions of one kind that take memory, the earliest first. None starts
 * before its head, or before the previous one has run. Seen from the end, tails
 * take the place of heads. */
struct taker {
    int op;
    bool from_end;
    double amount, time; /* the most of any stage, and the least */
    double next;         /* INFINITY if there are no more */
};

static double taken(struct pp_load l, int op, bool from_end)
{
    if (op == PP_BOUND_F)
        return l.f_to_i + l.f_to_w;
    if (op == PP_BOUND_W)
        return l.f_to_w + l.i_to_w;
    return from_end ? l.f_to_i : l.i_to_w;
}

/* Moves t to its next action. at counts the actions passed, per stage. */
static void advance(const struct pp_bound_case *c, const int *stages,
                    int n_stages, struct taker *t, size_t *at)
{
    double after = t->next + t->time;
    int best = -1;
    t->next = INFINITY;
    for (int i = 0; i < n_stages; i++) {
        size_t first = (size_t)stages[i] * c->n;
        if (at[i] == c->n)
            continue;
        double next = t->from_end ? c->tail[t->op][first + c->n - 1 - at[i]]
                                  : c->head[t->op][first + at[i]];
        if (next < t->next) {
            t->next = next;
            best = i;
        }
    }
    if (best < 0)
        return;
    at[best]++;
    t->next = after > t->next ? after : t->next;
}

/* Returns the memory times time that stays empty until the rank can be full.
 * Sets *full to that time, or INFINITY if it never is full. at has 2 * n_stages
 * zeros. */
static double empty(const struct pp_bound_case *c, const int *stages,
                    int n_stages, bool from_end, size_t *at, double *full)
{
    double limit = c->limit[c->g->stages[stages[0]].row];
    struct taker t[2] = {{.op = from_end ? PP_BOUND_W : PP_BOUND_F},
                         {.op = PP_BOUND_I}};
    double lost = 0, now = 0, level = 0;
    for (int i = 0; i < 2; i++) {
        t[i].from_end = from_end;
        t[i].time = INFINITY;
        t[i].next = -INFINITY;
        for (int s = 0; s < n_stages; s++) {
            const struct pp_bound_stage *stage = &c->stages[stages[s]];
            double amount = taken(stage->load, t[i].op, from_end);
            t[i].amount = amount > t[i].amount ? amount : t[i].amount;
            t[i].time = pp_bound_least(t[i].time, stage->time[t[i].op]);
        }
        if (t[i].amount > 0)
            advance(c, stages, n_stages, &t[i], at + i * n_stages);
        else
            t[i].next = INFINITY;
    }
    while (level < limit) {
        int i = t[1].next < t[0].next;
        if (t[i].next == INFINITY)
            break;
        lost += (limit - level) * (t[i].next - now);
        level += t[i].amount;
        now = t[i].next;
        advance(c, stages, n_stages, &t[i], at + i * n_stages);
    }
    *full = level < limit ? INFINITY : now;
    return lost;
}

double pp_bound_little(const struct pp_bound_case *c, const int *stages,
                       int n_stages, const double *hold)
{
    double limit = c->limit[c->g->stages[stages[0]].row];
    double held = 0, full, full_end;
    size_t *at = pp_calloc(4 * (size_t)n_stages, sizeof *at);
    for (int i = 0; i < n_stages; i++) {
        const struct pp_bound_stage *s = &c->stages[stages[i]];
        double iw = s->time[PP_BOUND_I] + s->time[PP_BOUND_W];
        held += hold[stages[i]] * (s->load.f_to_i + s->load.f_to_w);
        held += (double)c->n *
                (s->time[PP_BOUND_W] * s->load.f_to_w + iw * s->load.i_to_w);
    }
    double lost =
        empty(c, stages, n_stages, false, at, &full) +
        empty(c, stages, n_stages, true, at + 2 * n_stages, &full_end);
    free(at);
    /* If the two ends overlapped, the loss would count twice. */
    double makespan = (held + lost) / limit;
    return makespan >= full + full_end ? makespan : held / limit;
}
