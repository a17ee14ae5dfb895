/* SPDX-License-Identifier: MIT */
/* head_sample - draws the next token from a row of logits, on the host: the
 * largest logit, or with noise of Gumbel's distribution a sample of the softmax
 * (Maddison, Tarlow and Minka, "A* Sampling", 2014). */
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

/* Draws a token with the noise from number first on. */
static size_t draw(const struct pp_sampler *s, const void *row, size_t bytes,
                   size_t V, uint64_t first)
{
    double best = -INFINITY;
    size_t id = 0;
    for (size_t i = 0; i < V; i++) {
        double x = logit_at(row, bytes, i);
        x += s->greedy ? 0 : gumbel(s->key, first + i);
        if (x > best) {
            best = x;
            id = i;
        }
    }
    return id;
}

int pp_head_sample(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const struct pp_head_block *h, size_t at, size_t n,
                   struct pp_err *err)
{
    size_t V = l->model->vocab, bytes = l->kernels->element_bytes;
    size_t wide = l->kernels->accumulator_bytes;
    for (size_t i = 0; i < n; i++) {
        double lse_room, *to = mb->details + (at + i) * mb->details_stride;
        const void *row =
            pp_device_read(l->device, pp_layer_at(l, h->logits, i * V),
                           V * bytes, mb->sampler->room, err);
        const void *lse =
            row ? pp_device_read(l->device, pp_layer_statistic_at(l, h->lse, i),
                                 wide, &lse_room, err)
                : NULL;
        if (!lse)
            return -1;
        size_t id = draw(mb->sampler, row, bytes, V, (mb->draw + at + i) * V);
        to[0] = (double)id;
        to[1] = logit_at(row, bytes, id) - logit_at(lse, wide, 0);
    }
    return 0;
}
