/* SPDX-License-Identifier: MIT */
/* Checks each row by itself, and that no action is missing. It is one file
 * because it is one list of rules. */
#include "schedule/check/check.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/deps.h"
#include "schedule/ir/numbering.h"
#include "schedule/ir/schedule.h"

/* The place of the activations of a cell. */
enum residence { ON_DEVICE, ON_HOST, BACK };

/* The sharding of a stage's parameters, as known so far. */
enum sharding { ALWAYS_THERE, USED, UNSHARDED, RESHARDED };

struct row_check {
    const struct pp_schedule *s;
    const struct pp_graph *g;
    struct pp_cells cells;
    uint8_t *done;  /* per cell: bits of F, B, I, W that ran */
    uint8_t *away;  /* per cell: enum residence of its activations */
    uint8_t *moved; /* per link: bits of listed messages, 1 << (op - SEND_F) */
    int *copy;      /* per microbatch: the copy it passes through, or -1 */
    size_t *gradients; /* per stage: count of B and W that ran */
    bool *reduced;     /* per stage */
    uint8_t *sharding; /* per stage: enum sharding */
    bool lowered;      /* check messages too */
    int row;           /* the current row and position */
    size_t place;
    struct pp_action action;
    bool added;               /* SYNC_COPIES was seen in this row */
    bool synced;              /* SYNC_TIED was seen in this row */
    struct pp_faults *faults; /* NULL: stop at the first */
    struct pp_err *err;
};

/* Fails with "rank 1, action 3: '1B0' REASON". */
static int fail_here(const struct row_check *c, const char *reason,
                     const char *detail)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(c->action, false, text);
    return pp_fail(c->err, PP_EXIT_NO, "rank %d, action %zu: '%s' %s%s", c->row,
                   c->place, text, reason, detail);
}

static int fail_before(const struct row_check *c, struct pp_action other)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(other, false, text);
    return fail_here(c, "comes before ", text);
}

/* Returns the op of ops that the rows have for this cell, or PP_N_OPS. */
static enum pp_op listed_op(const struct row_check *c, int stage, int m,
                            int slice, unsigned ops)
{
    const struct pp_row *list = &c->s->rows[c->g->stages[stage].row];
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_compute(a.op) && ops & 1u << a.op && a.stage == stage &&
            a.microbatch == m && a.slice == slice)
            return a.op;
    }
    return PP_N_OPS;
}

/* Returns an op of ops that the action waits for, to name it. Several may do:
 * the one that the rows have is named. If they have none, W is named after I,
 * and B or I as in the action. */
static enum pp_op op_to_name(const struct row_check *c, int stage, int slice,
                             unsigned ops)
{
    struct pp_action a = c->action;
    enum pp_op op = listed_op(c, stage, a.microbatch, slice, ops);
    bool has_i =
        listed_op(c, stage, a.microbatch, slice, 1u << PP_I) != PP_N_OPS;
    if (op != PP_N_OPS)
        return op;
    if (ops & 1u << PP_F)
        return PP_F;
    if (ops & 1u << PP_W && (has_i || a.op != PP_B))
        return PP_W;
    return a.op == PP_B || !(ops & 1u << PP_I) ? PP_B : PP_I;
}

static int check_dep(void *ctx, struct pp_dep dep)
{
    const struct row_check *c = ctx;
    struct pp_action a = c->action, needed = a;
    if (dep.message == PP_N_OPS) {
        size_t cell = pp_cell(&c->cells, dep.stage, a.microbatch, dep.slice);
        if (c->done[cell] & dep.ops)
            return 0;
        needed.op = (uint8_t)op_to_name(c, dep.stage, dep.slice, dep.ops);
        needed.stage = dep.stage;
        needed.slice = (int16_t)dep.slice;
        return fail_before(c, needed);
    }
    if (!c->lowered)
        return 0;
    bool forward = dep.message == PP_RECV_F;
    size_t link = pp_link(&c->cells, forward ? dep.stage : a.stage,
                          forward ? a.stage : dep.stage, a.microbatch, a.slice);
    if (c->moved[link] & 1u << (dep.message - PP_SEND_F))
        return 0;
    needed.op = (uint8_t)dep.message;
    return fail_before(c, needed);
}

