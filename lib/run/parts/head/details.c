/* SPDX-License-Identifier: MIT */
/* details - what --logprobs tells of the distribution at a token besides
 * its log-probability: the entropy and the k largest logits. They leave the
 * device row by row, and the logits stay there. Ranks that divide the words
 * hand each other sums and k candidates. */
#include "run/parts/head/head.h"

#include <string.h>

#include "run/parts/experts/top_k.h"

/* Numbers that are read from the device at a time. */
enum { READ_NUMBERS = PP_MOST_TOP_K };

/* Numbers of several ranks follow each other without gaps, so p may have any
 * alignment. */
static double number_at(const struct pp_call *c, const char *p, size_t i)
{
    size_t bytes = c->k->accumulator_bytes;
    float narrow = 0;
    double wide = 0;
    if (bytes == sizeof narrow)
        memcpy(&narrow, p + i * bytes, bytes);
    else
        memcpy(&wide, p + i * bytes, bytes);
    return bytes == sizeof narrow ? (double)narrow : wide;
}

static double *details_at(const struct pp_call *c, size_t row)
{
    return c->mb->details.values + row * c->mb->details.stride;
}

/* Adds up what the words of every rank have of the entropies of the rows of a
 * block, in the order of the ranks. */
static void add_entropies(const struct pp_call *c,
                          const struct pp_head_block *h)
{
    double room[READ_NUMBERS];
    size_t bytes = h->n * c->k->accumulator_bytes;
    const char *all = pp_layer_collect(c, h->room, bytes);
    for (size_t r = 0; r < pp_head_ranks(c); r++) {
        const void *p = pp_call_read(c, all + r * bytes, bytes, room);
        for (size_t i = 0; p && i < h->n; i++) {
            double *to = details_at(c, h->at + i);
            *to = (r ? *to : 0) + number_at(c, p, i);
        }
    }
}

/* The candidates of some rows among the words of a rank. */
struct rank_candidates {
    size_t rank;
    const void *values;
    const int32_t *ids;
};

/* Merges the details of row i with the details of earlier ranks, which are in
 * `to`. */
static void merge_row(const struct pp_call *c, double *to,
                      const struct rank_candidates *of, size_t i)
{
    struct pp_candidate found[2 * PP_MOST_TOP_K], merged[PP_MOST_TOP_K];
    const struct pp_head_span words = pp_head_span(c, of->rank);
    size_t k = c->mb->details.top_k;
    size_t n = words.n < k ? words.n : k, held = of->rank ? k : 0;
    for (size_t j = 0; j < held; j++)
        found[j] = (struct pp_candidate){to[k + j], (int32_t)to[j]};
    for (size_t j = 0; j < n; j++)
        found[held + j] =
            (struct pp_candidate){number_at(c, of->values, i * n + j),
                                  of->ids[i * n + j] + (int32_t)words.first};
    pp_top_k_merge(found, held + n, k, merged);
    for (size_t j = 0; j < k; j++) {
        to[j] = merged[j].id;
        to[k + j] = merged[j].value;
    }
}

/* Computes the candidates of the rows of a block among the words of this rank,
 * and merges the candidates of all ranks. Every rank hands over the most that
 * one can have. */
static void find_top(const struct pp_call *c, const struct pp_head_block *h)
{
    double room[READ_NUMBERS];
    int32_t ids_room[READ_NUMBERS];
    const struct pp_head_details *d = &c->mb->details;
    size_t k = d->top_k, words = pp_head_words(c), numbers = h->n * k;
    size_t values_bytes = numbers * c->k->accumulator_bytes;
    size_t bytes = values_bytes + numbers * sizeof *ids_room;
    PP_RUN(c, top_k, h->room, (int32_t *)((char *)h->room + values_bytes),
           h->logits, h->n, words, words < k ? words : k);
    const char *all = pp_layer_collect(c, h->room, bytes);
    for (size_t r = 0; r < pp_head_ranks(c); r++) {
        const char *at = all + r * bytes;
        const struct rank_candidates of = {
            r, pp_call_read(c, at, values_bytes, room),
            pp_call_read(c, at + values_bytes, numbers * sizeof *ids_room,
                         ids_room)};
        for (size_t i = 0; of.ids && i < h->n; i++)
            merge_row(c, details_at(c, h->at + i) + d->entropy, &of, i);
    }
}

/* Returns the rows whose numbers fit in the room of this rank and that of what
 * it collects. */
static size_t rows_at_a_time(const struct pp_call *c,
                             const struct pp_head_block *h)
{
    size_t width = c->mb->details.top_k > 1 ? c->mb->details.top_k : 1;
    size_t row = width * (c->k->accumulator_bytes + sizeof(int32_t));
    size_t collected = pp_layer_collected_bytes(c);
    size_t bytes = collected < h->room_bytes ? collected : h->room_bytes;
    size_t most = READ_NUMBERS / width;
    return most < bytes / row ? most : bytes / row;
}

void pp_head_details(const struct pp_call *c, const struct pp_head_block *h)
{
    size_t words = pp_head_words(c), most = rows_at_a_time(c, h);
    if (most == 0)
        pp_fail_setting(c->err, PP_EXIT_INPUT, "top-k", NULL,
                        "there is no room for %zu logits of a token "
                        "beside a hidden_size of %zu",
                        c->mb->details.top_k, c->C);
    for (size_t i = 0; !pp_call_failed(c) && i < h->n; i += most) {
        const struct pp_head_block part = pp_head_part(c, h, i, most);
        if (c->mb->details.entropy) {
            PP_RUN(c, entropy, part.room, part.logits, part.lse, part.n, words);
            add_entropies(c, &part);
        }
        if (c->mb->details.top_k)
            find_top(c, &part);
    }
}
