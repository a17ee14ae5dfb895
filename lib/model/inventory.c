/* SPDX-License-Identifier: MIT */
#include "model/inventory.h"

#include <math.h>

#include "model/parts.h"
#include "model/shard.h"
#include "model/vision.h"

/* Returns how often a row of the unit is multiplied by a matrix. A lookup
 * copies a row and multiplies nothing, and layers of an encoder that do not run
 * have weights alone. The first convolution of audio has two windows for a row.
 */
static size_t used_of(const struct pp_model *m, struct pp_unit_id u,
                      size_t slot)
{
    switch (u.kind) {
    case PP_UNIT_EMBED:
        return slot == PP_P_CONNECTOR;
    case PP_UNIT_PATCHES:
        return slot == PP_P_POSITIONS ? 0
               : slot == PP_P_PATCH && pp_vision_hears(pp_unit_encoder(m, u))
                   ? 2
                   : 1;
    case PP_UNIT_PROJECTOR:
        return slot != PP_P_CLIP_ENDS;
    default:
        return pp_unit_runs(m, u);
    }
}

size_t pp_unit_inventory(const struct pp_model *m, struct pp_unit_id u,
                         struct pp_weight_group out[PP_N_LAYER_PARAMS])
{
    struct pp_tensor_info p[PP_N_LAYER_PARAMS];
    m = pp_unit_model(m, &u);
    size_t n_rows = pp_unit_params(m, u, p), n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        bool whole = p[i].split == PP_SPLIT_NONE;
        /* A copy of the embedding is no parameter, and multiplies nothing. */
        if (!p[i].name[0] || (u.kind == PP_UNIT_LAYER && i == PP_P_NEXT_EMBED))
            continue;
        struct pp_weight_group *w = &out[n++];
        *w = (struct pp_weight_group){
            .slot = i,
            .rows = p[i].rows,
            .cols = p[i].cols,
            .count = 1,
            .trained = pp_tensor_changes(&p[i]),
            .mapped = p[i].mapped,
            .used = p[i].n_dims > 1 ? used_of(m, u, i) : 0,
            .share = whole ? PP_SHARE_NONE : PP_SHARE_TENSOR,
            .n_parts = p[i].n_parts};
        if (!p[i].n_equal)
            continue;
        w->share = whole ? PP_SHARE_EXPERT_SUMS : PP_SHARE_EXPERTS;
        w->count = p[i].n_equal;
        w->used *= m->moe.top_k;
    }
    return n;
}

uint64_t pp_unit_n_params(const struct pp_model *m, struct pp_unit_id u)
{
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    uint64_t sum = 0;
    m = pp_unit_model(m, &u);
    if (m->table)
        return pp_unit_row(m, u)->costs.params;
    size_t n = pp_unit_inventory(m, u, w);
    for (size_t i = 0; i < n; i++)
        sum += (uint64_t)w[i].rows * w[i].cols * w[i].count;
    return sum;
}

size_t pp_model_widened(const struct pp_model *m)
{
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    size_t most = 0;
    for (size_t i = 0; m->maps && i < pp_model_n_units(m); i++) {
        size_t n = pp_unit_inventory(m, pp_model_unit(m, i), w), sum = 0;
        for (size_t k = 0; k < n; k++) {
            if (!w[k].mapped)
                continue;
            sum += w[k].rows * w[k].cols;
            most = w[k].cols > most ? w[k].cols : most;
        }
        sum = sum < PP_WIDENED ? sum : PP_WIDENED;
        most = sum > most ? sum : most;
    }
    return most;
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
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    double sum = 0;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        size_t n = pp_unit_inventory(m, pp_model_unit(m, i), w);
        for (size_t j = 0; j < n; j++)
            sum += (double)w[j].rows * (double)w[j].cols * (double)w[j].count;
    }
    return sum;
}

/* Returns the ranks of an encoder that divide its tensors; they have the same
 * rows. */
static double encoder_ranks(const struct pp_shard *s, struct pp_unit_id u)
{
    return pp_unit_is_vision(u) ? (double)s->images[u.component].tp : 1;
}

/* Returns the operations of the products of a row, of trained products or of
 * the others. */
static double products_of(const struct pp_shard *s, struct pp_unit_id u,
                          bool trained)
{
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_inventory(s->model, u, w);
    double sum = 0, ranks = encoder_ranks(s, u);
    for (size_t i = 0; i < n; i++) {
        bool expert = w[i].share == PP_SHARE_EXPERTS ||
                      w[i].share == PP_SHARE_EXPERT_SUMS;
        if (w[i].trained != trained)
            continue;
        sum += 2 * (double)w[i].rows * (double)w[i].cols * (double)w[i].used *
               (expert ? pp_shard_skew(s, u.layer) : 1) /
               (w[i].share == PP_SHARE_TENSOR ? ranks : 1);
    }
    return sum;
}

/* The operations of the states of linear attention, in chunks of 64 tokens. */
double pp_delta_flops(const struct pp_model *m)
{
    const struct pp_delta *d = &m->delta;
    double k = (double)d->key_dim, v = (double)d->value_dim;
    return (double)d->value_heads * (6 * k * v + 64 * (4 * k + 2 * v));
}

struct pp_flops pp_unit_fwd_flops(const struct pp_shard *s, struct pp_unit_id u)
{
    const struct pp_shard of = pp_unit_shard(s, &u);
    const struct pp_model *m = of.model;
    double ranks = encoder_ranks(&of, u);
    if (m->table) {
        const struct pp_unit_row *row = pp_unit_row(m, u);
        const double *each = row->costs.fwd_flops;
        if (pp_unit_is_vision(u))
            return pp_vision_flops(
                &of, u, each[0] / (u.kind == PP_UNIT_PATCHES ? 1 : ranks),
                each[1] / ranks);
        return (struct pp_flops){each[0], each[1], row->window,
                                 row->per_any_pair, row->chunked};
    }
    double trained = products_of(&of, u, true);
    double frozen = products_of(&of, u, false);
    struct pp_flops f = {.per_token = trained + frozen};
    /* W of an adapter computes what F does, and the gradients. */
    if (trained > 0 && frozen > trained)
        f.frozen = frozen - trained;
    if (pp_unit_is_vision(u))
        return pp_vision_flops(&of, u, f.per_token,
                               4 * (double)pp_unit_encoder(m, u)->hidden /
                                   ranks);
    if (u.kind == PP_UNIT_HEAD) /* each prediction depth runs the head */
        f.per_token *= (double)(1 + m->n_mtp);
    if (u.kind != PP_UNIT_LAYER)
        return f;
    if (pp_layer_set_has(&m->delta.layers, u.layer)) {
        f.per_token += pp_delta_flops(m);
        return f;
    }
    const struct pp_heads h = pp_unit_heads(m, u);
    f.per_pair = 2 * (double)h.n * (double)(h.qk + h.v);
    f.window = pp_unit_window(m, u);
    f.chunked = m->chunked;
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
