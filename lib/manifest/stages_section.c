/* SPDX-License-Identifier: MIT */
/* stages_section - "stages" of a manifest: their units, ranks and inputs. */
#include "manifest/sections.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cost/trainer.h"

/* A stage's cost may differ from the sum of its units by this share. */
#define COST_TOLERANCE 1e-9

struct stage {
    int number, rank, last_rank;
    int copy_of; /* -1: none */
    struct pp_plan_stage sums;
};

static int read_recompute(const struct pp_value *at, void *set)
{
    const char *text;
    if (pp_value_text(at, &text))
        return -1;
    return pp_recompute_find(text, set)
               ? 0
               : pp_value_fail(at,
                               "'%.*s' is not 'none', 'selective', 'full' or "
                               "parts with '+' between them",
                               PP_VALUE_QUOTE, text);
}

static void put_recompute(json_t *o, const char *key, const void *set)
{
    const enum pp_recompute r = *(const enum pp_recompute *)set;
    char text[PP_RECOMPUTE_TEXT];
    if (r)
        pp_put(o, key, json_string(pp_recompute_text(r, text)));
}

/* Costs follow from the units of a model, and need not be there. */
#define AT(member) PP_AT(struct stage, member)
#define COST .most = PP_MAX_COST
const struct pp_doc_field pp_stage_fields[] = {
    {"stage", PP_INTEGER, PP_NEEDED, AT(number), 0, INT_MAX},
    {"rank", PP_INTEGER, PP_NEEDED, AT(rank),
     .max_at = offsetof(struct stage, last_rank)},
    {"copy_of", PP_INTEGER, PP_OPTIONAL, AT(copy_of), 0, INT_MAX, .absent = -1},
    {"component"},
    {"inputs"},
    {"params", PP_INTEGER, PP_ALWAYS, AT(sums.costs.params), 0, PP_MAX_COUNT},
    {"fwd_flops", PP_REALS, PP_ALWAYS, AT(sums.costs.fwd_flops), COST},
    {"again_flops", PP_REALS, PP_ALWAYS, AT(sums.recompute_flops), COST},
    {"act_bytes", PP_REALS, PP_ALWAYS, AT(sums.costs.act_bytes), COST},
    {"passing_bytes", PP_REAL, PP_ALWAYS, AT(sums.workspace_bytes), COST},
    {"out_bytes", PP_REAL, PP_ALWAYS, AT(sums.costs.out_bytes), COST},
    {"fixed_bytes", PP_REAL, PP_OPTIONAL, AT(sums.fixed_bytes), COST},
    {"recompute", PP_OWN, PP_OPTIONAL, AT(sums.recompute),
     .read = read_recompute, .put = put_recompute},
    {"units"},
    {NULL},
};
#undef AT

static int check_copy_of(const struct pp_value *at, int stage, int original,
                         struct pp_manifest *m)
{
    struct pp_stage_node *stages = m->graph.stages;
    struct pp_value member;
    int before = stage > 0 ? stages[stage - 1].copy_of : -1;
    stages[stage].copy_of = -1;
    if (!pp_value_find(at, "copy_of", &member)) {
        if (before >= 0)
            return pp_value_fail(at,
                                 "stage %d is a copy, but stage %d, after it, "
                                 "is not; copies come last",
                                 stage - 1, stage);
        return 0;
    }
    /* Behind the copy of the last original the next copy begins. */
    int expected =
        before >= 0 && stages[before + 1].copy_of < 0 ? before + 1 : 0;
    if (original >= stage || stages[original].copy_of >= 0)
        return pp_value_fail(&member,
                             "'%d' must be an earlier stage that is "
                             "not a copy itself",
                             original);
    if (original != expected)
        return pp_value_fail(&member,
                             "'%d' must be %d: copies have the order "
                             "of their originals",
                             original, expected);
    stages[stage].copy_of = original;
    return 0;
}

static void imply_inputs(const struct pp_graph *g, int stage, int *inputs)
{
    const struct pp_stage_node *n = &g->stages[stage];
    if (n->copy_of < 0 && stage > 0)
        inputs[0] = stage - 1;
    for (int i = 0; n->copy_of >= 0 && i < g->stages[n->copy_of].n_inputs; i++)
        inputs[i] = g->stages[n->copy_of].inputs[i] + stage - n->copy_of;
}

/* inputs ascend and name earlier stages only, so that the graph has no
 * cycle. */
