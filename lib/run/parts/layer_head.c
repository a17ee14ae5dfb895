/* SPDX-License-Identifier: MIT */
/* layer_head - logits, log-probabilities and their gradients, in blocks of
 * rows. head_loss.c adds up the loss.
 *
 * Only scored rows are multiplied by the vocabulary. F, I and W each compute
 * the logits again (B computes them once), so that nothing of width V outlives
 * a block. F keeps the rows, their log-sum-exp, and the gradient of the loss
 * with respect to each log-probability. The size of a block depends
 * only on V and the backend, so products have the same shape under every split
 * of the model.
 *
 * If the backward follows at once, F makes both gradients of a block while its
 * logits are there, and keeps that of its input in place of the rows. Nothing
 * computes the logits again. An objective gives the gradients of the
 * log-probabilities only when it has all of them, so it needs all logits in one
 * block.
 *
 * With multi-token prediction the input has two rows of hidden side by side,
 * and the head does the same for the second one, with rows and targets of its
 * own.
 *
 * The head of a language model with a generator behind it passes its rows on,
 * and adds the generator's gradient of them to its own.
 *
 * The score of a reward model is a vocabulary of one word, and no row has a
 * target. Its log-sum-exp is the score itself, and exp(score - log-sum-exp) =
 * 1 is the derivative, so that a score needs no kernels of its own. */
#include "run/parts/layer_impl.h"

/* The scratch: logits (rows, V), rows of x and of its gradient (rows, C) each,
 * with multi-token prediction the gradient of one prediction (rows of this
 * rank, C), or with a generator that of its rows, log-probabilities (tokens),
 * and those of all context-parallel ranks if the loss is exact. */
struct head_scratch {
    size_t rows;
    void *logits, *x, *dx, *ahead, *logp, *all_logps;
    size_t dx_bytes;
};

static struct head_scratch head_buffers(const struct pp_layer *l,
                                        const struct pp_microbatch *mb,
                                        void *scratch)
{
    struct pp_backend b = pp_env_backend(l->env);
    struct head_scratch h = {
        .rows = pp_head_block_rows(&b, pp_model_outputs(l->env->model))};
    size_t room = pp_head_room_rows(h.rows, mb->tokens);
    h.logits = scratch;
    h.x = pp_layer_at(l, h.logits, room * pp_model_outputs(l->env->model));
    h.dx = pp_layer_at(l, h.x, room * l->env->model->hidden);
    h.ahead = pp_layer_at(l, h.dx, room * l->env->model->hidden);
    size_t apart = l->env->model->n_mtp || l->env->model->generator;
    h.logp = pp_layer_at(l, h.ahead,
                         apart * pp_layer_rows(l, mb) * l->env->model->hidden);
    h.all_logps = pp_layer_statistic_at(l, h.logp, mb->tokens);
    h.dx_bytes = room * l->env->model->hidden * l->env->kernels->element_bytes;
    return h;
}

/* Returns the rows of the block that begins at a scored row. */
static size_t block_end(const struct pp_microbatch *mb, size_t at, size_t rows)
{
    size_t end = at < mb->n_labelled ? mb->n_labelled : mb->n_scored;
    return end - at < rows ? end - at : rows;
}

/* Reports whether what ranks exchange of a block's rows fits in the room for
 * the gradient of its rows: two statistics of each rank for every row. */
static bool merges_apart(const struct pp_layer *l)
{
    const struct pp_kernels *k = l->env->kernels;
    return 2 * pp_env_tp(l->env) * k->accumulator_bytes <=
           l->env->model->hidden * k->element_bytes;
}

size_t pp_head_words(const struct pp_layer *l)
{
    return l->n_words ? l->n_words : pp_model_outputs(l->env->model);
}

size_t pp_head_ranks(const struct pp_layer *l)
{
    return l->env->model->scores ? 1 : pp_env_tp(l->env);
}

struct pp_head_span pp_head_span(const struct pp_layer *l, size_t rank)
{
    if (pp_head_ranks(l) == 1)
        return (struct pp_head_span){0, pp_head_words(l)};
    struct pp_tensor_piece p =
        pp_tensor_piece(l->words, pp_head_ranks(l), rank);
    return (struct pp_head_span){p.offset / p.cols, p.rows};
}

/* Returns the scored rows whose gradients this rank makes. Tensor-parallel
 * ranks all have the weight of a score, so that the first one makes them. */
static size_t rows_with_gradients(const struct pp_layer *l,
                                  const struct pp_microbatch *mb)
{
    bool makes = !l->env->model->scores || l->env->tensor.group.index == 0;
    return makes ? mb->n_scored : 0;
}

/* Returns the cap of the logits, or 0. They are divided by the temperature
 * before the cap: it is divided, too. */
