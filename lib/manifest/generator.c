/* SPDX-License-Identifier: MIT */
/* generator - joins the plan of a generator to that of the language model that
 * it reads: its units and stages follow, and its first stage takes the rows
 * that the last one of the language model puts out, before the head.
 *
 * A manifest gives costs and sizes for a microbatch of the language model, as
 * one of its ranks sees it. Costs and sizes of the generator are scaled: it may
 * have other tokens for a microbatch, and on other data-parallel ranks it has
 * the tokens of several microbatches, or of a part of one. */
#include <string.h>

#include "manifest/sections.h"
#include "cost/workloads.h"
#include "model/precision.h"

/* Both plans, and the numbers by which the generator's costs grow. */
struct join {
    const struct pp_manifest *to, *of;
    struct pp_arena arena;
    double tokens, pairs;
    double rows; /* rows of a rank for a row of one of the language model's */
    struct pp_plan_model model;
};

static bool same_ranks(const struct pp_mesh *x, const struct pp_mesh *y)
{
    return x->dp == y->dp && x->tp == y->tp && x->cp == y->cp && x->ep == y->ep;
}

/* Returns whether the encoders of a plan are on the language model's ranks. */
static bool shares_ranks(const struct pp_manifest *m)
{
    return m->n_components > 0 && !m->components[0].apart;
}

/* Checks that the generator can have the mesh of the language model, if an
 * encoder shares that. */
static int check_shared(const struct pp_manifest *m,
                        const struct pp_manifest *g, struct pp_err *err)
{
    const struct pp_mesh *x = &m->mesh, *y = &g->mesh;
    if (!shares_ranks(m))
        return 0;
    if (!same_ranks(y, x))
        return pp_fail(err, PP_EXIT_INPUT,
                       "has not the dp %d x tp %d x cp %d x ep %d ranks of the "
                       "language model, which its encoder shares; plan the "
                       "encoder on ranks of its own",
                       x->dp, x->tp, x->cp, x->ep);
    if (x->cp_exchange != y->cp_exchange || x->cp_exact != y->cp_exact)
        return pp_fail(err, PP_EXIT_INPUT,
                       "exchanges keys by '%s'%s, but the language model, "
                       "which an encoder shares ranks with, by '%s'%s; plan "
                       "the encoder on ranks of its own, or both models in the "
                       "same way",
                       pp_cp_exchange_names[y->cp_exchange],
                       y->cp_exact ? ", exactly" : "",
                       pp_cp_exchange_names[x->cp_exchange],
                       x->cp_exact ? ", exactly" : "");
    return 0;
}

static int check_model(const struct pp_manifest *g, struct pp_err *err)
{
    if (g->n_components)
        return pp_fail(err, PP_EXIT_INPUT,
                       "has '%zu' components, but a generator is one model",
                       g->n_components);
    if (g->model.tied || g->model.ahead)
        return pp_fail(err, PP_EXIT_INPUT,
                       g->model.tied
                           ? "has a tied head, which a generator cannot have"
                           : "has multi-token prediction, which a generator "
                             "cannot have");
    return 0;
}

static int check_plans(const struct pp_manifest *m, const struct pp_manifest *g,
                       struct pp_err *err)
{
    if (check_model(g, err))
        return -1;
    if (pp_plan_generates(pp_manifest_plan(m)))
        return pp_fail(err, PP_EXIT_INPUT,
                       "the language model's plan has a generator already");
    if (m->graph.n_copies > 1 || g->graph.n_copies > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "plans with two copies of the weights cannot be joined");
    if (strcmp(m->model.dtype, g->model.dtype) || m->model.gpu != g->model.gpu)
        return pp_fail(err, PP_EXIT_INPUT,
                       "is for '%s' on a %s, but the language model's plan for "
                       "%s on a %s",
                       g->model.dtype, g->model.gpu ? "GPU" : "CPU",
                       m->model.dtype, m->model.gpu ? "GPU" : "CPU");
    if (m->has_profile != g->has_profile ||
        m->has_microbatch != g->has_microbatch)
        return pp_fail(err, PP_EXIT_INPUT,
                       "one of the plans has %s, and the other one none",
                       m->has_profile != g->has_profile ? "measured costs"
                                                        : "a microbatch");
    if (!pp_same_settings(&g->mesh, &m->mesh))
        return pp_fail(err, PP_EXIT_INPUT,
                       "has not the zero, resident and order of the language "
                       "model's mesh");
    return check_shared(m, g, err);
}

