/* SPDX-License-Identifier: MIT */
/* config_deepseek - the keys of a config.json that only DeepSeek has: latent
 * attention, routers with groups, and layers for multi-token prediction. */
#include "manifest/config_values.h"

#include <limits.h>
#include <math.h>

/* transformers gives every layer from first_k_dense_replace on experts. */
static int read_layers(const struct pp_value *root, struct pp_model *m)
{
    size_t first = m->architecture == PP_DEEPSEEK_V3 ? 3 : 0;
    struct pp_value at;
    if (pp_config_opt_count(root, "first_k_dense_replace", &first) ||
        pp_config_opt_count(root, "num_nextn_predict_layers", &m->n_nextn))
        return -1;
    pp_value_find(root, "num_nextn_predict_layers", &at);
    if (m->n_nextn > PP_SET_LAYERS - m->n_layers)
        return pp_value_fail(&at, "'%zu' is more than there can be layers",
                             m->n_nextn);
    for (size_t i = first; i < m->n_layers + m->n_nextn; i++)
        pp_layer_set_add(&m->moe.layers, i);
    return 0;
}

/* Returns whether the groups suit the number of experts. */
static bool groups_fit(const struct pp_moe *e)
{
    const struct pp_router *r = &e->router;
    size_t each = e->n_experts / r->n_groups;
    return e->n_experts % r->n_groups == 0 && each >= (r->two_best ? 2 : 1) &&
           r->kept_groups * each >= e->top_k;
}

int pp_config_check_groups(const struct pp_value *root, const struct pp_moe *e)
{
    const struct pp_router *r = &e->router;
    struct pp_value at;
    bool given = pp_config_find_set(root, "n_group", &at);
    size_t each = e->n_experts / r->n_groups;
    if (r->n_groups > PP_MOST_EXPERT_GROUPS || e->n_experts % r->n_groups)
        return pp_value_fail(given ? &at : root,
                             "'%zu' groups: they must be at most %d and divide "
                             "%zu experts",
                             r->n_groups, PP_MOST_EXPERT_GROUPS, e->n_experts);
    if (r->two_best && each < 2)
        return pp_value_fail(given ? &at : root,
                             "'%zu' groups of a single expert", r->n_groups);
    given = pp_config_find_set(root, "topk_group", &at);
    if (r->kept_groups > r->n_groups || r->kept_groups * each < e->top_k)
        return pp_value_fail(given ? &at : root,
                             "'%zu' of %zu groups of %zu experts, of which a "
                             "token needs %zu",
                             r->kept_groups, r->n_groups, each, e->top_k);
    return 0;
}

/* Reads n_group and topk_group. Where neither is set and transformers' defaults
 * do not suit the experts, it fails; here there is one group. */
static int read_expert_groups(const struct pp_value *root, struct pp_moe *e)
{
    struct pp_router *r = &e->router;
    struct pp_value at;
    if (pp_config_opt_size(root, "n_group", &r->n_groups) ||
        pp_config_opt_size(root, "topk_group", &r->kept_groups))
        return -1;
    bool given = pp_config_find_set(root, "n_group", &at);
    if (!given && !pp_config_find_set(root, "topk_group", &at) &&
        !groups_fit(e))
        r->n_groups = r->kept_groups = 1;
    return pp_config_check_groups(root, e);
}

/* V2: a softmax; groups only with group_limited_greedy, and then by their best
 * expert. transformers ignores norm_topk_prob there. */
static int read_v2_router(const struct pp_value *root, struct pp_moe *e)
{
    struct pp_value at;
    const char *method;
    e->router.n_groups = e->router.kept_groups = 1;
    if (!pp_config_find_set(root, "topk_method", &at))
        return 0;
    if (pp_value_text(&at, &method))
        return -1;
    int i = pp_config_word(&at, method, pp_topk_method_words);
    return i < 0 ? -1 : i == 0 ? 0 : read_expert_groups(root, e);
}

/* V3 and Moonlight: sigmoids, and a bias that only chooses. */
static int read_v3_router(const struct pp_value *root, struct pp_moe *e)
{
    e->router = (struct pp_router){.sigmoid = true,
                                   .norm = true,
                                   .two_best = true,
                                   .n_groups = 8,
                                   .kept_groups = 4,
                                   .scale = 2.5};
    return pp_config_opt_bool(root, "norm_topk_prob", &e->router.norm) ||
                   read_expert_groups(root, e)
               ? -1
               : 0;
}

int pp_config_read_deepseek(const struct pp_value *root, struct pp_model *m)
{
    struct pp_moe *e = &m->moe;
    bool v3 = m->architecture == PP_DEEPSEEK_V3;
    size_t n_shared = v3 ? 1 : 2;
    e->score_bias = v3;
    if (pp_config_get_size(root, "n_routed_experts", INT_MAX, &e->n_experts) ||
        pp_config_read_top_k(root, e) ||
        pp_config_get_size(root, "moe_intermediate_size", INT_MAX,
                           &e->intermediate) ||
        pp_config_opt_count(root, "n_shared_experts", &n_shared))
        return -1;
    e->shared = n_shared * e->intermediate;
    if ((v3 ? read_v3_router : read_v2_router)(root, e) ||
        pp_config_opt_positive(root, "routed_scaling_factor", 1e9,
                               &e->router.scale))
        return -1;
    return read_layers(root, m);
}

int pp_config_read_mla(const struct pp_value *root, struct pp_model *m)
{
    struct pp_mla *a = &m->mla;
    struct pp_value at;
    /* null stands for queries of full rank. */
    bool given = pp_value_find(root, "q_lora_rank", &at);
    a->q_rank = given ? 0 : 1536;
    m->adjacent = true;
    if (pp_config_opt_size(root, "q_lora_rank", &a->q_rank) ||
        pp_config_get_size(root, "kv_lora_rank", INT_MAX, &a->kv_rank) ||
        pp_config_get_size(root, "qk_nope_head_dim", INT_MAX, &a->nope_dim) ||
        pp_config_get_size(root, "qk_rope_head_dim", INT_MAX, &a->rope_dim) ||
        pp_config_get_size(root, "v_head_dim", INT_MAX, &a->v_dim))
        return -1;
    if (a->rope_dim % 2) {
        pp_value_find(root, "qk_rope_head_dim", &at);
        return pp_value_fail(&at,
                             "'%zu', the size of the rotary part of a "
                             "head, is odd",
                             a->rope_dim);
    }
    if (m->architecture == PP_DEEPSEEK_V3 &&
        pp_config_opt_bool(root, "rope_interleave", &m->adjacent))
        return -1;
    m->n_kv_heads = m->n_heads;
    m->head_dim = a->nope_dim + a->rope_dim;
    return 0;
}

int pp_config_read_score_scale(const struct pp_value *rope, struct pp_model *m)
{
    double weight = 0, factor = 1;
    if (pp_config_opt_positive(rope, "mscale_all_dim", 1e9, &weight) ||
        pp_config_opt_positive(rope, "factor", 1e9, &factor))
        return -1;
    if (weight > 0 && factor > 1)
        m->mla.score_scale = pow(0.1 * weight * log(factor) + 1, 2);
    return 0;
}
