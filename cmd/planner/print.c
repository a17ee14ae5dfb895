/* SPDX-License-Identifier: MIT */
/* print - a plan as a manifest, as Megatron-LM's layout and as lists of
 * names, and its figures. */
#include "base/json_writer.h"
#include "manifest/manifest.h"
#include "model/cost.h"
#include "planner/planner.h"
#include "split/describe.h"
#include "split/megatron.h"
#include "tool_manifest.h"

/* --- the manifest --- */

int planner_fill_manifest(const struct pp_split_plan *plan, const char *source,
                          struct pp_arena *a, struct pp_manifest *m,
                          struct pp_err *err)
{
    struct pp_split_description d;
    pp_split_describe(plan, a, &d);
    d.model.source = source;
    return pp_manifest_set_model(m, &d.model, err) ||
                   (d.profile && pp_manifest_set_profile(m, d.profile, err)) ||
                   (d.machine && pp_manifest_set_machine(m, d.machine, err)) ||
                   pp_manifest_set_microbatch(m, &d.microbatch, err) ||
                   pp_manifest_set_stages(m, NULL, &d.mesh, &plan->graph,
                                          d.stages, err) ||
                   (d.n_components && pp_manifest_set_components(
                                          m, d.components, d.n_components, err))
               ? -1
               : 0;
}

void planner_modules(const struct pp_model *m, enum pp_recompute r,
                     char text[PLANNER_MODULES])
{
    const bool experts = m->moe.n_experts, latent = m->mla.kv_rank,
               all = r == PP_RECOMPUTE_SELECTIVE, apart = experts || latent;
    bool dense = false;
    for (size_t i = 0; i < m->n_layers; i++)
        dense |= !pp_layer_set_has(&m->moe.layers, i);
    const struct {
        const char *name;
        bool used;
    } modules[] = {
        {"core_attn", (r & PP_AGAIN_ATTENTION) && !(all && apart)},
        {"layernorm", (r & PP_AGAIN_NORMS) && apart},
        {"moe_act",
         (r & PP_AGAIN_EXPERT_ACT) && experts && !(r & PP_AGAIN_EXPERTS)},
        {"mla_up_proj", ((r & PP_AGAIN_QKV) || all) && latent},
        {"mlp", (r & PP_AGAIN_MLP) && dense},
        {"shared_experts",
         (r & PP_AGAIN_MLP) && m->moe.shared && !(r & PP_AGAIN_EXPERTS)},
        {"moe", (r & PP_AGAIN_EXPERTS) && experts},
    };
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (modules[i].used)
            n += (size_t)snprintf(text + n, PLANNER_MODULES - n, " %s",
                                  modules[i].name);
}

void planner_say_runs(struct planner *p, struct pp_manifest *m)
{
    struct pp_err why = {0};
    if (m->model.trainer)
        return;
    if (tool_runs(m, &why) || tool_objective_runs(m, p->objective, &why))
        tool_say_refused(&p->t, &why);
}

/* --- forms of other systems --- */

/* Prints a layout with multi-token prediction: m is a symbol of its own, and
 * the norm goes with the last decoder layer. Symbols are not counted, because
 * such layouts have few stages. */
static int print_mtp_layout(const struct pp_split_plan *plan, FILE *f,
                            struct pp_err *err)
{
    const struct pp_model *m = plan->run.request->shard.model;
    size_t n = plan->run.n_stages, norm = m->n_layers + 1;
    for (size_t s = 1; s < n; s++)
        if (plan->bounds[s] == norm)
            return pp_fail(err, PP_EXIT_INPUT,
                           "--export: a layout cannot separate the last layer "
                           "from the norm, as this plan does");
    for (size_t s = 0; s < n; s++) {
        for (size_t i = plan->bounds[s]; i < plan->bounds[s + 1]; i++)
            if (i != norm)
                fputc(i == 0                       ? 'E'
                      : i < norm                   ? 't'
                      : i == plan->run.n_units - 1 ? 'L'
                                                   : 'm',
                      f);
        if (s + 1 < n)
            fputc('|', f);
    }
    return 0;
}

