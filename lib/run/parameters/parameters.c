/* SPDX-License-Identifier: MIT */
/* parameters - lays out the tensors of a rank in its blocks.
 *
 * The tensors of a unit follow each other without gaps, in slot order. Every
 * unit takes whole cache lines. So the alignment of a tensor depends on the
 * model alone and not on the other units of the rank. */
#include "run/parameters/parameters.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static size_t widest(const struct pp_parameters *p)
{
    return p->accumulator_bytes > p->element_bytes ? p->accumulator_bytes
                                                   : p->element_bytes;
}

/* The state of the layout. */
struct cursor {
    size_t n;       /* tensors placed */
    size_t end;     /* elements of W used */
    size_t trained; /* of G */
    size_t owned;   /* of the other blocks */
    size_t held;    /* of W, if it is divided */
    size_t stage;   /* elements of W used before the current stage */
    size_t order;   /* number of the next tensor of the model */
};

static bool in_range(const struct pp_unit_range *r, size_t unit)
{
    return unit >= r->first && unit - r->first < r->n;
}

/* Returns the ranks that hold the same dense weights, and divide the rest. */
static struct pp_holders holders_of(const struct pp_parameters *p,
                                    const struct pp_shares *s)
{
    return (struct pp_holders){.n = s->owners,
                               .index = s->owner,
                               .ep = p->ep,
                               .whole_state = s->owners < 2};
}

bool pp_parameter_at(const struct pp_parameters *p,
                     const struct pp_tensor_info *table, size_t n_rows,
                     const struct pp_shares *s, struct pp_parameter *t)
{
    const struct pp_holders h = holders_of(p, s);
    if (!pp_table_holds(table, n_rows, t->slot, &h))
        return false;
    t->piece = pp_tensor_piece(&t->info, s->tp, s->tp_rank);
    t->n = pp_piece_elements(&t->piece);
    t->replica = t->piece.replica || s->owner >= (t->expert ? p->ep : 1);
    t->own = pp_table_owned(table, n_rows, t->slot, t->n, &h);
    t->held = p->divided ? t->own : (struct pp_range){0, t->n};
    t->held.n = t->info.mapped ? 0 : t->held.n;
    return true;
}

struct pp_shares pp_parameter_shares_of(const struct pp_parameters *p,
                                        const struct pp_parameter *t, size_t k,
                                        size_t n)
{
    struct pp_shares s = *pp_parameter_shares(p, t);
    size_t tp = p->shares.tp;
    if (p->experts_whole && t->expert) {
        s.owner = n > tp ? k : s.owner - s.owner % tp + k;
        return s;
    }
    s.tp_rank = k % s.tp;
    if (n > tp || t->encoder)
        s.owner = k / s.tp;
    return s;
}

static size_t count_tensors(const struct pp_model *m,
                            const struct pp_unit_range *r, size_t ep)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = 0;
    for (size_t u = r->first; u < r->first + r->n; u++) {
        size_t n_rows = pp_unit_params(m, pp_model_unit(m, u), table);
        for (size_t row = 0; row < n_rows; row++)
            table[row].n_equal /= ep;
        n += pp_table_tensors(table, n_rows);
    }
    return n;
}

/* Makes room for the largest piece of a tensor. */
static int grow(const struct pp_parameters *p, struct cursor *at,
                const struct pp_tensor_info *t, size_t tp, struct pp_err *err)
{
    size_t whole, bytes, most = pp_tensor_most(t, tp);
    if (pp_mul(t->rows, t->cols, &whole, err))
        return -1;
    if (most > SIZE_MAX - PP_LINE_BYTES - at->end)
        return pp_fail(err, PP_EXIT_SYSTEM,
                       "the parameters are too large for this machine");
    at->end += most;
    /* Leave room for rounding up, so that no caller has to check again. */
    return pp_mul(at->end + PP_LINE_BYTES, widest(p), &bytes, err);
}

/* The places of a tensor, in elements from the start of a block. */
struct offsets {
    size_t held;    /* in W */
    size_t trained; /* in G */
    size_t owned;   /* in the others */
};

/* Returns the elements of a unit that each rank has room to own, of so many
 * that it has of its tensors. Every owner has room for the largest share. */
static size_t most_owned(const struct pp_parameters *p,
                         const struct pp_shares *s,
                         const struct pp_tensor_info *table, size_t n_rows,
                         size_t elements)
{
    const struct pp_holders h = {
        .n = s->owners, .ep = p->ep, .over_tp = p->experts_whole};
    bool divided = s->owners > 1 || (p->experts_whole && p->experts.owners > 1);
    return divided ? pp_owned_most(table, n_rows, s->tp, &h) : elements;
}