static double cap_of(const struct pp_layer *l, const struct pp_microbatch *mb)
{
    double temperature = mb->temperature > 0 ? mb->temperature : 1;
    return l->env->model->scores ? 0 : l->env->model->logit_cap / temperature;
}

/* Divides n rows by the temperature, if there is one. */
static int cool(const struct pp_layer *l, const struct pp_microbatch *mb,
                void *rows, size_t n, struct pp_err *err)
{
    if (mb->temperature == 0 || mb->temperature == 1)
        return 0;
    PP_LAYER_RUN(l->env->kernels->scale_by(
        rows, 1 / mb->temperature, n * l->env->model->hidden, l->env->stream));
    return 0;
}

/* Gathers scored rows [at, at + n) of x, multiplies by the vocabulary, and
 * caps. The rows are divided by the temperature, and so are the logits: the
 * gradient of the weight needs nothing else. */
static int make_logits(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct head_scratch *h, const void *x, size_t at,
                       size_t n, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t C = l->env->model->hidden, V = pp_head_words(l);
    PP_LAYER_RUN(
        k->embedding_fwd(h->x, mb->scored_rows + at, x, n, C, l->env->stream));
    if (cool(l, mb, h->x, n, err))
        return -1;
    PP_LAYER_RUN(k->linear_fwd(h->logits, h->x, l->w[PP_P_WEIGHT], NULL, NULL,
                               n, C, V, V, C, l->env->stream));
    if (cap_of(l, mb) > 0)
        PP_LAYER_RUN(
            k->softcap(h->logits, cap_of(l, mb), n * V, l->env->stream));
    return 0;
}

/* Overwrites the logits of a block with the gradient of the loss. */
static int differentiate(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct head_scratch *h,
                         const struct pp_layer_blocks *b, void *const *s,
                         size_t at, size_t n, struct pp_err *err)
{
    void *lse = pp_layer_statistic_at(l, s[PP_S_HEAD_LSE], at);
    void *scale = pp_layer_statistic_at(l, s[PP_S_HEAD_SCALE], at);
    const struct pp_head_block block = {h->logits,   lse, h->dx,
                                        h->dx_bytes, b,   cap_of(l, mb)};
    if (mb->teacher)
        return pp_head_teacher_bwd(l, mb, &block, scale, at, n, err);
    PP_LAYER_RUN(l->env->kernels->cross_entropy_bwd(
        h->logits, lse, mb->targets + at, scale, n, pp_head_words(l),
        cap_of(l, mb), l->env->stream));
    return 0;
}

/* Makes the gradients of a block from its logits, which it overwrites: that of
 * its rows in dx (tokens, C), and that of the weight, which is added to dw. dx
 * or dw may be NULL. */
static int block_gradients(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct head_scratch *h,
                           const struct pp_layer_blocks *b, void *const *s,
                           void *dx, void *dw, size_t at, size_t n,
                           struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t C = l->env->model->hidden, V = pp_head_words(l);
    if (differentiate(l, mb, h, b, s, at, n, err))
        return -1;
    if (dx) {
        PP_LAYER_RUN(k->linear_bwd_input(h->dx, h->logits, l->w[PP_P_WEIGHT], n,
                                         C, V, C, V, l->env->stream));
        if (cool(l, mb, h->dx, n, err))
            return -1;
        PP_LAYER_RUN(
            k->scatter(dx, h->dx, mb->scored_rows + at, n, C, l->env->stream));
    }
    if (dw)
        PP_LAYER_RUN(k->linear_bwd_weight(dw, NULL, h->logits, h->x, n, C, V, V,
                                          C, l->env->stream));
    return 0;
}

/* Reports whether F makes the gradients. With several tensor-parallel ranks it
 * must not need b->summed, which has the gradient of the rows. */
static bool makes_gradients(const struct pp_layer *l,
                            const struct pp_microbatch *mb)
{
    struct pp_backend b = pp_env_backend(l->env);
    size_t rows = pp_head_block_rows(&b, pp_model_outputs(l->env->model));
    if (!mb->at_once || l->role == PP_ROLE_FORWARD)
        return false;
    if (pp_env_tp(l->env) > 1 &&
        (mb->teacher || mb->details || !merges_apart(l)))
        return false;
    return !mb->objective || block_end(mb, 0, rows) == mb->n_scored;
}

