/* SPDX-License-Identifier: MIT */
#include "mesh/units.h"

#include <string.h>

#include "base/hash.h"
#include "cost/estimate.h"

static bool same(double a, double b)
{
    return a <= b && a >= b;
}

/* Reports whether two units are alike on one rank, and so on all meshes. */
static bool are_alike(const struct pp_split_request *q, size_t i, size_t k)
{
    struct pp_plan_unit x = {0}, y = {0};
    const struct pp_unit_id a = pp_model_unit(q->shard.model, i),
                            b = pp_model_unit(q->shard.model, k);
    const struct pp_layer_set *moe = &q->shard.model->moe.layers;
    if (a.kind != b.kind || a.component != b.component ||
        pp_unit_is_mtp(q->shard.model, a) !=
            pp_unit_is_mtp(q->shard.model, b) ||
        (pp_unit_is_decoder(a) &&
         pp_layer_set_has(moe, a.layer) != pp_layer_set_has(moe, b.layer)))
        return false;
    pp_split_describe_unit(q, i, true, &x);
    pp_split_describe_unit(q, k, true, &y);
    bool alike = x.costs.params == y.costs.params && x.role == y.role &&
                 same(x.state_bytes, y.state_bytes) &&
                 same(x.costs.out_bytes, y.costs.out_bytes) &&
                 same(x.costs.fwd_flops[0], y.costs.fwd_flops[0]) &&
                 same(x.costs.fwd_flops[1], y.costs.fwd_flops[1]);
    for (int s = 0; s < PP_N_SAVED_BLOCKS; s++)
        alike &= same(x.costs.act_bytes[s], y.costs.act_bytes[s]);
    return alike;
}

/* Sets the main class: the layers with most operations. */
static void find_main(struct pp_mesh_classes *c,
                      const struct pp_split_request *q)
{
    double most = -1;
    for (size_t k = 0; k < c->n; k++) {
        struct pp_plan_unit x = {0};
        pp_split_describe_unit(q, c->all[k].unit, true, &x);
        double flops =
            (double)c->all[k].count *
            (x.costs.fwd_flops[0] +
             x.costs.fwd_flops[1] * (double)q->microbatch.seq_len / 2);
        if (flops <= most)
            continue;
        c->main = k;
        most = flops;
    }
}

void pp_mesh_classes_init(struct pp_mesh_classes *c, struct pp_arena *a,
                          const struct pp_split_request *q)
{
    size_t n = pp_model_n_units(q->shard.model);
    *c = (struct pp_mesh_classes){.arena = a};
    c->all = pp_arena_alloc(a, n, sizeof *c->all);
    c->of = pp_arena_alloc(a, n, sizeof *c->of);
    c->names = pp_arena_alloc(a, n, sizeof *c->names);
    c->seconds = pp_arena_alloc(a, n, sizeof *c->seconds);
    c->stages = pp_arena_alloc(a, n * PP_N_RECOMPUTES, sizeof *c->stages);
    c->nodes = pp_arena_alloc(a, n * PP_N_RECOMPUTES, sizeof *c->nodes);
    for (size_t i = 0; i < n; i++) {
        const struct pp_unit_id u = pp_model_unit(q->shard.model, i);
        char fqn[PP_FQN_TEXT];
        size_t k = 0;
        pp_model_fqn(q->shard.model, u, fqn);
        c->names[i] = pp_arena_strdup(a, fqn);
        while (k < c->n && !are_alike(q, c->all[k].unit, i))
            k++;
        if (k == c->n) {
            c->all[k].unit = i;
            c->all[k].layer = pp_unit_is_decoder(u);
            c->n++;
        }
        c->of[i] = k;
        c->all[k].count += i > 0 && i + 1 < n;
    }
    c->first = c->of[0];
    c->last = c->of[n - 1];
    find_main(c, q);
    while (c->of[c->before] != c->main)
        c->before++;
    while (c->of[n - 1 - c->after] != c->main)
        c->after++;
    for (size_t i = c->before; i < n - c->after; i++)
        if (c->of[i] != c->main)
            c->before = n;
}

static struct pp_estimate estimate_of(const struct pp_split_request *q)
{
    return (struct pp_estimate){
        .shard = &q->shard,
        .precision = q->precision,
        .machine = q->machine,
        .trainer = q->trainer,
        .layout = {.components = {{.mesh = q->shard.mesh}}, .n_components = 1},
        .microbatch = q->microbatch};
}

