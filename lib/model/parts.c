/* SPDX-License-Identifier: MIT */
#include "model/parts.h"

#include "model/part_shapes.h"
#include "model/shard.h"

const struct pp_norm_slots pp_norm_slots[PP_N_NORM_PLACES] = {
    [PP_BEFORE_ATTENTION] = {PP_P_NORM1, PP_P_NORM1_BIAS, PP_S_X, PP_S_RSTD1,
                             PP_S_MEAN1, PP_S_NORM1, PP_S_DNORM1, PP_NO_SLOT},
    [PP_AFTER_ATTENTION] = {PP_P_AFTER1, PP_NO_SLOT, PP_S_OUT1, PP_S_RSTD_OUT1,
                            PP_NO_SLOT, PP_NO_SLOT, PP_S_DMID, PP_S_DOUT1},
    [PP_BEFORE_MLP] = {PP_P_NORM2, PP_P_NORM2_BIAS, PP_S_MID, PP_S_RSTD2,
                       PP_S_MEAN2, PP_S_NORM2, PP_S_DNORM2, PP_NO_SLOT},
    [PP_AFTER_MLP] = {PP_P_AFTER2, PP_NO_SLOT, PP_S_OUT2, PP_S_RSTD_OUT2,
                      PP_NO_SLOT, PP_NO_SLOT, PP_S_DY, PP_S_DOUT2},
    [PP_BEFORE_HEAD] = {PP_P_WEIGHT, PP_P_BIAS, PP_S_FN_X, PP_S_FN_RSTD,
                        PP_S_FN_MEAN, PP_NO_SLOT, PP_S_FN_DY, PP_NO_SLOT},
};

/* Sets the weight of a norm. */
static void set_norm(const struct pp_model *m, struct pp_tensor_info *t,
                     size_t rows)
{
    bool from_zero = pp_family_of(m->architecture)->from_zero;
    set_vector(t, rows, from_zero ? PP_INIT_ZEROS : PP_INIT_ONES, PP_SPLIT_NONE,
               1);
}

static void divide_rows(struct pp_tensor_info *t, size_t n_parts)
{
    t->split = PP_SPLIT_ROWS;
    t->n_parts = n_parts;
}

/* --- embedding and head --- */

static void vocabulary_tensors(const struct pp_model *m,
                               const struct pp_model_part *p,
                               struct pp_tensor_info *out)
{
    (void)p;
    set_matrix(&out[PP_P_WEIGHT], m->vocab, m->hidden, PP_SPLIT_ROWS, m->vocab);
}

/* The units of a head divide its words as evenly as can be. */
static void head_tensors(const struct pp_model *m,
                         const struct pp_model_part *p,
                         struct pp_tensor_info *out)
{
    size_t n = m->head_stages ? m->head_stages : 1;
    size_t first = p->unit.layer * m->vocab / n;
    size_t words = (p->unit.layer + 1) * m->vocab / n - first;
    struct pp_tensor_info *t = &out[PP_P_WEIGHT];
    set_matrix(t, words, m->hidden, PP_SPLIT_ROWS, words);
    t->of_rows = m->head_stages ? m->vocab : 0;
    t->first_row = first;
}

/* Every tensor-parallel rank has the weight of a score. */
static void score_tensors(const struct pp_model *m,
                          const struct pp_model_part *p,
                          struct pp_tensor_info *out)
{
    (void)p;
    set_matrix(&out[PP_P_WEIGHT], 1, m->hidden, PP_SPLIT_NONE, 1);
}

static void embedding_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    (void)p;
    out[PP_S_EMBED_DY] = (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
}

