/* SPDX-License-Identifier: MIT */
/* ppsplit_seconds - --gpu, --machine, --flops and --link: the units of a model
 * in seconds, tokens a second, and the use of a GPU's peak. */

#include <math.h>

#include "cost/estimate.h"
#include "manifest/machine_json.h"
#include "ppsplit.h"
#include "split/split_describe.h"

bool split_has_seconds(const struct split_job *j)
{
    return j->request.profile != NULL;
}

/* Sets the levels of --link. A single bandwidth is that of all ranks. */
static int set_links(struct split_job *j)
{
    struct pp_machine *m = &j->machine;
    if (j->link[0] > 0 && !(j->link[1] > 0)) {
        if (j->node)
            return tool_usage(&j->t, "--node needs a --link with two rates, in "
                                     "a node and between nodes");
        m->n_levels = 1;
        m->levels[0] = (struct pp_machine_level){0, j->link[0], 0};
    } else if (j->link[0] > 0) {
        const struct pp_machine *known = pp_machines;
        for (int k = 0; k < 2; k++)
            m->levels[k] = m->n_levels > 1 ? m->levels[k] : known->levels[k];
        m->n_levels = 2;
        m->levels[0].bandwidth = j->link[0];
        m->levels[1].bandwidth = j->link[1];
    }
    if (j->node)
        m->levels[0].size = j->node;
    return 0;
}

int split_choose_machine(struct split_job *j)
{
    struct pp_machine *m = &j->machine;
    j->has_machine |= j->gpu || j->machine_file || j->link[0] > 0;
    if (j->gpu)
        *m = *pp_machine_find(j->gpu);
    if (j->machine_file &&
        pp_machine_read(j->machine_file, &j->arena, m, &j->t.err))
        return -1;
    if (set_links(j))
        return -1;
    j->peak = pp_machine_peak(m, j->precision->name);
    if (j->memory_bytes == 0 && (j->gpu || j->machine_file))
        j->memory_bytes = (size_t)m->memory_bytes;
    return 0;
}

/* Returns the places of the language model's ranks. */
static struct pp_layout layout_of(const struct split_job *j)
{
    struct pp_layout l = {.components = {{.mesh = j->mesh}}, .n_components = 1};
    l.components[0].mesh.pp = (int)j->n_ranks;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        l.components[0].mesh.pp -= j->encoders[i].pp;
        l.components[0].first_row += j->encoders[i].pp;
        l.components[0].first_rank += pp_mesh_ranks(&j->encoders[i]);
    }
    return l;
}

int split_set_seconds(struct split_job *j)
{
    const struct pp_estimate x = {
        .shard = &j->request.shard,
        .precision = j->precision,
        .machine = &j->machine,
        .trainer = j->trainer,
        .flops = j->flops,
        .layout = layout_of(j),
        .microbatch = {.tokens = j->tokens, .seq_len = j->seq_len}};
    /* A machine beside measured costs has the links, and the update if nobody
     * measured it. */
    if (j->costs_file && !(j->profile.seconds_per_param > 0))
        j->profile.seconds_per_param = pp_estimate_update(&x);
    if (j->costs_file || (!(j->flops > 0) && !j->gpu && !j->machine_file))
        return 0;
    if (!(j->flops > 0) && !(j->peak > 0 && j->machine.efficiency > 0))
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: has no peak and efficiency for %s; give --flops",
                       j->machine_file, j->precision->name);
    struct pp_unit_seconds *units =
        pp_arena_alloc(&j->arena, j->n_units, sizeof *units);
    for (size_t i = 0; i < j->n_units; i++) {
        char fqn[PP_FQN_TEXT];
        pp_model_fqn(&j->model, pp_model_unit(&j->model, i), fqn);
        units[i].fqn = pp_arena_strdup(&j->arena, fqn);
        pp_estimate_unit(&x, i, &units[i]);
    }
    j->profile =
        (struct pp_profile){.units = units,
                            .n_units = j->n_units,
                            .seconds_per_param = pp_estimate_update(&x)};
    j->request.profile = &j->profile;
    return 0;
}

/* Returns the operations of a step that a model needs: three times those of its
 * forward, without what is computed again. */
static double useful_flops(const struct split_job *j)
{
    const struct pp_default_microbatch_part all =
        pp_default_microbatch_slice(&j->request.microbatch, 0, 1);
    struct pp_shard whole = j->request.shard;
    double sum = 0;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) { /* of all ranks */
        struct pp_image_load *of = &whole.images[i];
        of->sharers = of->makers = of->lanes = of->tp = 1;
    }
    whole.skew = NULL;
    for (size_t i = 0; i < j->n_units; i++) {
        const struct pp_flops f =
            pp_unit_fwd_flops(&whole, pp_model_unit(&j->model, i));
        sum += f.per_token * all.tokens +
               pp_pair_flops(&f, (double)j->seq_len) * all.pairs;
    }
    return 3 * sum;
}

int64_t split_encoder_group(const struct split_job *j, size_t encoder)
{
    const struct pp_mesh *x = &j->encoders[encoder];
    return (int64_t)x->dp * pp_mesh_sharers(x);
}

int64_t split_n_ranks(const struct split_job *j)
{
    int64_t of_row = (int64_t)j->mesh.dp * pp_mesh_sharers(&j->mesh);
    int64_t n = 0, rows = j->n_ranks;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        n += j->encoders[i].pp * split_encoder_group(j, i);
        rows -= j->encoders[i].pp;
    }
    return n + rows * of_row;
}

int split_step_seconds(const struct split_job *j,
                       const struct pp_split_plan *plan, double *seconds,
                       struct pp_err *err)
{
    (void)j;
    *seconds = INFINITY;
    return plan->run.simulated ? pp_split_step_seconds(plan, seconds, err) : 0;
}

struct split_speed split_speed_of(const struct split_job *j, double step,
                                  int64_t n_microbatches)
{
    double n = (double)n_microbatches;
    double ranks = (double)split_n_ranks(j) / j->mesh.dp;
    return (struct split_speed){
        .tokens = n * (double)j->tokens * j->mesh.dp / step,
        .mfu =
            j->peak > 0 ? n * useful_flops(j) / (step * ranks * j->peak) : 0};
}
