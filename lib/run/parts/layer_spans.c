/* SPDX-License-Identifier: MIT */
/* layer_spans - attention of a context-parallel rank whose sequences have ranks
 * of their own. A span is a microbatch of its own on fewer ranks: its rows, and
 * the group of ranks that share its sequences. So every exchange works. */
#include "run/parts/layer_impl.h"

/* Makes the ranks of a span the whole group. */
static void narrow(struct pp_group *g, const struct pp_cp_span *span)
{
    g->n = span->ranks;
    g->index -= span->first;
    g->first += span->first * g->step;
}

void pp_cp_span_view(const struct pp_layer *l, const struct pp_microbatch *mb,
                     void *const *s, const struct pp_cp_span *span,
                     struct pp_cp_span_view *v)
{
    const struct pp_model *m = l->env->model;
    struct pp_qkv_widths w = pp_qkv_widths(m);
    size_t row = span->first_row;
    v->env = *l->env;
    narrow(&v->env.context.group, span);
    v->layer = *l;
    v->layer.env = &v->env;
    v->mb = *mb;
    v->mb.tokens = span->tokens;
    v->mb.n_sequences = span->n_sequences;
    v->mb.cu_seqlens = span->cu_seqlens;
    v->mb.cu_seqlens_padded = span->cu_seqlens_padded;
    v->mb.keys = span->keys;
    v->mb.key_rows = span->tokens * (size_t)span->ranks;
    v->mb.order = span->order;
    v->mb.n_whole = span->n_whole;
    v->mb.whole_cu = span->whole_cu;
    v->mb.whole_cu_padded = span->whole_cu_padded;
    for (int i = 0; i < PP_N_LAYER_SAVED; i++)
        v->s[i] = NULL;
    v->s[PP_S_QKV] = pp_layer_at(l, s[PP_S_QKV], row * w.qkv);
    v->s[PP_S_ATTN] = pp_layer_at(l, s[PP_S_ATTN], row * w.o);
    v->s[PP_S_LSE] = pp_layer_statistic_at(l, s[PP_S_LSE], row * m->n_heads);
    if (s[PP_S_DSINKS])
        v->s[PP_S_DSINKS] =
            pp_layer_statistic_at(l, s[PP_S_DSINKS], row * m->n_heads);
    if (s[PP_S_DQKV])
        v->s[PP_S_DQKV] = pp_layer_at(l, s[PP_S_DQKV], row * w.qkv);
}
