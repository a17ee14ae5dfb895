/* SPDX-License-Identifier: MIT */
#include "schedule/check/mend.h"

#include <string.h>

#include "schedule/check/check.h"
#include "schedule/check/stuck.h"

/* The search reads at most so many actions. */
static const size_t enough_actions = (size_t)1 << 28;

/* The faults of rows, and the actions that never run if there are none. */
struct badness {
    size_t faults, stuck;
};

struct mending {
    struct pp_schedule schedule; /* a copy, which edits change */
    bool messages;
    size_t n_actions, read;
    struct badness now, least;
    struct pp_edit best;
    size_t distance; /* of the best edit */
    bool found;
    struct pp_err *err;
};

static bool is_less(struct badness a, struct badness b)
{
    return a.faults != b.faults ? a.faults < b.faults : a.stuck < b.stuck;
}

static bool is_valid(struct badness b)
{
    return b.faults == 0 && b.stuck == 0;
}

static int measure(struct mending *m, struct pp_faults *faults,
                   struct pp_stuck *k, struct badness *b)
{
    const struct pp_schedule *s = &m->schedule;
    *b = (struct badness){0};
    *k = (struct pp_stuck){0};
    faults->n = 0;
    m->read += m->n_actions;
    if (pp_check_rows_all(s, m->messages, faults, m->err))
        return -1;
    b->faults = faults->n;
    if (faults->n > 0)
        return 0;
    if (pp_stuck_find(s, m->messages, k, m->err))
        return -1;
    for (int r = 0; r < s->graph->n_rows && k->n_circle; r++)
        b->stuck += s->rows[r].n - k->done[r];
    return 0;
}

static void move(struct pp_row *row, size_t from, size_t to)
{
    struct pp_action a = row->actions[from];
    struct pp_action *at = row->actions;
    if (from < to)
        memmove(at + from, at + from + 1, (to - from) * sizeof *at);
    else
        memmove(at + to + 1, at + to, (from - to) * sizeof *at);
    at[to] = a;
}

/* Makes an edit. The row has room for one more action. */
static void apply(struct pp_row *row, const struct pp_edit *e)
{
    if (e->kind == PP_EDIT_CHANGE) {
        row->actions[e->place] = e->with;
    } else if (e->kind == PP_EDIT_MOVE) {
        move(row, e->place, e->to);
    } else if (e->kind == PP_EDIT_REMOVE) {
        move(row, e->place, row->n - 1);
        row->n--;
    } else {
        row->actions[row->n++] = e->with;
        move(row, row->n - 1, e->to);
    }
}

static void undo(struct pp_row *row, const struct pp_edit *e)
{
    if (e->kind == PP_EDIT_CHANGE) {
        row->actions[e->place] = e->action;
    } else if (e->kind == PP_EDIT_MOVE) {
        move(row, e->to, e->place);
    } else if (e->kind == PP_EDIT_REMOVE) {
        row->n++;
        move(row, row->n - 1, e->place);
    } else {
        move(row, e->to, row->n - 1);
        row->n--;
    }
}

/* Tries an edit, and keeps it if it is the best so far. */
static int try_edit(struct mending *m, struct pp_edit e)
{
    struct pp_row *row = &m->schedule.rows[e.row];
    struct pp_faults faults;
    struct pp_stuck k;
    struct badness b;
    size_t distance = e.kind != PP_EDIT_MOVE ? 0
                      : e.to > e.place       ? e.to - e.place
                                             : e.place - e.to;
    if (m->read > enough_actions)
        return 0;
    if (e.kind != PP_EDIT_INSERT)
        e.action = row->actions[e.place];
    apply(row, &e);
    int rc = measure(m, &faults, &k, &b);
    e.behind = (struct pp_action){.op = PP_IDLE};
    if ((e.kind == PP_EDIT_MOVE || e.kind == PP_EDIT_INSERT) && e.to > 0)
        e.behind = row->actions[e.to - 1];
    undo(row, &e);
    pp_stuck_finish(&k);
    if (rc)
        return -1;
    bool better = is_less(b, m->least) ||
                  (m->found && !is_less(m->least, b) && distance < m->distance);
    if (better) {
        m->found = true;
        m->least = b;
        m->best = e;
        m->distance = distance;
    }
    return 0;
}

/* Tries to move an action to all places from first to last of its row. Pairs
 * stay where they are. */
static int try_moves(struct mending *m, int row, size_t place, size_t first,
                     size_t last)
{
    const struct pp_row *list = &m->schedule.rows[row];
    struct pp_edit e = {.kind = PP_EDIT_MOVE, .row = row, .place = place};
    if (list->actions[place].overlap || pp_is_second_of_pair(list, place))
        return 0;
    for (e.to = first; e.to <= last; e.to++)
        if (e.to != place && try_edit(m, e))
            return -1;
    return 0;
}

/* Tries to give an action of a microbatch that its row has twice, or that does
 * not exist, the number of each other microbatch. */
static int try_numbers(struct mending *m, int row, size_t place)
{
    struct pp_edit e = {.kind = PP_EDIT_CHANGE, .row = row, .place = place};
    e.with = m->schedule.rows[row].actions[place];
    int own = e.with.microbatch;
    for (int k = 0; own >= 0 && k < m->schedule.n_microbatches; k++) {
        e.with.microbatch = k;
        if (k != own && try_edit(m, e))
            return -1;
    }
    return 0;
}

/* Tries the edits of a fault of a place: the action goes, moves or changes, or
 * another of its row moves past it. */
