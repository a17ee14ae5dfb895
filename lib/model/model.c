/* SPDX-License-Identifier: MIT */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/vision.h"

static const char *const architecture_names[PP_N_ARCHITECTURES] = {
    [PP_LLAMA] = "LlamaForCausalLM",
    [PP_QWEN2] = "Qwen2ForCausalLM",
    [PP_QWEN3] = "Qwen3ForCausalLM",
    [PP_MISTRAL] = "MistralForCausalLM",
    [PP_QWEN3_MOE] = "Qwen3MoeForCausalLM",
    [PP_MIXTRAL] = "MixtralForCausalLM",
    [PP_GPT_OSS] = "GptOssForCausalLM",
    [PP_DEEPSEEK_V3] = "DeepseekV3ForCausalLM",
    [PP_GPT2] = "GPT2LMHeadModel",
};

const char *pp_architecture_name(enum pp_architecture a)
{
    return architecture_names[a];
}

const char *pp_model_architecture(const struct pp_model *m)
{
    if (m->vision.kind != PP_VISION_NONE)
        return pp_vision_name(m->vision.kind);
    return m->table ? m->table->architecture
                    : pp_architecture_name(m->architecture);
}

size_t pp_model_n_units(const struct pp_model *m)
{
    return m->table ? m->table->n
                    : pp_vision_n_units(m) + m->n_layers + 3 + m->n_mtp;
}

size_t pp_model_n_first(const struct pp_model *m)
{
    return m->table ? m->table->n_first : pp_vision_n_units(m) + 1;
}

size_t pp_model_index(const struct pp_model *m, struct pp_unit_id u)
{
    size_t first = pp_model_n_first(m);
    if (u.kind == PP_UNIT_LAYER)
        return first + u.layer + pp_unit_is_mtp(m, u);
    if (m->table)
        return u.layer;
    if (pp_unit_is_vision(u))
        return pp_vision_index(m, u);
    return u.kind == PP_UNIT_EMBED  ? first - 1
           : u.kind == PP_UNIT_NORM ? first + m->n_layers
                                    : first + m->n_layers + 1 + m->n_mtp;
}

struct pp_unit_id pp_model_unit(const struct pp_model *m, size_t index)
{
    if (m->table) {
        enum pp_unit_kind kind = m->table->rows[index].kind;
        size_t first = kind == PP_UNIT_LAYER ? m->table->n_first : 0;
        return (struct pp_unit_id){kind, index - first};
    }
    size_t vision = pp_vision_n_units(m);
    if (index < vision)
        return pp_vision_unit(m, index);
    index -= vision;
    if (index == 0)
        return (struct pp_unit_id){PP_UNIT_EMBED, 0};
    if (index <= m->n_layers)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - 1};
    if (index == m->n_layers + 1)
        return (struct pp_unit_id){PP_UNIT_NORM, 0};
    if (index < m->n_layers + 2 + m->n_mtp)
        return (struct pp_unit_id){PP_UNIT_LAYER, index - 2};
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
    default:
        strcpy(buf, "lm_head");
        break;
    }
}

void pp_model_fqn(const struct pp_model *m, struct pp_unit_id u,
                  char buf[PP_FQN_TEXT])
{
    if (m->table)
        snprintf(buf, PP_FQN_TEXT, "%s", pp_unit_row(m, u)->fqn);
    else if (pp_unit_is_vision(u))
        pp_vision_fqn(m, u, buf);
    else
        pp_unit_fqn(u, buf);
}

bool pp_unit_by_fqn(const struct pp_model *m, const char *fqn,
                    struct pp_unit_id *u)
{
    char name[PP_FQN_TEXT];
    size_t n = pp_model_n_units(m), first = 0, last = n;
    size_t layer;
    /* A layer is found by its number, without a search. */
    if (!m->table && sscanf(fqn, "model.layers.%zu", &layer) == 1) {
        first = n;
        if (layer < m->n_layers + m->n_mtp)
            first =
                pp_model_index(m, (struct pp_unit_id){PP_UNIT_LAYER, layer});
        last = first < n ? first + 1 : n;
    }
    for (size_t i = first; i < last; i++) {
        *u = pp_model_unit(m, i);
        pp_model_fqn(m, *u, name);
        if (!strcmp(name, fqn))
            return true;
    }
    return false;
}

