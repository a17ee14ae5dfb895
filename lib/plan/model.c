/* SPDX-License-Identifier: MIT */
#include "plan/model.h"

#include <stdio.h>
#include <string.h>

static const char *const architecture_names[PP_N_ARCHITECTURES] = {
    [PP_LLAMA] = "LlamaForCausalLM",
    [PP_QWEN2] = "Qwen2ForCausalLM",
    [PP_QWEN3] = "Qwen3ForCausalLM",
};

const char *pp_architecture_name(enum pp_architecture a)
{
    return architecture_names[a];
}

size_t pp_model_n_units(const struct pp_model *m)
{
    return m->n_layers + 3;
}

struct pp_unit_id pp_model_unit(const struct pp_model *m, size_t index)
{
    if (index == 0)
        return (struct pp_unit_id){PP_UNIT_EMBED, 0};
    if (index <= m->n_layers)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - 1};
    if (index == m->n_layers + 1)
        return (struct pp_unit_id){PP_UNIT_NORM, 0};
    return (struct pp_unit_id){PP_UNIT_HEAD, 0};
}

void pp_unit_fqn(struct pp_unit_id u, char buf[PP_FQN_TEXT])
{
    switch (u.kind) {
    case PP_UNIT_EMBED:
        strcpy(buf, "model.embed_tokens");
        break;
    case PP_UNIT_LAYER:
        snprintf(buf, PP_FQN_TEXT, "model.layers.%zu", u.layer);
        break;
    case PP_UNIT_NORM:
        strcpy(buf, "model.norm");
        break;
    case PP_UNIT_HEAD:
        strcpy(buf, "lm_head");
        break;
    }
}

bool pp_unit_by_fqn(const struct pp_model *m, const char *fqn,
                    struct pp_unit_id *u)
{
    char name[PP_FQN_TEXT];
    size_t n = pp_model_n_units(m), first = 0, last = n;
    size_t layer;
    /* Layers carry their number; the other three are compared. */
    if (sscanf(fqn, "model.layers.%zu", &layer) == 1) {
        first = layer < m->n_layers ? layer + 1 : n;
        last = first < n ? first + 1 : n;
    }
    for (size_t i = first; i < last; i++) {
        *u = pp_model_unit(m, i);
        pp_unit_fqn(*u, name);
        if (!strcmp(name, fqn))
            return true;
    }
    return false;
}

static void set_param(struct pp_param *p, const char *prefix, const char *name,
                      size_t rows, size_t cols)
{
    /* Prefixes and names are ours: the bounds only say so to the compiler. */
    snprintf(p->name, sizeof p->name, "%.48s.%.46s", prefix, name);
    p->rows = rows;
    p->cols = cols;
    p->is_matrix = cols > 1;
    size_t n = strlen(name);
    p->is_bias = n >= 4 && !strcmp(name + n - 4, "bias");
}

static void attention_params(const struct pp_model *m, const char *fqn,
                             struct pp_param *out)
{
    size_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    set_param(&out[PP_P_Q], fqn, "self_attn.q_proj.weight", q, m->hidden);
    set_param(&out[PP_P_K], fqn, "self_attn.k_proj.weight", kv, m->hidden);
    set_param(&out[PP_P_V], fqn, "self_attn.v_proj.weight", kv, m->hidden);
    set_param(&out[PP_P_O], fqn, "self_attn.o_proj.weight", m->hidden, q);
    if (m->qkv_bias) {
        set_param(&out[PP_P_Q_BIAS], fqn, "self_attn.q_proj.bias", q, 1);
        set_param(&out[PP_P_K_BIAS], fqn, "self_attn.k_proj.bias", kv, 1);
        set_param(&out[PP_P_V_BIAS], fqn, "self_attn.v_proj.bias", kv, 1);
    }
    if (m->o_bias)
        set_param(&out[PP_P_O_BIAS], fqn, "self_attn.o_proj.bias", m->hidden,
                  1);
    if (m->qk_norm) {
        set_param(&out[PP_P_Q_NORM], fqn, "self_attn.q_norm.weight",
                  m->head_dim, 1);
        set_param(&out[PP_P_K_NORM], fqn, "self_attn.k_norm.weight",
                  m->head_dim, 1);
    }
}

