/* SPDX-License-Identifier: MIT */
#include "model/inventory.h"

#include <math.h>

#include "model/parts.h"
#include "model/shard.h"
#include "model/vision.h"

void pp_weights_add_vector(struct pp_weight_list *l, size_t n,
                           enum pp_share share)
{
    l->at[l->n++] = (struct pp_weight_group){n, 1, 1, 0, share};
}

void pp_weights_add_matrix(struct pp_weight_list *l, size_t rows, size_t cols,
                           enum pp_share share)
{
    l->at[l->n++] = (struct pp_weight_group){rows, cols, 1, l->used, share};
}

/* Adds the parameters that pp_unit_params lists. */
static void add_params(const struct pp_model *m, struct pp_unit_id u,
                       struct pp_weight_list *l)
{
    struct pp_tensor_info p[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, p);
    for (size_t i = 0; i < n; i++) {
        enum pp_share share =
            p[i].split == PP_SPLIT_NONE ? PP_SHARE_NONE : PP_SHARE_TENSOR;
        /* A copy of the embedding is no parameter, and multiplies nothing. */
        if (!p[i].name[0] || i == PP_P_NEXT_EMBED)
            continue;
        if (p[i].n_dims > 1)
            pp_weights_add_matrix(l, p[i].rows, p[i].cols, share);
        else
            pp_weights_add_vector(l, p[i].rows, share);
        struct pp_weight_group *w = &l->at[l->n - 1];
        w->n_parts = p[i].n_parts;
        if (u.kind == PP_UNIT_EMBED && i == PP_P_CONNECTOR)
            w->used = 1;
        if (!p[i].n_equal)
            continue;
        w->share = p[i].split == PP_SPLIT_NONE ? PP_SHARE_EXPERT_SUMS
                                               : PP_SHARE_EXPERTS;
        w->count = p[i].n_equal;
        w->used *= m->moe.top_k;
    }
}

size_t pp_unit_inventory(const struct pp_model *m, struct pp_unit_id u,
                         struct pp_weight_group out[PP_MAX_WEIGHT_GROUPS])
{
    struct pp_weight_list l = {out, 0, 1};
    m = pp_unit_model(m, &u);
    switch (u.kind) {
    case PP_UNIT_EMBED: /* a lookup copies a row and multiplies nothing */
        l.used = 0;
        add_params(m, u, &l);
        break;
    case PP_UNIT_LAYER:
    case PP_UNIT_NORM:
    case PP_UNIT_HEAD:
        add_params(m, u, &l);
        break;
    default:
        return pp_vision_inventory(m, u, out);
    }
    return l.n;
}

void pp_unit_shares(const struct pp_model *m, struct pp_unit_id u,
                    uint64_t out[PP_N_SHARES])
{
    struct pp_weight_group w[PP_MAX_WEIGHT_GROUPS];
    size_t n = pp_unit_inventory(m, u, w);
    for (int s = 0; s < PP_N_SHARES; s++)
        out[s] = 0;
    for (size_t i = 0; i < n; i++)
        out[w[i].share] += (uint64_t)w[i].rows * w[i].cols * w[i].count;
}

uint64_t pp_unit_n_params(const struct pp_model *m, struct pp_unit_id u)
{
    uint64_t shares[PP_N_SHARES], sum = 0;
    m = pp_unit_model(m, &u);
    if (m->table)
        return pp_unit_row(m, u)->costs.params;
    pp_unit_shares(m, u, shares);
    for (int s = 0; s < PP_N_SHARES; s++)
        sum += shares[s];
    return sum;
}

uint64_t pp_model_n_params(const struct pp_model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        const struct pp_model *of = pp_unit_model(m, &u);
        if (u.kind != PP_UNIT_HEAD || !of->tied)
            sum += pp_unit_n_params(of, u);
    }
    return sum;
}

uint64_t pp_model_n_elements(const struct pp_model *m)
{
    uint64_t sum = (uint64_t)m->n_mtp * m->vocab * m->hidden;
    for (size_t i = 0; i < pp_model_n_units(m); i++)
        sum += pp_unit_n_params(m, pp_model_unit(m, i));
    return sum;
}

double pp_model_estimate(const struct pp_model *m)
{
    struct pp_weight_group w[PP_MAX_WEIGHT_GROUPS];
    double sum = 0;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        size_t n = pp_unit_inventory(m, pp_model_unit(m, i), w);
        for (size_t j = 0; j < n; j++)
            sum += (double)w[j].rows * (double)w[j].cols * (double)w[j].count;
    }
    return sum;
}

struct pp_flops pp_unit_fwd_flops(const struct pp_shard *s, struct pp_unit_id u)
{
    struct pp_weight_group w[PP_MAX_WEIGHT_GROUPS];
    struct pp_flops f = {0};
    const struct pp_shard of = pp_unit_shard(s, &u);
    const struct pp_model *m = of.model;
    if (m->table) {
        const struct pp_unit_row *row = pp_unit_row(m, u);
        return (struct pp_flops){row->costs.fwd_flops[0],
                                 row->costs.fwd_flops[1], row->window,
                                 row->per_any_pair, row->chunked};
    }
    if (pp_unit_is_vision(u))
        return pp_vision_flops(&of, u);
    size_t n = pp_unit_inventory(m, u, w);
    for (size_t i = 0; i < n; i++) {
        bool expert = w[i].share == PP_SHARE_EXPERTS ||
                      w[i].share == PP_SHARE_EXPERT_SUMS;
        f.per_token += 2 * (double)w[i].rows * (double)w[i].cols *
                       (double)w[i].used *
                       (expert ? pp_shard_skew(&of, u.layer) : 1);
    }
    if (u.kind == PP_UNIT_HEAD) /* each prediction depth runs the head */
        f.per_token *= (double)(1 + m->n_mtp);
    if (u.kind != PP_UNIT_LAYER)
        return f;
    f.per_pair =
        2 * (double)m->n_heads * (double)(m->head_dim + pp_model_v_dim(m));
    f.window = pp_unit_window(m, u);
    return f;
}

double pp_attended_pairs(size_t window, double seq_len)
{
    double w = (double)window;
    if (window == 0 || seq_len <= w)
        return (seq_len + 1) / 2;
    /* Position i attends i pairs up to w, and w after that. */
    return w - w * (w - 1) / (2 * seq_len);
}

/* The mean of whole chunks and of what is left of a sequence. */
static double chunk_pairs(double chunk, double seq_len)
{
    double whole = floor(seq_len / chunk), rest = seq_len - whole * chunk;
    return (whole * chunk * (chunk + 1) + rest * (rest + 1)) / (2 * seq_len);
}

double pp_pair_flops(const struct pp_flops *f, double seq_len)
{
    double seen = f->chunked && f->window
                      ? chunk_pairs((double)f->window, seq_len)
                      : pp_attended_pairs(f->window, seq_len);
    return f->per_pair * (seen / pp_attended_pairs(0, seq_len)) +
           f->per_any_pair;
}
