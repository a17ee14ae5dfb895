/* SPDX-License-Identifier: MIT */
/* The greedy zero-bubble orders. Every stage has a rank of its own, called a
 * station here; the rounds of forwards and input gradients follow the paper. */
#include "schedule/search/search_methods.h"

#include <stdlib.h>

#include "schedule/ir/play.h"

struct station {
    int32_t n[3];   /* ops run, by kind */
    int32_t placed; /* ops of its row */
    double clock;   /* time at which it is free */
    double held;    /* memory */
    double idle;    /* since its first forward */
};

struct greedy {
    const struct pp_search_problem *problem;
    struct pp_greedy_knobs knobs;
    struct station *stations; /* per stage, each on a rank of its own */
    int32_t *wanted;          /* per stage: forwards of this round */
    double *end;              /* per op, if it has run */
    int32_t *order;
};

struct pp_greedy_knobs pp_greedy_setting(int i)
{
    return (struct pp_greedy_knobs){
        .overshoot = !(i & 4), .hold = !(i & 2), .eager = !(i & 1)};
}

static int32_t next_of_kind(const struct greedy *g, int kind, int s)
{
    return pp_problem_op(g->problem, kind, s, g->stations[s].n[kind]);
}

static double time_of(const struct greedy *g, int kind, int s)
{
    return g->problem->ops.time[next_of_kind(g, kind, s)];
}

static double arrival(const struct greedy *g, int32_t op)
{
    const struct pp_search_problem *j = g->problem;
    double here = 0;
    for (int32_t i = j->ops.in.first[op]; i < j->ops.in.first[op + 1]; i++) {
        double t = g->end[j->ops.in.op[i]] + j->ops.in.lag[i];
        here = t > here ? t : here;
    }
    return here;
}

static void put_action(struct greedy *g, int kind, int s)
{
    const struct pp_search_problem *j = g->problem;
    struct station *st = &g->stations[s];
    int32_t op = next_of_kind(g, kind, s);
    int group = j->group[op];
    double here = arrival(g, op);
    if (here > st->clock) {
        st->idle += st->n[PP_PROBLEM_F] > 0 ? here - st->clock : 0;
        st->clock = here;
    }
    st->clock += j->ops.time[op];
    st->held += j->taken[group] - j->freed[group];
    g->end[op] = st->clock;
    g->order[j->ops.first_order[j->ops.row[op]] + st->placed++] = op;
    st->n[kind]++;
}

static bool has_weight(const struct greedy *g, int s)
{
    const struct station *st = &g->stations[s];
    return st->n[PP_PROBLEM_W] < st->n[PP_PROBLEM_I];
}

static double most_idle(const struct greedy *g)
{
    double most = 0;
    for (int s = 0; s < g->problem->graph->n_stages; s++)
        most = g->stations[s].idle > most ? g->stations[s].idle : most;
    return most;
}

/* Returns the memory that the next op of a kind lacks, given what is held. */
static double lacks(const struct greedy *g, int kind, int s, double held)
{
    const struct pp_search_problem *j = g->problem;
    int group = kind * j->graph->n_stages + s;
    int row = j->graph->stages[s].row;
    if (!j->limit)
        return -1;
    return held + j->taken[group] - j->limit[row] - j->slack;
}

/* Runs the weight gradients that free memory for the next op, those that fit
 * before its input arrives, and then the op. Returns false if it does not fit.
 */
static bool put_in_time(struct greedy *g, int kind, int s)
{
    struct station *st = &g->stations[s];
    while (lacks(g, kind, s, st->held) > 0) {
        if (!has_weight(g, s))
            return false;
        put_action(g, PP_PROBLEM_W, s);
    }
    double here = arrival(g, next_of_kind(g, kind, s));
    while (has_weight(g, s) && st->clock + time_of(g, PP_PROBLEM_W, s) <= here)
        put_action(g, PP_PROBLEM_W, s);
    double wait = here - st->clock;
    if (wait > 0 && has_weight(g, s) &&
        (g->knobs.eager || wait > most_idle(g) - st->idle))
        put_action(g, PP_PROBLEM_W, s);
    put_action(g, kind, s);
    return true;
}

/* Returns the number of forwards of stage s that fill the time until a backward
 * arrives at `here`, and that fit. Advances *end to the end of the last. */
static int32_t fill(const struct greedy *g, int s, double here, double *end)
{
    const struct pp_search_problem *j = g->problem;
    const struct station *st = &g->stations[s];
    double held = st->held;
    int32_t n = 0;
    for (; st->n[PP_PROBLEM_F] + n < j->n_microbatches; n++) {
        double time = j->ops.time[pp_problem_op(j, PP_PROBLEM_F, s,
                                                st->n[PP_PROBLEM_F] + n)];
        double after = *end + (g->knobs.overshoot ? time : 0);
        if (lacks(g, PP_PROBLEM_F, s, held) > 0 ||
            (g->knobs.overshoot ? after > here : *end >= here))
            break;
        held += j->taken[s];
        *end += time;
    }
    return n;
}

/* Runs the first microbatch forward, more forwards until it is back, and its
 * backward. Each stage runs fewer forwards ahead than the one before it. */