static void head_saved(const struct pp_shard *s, const struct pp_model_part *p,
                       struct pp_saved *out)
{
    (void)p;
    out[PP_S_HEAD_X] = (struct pp_saved){PP_SAVED_ACT_W, s->model->hidden};
    size_t tp = pp_shard_row_ranks(s);
    out[PP_S_HEAD_LSE] = (struct pp_saved){PP_SAVED_ACT_W, tp, true};
    out[PP_S_HEAD_SCALE] = (struct pp_saved){PP_SAVED_ACT_W, tp, true};
    for (size_t k = PP_S_HEAD_X; s->model->n_mtp && k < PP_S_AHEAD_X; k++)
        out[PP_S_AHEAD_X + k] = out[k];
}

/* The log-sum-exp and the scale of each row go back to the units of the head.
 */
static void loss_saved(const struct pp_shard *s, const struct pp_model_part *p,
                       struct pp_saved *out)
{
    (void)p;
    size_t tp = pp_shard_row_ranks(s);
    out[PP_S_HEAD_LSE] = (struct pp_saved){PP_SAVED_ACT_I, tp, true};
    out[PP_S_HEAD_SCALE] = (struct pp_saved){PP_SAVED_ACT_I, tp, true};
}

static void positions_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    (void)p;
    set_matrix(&out[PP_P_POSITIONS], m->max_position, m->hidden, PP_SPLIT_NONE,
               1);
    out[PP_P_POSITIONS].frozen = pp_family_of(m->architecture)->fixed_positions;
}

/* The embedding saves what positions need. */
static void nothing_saved(const struct pp_shard *s,
                          const struct pp_model_part *p, struct pp_saved *out)
{
    (void)s, (void)p, (void)out;
}

/* Tensor-parallel ranks have it whole, for their own rows. */
static void connector_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    (void)p;
    set_matrix(&out[PP_P_CONNECTOR], m->hidden, m->reads, PP_SPLIT_NONE, 1);
    set_bias(&out[PP_P_CONNECTOR_BIAS], m->hidden, PP_SPLIT_NONE, 1);
}

static void connector_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    (void)p;
    out[PP_S_EMBED_X] = (struct pp_saved){PP_SAVED_ACT_W, s->model->reads};
}

/* --- norms --- */

static void no_tensors(const struct pp_model *m, const struct pp_model_part *p,
                       struct pp_tensor_info *out)
{
    (void)m, (void)p, (void)out;
}

static void rms_norm_tensors(const struct pp_model *m,
                             const struct pp_model_part *p,
                             struct pp_tensor_info *out)
{
    set_norm(m, &out[pp_norm_slots[p->place].weight], m->hidden);
}

