/* SPDX-License-Identifier: MIT */
/* head - logits, log-probabilities and their gradients, in blocks of
 * rows. loss.c adds up the loss.
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
 * 1 is the derivative, so that a score needs no kernels of its own.
 *
 * If several units divide the words, each makes the logits of its words in F,
 * and passes on the statistics of each scored row over them. The loss is a unit
 * behind all of these (loss.c): it gives the log-sum-exp over all words and the
 * gradient of the log-probability back, and B makes the logits again. */
#include "run/parts/head/head.h"

#include "comm/collective.h"

/* The scratch: logits (rows, V), rows of x and of its gradient (rows, C) each,
 * with multi-token prediction the gradient of one prediction (rows of this
 * rank, C), or with a generator that of its rows, log-probabilities (tokens),
 * also of all context-parallel ranks if the loss is exact. */
struct head_scratch {
    size_t rows;
    void *logits, *x, *dx, *ahead, *logp, *all_logps;
    size_t dx_bytes;
};

/* Returns the most rows of a block. */
static size_t most_rows(const struct pp_call *c)
{
    struct pp_backend b = pp_env_backend(c->env);
    return pp_head_block_rows(&b, pp_shard_outputs(&c->env->shard));
}

static struct head_scratch scratch_of(const struct pp_call *c)
{
    struct head_scratch h = {.rows = most_rows(c), .logits = c->scratch};
    size_t room = pp_head_room_rows(h.rows, c->T);
    size_t apart = c->m->n_mtp || c->m->generator;
    h.x = pp_at(c, h.logits, room * pp_shard_outputs(&c->env->shard));
    h.dx = pp_at(c, h.x, room * c->C);
    h.ahead = pp_at(c, h.dx, room * c->C);
    h.logp = pp_at(c, h.ahead, apart * c->R * c->C);
    h.all_logps = pp_statistic_at(c, h.logp, c->T);
    h.dx_bytes = room * c->C * c->k->element_bytes;
    return h;
}

/* Returns the rows of the block that begins at a scored row. */
static size_t block_rows(const struct pp_call *c, size_t at, size_t rows)
{
    const struct pp_microbatch *mb = c->mb;
    size_t end =
        at < mb->scored.n_labelled ? mb->scored.n_labelled : mb->scored.n;
    return end - at < rows ? end - at : rows;
}

static struct pp_head_block block_at(const struct pp_call *c,
                                     const struct head_scratch *h, size_t at)
{
    return (struct pp_head_block){
        .at = at,
        .n = block_rows(c, at, h->rows),
        .logits = h->logits,
        .lse = pp_statistic_at(c, c->s[PP_S_HEAD_LSE], at),
        .room = h->dx,
        .room_bytes = h->dx_bytes};
}

/* Reports whether what ranks exchange of a block's rows fits in the room for
 * the gradient of its rows: two statistics of each rank for every row. */
static bool merges_apart(const struct pp_call *c)
{
    return 2 * pp_env_tp(c->env) * c->k->accumulator_bytes <=
           c->C * c->k->element_bytes;
}

/* Returns the scored rows whose gradients this rank makes. Tensor-parallel
 * ranks all have the weight of a score, so that the first one makes them. */
static size_t rows_with_gradients(const struct pp_call *c)
{
    bool makes = !c->m->scores || c->env->tensor.group.index == 0;
    return makes ? c->mb->scored.n : 0;
}

/* Multiplies n rows by the scale of the logits, and divides them by the
 * temperature. */
static void scale_rows(const struct pp_call *c, void *rows, size_t n)
{
    double temperature = c->mb->loss.temperature;
    double by = c->m->logit_scale > 0 ? c->m->logit_scale : 1;
    by /= temperature > 0 ? temperature : 1;
    if (by < 1 || by > 1)
        PP_RUN(c, scale_by, rows, by, n, c->C, c->C);
}

static struct pp_product logits_of(const struct pp_call *c)
{
    return (struct pp_product){PP_P_WEIGHT, PP_NO_SLOT, c->C, pp_head_words(c)};
}

