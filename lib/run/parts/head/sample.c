/* SPDX-License-Identifier: MIT */
/* sample - draws the next token from a row of logits, on the host: the
 * largest logit, or with noise of Gumbel's distribution a sample of the softmax
 * (Maddison, Tarlow and Minka, "A* Sampling", 2014). Ranks that divide the
 * words draw one each, and take the best: the noise of a word depends on no
 * rank. */
#include "run/parts/head/head.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

static double logit_at(const void *row, size_t bytes, size_t i)
{
    if (bytes == sizeof(double))
        return ((const double *)row)[i];
    if (bytes == sizeof(float))
        return (double)((const float *)row)[i];
    uint32_t word = (uint32_t)((const uint16_t *)row)[i] << 16; /* bf16 */
    float x;
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

/* Returns noise number i. It depends on nothing but the key. */
static double gumbel(uint64_t key, uint64_t i)
{
    double u = ((double)(pp_rng_bits(key, i) >> 11) + .5) * 0x1p-53;
    return -log(-log(u));
}

/* The word of a rank that is drawn if no word of another rank is above it. */
struct drawn {
    double best; /* its logit, with noise */
    double id, logprob;
};

/* Draws among words of this rank, with noise number first for word 0. */
static struct drawn draw(const struct pp_sampler *s, const void *row,
                         size_t bytes, struct pp_head_span words,
                         uint64_t first, double lse)
{
    struct drawn d = {.best = -INFINITY};
    for (size_t i = 0; i < words.n; i++) {
        size_t id = words.first + i;
        double logit = logit_at(row, bytes, i);
        double x = logit + (s->greedy ? 0 : gumbel(s->key, first + id));
        if (x > d.best)
            d = (struct drawn){x, (double)id, logit - lse};
    }
    return d;
}

/* Rows that ranks exchange at a time. */
enum { PART = 64 };

/* Takes the best of the rows of a block over the words of all ranks; of equal
 * ones the lowest id. own are this rank's. */
static void take_best(const struct pp_call *c, const struct pp_head_block *h,
                      const struct drawn *own)
{
    struct drawn room[PART], best[PART];
    size_t bytes = h->n * sizeof *own, ranks = pp_head_ranks(c);
    const char *all = NULL;
    if (ranks > 1) {
        pp_call_put(c, h->room, own, bytes);
        all = pp_layer_collect(c, h->room, bytes);
    }
    for (size_t r = 0; r < ranks; r++) {
        const struct drawn *of =
            all ? pp_call_read(c, all + r * bytes, bytes, room) : own;
        for (size_t i = 0; of && i < h->n; i++)
            if (r == 0 || of[i].best > best[i].best)
                best[i] = of[i];
    }
    for (size_t i = 0; !pp_call_failed(c) && i < h->n; i++) {
        double *to =
            c->mb->details.values + (h->at + i) * c->mb->details.stride;
        to[0] = best[i].id;
        to[1] = best[i].logprob;
    }
}

/* Draws row i of a block. */
static struct drawn draw_row(const struct pp_call *c,
                             const struct pp_head_block *h, size_t i)
{
    const struct pp_sampler *s = c->mb->details.sampler;
    const struct pp_head_span words =
        pp_head_span(c, (size_t)c->env->tensor.group.index);
    size_t bytes = c->k->element_bytes, wide = c->k->accumulator_bytes;
    size_t vocab = c->l->words ? c->l->words->rows : c->m->vocab;
    double lse_room;
    const void *logits = pp_call_read(c, pp_at(c, h->logits, i * words.n),
                                      words.n * bytes, s->room);
    const void *lse =
        pp_call_read(c, pp_statistic_at(c, h->lse, i), wide, &lse_room);
    return lse ? draw(s, logits, bytes, words,
                      (c->mb->details.draw + h->at + i) * vocab,
                      logit_at(lse, wide, 0))
               : (struct drawn){0};
}

void pp_head_sample(const struct pp_call *c, const struct pp_head_block *h)
{
    struct drawn own[PART];
    size_t bytes = pp_layer_collected_bytes(c);
    bytes = bytes < h->room_bytes ? bytes : h->room_bytes;
    size_t most = bytes / sizeof *own < PART ? bytes / sizeof *own : PART;
    if (most == 0)
        pp_fail(c->err, PP_EXIT_INPUT,
                "ranks have no room to exchange tokens beside a "
                "hidden_size of %zu",
                c->C);
    for (size_t i = 0; !pp_call_failed(c) && i < h->n; i += most) {
        const struct pp_head_block part = pp_head_part(c, h, i, most);
        for (size_t k = 0; k < part.n; k++)
            own[k] = draw_row(c, &part, k);
        take_best(c, &part, own);
    }
}