/* The unit saves the input of a norm that is not after a block. */
static void rms_norm_saved(const struct pp_shard *s,
                           const struct pp_model_part *p, struct pp_saved *out)
{
    const struct pp_norm_slots *n = &pp_norm_slots[p->place];
    out[n->rstd] = (struct pp_saved){PP_SAVED_ACT_W, 1, true};
    out[n->dy] = (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
    if (n->y != PP_NO_SLOT)
        out[n->y] = (struct pp_saved){PP_SAVED_ACT_W, s->model->hidden};
    if (n->dx == PP_NO_SLOT)
        return;
    out[n->x] = (struct pp_saved){PP_SAVED_ACT_W, s->model->hidden};
    out[n->dx] = (struct pp_saved){PP_SAVED_GRAD_W, s->model->hidden};
}

static void layer_norm_tensors(const struct pp_model *m,
                               const struct pp_model_part *p,
                               struct pp_tensor_info *out)
{
    rms_norm_tensors(m, p, out);
    if (!pp_family_of(m->architecture)->no_norm_bias)
        set_bias(&out[pp_norm_slots[p->place].bias], m->hidden, PP_SPLIT_NONE,
                 1);
}

static void layer_norm_saved(const struct pp_shard *s,
                             const struct pp_model_part *p,
                             struct pp_saved *out)
{
    rms_norm_saved(s, p, out);
    out[pp_norm_slots[p->place].mean] =
        (struct pp_saved){PP_SAVED_ACT_W, 1, true};
}

/* --- attention --- */

/* The bias of o_proj follows the sum over tensor-parallel ranks, so that each
 * of them has it whole; likewise that of down_proj. */
static void attention_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    const struct pp_heads of = pp_unit_heads(m, p->unit);
    size_t h = m->hidden, nq = of.n, nkv = of.n_kv, o = nq * of.v;
    size_t q = nq * of.qk, k = nkv * of.qk, v = nkv * of.v;
    bool fused = !pp_family_of(m->architecture)->names->layer[PP_P_K];
    set_matrix(&out[PP_P_O], h, o, PP_SPLIT_COLUMNS, nq);
    size_t rows = fused ? q + k + v : q, n_parts = fused ? nkv : nq;
    rows += pp_model_gates_beside(m) ? q : 0;
    set_matrix(&out[PP_P_Q], rows, h, PP_SPLIT_ROWS, n_parts);
    if (m->qkv_bias)
        set_bias(&out[PP_P_Q_BIAS], rows, PP_SPLIT_ROWS, n_parts);
    if (fused) {
        set_segments(&out[PP_P_Q], q, k, v);
        set_segments(&out[PP_P_Q_BIAS], q, k, v);
    } else {
        set_matrix(&out[PP_P_K], k, h, PP_SPLIT_ROWS, nkv);
        set_matrix(&out[PP_P_V], v, h, PP_SPLIT_ROWS, nkv);
    }
    if (m->qkv_bias && !fused) {
        if (!m->no_k_bias)
            set_bias(&out[PP_P_K_BIAS], k, PP_SPLIT_ROWS, nkv);
        set_bias(&out[PP_P_V_BIAS], v, PP_SPLIT_ROWS, nkv);
    }
    if (m->o_bias)
        set_bias(&out[PP_P_O_BIAS], h, PP_SPLIT_NONE, 1);
    if (m->gates && !pp_model_gates_beside(m))
        set_matrix(&out[PP_P_ATTN_GATE], o, h, PP_SPLIT_ROWS, nq);
    if (pp_layer_set_has(&m->sinks, p->unit.layer))
        set_vector(&out[PP_P_SINKS], nq, PP_INIT_NORMAL, PP_SPLIT_ROWS, nq);
    if (pp_family_of(m->architecture)->names->layer[PP_P_Q_NORM] &&
        m->qk_norm) {
        bool all = m->norms_all_heads;
        set_norm(m, &out[PP_P_Q_NORM], all ? q : of.qk);
        set_norm(m, &out[PP_P_K_NORM], all ? k : of.qk);
        if (all) {
            divide_rows(&out[PP_P_Q_NORM], nq);
            divide_rows(&out[PP_P_K_NORM], nkv);
        }
    }
}

static void attention_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    const struct pp_model *m = s->model;
    const struct pp_heads h = pp_shard_heads(s, p->unit);
    size_t tp = pp_shard_row_ranks(s), nh = tp * h.n, nkv = tp * h.n_kv;
    size_t n = nh + nkv, qk = n * h.qk, o = nh * h.v;
    /* 0 removes the tensors of QK-norm, or of the gradient of its weight. */
    size_t norm = pp_unit_norms_qk(m, p->unit);
    size_t of_weight =
        pp_family_of(m->architecture)->names->layer[PP_P_Q_NORM] ? norm : 0;
    size_t row = qk + nkv * h.v + (m->gates ? o : 0);
    size_t norms = m->norms_all_heads ? 2 * tp : n;
    out[PP_S_QKV_RAW] = (struct pp_saved){PP_SAVED_ACT_W, norm * qk};
    out[PP_S_QK_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, norm * norms, true};
    out[PP_S_QKV] = (struct pp_saved){PP_SAVED_ACT_I, row};
    out[PP_S_LSE] = (struct pp_saved){PP_SAVED_ACT_I, nh, true};
    out[PP_S_ATTN] = (struct pp_saved){PP_SAVED_ACT_W, o};
    out[PP_S_GATED] = (struct pp_saved){PP_SAVED_ACT_W, m->gates ? o : 0};
    out[PP_S_DQK_NORM] = (struct pp_saved){PP_SAVED_GRAD_W, of_weight * qk};
    out[PP_S_DQKV] = (struct pp_saved){PP_SAVED_GRAD_W, row};
    out[PP_S_DKEYS] = (struct pp_saved){PP_SAVED_GRAD_KEYS, nkv * (h.qk + h.v)};
    out[PP_S_DSINKS] = (struct pp_saved){
        PP_SAVED_GRAD_W, pp_layer_set_has(&m->sinks, p->unit.layer) ? nh : 0,
        true};
}

