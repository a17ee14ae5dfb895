/* SPDX-License-Identifier: MIT */
/* given - the split of a manifest in place of a model: to print it as a
 * table, as a picture, or in the form of another system. And what other splits
 * take from manifests. */
#include <string.h>

#include "manifest/manifest.h"
#include "cost/workloads.h"
#include "ppsplit.h"
#include "schedule/kinds/kind.h"
#include "tool_manifest.h"

int split_read_manifest(struct split_job *j, const char *name, const char *hint,
                        struct pp_manifest *m)
{
    if (!strcmp(name, "-"))
        hint = ""; /* no model is read from there */
    int rc = tool_read_manifest(&j->p.t, &name, m);
    if (rc) {
        struct pp_err why = j->p.t.err;
        j->p.t.err = (struct pp_err){0};
        return pp_fail(&j->p.t.err, why.code, "%s%s", why.text, hint);
    }
    if (!m->has_model || !m->has_stages)
        rc = pp_fail(&j->p.t.err, PP_EXIT_INPUT, "%s: has no %s%s", name,
                     m->has_model ? "stages" : "model", hint);
    else if (pp_plan_generates(pp_manifest_plan(m)))
        rc = pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                     "%s: has a generator, which ppsplit does not split; give "
                     "the plan of its language model",
                     name);
    else if (m->model.trainer && j->o.combine)
        rc = pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                     "%s: is a plan for '%s'; only plans for pprun are joined",
                     name, m->model.trainer);
    if (rc)
        pp_manifest_finish(m);
    return rc;
}

/* Returns whether the stages behind the first `apart`, which encoders have on
 * ranks of their own, are so many on each rank, and placed like that. The
 * split makes branches of two encoders from their units. */
static bool is_placed(const struct pp_manifest *m, int apart,
                      enum pp_placement placement)
{
    const struct pp_graph *g = &m->graph;
    int rows = g->n_rows - apart, behind = g->n_stages - apart;
    if (pp_graph_head(g) > 0)
        return apart == 0 && placement == PP_PLACEMENT_LOOP;
    if (behind % rows)
        return false;
    bool chain = apart == 0 && pp_graph_is(g, placement);
    if (chain || (apart == 0 && m->n_components <= PP_MAX_ENCODERS))
        return chain;
    bool same = g->n_copies == 1;
    for (int s = 0; same && s < g->n_stages; s++)
        same =
            g->stages[s].row ==
            (s < apart ? s
                       : apart + pp_placement_row(placement, rows, s - apart));
    return same && (m->n_components > PP_MAX_ENCODERS || pp_graph_break(g) < 0);
}

int split_find_placement(struct split_job *j, const struct pp_manifest *m,
                         int *apart)
{
    const struct pp_graph *g = &m->graph;
    int most = m->n_components > 1 ? g->n_rows - 1 : 0;
    for (*apart = 0; *apart <= most; ++*apart)
        for (int k = PP_PLACEMENT_LOOP; k <= PP_PLACEMENT_BOTH_WAYS; k++)
            if (is_placed(m, *apart, (enum pp_placement)k)) {
                int first = pp_graph_head(g);
                int n = first > 0 ? first : g->n_stages / g->n_copies;
                j->o.placement = (enum pp_placement)k;
                j->o.n_chunks = (n - *apart) / (g->n_rows - *apart);
                j->o.head_stages = first > 0 ? g->n_stages - 1 - first : 0;
                return 0;
            }
    return pp_fail(&j->p.t.err, PP_EXIT_INPUT,
                   "the manifest's stages are not in a loop, in a V or both "
                   "ways");
}

void split_join_modes(struct split_job *j, size_t n)
{
    size_t s = 0;
    j->o.recompute = j->stage_modes[0];
    while (s < n && j->stage_modes[s] == j->o.recompute)
        s++;
    if (s == n)
        j->stage_modes = NULL;
}

/* Copies the stages' bounds and modes. */
static void take_stages(struct split_job *j, const struct pp_manifest *m)
{
    size_t n = (size_t)(m->graph.n_stages / m->graph.n_copies);
    j->bounds = pp_arena_alloc(&j->p.arena, n + 1, sizeof *j->bounds);
    j->stage_modes = pp_arena_alloc(&j->p.arena, n, sizeof *j->stage_modes);
    j->p.source = pp_arena_strdup(&j->p.arena, m->model.source);
    for (size_t s = 0; s < n; s++) {
        j->bounds[s] = m->stages[s].first_unit;
        j->stage_modes[s] = m->stages[s].recompute;
    }
    j->bounds[n] = m->model.n_units;
    split_join_modes(j, n);
}

/* Takes the meshes and the ranks of encoders that have their own. */
static void take_encoders(struct split_job *j, const struct pp_manifest *m)
{
    size_t n = m->n_components ? m->n_components - 1 : 0;
    for (size_t i = 0; i < n && i < PP_MAX_ENCODERS; i++) {
        const struct pp_component *c = &m->components[i];
        if (!c->apart && i == 0)
            return;
        j->o.meshes[i] = (struct split_encoder_mesh){
            pp_arena_strdup(&j->p.arena, c->name), c->mesh, !c->apart};
        j->o.n_meshes = i + 1;
        j->o.encoder_ranks += c->apart ? c->mesh.pp : 0;
    }
}