static bool warm_up(struct greedy *g)
{
    const struct pp_search_problem *j = g->problem;
    int n = j->graph->n_stages;
    double back = 0;
    for (int s = 0; s < n; s++)
        if (!put_in_time(g, PP_PROBLEM_F, s))
            return false;
    for (int s = n - 1; s >= 0; s--) {
        double end = g->stations[s].clock;
        int32_t first = pp_problem_op(j, PP_PROBLEM_I, s, 0);
        double here = back;
        if (s < n - 1)
            here += j->ops.in.lag[j->ops.in.first[first]];
        g->wanted[s] = s < n - 1 ? fill(g, s, here, &end) : 0;
        back = (end > here ? end : here) + j->ops.time[first];
    }
    for (int s = 1; s < n; s++)
        if (g->wanted[s] > 0 && g->wanted[s] >= g->wanted[s - 1])
            g->wanted[s] = g->wanted[s - 1] > 0 ? g->wanted[s - 1] - 1 : 0;
    for (int s = 0; s < n; s++)
        for (int32_t i = 0; i < g->wanted[s]; i++)
            put_action(g, PP_PROBLEM_F, s);
    for (int s = n - 1; s >= 0; s--)
        if (!put_in_time(g, PP_PROBLEM_I, s))
            return false;
    return true;
}

/* Reports if s delays its forward: the next stage has enough to do, and the
 * wait leaves s no more idle than the idlest rank. */
static bool holds_back(const struct greedy *g, int s)
{
    const struct pp_search_problem *j = g->problem;
    const struct station *st = &g->stations[s], *next = st + 1;
    if (!g->knobs.hold || s + 1 == j->graph->n_stages ||
        st->n[PP_PROBLEM_F] < next->n[PP_PROBLEM_F] + 2)
        return false;
    int32_t op = next_of_kind(g, PP_PROBLEM_F, s + 1);
    double used = next->clock + j->ops.time[op] +
                  time_of(g, PP_PROBLEM_I, s + 1) +
                  j->ops.in.lag[j->ops.in.first[op]];
    double held = st->held, clock = st->clock;
    int32_t w = st->n[PP_PROBLEM_W];
    for (; w < st->n[PP_PROBLEM_I] && lacks(g, PP_PROBLEM_F, s, held) > 0;
         w++) {
        int32_t weight = pp_problem_op(j, PP_PROBLEM_W, s, w);
        clock += j->ops.time[weight];
        held += j->taken[j->group[weight]] - j->freed[j->group[weight]];
    }
    if (st->clock >= used)
        return true;
    return clock + time_of(g, PP_PROBLEM_F, s) > used &&
           used - st->clock <= most_idle(g) - st->idle;
}

/* Runs one forward on each stage that wants one, and one input gradient on
 * every stage. */
static bool run_round(struct greedy *g)
{
    const struct pp_search_problem *j = g->problem;
    int n = j->graph->n_stages;
    for (int s = 0; s < n; s++)
        g->wanted[s] = g->stations[s].n[PP_PROBLEM_F] < j->n_microbatches &&
                       !holds_back(g, s);
    for (int s = n - 2; s >= 0; s--)
        if (g->stations[s + 1].n[PP_PROBLEM_F] < j->n_microbatches &&
            !g->wanted[s + 1])
            g->wanted[s] = 0;
    for (int s = 0; s < n; s++) {
        bool there = s == 0 || g->stations[s - 1].n[PP_PROBLEM_F] >
                                   g->stations[s].n[PP_PROBLEM_F];
        if (g->wanted[s] && there && !put_in_time(g, PP_PROBLEM_F, s))
            return false;
    }
    for (int s = n - 1; s >= 0; s--) {
        struct station *st = &g->stations[s];
        if (st->n[PP_PROBLEM_F] <= st->n[PP_PROBLEM_I])
            return false; /* its forward was held back too long */
        while (s == 0 && st->n[PP_PROBLEM_F] == j->n_microbatches &&
               has_weight(g, s))
            put_action(g, PP_PROBLEM_W, s);
        if (!put_in_time(g, PP_PROBLEM_I, s))
            return false;
    }
    return true;
}

static bool run_greedy(struct greedy *g)
{
    const struct pp_search_problem *j = g->problem;
    if (!warm_up(g))
        return false;
    for (int i = 1; i < j->n_microbatches; i++)
        if (!run_round(g))
            return false;
    for (int s = 0; s < j->graph->n_stages; s++)
        while (has_weight(g, s))
            put_action(g, PP_PROBLEM_W, s);
    return true;
}

/* Reports if the stages are a chain, each on a rank of its own. */
static bool is_chain(const struct pp_search_problem *j)
{
    const struct pp_graph *g = j->graph;
    if (j->n_kinds < 3 || g->n_stages != g->n_rows)
        return false;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *node = &g->stages[s];
        if (node->n_inputs != (s > 0) || (s > 0 && node->inputs[0] != s - 1))
            return false;
        int32_t ops =
            j->ops.first_order[node->row + 1] - j->ops.first_order[node->row];
        if (ops != 3 * j->n_microbatches)
            return false;
    }
    return true;
}

int pp_greedy_run(const struct pp_search_problem *j,
                  struct pp_greedy_knobs knobs, int32_t *order,
                  struct pp_err *err)
{
    struct greedy g = {.problem = j, .knobs = knobs, .order = order};
    size_t n = (unsigned)j->graph->n_stages;
    int rc = PP_AGAIN;
    if (!is_chain(j))
        return PP_AGAIN;
    g.stations = calloc(n, sizeof *g.stations);
    g.wanted = calloc(n, sizeof *g.wanted);
    g.end = calloc((size_t)j->ops.n, sizeof *g.end);
    if (!g.stations || !g.wanted || !g.end)
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (run_greedy(&g))
        rc = 0;
    free(g.stations);
    free(g.wanted);
    free(g.end);
    return rc;
}
