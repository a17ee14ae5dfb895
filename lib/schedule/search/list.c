/* SPDX-License-Identifier: MIT */
/* List schedules under a policy, by events in order of time. */
#include "schedule/search/methods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The state of a rank while time goes forward. */
struct seat {
    double clock; /* time at which it is free */
    double next;  /* time at which it decides again */
    double held;  /* memory */
    double need;  /* most memory that an input gradient takes as it starts */
    int32_t n;    /* ops of its row written */
};

struct pp_list {
    const struct pp_search_problem *problem;
    const struct pp_policy *policy;
    struct seat *seats; /* per rank */
    int32_t *count;     /* per group: ops run */
    int32_t *missing;   /* per op: inputs from other stages not yet run */
    double
        *arrival; /* per op: time at which inputs from other stages are here */
    int *first_stage; /* per rank, n_rows + 1: into stages */
    int *stages;      /* the stages of each rank, ascending */
    double *trip;     /* per stage: from F's start to I's end, undelayed */
    double *path;     /* per group: from its end to the end of the step */
    double *work;     /* per rank: time of one microbatch */
    double *share;    /* per rank: the share of microbatches that it has */
};

static double group_time(const struct pp_search_problem *j, int kind, int stage)
{
    /* The mean represents all microbatches; they differ little. */
    double sum = 0;
    int32_t n = pp_problem_passing(j, stage);
    for (int i = 0; kind < j->n_kinds && i < n; i++)
        sum += j->ops.time[pp_problem_op(j, kind, stage, i)];
    return sum / n;
}

static double first_lag(const struct pp_search_problem *j, int kind, int stage,
                        int from)
{
    int32_t op = pp_problem_op(j, kind, stage, 0);
    for (int32_t i = j->ops.in.first[op]; i < j->ops.in.first[op + 1]; i++)
        if (pp_problem_stage(j, j->ops.in.op[i]) == from)
            return j->ops.in.lag[i];
    return 0;
}

/* Fills the work of each rank for one of its microbatches. */
static void measure_work(struct pp_list *l)
{
    const struct pp_search_problem *j = l->problem;
    const struct pp_graph *g = j->graph;
    for (int r = 0; r < g->n_rows; r++) {
        double n = 0;
        for (int k = l->first_stage[r], copy = -1; k < l->first_stage[r + 1];
             copy = pp_copy_number(g, l->stages[k++]))
            if (pp_copy_number(g, l->stages[k]) != copy)
                n += pp_problem_passing(j, l->stages[k]);
        for (int k = l->first_stage[r]; k < l->first_stage[r + 1]; k++)
            for (int kind = 0; kind < j->n_kinds; kind++)
                l->work[r] += pp_problem_passing(j, l->stages[k]) / n *
                              group_time(j, kind, l->stages[k]);
        l->share[r] = n / j->n_microbatches;
    }
}

/* Fills round trips from the last stage up, and paths to the end from the first
 * stage down. */
static void measure(struct pp_list *l)
{
    const struct pp_search_problem *j = l->problem;
    const struct pp_graph *g = j->graph;
    int n = g->n_stages;
    for (int s = n - 1; s >= 0; s--) {
        const struct pp_stage_node *node = &g->stages[s];
        double trip = 0;
        for (int i = 0; i < node->n_outputs; i++) {
            int to = node->outputs[i];
            trip = fmax(trip, first_lag(j, PP_PROBLEM_F, to, s) + l->trip[to] +
                                  first_lag(j, PP_PROBLEM_I, s, to));
        }
        l->trip[s] = trip + group_time(j, PP_PROBLEM_F, s) +
                     group_time(j, PP_PROBLEM_I, s);
    }
    for (int s = 0; s < n; s++) {
        const struct pp_stage_node *node = &g->stages[s];
        double back = group_time(j, PP_PROBLEM_W, s);
        for (int i = 0; i < node->n_inputs; i++) {
            int from = node->inputs[i];
            back = fmax(back, first_lag(j, PP_PROBLEM_I, from, s) +
                                  group_time(j, PP_PROBLEM_I, from) +
                                  l->path[PP_PROBLEM_I * n + from]);
        }
        l->path[PP_PROBLEM_I * n + s] = back;
        l->path[s] = back + l->trip[s] - group_time(j, PP_PROBLEM_F, s);
    }
}

/* Returns the most memory that a backward of a stage takes. The last
 * microbatches may have I and W, where the first have B. */
