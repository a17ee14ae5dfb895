/* SPDX-License-Identifier: MIT */
/* head_teacher - the loss and its gradient if the target of a row is a
 * teacher's distribution over some words: the divergence of the model from it
 * (Hinton et al. 2015). The distributions come from the host a few rows at a
 * time, so that no buffer holds those of a microbatch. */
#include "run/parts/layer_impl.h"

#include <string.h>

/* Numbers of rows at a time. */
enum { ROOM = 4 * PP_MOST_TOP_K };
_Static_assert((int)PP_MOST_TOP_K <= (int)PP_MOST_SOFT_TARGETS, "kernels.h");

/* The targets of some rows in the layer's memory: weights and ids (n, top_k).
 * Behind them is room for a number of each row. */
struct soft_rows {
    void *weights;
    int32_t *ids;
    char *rest;
    double entropy[ROOM]; /* of each distribution */
};

/* Returns the rows whose targets fit in the room of the block. */
static size_t rows_that_fit(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_head_block *h)
{
    size_t number = l->env->kernels->accumulator_bytes;
    size_t row = mb->teacher_k * (number + sizeof(int32_t)) + number;
    size_t fits = h->room_bytes / row, most = ROOM / mb->teacher_k;
    size_t collected = pp_layer_collected_bytes(l, mb) / number;
    fits = fits < most ? fits : most;
    return fits < collected ? fits : collected;
}

static int fail_room(const struct pp_layer *l, const struct pp_microbatch *mb,
                     struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "there is no room for '%zu' words of a teacher beside a "
                   "hidden_size of %zu; take shorter lists",
                   mb->teacher_k, l->env->model->hidden);
}

/* Converts numbers to the accumulated type and hands them to the layer. */
static int put_numbers(const struct pp_layer *l, void *to, const double *x,
                       size_t n, struct pp_err *err)
{
    float narrow[ROOM];
    bool wide = l->env->kernels->accumulator_bytes == sizeof *x;
    for (size_t i = 0; !wide && i < n; i++)
        narrow[i] = (float)x[i];
    return pp_layer_put(l, to, wide ? (const void *)x : narrow,
                        n * l->env->kernels->accumulator_bytes, err);
}

/* Fetches the targets of n scored rows from row `at` on. */
static int fetch(const struct pp_layer *l, const struct pp_microbatch *mb,
                 const struct pp_head_block *h, size_t at, size_t n,
                 struct soft_rows *rows, struct pp_err *err)
{
    double weights[ROOM];
    int32_t ids[ROOM];
    size_t numbers = n * mb->teacher_k;
    rows->weights = h->room;
    rows->rest = (char *)h->room + numbers * l->env->kernels->accumulator_bytes;
    rows->ids =
        (int32_t *)(rows->rest + n * l->env->kernels->accumulator_bytes);
    return mb->teacher(mb->teacher_ctx, at, n, ids, weights, rows->entropy,
                       err) ||
                   put_numbers(l, rows->weights, weights, numbers, err) ||
                   pp_layer_put(l, rows->ids, ids, numbers * sizeof *ids, err)
               ? -1
               : 0;
}

/* Adds up the terms of the words of every rank, in the order of the ranks. */
static int add_ranks(const struct pp_layer *l, const struct pp_head_block *h,
                     const void *own, size_t n, void *logp, struct pp_err *err)
{
    double sums[ROOM] = {0};
    size_t bytes = n * l->env->kernels->accumulator_bytes;
    const char *all = pp_layer_collect(l, h->blocks, own, bytes, err);
    for (size_t r = 0; all && r < pp_head_ranks(l); r++) {
        double room[ROOM];
        const void *p =
            pp_device_read(l->env->device, all + r * bytes, bytes, room, err);
        for (size_t i = 0; p && i < n; i++)
            sums[i] += bytes == n * sizeof(float)
                           ? (double)((const float *)p)[i]
                           : ((const double *)p)[i];
        if (!p)
            return -1;
    }
    return all ? put_numbers(l, logp, sums, n, err) : -1;
}

int pp_head_teacher_fwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_head_block *h, void *logp, size_t at,
                        size_t n, struct pp_err *err)
{
    size_t V = pp_head_words(l), most = rows_that_fit(l, mb, h), part;
    bool is_alone = pp_head_ranks(l) == 1;
    if (most == 0)
        return fail_room(l, mb, err);
    for (size_t i = 0; i < n; i += part) {
        struct soft_rows rows;
        part = n - i < most ? n - i : most;
        if (fetch(l, mb, h, at + i, part, &rows, err))
            return -1;
        void *sum = pp_layer_statistic_at(l, logp, i);
        void *own = is_alone ? sum : rows.rest;
        /* One rank begins with the teacher's entropy. */
        if (!is_alone && l->env->tensor.group.index > 0)
            memset(rows.entropy, 0, part * sizeof *rows.entropy);
        if (put_numbers(l, own, rows.entropy, part, err))
            return -1;
        PP_LAYER_RUN(l->env->kernels->soft_targets_fwd(
            own, pp_layer_at(l, h->logits, i * V),
            pp_layer_statistic_at(l, h->lse, i), rows.ids, rows.weights, part,
            V, mb->teacher_k, l->env->stream));
        if (!is_alone && add_ranks(l, h, own, part, sum, err))
            return -1;
    }
    return 0;
}

int pp_head_teacher_bwd(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_head_block *h, const void *scale,
                        size_t at, size_t n, struct pp_err *err)
{
    size_t V = pp_head_words(l), most = rows_that_fit(l, mb, h), part;
    if (most == 0)
        return fail_room(l, mb, err);
    for (size_t i = 0; i < n; i += part) {
        struct soft_rows rows;
        part = n - i < most ? n - i : most;
        if (fetch(l, mb, h, at + i, part, &rows, err))
            return -1;
        PP_LAYER_RUN(l->env->kernels->soft_targets_bwd(
            pp_layer_at(l, h->logits, i * V),
            pp_layer_statistic_at(l, h->lse, i), rows.ids, rows.weights,
            pp_layer_statistic_at(l, scale, i), part, V, mb->teacher_k, h->cap,
            l->env->stream));
    }
    return 0;
}
