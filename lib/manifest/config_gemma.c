/* SPDX-License-Identifier: MIT */
/* config_gemma - the keys of a config.json that only the Gemmas have. */
#include "manifest/config_values.h"

#define LARGEST 1e9

/* Reads a cap; null stands for none, also where the class has a default. */
static int read_cap(const struct pp_value *root, const char *key,
                    double fallback, double *out)
{
    struct pp_value at;
    *out = pp_value_find(root, key, &at) ? 0 : fallback;
    return pp_config_opt_positive(root, key, LARGEST, out);
}

int pp_config_read_gemma(const struct pp_value *root, struct pp_model *m)
{
    bool second = m->architecture == PP_GEMMA2;
    m->query_scalar = 256;
    return read_cap(root, "final_logit_softcapping", second ? 30 : 0,
                    &m->logit_cap) ||
                   (second && read_cap(root, "attn_logit_softcapping", 50,
                                       &m->score_cap)) ||
                   pp_config_opt_positive(root, "query_pre_attn_scalar",
                                          LARGEST, &m->query_scalar)
               ? -1
               : 0;
}