static double backward_needs(const struct pp_search_problem *j, int stage)
{
    double need = 0;
    for (int kind = PP_PROBLEM_I; kind < j->n_kinds; kind++) {
        int32_t first = pp_problem_op(j, kind, stage, 0);
        int32_t last = first + pp_problem_passing(j, stage) - 1;
        need = fmax(need, j->taken[j->load[first]]);
        need = fmax(need, j->taken[j->load[last]]);
    }
    return need;
}

/* Fills the stages of each rank, and the memory that their backwards take. */
static void seat_stages(struct pp_list *l)
{
    const struct pp_graph *g = l->problem->graph;
    int k = 0;
    for (int r = 0; r < g->n_rows; r++) {
        l->first_stage[r] = k;
        for (int s = 0; s < g->n_stages; s++)
            if (g->stages[s].row == r) {
                l->stages[k++] = s;
                l->seats[r].need =
                    fmax(l->seats[r].need, backward_needs(l->problem, s));
            }
    }
    l->first_stage[g->n_rows] = k;
}

struct pp_list *pp_list_create(const struct pp_search_problem *j)
{
    size_t p = (size_t)j->graph->n_rows, n = (size_t)j->graph->n_stages;
    struct pp_list *l = pp_calloc(1, sizeof *l);
    l->problem = j;
    l->seats = pp_calloc(p, sizeof *l->seats);
    l->count = pp_calloc(3 * n, sizeof *l->count);
    l->missing = pp_calloc((size_t)j->ops.n, sizeof *l->missing);
    l->arrival = pp_calloc((size_t)j->ops.n, sizeof *l->arrival);
    l->first_stage = pp_calloc(p + 1, sizeof *l->first_stage);
    l->stages = pp_calloc(n, sizeof *l->stages);
    l->trip = pp_calloc(n, sizeof *l->trip);
    l->path = pp_calloc(3 * n, sizeof *l->path);
    l->work = pp_calloc(p, sizeof *l->work);
    l->share = pp_calloc(p, sizeof *l->share);
    seat_stages(l);
    measure_work(l);
    measure(l);
    return l;
}

void pp_list_destroy(struct pp_list *l)
{
    if (!l)
        return;
    free(l->seats);
    free(l->count);
    free(l->missing);
    free(l->arrival);
    free(l->first_stage);
    free(l->stages);
    free(l->trip);
    free(l->path);
    free(l->work);
    free(l->share);
    free(l);
}

/* The next op of one kind on one stage. */
struct choice {
    int32_t op;    /* -1: none */
    double from;   /* time at which it can start */
    double liking; /* preference by the policy */
};

static int group_of(const struct pp_list *l, int kind, int stage)
{
    return kind * l->problem->graph->n_stages + stage;
}

/* Reports if two stages are of one copy of the weights. */
static bool same_copy(const struct pp_list *l, int stage, int other)
{
    const struct pp_graph *g = l->problem->graph;
    return pp_copy_number(g, stage) == pp_copy_number(g, other);
}

/* Applies the banker's rule to the next forward of stage: the oldest microbatch
 * of its copy that has forwards to run on this rank keeps memory for all of
 * them. */
static bool admits(const struct pp_list *l, int row, int stage)
{
    const struct pp_search_problem *j = l->problem;
    if (!j->limit)
        return true;
    int32_t oldest = l->count[stage];
    double room = j->limit[row] + j->slack - l->seats[row].held -
                  l->seats[row].need - j->taken[stage];
    for (int k = l->first_stage[row]; k < l->first_stage[row + 1]; k++)
        if (same_copy(l, l->stages[k], stage) &&
            l->count[l->stages[k]] < oldest)
            oldest = l->count[l->stages[k]];
    for (int k = l->first_stage[row]; k < l->first_stage[row + 1]; k++) {
        int s = l->stages[k];
        if (s != stage && same_copy(l, s, stage) && l->count[s] == oldest)
            room -= j->taken[s];
    }
    return room >= 0;
}

/* Returns the next op of that group, or -1 if an op that it waits for has not
 * even begun. */
static int32_t next_op(const struct pp_list *l, int kind, int stage)
{
    const struct pp_search_problem *j = l->problem;
    int group = group_of(l, kind, stage);
    int32_t i = l->count[group], op = pp_problem_op(j, kind, stage, i);
    int32_t below = kind == PP_PROBLEM_F ? pp_problem_passing(j, stage)
                                         : l->count[group - j->graph->n_stages];
    if (i >= below || l->missing[op] > 0)
        return -1;
    return op;
}

