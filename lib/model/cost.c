/* SPDX-License-Identifier: MIT */
#include "model/cost.h"

#include <stdio.h>
#include <string.h>

#include "model/edge.h"
#include "model/inventory.h"
#include "model/lora.h"
#include "model/parts.h"

const char *const pp_recompute_names[PP_N_RECOMPUTE_NAMES + 1] = {
    "none",   "selective", "full",    "norms", "attention",  "qkv",
    "latent", "outputs",   "mlp_act", "mlp",   "expert_act", "experts",
};

const enum pp_recompute pp_recompute_sets[PP_N_RECOMPUTE_NAMES] = {
    PP_RECOMPUTE_NONE,   PP_RECOMPUTE_SELECTIVE,
    PP_RECOMPUTE_FULL,   PP_AGAIN_NORMS,
    PP_AGAIN_ATTENTION,  PP_AGAIN_QKV,
    PP_AGAIN_LATENT,     PP_AGAIN_OUTPUTS,
    PP_AGAIN_MLP_ACT,    PP_AGAIN_MLP | PP_AGAIN_MLP_ACT,
    PP_AGAIN_EXPERT_ACT, PP_AGAIN_EXPERTS | PP_AGAIN_EXPERT_ACT,
};

const enum pp_recompute pp_recompute_levels[PP_N_RECOMPUTES] = {
    PP_RECOMPUTE_NONE,
    PP_AGAIN_NORMS | PP_AGAIN_MLP_ACT | PP_AGAIN_EXPERT_ACT,
    PP_RECOMPUTE_SELECTIVE,
    PP_RECOMPUTE_FULL,
};

bool pp_recompute_find(const char *text, enum pp_recompute *out)
{
    unsigned set = 0;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        size_t i = 0, n = strcspn(at, "+");
        end = at + n;
        while (
            pp_recompute_names[i] &&
            (strncmp(pp_recompute_names[i], at, n) || pp_recompute_names[i][n]))
            i++;
        if (i == PP_N_RECOMPUTE_NAMES)
            return false;
        set |= pp_recompute_sets[i];
    }
    *out = (enum pp_recompute)set;
    return true;
}

/* A set of several parts comes before them, so that no part is named twice. */
const char *pp_recompute_text(enum pp_recompute r, char text[PP_RECOMPUTE_TEXT])
{
    static const int order[] = {2, 1, 11, 9, 3, 4, 5, 6, 7, 8, 10};
    unsigned left = r;
    size_t n = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order && left; i++) {
        unsigned set = pp_recompute_sets[order[i]];
        if (!(set & left) || (set & ~(unsigned)r))
            continue;
        n += (size_t)snprintf(text + n, PP_RECOMPUTE_TEXT - n, "%s%s",
                              n ? "+" : "", pp_recompute_names[order[i]]);
        left &= ~set;
    }
    if (!r)
        snprintf(text, PP_RECOMPUTE_TEXT, "%s", pp_recompute_names[0]);
    return text;
}

/* Returns the part that has a product of a layer, by the slot of its weight;
 * none: nobody computes it again. What the router chose is kept. Only a norm
 * behind an MLP needs the MLP's output. */
