/* SPDX-License-Identifier: MIT */
/* inject_view - faults in the microbatches of a rank: their labels, positions
 * and keys, and the scale of their losses. */
#include "inject.h"

#include <string.h>

/* Returns the scored tokens of this data-parallel rank in a pass. */
static uint64_t scored_here(const struct pp_exec *e, const struct pp_pass *p)
{
    uint64_t n = 0;
    for (int k = 0; k < e->schedule->n_microbatches; k++) {
        struct pp_bin b;
        uint64_t at = p->first + (uint64_t)k * p->stride;
        pp_packed_bin(p->packed, pp_packed_place(p->packed, at), &b);
        n += b.scored;
    }
    return n;
}

/* lane-mean: a data-parallel rank divides by its own scored tokens.
 * mean-again: the mean of the step is divided by the ranks of a row again. */
double inject_scale(const struct pp_exec *e, const struct pp_pass *p)
{
    const struct pp_mesh *x = pp_env_mesh(e->env);
    if (inject_is("lane-mean"))
        return 1 / (double)scored_here(e, p) / x->dp;
    if (inject_is("mean-again"))
        return p->scale / (x->dp * pp_mesh_sharers(x));
    return p->scale;
}

/* context-mean: a context-parallel rank divides a microbatch by its own scored
 * tokens.
 * context-positions: positions are those in a chunk. */
void inject_part(const struct pp_exec *e, const struct pp_batch_part *part,
                 const struct pp_batch *b, struct pp_microbatch *mb,
                 struct pp_pass *p)
{
    double means = (double)part->n_ranks * e->schedule->n_microbatches;
    if (inject_is("context-mean"))
        p->scale = mb->scored.n ? 1 / (double)mb->scored.n / means : 0;
    for (size_t i = 0; inject_is("context-positions") && i < mb->n_sequences;
         i++)
        for (int32_t t = mb->cu_seqlens_padded[i];
             t < mb->cu_seqlens_padded[i + 1]; t++)
            b->positions[t] = t - mb->cu_seqlens_padded[i];
}

/* Keys in the order of the ranks. */
void inject_order(const struct pp_batch *b, const struct pp_microbatch *mb)
{
    int32_t *order = b->order;
    for (size_t t = 0; mb->keys.order && t < mb->keys.n; t++)
        order[t] = (int32_t)t;
    for (size_t i = 0; i < mb->n_spans; i++)
        for (size_t t = 0; t < mb->spans[i].keys.n && mb->spans[i].keys.order;
             t++)
            *order++ = (int32_t)t;
}

/* Labels shifted across the bounds of sequences: the last row of a sequence
 * predicts the first token of the next one. */
void inject_shift_labels(const struct pp_batch *b, const struct pp_packed *p,
                         size_t bin, struct pp_microbatch *mb)
{
    struct pp_bin v;
    pp_packed_bin(p, bin, &v);
    mb->scored.n = 0;
    for (uint32_t t = 0; t + 1 < v.tokens; t++) {
        if (v.labels[t + 1] == PP_LABEL_IGNORE)
            continue;
        b->scored_rows[mb->scored.n] = (int32_t)t;
        b->targets[mb->scored.n++] = v.labels[t + 1];
    }
}

/* Leaves a slice with its own keys. */
void inject_forget_context(const struct pp_batch *b, struct pp_microbatch *mb)
{
    int32_t context = (int32_t)mb->slice.context;
    mb->slice.context = 0;
    mb->keys.n = mb->tokens;
    for (size_t i = 0; i < mb->n_sequences; i++) {
        b->keys[i].first -= i ? context : 0;
        b->keys[i].n -= i ? 0 : context;
        b->keys[i].position = 0;
    }
}

/* Forgets the labels of the last rows of all chunks but the last one of a
 * sequence. */
void inject_cut_labels(const struct pp_batch *b, struct pp_microbatch *mb)
{
    size_t n = 0;
    for (size_t k = 0, i = 0; k < mb->scored.n; k++) {
        while (mb->scored.rows[k] >= mb->cu_seqlens_padded[i + 1])
            i++;
        if (mb->scored.rows[k] + 1 == mb->cu_seqlens_padded[i + 1])
            continue;
        b->scored_rows[n] = b->scored_rows[k];
        b->targets[n++] = b->targets[k];
    }
    mb->scored.n = n;
}

int inject_features(const struct pp_kernels *real, bool forward, void *y,
                    const void *x, const int32_t *rows, size_t n, size_t width,
                    void *stream)
{
    size_t row = width * real->element_bytes;
    if (n > 1 && forward && inject_is("features-order")) {
        int rc =
            real->scatter(y, (const char *)x + row, rows, n - 1, width, stream);
        return rc ? rc : real->scatter(y, x, rows + n - 1, 1, width, stream);
    }
    if (n > 0 && !forward && inject_is("features-lost"))
        memset((char *)(uintptr_t)x + (n - 1) * row, 0, row);
    return real->scatter(y, x, rows, n, width, stream);
}
