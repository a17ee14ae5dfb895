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

void pp_span_call(const struct pp_call *c, const struct pp_cp_span *span,
                  struct pp_span_call *v)
{
    struct pp_qkv_widths w = pp_qkv_widths(c);
    size_t row = span->first_row, NH = w.heads;
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
    void *const *s = c->s;
    for (int i = 0; i < PP_MAX_SAVED; i++)
        v->call.s[i] = NULL;
    v->call.s[PP_S_QKV] = pp_at(c, s[PP_S_QKV], row * w.row);
    v->call.s[PP_S_ATTN] = pp_at(c, s[PP_S_ATTN], row * w.o);
    v->call.s[PP_S_LSE] = pp_statistic_at(c, s[PP_S_LSE], row * NH);
    if (s[PP_S_DSINKS])
        v->call.s[PP_S_DSINKS] = pp_statistic_at(c, s[PP_S_DSINKS], row * NH);
    if (s[PP_S_DQKV])
        v->call.s[PP_S_DQKV] = pp_at(c, s[PP_S_DQKV], row * w.row);
}