/* Returns the tokens and attended pairs of the microbatch that a plan
 * assumes. */
static struct pp_default_microbatch_part load_of(const struct pp_manifest *m)
{
    return m->has_microbatch ? pp_default_microbatch_part(&m->microbatch, 0,
                                                          m->microbatch.tokens)
                             : (struct pp_default_microbatch_part){1, 1};
}

static void set_scales(struct join *j)
{
    const struct pp_mesh *x = &j->to->mesh, *y = &j->of->mesh;
    const struct pp_default_microbatch_part a = load_of(j->to),
                                            b = load_of(j->of);
    double lanes = (double)x->dp / y->dp;
    j->tokens = lanes * b.tokens / a.tokens;
    j->pairs = lanes * b.pairs / a.pairs;
    j->rows = (double)pp_mesh_sharers(x) / pp_mesh_sharers(y);
}

/* --- units --- */

static void scale_mode(const struct join *j, struct pp_plan_mode *mode)
{
    mode->recompute_flops[0] *= j->tokens;
    mode->recompute_flops[1] *= j->pairs;
    mode->workspace_bytes *= j->tokens;
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        mode->act_bytes[k] *= j->tokens;
}

static void scale_unit(const struct join *j, struct pp_plan_unit *u)
{
    u->costs.fwd_flops[0] *= j->tokens;
    u->costs.fwd_flops[1] *= j->pairs;
    u->costs.out_bytes *= j->tokens;
    u->workspace.token *= j->tokens * j->rows;
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        u->costs.act_bytes[k] *= j->tokens;
    for (int r = 0; r < PP_MOST_MODES; r++)
        scale_mode(j, &u->modes[r]);
}

/* Sets the state of a unit whose plan leaves it to its parameters. */
static void set_state(struct pp_plan_unit *u, const struct pp_precision *types)
{
    const struct pp_held held =
        pp_held_whole(u->costs.params, u->role == PP_ROLE_TRAINED);
    const struct pp_state_bytes s = pp_state_bytes(NULL, held, types);
    u->state_bytes = (double)pp_state_sum(s);
    u->weight_bytes = (double)s.weights;
}

static void name_unit(struct join *j, struct pp_plan_unit *u)
{
    static const char prefix[] = PP_GENERATOR_PREFIX;
    size_t n = sizeof prefix + strlen(u->fqn);
    char *fqn = pp_arena_alloc(&j->arena, n, 1);
    snprintf(fqn, n, "%s%s", prefix, u->fqn);
    u->fqn = fqn;
}

/* Rows of layers for multi-token prediction are not among them. */
size_t pp_manifest_last_rows(const struct pp_plan_model *model)
{
    const struct pp_plan_unit *units = model->units;
    size_t last = model->n_units - 1;
    for (size_t i = 1; i < model->n_units && model->ahead; i++)
        if (!strcmp(units[i].fqn, model->ahead))
            last = i - 1;
    while (last > 0 && !(units[last].costs.out_bytes > 0))
        last--;
    return last;
}

/* The last unit of the language model also puts out the rows that its head
 * reads. It has room for their gradient from the generator, as it has for the
 * gradients of several predictions. */
static void pass_on(const struct join *j, struct pp_plan_unit *units)
{
    const struct pp_plan_model *a = &j->to->model;
    struct pp_plan_unit *head = &units[a->n_units - 1];
    head->costs.out_bytes = units[pp_manifest_last_rows(a)].costs.out_bytes;
    if (head->workspace.fixed && !a->ahead)
        head->workspace.token +=
            rint(head->costs.out_bytes * pp_mesh_sharers(&j->to->mesh));
}