static int check_compute(struct row_check *c)
{
    struct pp_action a = c->action;
    uint8_t *done =
        &c->done[pp_cell(&c->cells, a.stage, a.microbatch, a.slice)];
    unsigned split = 1u << PP_I | 1u << PP_W, whole = 1u << PP_B;
    if (pp_copy_number(c->g, a.stage) != c->copy[a.microbatch])
        return fail_here(c,
                         "is of a microbatch that passes through another copy "
                         "of the weights",
                         "");
    if (*done & 1u << a.op)
        return fail_here(c, "appears a second time", "");
    if ((a.op == PP_B && *done & split) ||
        ((1u << a.op) & split && *done & whole))
        return fail_here(c,
                         "repeats a backward of the same microbatch: use "
                         "either B, or I and W",
                         "");
    if (a.op != PP_F && !c->g->stages[a.stage].has_backward)
        return fail_here(c,
                         "is needless: no weights of its stage, or of a stage "
                         "before it, are trained",
                         "");
    if (a.op == PP_W && c->g->stages[a.stage].frozen)
        return fail_here(c, "is of a stage whose weights are frozen", "");
    if (c->sharding[a.stage] == RESHARDED)
        return fail_here(c, "comes after RESHARD of its stage", "");
    if (c->sharding[a.stage] == ALWAYS_THERE && c->lowered && c->g->resident)
        return fail_here(c, "comes before UNSHARD of its stage", "");
    if (c->sharding[a.stage] == ALWAYS_THERE)
        c->sharding[a.stage] = USED;
    if (c->away[done - c->done] == ON_HOST)
        return fail_here(c, "comes before RELOAD of its activations", "");
    if (pp_deps(c->g, a, check_dep, c))
        return -1;
    *done |= (uint8_t)(1u << a.op);
    c->gradients[a.stage] += pp_adds_gradients(c->g, a);
    return 0;
}

static int check_message(struct row_check *c)
{
    struct pp_action a = c->action;
    bool down =
        a.op == PP_SEND_F || a.op == PP_RECV_B; /* the peer is an output */
    const struct pp_stage_node *n = &c->g->stages[a.stage];
    /* The ranks of tied stages meet in SYNC_TIED; no other rank may wait for
     * this one after it. */
    if (c->synced)
        return fail_here(c, "comes after SYNC_TIED", "");
    if (a.peer < 0 && (down ? n->n_outputs : n->n_inputs) == 1)
        return fail_here(c, "is between two stages of one rank", "");
    if (a.peer < 0)
        return fail_here(
            c, "names no other stage, and its stage has no single neighbour",
            "");
    if (a.peer >= c->g->n_stages)
        return fail_here(c, "has a peer that does not exist", "");
    size_t link = pp_link(&c->cells, down ? a.stage : a.peer,
                          down ? a.peer : a.stage, a.microbatch, a.slice);
    if (link == (size_t)-1)
        return fail_here(c, "has a peer that is not its neighbour", "");
    if (c->g->stages[a.peer].row == c->row)
        return fail_here(c, "is between two stages of one rank", "");
    if ((a.op == PP_SEND_B || a.op == PP_RECV_B) &&
        !pp_sends_gradient(c->g, down ? a.stage : a.peer))
        return fail_here(c, "is a gradient that no stage needs", "");
    uint8_t bit = (uint8_t)(1u << (a.op - PP_SEND_F));
    if (c->moved[link] & bit)
        return fail_here(c, "appears a second time", "");
    c->moved[link] |= bit;
    if (!pp_is_send(a.op))
        return 0;
    unsigned made = a.op == PP_SEND_F ? 1u << PP_F : 1u << PP_B | 1u << PP_I;
    if (c->done[pp_cell(&c->cells, a.stage, a.microbatch, a.slice)] & made)
        return 0;
    a.op = a.op == PP_SEND_F ? PP_F : PP_B;
    return fail_before(c, a);
}

