/* SPDX-License-Identifier: MIT */
/* bridge_rows - walks through the sequences and positions of an action. */
#include "run/execute/bridge_rows.h"

#include <string.h>

static struct pp_row_ranks ranks_of(const struct pp_mesh *x)
{
    return (struct pp_row_ranks){(size_t)x->dp, (size_t)x->cp, (size_t)x->tp};
}

/* A sequence: its padded positions, and where they begin on either side. */
struct sequence {
    const struct pp_bin *bin; /* of the generator's tokens */
    size_t number;            /* in the bin */
    size_t n;
    size_t lane, from; /* of the language model */
    size_t dp, to;     /* of the generator */
};

typedef void visit_fn(void *ctx, const struct sequence *s);

static bool open_lane(const struct pp_bridge *b, size_t lane,
                      struct pp_bin *bin)
{
    uint64_t at = b->first + lane;
    size_t number = at < b->end ? pp_packed_place(b->packed, at) : PP_NO_BIN;
    if (number == PP_NO_BIN)
        return false;
    pp_packed_generator_bin(b->packed, number, bin);
    return true;
}

static size_t all_positions(const struct pp_bridge *b)
{
    struct pp_bin bin;
    size_t sum = 0;
    for (size_t lane = 0; lane < b->language.dp; lane++)
        sum += open_lane(b, lane, &bin) ? bin.tokens : 0;
    return sum;
}

/* Visits all sequences, and leaves the positions of each of the generator's
 * data-parallel ranks in sums. */
static void visit_sequences(const struct pp_bridge *b, size_t *sums,
                            visit_fn *visit, void *ctx)
{
    const size_t ranks = b->generator.dp, lanes = b->language.dp;
    bool each = lanes % ranks == 0;
    size_t total = each ? 0 : all_positions(b), before = 0;
    memset(sums, 0, ranks * sizeof *sums);
    for (size_t lane = 0; lane < lanes; lane++) {
        struct pp_bin bin;
        if (!open_lane(b, lane, &bin))
            continue;
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            const int32_t *at = bin.cu_seqlens_padded + i;
            struct sequence s = {.bin = &bin,
                                 .number = i,
                                 .n = (size_t)(at[1] - at[0]),
                                 .lane = lane,
                                 .from = (size_t)at[0]};
            s.dp = each ? lane * ranks / lanes
                        : (2 * before + s.n) * ranks / (2 * total);
            s.to = sums[s.dp];
            if (visit)
                visit(ctx, &s);
            sums[s.dp] += s.n;
            before += s.n;
        }
    }
}

struct pp_bridge pp_bridge_of(const struct pp_env *env,
                              const struct pp_packed *p, uint64_t first,
                              uint64_t end, size_t *tokens, size_t *next)
{
    const struct pp_layout *l = &env->layout;
    const struct pp_group row = pp_layout_group(l, &env->place, PP_GROUP_ROW);
    struct pp_bridge b = {
        .packed = p,
        .first = first,
        .end = end,
        .language = ranks_of(&pp_layout_language(l)->mesh),
        .generator = ranks_of(&l->components[l->n_components - 1].mesh),
        .generates = env->generates,
        .dp = (size_t)env->place.dp,
        .number = (size_t)row.index,
        .tokens = tokens,
        .next = next};
    visit_sequences(&b, tokens, NULL, NULL);
    return b;
}

/* Returns the positions of a data-parallel rank at either end. */
static size_t positions_of(const struct pp_bridge *b, bool generator, size_t dp)
{
    struct pp_bin bin;
    if (generator)
        return b->tokens[dp];
    return open_lane(b, dp, &bin) ? bin.tokens : 0;
}

size_t pp_bridge_rows(const struct pp_bridge *b)
{
    const struct pp_row_ranks *r = b->generates ? &b->generator : &b->language;
    return positions_of(b, b->generates, b->dp) / r->cp / r->tp;
}

