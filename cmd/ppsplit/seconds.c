/* SPDX-License-Identifier: MIT */
/* seconds - the units of a model in seconds, on the machine or by
 * --flops. */
#include "cost/estimate.h"
#include "ppsplit.h"

int split_set_seconds(struct split_job *j)
{
    const struct pp_estimate x = {
        .shard = &j->p.request.shard,
        .precision = j->p.precision,
        .machine = &j->p.machine,
        .trainer = j->p.trainer,
        .flops = j->o.flops,
        .layout =
            pp_split_layout_of(j->encoders, &j->p.mesh, (int)j->o.n_ranks),
        .microbatch = {.tokens = j->o.tokens, .seq_len = j->p.seq_len}};
    /* A machine beside measured costs has the links, and the update if nobody
     * measured it. */
    if (j->o.costs_file && !(j->profile.seconds_per_param > 0))
        j->profile.seconds_per_param = pp_estimate_update(&x);
    if (j->o.costs_file ||
        (!(j->o.flops > 0) && !j->p.gpu && !j->p.machine_file))
        return 0;
    if (!(j->o.flops > 0) &&
        !(pp_machine_peak(&j->p.machine, j->p.precision->name) > 0 &&
          j->p.machine.efficiency > 0))
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "%s: has no peak and efficiency for %s; give --flops",
                       j->p.machine_file, j->p.precision->name);
    struct pp_unit_seconds *units =
        pp_arena_alloc(&j->p.arena, j->n_units, sizeof *units);
    for (size_t i = 0; i < j->n_units; i++) {
        char fqn[PP_FQN_TEXT];
        pp_model_fqn(&j->p.model, pp_model_unit(&j->p.model, i), fqn);
        units[i].fqn = pp_arena_strdup(&j->p.arena, fqn);
        pp_estimate_unit(&x, i, &units[i]);
    }
    j->profile =
        (struct pp_profile){.units = units,
                            .n_units = j->n_units,
                            .seconds_per_param = pp_estimate_update(&x)};
    j->p.request.profile = &j->profile;
    return 0;
}