static bool all_gradients(const struct row_check *c, int stage)
{
    size_t n = 0;
    for (size_t m = 0; m < c->cells.n_microbatches; m++)
        n += c->copy[m] == pp_copy_number(c->g, stage);
    return c->gradients[stage] == n * c->cells.n_slices;
}

static int check_reduce(struct row_check *c)
{
    int stage = c->action.stage;
    if (c->g->stages[stage].frozen)
        return fail_here(c, "is of a stage whose weights are frozen", "");
    if (c->reduced[stage])
        return fail_here(c, "appears a second time", "");
    /* It would add gradients that have been added to the gradients of other
     * stages. */
    if (c->synced)
        return fail_here(c, "comes after SYNC_TIED", "");
    if (!all_gradients(c, stage))
        return fail_here(c, "comes before the last backward of its stage", "");
    c->reduced[stage] = true;
    return 0;
}

/* Checks that UNSHARD and RESHARD alternate, and that the first UNSHARD
 * precedes any use. */
static int check_sharding(struct row_check *c)
{
    uint8_t *state = &c->sharding[c->action.stage];
    if (c->action.op == PP_RESHARD) {
        if (*state != UNSHARDED)
            return fail_here(c, "lacks UNSHARD before it", "");
        *state = RESHARDED;
        return 0;
    }
    if (*state == UNSHARDED)
        return fail_here(c, "appears a second time without RESHARD between",
                         "");
    if (*state == USED)
        return fail_here(c, "comes after its stage was used", "");
    *state = UNSHARDED;
    return 0;
}

/* Checks that activations leave once, between their forward and backward, and
 * come back. */
static int check_copy(struct row_check *c)
{
    struct pp_action a = c->action;
    size_t cell = pp_cell(&c->cells, a.stage, a.microbatch, a.slice);
    bool begun = c->done[cell] & (1u << PP_B | 1u << PP_I | 1u << PP_W);
    if (c->g->slices.n > 1)
        return fail_here(c, "is of a slice, whose keys and values others read",
                         "");
    if (!c->g->stages[a.stage].has_backward)
        return fail_here(c, "is needless: its stage keeps no activations", "");
    if (a.op == PP_RELOAD) {
        if (c->away[cell] != ON_HOST)
            return fail_here(c,
                             c->away[cell] == BACK ? "appears a second time"
                                                   : "lacks OFFLOAD before it",
                             "");
        c->away[cell] = BACK;
        return 0;
    }
    if (c->away[cell] != ON_DEVICE)
        return fail_here(c, "appears a second time", "");
    a.op = PP_F;
    if (!(c->done[cell] & 1u << PP_F))
        return fail_before(c, a);
    if (begun)
        return fail_here(c, "comes after the backward has begun", "");
    c->away[cell] = ON_HOST;
    return 0;
}

static bool is_tied(const struct pp_graph *g, int stage)
{
    int original = pp_original(g, stage);
    return original == g->tied[0] || original == g->tied[1];
}

static int check_sync_tied(struct row_check *c)
{
    bool holds = false;
    if (c->synced)
        return fail_here(c, "appears a second time", "");
    for (int s = 0; s < c->g->n_stages; s++) {
        if (c->g->stages[s].row != c->row || !is_tied(c->g, s))
            continue;
        holds = true;
        if (!all_gradients(c, s))
            return fail_here(
                c, "comes before the last backward of a tied stage", "");
    }
    if (!holds)
        return fail_here(c, "is on a rank without a tied stage", "");
    if (c->g->n_copies > 1 && !c->added)
        return fail_here(c, "comes before SYNC_COPIES", "");
    c->synced = true;
    return 0;
}

/* All ranks with copies meet in SYNC_COPIES, so no action that another rank
 * could wait for may follow it; nor a reduction, which comes first. */
