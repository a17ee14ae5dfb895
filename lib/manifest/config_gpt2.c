/* SPDX-License-Identifier: MIT */
/* config_gpt2 - config.json of GPT-2, whose keys have names of their own. */
#include <limits.h>
#include <string.h>

#include "manifest/config_values.h"

int pp_config_read_gpt2(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    if (pp_config_get_size(root, "vocab_size", INT_MAX, &m->vocab) ||
        pp_config_get_size(root, "n_embd", INT_MAX, &m->hidden) ||
        pp_config_get_size(root, "n_layer", PP_SET_LAYERS, &m->n_layers) ||
        pp_config_get_size(root, "n_head", INT_MAX, &m->n_heads))
        return -1;
    m->intermediate = 4 * m->hidden;
    m->max_position = 1024;
    m->tied = true;
    m->mlp_bias = true;
    if (pp_config_opt_size(root, "n_inner", &m->intermediate) ||
        pp_config_opt_size(root, "n_positions", &m->max_position))
        return -1;
    pp_value_find(root, "n_embd", &at);
    if (m->hidden % m->n_heads)
        return pp_value_fail(&at, "'%zu' is not a multiple of n_head, %zu",
                             m->hidden, m->n_heads);
    m->mlp_bias = true;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->hidden / m->n_heads;
    return 0;
}

static int read_activation(const struct pp_value *root, struct pp_model *m)
{
    /* The first is by erf, the others by tanh. */
    struct pp_value at;
    const char *text;
    if (!pp_config_find_set(root, "activation_function", &at))
        return 0;
    if (pp_value_text(&at, &text))
        return -1;
    int i = pp_config_word(&at, text, pp_gpt2_gelu_words);
    m->gelu = i == 0 ? PP_GELU_ERF : PP_GELU_TANH;
    return i < 0 ? -1 : 0;
}

int pp_config_read_gpt2_rest(const struct pp_value *root, struct pp_model *m)
{
    m->norm_eps = 1e-5;
    return read_activation(root, m) ||
                   pp_config_opt_positive(root, "layer_norm_epsilon", 1,
                                          &m->norm_eps)
               ? -1
               : 0;
}