static int try_fault(struct mending *m, int row, size_t place)
{
    size_t n = m->schedule.rows[row].n;
    struct pp_edit remove = {
        .kind = PP_EDIT_REMOVE, .row = row, .place = place};
    if (try_edit(m, remove) || try_moves(m, row, place, 0, n - 1) ||
        try_numbers(m, row, place))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (i != place && try_moves(m, row, i, place, place))
            return -1;
    return 0;
}

/* --- what is missing --- */

struct work_cell {
    int stage, microbatch, slice;
};

static unsigned ops_of(const struct pp_row *list, struct work_cell c)
{
    unsigned ops = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_compute(a.op) && a.stage == c.stage &&
            (c.microbatch < 0 ||
             (a.microbatch == c.microbatch && a.slice == c.slice)))
            ops |= 1u << a.op;
    }
    return ops;
}

/* Returns an op that the cell lacks, or PP_N_OPS. */
static enum pp_op lacks(const struct pp_schedule *s, struct work_cell c)
{
    const struct pp_stage_node *n = &s->graph->stages[c.stage];
    const struct pp_row *list = &s->rows[n->row];
    unsigned ops = ops_of(list, c);
    unsigned used = ops_of(list, (struct work_cell){c.stage, -1, 0});
    if (!(ops & 1u << PP_F))
        return PP_F;
    if (!n->has_backward || ops & 1u << PP_B)
        return PP_N_OPS;
    if (!(ops & (1u << PP_I | 1u << PP_W)))
        return used & 1u << PP_B ? PP_B : PP_I;
    if (!(ops & 1u << PP_I))
        return PP_I;
    return ops & 1u << PP_W || n->frozen ? PP_N_OPS : PP_W;
}

/* Tries to insert the first compute action that is missing. */
static int try_missing(struct mending *m)
{
    const struct pp_schedule *s = &m->schedule;
    const struct pp_graph *g = s->graph;
    struct work_cell c;
    for (c.stage = 0; c.stage < g->n_stages; c.stage++)
        for (c.microbatch = 0; c.microbatch < s->n_microbatches; c.microbatch++)
            for (c.slice = 0; c.slice < g->slices.n; c.slice++) {
                enum pp_op op = lacks(s, c);
                struct pp_edit e = {.kind = PP_EDIT_INSERT,
                                    .row = g->stages[c.stage].row,
                                    .with = {.stage = c.stage,
                                             .microbatch = c.microbatch,
                                             .slice = (int16_t)c.slice,
                                             .peer = -1,
                                             .op = (uint8_t)op}};
                if (op == PP_N_OPS)
                    continue;
                for (; e.to <= s->rows[e.row].n; e.to++)
                    if (try_edit(m, e))
                        return -1;
                return 0;
            }
    return 0;
}

/* Tries the edits that can end a circle of waits: the action that waits moves
 * back, or the one that is waited for moves forward. */
static int try_circle(struct mending *m, const struct pp_stuck *k)
{
    for (size_t i = 0; i < k->n_circle; i++) {
        const struct pp_wait *w = &k->circle[i];
        size_t last = m->schedule.rows[w->row].n - 1;
        if (try_moves(m, w->row, w->place, w->place, last) ||
            try_moves(m, w->on_row, w->on_place, k->done[w->on_row],
                      w->on_place))
            return -1;
    }
    return 0;
}

/* Finds the best edit, if any is better than none. */
static int find_edit(struct mending *m)
{
    enum { TRIED_FAULTS = 3 };
    struct pp_faults faults;
    struct pp_stuck k;
    bool missing = false;
    if (measure(m, &faults, &k, &m->now))
        return -1;
    m->least = m->now;
    m->found = false;
    int rc = 0;
    pp_faults_sort(&faults);
    for (size_t i = 0; i < faults.n && i < TRIED_FAULTS && !rc; i++) {
        const struct pp_fault *f = &faults.at[i];
        if (f->place != PP_NO_PLACE)
            rc = try_fault(m, f->row, f->place);
    }
    for (size_t i = 0; i < faults.n && i < PP_MAX_FAULTS; i++)
        missing |= faults.at[i].place == PP_NO_PLACE;
    if (!rc && missing)
        rc = try_missing(m);
    if (!rc && k.n_circle)
        rc = try_circle(m, &k);
    pp_stuck_finish(&k);
    return rc;
}

int pp_mend_find(const struct pp_schedule *s, bool messages,
                 struct pp_edit edits[PP_MOST_EDITS], int *n,
                 struct pp_err *err)
{
    struct mending m = {.messages = messages, .err = err};
    struct pp_action unused = {.op = PP_IDLE};
    pp_schedule_copy(s, &m.schedule);
    int rc = 0;
    *n = 0;
    for (int r = 0; r < s->graph->n_rows; r++) {
        m.n_actions += s->rows[r].n;
        for (int k = 0; k < PP_MOST_EDITS; k++)
            pp_schedule_add(&m.schedule, r, unused);
        m.schedule.rows[r].n = s->rows[r].n;
    }
    m.least.faults = 1;
    while (!rc && !is_valid(m.least) && *n < PP_MOST_EDITS) {
        rc = find_edit(&m);
        if (rc || !m.found)
            break;
        edits[(*n)++] = m.best;
        apply(&m.schedule.rows[m.best.row], &m.best);
    }
    if (!is_valid(m.least))
        *n = 0;
    pp_schedule_finish(&m.schedule);
    return rc ? -1 : 0;
}
