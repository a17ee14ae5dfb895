/* SPDX-License-Identifier: MIT */
/* weights_check - checks that tensors fit a model, from their headers alone. It
 * has a file of its own because ppsplit links it, without the trainer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/parts.h"
#include "model/vision.h"
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
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    struct pp_tensor expected = {.n_dims = p->n_dims};
    pp_tensor_file_sizes(p, expected.dims);
    bool same =
        t->n_dims == p->n_dims &&
        !memcmp(t->dims, expected.dims, (size_t)p->n_dims * sizeof *t->dims);
    if (!same) {
        format_shape(t, got);
        format_shape(&expected, want);
        return pp_fail(err, PP_EXIT_INPUT, "'%s' is %s, expected %s", t->name,
                       got, want);
    }
    if (t->dtype != PP_DTYPE_F64 && t->dtype != PP_DTYPE_F32 &&
        t->dtype != PP_DTYPE_F16 && t->dtype != PP_DTYPE_BF16)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' is not of dtype F64, F32, F16 or BF16", t->name);
    return 0;
}

/* Finds a tensor of an encoder under the name of transformers 5, which leaves
 * out a part of it. */
static const struct pp_tensor *find_newer(const struct pp_tensors *t,
                                          const char *name)
{
    static const char before[] = "vision_tower.", out[] = "vision_model.";
    char newer[PP_FQN_TEXT];
    size_t n = strlen(before), m = strlen(out);
    if (strncmp(name, before, n) != 0 || strncmp(name + n, out, m) != 0)
        return NULL;
    snprintf(newer, sizeof newer, "%s%s", before, name + n + m);
    return pp_tensors_find(t, newer);
}

const struct pp_tensor *pp_weights_find(const struct pp_tensors *t,
                                        const struct pp_model *m,
                                        const char *name)
{
    const struct pp_names *names = pp_family_of(m->architecture)->names;
    const struct pp_tensor *x = pp_tensors_find(t, name);
    size_t n = names->optional ? strlen(names->optional) : 0;
    if (!x && n && !strncmp(name, names->optional, n))
        x = pp_tensors_find(t, name + n);
    if (!x && pp_vision_has_tower(m))
        x = find_newer(t, name);
    if (!x && m->tied && !strcmp(name, pp_embedding_name(m)))
        x = pp_tensors_find(t, pp_head_name(m));
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
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], info;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        size_t n = pp_unit_params(m, u, table);
        for (size_t j = 0; j < pp_table_slots(table, n); j++) {
            if (!pp_table_at(table, n, j, &info))
                continue;
            const struct pp_tensor *x = pp_weights_find(t, m, info.name);
            if (!x && u.kind == PP_UNIT_HEAD && m->tied)
                continue;
            if (!x)
                return fail_missing(info.name, t, err);
            if (pp_weights_check_tensor(&info, x, err))
                return -1;
        }
    }
    return 0;
}

/* Returns whether the tensor is one of those that files may have and nobody
 * reads, such as those of layers for multi-token prediction. */
static bool is_ignored(const struct pp_model *m, const struct pp_tensor *x)
{
    const struct pp_names *names = pp_family_of(m->architecture)->names;
    size_t n = strlen(x->name), layer;
    if (sscanf(x->name, "model.layers.%zu.", &layer) == 1 &&
        layer >= m->n_layers && layer < m->n_layers + m->n_nextn)
        return true;
    for (int i = 0; i < 2 && names->buffers[i]; i++) {
        size_t end = strlen(names->buffers[i]);
        if (n >= end && !strcmp(x->name + n - end, names->buffers[i]))
            return true;
    }
    return false;
}

size_t pp_weights_unused(const struct pp_model *m, const struct pp_tensors *t,
                         const char **first)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], info;
    size_t n = pp_tensors_n(t), unused = 0;
    bool *used = calloc(n + 1, sizeof *used);
    *first = NULL;
    for (size_t i = 0; used && i < pp_model_n_units(m); i++) {
        size_t k = pp_unit_params(m, pp_model_unit(m, i), table);
        for (size_t j = 0; j < pp_table_slots(table, k); j++) {
            const struct pp_tensor *x = pp_table_at(table, k, j, &info)
                                            ? pp_weights_find(t, m, info.name)
                                            : NULL;
            if (x)
                used[x - pp_tensors_at(t, 0)] = true;
        }
    }
    for (size_t i = 0; used && i < n; i++) {
        const struct pp_tensor *x = pp_tensors_at(t, i);
        if (used[i] || is_ignored(m, x))
            continue;
        if (unused++ == 0)
            *first = x->name;
    }
    free(used);
    return unused;
}
