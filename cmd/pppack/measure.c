/* SPDX-License-Identifier: MIT */
/* measure - the sequences of pieces and what they cost, the loads of bins and
 * of their ranks, and the time of a step of them. */
#include "pppack.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "cost/step.h"
#include "schedule/ir/at_once.h"
#include "schedule/simulate/sim.h"

size_t pack_row_sizes(const struct pack_job *j,
                      struct pp_pack_size sizes[PP_N_MODALITIES])
{
    size_t n = 0;
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        uint32_t limit = pack_row_limit(j->in, (enum pp_modality)m);
        if (limit && j->pieces.rows[m])
            sizes[n++] = (struct pp_pack_size){j->pieces.rows[m], limit};
    }
    return n;
}

static size_t sequences_of(const struct pack_job *j, const struct pp_piece *q,
                           size_t *first)
{
    return pp_piece_sequences(&j->in->docs, j->first_document, q, first);
}

static double pairs(double length)
{
    return length * (length + 1) / 2;
}

size_t pack_n_sequences(const struct pack_job *j, const struct pp_piece *q)
{
    size_t first;
    return sequences_of(j, q, &first);
}

struct pack_sequence pack_sequence(const struct pack_job *j,
                                   const struct pp_piece *q, size_t k)
{
    size_t first, n = sequences_of(j, q, &first);
    if (n == 1)
        return (struct pack_sequence){q->padded, pairs(q->length)};
    size_t length =
        j->in->docs.first[first + k + 1] - j->in->docs.first[first + k];
    return (struct pack_sequence){(uint32_t)pp_round_up(length, j->o->align),
                                  pairs((double)length)};
}

double pack_cost(const struct pack_job *j, double tokens, double pairs)
{
    return j->o->balance.what == PACK_BALANCE_FLOPS
               ? j->in->per_token * tokens + j->in->per_pair * pairs
               : tokens;
}

/* Adds a piece's attended pairs; it begins at position `at` of `total`. */
static void add_pairs(const struct pack_job *j, uint32_t item,
                      struct pp_plan plan, int64_t total, int64_t at,
                      struct pp_workload *out)
{
    const struct pp_piece *q = &j->pieces.piece[item];
    size_t first, n = sequences_of(j, q, &first);
    if (n == 1)
        pp_slice_pairs(plan, total, at, q->length, out);
    for (size_t s = first; n > 1 && s < first + n; s++) {
        size_t length = j->in->docs.first[s + 1] - j->in->docs.first[s];
        pp_slice_pairs(plan, total, at, (int64_t)length, out);
        at += (int64_t)pp_round_up(length, j->o->align);
    }
}

size_t pack_add_loads(const struct pack_job *j, size_t b, size_t at,
                      double *tokens, double *pairs)
{
    for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++) {
        const struct pp_piece *q = &j->pieces.piece[j->bins.items[i]];
        for (size_t k = 0; k < pack_n_sequences(j, q); k++, at++) {
            struct pack_sequence of = pack_sequence(j, q, k);
            struct pp_rank_range r = j->ranks[at];
            for (int n = r.first; n < r.first + r.n; n++) {
                tokens[n] += (double)of.padded / r.n;
                pairs[n] += of.pairs / r.n;
            }
        }
    }
    return at;
}

/* Measures the bins whose sequences have ranks of their own. The time of a bin
 * is the time of its slowest rank: as if all ranks had as much. */
static void measure_ranks(struct pack_job *j, const struct pp_stage_costs *c,
                          struct pp_workload *loads)
{
    double tokens[PP_MOST_SIZED_RANKS], pairs[PP_MOST_SIZED_RANKS];
    size_t n = (size_t)j->o->mesh.cp;
    for (size_t b = 0, at = 0; b < j->bins.n_bins; b++) {
        memset(tokens, 0, n * sizeof *tokens);
        memset(pairs, 0, n * sizeof *pairs);
        at = pack_add_loads(j, b, at, tokens, pairs);
        size_t slowest = pp_stage_slowest(c, tokens, pairs, n);
        loads[b] = pp_workload_of(tokens[slowest] * (double)n,
                                  pairs[slowest] * (double)n);
    }
}

/* Appends the items of a piece to the items of its bin. */
static void add_items(const struct pack_job *j, const struct pp_items *items,
                      const struct pp_piece *q, struct pp_bin_items *to,
                      int32_t *cu)
{
    size_t first, n = sequences_of(j, q, &first);
    const struct pp_item *item;
    for (size_t s = first; s < first + n; s++)
        for (size_t k = pp_items_of(items, s, &item); k > 0; k--) {
            cu[to->n + 1] = cu[to->n] + (int32_t)item++->rows;
            to->n++;
        }
    to->rows = (uint32_t)cu[to->n];
}