static enum pp_recompute part_of_product(const struct pp_model *m, size_t slot)
{
    if (slot >= PP_P_ADAPTERS && slot <= PP_P_LAST_ADAPTER)
        slot = (size_t)pp_lora_slots[(slot - PP_P_ADAPTERS) / 2];
    switch (slot) {
    case PP_P_Q:
    case PP_P_K:
    case PP_P_V:
    case PP_P_ATTN_GATE:
    case PP_P_Q_B:
    case PP_P_KV_B:
    case PP_P_DELTA_QKV:
    case PP_P_DELTA_Z:
    case PP_P_DELTA_B:
    case PP_P_DELTA_A:
        return PP_AGAIN_QKV;
    case PP_P_Q_A:
    case PP_P_KV_A:
        return PP_AGAIN_LATENT;
    case PP_P_DELTA_CONV:
        return PP_AGAIN_ATTENTION;
    case PP_P_O:
    case PP_P_DELTA_O:
        return PP_AGAIN_OUTPUTS;
    case PP_P_GATE:
    case PP_P_UP:
    case PP_P_SHARED_GATE:
    case PP_P_SHARED_UP:
        return PP_AGAIN_MLP;
    case PP_P_EXPERT_GATE:
    case PP_P_EXPERT_UP:
        return PP_AGAIN_EXPERTS;
    case PP_P_DOWN:
    case PP_P_EXPERT_DOWN:
    case PP_P_SHARED_DOWN:
    case PP_P_SHARED_WEIGHT:
    case PP_P_ROUTER:
        return pp_family_of(m->architecture)->norms_after ? PP_AGAIN_OUTPUTS
                                                          : PP_RECOMPUTE_NONE;
    default:
        return PP_RECOMPUTE_NONE;
    }
}

/* Returns the operations of the products of a layer that are computed again.
 * Of rows in further rounds nothing is kept in any set. */
static double products_again(const struct pp_shard *s, struct pp_unit_id u,
                             enum pp_recompute r)
{
    const struct pp_model *m = s->model;
    struct pp_weight_group w[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_inventory(m, u, w);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        enum pp_recompute part = part_of_product(m, w[i].slot);
        double rows =
            w[i].share == PP_SHARE_EXPERTS ? pp_shard_skew(s, u.layer) : 1;
        if (part == PP_AGAIN_EXPERTS)
            rows -= pp_shard_further_rows(s, u.layer);
        if (part & r)
            sum += 2 * (double)w[i].rows * (double)w[i].cols *
                   (double)w[i].used * rows;
    }
    return sum;
}

struct pp_flops pp_unit_recompute_flops(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        enum pp_recompute r)
{
    const struct pp_model *m = s->model;
    struct pp_flops f = pp_unit_fwd_flops(s, u);
    bool unknown = m->table && !m->table->estimated;
    /* A file of units does not say what they could recompute. */
    if (!pp_unit_is_decoder(u) || r == PP_RECOMPUTE_NONE || unknown)
        return (struct pp_flops){0};
    if (m->table) {
        f.per_token = r == PP_RECOMPUTE_FULL ? f.per_token : 0;
        return f;
    }
    r = pp_unit_recompute(m, u, r);
    f.per_token = products_again(s, u, r);
    if (r & PP_AGAIN_ATTENTION) {
        if (pp_layer_set_has(&m->delta.layers, u.layer))
            f.per_token += pp_delta_flops(m);
    } else {
        f.per_pair = f.per_any_pair = 0;
    }
    return f;
}

/* Returns who makes the products of a unit, for the backward. */
static enum pp_logits logits_of(const struct pp_model *m, struct pp_unit_id u,
                                enum pp_logits of_head)
{
    return pp_unit_recomputes(m, u) ? of_head : PP_LOGITS_KEPT;
}

static struct pp_cost trained_cost(const struct pp_shard *s,
                                   struct pp_unit_id u, enum pp_recompute r,
                                   double seq_len, enum pp_logits logits)
{
    const struct pp_model *m = s->model;
    struct pp_flops f = pp_unit_fwd_flops(s, u);
    struct pp_flops again = pp_unit_recompute_flops(s, u, r);
    double all = pp_attended_pairs(0, seq_len);
    double products = f.per_token, pairs = all * pp_pair_flops(&f, seq_len);
    double row = PP_ELEMENT_FLOPS * (double)m->hidden;
    if (m->table)
        return pp_cost_recompute(pp_cost_of(products, pairs, logits),
                                 again.per_token,
                                 all * pp_pair_flops(&again, seq_len));
    if (u.kind == PP_UNIT_EMBED) /* F copies a row; W adds the gradient to it */
        return (struct pp_cost){2 * row, 0, 3 * row, 3 * row};
    /* F: x to y; I: x, dy to dx; W: x, dy to sums */
    if (u.kind == PP_UNIT_NORM && pp_unit_runs(m, u)) {
        row = PP_ELEMENT_FLOPS * pp_edge_rate(s, pp_model_index(m, u) + 1);
        return (struct pp_cost){2 * row, 3 * row, 2 * row, 5 * row};
    }
    return pp_cost_recompute(
        pp_cost_lacking(pp_cost_of(products, pairs, logits), f.frozen),
        again.per_token, all * pp_pair_flops(&again, seq_len));
}

