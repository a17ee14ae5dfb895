/* SPDX-License-Identifier: MIT */
#include "schedule/offload/offload.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"
#include "schedule/simulate/sim.h"

/* The activations of a microbatch on a stage of the row. */
struct kept {
    struct pp_action f;
    size_t forward, use, end; /* places: of F, of the first action of the
                                 backward or its pair, of the last */
    double load, copy;
    enum { TO_COME, HERE, AWAY, BACK_AGAIN, OVER } state;
};

/* A way to choose: the room that forwards leave to reloads, in loads; how many
 * times their own time copies may begin before they must; and whether what is
 * due may come back in place of what is needed later. */
struct policy {
    double reserve, early;
    bool swap;
};

static const struct policy policies[] = {
    {0, 0, false}, {0, 1, false}, {0, 2, false}, {1, 1, false}, {1, 1.5, false},
    {1, 2, false}, {1, 3, false}, {2, 1, false}, {2, 2, false}, {2, 3, false},
    {0, 1, true},  {0, 2, true},  {0, 4, true},  {1, 1, true},  {1, 2, true},
};

/* The times of a policy come from the order that it gave before. */
enum { ROUNDS = 4 };

struct weaving {
    const struct pp_offload_options *options;
    const struct pp_schedule *from; /* without copies */
    const struct policy *policy;
    struct pp_schedule to;
    double **start, **end; /* per row and place of from */
    struct kept *kept;     /* of this row, in the order of their forwards */
    size_t n_kept;
    size_t **at; /* per row and place: the kept of a compute action, plus 1 */
    int row;
    double level;
    double reserve;  /* room that forwards leave to reloads */
    double out_free; /* when the last OFFLOAD has ended */
    struct pp_err *err;
};

static void add(struct weaving *w, struct pp_action a)
{
    pp_schedule_add(&w->to, w->row, a);
}

static void add_copy(struct weaving *w, const struct kept *k, enum pp_op op)
{
    struct pp_action a = k->f;
    a.op = (uint8_t)op;
    a.overlap = 0;
    add(w, a);
}

/* Returns what is here and has its backward last, among activations whose copy
 * can have ended at a time; or if none can, whose copy ends first. NULL: there
 * is none. It cannot leave twice, nor if its backward begins at place i. */
static struct kept *choose(struct weaving *w, size_t i, double now,
                           double *ends)
{
    struct kept *best = NULL;
    bool best_ended = false;
    for (size_t k = 0; k < w->n_kept; k++) {
        struct kept *x = &w->kept[k];
        if (x->state != HERE || x->use <= i || x->forward + x->f.overlap >= i)
            continue;
        size_t made = x->forward + x->f.overlap;
        double end = fmax(w->out_free, w->end[w->row][made]) + x->copy;
        bool ended = end <= now;
        if (!best || (ended && !best_ended) ||
            (ended == best_ended &&
             (ended ? x->use > best->use : end < *ends))) {
            best = x;
            best_ended = ended;
            *ends = end;
        }
    }
    return best;
}

/* Offloads until there is room for a load up to a limit. Returns 1 if there is
 * none. */
static int make_room(struct weaving *w, size_t i, double load, double limit)
{
    double ends = 0;
    while (w->level + load > limit * (1 + 1e-12)) {
        struct kept *k = choose(w, i, w->start[w->row][i], &ends);
        if (!k)
            return 1;
        add_copy(w, k, PP_OFFLOAD);
        k->state = AWAY;
        w->level -= k->load;
        w->out_free = fmax(ends, w->start[w->row][i]);
    }
    return 0;
}

/* Offloads what is needed later than a place, if its copy has ended, until
 * there is room for a load. */
static void swap_out(struct weaving *w, size_t i, double load, size_t use)
{
    double room = w->options->room[w->row], ends = 0;
    while (w->level + load > room * (1 + 1e-12)) {
        struct kept *k = choose(w, i, w->start[w->row][i], &ends);
        if (!k || k->use <= use || ends > w->start[w->row][i])
            return;
        add_copy(w, k, PP_OFFLOAD);
        k->state = AWAY;
        w->level -= k->load;
        w->out_free = w->start[w->row][i];
    }
}

static int fail_room(const struct weaving *w, size_t i)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(w->from->rows[w->row].actions[i], false, text);
    return pp_fail(w->err, PP_EXIT_NO,
                   "rank %d has no room for '%s' even if all other activations "
                   "are offloaded",
                   w->row, text);
}

static void reload(struct weaving *w, struct kept *k)
{
    k->state = BACK_AGAIN;
    w->level += k->load;
    add_copy(w, k, PP_RELOAD);
}