/* Takes the names of the units that are not trained, and adapters. */
static void take_frozen(struct split_job *j, const struct pp_manifest *m)
{
    size_t bytes = 1, at = 0;
    for (size_t i = 0; i < m->model.n_units; i++)
        bytes += strlen(m->model.units[i].fqn) + 1;
    char *names = pp_arena_alloc(&j->p.arena, bytes, 1);
    for (size_t i = 0; i < m->model.n_units; i++)
        if (m->model.units[i].role != PP_ROLE_TRAINED)
            at += (size_t)snprintf(names + at, bytes - at, "%s%s",
                                   at ? "," : "", m->model.units[i].fqn);
    j->o.freeze = at && !j->o.freeze ? names : j->o.freeze;
    if (!m->model.lora.there || j->o.lora.rank)
        return;
    j->o.lora = m->model.lora.of;
    const char **texts[] = {&j->o.lora.targets, &j->o.lora.ranks,
                            &j->o.lora.layers, &j->o.lora.saved};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i])
            *texts[i] = pp_arena_strdup(&j->p.arena, *texts[i]);
}

void split_take_assumptions(struct split_job *j, const struct pp_manifest *m)
{
    const struct pp_kind *kind =
        m->has_schedule ? pp_kind_find(m->schedule.kind) : NULL;
    j->given_params = m->model.params;
    j->p.mtp = m->model.ahead != NULL;
    if (m->has_microbatch && j->o.tokens == 0 && j->p.seq_len == 0) {
        j->o.tokens = m->microbatch.tokens;
        j->p.seq_len = m->microbatch.seq_len;
    }
    for (size_t e = 0; m->has_microbatch && e < PP_MAX_ENCODERS; e++)
        if (j->o.items[e].n == 0 && j->o.items[e].rows == 0)
            j->o.items[e] = m->microbatch.items[e];
    if (m->has_schedule && j->o.n_microbatches == 0)
        j->o.n_microbatches = m->schedule.n_microbatches;
    if (kind && !j->o.kind)
        j->o.kind = kind->name;
    if (m->model.dtype && !j->p.precision)
        j->p.precision = pp_precision_find(m->model.dtype);
    if (j->o.device == 0)
        j->o.device = m->model.gpu ? 2 : 1;
    take_frozen(j, m);
}

/* Copies profile and machine, so that the plan keeps its unit of time. */
static void take_profile(struct split_job *j, const struct pp_manifest *m)
{
    size_t n = m->profile.n_units;
    struct pp_unit_seconds *units =
        pp_arena_alloc(&j->p.arena, n + 1, sizeof *units);
    for (size_t i = 0; i < n; i++) {
        units[i] = m->profile.units[i];
        units[i].fqn = pp_arena_strdup(&j->p.arena, units[i].fqn);
    }
    j->profile = m->profile;
    j->profile.units = units;
    j->p.machine = m->machine;
    j->p.has_machine = m->has_machine;
    j->p.machine.gpu =
        m->machine.gpu ? pp_arena_strdup(&j->p.arena, m->machine.gpu) : NULL;
}

int split_take_given(struct split_job *j, const char *name)
{
    struct pp_manifest m;
    if (!j->p.table && !j->o.export && !j->o.svg)
        return tool_usage(&j->p.t, "give the number of ranks (-p)");
    if (j->rule.has_method || j->o.n_chunks || j->rule.layers || j->rule.fqns ||
        j->rule.layout || j->o.compare)
        return tool_usage(&j->p.t, "a manifest has its split; give -p and a "
                                   "model to make another");
    if (split_read_manifest(j, name,
                            "; with a model give the number of ranks (-p)", &m))
        return -1;
    int apart, rc = split_find_placement(j, &m, &apart);
    j->given = true;
    j->given_flops = pp_arena_alloc(&j->p.arena, m.model.n_units + 1,
                                    sizeof *j->given_flops);
    for (size_t i = 0; i < m.model.n_units; i++)
        j->given_flops[i] = m.model.units[i].costs.fwd_flops[0];
    if (!j->p.trainer_name)
        j->p.trainer = pp_trainer_find(m.model.trainer);
    j->p.mesh = m.mesh;
    j->o.n_ranks = m.mesh.pp;
    j->p.text_only =
        m.n_components <= 1u + pp_plan_generates(pp_manifest_plan(&m));
    j->rule.method = SPLIT_FQNS;
    take_stages(j, &m);
    take_encoders(j, &m);
    if (apart)
        j->o.encoder_ranks = apart;
    split_take_assumptions(j, &m);
    take_profile(j, &m);
    pp_manifest_finish(&m);
    return rc;
}
