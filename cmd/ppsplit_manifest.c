/* SPDX-License-Identifier: MIT */
/* The plan as a manifest. */
#include "manifest/manifest.h"
#include "ppsplit.h"
#include "version.h"

static int set_units(const struct split_job *j, struct pp_arena *a,
                     struct pp_manifest_unit *units)
{
    char fqn[PP_FQN_TEXT];
    double element = (double)j->precision->element_bytes;
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        struct pp_flops f = pp_unit_fwd_flops(&j->model, u);
        struct pp_manifest_unit *x = &units[i];
        pp_unit_fqn(u, fqn);
        x->fqn = pp_arena_strdup(a, fqn);
        if (!x->fqn)
            return -1;
        x->params = pp_unit_n_params(&j->model, u);
        x->fwd_flops[0] = f.per_token;
        x->fwd_flops[1] = f.per_pair;
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            x->act_bytes[b] = (double)pp_unit_saved_bytes(
                &j->model, u, (enum pp_saved_block)b, j->precision);
        /* Nothing leaves the head but a loss. */
        x->out_bytes =
            u.kind == PP_UNIT_HEAD ? 0 : element * (double)j->model.hidden;
    }
    return 0;
}

static void set_stages(const struct split_job *j,
                       const struct pp_manifest_unit *units,
                       struct pp_manifest_stage *stages)
{
    for (int s = 0; s < j->graph.n_stages; s++) {
        struct pp_manifest_stage *x = &stages[s];
        x->first_unit = split_first(j, s);
        x->n_units = split_end(j, s) - split_first(j, s);
        /* An empty stage hands on what it gets: hidden states. */
        x->out_bytes = (double)(j->precision->element_bytes * j->model.hidden);
        for (size_t i = split_first(j, s); i < split_end(j, s); i++) {
            x->params += units[i].params;
            for (int k = 0; k < 2; k++)
                x->fwd_flops[k] += units[i].fwd_flops[k];
            for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
                x->act_bytes[b] += units[i].act_bytes[b];
            x->out_bytes = units[i].out_bytes;
        }
    }
}

static int fill(const struct split_job *j, struct pp_arena *a,
                const char *command, struct pp_manifest *m, struct pp_err *err)
{
    struct pp_manifest_model model = {
        .source = j->source,
        .architecture = pp_architecture_name(j->model.architecture),
        .dtype = j->precision->name,
        .tied = j->model.tied,
        .params = pp_model_n_params(&j->model),
        .units = pp_arena_alloc(a, j->n_units, sizeof *model.units),
        .n_units = j->n_units,
    };
    struct pp_mesh mesh = {.pp = j->graph.n_ranks, 1, 1, 1, 1};
    struct pp_manifest_stage *stages =
        pp_arena_alloc(a, (size_t)j->graph.n_stages, sizeof *stages);
    if (!model.units || !stages || set_units(j, a, model.units))
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    set_stages(j, model.units, stages);
    if (pp_manifest_set_model(m, &model, err) ||
        pp_manifest_set_stages(m, &mesh, &j->graph, stages, err))
        return -1;
    return pp_manifest_add_history(m, "ppsplit", PP_VERSION, command, err);
}

int split_print_manifest(const struct split_job *j, const char *command,
                         FILE *f, struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_manifest m;
    if (pp_manifest_init(&m, err))
        return -1;
    int rc = fill(j, &a, command, &m, err);
    if (rc == 0)
        rc = pp_manifest_write(&m, f, err);
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}