static int compare_uses(const void *pa, const void *pb)
{
    const struct kept *a = *(struct kept *const *)pa;
    const struct kept *b = *(struct kept *const *)pb;
    return (a->use > b->use) - (a->use < b->use);
}

/* Reloads at place i what has its backward there, and what would come too late
 * if it began to come at the next place. away has room for n_kept. */
static int reload_due(struct weaving *w, size_t i, struct kept **away)
{
    const struct pp_row *list = &w->from->rows[w->row];
    double room = w->options->room[w->row], latest = INFINITY;
    double next = i + 1 < list->n ? w->start[w->row][i + 1] : INFINITY;
    size_t n = 0, due = 0;
    for (size_t k = 0; k < w->n_kept; k++)
        if (w->kept[k].state == AWAY)
            away[n++] = &w->kept[k];
    qsort(away, n, sizeof *away, compare_uses);
    for (size_t k = n; k-- > 0;) {
        latest = fmin(latest, w->start[w->row][away[k]->use]) -
                 w->policy->early * away[k]->copy;
        if (latest < next && !due)
            due = k + 1;
    }
    for (size_t k = 0; k < n; k++) {
        bool now = away[k]->use == i;
        if (!now && k >= due)
            break;
        int rc = now ? make_room(w, i, away[k]->load, room) : 0;
        if (rc)
            return rc < 0 ? -1 : fail_room(w, i);
        if (!now && w->policy->swap)
            swap_out(w, i, away[k]->load, away[k]->use);
        if (w->level + away[k]->load > room * (1 + 1e-12))
            break;
        reload(w, away[k]);
    }
    return 0;
}

/* Makes room for a forward: at best it leaves some to reloads. */
static int begin(struct weaving *w, size_t i, struct kept *k)
{
    double room = w->options->room[w->row];
    int rc = make_room(w, i, k->load, room - w->reserve);
    if (rc > 0)
        rc = make_room(w, i, k->load, room);
    if (rc)
        return rc < 0 ? -1 : fail_room(w, i);
    k->state = HERE;
    w->level += k->load;
    return 0;
}

/* Adds the copies before place i, of a compute action or of a pair. */
static int prepare(struct weaving *w, size_t i, struct kept **away)
{
    const struct pp_row *list = &w->from->rows[w->row];
    if (!pp_is_compute(list->actions[i].op) || pp_is_second_of_pair(list, i))
        return 0;
    if (reload_due(w, i, away))
        return -1;
    for (size_t k = i; k <= i + list->actions[i].overlap; k++) {
        size_t at = w->at[w->row][k];
        if (at && list->actions[k].op == PP_F && begin(w, i, &w->kept[at - 1]))
            return -1;
    }
    return 0;
}

/* Lists what a row keeps. */
static void list_kept(struct weaving *w, struct pp_cells *cells, size_t *of)
{
    const struct pp_schedule *s = w->from;
    const struct pp_row *list = &s->rows[w->row];
    const struct pp_costs *costs = w->options->costs;
    double level = 0, peak = 0, most = 0;
    w->n_kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (!pp_is_compute(a.op) || !s->graph->stages[a.stage].has_backward)
            continue;
        size_t cell = pp_cell(cells, a.stage, a.microbatch, a.slice);
        struct pp_action out = a;
        out.op = PP_OFFLOAD;
        if (a.op == PP_F) {
            w->kept[w->n_kept] =
                (struct kept){.f = a,
                              .forward = i,
                              .use = SIZE_MAX,
                              .load = w->options->load[a.stage],
                              .copy = costs->time(costs->ctx, out)};
            most = fmax(most, w->options->load[a.stage]);
            level += w->options->load[a.stage];
            peak = fmax(peak, level);
            of[cell] = ++w->n_kept;
        }
        struct kept *k = &w->kept[of[cell] - 1];
        if (a.op != PP_F && k->use == SIZE_MAX)
            k->use = i - pp_is_second_of_pair(list, i);
        if (pp_ends_backward(s->graph, a)) {
            k->end = i;
            level -= k->load;
        }
        w->at[w->row][i] = of[cell];
    }
    /* A row that fits as it is has no copies. */
    w->reserve =
        peak > w->options->room[w->row] ? w->policy->reserve * most : 0;
}

static int weave_row(struct weaving *w, struct pp_cells *cells, size_t *of,
                     struct kept **away)
{
    const struct pp_row *list = &w->from->rows[w->row];
    w->level = w->out_free = 0;
    list_kept(w, cells, of);
    for (size_t i = 0; i < list->n; i++) {
        size_t at = w->at[w->row][i];
        if (prepare(w, i, away))
            return -1;
        add(w, list->actions[i]);
        if (at && w->kept[at - 1].end == i && list->actions[i].op != PP_F) {
            w->kept[at - 1].state = OVER;
            w->level -= w->kept[at - 1].load;
        }
    }
    return 0;
}

