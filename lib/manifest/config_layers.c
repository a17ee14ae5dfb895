/* SPDX-License-Identifier: MIT */
/* config_layers - the keys of a config.json that describe the layers: experts
 * and windows. */
#include "manifest/config_values.h"

#include <limits.h>
#include <string.h>

/* Sets m->window to 0 if no layer has a window. Qwen and SmolLM3 have a switch
 * for it, and transformers writes 0 for Qwen2-MoE without it. */
static int read_window_size(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    bool has_switch =
        m->architecture == PP_QWEN2 || m->architecture == PP_QWEN3 ||
        m->architecture == PP_QWEN2_MOE || m->architecture == PP_QWEN3_MOE ||
        m->architecture == PP_SMOLLM3;
    bool use = !has_switch;
    if ((has_switch && pp_config_opt_bool(root, "use_sliding_window", &use)) ||
        (use ? pp_config_opt_size : pp_config_opt_count)(root, "sliding_window",
                                                         &m->window))
        return -1;
    if (!use ||
        (pp_value_find(root, "sliding_window", &at) && json_is_null(at.value)))
        m->window = 0;
    if (m->window && m->n_layers > PP_SET_LAYERS) {
        pp_value_find(root, "num_hidden_layers", &at);
        return pp_value_fail(&at, "'%zu' layers with a window are too many",
                             m->n_layers);
    }
    return 0;
}

/* Reads the type of layer i from layer_types. */
static int read_layer_type(const struct pp_value *list, size_t i,
                           const struct pp_model *m, bool *windowed)
{
    struct pp_value item = pp_value_item(list, i);
    const char *type;
    if (pp_value_text(&item, &type))
        return -1;
    int k = pp_config_word(&item, type, pp_layer_type_words);
    if (k == 0 && !m->window)
        return pp_value_fail(&item, "'%s' without use_sliding_window", type);
    *windowed = k == 0;
    return k < 0 ? -1 : 0;
}

/* Says whether a layer has a window if layer_types does not. The families begin
 * with it at a layer, end with it there and alternate before, alternate, or
 * leave out every so many layers. */
static bool is_windowed(const struct pp_model *m, size_t layer, size_t most)
{
    switch (m->architecture) {
    case PP_QWEN2:
    case PP_QWEN3:
        return layer >= most;
    case PP_QWEN2_MOE:
        return layer < most && layer % 2 == 0;
    case PP_GPT_OSS:
    case PP_GEMMA2:
        return layer % 2 == 0;
    case PP_GEMMA3:
        return (layer + 1) % most != 0;
    case PP_SMOLLM3:
        return pp_layer_set_has(&m->unrotated, layer);
    default:
        return true;
    }
}

int pp_config_read_window(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value list;
    bool dense_qwen =
        m->architecture == PP_QWEN2 || m->architecture == PP_QWEN3;
    size_t n = 0, most = 28;
    if (read_window_size(root, m) ||
        ((dense_qwen || m->architecture == PP_QWEN2_MOE) &&
         pp_config_opt_count(root, "max_window_layers", &most)))
        return -1;
    if (m->architecture == PP_GEMMA3) {
        most = 6;
        if (pp_config_opt_size(root, "sliding_window_pattern", &most))
            return -1;
    }
    /* These have the same window in every layer, whatever else is set. */
    bool same = m->architecture == PP_MISTRAL || m->architecture == PP_PHI3 ||
                m->architecture == PP_MIXTRAL ||
                m->architecture == PP_QWEN3_MOE;
    bool listed = !same && pp_config_find_set(root, "layer_types", &list);
    if (listed && pp_value_array(&list, &n))
        return -1;
    /* A Qwen without windows has run with lists of any length. */
    if (listed && n != m->n_layers && (m->window || !dense_qwen))
        return pp_value_fail(&list, "%zu types for %zu layers", n, m->n_layers);
    for (size_t i = 0; i < (listed ? n : m->n_layers); i++) {
        bool windowed = is_windowed(m, i, most);
        if (listed && read_layer_type(&list, i, m, &windowed))
            return -1;
        if (windowed && m->window)
            pp_layer_set_add(&m->windowed, i);
    }
    return 0;
}