static int check_sync_copies(struct row_check *c)
{
    const struct pp_row *list = &c->s->rows[c->row];
    if (c->g->n_copies == 1)
        return fail_here(
            c, "needs copies of the weights, but there is only one", "");
    if (c->added)
        return fail_here(c, "appears a second time", "");
    for (size_t i = c->place + 1; i < list->n; i++)
        if (list->actions[i].op <= PP_REDUCE_GRAD)
            return fail_before(c, list->actions[i]);
    c->added = true;
    return 0;
}

/* Fails for a forward that is paired with a backward that depends on it. */
static int fail_dependent(const struct row_check *c, struct pp_action backward)
{
    char text[PP_ACTION_TEXT];
    if (c->action.stage == backward.stage)
        return fail_here(c, "is paired with its own backward", "");
    pp_action_format(backward, false, text);
    return fail_here(c, "is paired with an action that waits for it: ", text);
}

static bool is_stage(const struct row_check *c, int stage)
{
    return stage >= 0 && stage < c->g->n_stages;
}

/* Checks the overlap pair that starts at the current action, if any. */
static int check_pair(const struct row_check *c)
{
    const struct pp_row *list = &c->s->rows[c->row];
    if (!c->action.overlap)
        return 0;
    struct pp_action f = c->action, b = {.op = PP_F};
    if (c->place + 1 < list->n)
        b = list->actions[c->place + 1];
    if (f.op == PP_F && b.op == PP_B && f.microbatch == b.microbatch &&
        is_stage(c, f.stage) && is_stage(c, b.stage) &&
        pp_graph_meet(c->g, f.stage, b.stage))
        return fail_dependent(c, b);
    if (f.op == PP_F && b.op == PP_B && !b.overlap)
        return 0;
    return fail_here(c, "is paired, but not as F then B", "");
}

static int check_ranges(const struct row_check *c)
{
    struct pp_action a = c->action;
    if (a.stage < 0 || a.stage >= c->g->n_stages)
        return fail_here(c, "names a stage that does not exist", "");
    if (c->g->stages[a.stage].row != c->row)
        return fail_here(c, "names a stage of another rank", "");
    if (pp_has_microbatch(a.op) &&
        (a.microbatch < 0 || a.microbatch >= c->s->n_microbatches))
        return fail_here(c, "names a microbatch that does not exist", "");
    if (a.slice < 0 || a.slice >= c->g->slices.n)
        return fail_here(c, "names a slice that does not exist", "");
    return 0;
}

static int check_action(struct row_check *c)
{
    enum pp_op op = c->action.op;
    if (check_pair(c))
        return -1;
    if (op == PP_SYNC_COPIES)
        return check_sync_copies(c);
    if (op == PP_SYNC_TIED)
        return check_sync_tied(c);
    if (check_ranges(c))
        return -1;
    if (pp_is_compute(op))
        return check_compute(c);
    if (pp_is_message(op))
        return check_message(c);
    if (pp_is_copy(op))
        return check_copy(c);
    return op == PP_REDUCE_GRAD ? check_reduce(c) : check_sharding(c);
}

/* Counts a compute action with a fault as done, so that the actions behind it
 * have no fault for its sake. */
static void assume_done(struct row_check *c)
{
    struct pp_action a = c->action;
    struct pp_err unused = {0};
    struct pp_err *err = c->err;
    c->err = &unused;
    if (pp_is_compute(a.op) && !check_ranges(c)) {
        c->done[pp_cell(&c->cells, a.stage, a.microbatch, a.slice)] |=
            (uint8_t)(1u << a.op);
        c->gradients[a.stage] += pp_adds_gradients(c->g, a);
    }
    c->err = err;
}

static int check_row(struct row_check *c, int row)
{
    const struct pp_row *list = &c->s->rows[row];
    c->row = row;
    c->added = c->synced = false;
    for (c->place = 0; c->place < list->n; c->place++) {
        c->action = list->actions[c->place];
        if (!check_action(c))
            continue;
        if (!pp_faults_take(c->faults, row, c->place, c->err))
            return -1;
        assume_done(c);
    }
    return 0;
}

