/* SPDX-License-Identifier: MIT */
/* weights_check - checks that tensors fit a model, from their headers alone. It
 * has a file of its own because ppsplit links it, without the trainer. */
#include <inttypes.h>
#include <stdio.h>
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

int pp_weights_check_tensor(const struct pp_param *p, const struct pp_tensor *t,
                            struct pp_err *err)
{
    char got[SHAPE_TEXT], want[64];
    bool same = t->n_dims == 1 + p->is_matrix && t->dims[0] == p->rows &&
                (!p->is_matrix || t->dims[1] == p->cols);
    if (!same) {
        format_shape(t, got);
        if (p->is_matrix)
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

int pp_weights_check(const struct pp_model *m, const struct pp_tensors *t,
                     struct pp_err *err)
{
    struct pp_param params[PP_N_LAYER_PARAMS];
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        size_t n = pp_unit_params(m, u, params);
        for (size_t j = 0; j < n; j++) {
            if (!params[j].name[0])
                continue;
            const struct pp_tensor *x = pp_tensors_find(t, params[j].name);
            if (!x && u.kind == PP_UNIT_HEAD && m->tied)
                continue;
            if (!x)
                return pp_fail(err, PP_EXIT_INPUT, "no tensor '%s'",
                               params[j].name);
            if (pp_weights_check_tensor(&params[j], x, err))
                return -1;
        }
    }
    return 0;
}
