/* SPDX-License-Identifier: MIT */
/* head_sample - draws the next token from a row of logits, on the host: the
 * largest logit, or with noise of Gumbel's distribution a sample of the softmax
 * (Maddison, Tarlow and Minka, "A* Sampling", 2014). Ranks that divide the
 * words draw one each, and take the best: the noise of a word depends on no
 * rank. */
#include "run/parts/layer_impl.h"

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

/* Takes the best of n rows over the words of all ranks; of equal ones the
 * lowest id. */
static int take_best(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_head_block *h, const struct drawn *own,
                     size_t at, size_t n, struct pp_err *err)
{
    struct drawn room[PART], best[PART];
    size_t bytes = n * sizeof *own, ranks = pp_head_ranks(l);
    if (ranks > 1 && pp_layer_put(l, h->room, own, bytes, err))
        return -1;
    const char *all =
        ranks > 1 ? pp_layer_collect(l, h->blocks, h->room, bytes, err) : NULL;
    if (ranks > 1 && !all)
        return -1;
    for (size_t r = 0; r < ranks; r++) {
        const struct drawn *of =
            all ? pp_device_read(l->env->device, all + r * bytes, bytes, room,
                                 err)
                : own;
        if (!of)
            return -1;
        for (size_t i = 0; i < n; i++)
            if (r == 0 || of[i].best > best[i].best)
                best[i] = of[i];
    }
    for (size_t i = 0; i < n; i++) {
        double *to = mb->details + (at + i) * mb->details_stride;
        to[0] = best[i].id;
        to[1] = best[i].logprob;
    }
    return 0;
}

/* Draws row i of a block, row `row` of the microbatch. */
static int draw_row(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_head_block *h, size_t i, size_t row,
                    struct drawn *out, struct pp_err *err)
{
    const struct pp_head_span words =
        pp_head_span(l, (size_t)l->env->tensor.group.index);
    size_t bytes = l->env->kernels->element_bytes;
    size_t wide = l->env->kernels->accumulator_bytes;
    size_t vocab = l->words ? l->words->rows : l->env->model->vocab;
    double lse_room;
    const void *logits =
        pp_device_read(l->env->device, pp_layer_at(l, h->logits, i * words.n),
                       words.n * bytes, mb->sampler->room, err);
    const void *lse = logits
                          ? pp_device_read(l->env->device,
                                           pp_layer_statistic_at(l, h->lse, i),
                                           wide, &lse_room, err)
                          : NULL;
    if (!lse)
        return -1;
    *out = draw(mb->sampler, logits, bytes, words, (mb->draw + row) * vocab,
                logit_at(lse, wide, 0));
    return 0;
}

int pp_head_sample(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const struct pp_head_block *h, size_t at, size_t n,
                   struct pp_err *err)
{
    struct drawn own[PART];
    size_t bytes = pp_layer_collected_bytes(l, mb), part;
    bytes = bytes < h->room_bytes ? bytes : h->room_bytes;
    size_t most = bytes / sizeof *own < PART ? bytes / sizeof *own : PART;
    if (most == 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "ranks have no room to exchange tokens beside a "
                       "hidden_size of %zu",
                       l->env->model->hidden);
    for (size_t i = 0; i < n; i += part) {
        part = n - i < most ? n - i : most;
        for (size_t k = 0; k < part; k++)
            if (draw_row(l, mb, h, i + k, at + i + k, &own[k], err))
                return -1;
        if (take_best(l, mb, h, own, at + i, part, err))
            return -1;
    }
    return 0;
}
