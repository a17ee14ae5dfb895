/* SPDX-License-Identifier: MIT */
/* optimum - the best order of a tiny instance, by trying all of them.
 *
 * Shares nothing with the lower bound but deps: actions are started in order of
 * time, each as early as its rank and its inputs allow, any microbatch first,
 * within what a rank may hold. Branches that cannot end before the best known
 * are cut by each rank's remaining work. */
#ifndef PP_TESTS_OPTIMUM_H
#define PP_TESTS_OPTIMUM_H

#include <math.h>

#include "schedule/ir/deps.h"
#include "schedule/memory/memory.h"
#include "schedule/simulate/sim.h"

enum { OPT_STAGES = 6, OPT_MICROBATCHES = 5, OPT_RANKS = 3 };

struct optimum {
    const struct pp_graph *g;
    const struct pp_costs *costs;
    const struct pp_memory_limit *room; /* or NULL */
    int m;
    bool split, in_order; /* in order: microbatches alike, so none overtakes */
    unsigned whole;       /* mask of stages with B although others are split */
    double best;          /* only better ones are looked for */
    long nodes;           /* left before giving up */
    /* private */
    double done[OPT_STAGES][OPT_MICROBATCHES][PP_N_OPS]; /* -1 before */
    double clock[OPT_RANKS], held[OPT_RANKS], work[OPT_RANKS];
    struct pp_action action;
    double ready;
    int left;
};

static double opt_time(const struct optimum *o, enum pp_op op, int stage,
                       int microbatch, int peer)
{
    return o->costs->time(
        o->costs->ctx,
        (struct pp_action){stage, microbatch, peer, 0, (uint8_t)op, 0});
}

static int opt_visit(void *ctx, struct pp_dep dep)
{
    struct optimum *o = ctx;
    int k = o->action.microbatch, stage = o->action.stage;
    double done = -1;
    for (int op = 0; op < PP_N_OPS; op++)
        if (dep.ops & 1u << op && o->done[dep.stage][k][op] >= 0)
            done = o->done[dep.stage][k][op];
    if (done < 0)
        return 1;
    if (dep.message != PP_N_OPS)
        done += opt_time(o, dep.message == PP_RECV_F ? PP_SEND_F : PP_SEND_B,
                         dep.stage, k, stage);
    o->ready = done > o->ready ? done : o->ready;
    return 0;
}

/* The memory that a rank gains while the action runs, and frees after it. */
static double opt_takes(const struct optimum *o, struct pp_action a)
{
    if (!o->room)
        return 0;
    struct pp_load l = o->room->load[a.stage];
    return a.op == PP_F   ? l.f_to_i + l.f_to_w
           : a.op == PP_I ? l.i_to_w
           : a.op == PP_B ? l.in_b
                          : 0;
}

static double opt_frees(const struct optimum *o, struct pp_action a)
{
    if (!o->room)
        return 0;
    struct pp_load l = o->room->load[a.stage];
    return a.op == PP_I   ? l.f_to_i
           : a.op == PP_W ? l.f_to_w + l.i_to_w
           : a.op == PP_B ? l.f_to_i + l.f_to_w + l.in_b
                          : 0;
}

static void opt_search(struct optimum *o, double now);

/* Starts a if it can start now or later, and goes on from there. */
static void opt_try(struct optimum *o, struct pp_action a, double now)
{
    int rank = o->g->stages[a.stage].row;
    double *done = &o->done[a.stage][a.microbatch][a.op];
    if (*done >= 0 || (o->in_order && a.microbatch > 0 && done[-PP_N_OPS] < 0))
        return;
    if (o->room &&
        o->held[rank] + opt_takes(o, a) > o->room->limit[rank] + 1e-9)
        return;
    o->action = a;
    o->ready = o->clock[rank];
    if (pp_deps(o->g, a, opt_visit, o) || o->ready < now - 1e-12)
        return;
    double start = o->ready, clock = o->clock[rank], held = o->held[rank];
    double time = opt_time(o, a.op, a.stage, a.microbatch, -1);
    *done = o->clock[rank] = start + time;
    o->held[rank] += opt_takes(o, a) - opt_frees(o, a);
    o->work[rank] -= time;
    o->left--;
    opt_search(o, start);
    o->left++;
    o->work[rank] += time;
    o->held[rank] = held;
    o->clock[rank] = clock;
    *done = -1;
}

/* Returns the actions of a microbatch on a stage, of which there are *n. */
static const uint8_t *opt_ops(const struct optimum *o, int stage, int *n)
{
    static const uint8_t ops[2][3] = {{PP_F, PP_B}, {PP_F, PP_I, PP_W}};
    bool split = o->split && !(o->whole >> stage & 1);
    *n = split ? 3 : 2;
    return ops[split];
}

static void opt_search(struct optimum *o, double now)
{
    double end = 0;
    if (o->nodes-- <= 0)
        return;
    for (int r = 0; r < o->g->n_rows; r++) {
        double from = o->clock[r];
        if (o->work[r] > 1e-12 && from < now)
            from = now;
        end = fmax(end, from + o->work[r]);
    }
    if (end >= o->best - 1e-9)
        return;
    if (o->left == 0) {
        o->best = end;
        return;
    }
    for (int s = 0; s < o->g->n_stages; s++) {
        int n;
        const uint8_t *ops = opt_ops(o, s, &n);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < o->m; k++)
                opt_try(o, (struct pp_action){s, k, -1, 0, ops[i], 0}, now);
    }
}

/* Lowers best to the least makespan below it. False when it gave up. */
static bool optimum_find(struct optimum *o)
{
    o->left = 0;
    for (int r = 0; r < o->g->n_rows; r++)
        o->clock[r] = o->held[r] = o->work[r] = 0;
    for (int s = 0; s < o->g->n_stages; s++) {
        int n;
        const uint8_t *ops = opt_ops(o, s, &n);
        for (int k = 0; k < o->m; k++) {
            for (int op = 0; op < PP_N_OPS; op++)
                o->done[s][k][op] = -1;
            for (int i = 0; i < n; i++)
                o->work[o->g->stages[s].row] +=
                    opt_time(o, (enum pp_op)ops[i], s, k, -1);
        }
        o->left += n * o->m;
    }
    opt_search(o, 0);
    return o->nodes > 0;
}

#endif