/* Measures the items of an encoder in all bins. Ranks that have items of
 * several bins have as many of each, because nothing says which come together.
 */
static void measure_items(struct pack_job *j, size_t encoder,
                          struct pp_workload *loads)
{
    const struct pp_items *all =
        &j->in->docs.items[pack_modality(j->in, encoder)];
    int32_t *cu = pp_calloc(all->n + 1, sizeof *cu);
    double bins;
    size_t ranks =
        pp_plan_item_ranks(pp_manifest_plan(&j->in->manifest), encoder, &bins);
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        struct pp_bin_items items = {.cu_rows = cu};
        for (size_t i = j->bins.first[b]; i < j->bins.first[b + 1]; i++)
            add_items(j, all, &j->pieces.piece[j->bins.items[i]], &items, cu);
        struct pp_item_share share = pp_items_largest(&items, ranks);
        pp_workload_set_items(&loads[b], pp_manifest_plan(&j->in->manifest),
                              encoder, bins * share.rows, bins * share.squares);
    }
    free(cu);
}

struct pp_workload *pack_measure_bins(struct pack_job *j,
                                      const struct pp_stage_costs *c)
{
    size_t n = j->bins.n_bins;
    const struct pp_plan plan = pp_manifest_plan(&j->in->manifest);
    size_t slices = (size_t)plan.graph->slices.n;
    size_t counted = pp_step_counted(plan);
    struct pp_workload *loads = pp_calloc(n * slices, sizeof *loads);
    if (j->ranks) {
        measure_ranks(j, c, loads);
        return loads;
    }
    for (size_t b = 0; b < n; b++) {
        const uint32_t *item = j->bins.items + j->bins.first[b],
                       *end = j->bins.items + j->bins.first[b + 1];
        int64_t total = 0, at = 0;
        for (const uint32_t *i = item; i < end; i++)
            total += j->pieces.padded[*i];
        pp_slice_tokens(plan, total, loads + b * slices);
        for (; item < end; at += j->pieces.padded[*item++])
            add_pairs(j, *item, plan, total, at, loads + b * slices);
    }
    for (size_t e = 0; e < counted; e++)
        measure_items(j, e, loads);
    return loads;
}

/* The part of a step that one data-parallel rank runs. */
struct dp_rank {
    const struct pp_stage_costs *costs;
    const struct pp_workload *sizes;
    size_t first, dp, n_bins;
    const uint32_t *order; /* round of each microbatch, or NULL */
    const bool *at_once;   /* of the schedule (pp_at_once_cells) */
    size_t parts;          /* microbatches times slices */
};

static double dp_rank_time(const void *ctx, struct pp_action a)
{
    const struct dp_rank *l = ctx;
    if (!pp_is_compute(a.op) && !pp_is_send(a.op))
        return 0;
    size_t round = (size_t)a.microbatch;
    if (l->order)
        round = l->order[round];
    size_t b = (l->first + round * l->dp) % l->n_bins;
    size_t slices = (size_t)l->costs->plan.graph->slices.n;
    size_t cell = (size_t)a.stage * l->parts + (size_t)a.microbatch * slices +
                  (size_t)a.slice;
    return pp_stage_time(l->costs, a, l->sizes[b * slices + (size_t)a.slice],
                         l->at_once[cell] ? PP_LOGITS_ONCE : PP_LOGITS_AGAIN);
}

int pack_simulate_step(struct pack_job *j, const struct pp_stage_costs *c,
                       const struct pp_workload *sizes, size_t first,
                       const uint32_t *order, double *time)
{
    const struct pp_schedule *s = &j->in->manifest.schedule;
    size_t dp = (size_t)j->in->manifest.mesh.dp;
    size_t parts = (size_t)s->n_microbatches * (size_t)s->graph->slices.n;
    bool *at_once =
        pp_calloc((size_t)s->graph->n_stages * parts, sizeof *at_once);
    int rc = 0;
    *time = 0;
    pp_at_once_cells(s, at_once);
    for (size_t k = 0; k < dp && !rc; k++) {
        struct dp_rank rank = {c,     sizes,   first + k, dp, j->bins.n_bins,
                               order, at_once, parts};
        struct pp_costs costs = {.time = dp_rank_time, .ctx = &rank};
        struct pp_sim sim = {0};
        rc = pp_simulate(s, &costs, s->channel_depth, &sim, &j->t->err);
        *time = sim.makespan > *time ? sim.makespan : *time;
        pp_sim_finish(&sim);
    }
    free(at_once);
    return rc;
}