static void mlp_params(const struct pp_model *m, const char *fqn,
                       struct pp_param *out)
{
    size_t h = m->hidden, i = m->intermediate;
    set_param(&out[PP_P_GATE], fqn, "mlp.gate_proj.weight", i, h);
    set_param(&out[PP_P_UP], fqn, "mlp.up_proj.weight", i, h);
    set_param(&out[PP_P_DOWN], fqn, "mlp.down_proj.weight", h, i);
    if (m->mlp_bias) {
        set_param(&out[PP_P_GATE_BIAS], fqn, "mlp.gate_proj.bias", i, 1);
        set_param(&out[PP_P_UP_BIAS], fqn, "mlp.up_proj.bias", i, 1);
        set_param(&out[PP_P_DOWN_BIAS], fqn, "mlp.down_proj.bias", h, 1);
    }
}

size_t pp_unit_params(const struct pp_model *m, struct pp_unit_id u,
                      struct pp_param out[PP_N_LAYER_PARAMS])
{
    char fqn[PP_FQN_TEXT];
    pp_unit_fqn(u, fqn);
    memset(out, 0, PP_N_LAYER_PARAMS * sizeof *out);
    switch (u.kind) {
    case PP_UNIT_EMBED:
    case PP_UNIT_HEAD:
        set_param(&out[PP_P_WEIGHT], fqn, "weight", m->vocab, m->hidden);
        return 1;
    case PP_UNIT_NORM:
        set_param(&out[PP_P_WEIGHT], fqn, "weight", m->hidden, 1);
        return 1;
    case PP_UNIT_LAYER:
        break;
    }
    set_param(&out[PP_P_NORM1], fqn, "input_layernorm.weight", m->hidden, 1);
    set_param(&out[PP_P_NORM2], fqn, "post_attention_layernorm.weight",
              m->hidden, 1);
    attention_params(m, fqn, out);
    mlp_params(m, fqn, out);
    return PP_N_LAYER_PARAMS;
}

uint64_t pp_unit_n_params(const struct pp_model *m, struct pp_unit_id u)
{
    struct pp_param p[PP_N_LAYER_PARAMS];
    size_t n = pp_unit_params(m, u, p);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (uint64_t)p[i].rows * p[i].cols;
    return sum;
}

uint64_t pp_model_n_params(const struct pp_model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        if (u.kind != PP_UNIT_HEAD || !m->tied)
            sum += pp_unit_n_params(m, u);
    }
    return sum;
}

static void layer_saved(const struct pp_model *m, struct pp_saved *out)
{
    size_t h = m->hidden, i = m->intermediate, hd = m->head_dim;
    size_t qk = m->n_heads + m->n_kv_heads, qkv = qk + m->n_kv_heads;
    size_t norm = m->qk_norm; /* 0 removes what only QK-norm needs */
    const struct pp_saved table[PP_N_LAYER_SAVED] = {
        [PP_S_X] = {PP_SAVED_ACT_W, h},
        [PP_S_RSTD1] = {PP_SAVED_ACT_W, 1, true},
        [PP_S_NORM1] = {PP_SAVED_ACT_W, h},
        [PP_S_QKV_RAW] = {PP_SAVED_ACT_W, norm * qk * hd},
        [PP_S_QK_RSTD] = {PP_SAVED_ACT_W, norm * qk, true},
        [PP_S_QKV] = {PP_SAVED_ACT_I, qkv * hd},
        [PP_S_LSE] = {PP_SAVED_ACT_I, m->n_heads, true},
        [PP_S_ATTN] = {PP_SAVED_ACT_W, m->n_heads * hd},
        [PP_S_MID] = {PP_SAVED_ACT_W, h},
        [PP_S_RSTD2] = {PP_SAVED_ACT_W, 1, true},
        [PP_S_NORM2] = {PP_SAVED_ACT_W, h},
        [PP_S_GATE_UP] = {PP_SAVED_ACT_I, 2 * i},
        [PP_S_ACT] = {PP_SAVED_ACT_W, i},
        [PP_S_DNORM1] = {PP_SAVED_GRAD_W, h},
        [PP_S_DQK_NORM] = {PP_SAVED_GRAD_W, norm * qk * hd},
        [PP_S_DQKV] = {PP_SAVED_GRAD_W, qkv * hd},
        [PP_S_DMID] = {PP_SAVED_GRAD_W, h},
        [PP_S_DNORM2] = {PP_SAVED_GRAD_W, h},
        [PP_S_DGATE_UP] = {PP_SAVED_GRAD_W, 2 * i},
        [PP_S_DY] = {PP_SAVED_GRAD_W, h},
    };
    memcpy(out, table, sizeof table);
}

