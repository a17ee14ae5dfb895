/* SPDX-License-Identifier: MIT */
#include "model/synthetic_model.h"

#include <math.h>

/* No two widths of the result are the same, so that buffers of one cannot pass
 * for those of another. */
enum { HIDDEN = 20, INTERMEDIATE = 28, HEAD_DIM = 6, VOCAB = 61 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void pp_model_synthetic(struct pp_model *m)
{
    size_t ratio = m->n_heads / m->n_kv_heads;
    m->n_kv_heads = ratio > 8 ? 1 : least(m->n_kv_heads, 2);
    m->n_heads = m->n_kv_heads * ratio;
    m->head_dim = least(m->head_dim, HEAD_DIM);
    m->hidden = least(m->hidden, HIDDEN);
    m->intermediate = least(m->intermediate, INTERMEDIATE);
    m->vocab = least(m->vocab, VOCAB);
    m->init_range = 1 / sqrt((double)m->hidden);
}
