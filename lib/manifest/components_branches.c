/* SPDX-License-Identifier: MIT */
/* components_branches - the edges between components of a manifest: two
 * encoders are branches that meet at the language model's embedding, and a
 * generator reads what the language model's last stage puts out. */
#include <string.h>

#include "manifest/sections.h"
#include "cost/workloads.h"
#include "model/frozen.h"

/* Returns the stage that has a unit. */
static int stage_of(const struct pp_manifest *m, size_t unit)
{
    int s = 0;
    while (m->stages[s].first_unit + m->stages[s].n_units <= unit)
        s++;
    return s;
}

/* Lists the inputs that a stage must have: the one before it, unless a
 * component begins with it; and the ends of the encoders, if it has the first
 * unit of the language model. */
static int wanted_inputs(const struct pp_manifest *m, int stage,
                         int inputs[PP_MAX_ENCODERS + 1])
{
    const struct pp_plan_stage *x = &m->stages[stage];
    const struct pp_component *c = m->components;
    const struct pp_component *last = c + pp_plan_language(pp_manifest_plan(m));
    size_t embedding = last->first_unit, end = x->first_unit + x->n_units;
    bool joins = x->first_unit <= embedding && embedding < end, begins = false;
    int n = 0;
    for (; c < last; c++) {
        int from = stage_of(m, c->first_unit + c->n_units - 1);
        begins |= x->n_units && x->first_unit == c->first_unit;
        if (joins && from < stage && (n == 0 || inputs[n - 1] != from))
            inputs[n++] = from;
    }
    begins |= x->n_units && x->first_unit == embedding;
    if (stage && !begins && (n == 0 || inputs[n - 1] != stage - 1))
        inputs[n++] = stage - 1;
    return n;
}

/* Returns whether a stage has the end of the first of two encoders and the
 * beginning of the second, but not the end of that. */
static bool mixes_encoders(const struct pp_manifest *m, int stage)
{
    const struct pp_plan_stage *x = &m->stages[stage];
    const struct pp_component *second = &m->components[1];
    size_t end = x->first_unit + x->n_units;
    return x->first_unit < second->first_unit && end > second->first_unit &&
           end < second->first_unit + second->n_units;
}

/* Checks that two encoders are branches that meet at the embedding, or that one
 * stage has the ends of both. */
static int check_branches(const struct pp_value *at,
                          const struct pp_manifest *m)
{
    int inputs[PP_MAX_ENCODERS + 1], n;
    if (pp_plan_language(pp_manifest_plan(m)) != PP_MAX_ENCODERS)
        return 0;
    for (int s = 0; s < m->graph.n_stages / m->graph.n_copies; s++) {
        const struct pp_stage_node *node = &m->graph.stages[s];
        if (mixes_encoders(m, s))
            return pp_value_fail(at,
                                 "stage %d has the features of '%.*s' and a "
                                 "part of '%.*s', which do not go in one "
                                 "message; begin a stage with the second "
                                 "encoder, or keep it whole",
                                 s, PP_VALUE_QUOTE, m->components[0].name,
                                 PP_VALUE_QUOTE, m->components[1].name);
        n = wanted_inputs(m, s, inputs);
        if (n == node->n_inputs &&
            !memcmp(inputs, node->inputs, (size_t)n * sizeof *inputs))
            continue;
        return pp_value_fail(at,
                             "stage %d does not have the inputs of its units: "
                             "features of an encoder go to the embedding's "
                             "stage alone, and from nowhere else",
                             s);
    }
    return 0;
}

/* Checks that a generator's stages are a chain behind the language model. */
static int check_generator(const struct pp_value *at,
                           const struct pp_manifest *m)
{
    const struct pp_component *c = &m->components[m->n_components - 1];
    if (!c->source)
        return 0;
    for (int s = 0; s < m->graph.n_stages; s++) {
        const struct pp_plan_stage *x = &m->stages[s];
        const struct pp_stage_node *node = &m->graph.stages[s];
        size_t end = x->first_unit + x->n_units;
        if (end <= c->first_unit)
            continue;
        if (x->first_unit < c->first_unit)
            return pp_value_fail(at,
                                 "stage %d has units of '%.*s' and of the one "
                                 "before it, which cannot share a stage",
                                 s, PP_VALUE_QUOTE, c->name);
        if (node->n_inputs != 1 || node->inputs[0] != s - 1)
            return pp_value_fail(at,
                                 "stage %d of '%.*s' must have the stage "
                                 "before it as its input, and no other",
                                 s, PP_VALUE_QUOTE, c->name);
    }
    return 0;
}

/* Sets the roles of units again if there are two encoders, which are not a
 * chain. */
static void divide_roles(struct pp_manifest *m)
{
    const struct pp_component *c = m->components;
    size_t n = m->model.n_units;
    if (pp_plan_language(pp_manifest_plan(m)) < 2 || !m->model.has_frozen)
        return;
    enum pp_role *roles = pp_arena_alloc(&m->arena, n, sizeof *roles);
    bool *frozen = pp_arena_alloc(&m->arena, n, sizeof *frozen);
    for (size_t i = 0; i < n; i++)
        frozen[i] = m->model.units[i].role != PP_ROLE_TRAINED;
    pp_roles_of(frozen, n, c[1].first_unit, c[2].first_unit, roles);
    for (size_t i = 0; i < n; i++)
        m->model.units[i].role = roles[i];
}

int pp_components_join(const struct pp_value *at, struct pp_manifest *m)
{
    if (check_branches(at, m) || check_generator(at, m))
        return -1;
    divide_roles(m);
    return 0;
}
