/* SPDX-License-Identifier: MIT */
#include "manifest/config_values.h"

#include <limits.h>
#include <string.h>

bool pp_config_find_set(const struct pp_value *object, const char *key,
                        struct pp_value *out)
{
    return pp_value_find(object, key, out) && !json_is_null(out->value);
}

int pp_config_get_size(const struct pp_value *root, const char *key,
                       int64_t max, size_t *out)
{
    int64_t v;
    if (pp_value_get_int(root, key, 1, max, &v))
        return -1;
    *out = (size_t)v;
    return 0;
}

int pp_config_opt_size(const struct pp_value *root, const char *key,
                       size_t *out)
{
    struct pp_value at;
    return pp_config_find_set(root, key, &at)
               ? pp_config_get_size(root, key, INT_MAX, out)
               : 0;
}

int pp_config_opt_bool(const struct pp_value *root, const char *key, bool *out)
{
    struct pp_value at;
    return pp_config_find_set(root, key, &at) ? pp_value_bool(&at, out) : 0;
}

/* One rule for all families: training goes on without dropout. Only GPT-2's
 * class asks for some if a key is not set. */
int pp_config_read_dropout(const struct pp_value *object, struct pp_model *m)
{
    static const char *const keys[] = {
        "attn_pdrop",        "embd_pdrop",         "resid_pdrop",
        "attention_dropout", "residual_dropout",   "embedding_dropout",
        "dropout",           "activation_dropout", "encoder_layerdrop"};
    enum { N_OF_GPT2 = 3 };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct pp_value at;
        double p = m->architecture == PP_GPT2 && i < N_OF_GPT2 ? 0.1 : 0;
        if (pp_config_find_set(object, keys[i], &at) &&
            pp_value_real(&at, 0, 1, &p))
            return -1;
        if (p > 0 && !m->dropout)
            m->dropout = keys[i];
    }
    return 0;
}

static int positive(const struct pp_value *at, double max, double *out)
{
    double v;
    if (pp_value_real(at, 0, max, &v))
        return -1;
    if (v <= 0)
        return pp_value_fail(at, "'0' is not positive");
    *out = v;
    return 0;
}

int pp_config_opt_positive(const struct pp_value *root, const char *key,
                           double max, double *out)
{
    struct pp_value at;
    return pp_config_find_set(root, key, &at) ? positive(&at, max, out) : 0;
}

int pp_config_get_positive(const struct pp_value *object, const char *key,
                           double max, double *out)
{
    struct pp_value at;
    return pp_value_member(object, key, &at) ? -1 : positive(&at, max, out);
}

int pp_config_word(const struct pp_value *at, const char *text,
                   const char *const *words)
{
    static const char rest[] = ", ...";
    char known[380] = "";
    size_t n = 0, most = sizeof known - sizeof rest;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(text, words[i]))
            return i;
        bool fits = n + strlen(words[i]) + 2 <= most;
        if (fits)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                                  i ? ", " : "", words[i]);
        else if (n <= most)
            strcpy(known + n, rest);
        most = fits ? most : 0;
    }
    return pp_value_fail(at, "'%.*s' is not one of: %s", PP_VALUE_QUOTE, text,
                         known);
}

int pp_config_only_text(const struct pp_value *root, const char *key,
                        const char *wanted)
{
    struct pp_value at;
    const char *text;
    if (!pp_config_find_set(root, key, &at))
        return 0;
    if (pp_value_text(&at, &text))
        return -1;
    if (strcmp(text, wanted))
        return pp_value_fail(&at, "'%.*s' is not supported, only '%s'",
                             PP_VALUE_QUOTE, text, wanted);
    return 0;
}