void pp_mesh_profile(const struct pp_mesh_classes *c,
                     const struct pp_split_request *q,
                     struct pp_profile *profile)
{
    const struct pp_estimate x = estimate_of(q);
    for (size_t i = 0; i < profile->n_units; i++) {
        size_t alike = c->all[c->of[i]].unit;
        if (alike == i)
            pp_estimate_unit(&x, i, &profile->units[i]);
        else
            profile->units[i] = profile->units[alike];
        profile->units[i].fqn = c->names[i];
    }
    profile->seconds_per_param = pp_estimate_update(&x);
}

/* Makes a stage of one unit of a class in a mode. */
static void add_stage(struct pp_mesh_classes *c,
                      const struct pp_split_request *q, struct pp_graph *g,
                      size_t class, int mode)
{
    size_t unit = c->all[class].unit;
    c->stages[g->n_stages] = (struct pp_plan_stage){
        .first_unit = class,
        .n_units = 1,
        .recompute = pp_recompute_levels[mode],
        .fixed_bytes = pp_split_trainer(q)->fixed(
            &q->shard.mesh, q->shard.model, unit, unit + 1)};
    c->nodes[g->n_stages++] =
        (struct pp_stage_node){.input_grad = class != c->first, .copy_of = -1};
}

/* Reads the costs of a stage of one unit. */
static void read_stage(const struct pp_stage_costs *costs, int stage,
                       struct pp_workload whole, size_t rows,
                       struct pp_mesh_unit *u)
{
    static const enum pp_op ops[PP_N_TIMES] = {[PP_TIME_F] = PP_F,
                                               [PP_TIME_I] = PP_I,
                                               [PP_TIME_W] = PP_W,
                                               [PP_TIME_B] = PP_B};
    const struct pp_plan_stage *s = &costs->plan.stages[stage];
    const struct pp_plan_unit *x = &costs->plan.model->units[s->first_unit];
    const double *act = pp_plan_act_bytes(x, s->recompute);
    const struct pp_plan_mode *of_mode = pp_plan_mode(x, s->recompute);
    struct pp_action a = {.stage = stage};
    int mode = 0;
    while (pp_recompute_levels[mode] != s->recompute)
        mode++;
    for (int t = 0; t < PP_N_TIMES; t++) {
        a.op = ops[t];
        u->time[mode][t] = pp_stage_time(costs, a, whole, PP_LOGITS_LEAST);
    }
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        u->act[mode][k] = act[k] * whole.of[PP_LANGUAGE].tokens;
    u->workspace[mode] =
        (double)pp_workspace_bytes(&x->workspace, rows, 0) +
        (of_mode ? of_mode->workspace_bytes : 0) * whole.of[PP_LANGUAGE].tokens;
    u->fixed = s->fixed_bytes;
    u->state = x->state_bytes;
    u->whole = costs->plan.graph->resident == INT_MAX ? x->weight_bytes : 0;
    u->output = x->costs.out_bytes * whole.of[PP_LANGUAGE].tokens;
    u->update =
        costs->stages[stage].update * costs->plan.profile->seconds_per_param;
    /* A stage of several units has one start and one of all hops. */
    const struct pp_stage_cost *of = &costs->stages[stage];
    const struct pp_plan_model *m = costs->plan.model;
    unsigned beside = pp_trainer_beside(pp_trainer_find(m->trainer), m->gpu);
    double *reduces = beside >> PP_REDUCE_GRAD & 1 ? &u->beside : &u->step;
    double *gathers = beside >> PP_UNSHARD & 1 ? &u->beside : &u->step;
    u->step = u->beside = 0;
    for (int k = 0; k < 2; k++) {
        if (costs->plan.graph->replicas)
            *reduces += of->data[k].per_byte * of->reduced[k];
        if (costs->plan.graph->resident)
            *gathers += of->data[k].per_byte * of->gathered[k];
    }
}

/* The classes on a mesh. */
struct pp_mesh_described {
    struct pp_mesh mesh;
    struct pp_plan_unit *units;
    struct pp_mesh_described *next;
};

/* Describes the classes on the mesh of a request, unless they are. The order of
 * the mesh and the microbatch change nothing there. */