static void join_models(struct join *j)
{
    const struct pp_plan_model *a = &j->to->model, *b = &j->of->model;
    const struct pp_precision *types = pp_precision_find(a->dtype);
    struct pp_plan_model *x = &j->model;
    *x = *a;
    x->n_units = a->n_units + b->n_units;
    x->units = pp_arena_alloc(&j->arena, x->n_units, sizeof *x->units);
    memcpy(x->units, a->units, a->n_units * sizeof *x->units);
    memcpy(x->units + a->n_units, b->units, b->n_units * sizeof *x->units);
    pass_on(j, x->units);
    x->has_state = a->has_state || b->has_state;
    x->params = a->params + b->params;
    x->n_tensors = x->rotary = 0; /* nothing says what its tables need */
    for (size_t i = 0; i < x->n_units; i++) {
        bool generates = i >= a->n_units;
        if (x->has_state && !(generates ? b : a)->has_state)
            set_state(&x->units[i], types ? types : pp_precisions);
        if (!generates)
            continue;
        name_unit(j, &x->units[i]);
        scale_unit(j, &x->units[i]);
    }
}

static struct pp_profile join_profiles(struct join *j)
{
    const struct pp_profile *a = &j->to->profile, *b = &j->of->profile;
    struct pp_profile p = *a;
    p.n_units = a->n_units + b->n_units;
    p.units = pp_arena_alloc(&j->arena, p.n_units, sizeof *p.units);
    memcpy(p.units, a->units, a->n_units * sizeof *p.units);
    if (b->seconds_per_param > a->seconds_per_param)
        p.seconds_per_param = b->seconds_per_param;
    for (size_t i = 0; i < b->n_units; i++) {
        struct pp_unit_seconds *u = &p.units[a->n_units + i];
        const double scale[] = {j->tokens, j->pairs};
        *u = b->units[i];
        u->fqn = j->model.units[a->n_units + i].fqn;
        u->experts = (struct pp_expert_loads){0};
        for (int k = 0; k < PP_N_RECOMPUTED; k++)
            u->elementwise[k] *= scale[0];
        for (int k = 0; k < 2; k++) {
            u->fwd[k] *= scale[k];
            u->input[k] *= scale[k];
            u->weight[k] *= scale[k];
        }
    }
    return p;
}

/* --- stages --- */

/* Appends the stages of a plan to the stages of the graph. */
static void add_stages(struct join *j, const struct pp_manifest *m,
                       size_t first_unit, struct pp_graph *g,
                       struct pp_plan_stage *stages)
{
    int base = g->n_stages;
    for (int s = 0; s < m->graph.n_stages; s++) {
        const struct pp_stage_node *from = &m->graph.stages[s];
        struct pp_stage_node *to = &g->stages[base + s];
        size_t n = (size_t)from->n_inputs + (base > 0 && s == 0);
        int *inputs = pp_arena_alloc(&j->arena, n, sizeof *inputs);
        *to = (struct pp_stage_node){.row = g->n_rows + from->row,
                                     .copy_of = -1,
                                     .n_inputs = (int)n,
                                     .inputs = inputs};
        for (int i = 0; i < from->n_inputs; i++)
            inputs[i] = base + from->inputs[i];
        if (base > 0 && s == 0)
            inputs[0] = base - 1;
        stages[base + s] = (struct pp_plan_stage){
            .first_unit = first_unit + m->stages[s].first_unit,
            .n_units = m->stages[s].n_units,
            .recompute = m->stages[s].recompute};
    }
    g->n_stages += m->graph.n_stages;
    g->n_rows += m->graph.n_rows;
}

/* Adds up the units of the stages. */
static void sum_stages(const struct join *j, const struct pp_graph *g,
                       struct pp_plan_stage *stages)
{
    for (int s = 0; s < g->n_stages; s++) {
        struct pp_plan_stage *x = &stages[s];
        if (g->stages[s].n_inputs)
            x->costs.out_bytes = stages[g->stages[s].inputs[0]].costs.out_bytes;
        for (size_t i = 0; i < x->n_units; i++)
            pp_plan_stage_add(x, &j->model.units[x->first_unit + i]);
    }
}