/* Fills to with the copies of the policy. */
static int weave(struct weaving *w)
{
    const struct pp_schedule *s = w->from;
    struct pp_cells cells = {0};
    size_t *of = NULL;
    struct kept **away = NULL;
    pp_schedule_init(&w->to, s->graph, s->kind, s->n_microbatches);
    pp_cells_init(&cells, s);
    w->to.channel_depth = s->channel_depth;
    of = pp_calloc(cells.n_cells, sizeof *of);
    w->kept = pp_calloc(cells.n_cells, sizeof *w->kept);
    away = pp_calloc(cells.n_cells, sizeof *away);
    int rc = 0;
    for (w->row = 0; w->row < s->graph->n_rows && !rc; w->row++)
        rc = weave_row(w, &cells, of, away);
    pp_cells_finish(&cells);
    free(of);
    free(away);
    free(w->kept);
    return rc ? -1 : 0;
}

/* Takes the times of the actions of from out of a simulation of s, which has
 * copies between them. */
static void take_times(struct weaving *w, const struct pp_schedule *s,
                       const struct pp_sim *sim)
{
    for (int r = 0; r < s->graph->n_rows; r++) {
        size_t k = 0;
        for (size_t i = 0; i < sim->rows[r].n; i++) {
            const struct pp_span *x = &sim->rows[r].spans[i];
            if (pp_is_copy(x->action.op))
                continue;
            w->start[r][k] = x->start;
            w->end[r][k++] = x->end;
        }
    }
}

static void init_times(struct weaving *w)
{
    size_t n = (size_t)w->from->graph->n_rows;
    w->start = pp_calloc(n, sizeof *w->start);
    w->end = pp_calloc(n, sizeof *w->end);
    w->at = pp_calloc(n, sizeof *w->at);
    for (size_t r = 0; r < n; r++) {
        size_t length = w->from->rows[r].n + 1;
        w->start[r] = pp_calloc(length, sizeof **w->start);
        w->end[r] = pp_calloc(length, sizeof **w->end);
        w->at[r] = pp_calloc(length, sizeof **w->at);
    }
}

static void finish_times(struct weaving *w)
{
    for (int r = 0; r < w->from->graph->n_rows; r++) {
        if (w->start)
            free(w->start[r]);
        if (w->end)
            free(w->end[r]);
        if (w->at)
            free(w->at[r]);
    }
    free(w->start);
    free(w->end);
    free(w->at);
}

/* Tries a policy: each round has the times of the one before. Keeps the fastest
 * in *best, and its makespan in *least. A policy may find no room, and err then
 * says where. */
static int try_policy(struct weaving *w, const struct pp_sim *first,
                      struct pp_schedule *best, double *least)
{
    take_times(w, w->from, first);
    for (int i = 0; i < ROUNDS; i++) {
        struct pp_sim sim = {0};
        *w->err = (struct pp_err){0};
        int rc = weave(w) || pp_simulate(&w->to, w->options->costs,
                                         w->to.channel_depth, &sim, w->err);
        if (!rc)
            take_times(w, &w->to, &sim);
        if (!rc && sim.makespan < *least * (1 - 1e-12)) {
            struct pp_schedule slower = *best;
            *least = sim.makespan;
            *best = w->to;
            w->to = slower;
        }
        pp_schedule_finish(&w->to);
        pp_sim_finish(&sim);
        if (rc)
            return w->err->code == PP_EXIT_NO ? 0 : -1;
    }
    return 0;
}

int pp_offload(struct pp_schedule *s, const struct pp_offload_options *o,
               struct pp_err *err)
{
    struct pp_err why = {0};
    struct weaving w = {.options = o, .from = s, .err = &why};
    struct pp_schedule best = {0};
    struct pp_sim sim = {0};
    double least = INFINITY;
    init_times(&w);
    int rc = pp_simulate(s, o->costs, s->channel_depth, &sim, &why);
    for (size_t i = 0; i < sizeof policies / sizeof *policies && !rc; i++) {
        w.policy = &policies[i];
        rc = try_policy(&w, &sim, &best, &least);
    }
    pp_sim_finish(&sim);
    finish_times(&w);
    if (rc || least == INFINITY) {
        pp_schedule_finish(&best);
        return pp_fail(err, why.code, "%s", why.text);
    }
    pp_schedule_finish(s);
    *s = best;
    return 0;
}