/* A layout counts decoder layers, and does not name the norm. */
int planner_print_layout(const struct pp_split_plan *plan, FILE *f,
                         struct pp_err *err)
{
    const struct pp_split_request *q = plan->run.request;
    const struct pp_model *m = q->shard.model;
    struct pp_arena a = {0};
    size_t n = plan->run.n_stages, layers = m->n_layers;
    size_t first = pp_model_n_first(m);
    if (q->n_chunks > 1 && q->placement != PP_PLACEMENT_LOOP)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--export: Megatron places stages in a loop, not in a "
                       "V");
    if (m->n_mtp > 0)
        return print_mtp_layout(plan, f, err);
    if (plan->bounds[n - 1] > first + layers || plan->bounds[1] < first)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "--export: a layout cannot separate %s, as this plan does",
            plan->bounds[1] < first ? "the units before the layers"
            : m->table              ? "the units after the layers"
                                    : "norm and head");
    size_t *counts = pp_arena_alloc(&a, n, sizeof *counts);
    for (size_t s = 0; s < n; s++)
        counts[s] = plan->bounds[s + 1] - plan->bounds[s];
    counts[0] -= first;                                  /* embedding */
    counts[n - 1] -= plan->run.n_units - first - layers; /* norm, head */
    fputs(pp_layout_format(&a, counts, n), f);
    pp_arena_finish(&a);
    return 0;
}

void planner_print_names(const struct pp_split_plan *plan,
                         const enum pp_torchtitan_names *names, FILE *f)
{
    const struct pp_model *m = plan->run.request->shard.model;
    char name[PP_FQN_TEXT];
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_array(&w, NULL, PP_JSON_BROKEN);
    for (int s = 0; s < plan->graph.n_stages; s++) {
        pp_json_array(&w, NULL, PP_JSON_INLINE);
        for (size_t i = plan->bounds[s]; i < plan->bounds[s + 1]; i++) {
            struct pp_unit_id u = pp_model_unit(m, i);
            if (names && !m->table)
                pp_torchtitan_fqn(u, *names, name);
            else
                pp_model_fqn(m, u, name);
            pp_json_string(&w, NULL, name);
        }
        pp_json_end(&w);
    }
    pp_json_end(&w);
}

/* --- figures --- */

/* Returns the operations of a step that a model needs: three times the
 * operations of its forward, without what is computed again. */
static double useful_flops(const struct pp_split_request *q)
{
    const struct pp_default_microbatch_part all =
        pp_default_microbatch_part(&q->microbatch, 0, q->microbatch.tokens);
    struct pp_shard whole = q->shard;
    double sum = 0;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) { /* of all ranks */
        struct pp_image_load *of = &whole.images[i];
        of->sharers = of->makers = of->lanes = of->tp = 1;
    }
    whole.skew = NULL;
    whole.mesh.expert_imbalance = 0;
    for (size_t i = 0; i < pp_model_n_units(whole.model); i++) {
        const struct pp_flops f =
            pp_unit_fwd_flops(&whole, pp_model_unit(whole.model, i));
        sum += f.per_token * all.tokens +
               pp_pair_flops(&f, (double)q->microbatch.seq_len) * all.pairs;
    }
    return 3 * sum;
}

int64_t planner_encoder_group(const struct pp_split_request *q, size_t encoder)
{
    const struct pp_mesh *x = q->encoders ? &q->encoders[encoder] : NULL;
    return x ? (int64_t)x->dp * pp_mesh_sharers(x) : 0;
}

int64_t planner_n_ranks(const struct pp_split_request *q)
{
    const struct pp_mesh *x = &q->shard.mesh;
    int64_t n = 0, rows = q->n_ranks;
    for (size_t i = 0; q->encoders && i < PP_MAX_ENCODERS; i++) {
        n += q->encoders[i].pp * planner_encoder_group(q, i);
        rows -= q->encoders[i].pp;
    }
    return n + rows * x->dp * pp_mesh_sharers(x);
}

struct planner_speed planner_speed_of(const struct pp_split_request *q,
                                      double step, int64_t n_microbatches)
{
    double n = (double)n_microbatches, dp = q->shard.mesh.dp;
    double ranks = (double)planner_n_ranks(q) / dp;
    double peak =
        q->machine ? pp_machine_peak(q->machine, q->precision->name) : 0;
    return (struct planner_speed){
        .tokens = n * (double)q->microbatch.tokens * dp / step,
        .mfu = peak > 0 ? n * useful_flops(q) / (step * ranks * peak) : 0};
}