static struct pp_cost unit_cost(const struct pp_shard *s, struct pp_unit_id u,
                                enum pp_recompute r, double seq_len,
                                enum pp_logits of_head)
{
    enum pp_logits logits = logits_of(s->model, u, of_head);
    return pp_cost_at_once(
        pp_cost_in_role(trained_cost(s, u, r, seq_len, logits),
                        pp_unit_role(s->model, u)),
        logits);
}

struct pp_cost pp_unit_cost(const struct pp_shard *s, struct pp_unit_id u,
                            enum pp_recompute r, double seq_len)
{
    return unit_cost(s, u, r, seq_len, PP_LOGITS_AGAIN);
}

double pp_unit_further_flops(const struct pp_shard *s, struct pp_unit_id u)
{
    const struct pp_moe *e = &s->model->moe;
    if (u.kind != PP_UNIT_LAYER || !pp_layer_set_has(&e->layers, u.layer))
        return 0;
    return 2 * (double)(s->model->hidden * e->intermediate * e->top_k) *
           pp_shard_further_rows(s, u.layer);
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
    enum pp_logits logits = logits_of(of, u, x->logits);
    if (x->measured) {
        const struct pp_unit_seconds *m = &x->measured[i];
        struct pp_cost c = pp_cost_measured(
            m->fwd[0] * tokens + m->fwd[1] * pairs,
            m->input[0] * tokens + m->input[1] * pairs,
            m->weight[0] * tokens + m->weight[1] * pairs, logits);
        c.backward = pp_cost_less(c.backward, m->once * tokens);
        return pp_cost_recompute(
            c,
            tokens *
                pp_recompute_seconds(m, r, part(again.per_token, f.per_token)),
            m->fwd[1] * pairs * part(again.per_pair, f.per_pair));
    }
    double share = 1.0 / pp_mesh_sharers(&x->shard->mesh);
    return pp_cost_recompute(
        pp_cost_lacking(
            pp_cost_of(share * f.per_token * tokens,
                       share * pairs * pp_pair_flops(&f, x->seq_len), logits),
            share * f.frozen * tokens),
        share * again.per_token * tokens,
        share * pairs * pp_pair_flops(&again, x->seq_len));
}

struct pp_cost pp_unit_cost_for(const struct pp_cost_source *x, size_t i,
                                enum pp_recompute r, double tokens,
                                double pairs)
{
    const struct pp_model *m = x->shard->model;
    const struct pp_unit_id u = pp_model_unit(m, i);
    return pp_cost_at_once(
        pp_cost_in_role(trained_cost_for(x, i, r, tokens, pairs),
                        pp_unit_role(m, u)),
        logits_of(m, u, x->logits));
}

double pp_unit_token_cost(const struct pp_cost_source *x, size_t i,
                          enum pp_recompute r, bool halves)
{
    const struct pp_cost c =
        x->measured ? pp_unit_cost_for(x, i, r, 1, (x->seq_len + 1) / 2)
                    : unit_cost(x->shard, pp_model_unit(x->shard->model, i), r,
                                x->seq_len, x->logits);
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
pp_default_microbatch_part(const struct pp_default_microbatch *mb, int64_t from,
                           int64_t to)
{
    double scale = (double)mb->tokens * ((double)mb->seq_len + 1) / 2 /
                   pairs_before(mb, mb->tokens);
    return (struct pp_default_microbatch_part){
        (double)(to - from),
        (pairs_before(mb, to) - pairs_before(mb, from)) * scale};
}
