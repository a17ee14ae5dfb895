/* SPDX-License-Identifier: MIT */
/* Combinations are tried in three passes: named kinds with brief searches for
 * their splits, brief searches for an order from the best of them, and one long
 * search from the best order. */
#include "split/split_joint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "schedule/search/search.h"

/* Orders are searched at a glance on each split, then for longer from the best
 * of these, and the split with them; last from the best alone if its step is
 * FAR from the bound. */
enum { N_BRIEF = 3, MAX_ORDERS = 64 };
#define GLANCE_SECONDS 0.1
#define BRIEF_SECONDS 0.5
#define LONG_SECONDS 3
#define FAR 1.05

/* Orders are searched until the step is this close to the bound. */
#define NEAR 1.003

/* A kind is planned again, without haste, if it is this close to the choice. */
#define CLOSE 1.02

struct joint_search {
    const struct pp_split_request *q;
    struct pp_split_joint *joint;
    struct pp_split_plan *best;
    double step;      /* of best */
    bool whole_saves; /* B of the last unit takes less than I and W */
    uint64_t orders[MAX_ORDERS]; /* of the kinds of a placement */
    size_t n_orders;
};

/* --- one combination --- */

static void record_choice(struct joint_search *x,
                          const struct pp_split_choice *c)
{
    struct pp_split_joint *j = x->joint;
    pp_array_reserve(&j->choices, &j->capacity, j->n_choices + 1,
                     sizeof *j->choices);
    j->choices[j->n_choices++] = *c;
}

/* Returns the request for a combination, to be planned in haste. */
static struct pp_split_request request_for(const struct joint_search *x,
                                           const struct pp_split_choice *c)
{
    struct pp_split_request q = *x->q;
    q.placement = c->placement;
    q.n_chunks = c->n_chunks;
    q.kind = c->kind;
    q.whole_head = c->whole_head;
    q.search_order = false;
    q.shortest = true;
    q.brief = true;
    return q;
}

static void keep(struct joint_search *x, const struct pp_split_request *q,
                 struct pp_split_plan *plan)
{
    x->joint->request = *q;
    pp_split_plan_finish(x->best);
    pp_split_plan_move(plan, x->best);
    x->best->run.request = &x->joint->request;
    x->step = x->best->run.found.makespan;
}

/* Returns the least work of the busiest rank in any order. */
static double busiest(const struct pp_split_plan *plan)
{
    const struct pp_split_run *run = &plan->run;
    double most = 0;
    for (int r = 0; r < plan->graph.n_rows; r++) {
        double work = 0;
        for (int s = 0; s < plan->graph.n_stages; s++)
            for (size_t i = pp_split_first(plan, s);
                 plan->graph.stages[s].row == r && i < pp_split_end(plan, s);
                 i++) {
                const double *t = run->times[i];
                work += t[PP_TIME_F] +
                        fmin(t[PP_TIME_B], t[PP_TIME_I] + t[PP_TIME_W]);
            }
        double speed = run->request->speeds ? run->request->speeds[r] : 1;
        most = fmax(most, work / speed);
    }
    return most * (double)run->n_microbatches;
}

/* Sets the times and the memory of a choice. */
static void weigh(const struct pp_split_plan *plan, struct pp_split_choice *c)
{
    int n = plan->graph.n_rows;
    double busy = 0, makespan = plan->run.found.makespan;
    for (int r = 0; r < n; r++)
        busy += plan->ranks[r].busy;
    c->busiest = busiest(plan);
    c->idle = makespan > 0 ? 1 - busy / (n * makespan) : 0;
    c->need = pp_split_plan_need(plan, pp_split_plan_fullest(plan));
}

/* Plans a request, sets the figures and the bounds of a choice, and keeps the
 * plan if none is better. The step is infinite if no split fits. */