static int read_inputs(const struct pp_value *at, int stage,
                       struct pp_manifest *m)
{
    struct pp_stage_node *node = &m->graph.stages[stage];
    struct pp_value list;
    size_t n = stage > 0;
    bool given = pp_value_find(at, "inputs", &list);
    if (node->copy_of >= 0)
        n = (size_t)m->graph.stages[node->copy_of].n_inputs;
    if (given && pp_value_array(&list, &n))
        return -1;
    int *inputs = pp_arena_alloc(&m->arena, n, sizeof *inputs);
    if (!given)
        imply_inputs(&m->graph, stage, inputs);
    for (size_t i = 0; given && i < n; i++) {
        struct pp_value item = pp_value_item(&list, i);
        int64_t v;
        if (pp_value_int(&item, 0, INT_MAX, &v))
            return -1;
        if (v >= stage)
            return pp_value_fail(&item,
                                 "'%" PRId64 "' must be less than its own "
                                 "stage, %d",
                                 v, stage);
        if (i && v <= inputs[i - 1])
            return pp_value_fail(&item,
                                 "'%" PRId64 "' is not in ascending "
                                 "order",
                                 v);
        inputs[i] = (int)v;
    }
    node->inputs = inputs;
    node->n_inputs = (int)n;
    return 0;
}

static bool is_unit(const struct pp_plan_model *model, const char *fqn)
{
    for (size_t i = 0; i < model->n_units; i++)
        if (!strcmp(model->units[i].fqn, fqn))
            return true;
    return false;
}

/* Stages hold the model's units in the model's order, so that a stage is a
 * range. */
static int read_unit_names(const struct pp_value *at, struct pp_manifest *m,
                           size_t next, struct pp_plan_stage *s)
{
    const struct pp_plan_model *model = &m->model;
    struct pp_value list;
    s->first_unit = next;
    if (!pp_value_find(at, "units", &list))
        return 0;
    if (pp_value_array(&list, &s->n_units))
        return -1;
    if (s->n_units && !m->has_model)
        return pp_value_fail(&list, "units of a stage need 'model'");
    for (size_t i = 0; i < s->n_units; i++) {
        struct pp_value item = pp_value_item(&list, i);
        const char *fqn;
        if (pp_value_text(&item, &fqn))
            return -1;
        const char *wanted =
            next + i < model->n_units ? model->units[next + i].fqn : NULL;
        if (wanted && !strcmp(fqn, wanted))
            continue;
        if (!is_unit(model, fqn))
            return pp_value_fail(&item, "'%.*s' is not in the model",
                                 PP_VALUE_QUOTE, fqn);
        if (!wanted)
            return pp_value_fail(&item, "'%.*s' is in a stage already",
                                 PP_VALUE_QUOTE, fqn);
        return pp_value_fail(&item,
                             "'%.*s' is out of order; the model's next unit is "
                             "'%.*s'",
                             PP_VALUE_QUOTE, fqn, PP_VALUE_QUOTE, wanted);
    }
    return 0;
}

/* A stage is frozen if all of its units are. */
static bool is_frozen(const struct pp_manifest *m,
                      const struct pp_plan_stage *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_units; i++)
        n += m->model.units[s->first_unit + i].role != PP_ROLE_TRAINED;
    return n > 0 && n == s->n_units;
}

static void sum_units(const struct pp_manifest *m, int stage,
                      struct pp_plan_stage *s)
{
    for (size_t i = 0; i < s->n_units; i++)
        pp_plan_stage_add(s, &m->model.units[s->first_unit + i]);
    const struct pp_stage_node *node = &m->graph.stages[stage];
    if (!s->n_units && node->n_inputs)
        s->costs.out_bytes = m->stages[node->inputs[0]].costs.out_bytes;
}

/* Checks the costs that are given. */
static int check_sums(const struct pp_value *at, const struct stage *given,
                      const struct stage *sums)
{
    struct pp_value member;
    if (pp_value_find(at, "params", &member) &&
        given->sums.costs.params != sums->sums.costs.params)
        return pp_value_fail(&member,
                             "'%" PRIu64 "' is not the units' %" PRIu64,
                             given->sums.costs.params, sums->sums.costs.params);
    for (const struct pp_doc_field *f = pp_stage_fields; f->key; f++) {
        bool real = f->type == PP_REAL || f->type == PP_REALS;
        const char *a = (const char *)given + f->offset;
        const char *b = (const char *)sums + f->offset;
        if (!real || !pp_value_find(at, f->key, &member))
            continue;
        for (size_t i = 0; i < f->size; i += sizeof(double)) {
            double x = *(const double *)(const void *)(a + i);
            double sum = *(const double *)(const void *)(b + i);
            if (fabs(x - sum) > COST_TOLERANCE * sum)
                return pp_value_fail(&member, "'%.9g' is not the units' %.9g",
                                     x, sum);
        }
    }
    return 0;
}