/* Fills the graph and returns its stages. */
static struct pp_plan_stage *join_stages(struct join *j, struct pp_graph *g)
{
    size_t n = (size_t)(j->to->graph.n_stages + j->of->graph.n_stages);
    struct pp_plan_stage *stages = pp_arena_alloc(&j->arena, n, sizeof *stages);
    *g = (struct pp_graph){.tied = {-1, -1},
                           .n_copies = 1,
                           .stages =
                               pp_arena_alloc(&j->arena, n, sizeof *g->stages)};
    add_stages(j, j->to, 0, g, stages);
    add_stages(j, j->of, j->to->model.n_units, g, stages);
    sum_stages(j, g, stages);
    return stages;
}

/* --- components --- */

/* Lists the components of the language model's plan, and the generator. Without
 * encoders each of both has ranks of its own. Returns how many. */
static size_t list_components(const struct join *j, struct pp_component *parts)
{
    const struct pp_manifest *m = j->to, *g = j->of;
    size_t n = m->n_components;
    bool apart = !shares_ranks(m);
    if (n)
        memcpy(parts, m->components, n * sizeof *parts);
    if (n == 0)
        parts[n++] = (struct pp_component){.name = "language",
                                           .n_units = m->model.n_units,
                                           .n_ranks = m->graph.n_rows,
                                           .apart = true,
                                           .mesh = m->mesh};
    const struct pp_component *last = &parts[n - 1];
    parts[n++] = (struct pp_component){
        .name = "generator",
        .n_units = g->model.n_units,
        .rank_offset = m->graph.n_rows,
        .n_ranks = g->graph.n_rows,
        .apart = apart,
        .mesh = g->mesh,
        .first_rank = apart ? last->first_rank + pp_mesh_ranks(&last->mesh) : 0,
        .source = g->model.source,
        .behind = last->name};
    return n;
}

static int set_all(struct join *j, struct pp_manifest *out, struct pp_err *err)
{
    struct pp_component *parts =
        pp_arena_alloc(&j->arena, j->to->n_components + 2, sizeof *parts);
    struct pp_mesh mesh = j->to->mesh;
    struct pp_profile profile;
    struct pp_graph graph;
    join_models(j);
    const struct pp_plan_stage *stages = join_stages(j, &graph);
    if (j->to->has_profile)
        profile = join_profiles(j);
    mesh.pp = graph.n_rows;
    size_t n = list_components(j, parts);
    return pp_manifest_set_model(out, &j->model, err) ||
                   (j->to->has_profile &&
                    pp_manifest_set_profile(out, &profile, err)) ||
                   (j->to->has_microbatch &&
                    pp_manifest_set_microbatch(out, &j->to->microbatch, err)) ||
                   pp_manifest_set_stages(out, NULL, &mesh, &graph, stages,
                                          err) ||
                   pp_manifest_set_components(out, parts, n, err)
               ? -1
               : 0;
}

/* Checks that gradients reach the generator's units as in its own plan.
 * Gradients for the language model pass the first units, too, and a frozen one
 * then keeps what its plan does not count. */
static int check_roles(const struct join *j, const struct pp_manifest *out,
                       struct pp_err *err)
{
    const struct pp_plan_unit *own = j->of->model.units;
    for (size_t i = 0; i < j->of->model.n_units; i++)
        if (out->model.units[j->to->model.n_units + i].role != own[i].role)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%s' is frozen, and nothing before it is trained, "
                           "but gradients for the language model pass it; "
                           "freeze no first units",
                           own[i].fqn);
    return 0;
}

int pp_manifest_add_generator(struct pp_manifest *m,
                              const struct pp_manifest *generator,
                              struct pp_err *err)
{
    struct join j = {.to = m, .of = generator};
    struct pp_manifest out;
    if (check_plans(m, generator, err))
        return -1;
    json_t *document = json_deep_copy(m->document);
    json_object_del(document, "x-search"); /* it was without a generator */
    if (pp_manifest_load(document, PP_OWN_NAME, &out, err))
        return -1;
    set_scales(&j);
    int rc = set_all(&j, &out, err) || check_roles(&j, &out, err) ? -1 : 0;
    pp_arena_finish(&j.arena);
    pp_manifest_finish(rc ? &out : m);
    if (rc == 0)
        *m = out; /* it has no schedule, which would point to its graph */
    return rc;
}
