/* SPDX-License-Identifier: MIT */
/* The work that a rank must have run before an action, or must still run after
 * it, served by one machine: the time of all that work, in the order in which
 * it can arrive, with the idle time that its heads force.
 *
 * If memory is limited, F(k) of a stage needs all forwards before it and enough
 * gradients to free its memory. These may be more input gradients and fewer
 * weight gradients, or the reverse. Each such choice is a set; the least time
 * of any choice is a head. Every other action has one set. Seen from the end
 * there is no choice either: the most that can run before an action leaves the
 * least after it. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

enum { GAPS = 16 };

/* A machine that serves a set as early as possible. It keeps its idle time as
 * gaps. An action that arrives inside a gap uses it from the gap's start on,
 * and if there are too many gaps the two oldest become one. Both let more work
 * into a gap than really fits, so the end is never too late. */
struct busy {
    double end;
    int n;
    struct gap {
        double from, to;
    } gaps[GAPS];
};

/* A set that grows. */
struct set {
    struct busy busy;
    size_t n[PP_BOUND_OPS]; /* actions of each kind in it */
};

struct pp_bound_sets {
    const struct pp_bound_case *c;
    struct set *head, *tail; /* by stage * PP_BOUND_OPS + op */
};

static void open_gap(struct busy *b, double to)
{
    if (b->n == GAPS) {
        double idle = b->gaps[0].to - b->gaps[0].from;
        b->gaps[1].from -= idle;
        for (int i = 1; i < b->n; i++)
            b->gaps[i - 1] = b->gaps[i];
        b->n--;
    }
    b->gaps[b->n++] = (struct gap){b->end, to};
}

/* Serves an action that arrives at head. */
static void serve(struct busy *b, double head, double time)
{
    int kept = 0;
    if (head > b->end) {
        open_gap(b, head);
        b->end = head + time;
        return;
    }
    for (int i = 0; i < b->n; i++) {
        struct gap g = b->gaps[i];
        double from = head > g.from ? head : g.from;
        double use = fmin(time, g.to - from);
        if (use > 0) {
            time -= use;
            g.from += use;
        }
        if (g.from < g.to)
            b->gaps[kept++] = g;
    }
    b->n = kept;
    b->end += time;
}

/* Serves the k-th action of a kind by its head, or with from_end by its tail.
 */
static void serve_nth(const struct pp_bound_case *c, struct busy *b, int stage,
                      int op, size_t k, bool from_end)
{
    size_t at = (size_t)stage * c->n + k;
    double head = from_end ? c->tail[op][at] : c->head[op][at];
    serve(b, head, c->stages[stage].time[op]);
}

/* Puts the first n actions of a kind into the set of actions before. */
static void need(const struct pp_bound_case *c, struct set *s, int stage,
                 int op, size_t n)
{
    while (s->n[op] < n)
        serve_nth(c, &s->busy, stage, op, s->n[op]++, false);
}

/* Puts all actions of a kind from the n-th on into the set of actions after. */
static void leave(const struct pp_bound_case *c, struct set *s, int stage,
                  int op, size_t n)
{
    for (; s->n[op] + n < c->n; s->n[op]++)
        serve_nth(c, &s->busy, stage, op, c->n - 1 - s->n[op], true);
}

/* Returns how many of size each make up amount, at most `most`. */
static size_t enough(double amount, double each, size_t most)
{
    double n = each > 0     ? ceil(amount / each - 1e-9)
               : amount > 0 ? INFINITY
                            : 0;
    return n <= 0 ? 0 : n < (double)most ? (size_t)n : most;
}

/* Returns how many of size each fit into what is left, at most `most`. */
static size_t fit(double left, double each, size_t most)
{
    double n = each > 0 ? floor(left / each + 1e-9) : INFINITY;
    return n <= 0 ? 0 : n < (double)most ? (size_t)n : most;
}

/* Returns the rank's limit less one microbatch of every stage before s on it:
 * these stages hold the microbatch that s runs. */
static double left_on(const struct pp_bound_case *c, int s)
{
    const struct pp_bound_stage *stage = &c->stages[s];
    double left = c->limit[c->g->stages[s].row];
    for (int i = 0; i < stage->n_above; i++) {
        struct pp_load l = c->stages[stage->above[i]].load;
        left -= l.f_to_i + l.f_to_w;
    }
    return left;
}