/* If there is a model, the sums over its units decide, and the costs in the
 * stage must agree. Without a model the costs in the stage are used. */
static int set_costs(const struct pp_value *at, struct pp_manifest *m,
                     const struct stage *given)
{
    struct pp_plan_stage *s = &m->stages[given->number];
    struct stage found = *given;
    sum_units(m, given->number, s);
    s->fixed_bytes = given->sums.fixed_bytes;
    m->graph.stages[given->number].frozen = is_frozen(m, s);
    found.sums = *s;
    if (m->has_model)
        return check_sums(at, given, &found);
    if (pp_fields_read(at, pp_stage_fields, &found))
        return -1;
    *s = found.sums;
    return 0;
}

static int check_copied_units(const struct pp_value *at,
                              const struct pp_manifest *m, int stage)
{
    int original = m->graph.stages[stage].copy_of;
    if (original < 0 || m->stages[stage].n_units == m->stages[original].n_units)
        return 0;
    return pp_value_fail(at, "%zu units, but stage %d, its original, has %zu",
                         m->stages[stage].n_units, original,
                         m->stages[original].n_units);
}

static int count_copies(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_graph *g = &m->graph;
    int last = g->stages[g->n_stages - 1].copy_of, originals = 0;
    while (originals < g->n_stages && g->stages[originals].copy_of < 0)
        originals++;
    if (last >= 0 && last != originals - 1)
        return pp_value_fail(at, "stage %d has fewer copies than stage %d",
                             last + 1, last);
    g->n_copies = g->n_stages / originals;
    return 0;
}

static int read_stage(const struct pp_value *at, int stage, size_t next_unit,
                      struct pp_manifest *m)
{
    struct pp_plan_stage *s = &m->stages[stage];
    struct stage given = {.last_rank = m->mesh.pp - 1};
    struct pp_value member;
    if (pp_fields_read(at, pp_stage_fields, &given))
        return -1;
    if (given.number != stage) {
        pp_value_find(at, "stage", &member);
        return pp_value_fail(&member, "'%d' must be %d, its place in the list",
                             given.number, stage);
    }
    if (pp_value_find(at, "component", &member) &&
        !json_object_get(at->parent->parent->value, "components"))
        return pp_value_fail(&member, "there are no components");
    m->graph.stages[stage].row = given.rank;
    s->recompute = given.sums.recompute;
    if (check_copy_of(at, stage, given.copy_of, m))
        return -1;
    int original = m->graph.stages[stage].copy_of;
    if (original >= 0)
        next_unit = m->stages[original].first_unit;
    return read_inputs(at, stage, m) || read_unit_names(at, m, next_unit, s) ||
                   pp_check_stage_mode(at, m, s->recompute) ||
                   check_copied_units(at, m, stage) || set_costs(at, m, &given)
               ? -1
               : 0;
}

static int check_ranks(const struct pp_value *at, struct pp_manifest *m)
{
    bool *seen = pp_arena_alloc(&m->arena, (size_t)m->mesh.pp, sizeof *seen);
    for (int s = 0; s < m->graph.n_stages; s++)
        seen[m->graph.stages[s].row] = true;
    for (int r = 0; r < m->mesh.pp; r++)
        if (!seen[r])
            return pp_value_fail(at, "rank '%d' of %d has no stage", r,
                                 m->mesh.pp);
    return 0;
}

/* Returns the stage that holds a unit, or -1. */
static int holder(const struct pp_manifest *m, const char *fqn)
{
    for (int s = 0; s < m->graph.n_stages; s++) {
        const struct pp_plan_stage *stage = &m->stages[s];
        for (size_t i = 0; i < stage->n_units; i++)
            if (!strcmp(m->model.units[stage->first_unit + i].fqn, fqn))
                return s;
    }
    return -1;
}

/* Finds the stages of the embedding and of what has its values: the head, or a
 * layer for multi-token prediction. */