size_t pp_unit_saved(const struct pp_model *m, struct pp_unit_id u,
                     struct pp_saved out[PP_MAX_SAVED])
{
    size_t n = 0, h = m->hidden;
    size_t used[PP_N_SAVED_BLOCKS] = {0}, statistics[PP_N_SAVED_BLOCKS] = {0};
    switch (u.kind) {
    case PP_UNIT_EMBED:
        n = PP_N_EMBED_SAVED;
        out[PP_S_EMBED_DY] = (struct pp_saved){PP_SAVED_GRAD_W, h};
        break;
    case PP_UNIT_LAYER:
        n = PP_N_LAYER_SAVED;
        layer_saved(m, out);
        break;
    case PP_UNIT_NORM:
        n = PP_N_NORM_SAVED;
        out[PP_S_FN_X] = (struct pp_saved){PP_SAVED_ACT_W, h};
        out[PP_S_FN_RSTD] = (struct pp_saved){PP_SAVED_ACT_W, 1, true};
        out[PP_S_FN_DY] = (struct pp_saved){PP_SAVED_GRAD_W, h};
        break;
    case PP_UNIT_HEAD:
        n = PP_N_HEAD_SAVED;
        out[PP_S_HEAD_X] = (struct pp_saved){PP_SAVED_ACT_W, h};
        out[PP_S_HEAD_LSE] = (struct pp_saved){PP_SAVED_ACT_W, 1, true};
        break;
    }
    for (size_t i = 0; i < n; i++) {
        enum pp_saved_block block = out[i].block;
        out[i].offset = used[block];
        out[i].statistics = statistics[block];
        used[block] += out[i].width;
        statistics[block] += out[i].is_statistic ? out[i].width : 0;
    }
    return n;
}

size_t pp_unit_saved_width(const struct pp_model *m, struct pp_unit_id u,
                           enum pp_saved_block block)
{
    struct pp_saved s[PP_MAX_SAVED];
    size_t n = pp_unit_saved(m, u, s), sum = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].block == block)
            sum += s[i].width;
    return sum;
}

struct pp_flops pp_unit_fwd_flops(const struct pp_model *m, struct pp_unit_id u)
{
    double h = (double)m->hidden, q = (double)(m->n_heads * m->head_dim);
    double kv = (double)(m->n_kv_heads * m->head_dim);
    switch (u.kind) {
    case PP_UNIT_LAYER:
        return (struct pp_flops){2 * h * (q + 2 * kv) + 2 * q * h +
                                     6 * h * (double)m->intermediate,
                                 4 * q};
    case PP_UNIT_HEAD:
        return (struct pp_flops){2 * h * (double)m->vocab, 0};
    case PP_UNIT_EMBED:
    case PP_UNIT_NORM:
        break;
    }
    return (struct pp_flops){0, 0};
}