static void try_request(struct joint_search *x,
                        const struct pp_split_request *q,
                        struct pp_split_choice *c)
{
    struct pp_split_plan plan;
    struct pp_err refusal = {0};
    bool planned = !pp_split_plan(q, &plan, &refusal);
    c->step = INFINITY;
    c->bounds = NULL;
    c->idle = c->need = c->busiest = 0;
    /* A search that finds no order leaves the kind's. */
    bool found =
        planned && (!q->search_order || !strcmp(plan.run.name, "auto"));
    if (found)
        weigh(&plan, c);
    if (found && (q->memory_bytes == 0 || pp_split_plan_fits(&plan))) {
        size_t n = plan.run.n_stages + 1;
        size_t *bounds = pp_arena_alloc(&x->joint->arena, n, sizeof *bounds);
        memcpy(bounds, plan.bounds, n * sizeof *bounds);
        c->bounds = bounds;
        c->step = q->shortest ? plan.run.found.makespan
                              : pp_split_step_time(&plan.run.step, bounds);
    }
    if (q->shortest && isfinite(c->step) && c->step <= x->step)
        keep(x, q, &plan);
    pp_split_plan_finish(&plan);
}

/* --- named kinds --- */

static bool is_halved(const struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++)
            if (s->rows[r].actions[i].op == PP_I)
                return true;
    return false;
}

static uint64_t hash_order(const struct pp_schedule *s)
{
    uint64_t h = PP_FNV_START;
    for (int r = 0; r < s->graph->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_action *a = &s->rows[r].actions[i];
            const int key[] = {r, a->stage, a->microbatch, a->op};
            h = pp_fnv(h, key, sizeof key);
        }
    return h;
}

/* Returns true if a kind can run on a placement, in an order that no kind
 * before it had there. Sets *halves if the order has I. */
static bool is_fresh(struct joint_search *x, const struct pp_split_choice *c,
                     const struct pp_kind *kind, bool *halves)
{
    int m = (int)x->q->n_microbatches;
    struct pp_kind_options o = {.n_microbatches = m};
    struct pp_arena arena = {0};
    struct pp_graph g;
    struct pp_schedule s = {0};
    struct pp_err refusal = {0};
    bool fresh = !pp_graph_chain(&arena, (int)x->q->n_ranks, c->n_chunks,
                                 c->placement, &g, &refusal);
    if (fresh) {
        pp_schedule_init(&s, &g, kind->name, m);
        fresh = !pp_kind_emit(kind, &s, &o, &refusal);
    }
    if (fresh) {
        uint64_t h = hash_order(&s);
        for (size_t i = 0; i < x->n_orders; i++)
            fresh &= x->orders[i] != h;
        if (x->n_orders < MAX_ORDERS)
            x->orders[x->n_orders++] = h;
        *halves = is_halved(&s);
    }
    pp_schedule_finish(&s);
    pp_arena_finish(&arena);
    return fresh;
}

static void try_kind(struct joint_search *x, struct pp_split_choice c)
{
    struct pp_split_request q = request_for(x, &c);
    try_request(x, &q, &c);
    record_choice(x, &c);
}

/* Tries all kinds on a placement. */
static void try_placement(struct joint_search *x, enum pp_placement placement,
                          int n_chunks)
{
    struct pp_split_choice c = {.placement = placement, .n_chunks = n_chunks};
    x->n_orders = 0;
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        bool halves;
        if ((*k)->slices || (*k)->copies || !is_fresh(x, &c, *k, &halves))
            continue;
        c.kind = (*k)->name;
        c.whole_head = false;
        try_kind(x, c);
        c.whole_head = true;
        if (halves && x->whole_saves)
            try_kind(x, c);
    }
}

static void try_placements(struct joint_search *x, bool any_placement)
{
    const struct pp_split_request *q = x->q;
    int64_t first = q->n_chunks ? q->n_chunks : 1;
    int64_t last = q->n_chunks ? q->n_chunks : PP_JOINT_CHUNKS;
    int64_t n_units = (int64_t)pp_model_n_units(q->shard.model);
    for (int64_t c = first;
         c <= last && (c == first || c * q->n_ranks <= n_units); c++) {
        if (any_placement || q->placement == PP_PLACEMENT_LOOP)
            try_placement(x, PP_PLACEMENT_LOOP, (int)c);
        if (any_placement ? c > 1 : q->placement == PP_PLACEMENT_V)
            try_placement(x, PP_PLACEMENT_V, (int)c);
    }
}

