/* SPDX-License-Identifier: MIT */
/* head_loss - the loss of the log-probabilities of a head, and its derivative
 * by each of them. */
#include "run/parts/layer_impl.h"

#include <string.h>

#include "comm/collective.h"

/* The host reads or writes the values of so many rows at a time. */
#define MOST_ROWS 4096

static size_t part_rows(size_t n, size_t at)
{
    return n - at < MOST_ROWS ? n - at : MOST_ROWS;
}

/* Returns value i of the accumulated type. */
static double value_at(const struct pp_layer *l, const void *values, size_t i)
{
    return l->env->kernels->accumulator_bytes == sizeof(float)
               ? (double)((const float *)values)[i]
               : ((const double *)values)[i];
}

/* Sums -logp in row order. Inside a step the host waits for the device only
 * here. */
static int read_logps(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const void *logp, double *sum, struct pp_err *err)
{
    double room[MOST_ROWS];
    size_t bytes = l->env->kernels->accumulator_bytes, n;
    *sum = 0;
    for (size_t at = 0; at < mb->n_scored; at += n) {
        n = part_rows(mb->n_scored, at);
        const void *p =
            pp_device_read(l->env->device, pp_layer_statistic_at(l, logp, at),
                           n * bytes, room, err);
        if (!p)
            return -1;
        for (size_t i = 0; i < n; i++) {
            double x = value_at(l, p, i);
            *sum -= x;
            if (mb->logps)
                mb->logps[at + i] = x;
        }
    }
    return 0;
}

/* Sums -logp in the order of the bin, whichever context-parallel rank has the
 * token: the sum has the bits of one rank. The first rank reports it. all has
 * room for a value of each row of all ranks (key_rows). */
static int sum_exactly(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const void *logp, void *all, double *sum,
                       struct pp_err *err)
{
    struct pp_collective c = l->env->context;
    size_t bytes = l->env->kernels->accumulator_bytes;
    size_t own = (size_t)c.group.index * mb->tokens;
    memset(pp_layer_statistic_at(l, all, own), 0, mb->tokens * bytes);
    for (size_t k = 0; k < mb->n_labelled; k++)
        memcpy(pp_layer_statistic_at(l, all, own + (size_t)mb->scored_rows[k]),
               pp_layer_statistic_at(l, logp, k), bytes);
    c.value_bytes = bytes;
    if (pp_all_gather(&c, all, NULL, mb->key_rows, err))
        return -1;
    *sum = 0;
    for (size_t t = 0; c.group.index == 0 && t < mb->key_rows; t++)
        *sum -= value_at(l, all, (size_t)mb->order[t]);
    return 0;
}

/* Returns minus the derivative of the loss by each log-probability. */
static double scale_of(const struct pp_microbatch *mb)
{
    if (mb->of_generator)
        return mb->scale * mb->of_generator->weight;
    return mb->predicts == PP_PREDICTS_AHEAD ? mb->scale * mb->ahead->weight
                                             : mb->scale;
}

/* Writes the scales of n scored rows; NULL: each is scale_of. */
static int write_rows(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const double *scale, size_t n_rows, void *scales,
                      struct pp_err *err)
{
    union {
        float narrow[MOST_ROWS];
        double wide[MOST_ROWS];
    } room;
    size_t bytes = l->env->kernels->accumulator_bytes, n;
    for (size_t at = 0; at < n_rows; at += n) {
        n = part_rows(n_rows, at);
        void *to = pp_layer_statistic_at(l, scales, at);
        for (size_t i = 0; i < n; i++) {
            double x = scale ? scale[at + i] : scale_of(mb);
            if (bytes == sizeof(float))
                room.narrow[i] = (float)x;
            else
                room.wide[i] = x;
        }
        if (pp_layer_put(l, to, &room, n * bytes, err))
            return -1;
    }
    return 0;
}

/* Writes the scales of an objective. They are in mb->logps when the last slice
 * is scored, behind those of the earlier slices. */
static int write_scales(const struct pp_layer *l,
                        const struct pp_microbatch *mb,
                        const struct pp_layer_blocks *b, void *const *s,
                        struct pp_err *err)
{
    const double *scale = mb->logps;
    if (mb->continues)
        return 0;
    if (write_rows(l, mb, scale, mb->n_scored, s[PP_S_HEAD_SCALE], err))
        return -1;
    for (size_t q = mb->n_before; q-- > 0;) {
        void *of[PP_MAX_SAVED];
        size_t n = mb->before[q].n_scored;
        pp_layer_saved_before(l, &mb->before[q], b, of);
        scale -= n;
        if (write_rows(l, mb, scale, n, of[PP_S_HEAD_SCALE], err))
            return -1;
    }
    return 0;
}

int pp_head_write_scale(const struct pp_layer *l,
                        const struct pp_microbatch *mb, void *const *s,
                        struct pp_err *err)
{
    return write_rows(l, mb, NULL, mb->n_scored, s[PP_S_HEAD_SCALE], err);
}

int pp_head_sum_loss(const struct pp_layer *l, const struct pp_microbatch *mb,
                     const struct pp_layer_blocks *b, void *const *s,
                     const void *logp, void *all_logps, struct pp_err *err)
{
    const void *x = l->env->model->scores ? s[PP_S_HEAD_LSE] : logp;
    double sum = 0;
    if (read_logps(l, mb, x, &sum, err) ||
        (pp_mesh_is_exact(pp_env_mesh(l->env)) && !mb->objective &&
         sum_exactly(l, mb, logp, all_logps, &sum, err)))
        return -1;
    *mb->loss = sum * mb->scale;
    if (!mb->objective)
        return 0;
    return mb->objective(mb->objective_ctx, mb, mb->logps, mb->loss, err)
               ? -1
               : write_scales(l, mb, b, s, err);
}
