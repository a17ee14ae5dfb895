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

/* Finds the saved tensors of a span behind the tensors of spans before it. */
static void find_rows(const struct pp_call *c, size_t first, void **at)
{
    struct pp_saved s[PP_MAX_SAVED];
    const struct pp_shard *shard = &c->env->shard;
    size_t n =
        pp_unit_saved(shard, c->l->unit, c->l->recompute, PP_IN_BACKWARD, s);
    for (size_t i = 0; i < n; i++) {
        size_t bytes =
            s[i].is_statistic ? c->k->accumulator_bytes : c->k->element_bytes;
        size_t width = s[i].width / pp_shard_row_ranks(shard);
        at[i] = c->s[i] ? (char *)c->s[i] + first * width * bytes : NULL;
    }
}

void pp_span_call(const struct pp_call *c, const struct pp_cp_span *span,
                  struct pp_span_call *v)
{
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
    find_rows(c, span->first_row, v->call.s);
}