/* Gathers the rows of a block from x, multiplies by the vocabulary, and caps.
 * The rows are scaled in place of the logits, so that the gradient of the
 * weight needs nothing else. */
static void make_logits(const struct pp_call *c, const struct head_scratch *h,
                        const struct pp_head_block *b, const void *x)
{
    const struct pp_product p = logits_of(c);
    PP_RUN(c, embedding_fwd, h->x, c->mb->scored.rows + b->at, x, b->n, c->C);
    scale_rows(c, h->x, b->n);
    pp_product_fwd(c, &p, b->n, h->logits, h->x, NULL);
    if (pp_head_cap(c) > 0)
        PP_RUN(c, softcap, h->logits, pp_head_cap(c), b->n * p.out);
}

/* --- scores --- */

/* Replaces the log-sum-exp and the log-probabilities of a block over the words
 * of this rank by the same over all words. room has two statistics of every
 * rank for each row. */
static void merge_words(const struct pp_call *c, const struct pp_head_block *b,
                        void *logp, void *room)
{
    struct pp_collective of = c->env->tensor;
    size_t bytes = b->n * c->k->accumulator_bytes;
    char *own = (char *)room + (size_t)of.group.index * 2 * bytes;
    of.value_bytes = c->k->accumulator_bytes;
    pp_call_move(c, own, b->lse, bytes);
    pp_call_move(c, own + bytes, logp, bytes);
    PP_TRY(c, pp_all_gather(&of, room, NULL, (size_t)of.group.n * 2 * b->n,
                            c->err));
    PP_RUN(c, cross_entropy_merge, b->lse, logp, room, b->n,
           (size_t)of.group.n);
}

/* Makes the logits of a block and scores them. */
static void score_block(const struct pp_call *c, const struct head_scratch *h,
                        const struct pp_head_block *b, const void *x)
{
    void *logp = pp_statistic_at(c, h->logp, b->at);
    make_logits(c, h, b, x);
    PP_RUN(c, cross_entropy_fwd, b->lse, logp, h->logits,
           c->mb->scored.targets + b->at, b->n, pp_head_words(c));
    if (pp_head_ranks(c) > 1)
        merge_words(c, b, logp, merges_apart(c) ? h->dx : c->summed);
    if (c->mb->teacher.fetch)
        pp_head_teacher_fwd(c, b, logp);
    if (c->mb->details.values && c->mb->details.sampler)
        pp_head_sample(c, b);
    else if (c->mb->details.values)
        pp_head_details(c, b);
}

/* --- gradients --- */

/* Makes the gradients of a block from its logits, which it overwrites: that of
 * its rows in dx (tokens, C), or NULL, and if wanted that of the weight. */
static void block_gradients(const struct pp_call *c,
                            const struct head_scratch *h,
                            const struct pp_head_block *b, void *dx,
                            bool weight)
{
    const struct pp_product p = logits_of(c);
    const void *scale = pp_statistic_at(c, c->s[PP_S_HEAD_SCALE], b->at);
    if (c->mb->teacher.fetch)
        pp_head_teacher_bwd(c, b, scale);
    else
        PP_RUN(c, cross_entropy_bwd, h->logits, b->lse,
               c->mb->scored.targets + b->at, scale, b->n, p.out,
               pp_head_cap(c));
    if (dx) {
        pp_product_bwd_input(c, &p, b->n, h->dx, h->logits);
        scale_rows(c, h->dx, b->n);
        PP_RUN(c, scatter, dx, h->dx, c->mb->scored.rows + b->at, b->n, c->C);
    }
    if (weight)
        pp_product_bwd_weight(c, &p, b->n, h->logits, h->x);
}

/* Reports whether F makes the gradients. With several tensor-parallel ranks it
 * must not need c->summed, which has the gradient of the rows. */