static void find_tied(struct pp_manifest *m)
{
    const char *other = m->model.tied ? "lm_head" : m->model.ahead;
    int embedding = -1, head = -1;
    const char *name = "model.embed_tokens";
    bool frozen = false;
    for (size_t i = 0; i < m->model.n_units; i++)
        frozen |= !strcmp(m->model.units[i].fqn, name) &&
                  m->model.units[i].role != PP_ROLE_TRAINED;
    if (other && !frozen) {
        embedding = holder(m, name);
        head = holder(m, other);
    }
    bool both = embedding >= 0 && head >= 0;
    m->graph.tied[0] = both ? embedding : -1;
    m->graph.tied[1] = both ? head : -1;
}

static int check_tiling(const struct pp_value *at, const struct pp_manifest *m)
{
    const struct pp_plan_stage *last = &m->stages[m->graph.n_stages - 1];
    size_t end = last->first_unit + last->n_units;
    if (m->has_model && end < m->model.n_units)
        return pp_value_fail(at, "'%.*s' is in no stage", PP_VALUE_QUOTE,
                             m->model.units[end].fqn);
    return 0;
}

int pp_read_stages_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    struct pp_value mesh;
    size_t n, next_unit = 0;
    if (pp_value_array(at, &n))
        return -1;
    if (!n)
        return pp_value_fail(at, "there are no stages");
    if (n > INT_MAX)
        return pp_value_fail(at, "'%zu' stages are too many", n);
    if (!pp_value_find(at->parent, "mesh", &mesh))
        return pp_value_fail(at, "stages need 'mesh'");
    m->stages = pp_arena_alloc(&m->arena, n, sizeof *m->stages);
    m->graph.stages = pp_arena_alloc(&m->arena, n, sizeof *m->graph.stages);
    m->graph.n_rows = m->mesh.pp;
    m->graph.replicas = pp_mesh_replicas(&m->mesh) > 1;
    m->graph.resident = pp_trainer_find(m->model.trainer) == pp_trainers
                            ? pp_mesh_resident(&m->mesh)
                            : 0;
    m->graph.n_stages = (int)n;
    for (size_t s = 0; s < n; s++) {
        struct pp_value stage = pp_value_item(at, s);
        if (read_stage(&stage, (int)s, next_unit, m))
            return -1;
        next_unit = m->stages[s].first_unit + m->stages[s].n_units;
    }
    if (count_copies(at, m))
        return -1;
    if (check_ranks(at, m) || check_tiling(at, m))
        return -1;
    find_tied(m);
    if (pp_graph_connect(&m->arena, &m->graph, at->source->err))
        return pp_value_fail_at(at);
    m->has_stages = true;
    return 0;
}

static json_t *write_stage(const struct pp_plan_model *model,
                           const struct pp_graph *graph, int number,
                           const struct pp_plan_stage *s, struct pp_err *err)
{
    assert(s->first_unit + s->n_units <= model->n_units);
    const struct pp_stage_node *node = &graph->stages[number];
    json_t *inputs = json_array(), *units = json_array();
    const struct stage stage = {.number = number,
                                .rank = node->row,
                                .copy_of = node->copy_of,
                                .sums = *s};
    json_t *o = pp_fields_write(pp_stage_fields, &stage, err);
    if (s->recompute == PP_RECOMPUTE_NONE) {
        json_object_del(o, "again_flops");
        json_object_del(o, "passing_bytes");
    }
    for (int i = 0; i < node->n_inputs; i++)
        json_array_append_new(inputs, json_integer(node->inputs[i]));
    pp_put(o, "inputs", inputs);
    for (size_t i = 0; i < s->n_units; i++)
        json_array_append_new(units,
                              json_string(model->units[s->first_unit + i].fqn));
    pp_put(o, "units", units);
    return o;
}

json_t *pp_write_stages_section(const struct pp_plan_model *model,
                                const struct pp_graph *graph,
                                const struct pp_plan_stage *stages,
                                struct pp_err *err)
{
    json_t *list = json_array();
    for (int s = 0; s < graph->n_stages; s++)
        json_array_append_new(list,
                              write_stage(model, graph, s, &stages[s], err));
    return list;
}

struct pp_plan pp_manifest_plan(const struct pp_manifest *m)
{
    return (struct pp_plan){.model = &m->model,
                            .profile = m->has_profile ? &m->profile : NULL,
                            .machine = m->has_machine ? &m->machine : NULL,
                            .microbatch = &m->microbatch,
                            .mesh = &m->mesh,
                            .graph = &m->graph,
                            .stages = m->stages,
                            .components = m->components,
                            .n_components = m->n_components};
}

struct pp_layout pp_manifest_layout(const struct pp_manifest *m)
{
    return pp_plan_layout(pp_manifest_plan(m));
}