/* The latent values serve all heads: every tensor-parallel rank has their
 * products. */
static void latent_tensors(const struct pp_model *m,
                           const struct pp_model_part *p,
                           struct pp_tensor_info *out)
{
    (void)p;
    const struct pp_mla *a = &m->mla;
    size_t h = m->hidden, nh = m->n_heads, q = nh * m->head_dim;
    size_t low = a->kv_rank + a->rope_dim;
    if (a->q_rank) {
        set_matrix(&out[PP_P_Q_A], a->q_rank, h, PP_SPLIT_NONE, 1);
        set_norm(m, &out[PP_P_Q_A_NORM], a->q_rank);
        set_matrix(&out[PP_P_Q_B], q, a->q_rank, PP_SPLIT_ROWS, nh);
        if (m->qkv_bias)
            set_bias(&out[PP_P_Q_A_BIAS], a->q_rank, PP_SPLIT_NONE, 1);
    } else {
        set_matrix(&out[PP_P_Q], q, h, PP_SPLIT_ROWS, nh);
    }
    set_matrix(&out[PP_P_KV_A], low, h, PP_SPLIT_NONE, 1);
    set_norm(m, &out[PP_P_KV_A_NORM], a->kv_rank);
    set_matrix(&out[PP_P_KV_B], nh * (a->nope_dim + a->v_dim), a->kv_rank,
               PP_SPLIT_ROWS, nh);
    if (m->qkv_bias)
        set_bias(&out[PP_P_KV_A_BIAS], low, PP_SPLIT_NONE, 1);
    set_matrix(&out[PP_P_O], h, nh * a->v_dim, PP_SPLIT_COLUMNS, nh);
    if (m->o_bias)
        set_bias(&out[PP_P_O_BIAS], h, PP_SPLIT_NONE, 1);
}

static void latent_saved(const struct pp_shard *s,
                         const struct pp_model_part *p, struct pp_saved *out)
{
    const struct pp_mla *a = &s->model->mla;
    size_t tp = pp_shard_row_ranks(s);
    size_t nh = tp * pp_shard_heads(s, p->unit).n;
    size_t kv = nh * (s->model->head_dim + a->v_dim);
    size_t qkv = nh * s->model->head_dim + kv;
    size_t low = tp * (a->q_rank + a->kv_rank), rope = tp * a->rope_dim;
    size_t norms = tp * (a->q_rank > 0 ? 2 : 1);
    out[PP_S_LATENT_RAW] = (struct pp_saved){PP_SAVED_ACT_W, low + rope};
    out[PP_S_LATENT_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, norms, true};
    out[PP_S_LATENT] = (struct pp_saved){PP_SAVED_ACT_W, low};
    out[PP_S_QKV] = (struct pp_saved){PP_SAVED_ACT_I, qkv};
    out[PP_S_LSE] = (struct pp_saved){PP_SAVED_ACT_I, nh, true};
    out[PP_S_ATTN] = (struct pp_saved){PP_SAVED_ACT_W, nh * a->v_dim};
    out[PP_S_DLATENT] = (struct pp_saved){PP_SAVED_GRAD_W, low};
    out[PP_S_DLATENT_RAW] = (struct pp_saved){PP_SAVED_GRAD_W, low + rope};
    out[PP_S_DQKV] = (struct pp_saved){PP_SAVED_GRAD_W, qkv};
    out[PP_S_DKEYS] = (struct pp_saved){PP_SAVED_GRAD_KEYS, kv};
}

