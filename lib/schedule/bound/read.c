/* SPDX-License-Identifier: MIT */
/* Reads costs and graph into the struct that the bounds work on. */
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"
#include "schedule/ir/deps.h"

struct bound_reader {
    struct pp_bound_case *c;
    const struct pp_costs *costs;
    bool split;
    struct pp_action action; /* whose waits are read */
    struct pp_err *err;
};

/* Returns the time of an action. A slice counts as a microbatch of its own: a
 * lower bound may leave out what slices wait for among each other. */
static double ask(const struct bound_reader *r, enum pp_op op, int stage,
                  int peer, size_t k)
{
    size_t n_slices = (size_t)r->c->g->slices.n;
    struct pp_action a = {.stage = stage,
                          .microbatch = (int32_t)(k / n_slices),
                          .slice = (int16_t)(k % n_slices),
                          .peer = peer,
                          .op = (uint8_t)op};
    return r->costs->time(r->costs->ctx, a);
}

/* Fills the times of one stage and microbatch. B may replace I and W: if it
 * takes less time than both, they are shortened to its time. */
static void ask_times(const struct bound_reader *r, int stage, size_t k,
                      double *time)
{
    double b = ask(r, PP_B, stage, -1, k);
    time[PP_BOUND_F] = ask(r, PP_F, stage, -1, k);
    time[PP_BOUND_I] = b;
    time[PP_BOUND_W] = 0;
    if (!r->split)
        return;
    double i = ask(r, PP_I, stage, -1, k);
    double w = ask(r, PP_W, stage, -1, k);
    time[PP_BOUND_I] = pp_bound_least(i, b);
    time[PP_BOUND_W] = pp_bound_least(w, b - time[PP_BOUND_I]);
}

static void read_stage(const struct bound_reader *r, int stage)
{
    struct pp_bound_case *c = r->c;
    struct pp_bound_stage *s = &c->stages[stage];
    double *work = &c->work[c->g->stages[stage].row];
    for (size_t k = 0; k < c->n; k++) {
        double time[PP_BOUND_OPS];
        ask_times(r, stage, k, time);
        for (int op = 0; op < PP_BOUND_OPS; op++) {
            c->times[op][(size_t)stage * c->n + k] = time[op];
            c->uniform &= k == 0 || time[op] == s->time[op];
            s->time[op] = k ? pp_bound_least(s->time[op], time[op]) : time[op];
            *work += time[op];
        }
    }
}

/* Returns the least time of a message of any microbatch. */
static double least_lag(const struct bound_reader *r, struct pp_action send)
{
    double least = 0;
    for (size_t k = 0; k < r->c->n; k++) {
        double time = ask(r, (enum pp_op)send.op, send.stage, send.peer, k);
        least = k ? pp_bound_least(least, time) : time;
    }
    return least;
}

static int read_wait(void *ctx, struct pp_dep dep)
{
    const struct bound_reader *r = ctx;
    struct pp_ops *data = &r->c->data;
    struct pp_action message = r->action;
    int op = dep.ops & 1u << PP_F ? PP_BOUND_F : PP_BOUND_I;
    double lag = 0;
    if (dep.slice != r->action.slice)
        return 0;
    if (dep.message != PP_N_OPS) {
        message.op = (uint8_t)dep.message;
        message.peer = dep.stage;
        lag = least_lag(r, pp_other_end(message));
    }
    return pp_ops_wait(data, op * r->c->g->n_stages + dep.stage, lag, r->err);
}

static int read_data(struct bound_reader *r)
{
    static const uint8_t ops[] = {PP_F, PP_I, PP_W};
    struct pp_bound_case *c = r->c;
    const struct pp_graph *g = c->g;
    size_t n = (size_t)g->n_stages;
    if (pp_ops_init(&c->data, PP_BOUND_OPS * n, (size_t)g->n_rows, true,
                    r->err))
        return -1;
    for (int op = 0; op < PP_BOUND_OPS; op++)
        for (int s = 0; s < g->n_stages; s++) {
            r->action =
                (struct pp_action){.stage = s, .peer = -1, .op = ops[op]};
            pp_ops_add(&c->data, g->stages[s].row, c->stages[s].time[op]);
            if (op == PP_BOUND_W
                    ? pp_ops_wait(&c->data, (op - 1) * g->n_stages + s, 0,
                                  r->err)
                    : pp_deps(g, r->action, read_wait, r))
                return -1;
        }
    pp_ops_link(&c->data, true);
    return 0;
}

static void set_load(const struct bound_reader *r,
                     const struct pp_memory_limit *memory, int stage)
{
    struct pp_load l = memory->load[stage];
    /* B may replace I and W. */
    l.i_to_w = pp_bound_least(l.i_to_w, l.in_b);
    if (!r->split)
        l = (struct pp_load){.f_to_i = l.f_to_i + l.f_to_w};
    r->c->stages[stage].load = l;
}

/* Adds what two stages of one rank do to each other's work before and after;
 * upper comes before lower on a path. */
static void relate(struct pp_bound_stage *upper, int upper_number,
                   struct pp_bound_stage *lower)
{
    const double *u = upper->time, *l = lower->time;
    for (int op = 0; op < PP_BOUND_OPS; op++) {
        lower->before[op] += u[PP_BOUND_F];
        if (op != PP_BOUND_F)
            upper->before[op] += l[PP_BOUND_F] + l[PP_BOUND_I];
        if (op != PP_BOUND_W)
            lower->after[op] += u[PP_BOUND_I] + u[PP_BOUND_W];
    }
    upper->after[PP_BOUND_F] += l[PP_BOUND_F] + l[PP_BOUND_I] + l[PP_BOUND_W];
    if (lower->n_above < PP_BOUND_ABOVE)
        lower->above[lower->n_above++] = upper_number;
}

