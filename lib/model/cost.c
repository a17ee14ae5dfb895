/* SPDX-License-Identifier: MIT */
#include "model/cost.h"

#include <string.h>

#include "model/edge.h"

const char *const pp_recompute_names[] = {
    [PP_RECOMPUTE_NONE] = "none",
    [PP_RECOMPUTE_SELECTIVE] = "selective",
    [PP_RECOMPUTE_FULL] = "full",
    [PP_N_RECOMPUTES] = NULL,
};

bool pp_recompute_find(const char *name, enum pp_recompute *out)
{
    for (int i = 0; i < PP_N_RECOMPUTES; i++)
        if (!strcmp(pp_recompute_names[i], name)) {
            *out = (enum pp_recompute)i;
            return true;
        }
    return false;
}

/* Returns the width of the products with hidden that nobody recomputes: no
 * gradient reads the output of an MLP's last product, and what the router chose
 * is kept. Of rows in further rounds nothing is kept in any mode. */
static double kept_width(const struct pp_shard *s, struct pp_unit_id u)
{
    const struct pp_moe *e = &s->model->moe;
    size_t router = e->n_experts + (e->shared && e->shared_gate);
    return pp_layer_set_has(&e->layers, u.layer)
               ? (double)(e->top_k * e->intermediate) *
                         (pp_shard_skew(s, u.layer) +
                          2 * pp_shard_further_rows(s, u.layer)) +
                     (double)(e->shared + router)
               : (double)s->model->intermediate;
}

struct pp_flops pp_unit_recompute_flops(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        enum pp_recompute r)
{
    const struct pp_model *m = s->model;
    struct pp_flops f = pp_unit_fwd_flops(s, u);
    bool unknown = m->table && !m->table->estimated;
    /* A file of units does not say what they could recompute. */
    if (u.kind != PP_UNIT_LAYER || r == PP_RECOMPUTE_NONE || unknown)
        return (struct pp_flops){0};
    if (r == PP_RECOMPUTE_SELECTIVE)
        f.per_token =
            pp_layer_set_has(&m->delta.layers, u.layer) ? pp_delta_flops(m) : 0;
    else if (!m->table)
        f.per_token -= 2 * (double)m->hidden * kept_width(s, u);
    return f;
}

static struct pp_cost trained_cost(const struct pp_shard *s,
                                   struct pp_unit_id u, enum pp_recompute r,
                                   double seq_len)
{
    const struct pp_model *m = s->model;
    struct pp_flops f = pp_unit_fwd_flops(s, u);
    struct pp_flops again = pp_unit_recompute_flops(s, u, r);
    double all = pp_attended_pairs(0, seq_len);
    double products = f.per_token, pairs = all * pp_pair_flops(&f, seq_len);
    double row = PP_ELEMENT_FLOPS * (double)m->hidden;
    if (m->table)
        return pp_cost_recompute(
            pp_cost_of(products, pairs, pp_unit_recomputes(m, u)),
            again.per_token, all * pp_pair_flops(&again, seq_len));
    switch (u.kind) {
    case PP_UNIT_EMBED: /* F copies a row; W adds the gradient to a row */
        return (struct pp_cost){2 * row, 0, 3 * row, 3 * row};
    case PP_UNIT_NORM: /* F: x to y; I: x, dy to dx; W: x, dy to sums */
        return (struct pp_cost){2 * row, 3 * row, 2 * row, 5 * row};
    case PP_UNIT_PRE_NORM:
        row = PP_ELEMENT_FLOPS * pp_edge_rate(s, pp_model_index(m, u) + 1);
        return (struct pp_cost){2 * row, 3 * row, 2 * row, 5 * row};
    default:
        break;
    }
    return pp_cost_recompute(
        pp_cost_lacking(pp_cost_of(products, pairs, pp_unit_recomputes(m, u)),
                        f.frozen),
        again.per_token, all * pp_pair_flops(&again, seq_len));
}

struct pp_cost pp_unit_cost(const struct pp_shard *s, struct pp_unit_id u,
                            enum pp_recompute r, double seq_len)
{
    return pp_cost_in_role(trained_cost(s, u, r, seq_len),
                           pp_unit_role(s->model, u));
}

static double part(double some, double all)
{
    return all > 0 ? some / all : 0;
}