/* Ranks divide the heads of keys, with their values. */
static void delta_tensors(const struct pp_model *m,
                          const struct pp_model_part *p,
                          struct pp_tensor_info *out)
{
    (void)p;
    const struct pp_delta *d = &m->delta;
    size_t h = m->hidden, n = d->value_heads, keys = d->key_heads;
    size_t values = n * d->value_dim, channels = pp_delta_channels(d);
    size_t all_keys = keys * d->key_dim;
    set_matrix(&out[PP_P_DELTA_CONV], channels, d->taps, PP_SPLIT_ROWS, keys);
    set_segments(&out[PP_P_DELTA_CONV], all_keys, all_keys, values);
    if (pp_model_delta_grouped(m)) {
        set_matrix(&out[PP_P_DELTA_QKV], channels + values, h, PP_SPLIT_ROWS,
                   keys);
        set_matrix(&out[PP_P_DELTA_B], 2 * n, h, PP_SPLIT_ROWS, keys);
    } else {
        set_matrix(&out[PP_P_DELTA_QKV], channels, h, PP_SPLIT_ROWS, keys);
        set_segments(&out[PP_P_DELTA_QKV], all_keys, all_keys, values);
        set_matrix(&out[PP_P_DELTA_Z], values, h, PP_SPLIT_ROWS, keys);
        set_matrix(&out[PP_P_DELTA_B], n, h, PP_SPLIT_ROWS, keys);
        set_matrix(&out[PP_P_DELTA_A], n, h, PP_SPLIT_ROWS, keys);
    }
    out[PP_P_DELTA_CONV].n_dims = 3;
    out[PP_P_DELTA_CONV].inner[0] = 1;
    out[PP_P_DELTA_CONV].inner[1] = d->taps;
    set_vector(&out[PP_P_DELTA_DT], n, PP_INIT_ONES, PP_SPLIT_ROWS, keys);
    set_vector(&out[PP_P_DELTA_LOG], n, PP_INIT_ONES, PP_SPLIT_ROWS, keys);
    set_vector(&out[PP_P_DELTA_NORM], d->value_dim, PP_INIT_ONES, PP_SPLIT_NONE,
               1);
    set_matrix(&out[PP_P_DELTA_O], h, values, PP_SPLIT_COLUMNS, keys);
}

static void delta_saved(const struct pp_shard *s, const struct pp_model_part *p,
                        struct pp_saved *out)
{
    (void)p;
    const struct pp_delta *d = &s->model->delta;
    size_t values = d->value_heads * d->value_dim, row = pp_delta_outputs(d);
    size_t tp = pp_shard_row_ranks(s);
    out[PP_S_QKV_RAW] = (struct pp_saved){PP_SAVED_ACT_W, row};
    out[PP_S_ATTN] = (struct pp_saved){PP_SAVED_ACT_I, values};
    out[PP_S_GATED] = (struct pp_saved){PP_SAVED_ACT_W, values};
    out[PP_S_DQKV] = (struct pp_saved){PP_SAVED_GRAD_W, row};
    out[PP_S_DQK_NORM] =
        (struct pp_saved){PP_SAVED_GRAD_W, pp_delta_channels(d)};
    /* The rows of all context-parallel ranks, for some of the heads. */
    out[PP_S_DSINKS] = (struct pp_saved){
        PP_SAVED_GRAD_W, tp * (size_t)s->mesh.cp * d->value_dim};
}

/* --- the MLP --- */

