/* SPDX-License-Identifier: MIT */
/* ppsplit_manifest - the plan as a manifest. */
#include "manifest/config_json.h"
#include "manifest/manifest.h"
#include "model/cost.h"
#include "model/vision.h"
#include "ppsplit.h"
#include "schedule/kinds/kind.h"
#include "tool_runnable.h"
#include "version.h"

/* Costs of a unit on one rank, for each token of a whole microbatch. */
static struct pp_plan_mode mode_of(const struct split_job *j,
                                   struct pp_unit_id u, enum pp_recompute r)
{
    const struct pp_backend backend =
        pp_backend_of(j->request.precision, !j->request.gpu);
    const struct pp_backend *b = &backend;
    const struct pp_shard *s = &j->request.shard;
    const struct pp_flops f = pp_unit_recompute_flops(s, u, r);
    const struct pp_unit_rates rates = j->trainer->rates(s, u, r, b);
    const struct pp_unit_rates kept =
        j->trainer->rates(s, u, PP_RECOMPUTE_NONE, b);
    double n = pp_mesh_sharers(&j->mesh);
    struct pp_plan_mode mode = {
        .known = true,
        .recompute_flops = {f.per_token / n,
                            pp_pair_flops(&f, (double)j->seq_len) / n},
        .workspace_bytes = (rates.workspace.token - kept.workspace.token) / n};
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        mode.act_bytes[k] = rates.act[k] / n;
    return mode;
}

void split_set_costs(const struct split_job *j, size_t i,
                     struct pp_plan_unit *x)
{
    const struct pp_unit_id u = pp_model_unit(&j->model, i);
    const struct pp_shard *s = &j->request.shard;
    const struct pp_flops f = pp_unit_fwd_flops(s, u);
    const struct pp_backend backend =
        pp_backend_of(j->request.precision, !j->request.gpu);
    const struct pp_unit_rates rates =
        j->trainer->rates(s, u, PP_RECOMPUTE_NONE, &backend);
    const struct pp_mesh own = pp_split_mesh(&j->request, i);
    const struct pp_state_bytes state = pp_split_state(&j->request, &own, i);
    const size_t gathered = pp_split_gathered(&j->request, &own, i);
    double n = pp_mesh_sharers(&j->mesh);
    x->costs.params = pp_unit_n_params(&j->model, u);
    x->costs.fwd_flops[0] = f.per_token / n;
    x->costs.fwd_flops[1] = pp_pair_flops(&f, (double)j->seq_len) / n;
    for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
        x->costs.act_bytes[b] = rates.act[b] / n;
    x->state_bytes = (double)pp_state_sum(state);
    x->weight_bytes = (double)(gathered ? gathered : state.weights);
    x->costs.out_bytes = rates.out / n;
    x->workspace = rates.workspace;
    x->role = pp_unit_role(&j->model, u);
}

/* Describes the units. used: the modes of some stage, which a unit describes
 * too. */
static int set_units(const struct split_job *j, struct pp_arena *a,
                     const bool used[PP_N_RECOMPUTES],
                     struct pp_plan_unit *units)
{
    char fqn[PP_FQN_TEXT];
    for (size_t i = 0; i < j->n_units; i++) {
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        struct pp_plan_unit *x = &units[i];
        pp_model_fqn(&j->model, u, fqn);
        x->fqn = pp_arena_strdup(a, fqn);
        if (!x->fqn)
            return -1;
        split_set_costs(j, i, x);
        for (int r = PP_RECOMPUTE_SELECTIVE; r < PP_N_RECOMPUTES; r++)
            if (used[r] && u.kind == PP_UNIT_LAYER)
                x->modes[r] = mode_of(j, u, (enum pp_recompute)r);
    }
    return 0;
}

