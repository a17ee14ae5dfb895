/* SPDX-License-Identifier: MIT */
/* config_rope - the keys of a config.json that describe rotary embeddings. */
#include <limits.h>
#include <math.h>

#include <string.h>

#include "manifest/config_values.h"
#include "model/parts.h"
#include "model/vision.h"

/* transformers looks at rope_scaling first, unless it is empty, and then at
 * rope_parameters. */
static bool find_rope(const struct pp_value *root, struct pp_value *out)
{
    if (pp_config_find_set(root, "rope_scaling", out) &&
        (!json_is_object(out->value) || json_object_size(out->value)))
        return true;
    return pp_config_find_set(root, "rope_parameters", out);
}

/* Phi-3 has only longrope, of which older files have other names. */
static int read_rope_type(const struct pp_value *at, const struct pp_model *m,
                          struct pp_rope *r)
{
    bool phi3 = m->architecture == PP_PHI3;
    struct pp_value member;
    const char *text;
    if (!pp_config_find_set(at, "rope_type", &member) &&
        !pp_config_find_set(at, "type", &member))
        return 0;
    if (pp_value_text(&member, &text))
        return -1;
    if (pp_vision_merges(&m->encoders[0]) && !strcmp(text, "mrope"))
        return 0; /* the default one; pp_config_read_axes has the rest */
    int i =
        pp_config_word(&member, text, phi3 ? pp_longrope_words : pp_rope_words);
    r->type = phi3 && i > 0 ? PP_ROPE_LONGROPE : (enum pp_rope_type)i;
    return i < 0 ? -1 : 0;
}

/* The outer key comes before the inner one, as with Phi-3. */
static int read_original(const struct pp_value *root, const struct pp_value *at,
                         const struct pp_model *m, struct pp_rope *r)
{
    static const char key[] = "original_max_position_embeddings";
    double *out = &r->original_max_position;
    *out = m->architecture == PP_PHI3 ? 4096 : (double)m->max_position;
    return pp_config_opt_positive(at, key, INT_MAX, out) ||
                   pp_config_opt_positive(root, key, INT_MAX, out)
               ? -1
               : 0;
}

static int read_llama3(const struct pp_value *root, const struct pp_value *at,
                       const struct pp_model *m, struct pp_rope *r)
{
    struct pp_value high;
    if (read_original(root, at, m, r) ||
        pp_config_get_positive(at, "low_freq_factor", 1e9,
                               &r->low_freq_factor) ||
        pp_config_get_positive(at, "high_freq_factor", 1e9,
                               &r->high_freq_factor))
        return -1;
    pp_value_find(at, "high_freq_factor", &high);
    if (r->high_freq_factor <= r->low_freq_factor)
        return pp_value_fail(&high, "'%.9g' is not above low_freq_factor, %.9g",
                             r->high_freq_factor, r->low_freq_factor);
    return 0;
}

/* Returns the factor of the attention for a scale (Peng et al., "YaRN", 2023,
 * eq. 15). */
static double yarn_scale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

/* DeepSeek leaves out the factor, and states the two weights. */
static int read_yarn(const struct pp_value *root, const struct pp_value *at,
                     const struct pp_model *m, struct pp_rope *r)
{
    double weight = 0, of_all = 0;
    r->beta_fast = 32;
    r->beta_slow = 1;
    if (read_original(root, at, m, r))
        return -1;
    r->factor = (double)m->max_position / r->original_max_position;
    if (pp_config_opt_positive(at, "factor", 1e9, &r->factor) ||
        pp_config_opt_positive(at, "beta_fast", 1e9, &r->beta_fast) ||
        pp_config_opt_positive(at, "beta_slow", 1e9, &r->beta_slow) ||
        pp_config_opt_positive(at, "mscale", 1e9, &weight) ||
        pp_config_opt_positive(at, "mscale_all_dim", 1e9, &of_all) ||
        pp_config_opt_bool(at, "truncate", &r->truncate))
        return -1;
    r->attention_factor =
        weight > 0 && of_all > 0
            ? yarn_scale(r->factor, weight) / yarn_scale(r->factor, of_all)
            : yarn_scale(r->factor, 1);
    return pp_config_opt_positive(at, "attention_factor", 1e9,
                                  &r->attention_factor);
}