static void relate_own(struct pp_bound_stage *s)
{
    const double *t = s->time;
    for (int op = 0; op < PP_BOUND_OPS; op++)
        for (int other = 0; other < PP_BOUND_OPS; other++) {
            s->before[op] += other <= op ? t[other] : 0;
            s->after[op] += other >= op ? t[other] : 0;
        }
}

/* Relates all stages of a rank that lie on a path. seen[t] is s + 1 if stage t
 * leads to stage s. Inputs have smaller numbers, so one pass downwards
 * suffices. */
static void relate_all(struct pp_bound_case *c, int *met, int *seen)
{
    const struct pp_graph *g = c->g;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *node = &g->stages[s];
        relate_own(&c->stages[s]);
        seen[s] = s + 1;
        int left = met[node->row]++;
        for (int t = s; t >= 0 && left > 0; t--) {
            if (t != s && g->stages[t].row == node->row)
                left--;
            if (seen[t] != s + 1)
                continue;
            if (t != s && g->stages[t].row == node->row)
                relate(&c->stages[t], t, &c->stages[s]);
            for (int i = 0; i < g->stages[t].n_inputs; i++)
                seen[g->stages[t].inputs[i]] = s + 1;
        }
    }
}

static bool has_above(const struct pp_bound_stage *s, int stage)
{
    for (int i = 0; i < s->n_above; i++)
        if (s->above[i] == stage)
            return true;
    return false;
}

/* Returns how many times each fits into what is left, plus one, but at most n.
 */
static size_t first_too_many(double left, double each, size_t n)
{
    if (each <= 0 || left >= each * (double)n)
        return n;
    return left > 0 ? (size_t)(left / each) + 1 : 1;
}

/* Finds how far the stages above may be ahead of a stage. When F(k) of the
 * stage begins, each stage above holds microbatch k at least, since its
 * gradient comes later. If one of them has run F(j), it and the stages above it
 * hold all from k to j. When W(k) of the stage begins and a stage above has not
 * run W(j), that holds all from j to k. */
static void find_ahead(struct pp_bound_case *c, int stage)
{
    struct pp_bound_stage *s = &c->stages[stage];
    double limit = c->limit[c->g->stages[stage].row] * (1 + 1e-9);
    double left = limit - pp_bound_held(s->load);
    for (int i = 0; i < s->n_above; i++)
        if (pp_sends_gradient(c->g, s->above[i]))
            left -= pp_bound_held(c->stages[s->above[i]].load);
    for (int i = 0; i < s->n_above; i++) {
        struct pp_bound_stage *above = &c->stages[s->above[i]];
        double each = 0, kept = pp_bound_kept(above->load);
        if (!pp_sends_gradient(c->g, s->above[i]) ||
            above->n_below == PP_BOUND_ABOVE)
            continue;
        for (int k = 0; k < s->n_above; k++)
            if (pp_sends_gradient(c->g, s->above[k]) &&
                (k == i || has_above(above, s->above[k])))
                each += pp_bound_held(c->stages[s->above[k]].load);
        above->ahead_f[above->n_below] = first_too_many(left, each, c->n);
        above->ahead_w[above->n_below] = first_too_many(
            limit - s->load.f_to_w - s->load.i_to_w - kept, kept, c->n);
        above->below[above->n_below++] = stage;
    }
}

/* Allocates a value for every op, stage and microbatch. */
static void allocate(double **at, size_t n)
{
    at[0] = pp_calloc(n, PP_BOUND_OPS * sizeof **at);
    for (int op = 1; op < PP_BOUND_OPS; op++)
        at[op] = at[op - 1] + n;
}

static void init(struct pp_bound_case *c)
{
    size_t n_stages = (size_t)c->g->n_stages, n_rows = (size_t)c->g->n_rows, n;
    n = n_stages * c->n;
    c->stages = pp_calloc(n_stages, sizeof *c->stages);
    c->work = pp_calloc(n_rows, sizeof *c->work);
    c->row_head = pp_calloc(n_rows, sizeof *c->row_head);
    c->row_tail = pp_calloc(n_rows, sizeof *c->row_tail);
    allocate(c->times, n);
    allocate(c->head, n);
    allocate(c->tail, n);
}

int pp_bound_read(struct pp_bound_case *c, bool split,
                  const struct pp_costs *costs,
                  const struct pp_memory_limit *memory, struct pp_err *err)
{
    struct bound_reader r = {
        .c = c, .costs = costs, .split = split, .err = err};
    init(c);
    c->uniform = true;
    for (int s = 0; s < c->g->n_stages; s++) {
        read_stage(&r, s);
        if (memory && memory->limit)
            set_load(&r, memory, s);
    }
    if (read_data(&r))
        return -1;
    c->limit = memory ? memory->limit : NULL;
    int *met = pp_calloc((size_t)c->g->n_rows, sizeof *met);
    int *seen = pp_calloc((size_t)c->g->n_stages, sizeof *seen);
    relate_all(c, met, seen);
    for (int s = 0; c->limit && s < c->g->n_stages; s++)
        find_ahead(c, s);
    free(met);
    free(seen);
    return 0;
}

void pp_bound_finish(struct pp_bound_case *c)
{
    pp_ops_finish(&c->data);
    free(c->stages);
    free(c->work);
    free(c->row_head);
    free(c->row_tail);
    free(c->times[0]);
    free(c->head[0]);
    free(c->tail[0]);
    *c = (struct pp_bound_case){0};
}