static struct pp_cost trained_cost_for(const struct pp_cost_source *x, size_t i,
                                       enum pp_recompute r, double tokens,
                                       double pairs)
{
    const struct pp_model *of = x->shard->model;
    struct pp_unit_id u = pp_model_unit(of, i);
    struct pp_flops f = pp_unit_fwd_flops(x->shard, u);
    struct pp_flops again = pp_unit_recompute_flops(x->shard, u, r);
    bool recomputes = pp_unit_recomputes(of, u);
    if (x->measured) {
        const struct pp_unit_seconds *m = &x->measured[i];
        const struct pp_cost c = pp_cost_measured(
            m->fwd[0] * tokens + m->fwd[1] * pairs,
            m->input[0] * tokens + m->input[1] * pairs,
            m->weight[0] * tokens + m->weight[1] * pairs, recomputes);
        /* Recomputation was not measured: it takes the share of the forward's
         * time that it has of the forward's operations. */
        return pp_cost_recompute(
            c, m->fwd[0] * tokens * part(again.per_token, f.per_token),
            m->fwd[1] * pairs * part(again.per_pair, f.per_pair));
    }
    double share = 1.0 / pp_mesh_sharers(&x->shard->mesh);
    return pp_cost_recompute(
        pp_cost_lacking(
            pp_cost_of(share * f.per_token * tokens,
                       share * pairs * pp_pair_flops(&f, x->seq_len),
                       recomputes),
            share * f.frozen * tokens),
        share * again.per_token * tokens,
        share * pairs * pp_pair_flops(&again, x->seq_len));
}

struct pp_cost pp_unit_cost_for(const struct pp_cost_source *x, size_t i,
                                enum pp_recompute r, double tokens,
                                double pairs)
{
    const struct pp_model *m = x->shard->model;
    return pp_cost_in_role(trained_cost_for(x, i, r, tokens, pairs),
                           pp_unit_role(m, pp_model_unit(m, i)));
}

double pp_unit_token_cost(const struct pp_cost_source *x, size_t i,
                          enum pp_recompute r, bool halves)
{
    const struct pp_cost c =
        x->measured ? pp_unit_cost_for(x, i, r, 1, (x->seq_len + 1) / 2)
                    : pp_unit_cost(x->shard, pp_model_unit(x->shard->model, i),
                                   r, x->seq_len);
    return c.forward + (halves ? c.input_grad + c.weight_grad : c.backward);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int pp_live_microbatches(int n_ranks, int n_chunks, bool v, int stage,
                         int n_microbatches)
{
    int rank = stage % n_ranks, chunk = stage / n_ranks;
    if (v || n_chunks == 1)
        return smaller(n_microbatches, n_ranks * n_chunks - stage);
    /* Before its first backward, a rank runs n_ranks microbatches through each
     * chunk but the last. Then it runs 2 (n_ranks - 1 - rank) + 1 more: up to
     * n_ranks through the last chunk, the others through the first. */
    int rest = 2 * (n_ranks - 1 - rank) + 1;
    int live = n_ranks;
    if (chunk == n_chunks - 1)
        live = smaller(n_ranks, rest);
    else if (chunk == 0 && rest > n_ranks)
        live = rest;
    return smaller(n_microbatches, live);
}

struct pp_default_microbatch pp_default_microbatch_of(int64_t seq_len)
{
    return (struct pp_default_microbatch){.tokens = seq_len,
                                          .seq_len = seq_len};
}

/* Returns the attended pairs in the first n tokens. A token attends to itself
 * and to the tokens before it in its sequence. */
static double pairs_before(const struct pp_default_microbatch *mb, int64_t n)
{
    double length = (double)mb->seq_len, rest = (double)(n % mb->seq_len);
    return (double)(n / mb->seq_len) * length * (length + 1) / 2 +
           rest * (rest + 1) / 2;
}

struct pp_default_microbatch_part
pp_default_microbatch_slice(const struct pp_default_microbatch *mb, int64_t q,
                            int64_t n)
{
    int64_t from = mb->tokens * q / n, to = mb->tokens * (q + 1) / n;
    double scale = (double)mb->tokens * ((double)mb->seq_len + 1) / 2 /
                   pairs_before(mb, mb->tokens);
    return (struct pp_default_microbatch_part){
        (double)(to - from),
        (pairs_before(mb, to) - pairs_before(mb, from)) * scale};
}