static int fail_missing(const struct row_check *c, int stage, size_t m,
                        size_t slice, enum pp_op op)
{
    char text[PP_ACTION_TEXT];
    struct pp_action a = {.stage = stage,
                          .microbatch = (int32_t)m,
                          .slice = (int16_t)slice,
                          .op = (uint8_t)op};
    pp_action_format(a, false, text);
    return pp_fail(c->err, PP_EXIT_NO, "rank %d: '%s' is missing",
                   c->g->stages[stage].row, text);
}

static int check_cell(const struct row_check *c, int stage, size_t m,
                      size_t slice)
{
    unsigned done = c->done[pp_cell(&c->cells, stage, (int)m, (int)slice)];
    if (!(done & 1u << PP_F))
        return fail_missing(c, stage, m, slice, PP_F);
    if (!c->g->stages[stage].has_backward)
        return 0;
    if (!(done & (1u << PP_B | 1u << PP_I | 1u << PP_W)))
        return fail_missing(c, stage, m, slice, PP_B);
    if (done & 1u << PP_I && !(done & 1u << PP_W) &&
        !c->g->stages[stage].frozen)
        return fail_missing(c, stage, m, slice, PP_W);
    if (done & 1u << PP_W && !(done & 1u << PP_I))
        return fail_missing(c, stage, m, slice, PP_I);
    return 0;
}

/* Checks that every microbatch passes through all of one copy. */
static int check_complete(const struct row_check *c)
{
    for (int stage = 0; stage < c->g->n_stages; stage++)
        for (size_t m = 0; m < c->cells.n_microbatches; m++)
            for (size_t slice = 0; slice < c->cells.n_slices; slice++)
                if ((c->copy[m] < 0 ||
                     c->copy[m] == pp_copy_number(c->g, stage)) &&
                    check_cell(c, stage, m, slice) &&
                    !pp_faults_take(c->faults, c->g->stages[stage].row,
                                    PP_NO_PLACE, c->err))
                    return -1;
    return 0;
}

static int check_resharded(const struct row_check *c)
{
    for (int stage = 0; stage < c->g->n_stages; stage++)
        if (c->sharding[stage] == UNSHARDED)
            return pp_fail(c->err, PP_EXIT_NO,
                           "rank %d: '%dRESHARD' is missing",
                           c->g->stages[stage].row, stage);
    return 0;
}

/* Checks that replicas reduce all stages or none. */
static int check_reduced(const struct row_check *c)
{
    if (!c->g->replicas || !pp_schedule_reduces(c->s))
        return 0;
    for (int stage = 0; stage < c->g->n_stages; stage++)
        if (!c->reduced[stage] && !c->g->stages[stage].frozen)
            return pp_fail(c->err, PP_EXIT_NO,
                           "rank %d: '%dREDUCE_GRAD' is missing",
                           c->g->stages[stage].row, stage);
    return 0;
}

static int check_holds(const struct row_check *c, int row, enum pp_op op)
{
    const struct pp_row *list = &c->s->rows[row];
    char text[PP_ACTION_TEXT];
    for (size_t at = list->n; at > 0; at--)
        if (list->actions[at - 1].op == op)
            return 0;
    pp_action_format((struct pp_action){.op = (uint8_t)op}, false, text);
    return pp_fail(c->err, PP_EXIT_NO, "rank %d: '%s' is missing", row, text);
}

/* Checks that every rank has the syncs that make the gradients of equal weights
 * equal. */
static int check_synced(const struct row_check *c)
{
    for (int s = 0; s < c->g->n_stages; s++) {
        int row = c->g->stages[s].row;
        if ((c->g->n_copies > 1 && check_holds(c, row, PP_SYNC_COPIES)) ||
            (is_tied(c->g, s) && check_holds(c, row, PP_SYNC_TIED)))
            return -1;
    }
    return 0;
}

