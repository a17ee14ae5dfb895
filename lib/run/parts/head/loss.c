/* SPDX-License-Identifier: MIT */
/* loss - the loss of the log-probabilities of a head, and its derivative
 * by each of them: of a head of one unit, and as a unit behind several. */
#include "run/parts/head/head.h"

#include <string.h>

#include "comm/collective.h"

/* The host reads or writes the values of so many rows at a time. */
#define MOST_ROWS 4096

static size_t part_rows(size_t n, size_t at)
{
    return n - at < MOST_ROWS ? n - at : MOST_ROWS;
}

/* Returns value i of the accumulated type. */
static double value_at(const struct pp_call *c, const void *values, size_t i)
{
    return c->k->accumulator_bytes == sizeof(float)
               ? (double)((const float *)values)[i]
               : ((const double *)values)[i];
}

/* Reads the log-probabilities for the host, which waits for the device. */
static void read_logps(const struct pp_call *c, const void *logp)
{
    double room[MOST_ROWS], *logps = c->mb->loss.logps;
    size_t n;
    for (size_t at = 0; at < c->mb->scored.n; at += n) {
        n = part_rows(c->mb->scored.n, at);
        const void *p = pp_call_read(c, pp_statistic_at(c, logp, at),
                                     n * c->k->accumulator_bytes, room);
        for (size_t i = 0; p && i < n; i++)
            logps[at + i] = value_at(c, p, i);
    }
}

/* Adds -logp in the order of the bin, whichever context-parallel rank has the
 * token: the sum has the bits of one rank. The first rank reports it. all has
 * room for a value of each row of all ranks (key_rows). Only ranks on CPUs do
 * so. */
static void add_exactly(const struct pp_call *c, const void *logp, void *all)
{
    const struct pp_microbatch *mb = c->mb;
    struct pp_collective of = c->env->context;
    size_t bytes = c->k->accumulator_bytes;
    size_t own = (size_t)of.group.index * c->T;
    double sum = 0;
    if (pp_call_failed(c))
        return;
    memset(pp_statistic_at(c, all, own), 0, c->T * bytes);
    for (size_t k = 0; k < mb->scored.n_labelled; k++)
        memcpy(pp_statistic_at(c, all, own + (size_t)mb->scored.rows[k]),
               pp_statistic_at(c, logp, k), bytes);
    of.value_bytes = bytes;
    PP_TRY(c, pp_all_gather(&of, all, NULL, mb->keys.n, c->err));
    for (size_t t = 0; of.group.index == 0 && t < mb->keys.n; t++)
        sum -= value_at(c, all, (size_t)mb->keys.order[t]);
    if (mb->loss.sum)
        *mb->loss.sum += sum * mb->loss.scale;
}

/* Returns minus the derivative of the loss by each log-probability. */
static double scale_of(const struct pp_microbatch *mb)
{
    if (mb->loss.generator)
        return mb->loss.scale * mb->loss.generator->weight;
    return mb->scored.predicts == PP_PREDICTS_AHEAD
               ? mb->loss.scale * mb->ahead.loss->weight
               : mb->loss.scale;
}

/* Writes the scales of n scored rows; NULL: each is scale_of. */
static void write_rows(const struct pp_call *c, const double *scale,
                       size_t n_rows, void *scales)
{
    union {
        float narrow[MOST_ROWS];
        double wide[MOST_ROWS];
    } room;
    size_t bytes = c->k->accumulator_bytes, n;
    for (size_t at = 0; at < n_rows; at += n) {
        n = part_rows(n_rows, at);
        for (size_t i = 0; i < n; i++) {
            double x = scale ? scale[at + i] : scale_of(c->mb);
            if (bytes == sizeof(float))
                room.narrow[i] = (float)x;
            else
                room.wide[i] = x;
        }
        pp_call_put(c, pp_statistic_at(c, scales, at), &room, n * bytes);
    }
}

/* Writes the scales of an objective. They are in place of the log-probabilities
 * when the last slice is scored, behind the scales of the earlier slices. */
static void write_scales(const struct pp_call *c)
{
    const struct pp_microbatch *mb = c->mb;
    const double *scale = mb->loss.logps;
    if (mb->slice.continues || pp_call_failed(c))
        return;
    write_rows(c, scale, mb->scored.n, c->s[PP_S_HEAD_SCALE]);
    for (size_t q = mb->slice.n_before; q-- > 0;) {
        void *of[PP_MAX_SAVED];
        size_t n = mb->slice.before[q].n_scored;
        pp_layer_saved_before(c, &mb->slice.before[q], of);
        scale -= n;
        write_rows(c, scale, n, of[PP_S_HEAD_SCALE]);
    }
}

void pp_head_write_scale(const struct pp_call *c)
{
    write_rows(c, NULL, c->mb->scored.n, c->s[PP_S_HEAD_SCALE]);
}

void pp_head_sum_loss(const struct pp_call *c, const void *logp,
                      void *all_logps)
{
    const struct pp_head_loss *l = &c->mb->loss;
    double loss = 0;
    if (c->m->scores)
        logp = c->s[PP_S_HEAD_LSE];
    if (l->logps)
        read_logps(c, logp);
    if (l->objective) {
        PP_TRY(c, l->objective(l->ctx, c->mb, l->logps, &loss, c->err));
        write_scales(c);
        if (l->sum && !c->mb->slice.continues)
            pp_call_put(c, l->sum, &loss, sizeof loss);
    } else if (pp_mesh_is_exact(pp_env_mesh(c->env))) {
        add_exactly(c, logp, all_logps);
    } else if (l->sum) {
        PP_RUN(c, cross_entropy_add, l->sum, logp, l->scale, c->mb->scored.n);
    }
}

/* --- a unit --- */

/* x has the statistics of the words of every unit of the head. */
static void loss_fwd(const struct pp_call *c, void *y, const void *x)
{
    void *logp = c->scratch;
    (void)y;
    PP_RUN(c, cross_entropy_merge, c->s[PP_S_HEAD_LSE], logp, x, c->R,
           c->m->head_stages);
    if (!c->mb->loss.objective)
        pp_head_write_scale(c);
    pp_head_sum_loss(c, logp, pp_statistic_at(c, logp, c->R));
}

/* Gives every unit the log-sum-exp over all words, and the scale. */
static void loss_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    size_t row = c->k->accumulator_bytes;
    (void)dy;
    pp_call_erase(c, dx, pp_head_statistics(c));
    pp_call_move(c, dx, c->s[PP_S_HEAD_LSE], c->R * row);
    pp_call_move(c, (char *)dx + c->R * row, c->s[PP_S_HEAD_SCALE],
                 c->mb->scored.n * row);
}

static void loss_bwd_weight(const struct pp_call *c)
{
    (void)c;
}

const struct pp_layer_ops pp_layer_loss = {
    .fwd = loss_fwd,
    .bwd_input = loss_bwd_input,
    .bwd_weight = loss_bwd_weight,
    .x = PP_NO_SLOT,
    .dy = PP_NO_SLOT,
};
