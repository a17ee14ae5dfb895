/* SPDX-License-Identifier: MIT */
/* layer_head - logits, loss and their gradients, block of rows by block.
 *
 * Only scored rows meet the vocabulary. Their logits are made anew in F and in
 * each of I and W, or once where these run together, so that nothing of width V
 * outlives a block: F keeps the rows and their log-sum-exp. The size of a block
 * depends on V alone, so that products have the same shape under every split of
 * the model. */
#include "run/layer_impl.h"

/* Elements of a block of logits, 32 MiB in fp32, and the rows that it may
 * have. */
#define BLOCK_ELEMENTS ((size_t)8 << 20)
#define MIN_ROWS 16
#define MAX_ROWS 512

static size_t block_rows(const struct pp_model *m)
{
    size_t rows = BLOCK_ELEMENTS / m->vocab / MIN_ROWS * MIN_ROWS;
    if (rows < MIN_ROWS)
        return MIN_ROWS;
    return rows > MAX_ROWS ? MAX_ROWS : rows;
}

/* Scratch: logits (rows, V), rows of x and of its gradient (rows, C) each,
 * log-probabilities (rows). */
struct head_scratch {
    size_t rows;
    void *logits, *x, *dx, *logp;
};

static struct head_scratch head_buffers(const struct pp_layer *l, void *scratch)
{
    struct head_scratch h = {.rows = block_rows(l->model)};
    h.logits = scratch;
    h.x = pp_layer_at(l, h.logits, h.rows * l->model->vocab);
    h.dx = pp_layer_at(l, h.x, h.rows * l->model->hidden);
    h.logp = pp_layer_at(l, h.dx, h.rows * l->model->hidden);
    return h;
}

static size_t head_scratch(const struct pp_model *m, const struct pp_kernels *k,
                           size_t tokens, size_t context)
{
    (void)tokens, (void)context;
    return block_rows(m) *
           (m->vocab + 2 * m->hidden + k->accumulator_bytes / k->element_bytes);
}

static size_t block_end(const struct pp_microbatch *mb, size_t at, size_t rows)
{
    return mb->n_scored - at < rows ? mb->n_scored - at : rows;
}

/* Gathers scored rows [at, at + n) of x and multiplies by the vocabulary. */
static int make_logits(const struct pp_layer *l, const struct pp_microbatch *mb,
                       const struct head_scratch *h, const void *x, size_t at,
                       size_t n, struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, V = l->model->vocab;
    PP_LAYER_RUN(
        k->embedding_fwd(h->x, mb->scored_rows + at, x, n, C, l->stream));
    PP_LAYER_RUN(k->linear_fwd(h->logits, h->x, l->w[PP_P_WEIGHT], NULL, NULL,
                               n, C, V, V, C, l->stream));
    return 0;
}

/* The same, then the gradient of the loss by the logits in their place. */
static int make_gradient(const struct pp_layer *l,
                         const struct pp_microbatch *mb,
                         const struct head_scratch *h, void *const *s,
                         size_t at, size_t n, struct pp_err *err)
{
    if (make_logits(l, mb, h, s[PP_S_HEAD_X], at, n, err))
        return -1;
    PP_LAYER_RUN(l->kernels->cross_entropy_bwd(
        h->logits, pp_layer_statistic_at(l, s[PP_S_HEAD_LSE], at),
        mb->targets + at, n, l->model->vocab, mb->scale, l->stream));
    return 0;
}

/* Adds a block's -logp to *sum in row order. The only place inside a step where
 * the host waits for the device. */
static int read_logps(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const void *logp, size_t at, size_t n, double *sum,
                      struct pp_err *err)
{
    double room[MAX_ROWS];
    size_t bytes = l->kernels->accumulator_bytes;
    const void *p = pp_device_read(l->device, logp, n * bytes, room, err);
    for (size_t i = 0; p && i < n; i++) {
        double x = bytes == sizeof(float) ? (double)((const float *)p)[i]
                                          : ((const double *)p)[i];
        *sum -= x;
        if (mb->logps)
            mb->logps[at + i] = x;
    }
    return p ? 0 : -1;
}

static int head_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, const struct pp_layer_blocks *b,
                    void *scratch, struct pp_err *err)
{
    (void)y;
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, n;
    struct head_scratch h = head_buffers(l, scratch);
    void *s[PP_MAX_SAVED];
    double sum = 0;
    pp_layer_saved(l, mb->tokens, PP_IN_FORWARD, b, s);
    PP_LAYER_RUN(k->copy(s[PP_S_HEAD_X], x, mb->tokens, C, C, C, l->stream));
    for (size_t at = 0; at < mb->n_scored; at += n) {
        n = block_end(mb, at, h.rows);
        if (make_logits(l, mb, &h, x, at, n, err))
            return -1;
        PP_LAYER_RUN(k->cross_entropy_fwd(
            pp_layer_statistic_at(l, s[PP_S_HEAD_LSE], at), h.logp, h.logits,
            mb->targets + at, n, l->model->vocab, l->stream));
        if (read_logps(l, mb, h.logp, at, n, &sum, err))
            return -1;
    }
    *mb->loss = sum * mb->scale;
    return 0;
}

/* The input's gradient (dx), the weight's (dw), or both, by the same block of
 * logits. Each is written, or added to, block by block in ascending order
 * whatever the other does, so that together they are the bits of one after the
 * other. */
static int head_gradients(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx, void *dw,
                          const struct pp_layer_blocks *b, void *scratch,
                          struct pp_err *err)
{
    const struct pp_kernels *k = l->kernels;
    size_t C = l->model->hidden, V = l->model->vocab, n;
    struct head_scratch h = head_buffers(l, scratch);
    void *s[PP_MAX_SAVED];
    pp_layer_saved(l, mb->tokens, PP_IN_BACKWARD, b, s);
    if (dx)
        PP_LAYER_RUN(k->zero(dx, mb->tokens * C, l->stream));
    for (size_t at = 0; (dx || dw) && at < mb->n_scored; at += n) {
        n = block_end(mb, at, h.rows);
        if (make_gradient(l, mb, &h, s, at, n, err))
            return -1;
        if (dx) {
            PP_LAYER_RUN(k->linear_bwd_input(h.dx, h.logits, l->w[PP_P_WEIGHT],
                                             n, C, V, C, V, l->stream));
            PP_LAYER_RUN(
                k->scatter(dx, h.dx, mb->scored_rows + at, n, C, l->stream));
        }
        if (dw)
            PP_LAYER_RUN(k->linear_bwd_weight(dw, NULL, h.logits, h.x, n, C, V,
                                              V, C, l->stream));
    }
    return 0;
}

static int head_bwd_input(const struct pp_layer *l,
                          const struct pp_microbatch *mb, void *dx,
                          const void *dy, const struct pp_layer_blocks *b,
                          void *scratch, struct pp_err *err)
{
    (void)dy;
    return head_gradients(l, mb, dx, NULL, b, scratch, err);
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
    (void)dy;
    return head_gradients(l, mb, dx, l->g[PP_P_WEIGHT], b, scratch, err);
}

const struct pp_layer_ops pp_layer_head = {
    .fwd = head_fwd,
    .bwd_input = head_bwd_input,
    .bwd_weight = head_bwd_weight,
    .bwd = head_bwd,
    .scratch = head_scratch,
};
