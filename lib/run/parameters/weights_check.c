/* SPDX-License-Identifier: MIT */
/* weights_check - checks that tensors fit a model, from their headers alone. It
 * has a file of its own because ppsplit links it, without the trainer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/parameters/weights.h"

enum { SHAPE_TEXT = 24 * PP_MAX_DIMS };

static void format_shape(const struct pp_tensor *t, char buf[SHAPE_TEXT])
{
    int n = snprintf(buf, SHAPE_TEXT, "[");
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(buf + n, (size_t)(SHAPE_TEXT - n), "%s%" PRIu64,
                      i ? ", " : "", t->dims[i]);
    snprintf(buf + n, (size_t)(SHAPE_TEXT - n), "]");
}

int pp_weights_check_tensor(const struct pp_tensor_info *p,
                            const struct pp_tensor *t, struct pp_err *err)
{
    char got[SHAPE_TEXT], want[64];
    bool same = t->n_dims == p->n_dims && t->dims[0] == p->rows &&
                (p->n_dims == 1 || t->dims[1] == p->cols);
    if (!same) {
        format_shape(t, got);
        if (p->n_dims == 2)
            snprintf(want, sizeof want, "[%zu, %zu]", p->rows, p->cols);
        else
            snprintf(want, sizeof want, "[%zu]", p->rows);
        return pp_fail(err, PP_EXIT_INPUT, "'%s' is %s, expected %s", t->name,
                       got, want);
    }
    if (t->dtype != PP_DTYPE_F64 && t->dtype != PP_DTYPE_F32 &&
        t->dtype != PP_DTYPE_F16 && t->dtype != PP_DTYPE_BF16)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' is not of dtype F64, F32, F16 or BF16", t->name);
    return 0;
}

const struct pp_tensor *pp_weights_find(const struct pp_tensors *t,
                                        const char *name, bool tied)
{
    const struct pp_tensor *x = pp_tensors_find(t, name);
    if (!x && tied && !strcmp(name, "model.embed_tokens.weight"))
        x = pp_tensors_find(t, "lm_head.weight");
    return x;
}

/* Names a reason why a tensor is missing. */
static int fail_missing(const char *name, const struct pp_tensors *t,
                        struct pp_err *err)
{
    const char *prefix = "model.";
    size_t n = strlen(prefix);
    if (!strncmp(name, prefix, n) && pp_tensors_find(t, name + n))
        return pp_fail(err, PP_EXIT_INPUT,
                       "no tensor '%s', but '%s': these are the weights of a "
                       "model without its head; save the whole model",
                       name, name + n);
    return pp_fail(err, PP_EXIT_INPUT, "no tensor '%s'", name);
}

int pp_weights_check(const struct pp_model *m, const struct pp_tensors *t,
                     struct pp_err *err)
{
    struct pp_tensor_info params[PP_N_LAYER_PARAMS];
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        size_t n = pp_unit_params(m, u, params);
        for (size_t j = 0; j < n; j++) {
            if (!params[j].name[0])
                continue;
            const struct pp_tensor *x =
                pp_weights_find(t, params[j].name, m->tied);
            if (!x && u.kind == PP_UNIT_HEAD && m->tied)
                continue;
            if (!x)
                return fail_missing(params[j].name, t, err);
            if (pp_weights_check_tensor(&params[j], x, err))
                return -1;
        }
    }
    return 0;
}

/* Returns whether the model has no use for the tensor. Old checkpoints of
 * Llama hold the frequencies of the rotary positions, which are computed. */
static bool is_unused(const struct pp_tensor *x, bool used)
{
    const char *dot = strrchr(x->name, '.');
    return !used && strcmp(dot ? dot + 1 : x->name, "inv_freq");
}

size_t pp_weights_unused(const struct pp_model *m, const struct pp_tensors *t,
                         const char **first)
{
    struct pp_tensor_info params[PP_N_LAYER_PARAMS];
    size_t n = pp_tensors_n(t), unused = 0;
    bool *used = calloc(n + 1, sizeof *used);
    *first = NULL;
    for (size_t i = 0; used && i < pp_model_n_units(m); i++) {
        size_t k = pp_unit_params(m, pp_model_unit(m, i), params);
        for (size_t j = 0; j < k; j++) {
            const struct pp_tensor *x = pp_tensors_find(t, params[j].name);
            if (params[j].name[0] && x)
                used[x - pp_tensors_at(t, 0)] = true;
        }
    }
    for (size_t i = 0; used && i < n; i++) {
        const struct pp_tensor *x = pp_tensors_at(t, i);
        if (!is_unused(x, used[i]))
            continue;
        if (unused++ == 0)
            *first = x->name;
    }
    free(used);
    return unused;
}