static bool makes_gradients(const struct pp_call *c)
{
    const struct pp_microbatch *mb = c->mb;
    if (!mb->loss.at_once || c->l->role == PP_ROLE_FORWARD ||
        pp_layer_divides_head(c->l))
        return false;
    if (pp_env_tp(c->env) > 1 &&
        (mb->teacher.fetch || mb->details.values || !merges_apart(c)))
        return false;
    return !mb->loss.objective ||
           block_rows(c, 0, most_rows(c)) == mb->scored.n;
}

/* Computes one prediction from rows (tokens of this rank, C), and its gradients
 * if F makes them: that of the rows is then in PP_S_HEAD_X. */
static void predict(const struct pp_call *c, const void *rows)
{
    const struct head_scratch h = scratch_of(c);
    struct pp_head_block b = block_at(c, &h, 0);
    void *kept = c->s[PP_S_HEAD_X];
    void *dx = makes_gradients(c) ? pp_layer_part(c, kept) : NULL;
    bool makes = dx && rows_with_gradients(c) > 0,
         judged = c->mb->loss.objective;
    const void *x = pp_layer_gather(c, rows);
    if (dx)
        PP_RUN(c, zero, dx, c->T * c->C);
    if (!judged)
        pp_head_write_scale(c);
    for (; b.at < c->mb->scored.n; b = block_at(c, &h, b.at + b.n)) {
        score_block(c, &h, &b, x);
        if (makes && !judged)
            block_gradients(c, &h, &b, dx, true);
    }
    pp_head_sum_loss(c, h.logp, h.all_logps);
    if (makes && judged) {
        b = block_at(c, &h, 0);
        block_gradients(c, &h, &b, dx, true);
    }
    if (dx)
        pp_layer_reduce(c, kept);
}

/* Computes the input gradient (dx), the weight gradient, or both of one
 * prediction from the same logits. Each goes through the blocks in ascending
 * order, so both together give the same bits as one after the other. If F has
 * made them, dx is there. */
static void gradients(const struct pp_call *c, void *dx, bool weight)
{
    size_t n_rows = rows_with_gradients(c);
    const struct head_scratch h = scratch_of(c);
    if (makes_gradients(c)) {
        if (dx)
            PP_RUN(c, copy, dx, c->s[PP_S_HEAD_X], c->R, c->C, c->C, c->C);
        return;
    }
    void *part = dx ? pp_layer_part(c, dx) : NULL;
    const void *x = pp_layer_gather(c, c->s[PP_S_HEAD_X]);
    if (dx)
        PP_RUN(c, zero, part, c->T * c->C);
    struct pp_head_block b = block_at(c, &h, 0);
    for (; (dx || c->g[PP_P_WEIGHT]) && b.at < n_rows;
         b = block_at(c, &h, b.at + b.n)) {
        make_logits(c, &h, &b, x);
        block_gradients(c, &h, &b, part, weight);
    }
    if (dx)
        pp_layer_reduce(c, dx);
}

/* --- one prediction or two --- */

/* The call of multi-token prediction: its microbatch and saved tensors look
 * like the next token's. */
struct ahead {
    struct pp_call call;
    struct pp_microbatch mb;
};

static void look_ahead(const struct pp_call *c, struct ahead *a)
{
    a->mb = *c->mb;
    a->mb.scored = c->mb->ahead.scored;
    a->mb.scored.n_labelled = a->mb.scored.n;
    a->mb.scored.predicts = PP_PREDICTS_AHEAD;
    a->mb.loss.logps = NULL;
    /* All tensor-parallel ranks have the same. */
    a->mb.loss.sum =
        c->env->tensor.group.index == 0 ? c->mb->ahead.loss->sum : NULL;
    a->call = *c;
    a->call.mb = &a->mb;
    for (size_t k = PP_S_HEAD_X; k < PP_S_AHEAD_X; k++)
        a->call.s[k] = c->s[PP_S_AHEAD_X + k];
}

/* Returns the rows of one prediction, which begin at x: x itself, or a copy
 * where B reads it if it computes the logits again. With multi-token prediction
 * x has two rows side by side. */
