/* SPDX-License-Identifier: MIT */
/* ppsplit_freeze - the units that are not trained: those of --freeze, and those
 * that do not run. */
#include "model/frozen.h"
#include "ppsplit.h"

int split_set_roles(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    bool *frozen = pp_arena_alloc(&j->arena, j->n_units, sizeof *frozen);
    enum pp_role *roles = pp_arena_alloc(&j->arena, j->n_units, sizeof *roles);
    if (!pp_freeze_idle(&j->model, frozen) && !j->freeze)
        return 0;
    if (j->freeze && pp_freeze_units(&j->model, j->freeze, frozen, err))
        return pp_fail_at(err, "--freeze: ");
    pp_model_roles(&j->model, frozen, roles);
    j->model.roles = roles;
    return 0;
}
