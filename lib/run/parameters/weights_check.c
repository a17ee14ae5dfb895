/* SPDX-License-Identifier: MIT */
/* weights_check - checks that tensors fit a model, from their headers alone. It
 * has a file of its own because ppsplit links it, without the trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "model/lora.h"
#include "model/parts.h"
#include "run/parameters/stored.h"
#include "run/parameters/weights.h"

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
            struct pp_stored x;
            bool found = pp_stored_find(&x, t, m, info.name);
            if (!found && (info.tied_to || pp_stored_may_lack(t, info.name)))
                continue;
            if (!found)
                return fail_missing(info.name, t, err);
            if (pp_stored_check(&info, &x, err))
                return -1;
        }
    }
    return 0;
}

/* Returns whether files may have the tensor although nobody reads it, such as
 * tensors of layers for multi-token prediction. */
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

static void mark_used(const struct pp_model *m, const struct pp_tensors *t,
                      const char *name, bool *used)
{
    struct pp_stored x;
    if (!pp_stored_find(&x, t, m, name))
        return;
    used[x.values - pp_tensors_at(t, 0)] = true;
    if (x.scales)
        used[x.scales - pp_tensors_at(t, 0)] = true;
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
            if (!pp_table_at(table, k, j, &info))
                continue;
            const char *base = pp_lora_base_name(info.name);
            mark_used(m, t, info.name, used);
            if (base)
                mark_used(m, t, base, used);
        }
    }
    for (size_t i = 0; used && i < n; i++) {
        const struct pp_tensor *x = pp_tensors_at(t, i);
        if (used[i] || is_ignored(m, x))
            continue;
        if (unused++ == 0 || (pp_lora_has(x->name) && !pp_lora_has(*first)))
            *first = x->name;
    }
    free(used);
    return unused;
}

int pp_weights_base(const struct pp_tensors *t, uint64_t *sum,
                    struct pp_err *err)
{
    struct pp_checksum_sum s = {0};
    if (pp_checksum_begin(&s, err))
        return -1;
    for (size_t i = 0; i < pp_tensors_n(t); i++) {
        const struct pp_tensor *x = pp_tensors_at(t, i);
        if (pp_lora_has(x->name))
            continue;
        pp_checksum_add(&s, x->name, strlen(x->name) + 1);
        pp_checksum_add(&s, x->dims, (size_t)x->n_dims * sizeof *x->dims);
        pp_checksum_add(&s, x->data,
                        x->bytes < PP_BASE_BYTES ? x->bytes : PP_BASE_BYTES);
    }
    *sum = pp_checksum_value(&s);
    pp_checksum_finish(&s);
    return 0;
}
