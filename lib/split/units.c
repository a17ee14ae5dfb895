/* SPDX-License-Identifier: MIT */
/* units - the costs and sizes of the units of a run, in the mode of
 * recomputation that each has. A search tries few modes many times, so that
 * each is computed once. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/ir/at_once.h"
#include "split/plan.h"

/* A unit in one mode. */
struct pp_split_unit {
    struct pp_split_unit *next;
    enum pp_recompute mode;
    double cost, bytes[PP_N_UNIT_BYTES];
    double times[][PP_N_TIMES]; /* of each slice */
};

struct pp_mesh pp_split_mesh(const struct pp_split_request *q, size_t i)
{
    const struct pp_unit_id u = pp_model_unit(q->shard.model, i);
    bool encodes = pp_unit_is_vision(u);
    bool apart = encodes && q->encoders && q->encoders[u.component].dp;
    return apart ? q->encoders[u.component]
                 : pp_mesh_of(&q->shard.mesh, encodes);
}

struct pp_state_bytes pp_split_state(const struct pp_split_request *q,
                                     const struct pp_mesh *mesh, size_t i)
{
    struct pp_unit_id u = pp_model_unit(q->shard.model, i);
    return pp_split_trainer(q)->state(mesh, q->shard.model, u, q->precision);
}

/* Returns the bytes of the weights of a unit when they are whole, if ranks of
 * the mesh gather them for their use, else 0. */
static size_t gathered(const struct pp_split_request *q,
                       const struct pp_mesh *mesh, size_t i)
{
    struct pp_unit_id u = pp_model_unit(q->shard.model, i);
    return pp_split_trainer(q) != pp_trainers
               ? 0
               : pp_gathered_bytes(mesh, pp_mesh_held(mesh, q->shard.model, u),
                                   q->precision);
}

static struct pp_cost_source cost_source(const struct pp_split_run *run)
{
    const struct pp_split_request *q = run->request;
    return (struct pp_cost_source){.shard = &q->shard,
                                   .measured =
                                       q->profile ? q->profile->units : NULL,
                                   .seq_len = (double)q->microbatch.seq_len,
                                   .logits = run->logits[0]};
}

static void set_cost(struct pp_split_run *run, size_t i)
{
    struct pp_cost_source x = cost_source(run);
    bool whole = run->request->whole_head && i == run->n_units - 1;
    for (int q = 1; q < run->graph.slices.n; q++)
        if (run->logits[q] == PP_LOGITS_AGAIN)
            x.logits = PP_LOGITS_AGAIN;
    run->costs[i] =
        pp_unit_token_cost(&x, i, run->modes[i], run->halves && !whole);
}

void pp_split_unit_times(const struct pp_split_run *run, size_t i, int slice,
                         enum pp_logits logits, double t[PP_N_TIMES])
{
    struct pp_cost_source x = cost_source(run);
    const struct pp_default_microbatch *mb = &run->request->microbatch;
    const struct pp_slices *slices = &run->graph.slices;
    size_t all = (size_t)mb->tokens;
    size_t grain = pp_mesh_slice_grain(&x.shard->mesh);
    struct pp_default_microbatch_part part = pp_default_microbatch_part(
        mb, (int64_t)pp_slice_begin(slices, all, grain, slice),
        (int64_t)pp_slice_begin(slices, all, grain, slice + 1));
    x.logits = logits;
    struct pp_cost c =
        pp_unit_cost_for(&x, i, run->modes[i], part.tokens, part.pairs);
    t[PP_TIME_F] = c.forward;
    t[PP_TIME_I] = c.input_grad;
    t[PP_TIME_W] = c.weight_grad;
    t[PP_TIME_B] = c.backward;
}

static void set_times(struct pp_split_run *run, size_t i)
{
    int n = run->graph.slices.n;
    for (int q = 0; q < n; q++)
        pp_split_unit_times(run, i, q, run->logits[q],
                            run->times[i * (size_t)n + (size_t)q]);
}

size_t pp_split_rows(const struct pp_split_run *run)
{
    const struct pp_split_request *q = run->request;
    const struct pp_mesh *x = &q->shard.mesh;
    return pp_rank_rows(x, &run->backend,
                        pp_slice_room(&run->graph.slices,
                                      (size_t)q->microbatch.tokens,
                                      pp_mesh_slice_grain(x), 0));
}

static struct pp_unit_bytes unit_bytes(const struct pp_split_run *run, size_t i)
{
    const struct pp_split_request *q = run->request;

    const struct pp_unit_rates rates =
        pp_split_trainer(q)->rates(&q->shard, pp_model_unit(q->shard.model, i),
                                   run->modes[i], &run->backend);
    size_t rows = pp_split_rows(run);
    size_t context =
        run->graph.slices.n > 1 ? (size_t)q->microbatch.seq_len : 0;
    return pp_unit_bytes(&rates, rows,
                         pp_copied_keys(&q->shard.mesh, rows, context));
}

double pp_split_unit_output(const struct pp_split_run *run, size_t i)
{
    return (double)unit_bytes(run, i).output;
}