/* Makes the logits of a block and scores them. */
static int score_block(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct head_scratch *h,
                       const struct pp_layer_blocks *b, void *const *s,
                       const void *x, size_t at, size_t n, struct pp_err *err)
{
    void *lse = pp_layer_statistic_at(l, s[PP_S_HEAD_LSE], at);
    void *logp = pp_layer_statistic_at(l, h->logp, at);
    const struct pp_head_block block = {h->logits, lse, h->dx, h->dx_bytes, b};
    if (make_logits(l, mb, h, x, at, n, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->cross_entropy_fwd(
        lse, logp, h->logits, mb->targets + at, n, pp_head_words(l),
        l->env->stream));
    if (pp_head_ranks(l) > 1 &&
        pp_layer_merge_words(l, merges_apart(l) ? h->dx : b->summed, lse, logp,
                             n, err))
        return -1;
    if (mb->teacher && pp_head_teacher_fwd(l, mb, &block, logp, at, n, err))
        return -1;
    if (mb->details)
        return (mb->sampler ? pp_head_sample : pp_head_details)(l, mb, &block,
                                                                at, n, err);
    return 0;
}

/* Computes one prediction from rows (tokens of this rank, C), and its gradients
 * if F makes them: that of the rows is then in PP_S_HEAD_X. */
static int predict(const struct pp_layer *l, const struct pp_microbatch *mb,
                   const void *rows, const struct pp_layer_blocks *b,
                   void *const *s, void *scratch, struct pp_err *err)
{
    size_t n, scored = mb->n_scored;
    struct head_scratch h = head_buffers(l, mb, scratch);
    void *kept = s[PP_S_HEAD_X], *dw = l->g[PP_P_WEIGHT];
    void *dx = makes_gradients(l, mb) ? pp_layer_part(l, b, kept) : NULL;
    bool makes = dx && rows_with_gradients(l, mb) > 0;
    const void *x = pp_layer_gather(l, mb, b, rows, err);
    if (!x)
        return -1;
    if (dx)
        PP_LAYER_RUN(l->env->kernels->zero(
            dx, mb->tokens * l->env->model->hidden, l->env->stream));
    if (!mb->objective && pp_head_write_scale(l, mb, s, err))
        return -1;
    for (size_t at = 0; at < scored; at += n) {
        n = block_end(mb, at, h.rows);
        if (score_block(l, mb, &h, b, s, x, at, n, err) ||
            (makes && !mb->objective &&
             block_gradients(l, mb, &h, b, s, dx, dw, at, n, err)))
            return -1;
    }
    if (pp_head_sum_loss(l, mb, b, s, h.logp, h.all_logps, err) ||
        (makes && mb->objective &&
         block_gradients(l, mb, &h, b, s, dx, dw, 0, scored, err)))
        return -1;
    return dx ? pp_layer_reduce(l, mb, b, kept, err) : 0;
}

/* Makes the microbatch and the saved tensors of multi-token prediction look
 * like those of the next token. The caller sets loss. */
static struct pp_microbatch look_ahead(const struct pp_microbatch *mb, void **s)
{
    struct pp_microbatch ahead = *mb;
    ahead.n_scored = ahead.n_labelled = mb->n_ahead;
    ahead.scored_rows = mb->ahead_rows;
    ahead.targets = mb->ahead_targets;
    ahead.predicts = PP_PREDICTS_AHEAD;
    ahead.logps = NULL;
    for (size_t k = PP_S_HEAD_X; k < PP_S_AHEAD_X; k++)
        s[k] = s[PP_S_AHEAD_X + k];
    return ahead;
}

/* Returns the rows of one prediction, which begin at x: x itself, or a copy
 * where B reads it if it computes the logits again. With multi-token prediction
 * x has two rows side by side. */
static const void *rows_of(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct head_scratch *h, void *const *s,
                           const void *x, struct pp_err *err)
{
    size_t C = l->env->model->hidden, width = C * (1 + l->env->model->n_mtp);
    bool makes = makes_gradients(l, mb);
    void *copy = makes ? h->ahead : s[PP_S_HEAD_X];
    if (makes && width == C)
        return x;
    int code = l->env->kernels->copy(copy, x, pp_layer_rows(l, mb), C, C, width,
                                     l->env->stream);
    if (!code)
        return copy;
    pp_layer_fail(l, code, err);
    return NULL;
}

/* Finds the saved tensors, where write_scales finds those of earlier slices. */
static void saved_of(const struct pp_layer *l, const struct pp_microbatch *mb,
                     enum pp_saved_when when, const struct pp_layer_blocks *b,
                     void **s)
{
    pp_layer_saved(l, pp_layer_room(mb->tokens, mb->room), when, b, s);
}

static int head_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, const struct pp_layer_blocks *b,
                    void *scratch, struct pp_err *err)
{
    struct head_scratch h = head_buffers(l, mb, scratch);
    void *s[PP_MAX_SAVED];
    double loss = 0;
    saved_of(l, mb, PP_IN_FORWARD, b, s);
    if (l->env->model->generator && pp_head_pass_on(l, mb, y, x, err))
        return -1;
    const void *rows = rows_of(l, mb, &h, s, x, err);
    if (!rows || predict(l, mb, rows, b, s, scratch, err))
        return -1;
    if (!mb->ahead)
        return 0;
    struct pp_microbatch ahead = look_ahead(mb, s);
    rows = rows_of(l, &ahead, &h, s, pp_layer_at(l, x, l->env->model->hidden),
                   err);
    ahead.loss = &loss;
    if (!rows || predict(l, &ahead, rows, b, s, scratch, err))
        return -1;
    /* All tensor-parallel ranks have the same. */
    if (l->env->tensor.group.index == 0)
        mb->ahead->loss += loss;
    return 0;
}