/* Counts the tensors of a unit, and places them if r is not NULL. */
static int place_unit(struct pp_parameters *p, struct offsets *offsets,
                      struct cursor *at, const struct pp_model *m, size_t unit,
                      const struct pp_unit_range *r, struct pp_err *err)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], info;
    struct pp_unit_id id = pp_model_unit(m, unit);
    size_t order = at->order, n_rows = pp_unit_params(m, id, table),
           begin = at->end;
    size_t held = 0, trained = 0, owned = 0; /* of the unit */
    size_t n_slots = pp_table_slots(table, n_rows);
    bool encoder = p->encoder_apart && pp_unit_is_vision(id);
    if (p->whole_encoders && pp_unit_is_vision(id))
        pp_table_undivide(table, n_rows);
    const struct pp_shares *mine = encoder ? &p->encoder : &p->shares;
    bool experts_apart = p->ep > 1 || p->experts_whole;
    for (size_t slot = 0; slot < n_slots; slot++) {
        if (!pp_table_at(table, n_rows, slot, &info))
            continue;
        struct pp_parameter t = {
            .info = info,
            .unit = unit,
            .slot = slot,
            .whole = at->end - at->stage,
            .order = order + pp_table_order(table, n_rows, slot),
            .expert = experts_apart && slot >= pp_table_single(table, n_rows),
            .encoder = encoder,
            .tied_copy = info.tied_to};
        const struct pp_shares *its = pp_parameter_shares(p, &t);
        if (r && pp_parameter_at(p, table, n_rows, its, &t)) {
            t.stage = r->stage;
            t.copy = r->copy;
            offsets[at->n] =
                (struct offsets){p->divided ? at->held + held : at->end,
                                 at->trained + trained, at->owned + owned};
            size_t from = at->end;
            p->at[at->n++] = t;
            if (!info.mapped && grow(p, at, &info, its->tp, err))
                return -1;
            size_t size = at->end - from;
            size_t own = its->owners > 1 && !info.mapped ? t.own.n : size;
            held += own;
            trained += pp_tensor_changes(&info) ? size : 0;
            owned += pp_tensor_changes(&info) ? own : 0;
        }
        at->order++;
    }
    if (!r)
        return 0;
    size_t line = PP_LINE_BYTES / p->element_bytes;
    at->held +=
        pp_round_up(most_owned(p, mine, table, n_rows, at->end - begin), line);
    pp_table_keep_changing(table, n_rows);
    at->end = pp_round_up(at->end, line);
    at->trained += pp_round_up(trained, line);
    at->owned += pp_round_up(most_owned(p, mine, table, n_rows, trained), line);
    return 0;
}

static int allocate_blocks(struct pp_parameters *p, int flags,
                           struct pp_err *err)
{
    bool narrow = p->element_bytes < p->accumulator_bytes;
    const bool wanted[PP_N_BLOCKS] = {
        [PP_BLOCK_W] = true,
        [PP_BLOCK_G] = flags & PP_WITH_GRADS,
        [PP_BLOCK_M] = flags & PP_WITH_MOMENTS,
        [PP_BLOCK_V] = flags & PP_WITH_MOMENTS,
        [PP_BLOCK_MASTER] = narrow && flags & PP_WITH_GRADS,
    };
    memcpy(p->wanted, wanted, sizeof wanted);
    for (int b = 0; b < PP_N_BLOCKS; b++) {
        size_t n = pp_parameters_elements(p, (enum pp_weights_block)b);
        if (!wanted[b] || n == 0)
            continue;
        size_t size = pp_parameters_bytes(p, (enum pp_weights_block)b);
        p->blocks[b] = pp_device_alloc(p->device, n, size, "parameters", err);
        if (!p->blocks[b])
            return -1;
    }
    return 0;
}

static void set_addresses(struct pp_parameters *p,
                          const struct offsets *offsets)
{
    for (size_t i = 0; i < p->n; i++) {
        struct pp_parameter *t = &p->at[i];
        void **fields[PP_N_BLOCKS] = {&t->w, &t->g, &t->m, &t->v, &t->master};
        for (enum pp_weights_block b = PP_BLOCK_W; b < PP_N_BLOCKS; b++) {
            size_t at = b == PP_BLOCK_W   ? offsets[i].held
                        : b == PP_BLOCK_G ? offsets[i].trained
                                          : offsets[i].owned;
            if (p->blocks[b] && pp_parameter_in(t, b))
                *fields[b] =
                    (char *)p->blocks[b] + at * pp_parameters_bytes(p, b);
        }
        if (t->info.by_load && p->blocks[PP_BLOCK_G])
            t->load = (char *)p->blocks[PP_BLOCK_G] +
                      offsets[i].trained * p->accumulator_bytes;
    }
}

/* Places the units of one copy of the weights: the ranges r up to last,
 * exclusive. */