/* Reads a list of divisors of the frequencies. */
static int read_divisors(const struct pp_value *at, const char *key,
                         const struct pp_model *m, double *out)
{
    struct pp_value list;
    size_t n, half = pp_model_rotary(m, false) / 2;
    if (pp_value_member(at, key, &list) || pp_value_array(&list, &n))
        return -1;
    if (n != half || n > PP_ROPE_DIVISORS)
        return pp_value_fail(&list,
                             "'%zu' numbers for %zu frequencies, of which "
                             "there may be %d",
                             n, half, PP_ROPE_DIVISORS);
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = pp_value_item(&list, i);
        if (pp_value_real(&item, 1e-9, 1e9, &out[i]))
            return -1;
    }
    return 0;
}

/* Keeps short_factor. long_factor is for sequences longer than
 * original_max_position, which callers refuse. */
static int read_longrope(const struct pp_value *root, const struct pp_value *at,
                         const struct pp_model *m, struct pp_rope *r)
{
    double unused[PP_ROPE_DIVISORS];
    if (read_original(root, at, m, r))
        return -1;
    r->factor = (double)m->max_position / r->original_max_position;
    if (read_divisors(at, "short_factor", m, r->divisors) ||
        read_divisors(at, "long_factor", m, unused) ||
        pp_config_opt_positive(at, "factor", 1e9, &r->factor))
        return -1;
    r->attention_factor =
        r->factor > 1 ? sqrt(1 + log(r->factor) / log(r->original_max_position))
                      : 1;
    return pp_config_opt_positive(at, "attention_factor", 1e9,
                                  &r->attention_factor);
}

/* transformers allows one object for each type of layer in rope_parameters,
 * which is not supported here. */
static int check_flat(const struct pp_value *at)
{
    if (pp_value_is_object(at))
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach(at->value, key, value)
    {
        if (json_is_object(value) && !pp_value_infinite(value))
            return pp_value_fail(
                at,
                "'%.*s': parameters for each type of layer are not "
                "supported",
                PP_VALUE_QUOTE, key);
    }
    return 0;
}

/* A Hunyuan has dynamic positions that depend on no length: with alpha. */
static int read_alpha(const struct pp_value *at, const struct pp_model *m,
                      struct pp_rope *r)
{
    double alpha = 0, width = (double)m->head_dim;
    if (pp_config_opt_positive(at, "alpha", 1e9, &alpha))
        return -1;
    if (alpha > 0 && m->head_dim > 2) {
        r->theta *= pow(alpha, width / (width - 2));
        r->type = PP_ROPE_DEFAULT;
    }
    return 0;
}

/* Reads the scale of the scores of latent attention. */
static int read_score_scale(const struct pp_value *at, struct pp_model *m)
{
    double weight = 0, factor = 1;
    if (pp_config_opt_positive(at, "mscale_all_dim", 1e9, &weight) ||
        pp_config_opt_positive(at, "factor", 1e9, &factor))
        return -1;
    if (weight > 0 && factor > 1)
        m->mla.score_scale = pow(yarn_scale(factor, weight), 2);
    return 0;
}

/* Reads the parameters of one rotary embedding; *r has theta. */
static int read_parameters(const struct pp_value *root,
                           const struct pp_value *at, struct pp_model *m,
                           struct pp_rope *r)
{
    const enum pp_vision_kind encoder = m->encoders[0].kind;
    bool axes = pp_vision_merges(&m->encoders[0]);
    if (check_flat(at) ||
        (axes
             ? pp_config_check(at, pp_vision_architecture(encoder), PP_IN_MROPE)
             : pp_config_check(at, m->architecture, PP_IN_ROPE)) ||
        read_rope_type(at, m, r) ||
        pp_config_opt_positive(at, "rope_theta", 1e30, &r->theta))
        return -1;
    if (m->mla.kv_rank && r->type != PP_ROPE_DEFAULT && read_score_scale(at, m))
        return -1;
    if (r->type == PP_ROPE_DYNAMIC &&
        pp_family_of(m->architecture)->norms_rotated && read_alpha(at, m, r))
        return -1;
    if (r->type == PP_ROPE_LONGROPE)
        return read_longrope(root, at, m, r);
    if (r->type == PP_ROPE_YARN)
        return read_yarn(root, at, m, r);
    if (r->type != PP_ROPE_DEFAULT &&
        pp_config_get_positive(at, "factor", 1e9, &r->factor))
        return -1;
    return r->type == PP_ROPE_LLAMA3 ? read_llama3(root, at, m, r) : 0;
}

