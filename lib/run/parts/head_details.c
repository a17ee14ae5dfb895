/* SPDX-License-Identifier: MIT */
/* head_details - what --logprobs tells of the distribution at a token besides
 * its log-probability: the entropy and the k largest logits. They leave the
 * device row by row, and the logits stay there. */
#include "run/parts/layer_impl.h"

#include "run/parts/top_k.h"

/* Numbers that are read from the device at a time. */
enum { READ_NUMBERS = PP_MOST_TOP_K };

static double number_at(const struct pp_layer *l, const void *p, size_t i)
{
    return l->kernels->accumulator_bytes == sizeof(float)
               ? (double)((const float *)p)[i]
               : ((const double *)p)[i];
}

static double *details_at(const struct pp_microbatch *mb, size_t row)
{
    return mb->details + row * mb->details_stride;
}

static int read_entropies(const struct pp_layer *l,
                          const struct pp_microbatch *mb, const void *from,
                          size_t at, size_t n, struct pp_err *err)
{
    double room[READ_NUMBERS];
    const void *p = pp_device_read(
        l->device, from, n * l->kernels->accumulator_bytes, room, err);
    for (size_t i = 0; p && i < n; i++)
        details_at(mb, at + i)[0] = number_at(l, p, i);
    return p ? 0 : -1;
}

/* Reads the candidates of n rows, and writes ids and logits. */
static int read_top(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const void *values, const int32_t *ids, size_t at, size_t n,
                    struct pp_err *err)
{
    size_t k = mb->top_k, first = mb->entropy;
    double room[READ_NUMBERS];
    int32_t ids_room[READ_NUMBERS];
    struct pp_candidate found[PP_MOST_TOP_K], merged[PP_MOST_TOP_K];
    const void *v = pp_device_read(
        l->device, values, n * k * l->kernels->accumulator_bytes, room, err);
    const int32_t *id =
        v ? pp_device_read(l->device, ids, n * k * sizeof *ids, ids_room, err)
          : NULL;
    for (size_t i = 0; id && i < n; i++) {
        double *to = details_at(mb, at + i) + first;
        for (size_t j = 0; j < k; j++)
            found[j] = (struct pp_candidate){number_at(l, v, i * k + j),
                                             id[i * k + j]};
        pp_top_k_merge(found, k, k, merged);
        for (size_t j = 0; j < k; j++) {
            to[j] = merged[j].id;
            to[k + j] = merged[j].value;
        }
    }
    return id ? 0 : -1;
}

int pp_head_details(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_head_block *h, size_t at, size_t n,
                    struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t V = l->model->vocab, wide = k->accumulator_bytes;
    size_t width = mb->top_k > 1 ? mb->top_k : 1, part;
    size_t row = width * (wide + sizeof(int32_t));
    size_t most = READ_NUMBERS / width;
    most = most < h->room_bytes / row ? most : h->room_bytes / row;
    if (most == 0)
        return pp_fail_setting(err, PP_EXIT_INPUT, "top-k", NULL,
                               "there is no room for %zu logits of a token "
                               "beside a hidden_size of %zu",
                               mb->top_k, l->model->hidden);
    int32_t *ids = (int32_t *)((char *)h->room + most * width * wide);
    for (size_t i = 0; i < n; i += part) {
        part = n - i < most ? n - i : most;
        const void *x = pp_layer_at(l, h->logits, i * V);
        if (mb->entropy) {
            PP_LAYER_RUN(k->entropy(h->room, x,
                                    pp_layer_statistic_at(l, h->lse, i), part,
                                    V, l->stream));
            if (read_entropies(l, mb, h->room, at + i, part, err))
                return -1;
        }
        if (!mb->top_k)
            continue;
        PP_LAYER_RUN(k->top_k(h->room, ids, x, part, V, mb->top_k, l->stream));
        if (read_top(l, mb, h->room, ids, at + i, part, err))
            return -1;
    }
    return 0;
}
