/* SPDX-License-Identifier: MIT */
/* components_section - "components" of a manifest: the parts of a model that
 * has several, such as an image encoder and a language model, and the ranks of
 * each. A generator behind the language model is a part, too. A stage names its
 * components. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "manifest/sections.h"
#include "cost/workloads.h"

struct component_row {
    struct pp_component c;
    int last_row;
    int first_rank; /* -1: not apart */
};

#define AT(member) PP_AT(struct component_row, member)
const struct pp_doc_field pp_component_fields[] = {
    {"name", PP_STRING, PP_NEEDED, AT(c.name)},
    {"mesh", .fields = pp_mesh_fields},
    {"source", PP_STRING, PP_OPTIONAL, AT(c.source)},
    {"rank_offset", PP_INTEGER, PP_NEEDED, AT(c.rank_offset),
     .max_at = offsetof(struct component_row, last_row)},
    {"first_rank", PP_INTEGER, PP_OPTIONAL, AT(first_rank), 0, INT_MAX,
     .absent = -1},
    {"units", PP_INTEGER, PP_NEEDED, AT(c.n_units), 1, INT_MAX},
    {"behind", PP_STRING, PP_OPTIONAL, AT(c.behind)},
    {NULL},
};
#undef AT

/* Returns the mesh of a component on the manifest's ranks, but for pp. */
static struct pp_mesh shared_mesh(const struct pp_manifest *m, bool is_encoder)
{
    struct pp_mesh x = pp_mesh_of(&m->mesh, is_encoder && m->mesh.encoder_tp);
    x.encoder_tp = 0;
    return x;
}

/* The mesh of a component must be the manifest's but for pp. An encoder that is
 * apart may have another dp, tp and cp, and no ep; a generator may have one.
 * One with a mesh of its own on the same ranks has the sizes that encoder_tp
 * gives. */
static int read_mesh(const struct pp_value *component,
                     const struct pp_manifest *m, struct pp_component *c,
                     bool is_encoder)
{
    struct pp_value at;
    struct pp_manifest own = {.mesh = {1, 1, 1, 1, 1}};
    if (pp_value_member(component, "mesh", &at) ||
        pp_read_mesh_section(&at, &own))
        return -1;
    bool free = c->apart && (is_encoder || c->source);
    const struct pp_mesh *x = &own.mesh, all = shared_mesh(m, is_encoder);
    if (c->apart && is_encoder && x->ep > 1)
        return pp_value_fail(&at,
                             "'%d' expert-parallel ranks of an encoder "
                             "have no experts to divide",
                             x->ep);
    bool same = free ? pp_same_settings(x, &all) : pp_same_mesh(x, &all);
    if (!same && is_encoder && m->mesh.encoder_tp)
        return pp_value_fail(&at,
                             "must be the encoder's by encoder_tp: 'tp' %d and "
                             "'dp' %d, and as the manifest's mesh but for pp",
                             all.tp, all.dp);
    if (!same)
        return pp_value_fail(&at,
                             "all but pp%s must be as in the manifest's mesh",
                             c->source && free ? ", dp, tp, cp and ep"
                             : free            ? ", dp, tp and cp"
                                               : "");
    c->mesh = *x;
    c->n_ranks = x->pp;
    if (c->n_ranks > all.pp - c->rank_offset)
        return pp_value_fail(&at, "ranks %d to %d are beyond the last, %d",
                             c->rank_offset, c->rank_offset + x->pp - 1,
                             all.pp - 1);
    return 0;
}

/* Checks the first rank of a component that is apart. Its ranks and rows follow
 * the ranks and rows of the component before it that is. The second of two
 * encoders may be on the ranks of the language model, and then it has no first
 * rank. */
static int check_first_rank(const struct pp_value *at,
                            const struct pp_manifest *m, size_t index,
                            size_t n_encoders, int rank)
{
    struct pp_component *c = &m->components[index];
    struct pp_value member;
    c->apart = pp_value_find(at, "first_rank", &member);
    bool shares = !c->apart && index > 0 && index < n_encoders;
    if (index > 0 && c->apart != m->components[0].apart && !shares)
        return pp_value_fail(at, "all components need 'first_rank', or none");
    if (!m->components[0].apart)
        return 0;
    const struct pp_component *before = index > 0 ? c - 1 : NULL;
    if (before && !before->apart)
        before--;
    int64_t want =
        before ? (int64_t)before->first_rank + pp_mesh_ranks(&before->mesh) : 0;
    int row = before ? before->rank_offset + before->n_ranks : 0;
    if (c->apart && rank != want)
        return pp_value_fail(&member,
                             "'%d' must be %" PRId64
                             ", behind the ranks of the components before it",
                             rank, want);
    if (c->rank_offset != row)
        return pp_value_fail(at,
                             "'rank_offset' must be %d, behind the stages "
                             "of the components before it",
                             row);
    c->first_rank = c->apart ? rank : 0;
    return 0;
}