/* Computes the input gradient (dx), the weight gradient (dw), or both of one
 * prediction from the same logits. Each goes through the blocks in ascending
 * order, so both together give the same bits as one after the other. If F has
 * made them, dx is there. */
static int gradients(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *dx, void *dw, const struct pp_layer_blocks *b,
                     void *const *s, void *scratch, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t C = l->env->model->hidden, R = pp_layer_rows(l, mb), n;
    size_t n_rows = rows_with_gradients(l, mb);
    struct head_scratch h = head_buffers(l, mb, scratch);
    if (makes_gradients(l, mb)) {
        if (dx)
            PP_LAYER_RUN(
                k->copy(dx, s[PP_S_HEAD_X], R, C, C, C, l->env->stream));
        return 0;
    }
    void *part = dx ? pp_layer_part(l, b, dx) : NULL;
    const void *x = pp_layer_gather(l, mb, b, s[PP_S_HEAD_X], err);
    if (!x)
        return -1;
    if (dx)
        PP_LAYER_RUN(k->zero(part, mb->tokens * C, l->env->stream));
    for (size_t at = 0; (dx || dw) && at < n_rows; at += n) {
        n = block_end(mb, at, h.rows);
        if (make_logits(l, mb, &h, x, at, n, err) ||
            block_gradients(l, mb, &h, b, s, part, dw, at, n, err))
            return -1;
    }
    return dx ? pp_layer_reduce(l, mb, b, dx, err) : 0;
}

/* Does so for both predictions. Their gradients are then side by side. */
static int head_gradients(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx, void *dw,
                          const struct pp_layer_blocks *b, void *scratch,
                          struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    void *s[PP_MAX_SAVED];
    saved_of(l, mb, PP_IN_BACKWARD, b, s);
    if (!mb->ahead)
        return gradients(l, mb, dx, dw, b, s, scratch, err);
    void *part = dx ? head_buffers(l, mb, scratch).ahead : NULL;
    if (gradients(l, mb, part, dw, b, s, scratch, err))
        return -1;
    if (dx)
        PP_LAYER_RUN(k->copy(dx, part, R, C, 2 * C, C, l->env->stream));
    const struct pp_microbatch ahead = look_ahead(mb, s);
    if (gradients(l, &ahead, part, dw, b, s, scratch, err))
        return -1;
    if (dx)
        PP_LAYER_RUN(k->copy(pp_layer_at(l, dx, C), part, R, C, 2 * C, C,
                             l->env->stream));
    return 0;
}

/* Adds the gradient of the rows that a generator reads. */
static int add_passed(const struct pp_layer *l, const struct pp_microbatch *mb,
                      void *dx, const void *dy, void *scratch,
                      struct pp_err *err)
{
    return l->env->model->generator
               ? pp_head_add_passed(l, mb, dx, dy,
                                    head_buffers(l, mb, scratch).ahead, err)
               : 0;
}

static int head_bwd_input(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx,
                          const void *dy, const struct pp_layer_blocks *b,
                          void *scratch, struct pp_err *err)
{
    return head_gradients(l, mb, dx, NULL, b, scratch, err) ||
                   add_passed(l, mb, dx, dy, scratch, err)
               ? -1
               : 0;
}

static int head_bwd_weight(const struct pp_layer *l,
                           const struct pp_microbatch *mb,
                           const struct pp_layer_blocks *b, void *scratch,
                           struct pp_err *err)
{
    return head_gradients(l, mb, NULL, l->g[PP_P_WEIGHT], b, scratch, err);
}

static int head_bwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *dx, const void *dy, const struct pp_layer_blocks *b,
                    void *scratch, struct pp_err *err)
{
    return head_gradients(l, mb, dx, l->g[PP_P_WEIGHT], b, scratch, err) ||
                   add_passed(l, mb, dx, dy, scratch, err)
               ? -1
               : 0;
}

const struct pp_layer_ops pp_layer_head = {
    .fwd = head_fwd,
    .bwd_input = head_bwd_input,
    .bwd_weight = head_bwd_weight,
    .bwd = head_bwd,
};
