/* SPDX-License-Identifier: MIT */
/* ranks - does --cp-sizes per-sequence: places the sequences of each bin
 * on context-parallel ranks. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "pppack.h"

/* Checks that the documents are tokens alone, and that the plan has as many
 * ranks as the sequences get. */
static int check_ranks(struct pack_job *j)
{
    const struct pp_manifest *m = &j->in->manifest;
    if (pp_documents_have_items(&j->in->docs))
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "documents with images or audio cannot have ranks of "
                       "their own (--cp-sizes per-sequence)");
    if (j->o->manifest_name && m->graph.slices.n > 1)
        return pp_fail(&j->t->err, PP_EXIT_INPUT,
                       "%s: the schedule divides microbatches in '%d' slices, "
                       "and --cp-sizes per-sequence needs one",
                       j->o->manifest_name, m->graph.slices.n);
    if (!j->o->manifest_name || m->mesh.cp == j->o->mesh.cp)
        return 0;
    return pp_fail(&j->t->err, PP_EXIT_INPUT,
                   "%s: the plan has '%d' context-parallel ranks, but "
                   "sequences would be placed on %" PRId64
                   "; give both the same --cp",
                   j->o->manifest_name, m->mesh.cp, j->o->mesh.cp);
}

/* Measures how even the ranks are. */
static void measure(struct pack_job *j, struct pack_figures *f)
{
    double tokens[PP_MOST_SIZED_RANKS], pairs[PP_MOST_SIZED_RANKS];
    size_t n = (size_t)j->o->mesh.cp, at = 0;
    for (size_t b = 0; b < j->bins.n_bins; b++) {
        double most = 0, sum = 0;
        memset(tokens, 0, n * sizeof *tokens);
        memset(pairs, 0, n * sizeof *pairs);
        for (size_t end = pack_add_loads(j, b, at, tokens, pairs); at < end;)
            f->whole += j->ranks[at++].n == 1;
        for (size_t k = 0; k < n; k++) {
            double cost = pack_cost(j, tokens[k], pairs[k]);
            sum += cost;
            most = fmax(most, cost);
            f->rank_tokens = fmax(f->rank_tokens, tokens[k]);
        }
        if (sum > 0)
            f->rank_imbalance = fmax(f->rank_imbalance, most * (double)n / sum);
    }
}

/* The pieces of a bin: a group is on the ranks of one range. */
struct items {
    uint32_t *tokens, *item;
    uint64_t *cost;
    struct pp_rank_range *ranks;
};

static double piece_cost(const struct pack_job *j, const struct pp_piece *q)
{
    double sum = 0;
    for (size_t k = 0; k < pack_n_sequences(j, q); k++) {
        struct pack_sequence of = pack_sequence(j, q, k);
        sum += pack_cost(j, of.padded, of.pairs);
    }
    return sum;
}

/* Puts the pieces of a bin on more ranks first, and writes the ranks of their
 * sequences. Returns the number of these. */
static size_t order_pieces(struct pack_job *j, const struct items *s, size_t n,
                           uint32_t *item, struct pp_rank_range *out)
{
    size_t at = 0, to = 0;
    for (int ranks = (int)j->o->mesh.cp; ranks > 0; ranks--)
        for (size_t i = 0; i < n; i++) {
            if (s->ranks[i].n != ranks)
                continue;
            size_t k = pack_n_sequences(j, &j->pieces.piece[item[i]]);
            s->item[to++] = item[i];
            while (k-- > 0)
                out[at++] = s->ranks[i];
        }
    memcpy(item, s->item, n * sizeof *item);
    return at;
}

static void place_bins(struct pack_job *j, const struct items *s)
{
    double total = 0;
    for (size_t i = 0; i < j->pieces.n; i++)
        total += piece_cost(j, &j->pieces.piece[i]);
    double scale = total > 0 ? 0x1p61 / total : 1;
    for (size_t b = 0, at = 0; b < j->bins.n_bins; b++) {
        uint32_t *item = j->bins.items + j->bins.first[b];
        const struct pp_bin_sequences bin = {
            .tokens = s->tokens,
            .cost = s->cost,
            .n = j->bins.first[b + 1] - j->bins.first[b],
            .cp = (uint32_t)j->o->mesh.cp,
            .capacity = j->capacity / (uint32_t)j->o->mesh.cp,
        };
        for (size_t i = 0; i < bin.n; i++) {
            const struct pp_piece *q = &j->pieces.piece[item[i]];
            s->tokens[i] = q->padded;
            s->cost[i] = (uint64_t)(scale * piece_cost(j, q));
        }
        pp_bin_place(&bin, s->ranks);
        at += order_pieces(j, s, bin.n, item, j->ranks + at);
    }
}

int pack_place(struct pack_job *j, struct pack_figures *f)
{
    size_t n = j->pieces.n + 1, n_sequences = 1;
    struct items s = {0};
    if (!j->o->mesh.sizes)
        return 0;
    if (check_ranks(j) != 0)
        return -1;
    for (size_t i = 0; i < j->pieces.n; i++)
        n_sequences += pack_n_sequences(j, &j->pieces.piece[i]);
    s.tokens = pp_calloc(n, sizeof *s.tokens);
    s.item = pp_calloc(n, sizeof *s.item);
    s.cost = pp_calloc(n, sizeof *s.cost);
    s.ranks = pp_calloc(n, sizeof *s.ranks);
    j->ranks = pp_calloc(n_sequences, sizeof *j->ranks);
    place_bins(j, &s);
    free(s.tokens);
    free(s.item);
    free(s.cost);
    free(s.ranks);
    *f = (struct pack_figures){0};
    measure(j, f);
    return 0;
}