/* Checks the keys of a generator, which is the last component. */
static int check_generator(const struct pp_value *at,
                           const struct pp_manifest *m, size_t index,
                           size_t n_encoders)
{
    const struct pp_component *c = &m->components[index];
    struct pp_value behind;
    if (!c->source != !c->behind)
        return pp_value_fail(at, "'source' and 'behind' need each other");
    if (!c->source)
        return 0;
    pp_value_find(at, "behind", &behind);
    if (index == 0 || strcmp(c->behind, m->components[index - 1].name))
        return pp_value_fail(&behind, "'%.*s' is not the component before it",
                             PP_VALUE_QUOTE, c->behind);
    return index != n_encoders + 1
               ? pp_value_fail(at, "a generator must be the last component")
               : 0;
}

static int read_component(const struct pp_value *at, struct pp_manifest *m,
                          size_t index, size_t n_encoders)
{
    struct pp_component *c = &m->components[index];
    struct component_row part = {.last_row = m->mesh.pp - 1};
    struct pp_value name;
    if (pp_fields_read(at, pp_component_fields, &part))
        return -1;
    *c = part.c;
    for (size_t i = 0; i < index; i++)
        if (!strcmp(m->components[i].name, c->name)) {
            pp_value_find(at, "name", &name);
            return pp_value_fail(&name, "'%.*s' is a duplicate name",
                                 PP_VALUE_QUOTE, c->name);
        }
    if (index > 0)
        c->first_unit = m->components[index - 1].first_unit +
                        m->components[index - 1].n_units;
    return check_generator(at, m, index, n_encoders) ||
                   check_first_rank(at, m, index, n_encoders,
                                    part.first_rank) ||
                   read_mesh(at, m, c, index < n_encoders)
               ? -1
               : 0;
}

/* Returns true if a stage has units of the component. */
static bool has_units_of(const struct pp_plan_stage *s,
                         const struct pp_component *c)
{
    return s->first_unit < c->first_unit + c->n_units &&
           s->first_unit + s->n_units > c->first_unit;
}

/* Finds the component that a stage names. A stage that has units must have
 * some of that component. */
static int check_name(const struct pp_value *at, const struct pp_manifest *m,
                      int stage, size_t *found)
{
    const struct pp_plan_stage *s = &m->stages[stage];
    const char *name;
    size_t i = 0;
    if (pp_value_text(at, &name))
        return -1;
    while (i < m->n_components && strcmp(m->components[i].name, name))
        i++;
    if (i == m->n_components)
        return pp_value_fail(at, "'%.*s' is not a component", PP_VALUE_QUOTE,
                             name);
    const struct pp_component *c = &m->components[i];
    int rank = m->graph.stages[stage].row;
    if (s->n_units > 0 && !has_units_of(s, c))
        return pp_value_fail(at, "the stage has no units of '%.*s'",
                             PP_VALUE_QUOTE, name);
    if (rank < c->rank_offset || rank - c->rank_offset >= c->n_ranks)
        return pp_value_fail(at, "rank '%d' is not one of '%.*s'", rank,
                             PP_VALUE_QUOTE, name);
    *found = i;
    return 0;
}