/* Returns the policy's liking for the next op of a kind on a stage; more is
 * better. */
static double liking(const struct pp_list *l, int kind, int stage, int row)
{
    const struct pp_search_problem *j = l->problem;
    const struct pp_policy *p = l->policy;
    int n = j->graph->n_stages, s = pp_original(j->graph, stage);
    int32_t i = l->count[group_of(l, kind, stage)];
    int32_t m = j->microbatch[pp_problem_op(j, kind, stage, i)];
    enum pp_policy_order order = p->heuristics[row].order;
    if (order == PP_POLICY_PATH)
        return l->path[group_of(l, kind, stage)] -
               p->late * m * l->share[row] * l->work[row];
    bool first = (order == PP_POLICY_FORWARD) == (kind == PP_PROBLEM_F);
    bool up = kind == PP_PROBLEM_F ? p->shallow : false;
    /* The older microbatch wins among copies. */
    return (first ? 2 * n : 0) + (up ? n - s : s) -
           (double)m / j->n_microbatches;
}

/* Reports if the rank of a stage may not run further ahead of the backward, in
 * all copies that it has of it. */
static bool far_ahead(const struct pp_list *l, int stage)
{
    const struct pp_graph *g = l->problem->graph;
    int32_t ahead = 0;
    for (int s = pp_original(g, stage); s < g->n_stages;
         s += g->n_stages / g->n_copies)
        if (g->stages[s].row == g->stages[stage].row)
            ahead += l->count[s] - l->count[group_of(l, PP_PROBLEM_I, s)];
    return ahead >= l->policy->ahead[stage];
}

/* Reports if a is better than b: liked more and not much later, or liked less
 * and much earlier. */
static bool prefers(const struct pp_list *l, const struct choice *a,
                    const struct choice *b, double wait_ratio)
{
    if (a->liking > b->liking)
        return a->from <= b->from + wait_ratio * l->problem->ops.time[b->op];
    return b->from > a->from + wait_ratio * l->problem->ops.time[a->op];
}

/* Returns the best op that is ready now, or else the first to be. Sets *full if
 * an op is ready but does not fit in memory. */
static struct choice choose(const struct pp_list *l, int row, double now,
                            bool *full)
{
    const struct pp_search_problem *j = l->problem;
    struct choice best = {-1, INFINITY, 0};
    double wait_ratio = l->policy->heuristics[row].wait_ratio;
    for (int k = l->first_stage[row]; k < l->first_stage[row + 1]; k++)
        for (int kind = PP_PROBLEM_F; kind <= PP_PROBLEM_I; kind++) {
            int s = l->stages[k];
            int32_t op = next_op(l, kind, s);
            if (op < 0 || (kind == PP_PROBLEM_F && far_ahead(l, s)))
                continue;
            double from = l->arrival[op] > now ? l->arrival[op] : now;
            bool fits =
                kind == PP_PROBLEM_F
                    ? admits(l, row, s)
                    : !j->limit || l->seats[row].held + j->taken[j->load[op]] <=
                                       j->limit[row] + j->slack;
            if (!fits) {
                *full |= from <= now;
                continue;
            }
            struct choice c = {op, from, liking(l, kind, s, row)};
            if (best.op < 0 || prefers(l, &c, &best, wait_ratio))
                best = c;
        }
    return best;
}

/* Returns the oldest weight gradient that can run, or -1. */
static int32_t choose_weight(const struct pp_list *l, int row, double now)
{
    const struct pp_search_problem *j = l->problem;
    int32_t best = -1, oldest = INT32_MAX;
    if (j->n_kinds < 3)
        return -1;
    for (int k = l->first_stage[row]; k < l->first_stage[row + 1]; k++) {
        int32_t op = next_op(l, PP_PROBLEM_W, l->stages[k]);
        if (op >= 0 && l->arrival[op] <= now && j->microbatch[op] <= oldest) {
            best = op;
            oldest = j->microbatch[op];
        }
    }
    return best;
}