/* Returns the head of F(k): the least end of any choice of gradients. */
static double forward_head(struct pp_bound_sets *sets, int s, size_t k)
{
    const struct pp_bound_case *c = sets->c;
    struct set *set = &sets->head[s * PP_BOUND_OPS + PP_BOUND_F];
    struct pp_load l = c->stages[s].load;
    double both = l.f_to_i + l.f_to_w;
    double by_i = l.f_to_i - l.i_to_w, by_w = l.f_to_w + l.i_to_w;
    double above = (double)(k + 1) * both - left_on(c, s), least = INFINITY;
    size_t i = enough(above, both, k);
    size_t w = by_i <= 0 ? i : enough(above - (double)k * by_i, by_w, k);
    need(c, set, s, PP_BOUND_F, k);
    need(c, set, s, PP_BOUND_I, i);
    need(c, set, s, PP_BOUND_W, w);
    struct busy more = set->busy;
    for (; i <= k; i++) {
        size_t now = by_i <= 0 ? w : enough(above - (double)i * by_i, by_w, i);
        struct busy b = more;
        for (size_t j = w; j < now; j++)
            serve_nth(c, &b, s, PP_BOUND_W, j, false);
        least = fmin(least, b.end);
        if (now <= w || i == k)
            break;
        serve_nth(c, &more, s, PP_BOUND_I, i, false);
        if (more.end >= least)
            break; /* every choice with more of I ends later too */
    }
    return least;
}

double pp_bound_set_head(struct pp_bound_sets *sets, int s, int op, size_t k)
{
    const struct pp_bound_case *c = sets->c;
    struct set *set = &sets->head[s * PP_BOUND_OPS + op];
    struct pp_load l = c->stages[s].load;
    double both = l.f_to_i + l.f_to_w, by_w = l.f_to_w + l.i_to_w;
    if (op == PP_BOUND_F)
        return forward_head(sets, s, k);
    need(c, set, s, PP_BOUND_F, k + 1);
    need(c, set, s, PP_BOUND_I, op == PP_BOUND_I ? k : k + 1);
    if (op == PP_BOUND_I) {
        double held = both + (double)k * by_w + l.i_to_w;
        need(c, set, s, PP_BOUND_W, enough(held - left_on(c, s), by_w, k));
    } else {
        need(c, set, s, PP_BOUND_W, k);
    }
    return set->busy.end;
}

double pp_bound_set_tail(struct pp_bound_sets *sets, int s, int op, size_t k)
{
    const struct pp_bound_case *c = sets->c;
    struct set *set = &sets->tail[s * PP_BOUND_OPS + op];
    struct pp_load l = c->stages[s].load;
    double limit = c->limit[c->g->stages[s].row];
    double both = l.f_to_i + l.f_to_w, by_w = l.f_to_w + l.i_to_w;
    size_t f = k + 1, i = k, w = k;
    if (op == PP_BOUND_I) {
        i = k + 1;
        f = k + fit(left_on(c, s) - l.i_to_w, both, c->n - k);
    } else if (op == PP_BOUND_W) {
        w = k + 1;
        i = k + fit(limit, by_w, c->n - k);
        f = k + fit(limit, fmin(both, by_w), c->n - k);
    }
    leave(c, set, s, PP_BOUND_F, f > k ? f : k + 1);
    leave(c, set, s, PP_BOUND_I, i);
    leave(c, set, s, PP_BOUND_W, w);
    return set->busy.end;
}

struct pp_bound_sets *pp_bound_sets_create(const struct pp_bound_case *c)
{
    struct pp_bound_sets *sets = pp_calloc(1, sizeof *sets);
    size_t n = (size_t)c->g->n_stages * PP_BOUND_OPS;
    sets->c = c;
    sets->head = pp_calloc(n, sizeof *sets->head);
    sets->tail = pp_calloc(n, sizeof *sets->tail);
    return sets;
}

void pp_bound_sets_destroy(struct pp_bound_sets *sets)
{
    if (!sets)
        return;
    free(sets->head);
    free(sets->tail);
    free(sets);
}