static void gated_mlp_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    (void)p;
    size_t h = m->hidden, i = m->intermediate;
    if (pp_family_of(m->architecture)->names->layer[PP_P_UP]) {
        set_matrix(&out[PP_P_GATE], i, h, PP_SPLIT_ROWS, i);
        set_matrix(&out[PP_P_UP], i, h, PP_SPLIT_ROWS, i);
    } else {
        set_matrix(&out[PP_P_GATE], 2 * i, h, PP_SPLIT_ROWS, i);
        set_segments(&out[PP_P_GATE], i, i, 0);
    }
    set_matrix(&out[PP_P_DOWN], h, i, PP_SPLIT_COLUMNS, i);
    if (m->mlp_bias) {
        set_bias(&out[PP_P_GATE_BIAS], i, PP_SPLIT_ROWS, i);
        set_bias(&out[PP_P_UP_BIAS], i, PP_SPLIT_ROWS, i);
        set_bias(&out[PP_P_DOWN_BIAS], h, PP_SPLIT_NONE, 1);
    }
}

static void gated_mlp_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    (void)p;
    size_t i = pp_shard_row_ranks(s) * pp_shard_columns(s);
    out[PP_S_GATE_UP] = (struct pp_saved){PP_SAVED_ACT_I, 2 * i};
    out[PP_S_ACT] = (struct pp_saved){PP_SAVED_ACT_W, i};
    out[PP_S_DGATE_UP] = (struct pp_saved){PP_SAVED_GRAD_W, 2 * i};
}

/* At first a and b of xielu (kernels.h) are 0.8. */
static void xielu_tensors(struct pp_tensor_info *out)
{
    static const double first[] = {0.20345, -1.05022, 0.5, -1e-6};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        struct pp_tensor_info *t = &out[PP_P_XIELU_P + i];
        set_vector(t, 1, PP_INIT_VALUE, PP_SPLIT_NONE, 1);
        t->value = first[i];
        t->frozen = i >= 2;
        t->n_dims = !t->frozen;
    }
}

static void plain_mlp_tensors(const struct pp_model *m,
                              const struct pp_model_part *p,
                              struct pp_tensor_info *out)
{
    (void)p;
    size_t h = m->hidden, i = m->intermediate;
    set_matrix(&out[PP_P_UP], i, h, PP_SPLIT_ROWS, i);
    set_matrix(&out[PP_P_DOWN], h, i, PP_SPLIT_COLUMNS, i);
    if (m->mlp_bias) {
        set_bias(&out[PP_P_UP_BIAS], i, PP_SPLIT_ROWS, i);
        set_bias(&out[PP_P_DOWN_BIAS], h, PP_SPLIT_NONE, 1);
    }
    if (m->gelu == PP_XIELU)
        xielu_tensors(out);
}

static void plain_mlp_saved(const struct pp_shard *s,
                            const struct pp_model_part *p, struct pp_saved *out)
{
    (void)p;
    size_t i = pp_shard_row_ranks(s) * pp_shard_columns(s);
    out[PP_S_GATE_UP] = (struct pp_saved){PP_SAVED_ACT_I, i};
    out[PP_S_ACT] = (struct pp_saved){PP_SAVED_ACT_W, i};
    out[PP_S_DGATE_UP] = (struct pp_saved){PP_SAVED_GRAD_W, i};
    size_t numbers = s->model->gelu == PP_XIELU ? 2 : 0;
    out[PP_S_DXIELU] = (struct pp_saved){PP_SAVED_GRAD_W,
                                         numbers * pp_shard_row_ranks(s), true};
}

/* --- experts --- */

/* Every expert is a gated MLP, which tensor-parallel ranks divide as such,
 * unless they hold whole ones. All of them have the whole router. */