static struct pp_rope default_rope(const struct pp_rope *given)
{
    return (struct pp_rope){.type = PP_ROPE_DEFAULT,
                            .theta = given->theta,
                            .odd = given->odd,
                            .factor = 1,
                            .attention_factor = 1,
                            .truncate = true};
}

/* Sets what a family has without parameters, if not the default embedding. */
static void set_usual(enum pp_architecture of, struct pp_rope *r)
{
    if (of == PP_GPT_OSS)
        *r = (struct pp_rope){.type = PP_ROPE_YARN,
                              .theta = r->theta,
                              .factor = 32,
                              .beta_fast = 32,
                              .beta_slow = 1,
                              .original_max_position = 4096,
                              .attention_factor = yarn_scale(32, 1)};
    else if (of == PP_APERTUS)
        *r = (struct pp_rope){.type = PP_ROPE_LLAMA3,
                              .theta = r->theta,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_max_position = 8192,
                              .attention_factor = 1};
}

int pp_config_read_rope(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value at;
    m->rope = default_rope(&m->rope);
    if (pp_config_opt_positive(root, "rope_theta", 1e30, &m->rope.theta))
        return -1;
    if (find_rope(root, &at))
        return read_parameters(root, &at, m, &m->rope);
    set_usual(m->architecture, &m->rope);
    return 0;
}

/* rope_scaling, of older files, is for the layers without a window. */
int pp_config_read_two_ropes(const struct pp_value *root, struct pp_model *m)
{
    struct pp_value list, at;
    struct pp_rope *full = &m->rope, *windowed = &m->windowed_rope;
    windowed->odd = full->odd;
    *full = default_rope(full);
    *windowed = default_rope(windowed);
    if (pp_config_opt_positive(root, "rope_theta", 1e30, &full->theta) ||
        pp_config_opt_positive(root, "rope_local_base_freq", 1e30,
                               &windowed->theta))
        return -1;
    bool listed = pp_config_find_set(root, "rope_parameters", &list);
    if (pp_config_find_set(root, "rope_scaling", &at))
        return listed ? pp_value_fail(&at, "'rope_parameters' is there, too")
                      : read_parameters(root, &at, m, full);
    if (!listed)
        return 0;
    if (pp_value_is_object(&list))
        return -1;
    if (pp_config_find_set(&list, "rope_type", &at))
        return pp_value_fail(&at, "parameters for each type of layer are "
                                  "needed: full_attention, sliding_attention");
    double part[2] = {0, 0};
    if (pp_config_find_set(&list, "full_attention", &at) &&
        (pp_config_opt_positive(&at, "partial_rotary_factor", 1, &part[0]) ||
         read_parameters(root, &at, m, full)))
        return -1;
    if (!pp_config_find_set(&list, "sliding_attention", &at))
        return 0;
    if (pp_config_opt_positive(&at, "partial_rotary_factor", 1, &part[1]) ||
        read_parameters(root, &at, m, windowed))
        return -1;
    return part[0] < part[1] || part[0] > part[1]
               ? pp_value_fail(&at,
                               "'%.9g' as partial_rotary_factor, but '%.9g' of "
                               "full_attention",
                               part[1], part[0])
               : 0;
}

int pp_config_read_axes(const struct pp_value *root, struct pp_model *m)
{
    static const size_t usual[PP_ROPE_AXES] = {16, 24, 24};
    struct pp_value rope, list, item;
    size_t n = PP_ROPE_AXES, sum = 0;
    bool given = find_rope(root, &rope) &&
                 pp_config_find_set(&rope, "mrope_section", &list);
    if (given && pp_value_array(&list, &n))
        return -1;
    for (size_t a = 0; a < PP_ROPE_AXES && a < n; a++) {
        int64_t some = (int64_t)usual[a];
        if (given) {
            item = pp_value_item(&list, a);
            if (pp_value_int(&item, 1, PP_MOST_AXES_HEAD / 2, &some))
                return -1;
        }
        m->rope_axes[a] = (size_t)some;
        sum += (size_t)some;
    }
    if (n != PP_ROPE_AXES || 2 * sum != m->head_dim ||
        m->head_dim > PP_MOST_AXES_HEAD)
        return pp_value_fail(given ? &list : root,
                             "'%zu' numbers, of frequencies of time, row and "
                             "column, must be 3 with the sum %zu",
                             n, m->head_dim / 2);
    return 0;
}
