/* SPDX-License-Identifier: MIT */
/* ppsplit_model - reads the model: its configuration, or a table of units, or
 * the outline of a model that pprun does not train. */
#include "base/file.h"
#include "data/safetensors.h"
#include "manifest/config_json.h"
#include "manifest/outline.h"
#include "manifest/units_json.h"
#include "ppsplit.h"
#include "run/parameters/weights.h"

/* Compares weights beside the config with it: without this check, a plan for
 * tensors that do not exist fails later, on every rank. */
static int check_weights(struct split_job *j)
{
    struct pp_tensors *tensors;
    if (j->model.table || !pp_file_is_dir(j->source) ||
        !pp_tensors_exist(j->source))
        return 0;
    if (pp_tensors_open(j->source, &tensors, &j->t.err))
        return -1;
    int rc = pp_weights_check(&j->model, tensors, &j->t.err);
    if (rc)
        pp_fail_at(&j->t.err, "%s: ", j->source);
    pp_tensors_close(tensors);
    return rc;
}

/* Reports whether the model of a manifest is a table of units, and reads it. */
static bool is_table(struct split_job *j)
{
    struct pp_err none = {0};
    return j->given && !pp_units_read(j->source, &j->arena, &j->model, &none);
}

/* Reads a model that pprun does not train, for the reason `why`, with the
 * tensors beside it if there are any. */
static int read_outline(struct split_job *j, const struct pp_err *why)
{
    struct pp_tensors *tensors = NULL;
    size_t n = 0;
    bool weights = pp_file_is_dir(j->source) && pp_tensors_exist(j->source);
    if (weights && pp_tensors_open(j->source, &tensors, &j->t.err))
        return -1;
    n = tensors ? pp_tensors_n(tensors) : 0;
    struct pp_shape *shapes = pp_arena_alloc(&j->arena, n, sizeof *shapes);
    for (size_t i = 0; i < n; i++) {
        const struct pp_tensor *t = pp_tensors_at(tensors, i);
        shapes[i] = (struct pp_shape){t->name, t->n_dims, t->dims,
                                      t->dtype == PP_DTYPE_I64 ||
                                          t->dtype == PP_DTYPE_I32};
    }
    int rc = pp_outline_read(j->source, shapes, n, why, &j->arena, &j->model,
                             &j->t.err);
    pp_tensors_close(tensors);
    if (rc)
        return rc;
    if (j->mtp)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--mtp: '%s' is a model that pprun does not train, of "
                       "which these layers are left out",
                       j->source);
    tool_say(&j->t, TOOL_NOTE, "estimated: %s", split_estimates(j));
    if (j->model.table->left_out)
        tool_say(&j->t, TOOL_NOTE, "left out: %s", j->model.table->left_out);
    return 0;
}

int split_read_model(struct split_job *j)
{
    struct pp_err why = {0};
    if (is_table(j))
        return 0;
    if (j->units)
        return pp_units_read(j->units, &j->arena, &j->model, &j->t.err);
    if (pp_model_read(j->source, &j->model, &why))
        return read_outline(j, &why);
    if (j->mtp && j->model.n_nextn == 0)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--mtp: '%s' has no layers for multi-token prediction",
                       j->source);
    j->model.n_mtp = j->mtp ? j->model.n_nextn : 0;
    return check_weights(j);
}