static const void *rows_of(const struct pp_call *c, const void *x)
{
    size_t width = c->C * (1 + c->m->n_mtp);
    bool makes = makes_gradients(c);
    void *copy = makes ? scratch_of(c).ahead : c->s[PP_S_HEAD_X];
    if (makes && width == c->C)
        return x;
    PP_RUN(c, copy, copy, x, c->R, c->C, c->C, width);
    return copy;
}

static void head_fwd(const struct pp_call *c, void *y, const void *x)
{
    struct ahead a;
    if (c->m->generator)
        pp_head_pass_on(c, y, x);
    predict(c, rows_of(c, x));
    if (!c->mb->ahead.loss)
        return;
    look_ahead(c, &a);
    predict(&a.call, rows_of(&a.call, pp_at(c, x, c->C)));
}

/* Makes the gradients of both predictions. They are then side by side. */
static void head_gradients(const struct pp_call *c, void *dx, bool weight)
{
    size_t C = c->C;
    struct ahead a;
    void *part = dx ? scratch_of(c).ahead : NULL;
    if (!c->mb->ahead.loss) {
        gradients(c, dx, weight);
        return;
    }
    gradients(c, part, weight);
    if (dx)
        PP_RUN(c, copy, dx, part, c->R, C, 2 * C, C);
    look_ahead(c, &a);
    gradients(&a.call, part, weight);
    if (dx)
        PP_RUN(c, copy, pp_at(c, dx, C), part, c->R, C, 2 * C, C);
}

static void head_bwd_weight(const struct pp_call *c)
{
    head_gradients(c, NULL, true);
}

/* Makes the gradient of the input, with that of the rows that a generator
 * reads, and if wanted that of the weight. */
static void input_gradients(const struct pp_call *c, void *dx, const void *dy,
                            bool weight)
{
    head_gradients(c, dx, weight);
    if (c->m->generator)
        pp_head_add_passed(c, dx, dy, scratch_of(c).ahead);
}

static void head_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    input_gradients(c, dx, dy, false);
}

static void head_bwd(const struct pp_call *c, void *dx, const void *dy)
{
    input_gradients(c, dx, dy, true);
}

/* --- some of the words --- */

/* Rows without a score have zeros, so that messages depend on nothing else. */
static void words_fwd(const struct pp_call *c, void *y, const void *x)
{
    const struct head_scratch h = scratch_of(c);
    pp_call_erase(c, y, pp_head_statistics(c));
    for (size_t at = 0; at < c->mb->scored.n;) {
        const struct pp_head_block b = block_at(c, &h, at);
        make_logits(c, &h, &b, x);
        PP_RUN(c, cross_entropy_fwd, pp_statistic_at(c, y, at),
               pp_statistic_at(c, y, c->R + at), h.logits,
               c->mb->scored.targets + at, b.n, pp_head_words(c));
        at += b.n;
    }
}

/* Keeps what the loss gave back, for W too. */
static void keep_given(const struct pp_call *c, const void *dy)
{
    size_t bytes = c->R * c->k->accumulator_bytes;
    pp_call_move(c, c->s[PP_S_HEAD_LSE], dy, bytes);
    pp_call_move(c, c->s[PP_S_HEAD_SCALE], (const char *)dy + bytes, bytes);
}

static void words_bwd_input(const struct pp_call *c, void *dx, const void *dy)
{
    keep_given(c, dy);
    gradients(c, dx, false);
}

static void words_bwd(const struct pp_call *c, void *dx, const void *dy)
{
    keep_given(c, dy);
    gradients(c, dx, true);
}

const struct pp_layer_ops pp_layer_words = {
    .fwd = words_fwd,
    .bwd_input = words_bwd_input,
    .bwd_weight = head_bwd_weight,
    .bwd = words_bwd,
    .x = PP_S_HEAD_X,
    .dy = PP_NO_SLOT,
};

const struct pp_layer_ops pp_layer_head = {
    .fwd = head_fwd,
    .bwd_input = head_bwd_input,
    .bwd_weight = head_bwd_weight,
    .bwd = head_bwd,
    .x = PP_NO_SLOT,
    .dy = PP_NO_SLOT,
};
