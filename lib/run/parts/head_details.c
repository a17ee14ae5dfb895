/* SPDX-License-Identifier: MIT */
/* head_details - what --logprobs tells of the distribution at a token besides
 * its log-probability: the entropy and the k largest logits. They leave the
 * device row by row, and the logits stay there. Ranks that divide the words
 * hand each other sums and k candidates. */
#include "run/parts/layer_impl.h"

#include <string.h>

#include "run/parts/top_k.h"

/* Numbers that are read from the device at a time. */
enum { READ_NUMBERS = PP_MOST_TOP_K };

/* Numbers of several ranks follow each other without gaps, so p may have any
 * alignment. */
static double number_at(const struct pp_layer *l, const char *p, size_t i)
{
    size_t bytes = l->env->kernels->accumulator_bytes;
    float narrow = 0;
    double wide = 0;
    if (bytes == sizeof narrow)
        memcpy(&narrow, p + i * bytes, bytes);
    else
        memcpy(&wide, p + i * bytes, bytes);
    return bytes == sizeof narrow ? (double)narrow : wide;
}

static double *details_at(const struct pp_microbatch *mb, size_t row)
{
    return mb->details + row * mb->details_stride;
}

/* Adds up what the words of every rank have of the entropies of n rows, in the
 * order of the ranks. */
static int add_entropies(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct pp_head_block *h, size_t at, size_t n,
                         struct pp_err *err)
{
    double room[READ_NUMBERS];
    size_t bytes = n * l->env->kernels->accumulator_bytes;
    const char *all = pp_layer_collect(l, h->blocks, h->room, bytes, err);
    for (size_t r = 0; all && r < pp_head_ranks(l); r++) {
        const void *p =
            pp_device_read(l->env->device, all + r * bytes, bytes, room, err);
        for (size_t i = 0; p && i < n; i++) {
            double *to = details_at(mb, at + i);
            *to = (r ? *to : 0) + number_at(l, p, i);
        }
        if (!p)
            return -1;
    }
    return all ? 0 : -1;
}

/* Merges the candidates of a row on a rank with those of earlier ranks. */
static void merge_row(const struct pp_layer *l, double *to, size_t k,
                      size_t rank, const void *values, const int32_t *ids,
                      size_t i)
{
    struct pp_candidate found[2 * PP_MOST_TOP_K], merged[PP_MOST_TOP_K];
    const struct pp_head_span words = pp_head_span(l, rank);
    size_t n = words.n < k ? words.n : k, held = rank ? k : 0;
    for (size_t j = 0; j < held; j++)
        found[j] = (struct pp_candidate){to[k + j], (int32_t)to[j]};
    for (size_t j = 0; j < n; j++)
        found[held + j] =
            (struct pp_candidate){number_at(l, values, i * n + j),
                                  ids[i * n + j] + (int32_t)words.first};
    pp_top_k_merge(found, held + n, k, merged);
    for (size_t j = 0; j < k; j++) {
        to[j] = merged[j].id;
        to[k + j] = merged[j].value;
    }
}

/* Computes the candidates of n rows among the words of this rank, and merges
 * those of all ranks. Every rank hands over the most that one can have. */
static int find_top(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_head_block *h, const void *logits,
                    size_t at, size_t n, struct pp_err *err)
{
    double room[READ_NUMBERS];
    int32_t ids_room[READ_NUMBERS];
    size_t k = mb->top_k, words = pp_head_words(l);
    size_t number = l->env->kernels->accumulator_bytes + sizeof(int32_t);
    size_t values_bytes = n * k * l->env->kernels->accumulator_bytes;
    PP_LAYER_RUN(l->env->kernels->top_k(
        h->room, (int32_t *)((char *)h->room + values_bytes), logits, n, words,
        words < k ? words : k, l->env->stream));
    const char *all =
        pp_layer_collect(l, h->blocks, h->room, n * k * number, err);
    for (size_t r = 0; all && r < pp_head_ranks(l); r++) {
        const char *of = all + r * n * k * number;
        const void *values =
            pp_device_read(l->env->device, of, values_bytes, room, err);
        const int32_t *ids =
            values ? pp_device_read(l->env->device, of + values_bytes,
                                    n * k * sizeof *ids, ids_room, err)
                   : NULL;
        for (size_t i = 0; ids && i < n; i++)
            merge_row(l, details_at(mb, at + i) + mb->entropy, k, r, values,
                      ids, i);
        if (!ids)
            return -1;
    }
    return all ? 0 : -1;
}

/* Returns the rows whose numbers fit in the room of this rank and that of what
 * it collects. */
static size_t rows_at_a_time(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_head_block *h)
{
    size_t width = mb->top_k > 1 ? mb->top_k : 1;
    size_t row = width * (l->env->kernels->accumulator_bytes + sizeof(int32_t));
    size_t collected = pp_layer_collected_bytes(l, mb);
    size_t bytes = collected < h->room_bytes ? collected : h->room_bytes;
    size_t most = READ_NUMBERS / width;
    return most < bytes / row ? most : bytes / row;
}

int pp_head_details(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_head_block *h, size_t at, size_t n,
                    struct pp_err *err)
{
    size_t words = pp_head_words(l), part, most = rows_at_a_time(l, mb, h);
    if (most == 0)
        return pp_fail_setting(err, PP_EXIT_INPUT, "top-k", NULL,
                               "there is no room for %zu logits of a token "
                               "beside a hidden_size of %zu",
                               mb->top_k, l->env->model->hidden);
    for (size_t i = 0; i < n; i += part) {
        part = n - i < most ? n - i : most;
        const void *x = pp_layer_at(l, h->logits, i * words);
        if (mb->entropy) {
            PP_LAYER_RUN(l->env->kernels->entropy(
                h->room, x, pp_layer_statistic_at(l, h->lse, i), part, words,
                l->env->stream));
            if (add_entropies(l, mb, h, at + i, part, err))
                return -1;
        }
        if (mb->top_k && find_top(l, mb, h, x, at + i, part, err))
            return -1;
    }
    return 0;
}