/* "component" is one name, or the list of all the stage's in order. */
static int check_stage(const struct pp_value *stage,
                       const struct pp_manifest *m, int number)
{
    struct pp_value at;
    size_t n = 1, of = 0, found = 0;
    if (pp_value_member(stage, "component", &at))
        return -1;
    bool list = json_is_array(at.value);
    if (list && pp_value_array(&at, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = list ? pp_value_item(&at, i) : at;
        size_t before = found;
        if (check_name(&item, m, number, &found))
            return -1;
        if (i > 0 && found <= before)
            return pp_value_fail(&item,
                                 "'%.*s' is not in the order of "
                                 "components",
                                 PP_VALUE_QUOTE, m->components[found].name);
    }
    for (size_t i = 0; i < m->n_components; i++)
        of += has_units_of(&m->stages[number], &m->components[i]);
    if (n < of || n == 0)
        return pp_value_fail(&at, "%zu names for units of %zu components", n,
                             of);
    return 0;
}

/* Checks that a stage has units of the component that its rank belongs to. */
static int check_own_units(const struct pp_value *at,
                           const struct pp_manifest *m, int stage)
{
    const struct pp_plan_stage *x = &m->stages[stage];
    const struct pp_component *c = m->components;
    while (!c->apart ||
           m->graph.stages[stage].row >= c->rank_offset + c->n_ranks)
        c++;
    size_t end = x->first_unit + x->n_units;
    if (x->first_unit >= c->first_unit && end <= c->first_unit + c->n_units)
        return 0;
    /* An encoder on the language model's ranks is whole beside its first
     * unit. */
    const struct pp_component *shared = c > m->components ? c - 1 : c;
    if (!shared->apart && x->first_unit == shared->first_unit &&
        end > c->first_unit && end <= c->first_unit + c->n_units)
        return 0;
    return pp_value_fail(
        at, "stage %d has units of a component with other ranks", stage);
}

/* Reports whether one encoder is on the ranks of the language model while the
 * other is apart. */
static bool has_shared_encoder(const struct pp_manifest *m)
{
    bool shares = false;
    for (size_t i = 1; m->components[0].apart && i < m->n_components; i++)
        shares |= !m->components[i].apart;
    return shares;
}

/* Stages and ranks of components that are apart are disjoint, so a stage has
 * units of one of them. */
static int check_apart(const struct pp_value *at, struct pp_manifest *m)
{
    const struct pp_component *c = m->components;
    const struct pp_component *last = c + m->n_components - 1;
    if (!c->apart)
        return 0;
    if (m->n_components < 2 ||
        m->n_components >
            PP_MAX_ENCODERS + 1u + pp_plan_generates(pp_manifest_plan(m)) ||
        last->rank_offset + last->n_ranks != m->mesh.pp)
        return pp_value_fail(at,
                             "an encoder and a language model with ranks "
                             "of their own must have all %d pipeline ranks",
                             m->mesh.pp);
    if (m->mesh.encoder_tp && !has_shared_encoder(m)) {
        struct pp_value first = pp_value_item(at, 0);
        return pp_value_fail(&first,
                             "'first_rank' is not possible with 'encoder_tp' "
                             "in the manifest's mesh");
    }
    for (int s = 0; s < m->graph.n_stages; s++)
        if (check_own_units(at, m, s))
            return -1;
    if ((int64_t)last->first_rank + pp_mesh_ranks(&last->mesh) > INT_MAX)
        return pp_value_fail(at, "the components have too many ranks");
    for (; c <= last; c++) {
        m->graph.replicas |= c->mesh.dp * c->mesh.cp > 1;
        if (!m->graph.resident)
            m->graph.resident = pp_mesh_resident(&c->mesh);
    }
    return 0;
}

/* Fills the names of rows: of the components whose units they have. */
static void name_rows(struct pp_manifest *m)
{
    size_t n_rows = (size_t)m->graph.n_rows;
    const char **names = pp_arena_alloc(&m->arena, n_rows, sizeof *names);
    for (size_t row = 0; row < n_rows; row++) {
        char text[256] = "";
        size_t n = 0;
        for (size_t i = 0; i < m->n_components; i++) {
            const struct pp_component *c = &m->components[i];
            bool has = false;
            for (int s = 0; s < m->graph.n_stages; s++)
                has |= m->graph.stages[s].row == (int)row &&
                       has_units_of(&m->stages[s], c);
            if (has && n < sizeof text)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
                                      n ? " and " : "", c->name);
        }
        names[row] = pp_arena_strdup(&m->arena, text);
    }
    m->row_names = names;
}

int pp_read_components_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    struct pp_value stages;
    size_t n;
    if (pp_value_array(at, &n))
        return -1;
    if (n == 0)
        return pp_value_fail(at, "there are no components");
    if (!m->has_model || !m->has_stages)
        return pp_value_fail(at, "components need 'model' and 'stages'");
    m->components = pp_arena_alloc(&m->arena, n, sizeof *m->components);
    size_t units = 0, n_encoders = n - 1;
    struct pp_value end = pp_value_item(at, n - 1), source;
    if (n > 1 && pp_value_find(&end, "source", &source))
        n_encoders--;
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (read_component(&item, m, i, n_encoders))
            return -1;
        units = m->components[i].first_unit + m->components[i].n_units;
    }
    if (units != m->model.n_units)
        return pp_value_fail(at, "%zu units in components, %zu in the model",
                             units, m->model.n_units);
    m->n_components = n;
    if (check_apart(at, m) || pp_components_join(at, m))
        return -1;
    pp_value_find(at->parent, "stages", &stages);
    for (int s = 0; s < m->graph.n_stages; s++) {
        struct pp_value stage = pp_value_item(&stages, (size_t)s);
        if (check_stage(&stage, m, s))
            return -1;
    }
    name_rows(m);
    return 0;
}

json_t *pp_write_components_section(const struct pp_manifest *m,
                                    const struct pp_component *components,
                                    size_t n, struct pp_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct pp_component *c = &components[i];
        bool is_encoder = i + 1 + (components[n - 1].source != NULL) < n;
        struct pp_mesh mesh = c->apart ? c->mesh : shared_mesh(m, is_encoder);
        mesh.pp = c->n_ranks;
        const struct component_row part = {
            .c = *c, .first_rank = c->apart ? c->first_rank : -1};
        json_t *o = pp_fields_write(pp_component_fields, &part, err);
        pp_put(o, "mesh", pp_fields_write(pp_mesh_fields, &mesh, err));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *pp_write_stage_components(const json_t *stages,
                                  const struct pp_manifest *m,
                                  const struct pp_component *components,
                                  size_t n)
{
    json_t *named = json_deep_copy(stages);
    for (int s = 0; s < m->graph.n_stages; s++) {
        json_t *stage = json_array_get(named, (size_t)s), *names = json_array();
        for (size_t i = 0; i < n; i++)
            if (has_units_of(&m->stages[s], &components[i]))
                json_array_append_new(names, json_string(components[i].name));
        bool one = json_array_size(names) == 1;
        json_object_set(stage, "component",
                        one ? json_array_get(names, 0) : names);
        json_decref(names);
    }
    return named;
}