/* All names are shorter; the bounds are for the compiler's checks. */
static void set_name(struct pp_tensor_info *t, const char *prefix,
                     const char *name)
{
    snprintf(t->name, sizeof t->name, "%.48s.%.46s", prefix, name);
}

static void set_matrix(struct pp_tensor_info *t, const char *prefix,
                       const char *name, size_t rows, size_t cols,
                       enum pp_tensor_split split, size_t n_parts)
{
    *t = (struct pp_tensor_info){.rows = rows,
                                 .cols = cols,
                                 .n_dims = 2,
                                 .init = PP_INIT_NORMAL,
                                 .split = split,
                                 .n_parts = n_parts};
    set_name(t, prefix, name);
}

static void set_bias(struct pp_tensor_info *t, const char *prefix,
                     const char *name, size_t rows, enum pp_tensor_split split,
                     size_t n_parts)
{
    *t = (struct pp_tensor_info){.rows = rows,
                                 .cols = 1,
                                 .n_dims = 1,
                                 .init = PP_INIT_ZEROS,
                                 .split = split,
                                 .n_parts = n_parts};
    set_name(t, prefix, name);
}

/* Sets the weight of a norm. */
static void set_norm(struct pp_tensor_info *t, const char *prefix,
                     const char *name, size_t rows)
{
    *t = (struct pp_tensor_info){.rows = rows,
                                 .cols = 1,
                                 .n_dims = 1,
                                 .init = PP_INIT_ONES,
                                 .split = PP_SPLIT_NONE,
                                 .n_parts = 1};
    set_name(t, prefix, name);
}

/* The bias of o_proj follows the sum over tensor-parallel ranks, so that each
 * of them has it whole; likewise that of down_proj. */
static void attention_params(const struct pp_model *m, const char *fqn,
                             struct pp_tensor_info *out)
{
    size_t h = m->hidden, nq = m->n_heads, nkv = m->n_kv_heads;
    size_t q = nq * m->head_dim, kv = nkv * m->head_dim;
    set_matrix(&out[PP_P_Q], fqn, "self_attn.q_proj.weight", q, h,
               PP_SPLIT_ROWS, nq);
    set_matrix(&out[PP_P_K], fqn, "self_attn.k_proj.weight", kv, h,
               PP_SPLIT_ROWS, nkv);
    set_matrix(&out[PP_P_V], fqn, "self_attn.v_proj.weight", kv, h,
               PP_SPLIT_ROWS, nkv);
    set_matrix(&out[PP_P_O], fqn, "self_attn.o_proj.weight", h, q,
               PP_SPLIT_COLUMNS, nq);
    if (m->qkv_bias) {
        set_bias(&out[PP_P_Q_BIAS], fqn, "self_attn.q_proj.bias", q,
                 PP_SPLIT_ROWS, nq);
        set_bias(&out[PP_P_K_BIAS], fqn, "self_attn.k_proj.bias", kv,
                 PP_SPLIT_ROWS, nkv);
        set_bias(&out[PP_P_V_BIAS], fqn, "self_attn.v_proj.bias", kv,
                 PP_SPLIT_ROWS, nkv);
    }
    if (m->o_bias)
        set_bias(&out[PP_P_O_BIAS], fqn, "self_attn.o_proj.bias", h,
                 PP_SPLIT_NONE, 1);
    if (m->qk_norm) {
        set_norm(&out[PP_P_Q_NORM], fqn, "self_attn.q_norm.weight",
                 m->head_dim);
        set_norm(&out[PP_P_K_NORM], fqn, "self_attn.k_norm.weight",
                 m->head_dim);
    }
}