static void set_bytes(struct pp_split_run *run, size_t i)
{
    const struct pp_unit_bytes x = unit_bytes(run, i);
    double *b = run->bytes[i];
    b[PP_UNIT_ACT_I] = (double)x.act[PP_SAVED_ACT_I];
    b[PP_UNIT_ACT_W] = (double)x.act[PP_SAVED_ACT_W];
    b[PP_UNIT_GRAD_W] = (double)x.act[PP_SAVED_GRAD_W];
    b[PP_UNIT_GRAD_KEYS] = (double)x.grad_keys;
    b[PP_UNIT_STATES] = (double)x.states;
    b[PP_UNIT_GRAD_LAYER] = b[PP_UNIT_GRAD_W];
    b[PP_UNIT_WORKSPACE] = (double)x.workspace;
}

/* Sets the bytes that no mode changes. */
static void set_state(struct pp_split_run *run, size_t i)
{
    const struct pp_split_request *q = run->request;
    const struct pp_mesh mesh = pp_split_mesh(q, i);
    run->bytes[i][PP_UNIT_WHOLE] = (double)gathered(q, &mesh, i);
    run->bytes[i][PP_UNIT_TRAINED] =
        (double)pp_state_sum(pp_split_state(q, &mesh, i));
}

static size_t n_slices(const struct pp_split_run *run)
{
    return run->simulated ? (size_t)run->graph.slices.n : 0;
}

/* Computes the unit in the mode that it has. */
static void set_unit(struct pp_split_run *run, size_t i)
{
    set_cost(run, i);
    if (!run->simulated)
        return;
    set_times(run, i);
    set_bytes(run, i);
}

/* Computes the unit in the mode that it has, and keeps a copy. */
static void find_unit(struct pp_split_run *run, size_t i)
{
    size_t n = n_slices(run);
    struct pp_split_unit *x =
        pp_arena_alloc(&run->arena, 1, sizeof *x + n * sizeof *x->times);
    set_unit(run, i);
    x->cost = run->costs[i];
    x->mode = run->modes[i];
    x->next = run->in_mode[i];
    if (n) {
        memcpy(x->bytes, run->bytes[i], sizeof x->bytes);
        memcpy(x->times, run->times[i * n], n * sizeof *x->times);
    }
    run->in_mode[i] = x;
}

void pp_split_unit_set_mode(struct pp_split_run *run, size_t i,
                            enum pp_recompute mode)
{
    const struct pp_split_unit *x = run->in_mode[i];
    size_t n = n_slices(run);
    while (x && x->mode != mode)
        x = x->next;
    run->modes[i] = mode;
    if (!x) {
        find_unit(run, i);
        return;
    }
    run->costs[i] = x->cost;
    if (n) {
        memcpy(run->bytes[i], x->bytes, sizeof x->bytes);
        memcpy(run->times[i * n], x->times, n * sizeof *x->times);
    }
}

/* Returns how the head, on the last stage of each copy, makes the logits of a
 * slice in an order, whose cells these are. */
static enum pp_logits logits_of(struct pp_split_run *run,
                                const struct pp_schedule *s, const bool *cells,
                                int slice)
{
    const struct pp_graph *g = &run->graph;
    bool any = false, all = true;
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_action a = s->rows[r].actions[i];
            if (a.op != PP_F || a.slice != slice ||
                pp_original(g, a.stage) + 1 < (int)run->n_stages)
                continue;
            bool is = cells[(a.stage * s->n_microbatches + a.microbatch) *
                                g->slices.n +
                            slice];
            any |= is;
            all &= is;
        }
    run->logits_vary |= any && !all;
    return all ? PP_LOGITS_ONCE : PP_LOGITS_AGAIN;
}

static void set_logits(struct pp_split_run *run, const struct pp_schedule *s)
{
    size_t slices = (size_t)run->graph.slices.n;
    bool any = pp_split_trainer(run->request) == pp_trainers &&
               run->request->shard.model->head_stages == 0;
    size_t n = (size_t)run->graph.n_stages * (size_t)run->n_microbatches;
    bool *cells = s ? pp_calloc(n * slices, sizeof *cells) : NULL;
    if (s)
        pp_at_once_cells(s, cells);
    run->logits_vary = false;
    for (int q = 0; q < run->graph.slices.n; q++)
        run->logits[q] = !any ? PP_LOGITS_AGAIN
                         : !s ? PP_LOGITS_LEAST
                              : logits_of(run, s, cells, q);
    free(cells);
}

void pp_split_units_order(struct pp_split_run *run, const struct pp_schedule *s)
{
    const struct pp_model *m = run->request->shard.model;
    set_logits(run, s);
    for (size_t i = 0; i < run->n_units; i++)
        if (pp_unit_recomputes(m, pp_model_unit(m, i))) {
            run->in_mode[i] = NULL;
            pp_split_unit_set_mode(run, i, run->modes[i]);
        }
}

void pp_split_units_init(struct pp_split_run *run)
{
    struct pp_arena *a = &run->arena;
    size_t n = run->n_units;
    run->logits =
        pp_arena_alloc(a, (size_t)run->graph.slices.n, sizeof *run->logits);
    set_logits(run, run->simulated ? pp_split_order(run) : NULL);
    run->costs = pp_arena_alloc(a, n, sizeof *run->costs);
    run->modes = pp_arena_alloc(a, n, sizeof *run->modes);
    run->in_mode = pp_arena_alloc(a, n, sizeof *run->in_mode);
    if (run->simulated) {
        run->times = pp_arena_alloc(a, n * n_slices(run), sizeof *run->times);
        run->bytes = pp_arena_alloc(a, n, sizeof *run->bytes);
    }
    for (size_t i = 0; i < n; i++) {
        run->modes[i] = run->request->recompute;
        set_unit(run, i);
        if (run->simulated)
            set_state(run, i);
    }
}
