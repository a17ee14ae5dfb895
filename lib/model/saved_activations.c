/* SPDX-License-Identifier: MIT */
/* saved_activations - shards, and the activations that a unit of one saves, per
 * token. */
#include "model/shard.h"

#include <string.h>

#include "base/num.h"
#include "model/lora.h"
#include "model/parts.h"

struct pp_shard pp_shard_of(const struct pp_model *m, const struct pp_mesh *x)
{
    struct pp_shard s = {.model = m, .mesh = *x};
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        s.images[k] = (struct pp_image_load){.n_images = m->encoders[k].kind !=
                                                         PP_VISION_NONE,
                                             .seq_len = 1,
                                             .patches = m->encoders[k].patches,
                                             .sharers = 1,
                                             .makers = 1,
                                             .lanes = 1,
                                             .tp = 1};
    return s;
}

struct pp_shard pp_shard_whole(const struct pp_model *m)
{
    const struct pp_mesh one = {1, 1, 1, 1, 1};
    return pp_shard_of(m, &one);
}

/* Returns the part of a decoder layer with which a saved tensor is recomputed.
 * What the router chose is kept: no token is routed or counted twice. */
static enum pp_recompute part_of(size_t slot)
{
    switch (slot) {
    case PP_S_RSTD1:
    case PP_S_MEAN1:
    case PP_S_NORM1:
    case PP_S_RSTD2:
    case PP_S_MEAN2:
    case PP_S_NORM2:
    case PP_S_JOINED:
        return PP_AGAIN_NORMS;
    case PP_S_LSE:
    case PP_S_ATTN:
    case PP_S_GATED:
        return PP_AGAIN_ATTENTION;
    case PP_S_QKV_RAW:
    case PP_S_QK_RSTD:
    case PP_S_QKV:
        return PP_AGAIN_QKV;
    case PP_S_LATENT_RAW:
    case PP_S_LATENT_RSTD:
    case PP_S_LATENT:
        return PP_AGAIN_LATENT;
    case PP_S_OUT1:
    case PP_S_MID:
    case PP_S_OUT2:
        return PP_AGAIN_OUTPUTS;
    case PP_S_ACT:
        return PP_AGAIN_MLP_ACT;
    case PP_S_GATE_UP:
        return PP_AGAIN_MLP;
    case PP_S_EXPERT_ACT:
        return PP_AGAIN_EXPERT_ACT;
    case PP_S_EXPERT_GATE_UP:
        return PP_AGAIN_EXPERTS;
    default:
        return PP_RECOMPUTE_NONE;
    }
}

enum pp_recompute pp_unit_recompute(const struct pp_model *m,
                                    struct pp_unit_id u, enum pp_recompute r)
{
    enum {
        READ_NORMS =
            PP_AGAIN_QKV | PP_AGAIN_LATENT | PP_AGAIN_MLP | PP_AGAIN_EXPERTS
    };
    const struct pp_family *f = pp_family_of(m->architecture);
    bool experts = pp_layer_set_has(&m->moe.layers, u.layer);
    unsigned set = u.kind == PP_UNIT_LAYER ? r : PP_RECOMPUTE_NONE;
    /* No gradient reads the sum after attention of parallel blocks. */
    if (f->parallel)
        set &= ~(unsigned)PP_AGAIN_OUTPUTS;
    /* Experts run whole for the norm behind them. */
    if (f->norms_after && experts && (set & PP_AGAIN_OUTPUTS))
        set |= PP_AGAIN_MLP | PP_AGAIN_MLP_ACT | PP_AGAIN_EXPERTS |
               PP_AGAIN_EXPERT_ACT;
    /* Nobody keeps what only W reads if there is no W. */
    if (m->lora || pp_unit_role(m, u) != PP_ROLE_TRAINED) {
        set |= set & READ_NORMS ? PP_AGAIN_NORMS : 0;
        set |= set & PP_AGAIN_OUTPUTS ? PP_AGAIN_MLP_ACT : 0;
    }
    return (enum pp_recompute)set;
}