/* --- orders --- */

/* Reports if recomputation depends on the split. */
static bool has_modes(const struct pp_split_request *q)
{
    return q->stage_modes || q->recompute_auto;
}

/* How long to search. */
enum effort {
    GLANCE, /* an order for the split */
    BRIEF,  /* orders and splits in turn */
    LONG
};

/* Searches an order from a choice and adds it as a choice. */
static void try_order(struct joint_search *x, struct pp_split_choice c,
                      enum effort effort)
{
    static const double seconds[] = {GLANCE_SECONDS, BRIEF_SECONDS,
                                     LONG_SECONDS};
    struct pp_split_request q = request_for(x, &c);
    q.search_order = true;
    q.seconds = seconds[effort];
    q.plan_buffers = true;
    if (!has_modes(x->q) && effort == GLANCE)
        q.bounds = c.bounds;
    else if (!has_modes(x->q))
        q.start = c.bounds;
    try_request(x, &q, &c);
    c.start = c.kind;
    c.kind = "auto";
    c.whole_head = false;
    record_choice(x, &c);
}

/* Reports if the best plan is so close to the bound that a search is not worth
 * its time. */
static bool is_close_enough(const struct joint_search *x)
{
    return x->step <= x->joint->bound.step * NEAR;
}

static bool same_placement(const struct pp_split_choice *a,
                           const struct pp_split_choice *b)
{
    return a->placement == b->placement && a->n_chunks == b->n_chunks;
}

static bool same_split(const struct pp_split_choice *a,
                       const struct pp_split_choice *b, int64_t n_ranks)
{
    size_t n = (size_t)(a->n_chunks * n_ranks) + 1;
    return same_placement(a, b) &&
           !memcmp(a->bounds, b->bounds, n * sizeof *a->bounds);
}

/* Returns the best of the choices from first on whose split is not one of those
 * taken; NULL if there is none that fits. */
static const struct pp_split_choice *
next_start(const struct joint_search *x, size_t first,
           const struct pp_split_choice *taken, size_t n_taken)
{
    const struct pp_split_choice *best = NULL;
    for (size_t i = first; i < x->joint->n_choices; i++) {
        const struct pp_split_choice *c = &x->joint->choices[i];
        bool is_taken = isinf(c->step);
        for (size_t k = 0; k < n_taken && !is_taken; k++)
            is_taken = same_split(c, &taken[k], x->q->n_ranks);
        if (!is_taken && (!best || c->step < best->step))
            best = c;
    }
    return best;
}

/* Finds the split of a placement whose costliest rank is cheapest, under the
 * kind of a choice. */
static void balance(struct joint_search *x, struct pp_split_choice *c)
{
    struct pp_split_request q = request_for(x, c);
    q.shortest = false;
    try_request(x, &q, c);
}

/* Glances at orders on the split of a choice, unless none can be better than
 * the best. */
static void glance_at(struct joint_search *x, struct pp_split_choice c)
{
    if (isfinite(c.step) && (has_modes(x->q) || c.busiest < x->step))
        try_order(x, c, GLANCE);
}

/* Glances at orders on the best split of a kind, and on the balanced split. The
 * choices first .. end - 1 are those of one placement. */
static void glance(struct joint_search *x, size_t first, size_t end)
{
    const struct pp_split_choice *all = x->joint->choices;
    size_t best = first;
    for (size_t i = first; i < end; i++)
        best = all[i].step < all[best].step ? i : best;
    if (isinf(all[best].step))
        return;
    struct pp_split_choice c = all[best], balanced = c;
    glance_at(x, c);
    if (has_modes(x->q))
        return;
    balance(x, &balanced);
    if (isinf(balanced.step) || !same_split(&c, &balanced, x->q->n_ranks))
        glance_at(x, balanced);
}

static void glance_all(struct joint_search *x, size_t named)
{
    size_t end;
    for (size_t first = 0; first < named; first = end) {
        end = first + 1;
        while (end < named && same_placement(&x->joint->choices[first],
                                             &x->joint->choices[end]))
            end++;
        if (!is_close_enough(x))
            glance(x, first, end);
    }
}

