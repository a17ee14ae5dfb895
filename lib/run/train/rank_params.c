/* SPDX-License-Identifier: MIT */
/* rank_params - makes the parameters of a rank and fills them from a
 * checkpoint, from tensors or from a seed. Checks that a checkpoint belongs to
 * the job. */
#include <stdio.h>
#include <stdlib.h>

#include "run/checkpoint/ckpt.h"
#include "run/train/rank.h"
#include "run/parameters/weights.h"

/* Returns how the ranks of a mesh hold tensors: ranks of one group divide them,
 * ranks of the other hold the same. */
static struct pp_shares shares_of(const struct pp_rank *r,
                                  const struct pp_mesh *x,
                                  enum pp_group_kind divide,
                                  enum pp_group_kind same)
{
    const struct pp_env *e = &r->env;
    return (struct pp_shares){
        .tp = (size_t)x->tp,
        .tp_rank = (size_t)pp_layout_group(&e->layout, &e->place, divide).index,
        .owners = pp_mesh_owners(x),
        .owner = (size_t)pp_layout_group(&e->layout, &e->place, same).index};
}

/* The same of experts: all ranks of a row have a number. */
static struct pp_shares shares_of_experts(const struct pp_rank *r,
                                          const struct pp_mesh *x)
{
    const struct pp_env *e = &r->env;
    if (!pp_mesh_has_whole_experts(x) || !pp_env_has_tokens(e))
        return (struct pp_shares){0};
    return (struct pp_shares){
        .tp = 1,
        .owners = x->whole_state ? 1 : pp_mesh_expert_ranks(x),
        .owner =
            (size_t)pp_layout_group(&e->layout, &e->place, PP_GROUP_ROW).index};
}

static int make_params(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    const struct pp_graph *g = j->schedule->graph;
    struct pp_unit_range *mine = calloc((size_t)g->n_stages, sizeof *mine);
    size_t n = 0;
    if (!mine)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == r->env.place.row && pp_job_holds(j, s))
            mine[n++] = j->stages[s];
    int flags = 0;
    if (j->optim.steps > 0 && !j->score)
        flags = j->optim.optimizer == PP_ADAMW_OPTIMIZER
                    ? PP_WITH_GRADS | PP_WITH_MOMENTS
                    : PP_WITH_GRADS;
    const struct pp_mesh *mesh = pp_env_mesh(&r->env);
    const struct pp_mesh own = pp_mesh_of(mesh, true);
    const struct pp_parameter_memory where = {
        .device = r->env.device,
        .element_bytes = r->kernels.element_bytes,
        .accumulator_bytes = r->kernels.accumulator_bytes,
        .shares = shares_of(r, mesh, PP_GROUP_TP, PP_GROUP_DATA),
        .encoder = mesh->encoder_tp ? shares_of(r, &own, PP_GROUP_ENCODER_TP,
                                                PP_GROUP_ENCODER_DATA)
                                    : (struct pp_shares){0},
        .whole_encoders = !mesh->encoder_tp && !pp_env_encodes(&r->env),
        .experts = shares_of_experts(r, mesh),
        .ep = (size_t)mesh->ep,
        .divided = pp_mesh_divides_weights(mesh)};
    int rc =
        pp_parameters_init(&r->params, j->model, mine, n, &where, flags, err);
    free(mine);
    return rc;
}

/* Moments are valid only for the optimizer and the decay rates that made them.
 * All other settings of the update may change from step to step. */
static int check_moments(const struct pp_job *j, const struct pp_ckpt_state *s,
                         struct pp_err *err)
{
    static const char *const names[] = {
        [PP_ADAMW_OPTIMIZER] = "adamw", [PP_SGD_OPTIMIZER] = "sgd"};
    const struct pp_optim *o = &j->optim;
    if (s->optimizer != (int64_t)o->optimizer)
        return pp_fail_setting(
            err, PP_EXIT_INPUT, "optimizer", names[s->optimizer],
            "%s: was made with optimizer '%s', not '%s'", j->resume,
            names[s->optimizer], names[o->optimizer]);
    if (o->optimizer != PP_ADAMW_OPTIMIZER ||
        (s->betas[0] == o->beta1 && s->betas[1] == o->beta2))
        return 0;
    char betas[64];
    snprintf(betas, sizeof betas, "%.12g,%.12g", s->betas[0], s->betas[1]);
    return pp_fail_setting(err, PP_EXIT_INPUT, "betas", betas,
                           "%s: was made with decay rates %s, not %.12g,%.12g",
                           j->resume, betas, o->beta1, o->beta2);
}

/* Checks that the run can go on from the checkpoint's place in the data. */
static int check_place(const struct pp_job *j, const struct pp_ckpt_state *s,
                       struct pp_err *err)
{
    if (s->data_checksum != j->data->origin)
        return pp_fail_setting(err, PP_EXIT_INPUT, "new-data", NULL,
                               "%s: was made with other data; its weights and "
                               "moments can go on from the beginning of this",
                               j->resume);
    int64_t mine = (int64_t)pp_job_microbatches(j) * j->accumulate;
    if (s->step_microbatches != mine)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: was made with %lld microbatches a step, not %lld",
                       j->resume, (long long)s->step_microbatches,
                       (long long)mine);
    if ((uint64_t)s->epoch_microbatches != pp_packed_epoch(j->data))
        return pp_fail_setting(err, PP_EXIT_INPUT, "last-batch", NULL,
                               "%s: was made with %lld microbatches an epoch, "
                               "not %llu",
                               j->resume, (long long)s->epoch_microbatches,
                               (unsigned long long)pp_packed_epoch(j->data));
    return 0;
}

/* Checks what was read, and moves to the beginning of new data. */
static int check_resumed(const struct pp_job *j, struct pp_ckpt_state *s,
                         struct pp_err *err)
{
    if (j->new_data && s->data_checksum != j->data->origin)
        s->microbatches = 0;
    else if (check_place(j, s, err))
        return -1;
    return check_moments(j, s, err);
}

/* Adapters are of no use beside another base. */
static int check_base(const struct pp_job *j, const struct pp_ckpt_state *s,
                      struct pp_err *err)
{
    return !j->model->lora || s->base_checksum == j->base_checksum
               ? 0
               : pp_fail_setting(err, PP_EXIT_INPUT, "weights", NULL,
                                 "%s: was made beside other weights",
                                 j->resume);
}

static int read_state(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct pp_ckpt_state s = {0};
    bool trains = !j->score && j->optim.steps > 0;
    if (pp_ckpt_state_read(j->resume, &s, err) || check_base(j, &s, err) ||
        (trains && check_resumed(j, &s, err)))
        return -1;
    r->step = s.step;
    r->microbatches = s.microbatches;
    return 0;
}

/* A checkpoint has all weights, or adapters alone. */
static int fill_params(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    int rc = 0;
    if (j->resume && read_state(r, err))
        return -1;
    if (j->weights && pp_weights_load(&r->params, j->model, j->weights, err))
        return pp_fail_at(err, "%s: ", j->weights_path);
    if (!j->weights && (!j->resume || j->model->lora))
        rc = pp_weights_init(&r->params, j->model, j->seed, err);
    if (rc == 0 && j->resume)
        rc = pp_ckpt_load(j->resume, &r->params, err);
    return rc;
}

int pp_rank_make_params(struct pp_rank *r, struct pp_err *err)
{
    return make_params(r, err) || fill_params(r, err) ? -1 : 0;
}