static void mlp_params(const struct pp_model *m, const char *fqn,
                       struct pp_tensor_info *out)
{
    size_t h = m->hidden, i = m->intermediate;
    set_matrix(&out[PP_P_GATE], fqn, "mlp.gate_proj.weight", i, h,
               PP_SPLIT_ROWS, i);
    set_matrix(&out[PP_P_UP], fqn, "mlp.up_proj.weight", i, h, PP_SPLIT_ROWS,
               i);
    set_matrix(&out[PP_P_DOWN], fqn, "mlp.down_proj.weight", h, i,
               PP_SPLIT_COLUMNS, i);
    if (m->mlp_bias) {
        set_bias(&out[PP_P_GATE_BIAS], fqn, "mlp.gate_proj.bias", i,
                 PP_SPLIT_ROWS, i);
        set_bias(&out[PP_P_UP_BIAS], fqn, "mlp.up_proj.bias", i, PP_SPLIT_ROWS,
                 i);
        set_bias(&out[PP_P_DOWN_BIAS], fqn, "mlp.down_proj.bias", h,
                 PP_SPLIT_NONE, 1);
    }
}

size_t pp_unit_params(const struct pp_model *m, struct pp_unit_id u,
                      struct pp_tensor_info out[PP_N_LAYER_PARAMS])
{
    char fqn[PP_FQN_TEXT];
    pp_unit_fqn(u, fqn);
    memset(out, 0, PP_N_LAYER_PARAMS * sizeof *out);
    switch (u.kind) {
    case PP_UNIT_EMBED:
    case PP_UNIT_HEAD:
        set_matrix(&out[PP_P_WEIGHT], fqn, "weight", m->vocab, m->hidden,
                   PP_SPLIT_ROWS, m->vocab);
        return 1;
    case PP_UNIT_NORM:
        set_norm(&out[PP_P_WEIGHT], fqn, "weight", m->hidden);
        return 1;
    case PP_UNIT_LAYER:
        break;
    default:
        return 0;
    }
    set_norm(&out[PP_P_NORM1], fqn, "input_layernorm.weight", m->hidden);
    set_norm(&out[PP_P_NORM2], fqn, "post_attention_layernorm.weight",
             m->hidden);
    if (!m->mla.kv_rank)
        attention_params(m, fqn, out);
    if (!pp_layer_set_has(&m->moe.layers, u.layer))
        mlp_params(m, fqn, out);
    return PP_N_LAYER_PARAMS;
}

size_t pp_model_rotary(const struct pp_model *m)
{
    if (m->table || m->architecture == PP_GPT2) /* it adds positions */
        return 0;
    return m->mla.kv_rank ? m->mla.rope_dim : m->head_dim;
}

size_t pp_model_n_tensors(const struct pp_model *m)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    size_t n = 0;
    for (size_t u = 0; !m->table && u < pp_model_n_units(m); u++) {
        size_t n_slots = pp_unit_params(m, pp_model_unit(m, u), table);
        for (size_t i = 0; i < n_slots; i++)
            n += table[i].name[0] != '\0';
    }
    return n;
}

const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u)
{
    return &m->table->rows[pp_model_index(m, u)];
}

bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u)
{
    char name[PP_FQN_TEXT];
    pp_unit_fqn((struct pp_unit_id){PP_UNIT_HEAD, 0}, name);
    return m->table ? !strcmp(pp_unit_row(m, u)->fqn, name)
                    : u.kind == PP_UNIT_HEAD;
}

/* All widths differ, so that a test finds a buffer of the wrong width. */
enum { HIDDEN = 20, INTERMEDIATE = 28, HEAD_DIM = 6, VOCAB = 61, WINDOW = 4 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void pp_model_synthetic(struct pp_model *m, size_t share)
{
    size_t ratio = m->n_heads / m->n_kv_heads;
    m->n_kv_heads = ratio > 8 ? 1 : least(m->n_kv_heads, 2);
    m->n_kv_heads = m->n_kv_heads < share ? share : m->n_kv_heads;
    m->n_heads = m->n_kv_heads * ratio;
    m->head_dim = least(m->head_dim, HEAD_DIM);
    m->hidden = least(m->hidden, HIDDEN);
    m->intermediate = least(m->intermediate, INTERMEDIATE);
    m->vocab = least(m->vocab, VOCAB);
    m->window = least(m->window, WINDOW);
    m->init_range = 1 / sqrt((double)m->hidden);
}