/* Searches orders with each effort in turn. */
static void try_orders(struct joint_search *x)
{
    struct pp_split_choice taken[N_BRIEF];
    size_t named = x->joint->n_choices;
    glance_all(x, named);
    for (size_t n = 0; n <= N_BRIEF && !is_close_enough(x); n++) {
        bool last = n == N_BRIEF;
        if (last && x->step <= x->joint->bound.step * FAR)
            break;
        const struct pp_split_choice *c =
            next_start(x, named, taken, last ? 0 : n);
        if (!c)
            break;
        struct pp_split_choice start = *c;
        start.kind = c->start;
        if (!last)
            taken[n] = start;
        try_order(x, start, last ? LONG : BRIEF);
    }
}

/* Tries orders with few microbatches in flight if no kind fits. */
static void try_small(struct joint_search *x, bool any_placement)
{
    struct pp_split_choice c = {
        .placement = any_placement ? PP_PLACEMENT_LOOP : x->q->placement,
        .n_chunks = x->q->n_chunks ? (int)x->q->n_chunks : 1};
    try_order(x, c, LONG);
}

/* Plans kinds that are close to the best again, without haste. */
static void try_close(struct joint_search *x)
{
    for (size_t i = 0; i < x->joint->n_choices; i++) {
        struct pp_split_choice *c = &x->joint->choices[i];
        if (c->step > CLOSE * x->step || !strcmp(c->kind, "auto"))
            continue;
        struct pp_split_request q = request_for(x, c);
        q.brief = false;
        q.plan_buffers = true;
        try_request(x, &q, c);
    }
}

/* --- the answer --- */

/* Finds the bound, without recomputation if stages may choose it. */
static int find_bound(struct joint_search *x, struct pp_err *err)
{
    struct pp_split_request q = *x->q;
    struct pp_split_run run;
    q.stage_modes = NULL;
    q.recompute_auto = false;
    q.kind = "gpipe";
    q.placement = PP_PLACEMENT_LOOP;
    q.n_chunks = 1;
    q.memory_bytes = 0;
    int rc = pp_split_run_init(&run, &q, err);
    if (!rc) {
        x->joint->bound = pp_split_run_least(&run);
        const double *head = run.times[run.n_units - 1];
        double halves = head[PP_TIME_I] + head[PP_TIME_W];
        x->whole_saves = head[PP_TIME_B] < halves * (1 - 1e-9);
    }
    pp_split_run_finish(&run);
    return rc;
}

/* Plans without a search, so that the caller can say what does not fit. */
static int plan_anything(struct joint_search *x, struct pp_err *err)
{
    struct pp_split_request *q = &x->joint->request;
    *q = *x->q;
    q->kind = NULL;
    q->n_chunks = q->n_chunks ? q->n_chunks : 1;
    q->shortest = true;
    q->search_order = false;
    return pp_split_plan(q, x->best, err);
}

int pp_split_joint(const struct pp_split_request *q, bool any_placement,
                   struct pp_split_joint *joint, struct pp_split_plan *plan,
                   struct pp_err *err)
{
    struct joint_search x = {
        .q = q, .joint = joint, .best = plan, .step = INFINITY};
    *joint = (struct pp_split_joint){.n_choices = 0};
    *plan = (struct pp_split_plan){.bounds = NULL};
    if (pp_split_check_meshes(q, err) || find_bound(&x, err))
        return -1;
    try_placements(&x, any_placement);
    try_orders(&x);
    try_close(&x);
    if (isinf(x.step))
        try_small(&x, any_placement);
    if (isinf(x.step))
        return plan_anything(&x, err);
    struct pp_split_found *found = &plan->run.found;
    found->bound = fmin(joint->bound.step, found->makespan);
    found->proved = found->makespan <= joint->bound.step * (1 + 1e-6);
    return 0;
}

void pp_split_joint_finish(struct pp_split_joint *joint)
{
    free(joint->choices);
    pp_arena_finish(&joint->arena);
}