/* Returns the block of a tensor that is recomputed. F needs it only within the
 * layer. I keeps it until its last reader, which is I or W. */
static enum pp_saved_block block_is_recomputed(enum pp_saved_block kept,
                                               enum pp_saved_when when)
{
    return when == PP_IN_FORWARD || kept == PP_SAVED_ACT_I ? PP_SAVED_WORKSPACE
                                                           : PP_SAVED_GRAD_W;
}

/* Returns true if W alone reads a saved tensor of a decoder layer. With experts
 * their gradients read more. */
static bool is_for_weights(const struct pp_model *m, struct pp_unit_id u,
                           size_t slot)
{
    return u.kind == PP_UNIT_LAYER &&
           !pp_layer_set_has(&m->moe.layers, u.layer) &&
           (slot == PP_S_NORM1 || slot == PP_S_NORM2 || slot == PP_S_ACT);
}

/* Marks what W of a layer that trains adapters alone reads: the inputs of the
 * products that have some, and the gradients of their outputs. A tensor without
 * a width is another one (run/parts/decoder.c). */
static void find_read(const struct pp_model *m, struct pp_unit_id u,
                      const struct pp_saved *saved, bool read[PP_MAX_SAVED])
{
    static const struct {
        size_t in, dout;
    } products[PP_N_LAYER_PARAMS] = {
        [PP_P_Q] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_K] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_V] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_O] = {PP_S_GATED, PP_S_DOUT1},
        [PP_P_GATE] = {PP_S_NORM2, PP_S_DGATE_UP},
        [PP_P_UP] = {PP_S_NORM2, PP_S_DGATE_UP},
        [PP_P_DOWN] = {PP_S_ACT, PP_S_DOUT2},
        [PP_P_Q_A] = {PP_S_NORM1, PP_S_DLATENT_RAW},
        [PP_P_Q_B] = {PP_S_LATENT, PP_S_DQKV},
        [PP_P_KV_A] = {PP_S_NORM1, PP_S_DLATENT_RAW},
        [PP_P_KV_B] = {PP_S_LATENT, PP_S_DQKV},
        [PP_P_DELTA_QKV] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_DELTA_Z] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_DELTA_B] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_DELTA_A] = {PP_S_NORM1, PP_S_DQKV},
        [PP_P_DELTA_O] = {PP_S_GATED, PP_S_DOUT1},
    };
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    bool parallel = pp_family_of(m->architecture)->parallel;
    const size_t same[][2] = {
        {PP_S_NORM2, parallel ? PP_S_NORM1 : PP_S_MID},
        {PP_S_NORM1, PP_S_X},
        {PP_S_GATED, PP_S_ATTN},
        {PP_S_DOUT1, PP_S_DMID},
        {PP_S_DMID, PP_S_DY},
        {PP_S_DOUT2, PP_S_DY},
    };
    pp_unit_params(m, u, table);
    for (size_t i = 0; i < PP_N_ADAPTED; i++) {
        int slot = pp_lora_slots[i];
        if (table[PP_P_ADAPTERS + 2 * i].name[0])
            read[products[slot].in] = read[products[slot].dout] = true;
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (read[same[i][0]] && !saved[same[i][0]].width)
            read[same[i][1]] = true;
}

/* Changes a tensor of a frozen unit, or one that W does not read. Without W
 * nothing is kept longer than I, and without a backward nothing is kept at all.
 * Later slices read keys and values, and add to their gradients. */
