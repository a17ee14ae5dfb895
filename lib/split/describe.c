/* SPDX-License-Identifier: MIT */
#include "split/describe.h"

#include <math.h>
#include <string.h>

#include "cost/step.h"
#include "model/cost.h"
#include "model/vision.h"

/* --- units --- */

struct pp_plan_mode pp_split_describe_mode(const struct pp_split_request *q,
                                           struct pp_unit_id u,
                                           enum pp_recompute r)
{
    const struct pp_backend b = pp_backend_of(q->precision, !q->gpu);
    struct pp_flops f = pp_unit_recompute_flops(&q->shard, u, r);
    const struct pp_unit_rates rates =
        pp_split_trainer(q)->rates(&q->shard, u, r, &b);
    const struct pp_unit_rates kept =
        pp_split_trainer(q)->rates(&q->shard, u, PP_RECOMPUTE_NONE, &b);
    double n = pp_mesh_sharers(&q->shard.mesh);
    struct pp_plan_mode mode = {
        .recompute = r,
        .recompute_flops = {f.per_token / n,
                            pp_pair_flops(&f, (double)q->microbatch.seq_len) /
                                n},
        .workspace_bytes = (rates.workspace.token - kept.workspace.token) / n};
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        mode.act_bytes[k] = rates.act[k] / n;
    return mode;
}

void pp_split_describe_unit(const struct pp_split_request *q, size_t i,
                            bool evenly, struct pp_plan_unit *x)
{
    const struct pp_unit_id u = pp_model_unit(q->shard.model, i);
    const struct pp_flops f = pp_unit_fwd_flops(&q->shard, u);
    const struct pp_backend backend = pp_backend_of(q->precision, !q->gpu);
    const struct pp_unit_rates rates =
        pp_split_trainer(q)->rates(&q->shard, u, PP_RECOMPUTE_NONE, &backend);
    const struct pp_mesh own = pp_split_mesh(q, i);
    struct pp_state_bytes state = {0, 0, 0};
    size_t gathered = 0;
    if (pp_split_trainer(q) == pp_trainers) {
        const struct pp_held held =
            evenly ? pp_mesh_held_evenly(&own, q->shard.model, u)
                   : pp_mesh_held(&own, q->shard.model, u);
        state = pp_state_bytes(&own, held, q->precision);
        gathered = pp_gathered_bytes(&own, held, q->precision);
    } else {
        state = pp_split_state(q, &own, i);
    }
    double n = pp_mesh_sharers(&q->shard.mesh);
    x->costs.params = pp_unit_n_params(q->shard.model, u);
    x->costs.fwd_flops[0] = f.per_token / n;
    x->frozen_flops = f.frozen / n;
    x->costs.fwd_flops[1] =
        pp_pair_flops(&f, (double)q->microbatch.seq_len) / n;
    for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
        x->costs.act_bytes[b] = rates.act[b] / n;
    x->state_bytes = (double)pp_state_sum(state);
    x->weight_bytes = (double)(gathered ? gathered : state.weights);
    x->mapped_bytes = q->mapped ? (double)q->mapped[i] : 0;
    x->costs.out_bytes = rates.out / n;
    x->workspace = rates.workspace;
    x->role = pp_unit_role(q->shard.model, u);
}

/* Lists the sets that stages recompute, in rising order of their bits. */
static size_t used_modes(const struct pp_split_plan *plan,
                         enum pp_recompute used[PP_MOST_MODES])
{
    size_t n = 0;
    for (int s = 0; s < plan->graph.n_stages; s++) {
        enum pp_recompute r = pp_split_stage_mode(plan, s);
        size_t k = n;
        while (k > 0 && used[k - 1] > r)
            k--;
        if (!r || (k > 0 && used[k - 1] == r) || n == PP_MOST_MODES)
            continue;
        memmove(&used[k + 1], &used[k], (n++ - k) * sizeof *used);
        used[k] = r;
    }
    return n;
}

/* Describes the units. used: the sets of some stage, which a unit describes
 * too. */
static void describe_units(const struct pp_split_request *q, struct pp_arena *a,
                           const enum pp_recompute *used, size_t n_used,
                           struct pp_plan_unit *units)
{
    char fqn[PP_FQN_TEXT];
    for (size_t i = 0; i < pp_model_n_units(q->shard.model); i++) {
        struct pp_unit_id u = pp_model_unit(q->shard.model, i);
        struct pp_plan_unit *x = &units[i];
        pp_model_fqn(q->shard.model, u, fqn);
        x->fqn = pp_arena_strdup(a, fqn);
        pp_split_describe_unit(q, i, false, x);
        for (size_t k = 0; k < n_used && pp_unit_is_decoder(u); k++)
            x->modes[k] = pp_split_describe_mode(q, u, used[k]);
    }
}

