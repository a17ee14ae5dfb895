/* SPDX-License-Identifier: MIT */
/* connector - the product with a bias by which a generator reads the
 * rows of a language model. It belongs to the unit of the generator's
 * embedding, but the plan of a generator alone does not know the width of these
 * rows. So its costs, and the costs of the state, are computed again. */
#include <math.h>

#include "manifest/config_json.h"
#include "model/precision.h"
#include "ppsplit.h"
#include "split/describe.h"

static const struct pp_precision *types_of(const struct pp_manifest *m)
{
    const struct pp_precision *p = pp_precision_find(m->model.dtype);
    return p ? p : pp_precisions;
}

/* Returns the elements of the rows that a unit puts out. */
static size_t width_of(const struct pp_manifest *m, size_t unit)
{
    double row =
        m->model.units[unit].costs.out_bytes * pp_mesh_sharers(&m->mesh);
    return (size_t)rint(row / (double)types_of(m)->element_bytes);
}

/* Sets the costs of the first unit of a model on the ranks of a plan. */
static void set_costs(const struct pp_manifest *m, const struct pp_model *model,
                      struct pp_plan_unit *u)
{
    const struct pp_split_request q = {.shard = pp_shard_of(model, &m->mesh),
                                       .precision = types_of(m),
                                       .gpu = m->model.gpu,
                                       .microbatch = {.seq_len = 1}};
    pp_split_describe_unit(&q, 0, false, u);
}

/* Plans the embedding of a generator whose tensors are known. */
static int plan_embedding(struct split_job *j, size_t reads,
                          struct pp_manifest *g)
{
    const struct pp_plan_model *m = &g->model;
    struct pp_plan_unit *u = m->units;
    enum pp_role *roles =
        pp_arena_alloc(&j->p.arena, m->n_units, sizeof *roles);
    struct pp_model model;
    if (pp_model_read(m->source, &model, &j->p.t.err))
        return -1;
    if (pp_unit_n_params(&model, pp_model_unit(&model, 0)) != u->costs.params)
        return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                       "'%s' is another model than the one that was planned; "
                       "plan it again",
                       m->source);
    for (size_t i = 0; i < m->n_units; i++)
        roles[i] = m->units[i].role;
    model.roles = roles;
    model.reads = reads;
    set_costs(g, &model, u);
    return 0;
}

/* Adds the connector to the embedding of a table of units, which has no
 * tensors: what it adds to that of any model of this width. */
static void extend_embedding(size_t reads, struct pp_manifest *g)
{
    struct pp_plan_unit *u = g->model.units, with = {0}, without = {0};
    struct pp_model any = {.hidden = width_of(g, 0), .vocab = 1, .n_layers = 1};
    set_costs(g, &any, &without);
    any.reads = reads;
    set_costs(g, &any, &with);
    u->costs.params += with.costs.params - without.costs.params;
    u->costs.fwd_flops[0] += with.costs.fwd_flops[0];
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        u->costs.act_bytes[k] +=
            with.costs.act_bytes[k] - without.costs.act_bytes[k];
    if (u->workspace.fixed) /* a table may have none */
        u->workspace.token += with.workspace.token - without.workspace.token;
    const struct pp_held held =
        pp_held_whole(u->costs.params, u->role == PP_ROLE_TRAINED);
    const struct pp_state_bytes s = pp_state_bytes(&g->mesh, held, types_of(g));
    const size_t gathered = pp_gathered_bytes(&g->mesh, held, types_of(g));
    u->state_bytes = (double)pp_state_sum(s);
    u->weight_bytes = (double)(gathered ? gathered : s.weights);
}

/* Adds the time of so many operations. Nothing measured them: they take as long
 * as the operations of the next unit with a product. */
static void add_seconds(struct pp_manifest *g, double flops)
{
    const struct pp_plan_model *m = &g->model;
    struct pp_unit_seconds *to = g->profile.units;
    size_t i = 1;
    while (i < m->n_units && !(m->units[i].costs.fwd_flops[0] > 0))
        i++;
    if (i == m->n_units)
        return;
    const struct pp_unit_seconds *like = &g->profile.units[i];
    double ratio = flops / m->units[i].costs.fwd_flops[0];
    to->fwd[0] += ratio * like->fwd[0];
    to->input[0] += ratio * like->input[0];
    to->weight[0] += ratio * like->weight[0];
}

int split_connect(struct split_job *j, const struct pp_manifest *language,
                  struct pp_manifest *g)
{
    struct pp_plan_model *m = &g->model;
    const struct pp_plan_unit before = m->units[0];
    size_t reads = width_of(language, pp_manifest_last_rows(&language->model));
    if (g->n_components) /* it is no generator */
        return 0;
    if (m->n_tensors == 0)
        extend_embedding(reads, g);
    else if (plan_embedding(j, reads, g))
        return -1;
    m->params += m->units[0].costs.params - before.costs.params;
    if (g->has_profile)
        add_seconds(g,
                    m->units[0].costs.fwd_flops[0] - before.costs.fwd_flops[0]);
    return 0;
}
