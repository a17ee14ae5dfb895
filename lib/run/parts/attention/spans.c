/* SPDX-License-Identifier: MIT */
/* spans - attention of a context-parallel rank whose sequences have ranks
 * of their own. A span is a microbatch of its own on fewer ranks: its rows, and
 * the group of ranks that share its sequences. So every exchange works. */
#include "run/parts/attention/attention.h"

/* Makes the ranks of a span the whole group. */
static void narrow(struct pp_group *g, const struct pp_cp_span *span)
{
    g->n = span->ranks;
    g->index -= span->first;
    g->first += span->first * g->step;
}

void pp_span_slot(const struct pp_call *c, const struct pp_cp_span *span,
                  struct pp_span_call *v, int slot, size_t row_bytes)
{
    if (c->s[slot])
        v->call.s[slot] = (char *)c->s[slot] + span->first_row * row_bytes;
}

void pp_span_call(const struct pp_call *c, const struct pp_cp_span *span,
                  struct pp_span_call *v)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    size_t e = c->k->element_bytes, lse = w.heads * c->k->accumulator_bytes;
    v->env = *c->env;
    narrow(&v->env.context.group, span);
    v->mb = *c->mb;
    v->mb.tokens = span->tokens;
    v->mb.n_sequences = span->n_sequences;
    v->mb.cu_seqlens = span->cu_seqlens;
    v->mb.cu_seqlens_padded = span->cu_seqlens_padded;
    v->mb.keys = span->keys;
    v->call = pp_call_in(c, &v->env);
    v->call.mb = &v->mb;
    v->call.T = span->tokens;
    for (int i = 0; i < PP_MAX_SAVED; i++)
        v->call.s[i] = NULL;
    pp_span_slot(c, span, v, PP_S_QKV, w.row * e);
    pp_span_slot(c, span, v, PP_S_ATTN, w.o * e);
    pp_span_slot(c, span, v, PP_S_LSE, lse);
    pp_span_slot(c, span, v, PP_S_DSINKS, lse);
    pp_span_slot(c, span, v, PP_S_DQKV, w.row * e);
}