static int place_copy(struct pp_parameters *p, struct offsets *offsets,
                      struct cursor *at, const struct pp_model *m,
                      const struct pp_unit_range *r,
                      const struct pp_unit_range *last, struct pp_err *err)
{
    at->order = 0;
    for (size_t unit = 0; unit < pp_model_n_units(m); unit++) {
        while (r < last && unit >= r->first + r->n)
            r++;
        bool held = r < last && in_range(r, unit);
        if (held && unit == r->first)
            at->stage = at->end;
        if (place_unit(p, offsets, at, m, unit, held ? r : NULL, err))
            return -1;
    }
    return 0;
}

static struct pp_shares at_least_one(struct pp_shares s)
{
    s.tp = s.tp ? s.tp : 1;
    s.owners = s.owners ? s.owners : 1;
    return s;
}

int pp_parameters_init(struct pp_parameters *p, const struct pp_model *m,
                       const struct pp_unit_range *ranges, size_t n_ranges,
                       const struct pp_parameter_memory *where, int flags,
                       struct pp_err *err)
{
    int rc = -1;
    struct cursor at = {0};
    *p = (struct pp_parameters){.element_bytes = where->element_bytes,
                                .accumulator_bytes = where->accumulator_bytes,
                                .device = where->device,
                                .shares = at_least_one(where->shares),
                                .encoder = at_least_one(where->encoder),
                                .encoder_apart = where->encoder.tp > 0,
                                .whole_encoders = where->whole_encoders,
                                .experts = at_least_one(where->experts),
                                .experts_whole = where->experts.tp > 0,
                                .ep = where->ep ? where->ep : 1,
                                .adapts = m->lora};
    p->divided = where->divided && p->shares.owners > 1;
    for (size_t i = 0; i < n_ranges; i++)
        p->n += count_tensors(m, &ranges[i], p->ep);
    /* A rank may hold nothing, so allocate one more than needed. */
    struct offsets *offsets = calloc(p->n + 1, sizeof *offsets);
    p->at = calloc(p->n + 1, sizeof *p->at);
    p->stale = calloc(p->n + 1, sizeof *p->stale);
    if (!offsets || !p->at || !p->stale) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    for (size_t i = 0, next = 0; i < n_ranges; i = next) {
        while (next < n_ranges && ranges[next].copy == ranges[i].copy)
            next++;
        if (place_copy(p, offsets, &at, m, &ranges[i], ranges + next, err))
            goto out;
    }
    assert(at.n == p->n && "ranges ascend within each copy");
    p->n_elements = at.end;
    p->n_held = p->divided ? at.held : at.end;
    p->n_trained = at.trained;
    p->n_owned = at.owned;
    if (allocate_blocks(p, flags, err))
        goto out;
    set_addresses(p, offsets);
    rc = 0;
out:
    free(offsets);
    if (rc)
        pp_parameters_finish(p);
    return rc;
}

/* Returns a negative number if (copy, unit, slot) comes before t, 0 if it is t,
 * else a positive one. */
static int compare_place(int copy, size_t unit, size_t slot,
                         const struct pp_parameter *t)
{
    if (copy != t->copy)
        return copy < t->copy ? -1 : 1;
    if (unit != t->unit)
        return unit < t->unit ? -1 : 1;
    return (slot > t->slot) - (slot < t->slot);
}

struct pp_parameter *pp_parameters_find(const struct pp_parameters *p, int copy,
                                        size_t unit, size_t slot)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct pp_parameter *t = &p->at[mid];
        int order = compare_place(copy, unit, slot, t);
        if (order == 0)
            return t;
        if (order > 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

bool pp_parameter_counts(const struct pp_parameter *t)
{
    return !t->tied_copy && !t->replica && t->copy == 0;
}

struct pp_range pp_parameter_written(const struct pp_parameters *p,
                                     const struct pp_parameter *t,
                                     enum pp_weights_block block)
{
    struct pp_range none = {0, 0};
    if (!pp_parameter_in(t, block) || (p->adapts && t->info.frozen))
        return none;
    if (pp_parameter_shares(p, t)->owners > 1 && pp_block_is_owned(p, block))
        return t->tied_copy || t->copy > 0 || t->piece.replica ? none : t->own;
    return pp_parameter_counts(t) ? (struct pp_range){0, t->n} : none;
}

void *pp_parameters_stage_grads(const struct pp_parameters *p, int stage,
                                size_t *n)
{
    const struct pp_parameter *first = NULL, *last = NULL;
    for (size_t i = 0; i < p->n; i++) {
        if (p->at[i].stage != stage || p->at[i].info.frozen)
            continue;
        last = &p->at[i];
        first = first ? first : last;
    }
    *n = 0;
    if (!first || !first->g)
        return NULL;
    *n = (size_t)((char *)last->g - (char *)first->g) / p->accumulator_bytes +
         last->n;
    return first->g;
}

void pp_parameters_finish(struct pp_parameters *p)
{
    for (int b = 0; b < PP_N_BLOCKS; b++)
        pp_device_free(p->device, p->blocks[b]);
    free(p->at);
    free(p->stale);
    *p = (struct pp_parameters){0};
}
