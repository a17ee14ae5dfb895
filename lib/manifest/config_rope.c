/* SPDX-License-Identifier: MIT */
/* config_rope - the rotary embedding of a config.json, whose keys changed with
 * every major version of transformers. */
#include <limits.h>
#include <string.h>

#include "manifest/config_values.h"

/* transformers' order: rope_scaling unless empty, then rope_parameters. */
static bool find_rope(const struct pp_value *root, struct pp_value *out)
{
    if (pp_config_find_set(root, "rope_scaling", out) &&
        (!json_is_object(out->value) || json_object_size(out->value)))
        return true;
    return pp_config_find_set(root, "rope_parameters", out);
}

static int read_rope_type(const struct pp_value *at, struct pp_rope *r)
{
    static const char *const names[] = {
        [PP_ROPE_DEFAULT] = "default",
        [PP_ROPE_LINEAR] = "linear",
        [PP_ROPE_LLAMA3] = "llama3",
        NULL,
    };
    struct pp_value member;
    const char *text;
    if (!pp_config_find_set(at, "rope_type", &member) &&
        !pp_config_find_set(at, "type", &member))
        return 0;
    if (pp_value_text(&member, &text))
        return -1;
    int i = pp_config_word(&member, text, names);
    r->type = (enum pp_rope_type)i;
    return i < 0 ? -1 : 0;
}

static int read_llama3(const struct pp_value *root, const struct pp_value *at,
                       struct pp_model *m)
{
    struct pp_rope *r = &m->rope;
    struct pp_value high;
    r->original_max_position = (double)m->max_position;
    if (pp_config_get_positive(at, "low_freq_factor", 1e9,
                               &r->low_freq_factor) ||
        pp_config_get_positive(at, "high_freq_factor", 1e9,
                               &r->high_freq_factor) ||
        pp_config_opt_positive(at, "original_max_position_embeddings", INT_MAX,
                               &r->original_max_position) ||
        pp_config_opt_positive(root, "original_max_position_embeddings",
                               INT_MAX, &r->original_max_position))
        return -1;
    pp_value_find(at, "high_freq_factor", &high);
    if (r->high_freq_factor <= r->low_freq_factor)
        return pp_value_fail(&high, "'%.9g' is not above low_freq_factor, %.9g",
                             r->high_freq_factor, r->low_freq_factor);
    return 0;
}

/* rope_parameters may hold one object for each type of layer. */
static int check_flat(const struct pp_value *at)
{
    if (pp_value_is_object(at))
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach(at->value, key, value)
    {
        if (json_is_object(value))
            return pp_value_fail(at,
                                 "'%.*s': values by type of layer are not "
                                 "supported",
                                 PP_VALUE_QUOTE, key);
    }
    return 0;
}

int pp_config_read_rope(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    struct pp_rope *r = &m->rope;
    *r = (struct pp_rope){.type = PP_ROPE_DEFAULT, .theta = 10000, .factor = 1};
    if (pp_config_opt_positive(root, "rope_theta", 1e30, &r->theta) ||
        pp_config_only_number(root, "partial_rotary_factor", 1))
        return -1;
    if (!find_rope(root, &at))
        return 0;
    if (check_flat(&at) || read_rope_type(&at, r) ||
        pp_config_opt_positive(&at, "rope_theta", 1e30, &r->theta) ||
        pp_config_only_number(&at, "partial_rotary_factor", 1))
        return -1;
    if (r->type != PP_ROPE_DEFAULT &&
        pp_config_get_positive(&at, "factor", 1e9, &r->factor))
        return -1;
    return r->type == PP_ROPE_LLAMA3 ? read_llama3(root, &at, m) : 0;
}