static void set_stages(const struct split_job *j,
                       const struct pp_split_plan *plan,
                       const struct pp_plan_unit *units,
                       struct pp_plan_stage *stages)
{
    for (int s = 0; s < plan->graph.n_stages; s++) {
        struct pp_plan_stage *x = &stages[s];
        x->first_unit = pp_split_first(plan, s);
        x->n_units = pp_split_end(plan, s) - pp_split_first(plan, s);
        /* An empty stage passes on its input. */
        x->costs.out_bytes = s > 0 ? stages[s - 1].costs.out_bytes : 0;
        x->recompute = pp_split_stage_mode(plan, s);
        for (size_t i = pp_split_first(plan, s); i < pp_split_end(plan, s); i++)
            pp_plan_stage_add(x, &units[i]);
        x->fixed_bytes =
            j->trainer->fixed(&j->mesh, &j->model, pp_split_first(plan, s),
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
static void set_apart(const struct split_job *j, struct pp_component *parts,
                      size_t n)
{
    int rank = 0;
    for (size_t i = 0; i < n; i++) {
        struct pp_component *x = &parts[i];
        bool language = i + 1 == n;
        x->mesh = language ? j->mesh : j->encoders[i];
        x->apart = x->mesh.dp > 0;
        if (!x->apart)
            continue;
        x->mesh.pp = x->n_ranks;
        x->mesh.encoder_tp = 0;
        x->first_rank = rank;
        rank += pp_mesh_ranks(&x->mesh);
    }
}

static int set_components(const struct split_job *j,
                          const struct pp_split_plan *plan,
                          struct pp_manifest *m, struct pp_err *err)
{
    struct pp_component parts[PP_MAX_ENCODERS + 1];
    size_t n = 0, first = 0;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        const struct pp_vision *v = &j->model.encoders[i];
        size_t end = pp_vision_first(&j->model, i + 1);
        if (v->kind != PP_VISION_NONE)
            parts[n++] = component(plan, pp_vision_part(v), first, end - first);
        first = end;
    }
    if (n == 0)
        return 0;
    parts[n++] = component(plan, "language", first, j->n_units - first);
    if (j->n_meshes)
        set_apart(j, parts, n);
    return pp_manifest_set_components(m, parts, n, err);
}

int split_fill_manifest(const struct split_job *j,
                        const struct pp_split_plan *plan, struct pp_arena *a,
                        struct pp_manifest *m, struct pp_err *err)
{
    const struct pp_mesh *x = &j->mesh;
    bool on_mesh = x->dp > 1 || x->tp > 1 || x->cp > 1 || x->ep > 1 ||
                   split_encoder_group(j, 0) > 1 ||
                   split_encoder_group(j, 1) > 1;
    struct pp_plan_model model = {
        .source = j->source,
        .architecture = pp_model_architecture(&j->model),
        .dtype = j->precision->name,
        .gpu = j->request.gpu,
        .trainer = j->trainer == pp_trainers ? NULL : j->trainer->name,
        .estimated = j->model.table ? (int)j->model.table->estimated : 0,
        .tied = j->model.tied,
        .image_merge = pp_vision_merge_any(&j->model.encoders[0]),
        .class_feature = j->model.encoders[0].class_out,
        .feature_layers = pp_vision_states(&j->model.encoders[0]),
        .n_tensors = pp_model_n_tensors(&j->model),
        .rotary = pp_model_rope_width(&j->model),
        .has_state = on_mesh || j->model.n_mtp > 0 || j->trainer != pp_trainers,
        .params = pp_model_n_params(&j->model),
        .units = pp_arena_alloc(a, j->n_units, sizeof *model.units),
        .n_units = j->n_units,
    };
    struct pp_mesh mesh = *x;
    mesh.pp = plan->graph.n_rows;
    struct pp_plan_stage *stages =
        pp_arena_alloc(a, (size_t)plan->graph.n_stages, sizeof *stages);
    bool used[PP_N_RECOMPUTES] = {false};
    for (int s = 0; s < plan->graph.n_stages; s++)
        used[pp_split_stage_mode(plan, s)] = true;
    if (!model.units || !stages || set_units(j, a, used, model.units))
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    set_stages(j, plan, model.units, stages);
    if (pp_manifest_set_model(m, &model, err) ||
        (split_has_seconds(j) &&
         pp_manifest_set_profile(m, &j->profile, err)) ||
        (j->has_machine && pp_manifest_set_machine(m, &j->machine, err)) ||
        pp_manifest_set_microbatch(m, &j->request.microbatch, err) ||
        pp_manifest_set_stages(m, &mesh, &plan->graph, stages, err) ||
        set_components(j, plan, m, err))
        return -1;
    return j->method == SPLIT_JOINT ? split_set_order(j, a, m, err) : 0;
}

const char *split_estimates(const struct split_job *j)
{
    static const char *const what[] = {
        [PP_ESTIMATED_NOTHING] = NULL,
        [PP_ESTIMATED_MEMORY] = "activations, from the sizes of products",
        [PP_ESTIMATED_COSTS] = "operations and activations, from names and "
                               "shapes of tensors"};
    return j->model.table ? what[j->model.table->estimated] : NULL;
}

void split_say_runs(struct split_job *j, struct pp_manifest *m)
{
    const struct pp_kind *kind = j->kind ? pp_kind_find(j->kind) : NULL;
    struct pp_err why = {0};
    m->graph.n_slices = kind && kind->slices ? kind->slices : 1;
    if (j->trainer != pp_trainers)
        return;
    if (tool_runs(m, &why) || tool_objective_runs(m, j->objective, &why))
        tool_say_refused(&j->t, &why);
}

/* Notes that --moe-layer-freq made another model of it. */
static int say_matches(struct split_job *j, const struct pp_manifest *m,
                       struct pp_err *err)
{
    struct pp_model model;
    struct pp_err why = {0};
    if (!j->moe_layer_freq)
        return 0;
    if (pp_model_read(j->source, &model, err))
        return -1;
    model.n_mtp = j->model.n_mtp;
    if (tool_plan_matches(m, &model, &why))
        tool_say_refused(&j->t, &why);
    return 0;
}

int split_print_manifest(struct split_job *j, const char *command, FILE *f,
                         struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_manifest m;
    if (pp_manifest_init(&m, err))
        return -1;
    int rc = split_fill_manifest(j, &j->plan, &a, &m, err);
    if (rc == 0)
        rc = pp_manifest_add_history(&m, "ppsplit", PP_VERSION, command, err);
    if (rc == 0)
        rc = pp_manifest_write(&m, f, err);
    if (rc == 0) {
        split_say_runs(j, &m);
        rc = say_matches(j, &m, err);
    }
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}