/* Checks that the schedule has enough compute actions. The tables per cell grow
 * with the claimed number of microbatches, so this runs before they are
 * allocated. A schedule with fewer compute actions than cells of one copy lacks
 * one of the first n + 1 cells; the search for it needs a table of only n + 1
 * entries. */
static int check_enough(const struct row_check *c)
{
    size_t n = pp_schedule_count(c->s, PP_COMPUTE_OPS), first = 0;
    size_t per_stage = c->cells.n_microbatches * c->cells.n_slices;
    if (c->cells.n_cells / (size_t)c->g->n_copies <= n)
        return 0;
    bool *seen = pp_calloc(n + 1, sizeof *seen);
    for (int r = 0; r < c->g->n_rows; r++)
        for (size_t i = 0; i < c->s->rows[r].n; i++) {
            struct pp_action a = c->s->rows[r].actions[i];
            if (a.op != PP_F || a.stage < 0 || a.stage >= c->g->n_stages ||
                a.microbatch < 0 || a.microbatch >= c->s->n_microbatches ||
                a.slice < 0 || a.slice >= c->g->slices.n)
                continue;
            size_t cell = pp_cell(&c->cells, pp_original(c->g, a.stage),
                                  a.microbatch, a.slice);
            if (cell <= n)
                seen[cell] = true;
        }
    while (seen[first])
        first++;
    free(seen);
    size_t m = first % per_stage / c->cells.n_slices;
    int stage = (int)(first / per_stage);
    if (pp_copy_of(c->s, (int)m) > 0)
        stage += c->g->n_stages / c->g->n_copies;
    return fail_missing(c, stage, m, first % c->cells.n_slices, PP_F);
}

static int check_all(struct row_check *c)
{
    c->done = pp_calloc(c->cells.n_cells + 1, sizeof *c->done);
    c->away = pp_calloc(c->cells.n_cells + 1, sizeof *c->away);
    c->moved = pp_calloc(c->cells.n_links + 1, sizeof *c->moved);
    c->copy = pp_calloc(c->cells.n_microbatches, sizeof *c->copy);
    c->gradients = pp_calloc((size_t)c->g->n_stages, sizeof *c->gradients);
    c->reduced = pp_calloc((size_t)c->g->n_stages, sizeof *c->reduced);
    c->sharding = pp_calloc((size_t)c->g->n_stages, sizeof *c->sharding);
    pp_copies_of(c->s, c->copy);
    for (int r = 0; r < c->g->n_rows; r++)
        if (check_row(c, r))
            return -1;
    if (check_complete(c) || check_resharded(c) || check_reduced(c))
        return -1;
    return c->lowered ? check_synced(c) : 0;
}

static int check_rows(const struct pp_schedule *s, bool lowered,
                      struct pp_faults *faults, struct pp_err *err)
{
    struct row_check c = {.s = s,
                          .g = s->graph,
                          .lowered = lowered,
                          .faults = faults,
                          .err = err};
    if (s->n_microbatches < 1)
        return pp_fail(err, PP_EXIT_NO, "there are no microbatches");
    pp_cells_init(&c.cells, s);
    int rc = check_enough(&c) || check_all(&c) ? -1 : 0;
    free(c.done);
    free(c.away);
    free(c.moved);
    free(c.copy);
    free(c.gradients);
    free(c.reduced);
    free(c.sharding);
    pp_cells_finish(&c.cells);
    return rc;
}

int pp_check_rows(const struct pp_schedule *s, bool lowered, struct pp_err *err)
{
    return check_rows(s, lowered, NULL, err);
}

int pp_check_rows_all(const struct pp_schedule *s, bool lowered,
                      struct pp_faults *faults, struct pp_err *err)
{
    return check_rows(s, lowered, faults, err) &&
                   !pp_faults_take(faults, 0, PP_NO_PLACE, err)
               ? -1
               : 0;
}