static void start(struct pp_list *l, int row, int32_t op, double now,
                  int32_t *order)
{
    const struct pp_search_problem *j = l->problem;
    struct seat *seat = &l->seats[row];
    int group = j->group[op];
    double end = now + j->ops.time[op];
    order[j->ops.first_order[row] + seat->n++] = op;
    l->count[group]++;
    seat->held += j->taken[j->load[op]] - j->freed[j->load[op]];
    seat->clock = seat->next = end;
    for (int32_t i = j->ops.out.first[op]; i < j->ops.out.first[op + 1]; i++) {
        int32_t to = j->ops.out.op[i];
        struct seat *other = &l->seats[j->ops.row[to]];
        double here = end + j->ops.out.lag[i];
        if (here > l->arrival[to])
            l->arrival[to] = here;
        if (--l->missing[to] > 0 || other == seat)
            continue;
        double t =
            l->arrival[to] > other->clock ? l->arrival[to] : other->clock;
        other->next = t < other->next ? t : other->next;
    }
}

/* Starts an op on a rank, or sets the time at which it decides again. */
static void decide(struct pp_list *l, int row, int32_t *order)
{
    const struct pp_row_heuristic *heuristic = &l->policy->heuristics[row];
    struct seat *seat = &l->seats[row];
    double now = seat->next;
    bool full = false;
    struct choice c = choose(l, row, now, &full);
    if (c.op >= 0 && c.from <= now &&
        !(full && heuristic->order == PP_POLICY_FORWARD &&
          pp_problem_kind(l->problem, c.op) != PP_PROBLEM_F)) {
        start(l, row, c.op, now, order);
        return;
    }
    int32_t w = choose_weight(l, row, now);
    if (w >= 0 &&
        (full || c.from - now >= heuristic->min_fill * l->problem->ops.time[w]))
        start(l, row, w, now, order);
    else if (c.op >= 0 && c.from <= now)
        start(l, row, c.op, now, order);
    else
        seat->next = c.from;
}

static void reset(struct pp_list *l)
{
    const struct pp_search_problem *j = l->problem;
    for (int r = 0; r < j->graph->n_rows; r++)
        l->seats[r] = (struct seat){.need = l->seats[r].need};
    for (int g = 0; g < j->n_kinds * j->graph->n_stages; g++)
        l->count[g] = 0;
    for (int32_t op = 0; op < j->ops.n; op++) {
        l->missing[op] = j->ops.in.first[op + 1] - j->ops.in.first[op];
        l->arrival[op] = 0;
    }
}

void pp_list_ahead(const struct pp_list *l, double trips, int32_t *ahead)
{
    const struct pp_graph *g = l->problem->graph;
    for (int s = 0; s < g->n_stages; s++) {
        double n = trips * l->trip[s] / l->work[g->stages[s].row];
        ahead[s] = l->problem->n_microbatches;
        if (trips > 0 && n < ahead[s])
            ahead[s] = n > 1 ? (int32_t)ceil(n - 1e-9) : 1;
    }
}

void pp_policy_init(struct pp_policy *p, const struct pp_search_problem *j)
{
    *p = (struct pp_policy){.late = 1};
    p->ahead = pp_calloc((size_t)j->graph->n_stages, sizeof *p->ahead);
    p->heuristics = pp_calloc((size_t)j->graph->n_rows, sizeof *p->heuristics);
}

void pp_policy_finish(struct pp_policy *p)
{
    free(p->ahead);
    free(p->heuristics);
    *p = (struct pp_policy){0};
}

void pp_policy_copy(struct pp_policy *to, const struct pp_policy *from,
                    const struct pp_search_problem *j)
{
    to->shallow = from->shallow;
    to->late = from->late;
    memcpy(to->ahead, from->ahead,
           (size_t)j->graph->n_stages * sizeof *to->ahead);
    memcpy(to->heuristics, from->heuristics,
           (size_t)j->graph->n_rows * sizeof *to->heuristics);
}

bool pp_list_run(struct pp_list *l, const struct pp_policy *p, int32_t *order)
{
    const struct pp_search_problem *j = l->problem;
    l->policy = p;
    reset(l);
    for (;;) {
        int row = 0;
        for (int r = 1; r < j->graph->n_rows; r++)
            if (l->seats[r].next < l->seats[row].next)
                row = r;
        if (isinf(l->seats[row].next))
            break;
        decide(l, row, order);
    }
    for (int r = 0; r < j->graph->n_rows; r++)
        if (l->seats[r].n < j->ops.first_order[r + 1] - j->ops.first_order[r])
            return false;
    return true;
}