static void freeze(const struct pp_model *m, struct pp_unit_id u,
                   enum pp_role role, size_t slot, enum pp_recompute r,
                   enum pp_saved_when when, struct pp_saved *s)
{
    bool layer = u.kind == PP_UNIT_LAYER, in_forward = when == PP_IN_FORWARD;
    bool gradient = s->block == PP_SAVED_GRAD_W;
    if (layer && (slot == PP_S_QKV || slot == PP_S_DKEYS))
        return;
    if (role == PP_ROLE_FORWARD) {
        s->width = gradient ? 0 : s->width;
        s->block = PP_SAVED_WORKSPACE;
    } else if (is_for_weights(m, u, slot)) {
        s->width = in_forward || (r & part_of(slot)) ? s->width : 0;
        s->block = PP_SAVED_WORKSPACE;
    } else if (gradient) {
        s->width = in_forward ? 0 : s->width;
        s->block = PP_SAVED_WORKSPACE;
    } else if (s->block == PP_SAVED_ACT_W) {
        s->block = PP_SAVED_ACT_I;
    }
}

/* Adds what a decoder layer saves between its parts. */
static void set_sums(const struct pp_model *m, struct pp_saved *out)
{
    out[PP_S_X] = (struct pp_saved){PP_SAVED_ACT_W, m->hidden};
    out[PP_S_MID] = (struct pp_saved){PP_SAVED_ACT_W, m->hidden};
    out[PP_S_DMID] = (struct pp_saved){PP_SAVED_GRAD_W, m->hidden};
    out[PP_S_DY] = (struct pp_saved){PP_SAVED_GRAD_W, m->hidden};
    /* Nothing reads the first sum of parallel blocks again, and its gradient is
     * DY. Gradients of the norm that they share add up. */
    if (pp_family_of(m->architecture)->parallel) {
        out[PP_S_MID].block = out[PP_S_DMID].block = PP_SAVED_WORKSPACE;
        out[PP_S_DMID].width = 0;
        out[PP_S_DNORM2] = (struct pp_saved){PP_SAVED_WORKSPACE, m->hidden};
    }
}

/* Fills blocks and widths; returns the number of tensors. */
static size_t set_saved(const struct pp_shard *s, struct pp_unit_id u,
                        struct pp_saved out[PP_MAX_SAVED])
{
    const struct pp_model *m = s->model;
    static const size_t n_slots[] = {
        [PP_UNIT_EMBED] = PP_N_EMBED_SAVED,
        [PP_UNIT_LAYER] = PP_N_LAYER_SAVED,
        [PP_UNIT_NORM] = PP_N_NORM_SAVED,
        [PP_UNIT_HEAD] = PP_N_HEAD_SAVED,
        [PP_UNIT_LOSS] = PP_N_HEAD_SAVED,
        [PP_UNIT_PATCHES] = PP_N_PATCH_SAVED,
        [PP_UNIT_PROJECTOR] = PP_N_PROJECTOR_SAVED};
    struct pp_model_part parts[PP_MAX_PARTS];
    size_t n_parts = pp_unit_parts(m, u, parts);
    memset(out, 0, PP_MAX_SAVED * sizeof *out);
    for (size_t i = 0; i < n_parts; i++)
        pp_part_row(parts[i].kind)->saved(s, &parts[i], out);
    if (u.kind == PP_UNIT_LAYER)
        set_sums(m, out);
    else if (u.kind == PP_UNIT_NORM)
        out[PP_S_FN_X] = (struct pp_saved){PP_SAVED_ACT_W, m->hidden};
    return n_parts ? n_slots[u.kind] : 0;
}