static struct pp_plan_unit *describe(struct pp_mesh_classes *c,
                                     const struct pp_split_request *q)
{
    const struct pp_mesh *a = &q->shard.mesh;
    const int key[] = {a->tp, a->cp, a->ep, a->dp};
    struct pp_mesh_described **at =
        &c->described[pp_fnv(PP_FNV_START, key, sizeof key) % PP_MESH_BUCKETS];
    for (; *at; at = &(*at)->next) {
        const struct pp_mesh *b = &(*at)->mesh;
        if (a->tp == b->tp && a->cp == b->cp && a->ep == b->ep &&
            a->dp == b->dp && (a->pp > 1) == (b->pp > 1) &&
            a->experts_over_tp == b->experts_over_tp &&
            a->whole_state == b->whole_state &&
            a->divided_weights == b->divided_weights &&
            !(a->expert_limit < b->expert_limit) &&
            !(a->expert_limit > b->expert_limit))
            return (*at)->units;
    }
    *at = pp_arena_alloc(c->arena, 1, sizeof **at);
    (*at)->mesh = *a;
    (*at)->units = pp_arena_alloc(c->arena, c->n, sizeof *(*at)->units);
    for (size_t k = 0; k < c->n; k++) {
        struct pp_plan_unit *x = &(*at)->units[k];
        const struct pp_unit_id u =
            pp_model_unit(q->shard.model, c->all[k].unit);
        x->fqn = c->names[c->all[k].unit];
        pp_split_describe_unit(q, c->all[k].unit, true, x);
        for (int r = 1; c->all[k].layer && r < PP_N_RECOMPUTES; r++)
            x->modes[r - 1] =
                pp_split_describe_mode(q, u, pp_recompute_levels[r]);
    }
    return (*at)->units;
}

void pp_mesh_units(struct pp_mesh_classes *c, const struct pp_split_request *q,
                   struct pp_mesh_unit *units)
{
    const struct pp_estimate x = estimate_of(q);
    const struct pp_default_microbatch_part part =
        pp_default_microbatch_part(&q->microbatch, 0, q->microbatch.tokens);
    struct pp_graph g = {.n_rows = 1,
                         .stages = c->nodes,
                         .n_copies = 1,
                         .slices = {.n = 1},
                         .tied = {-1, -1},
                         .replicas = pp_mesh_replicas(&q->shard.mesh) > 1,
                         .resident = pp_split_trainer(q) == pp_trainers
                                         ? pp_mesh_resident(&q->shard.mesh)
                                         : 0};
    const struct pp_plan_model model = {.dtype = q->precision->name,
                                        .gpu = q->gpu,
                                        .trainer = pp_split_trainer(q)->name,
                                        .units = describe(c, q),
                                        .n_units = c->n};
    const struct pp_profile profile = {.units = c->seconds,
                                       .n_units = c->n,
                                       .seconds_per_param =
                                           pp_estimate_update(&x)};
    for (size_t k = 0; k < c->n; k++) {
        pp_estimate_unit(&x, c->all[k].unit, &c->seconds[k]);
        for (int r = 0; r < (c->all[k].layer ? PP_N_RECOMPUTES : 1); r++)
            add_stage(c, q, &g, k, r);
    }
    const struct pp_backend backend = pp_backend_of(q->precision, !q->gpu);
    size_t rows =
        pp_rank_rows(&q->shard.mesh, &backend, (size_t)q->microbatch.tokens);
    struct pp_stage_costs costs;
    pp_stage_costs_init(&costs, (struct pp_plan){.model = &model,
                                                 .profile = &profile,
                                                 .machine = q->machine,
                                                 .microbatch = &q->microbatch,
                                                 .mesh = &q->shard.mesh,
                                                 .graph = &g,
                                                 .stages = c->stages});
    for (int s = 0; s < g.n_stages; s++)
        read_stage(&costs, s, pp_workload_of(part.tokens, part.pairs), rows,
                   &units[c->stages[s].first_unit]);
    pp_stage_costs_finish(&costs);
    for (size_t k = 0; k < c->n; k++)
        for (int r = 1; !c->all[k].layer && r < PP_N_RECOMPUTES; r++) {
            memcpy(units[k].time[r], units[k].time[0], sizeof *units[k].time);
            memcpy(units[k].act[r], units[k].act[0], sizeof *units[k].act);
            units[k].workspace[r] = units[k].workspace[0];
        }
}