/* The chunks of a context-parallel rank are described in batch.h. */
struct pp_row_place pp_row_place(const struct pp_row_ranks *r, size_t dp,
                                 size_t tokens, size_t first, size_t n,
                                 size_t at)
{
    size_t of_rank = tokens / r->cp, cp = 0, row = first + at;
    if (r->cp > 1) {
        size_t length = n / (2 * r->cp), chunk = at / length;
        bool low = chunk < r->cp;
        cp = low ? chunk : 2 * r->cp - 1 - chunk;
        row = first / r->cp + (low ? 0 : length) + at % length;
    }
    return (struct pp_row_place){
        (dp * r->cp + cp) * r->tp + row / (of_rank / r->tp), row};
}

/* The rows of this rank. */
struct own_rows {
    const struct pp_bridge *b;
    size_t *at;      /* by the rank of the other end */
    int32_t *places; /* or NULL: rows are counted */
};

static void visit_rows(void *ctx, const struct sequence *s)
{
    const struct own_rows *r = ctx;
    const struct pp_bridge *b = r->b;
    if ((b->generates ? s->dp : s->lane) != b->dp)
        return;
    size_t of_lane = positions_of(b, false, s->lane);
    size_t of_dp = positions_of(b, true, s->dp), part = pp_bridge_rows(b);
    for (size_t at = 0; at < s->n; at++) {
        struct pp_row_place x =
            pp_row_place(&b->language, s->lane, of_lane, s->from, s->n, at);
        struct pp_row_place y =
            pp_row_place(&b->generator, s->dp, of_dp, s->to, s->n, at);
        const struct pp_row_place *here = b->generates ? &y : &x;
        size_t there = b->generates ? x.number : y.number;
        if (here->number != b->number)
            continue;
        if (r->places)
            r->places[here->row % part] = (int32_t)r->at[there];
        r->at[there]++;
    }
}

static size_t n_partners(const struct pp_bridge *b)
{
    return pp_row_size(b->generates ? &b->language : &b->generator);
}

void pp_bridge_bounds(const struct pp_bridge *b, size_t *bounds)
{
    struct own_rows r = {b, bounds + 1, NULL};
    size_t n = n_partners(b);
    memset(bounds, 0, (n + 1) * sizeof *bounds);
    visit_sequences(b, b->next, visit_rows, &r);
    for (size_t k = 0; k < n; k++)
        bounds[k + 1] += bounds[k];
}

void pp_bridge_places(const struct pp_bridge *b, size_t *bounds,
                      int32_t *places)
{
    struct own_rows r = {b, bounds, places};
    size_t n = n_partners(b);
    visit_sequences(b, b->next, visit_rows, &r);
    /* Each bound is where the next rank begins now. */
    memmove(bounds + 1, bounds, n * sizeof *bounds);
    bounds[0] = 0;
}

/* The sequences of a rank as one bin. */
struct joining {
    const struct pp_bridge *b;
    const struct pp_joined_bin *to;
    struct pp_bin *out;
};

static void join_sequence(void *ctx, const struct sequence *s)
{
    const struct joining *j = ctx;
    const struct pp_joined_bin *to = j->to;
    if (s->dp != j->b->dp)
        return;
    uint32_t k = j->out->n_sequences++;
    const int32_t *real = s->bin->cu_seqlens + s->number;
    to->cu_seqlens[k + 1] = to->cu_seqlens[k] + real[1] - real[0];
    to->cu_seqlens_padded[k + 1] = (int32_t)(s->to + s->n);
    memcpy(to->ids + s->to, s->bin->input_ids + s->from,
           s->n * sizeof *to->ids);
    memcpy(to->labels + s->to, s->bin->labels + s->from,
           s->n * sizeof *to->labels);
    if (s->n > j->out->max_seqlen)
        j->out->max_seqlen = (uint32_t)s->n;
}

void pp_bridge_join(const struct pp_bridge *b, const struct pp_joined_bin *to,
                    struct pp_bin *out)
{
    struct joining j = {b, to, out};
    *out = (struct pp_bin){.cu_seqlens = to->cu_seqlens,
                           .cu_seqlens_padded = to->cu_seqlens_padded,
                           .input_ids = to->ids,
                           .labels = to->labels,
                           .tokens = (uint32_t)b->tokens[b->dp]};
    to->cu_seqlens[0] = to->cu_seqlens_padded[0] = 0;
    visit_sequences(b, b->next, join_sequence, &j);
}