static void experts_tensors(const struct pp_model *m,
                            const struct pp_model_part *p,
                            struct pp_tensor_info *out)
{
    (void)p;
    const struct pp_moe *e = &m->moe;
    size_t h = m->hidden, i = e->intermediate, s = e->shared;
    set_matrix(&out[PP_P_ROUTER], e->n_experts, h, PP_SPLIT_NONE, 1);
    if (e->score_bias) {
        set_bias(&out[PP_P_ROUTER_BIAS], e->n_experts, PP_SPLIT_NONE, 1);
        out[PP_P_ROUTER_BIAS].frozen = out[PP_P_ROUTER_BIAS].by_load = true;
    }
    const struct pp_names *names = pp_family_of(m->architecture)->names;
    bool fused = !names->layer[PP_P_EXPERT_UP];
    set_matrix(&out[PP_P_EXPERT_GATE], fused ? 2 * i : i, h, PP_SPLIT_ROWS, i);
    if (fused && !names->alternate)
        set_segments(&out[PP_P_EXPERT_GATE], i, i, 0);
    if (!fused)
        set_matrix(&out[PP_P_EXPERT_UP], i, h, PP_SPLIT_ROWS, i);
    set_matrix(&out[PP_P_EXPERT_DOWN], h, i, PP_SPLIT_COLUMNS, i);
    if (e->biases) {
        set_bias(&out[PP_P_ROUTER_OFFSET], e->n_experts, PP_SPLIT_NONE, 1);
        set_bias(&out[PP_P_EXPERT_GATE_BIAS], 2 * i, PP_SPLIT_ROWS, i);
        set_bias(&out[PP_P_EXPERT_DOWN_BIAS], h, PP_SPLIT_NONE, 1);
    }
    for (size_t slot = PP_P_EXPERT_GATE; slot < PP_N_LAYER_PARAMS; slot++)
        out[slot].n_equal = e->n_experts;
    if (!s)
        return;
    if (names->layer[PP_P_SHARED_UP]) {
        set_matrix(&out[PP_P_SHARED_GATE], s, h, PP_SPLIT_ROWS, s);
        set_matrix(&out[PP_P_SHARED_UP], s, h, PP_SPLIT_ROWS, s);
    } else {
        set_matrix(&out[PP_P_SHARED_GATE], 2 * s, h, PP_SPLIT_ROWS, s);
        set_segments(&out[PP_P_SHARED_GATE], s, s, 0);
    }
    set_matrix(&out[PP_P_SHARED_DOWN], h, s, PP_SPLIT_COLUMNS, s);
    if (e->shared_gate)
        set_matrix(&out[PP_P_SHARED_WEIGHT], 1, h, PP_SPLIT_NONE, 1);
}

static void experts_saved(const struct pp_shard *s,
                          const struct pp_model_part *p, struct pp_saved *out)
{
    (void)p;
    const struct pp_moe *e = &s->model->moe;
    size_t tp = pp_shard_row_ranks(s), routed = pp_shard_routed_ranks(s);
    size_t k = routed * e->top_k, n = routed * e->n_experts;
    size_t i = routed * pp_shard_expert_values(s, pp_shard_expert_columns(s));
    size_t of_all = tp * pp_shard_shared_columns(s);
    size_t gate = e->shared && e->shared_gate ? tp : 0;
    out[PP_S_PROBS] = (struct pp_saved){PP_SAVED_ACT_I, n, true};
    out[PP_S_ROUTING] = (struct pp_saved){PP_SAVED_ACT_W, 3 * k, true};
    out[PP_S_WEIGHT] = (struct pp_saved){PP_SAVED_ACT_W, k, true};
    out[PP_S_SHARED_WEIGHT] = (struct pp_saved){PP_SAVED_ACT_W, gate, true};
    out[PP_S_EXPERT_GATE_UP] = (struct pp_saved){PP_SAVED_ACT_I, 2 * i};
    out[PP_S_EXPERT_ACT] = (struct pp_saved){PP_SAVED_ACT_W, i};
    out[PP_S_DROUTER] = (struct pp_saved){PP_SAVED_GRAD_W, n};
    out[PP_S_DSHARED_WEIGHT] = (struct pp_saved){PP_SAVED_GRAD_W, gate};
    out[PP_S_DEXPERT_GATE_UP] = (struct pp_saved){PP_SAVED_GRAD_W, 2 * i};
    out[PP_S_GATE_UP] = (struct pp_saved){PP_SAVED_ACT_I, 2 * of_all};
    out[PP_S_ACT] = (struct pp_saved){PP_SAVED_ACT_W, of_all};
    out[PP_S_DGATE_UP] = (struct pp_saved){PP_SAVED_GRAD_W, 2 * of_all};
}