/* In Qwen every decoder_sparse_step-th layer has experts, except those in
 * mlp_only_layers. */
static int read_sparse_step(const struct pp_value *root, struct pp_model *m)
{
    struct pp_layer_set dense = {0};
    struct pp_value list;
    size_t n, step = 1;
    if (pp_config_opt_size(root, "decoder_sparse_step", &step))
        return -1;
    if (pp_config_find_set(root, "mlp_only_layers", &list)) {
        if (pp_value_array(&list, &n))
            return -1;
        for (size_t i = 0; i < n; i++) {
            struct pp_value item = pp_value_item(&list, i);
            int64_t layer;
            if (pp_value_int(&item, 0, (int64_t)m->n_layers - 1, &layer))
                return -1;
            pp_layer_set_add(&dense, (size_t)layer);
        }
    }
    for (size_t i = 0; i < m->n_layers; i++)
        if ((i + 1) % step == 0 && !pp_layer_set_has(&dense, i))
            pp_layer_set_add(&m->moe.layers, i);
    return 0;
}

/* num_experts and num_local_experts mean the same. */
static int read_n_experts(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    bool qwen =
        m->architecture == PP_QWEN2_MOE || m->architecture == PP_QWEN3_MOE;
    const char *key = qwen ? "num_experts" : "num_local_experts";
    const char *other = qwen ? "num_local_experts" : "num_experts";
    if (!pp_config_find_set(root, key, &at) &&
        pp_config_find_set(root, other, &at))
        key = other;
    return pp_config_get_size(root, key, INT_MAX, &m->moe.n_experts);
}

int pp_config_read_top_k(const struct pp_value *root, struct pp_moe *e)
{
    struct pp_value at;
    if (pp_config_get_size(root, "num_experts_per_tok", INT_MAX, &e->top_k))
        return -1;
    pp_value_find(root, "num_experts_per_tok", &at);
    if (e->top_k > e->n_experts)
        return pp_value_fail(&at, "'%zu' is more than there are experts, %zu",
                             e->top_k, e->n_experts);
    return 0;
}

/* GPT-OSS takes the softmax of the logits of a token's experts, which is that
 * of all, divided by their sum. */
static int read_oss(const struct pp_value *root, struct pp_model *m)
{
    m->sinks = m->moe.biases = true;
    m->moe.limit = 7;
    m->moe.gain = 1.702;
    return pp_config_opt_positive(root, "swiglu_limit", 1e9, &m->moe.limit) ||
                   pp_config_opt_positive(root, "swiglu_alpha", 1e9,
                                          &m->moe.gain)
               ? -1
               : 0;
}

int pp_config_read_moe(const struct pp_value *root, struct pp_model *m)
{
    struct pp_moe *e = &m->moe;
    bool qwen2 = m->architecture == PP_QWEN2_MOE;
    bool qwen = qwen2 || m->architecture == PP_QWEN3_MOE;
    e->intermediate = m->intermediate;
    if (read_n_experts(root, m) || pp_config_read_top_k(root, e) ||
        (qwen && pp_config_get_size(root, "moe_intermediate_size", INT_MAX,
                                    &e->intermediate)))
        return -1;
    e->shared_gate = qwen2;
    if (qwen2 && pp_config_get_size(root, "shared_expert_intermediate_size",
                                    INT_MAX, &e->shared))
        return -1;
    bool oss = m->architecture == PP_GPT_OSS;
    if (oss && read_oss(root, m))
        return -1;
    e->router.norm = oss || m->architecture == PP_MIXTRAL;
    if (qwen && pp_config_opt_bool(root, "norm_topk_prob", &e->router.norm))
        return -1;
    if (qwen && read_sparse_step(root, m))
        return -1;
    for (size_t i = 0; !qwen && i < m->n_layers; i++)
        pp_layer_set_add(&e->layers, i);
    return pp_config_read_window(root, m);
}