/* --- stages and components --- */

static void set_stages(const struct pp_split_plan *plan,
                       const struct pp_plan_unit *units,
                       struct pp_plan_stage *stages)
{
    const struct pp_split_request *q = plan->run.request;
    for (int s = 0; s < plan->graph.n_stages; s++) {
        struct pp_plan_stage *x = &stages[s];
        x->first_unit = pp_split_first(plan, s);
        x->n_units = pp_split_end(plan, s) - pp_split_first(plan, s);
        /* An empty stage passes on its input. */
        x->costs.out_bytes = s > 0 ? stages[s - 1].costs.out_bytes : 0;
        x->recompute = pp_split_stage_mode(plan, s);
        for (size_t i = pp_split_first(plan, s); i < pp_split_end(plan, s); i++)
            pp_plan_stage_add(x, &units[i]);
        x->fixed_bytes = pp_split_trainer(q)->fixed(
            &q->shard.mesh, q->shard.model, pp_split_first(plan, s),
            pp_split_end(plan, s));
    }
}

/* Returns a component: units first .. first + n - 1 and their ranks. */
static struct pp_component component(const struct pp_split_plan *plan,
                                     const char *name, size_t first, size_t n)
{
    int low = plan->graph.n_rows, high = 0;
    for (int s = 0; s < plan->graph.n_stages; s++) {
        int rank = plan->graph.stages[s].row;
        if (pp_split_first(plan, s) >= first + n ||
            pp_split_end(plan, s) <= first ||
            pp_split_first(plan, s) == pp_split_end(plan, s))
            continue;
        low = rank < low ? rank : low;
        high = rank > high ? rank : high;
    }
    return (struct pp_component){name, first, n, low, high - low + 1};
}

/* Gives the components meshes and ranks of their own. */
static void set_apart(const struct pp_split_request *q,
                      struct pp_split_description *d)
{
    int rank = 0;
    for (size_t i = 0; i < d->n_components; i++) {
        struct pp_component *x = &d->components[i];
        bool language = i + 1 == d->n_components;
        x->mesh = language ? q->shard.mesh : q->encoders[i];
        x->apart = x->mesh.dp > 0;
        if (!x->apart)
            continue;
        x->mesh.pp = x->n_ranks;
        x->mesh.encoder_tp = 0;
        x->first_rank = rank;
        rank += pp_mesh_ranks(&x->mesh);
        d->graph.replicas |= x->mesh.dp * x->mesh.cp > 1;
    }
}

static void set_components(const struct pp_split_plan *plan,
                           struct pp_split_description *d)
{
    const struct pp_split_request *q = plan->run.request;
    const struct pp_model *m = q->shard.model;
    size_t first = 0;
    for (size_t i = 0; i < pp_model_n_encoders(m); i++) {
        size_t end = pp_component_first(m, i + 1);
        d->components[d->n_components++] = component(
            plan, pp_vision_part(&m->encoders[i]), first, end - first);
        first = end;
    }
    if (d->n_components == 0)
        return;
    d->components[d->n_components++] =
        component(plan, "language", first, plan->run.n_units - first);
    if (q->encoders)
        set_apart(q, d);
}

/* --- the plan --- */

/* Finds the stages of the embedding and of what has its values: the head, or a
 * layer for multi-token prediction. */
static void find_tied(const struct pp_split_plan *plan, struct pp_graph *g)
{
    const struct pp_model *m = plan->run.request->shard.model;
    size_t embedding = pp_component_first(m, PP_LANGUAGE),
           other = plan->run.n_units - 1;
    if (m->table || (!m->tied && !m->n_mtp) ||
        pp_unit_role(m, pp_model_unit(m, embedding)) != PP_ROLE_TRAINED)
        return;
    if (!m->tied)
        other -= m->n_mtp;
    for (int s = 0; s < g->n_stages / g->n_copies; s++) {
        size_t first = pp_split_first(plan, s), end = pp_split_end(plan, s);
        g->tied[0] = first <= embedding && embedding < end ? s : g->tied[0];
        g->tied[1] = first <= other && other < end ? s : g->tied[1];
    }
}

/* Reports whether a unit trains some of its tensors and not the others. Then
 * its parameters do not tell the bytes of its state. */