size_t pp_unit_saved(const struct pp_shard *s, struct pp_unit_id u,
                     enum pp_recompute r, enum pp_saved_when when,
                     struct pp_saved out[PP_MAX_SAVED])
{
    const struct pp_shard of = pp_unit_shard(s, &u);
    enum pp_role role = pp_unit_role(of.model, u);
    size_t n = set_saved(&of, u, out);
    r = pp_unit_recompute(of.model, u, r);
    bool adapters =
        role == PP_ROLE_TRAINED && of.model->lora && u.kind == PP_UNIT_LAYER;
    bool read[PP_MAX_SAVED] = {false};
    size_t used[PP_N_UNIT_BLOCKS] = {0}, statistics[PP_N_UNIT_BLOCKS] = {0};
    if (adapters)
        find_read(of.model, u, out, read);
    for (size_t i = 0; i < n; i++) {
        if (u.kind == PP_UNIT_LAYER && (r & part_of(i)))
            out[i].block = block_is_recomputed(out[i].block, when);
        if (role != PP_ROLE_TRAINED || (adapters && !read[i]))
            freeze(of.model, u, role, i, r, when, &out[i]);
        enum pp_saved_block block = out[i].block;
        out[i].offset = used[block];
        out[i].statistics = statistics[block];
        used[block] += out[i].width;
        statistics[block] += out[i].is_statistic ? out[i].width : 0;
    }
    return n;
}

struct pp_experts_room pp_experts_room(const struct pp_shard *s)
{
    const struct pp_moe *e = &s->model->moe;
    const struct pp_mesh *x = &s->mesh;
    bool whole = pp_mesh_has_whole_experts(x), limited = x->expert_capacity > 0;
    size_t h = s->model->hidden, i = pp_shard_expert_columns(s);
    size_t rows = pp_shard_expert_values(s, 1), ep = (size_t)x->ep;
    size_t values = pp_shard_expert_values(s, h);
    size_t other = ep > 1, own = pp_shard_keeps_own_rows(s) ? e->top_k : 0;
    /* One of experts, one of weights. */
    size_t tables = x->expert_drop == PP_DROP_PROBS ? 2 : 1;
    /* The shared expert and its gate have the rows of all tensor-parallel
     * ranks. A sequence may be a single token of these, and has loads. */
    size_t all = whole ? pp_shard_tp(s) : 1, gate = e->shared_gate ? all : 0;
    return (struct pp_experts_room){
        .product = pp_most((1 + other) * values + own * h, gate * h),
        .act = pp_most(pp_shard_expert_values(s, i),
                       all * pp_shard_shared_columns(s)),
        .again = pp_shard_has_rounds(s) ? 4 * pp_shard_expert_values(s, i) : 0,
        .logits = (whole ? all + 1 : 1) * e->n_experts,
        /* That of the gate is computed while rows travel. */
        .weights = pp_most(rows, gate),
        .other_weights = other * rows + own,
        .arrivals = other * 2 * rows,
        .counts = other * 2 * ep * e->n_experts + (limited ? e->n_experts : 0),
        /* Twice: a sum and a sort need room. */
        .choices = limited ? 2 * tables * pp_mesh_routers(x) * e->top_k : 0,
        .rows = rows,
        .values = values};
}

size_t pp_attention_room(const struct pp_shard *s, struct pp_unit_id u)
{
    const struct pp_model *m = s->model;
    const struct pp_mla *a = &m->mla;
    const struct pp_heads h = pp_shard_heads(s, u);
    size_t up = h.n * (a->nope_dim + a->v_dim) + 2 * a->rope_dim;
    /* Queries with gates beside them change places with keys and values. */
    if (pp_model_gates_beside(m))
        return 2 * (h.n + h.n_kv) * h.qk;
    if (!a->kv_rank)
        return h.n * h.v;
    return up > m->hidden ? up : m->hidden;
}

size_t pp_unit_saved_width(const struct pp_shard *s, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block)
{
    struct pp_saved saved[PP_MAX_SAVED];
    size_t most = 0;
    for (int when = PP_IN_FORWARD; when <= PP_IN_BACKWARD; when++) {
        size_t n = pp_unit_saved(s, u, r, (enum pp_saved_when)when, saved),
               sum = 0;
        for (size_t i = 0; i < n; i++)
            if (saved[i].block == block)
                sum += saved[i].width;
        most = sum > most ? sum : most;
    }
    return most;
}