/* --- multi-token prediction --- */

/* Tensor-parallel ranks have its product whole, for their own rows. */
static void join_tensors(const struct pp_model *m,
                         const struct pp_model_part *p,
                         struct pp_tensor_info *out)
{
    (void)p;
    size_t h = m->hidden;
    set_matrix(&out[PP_P_NEXT_EMBED], m->vocab, h, PP_SPLIT_ROWS, m->vocab);
    out[PP_P_NEXT_EMBED].tied_to = pp_embedding_name(m);
    set_norm(m, &out[PP_P_NEXT_NORM], h);
    set_norm(m, &out[PP_P_TRUNK_NORM], h);
    set_norm(m, &out[PP_P_MTP_NORM], h);
    set_matrix(&out[PP_P_JOIN], h, 2 * h, PP_SPLIT_NONE, 1);
}

static void join_saved(const struct pp_shard *s, const struct pp_model_part *p,
                       struct pp_saved *out)
{
    (void)p;
    size_t h = s->model->hidden;
    out[PP_S_NEXT] = (struct pp_saved){PP_SAVED_ACT_W, h};
    out[PP_S_TRUNK] = (struct pp_saved){PP_SAVED_ACT_W, h};
    out[PP_S_MTP_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, 3, true};
    out[PP_S_JOINED] = (struct pp_saved){PP_SAVED_ACT_W, 2 * h};
    out[PP_S_MTP_OUT] = (struct pp_saved){PP_SAVED_ACT_W, h};
    out[PP_S_DMTP] = (struct pp_saved){PP_SAVED_GRAD_W, h};
    out[PP_S_DJOIN] = (struct pp_saved){PP_SAVED_GRAD_W, h};
    out[PP_S_DJOINED] = (struct pp_saved){PP_SAVED_GRAD_W, 2 * h};
    out[PP_S_DNEXT] = (struct pp_saved){PP_SAVED_GRAD_W, h};
}

const struct pp_part_row *pp_part_row(enum pp_part_kind kind)
{
    static const struct pp_part_row rows[PP_PART_PATCHES] = {
        [PP_PART_EMBEDDING] = {vocabulary_tensors, embedding_saved},
        [PP_PART_POSITIONS] = {positions_tensors, nothing_saved},
        [PP_PART_CONNECTOR] = {connector_tensors, connector_saved},
        [PP_PART_LAYER_NORM] = {layer_norm_tensors, layer_norm_saved},
        [PP_PART_PLAIN_MLP] = {plain_mlp_tensors, plain_mlp_saved},
        [PP_PART_RMS_NORM] = {rms_norm_tensors, rms_norm_saved},
        [PP_PART_PLAIN_NORM] = {no_tensors, layer_norm_saved},
        [PP_PART_LOSS] = {no_tensors, loss_saved},
        [PP_PART_ATTENTION] = {attention_tensors, attention_saved},
        [PP_PART_GATED_MLP] = {gated_mlp_tensors, gated_mlp_saved},
        [PP_PART_LATENT_ATTENTION] = {latent_tensors, latent_saved},
        [PP_PART_DELTA] = {delta_tensors, delta_saved},
        [PP_PART_EXPERTS] = {experts_tensors, experts_saved},
        [PP_PART_JOIN] = {join_tensors, join_saved},
        [PP_PART_HEAD] = {head_tensors, head_saved},
        [PP_PART_SCORE] = {score_tensors, head_saved},
    };
    return kind < PP_PART_PATCHES ? &rows[kind] : pp_encoder_part_row(kind);
}