static bool trains_parts(const struct pp_split_request *q)
{
    const struct pp_model *m = q->shard.model;
    bool any = false;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        const struct pp_held held =
            pp_mesh_held_evenly(&q->shard.mesh, m, pp_model_unit(m, i));
        uint64_t trained = held.trained.dense + held.trained.experts;
        any |= trained && trained != held.all.dense + held.all.experts;
    }
    return any;
}

void pp_split_describe(const struct pp_split_plan *plan, struct pp_arena *a,
                       struct pp_split_description *d)
{
    const struct pp_split_request *q = plan->run.request;
    const struct pp_model *m = q->shard.model;
    const struct pp_mesh *x = &q->shard.mesh;
    const struct pp_lora none = {0};
    bool on_mesh = pp_mesh_replicas(x) > 1 || pp_mesh_sharers(x) > 1;
    for (size_t i = 0; q->encoders && i < PP_MAX_ENCODERS; i++)
        on_mesh |= q->encoders[i].dp * pp_mesh_sharers(&q->encoders[i]) > 1;
    *d = (struct pp_split_description){
        .model = {.architecture = pp_model_architecture(m),
                  .dtype = q->precision->name,
                  .gpu = q->gpu,
                  .estimated = m->table ? (int)m->table->estimated : 0,
                  .tied = m->tied,
                  .image_merge = pp_vision_merge_any(&m->encoders[0]),
                  .class_feature = m->encoders[0].class_out,
                  .feature_layers = pp_vision_states(&m->encoders[0]),
                  .n_tensors = pp_model_n_tensors(m),
                  .rotary = pp_model_rope_width(m),
                  .widened = plan->run.widened,
                  .has_state = on_mesh || m->n_mtp > 0 || trains_parts(q) ||
                               pp_split_trainer(q) != pp_trainers,
                  .trainer = pp_split_trainer(q) == pp_trainers
                                 ? NULL
                                 : q->trainer->name,
                  .params = pp_model_n_params(m),
                  .has_frozen = m->roles != NULL,
                  .lora = {m->lora, m->lora ? *m->lora : none},
                  .n_units = plan->run.n_units},
        .mesh = *x,
        .graph = plan->graph,
        .microbatch = q->microbatch,
        .profile = q->profile,
        .machine = q->machine};
    d->mesh.pp = plan->graph.n_rows;
    d->graph.slices.n = plan->run.graph.slices.n;
    d->graph.replicas = pp_mesh_replicas(x) > 1;
    d->graph.tied[0] = d->graph.tied[1] = -1;
    enum pp_recompute used[PP_MOST_MODES];
    size_t n_used = used_modes(plan, used);
    d->model.units =
        pp_arena_alloc(a, d->model.n_units, sizeof *d->model.units);
    d->stages =
        pp_arena_alloc(a, (size_t)plan->graph.n_stages, sizeof *d->stages);
    describe_units(q, a, used, n_used, d->model.units);
    set_stages(plan, d->model.units, d->stages);
    set_components(plan, d);
    find_tied(plan, &d->graph);
}

struct pp_plan pp_split_described(const struct pp_split_description *d)
{
    return (struct pp_plan){.model = &d->model,
                            .profile = d->profile,
                            .machine = d->machine,
                            .microbatch = &d->microbatch,
                            .mesh = &d->mesh,
                            .graph = &d->graph,
                            .stages = d->stages,
                            .components = d->components,
                            .n_components = d->n_components};
}

int pp_split_schedule(const struct pp_split_plan *plan,
                      const struct pp_split_description *d,
                      struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_split_run *run = &plan->run;
    const struct pp_kind_options o = {.n_microbatches =
                                          (int)run->n_microbatches};
    bool named = !run->request->search_order && !run->request->whole_head;
    /* A kind begins anew, as it also reduces gradients there. */
    if (named) {
        pp_schedule_init(s, &d->graph, run->kind->name, o.n_microbatches);
        return pp_kind_emit(run->kind, s, &o, err) || pp_lower(s, err) ? -1 : 0;
    }
    pp_schedule_copy(run->order.rows ? &run->order : &run->lowered, s);
    s->graph = &d->graph;
    return pp_lower_again(s, NULL, err);
}

int pp_split_step_seconds(const struct pp_split_plan *plan, double *seconds,
                          struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_split_description d;
    struct pp_schedule s = {0};
    *seconds = INFINITY;
    if (!plan->run.simulated)
        return 0;
    pp_split_describe(plan, &a, &d);
    int rc = pp_split_schedule(plan, &d, &s, err) ||
                     pp_step_seconds(pp_split_described(&d), &s, NULL, NULL,
                                     seconds, err)
                 ? -1
                 : 0;
    pp_schedule_finish(&s);
    pp_arena_finish(&a);
    return rc;
}
