/* SPDX-License-Identifier: MIT */
/* manifest_change - sections set anew, by pp_manifest_set_ and its kin.
 *
 * There is one path for validation: a setter builds the changed document and
 * has it read like any other, so that what is written can be read back. */
#include <string.h>

#include "manifest/sections.h"

/* x- keys of a section stay when the section is replaced. */
static int keep_extensions(const json_t *document, const char *key,
                           json_t *section)
{
    json_t *old = json_object_get(document, key), *value;
    const char *name;
    int bad = 0;
    json_object_foreach(old, name, value)
    {
        if (!strncmp(name, "x-", 2))
            bad |= json_object_set(section, name, value);
    }
    return bad;
}

/* A document to change: the sections are shared until replaced, so that *m is
 * untouched when the change is refused. */
static json_t *begin_change(const struct pp_manifest *m, struct pp_err *err)
{
    json_t *document = json_copy(m->document);
    if (!document)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return document;
}

/* Puts section (taken; NULL where *err is filled) in its place. */
static int replace(json_t *document, const char *key, json_t *section,
                   struct pp_err *err)
{
    if (!section)
        return -1;
    if (keep_extensions(document, key, section) ||
        json_object_set(document, key, section)) {
        json_decref(section);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    json_decref(section);
    return 0;
}

/* Puts *fresh, which moves, in the place of *m. */
static void swap_in(struct pp_manifest *m, struct pp_manifest *fresh)
{
    pp_manifest_finish(m);
    *m = *fresh;
    if (m->has_schedule)
        m->schedule.graph = &m->graph;
}

/* Reads the changed document (taken) and puts it in the place of the old. */
static int commit(struct pp_manifest *m, json_t *document, struct pp_err *err)
{
    struct pp_manifest fresh;
    if (pp_manifest_load(document, PP_OWN_NAME, &fresh, err))
        return -1;
    swap_in(m, &fresh);
    return 0;
}

static int change_section(struct pp_manifest *m, json_t *document,
                          const char *key, json_t *section, struct pp_err *err)
{
    if (replace(document, key, section, err)) {
        json_decref(document);
        return -1;
    }
    return commit(m, document, err);
}

/* A section (taken; NULL where *err is filled) that nothing else depends on. */
static int set_section(struct pp_manifest *m, const char *key, json_t *section,
                       struct pp_err *err)
{
    json_t *document = begin_change(m, err);
    if (document)
        return change_section(m, document, key, section, err);
    json_decref(section);
    return -1;
}

int pp_manifest_set_model(struct pp_manifest *m,
                          const struct pp_manifest_model *model,
                          struct pp_err *err)
{
    json_t *document = begin_change(m, err);
    if (!document)
        return -1;
    json_object_del(document, "profile");
    json_object_del(document, "microbatch");
    json_object_del(document, "stages");
    json_object_del(document, "components");
    json_object_del(document, "schedule");
    return change_section(m, document, "model",
                          pp_write_model_section(model, err), err);
}

int pp_manifest_set_profile(struct pp_manifest *m, const struct pp_profile *p,
                            struct pp_err *err)
{
    return set_section(m, "profile", pp_write_profile_section(p, err), err);
}

int pp_manifest_set_microbatch(struct pp_manifest *m,
                               const struct pp_assumed *mb, struct pp_err *err)
{
    return set_section(m, "microbatch", pp_write_microbatch_section(mb, err),
                       err);
}

static bool same_graph(const struct pp_graph *a, const struct pp_graph *b)
{
    if (a->n_ranks != b->n_ranks || a->n_stages != b->n_stages ||
        a->n_copies != b->n_copies || memcmp(a->tied, b->tied, sizeof a->tied))
        return false;
    for (int s = 0; s < a->n_stages; s++) {
        const struct pp_stage_node *x = &a->stages[s], *y = &b->stages[s];
        if (x->rank != y->rank || x->n_inputs != y->n_inputs)
            return false;
        for (int i = 0; i < x->n_inputs; i++)
            if (x->inputs[i] != y->inputs[i])
                return false;
    }
    return true;
}

/* The schedule stays when the new stages form the graph it was made for. The
 * graph is compared as it was read, which knows what is tied. */
static int keep_schedule(const struct pp_manifest *old, struct pp_manifest *m,
                         struct pp_err *err)
{
    if (!old->has_schedule || !same_graph(&old->graph, &m->graph))
        return 0;
    json_t *schedule = json_object_get(old->document, "schedule");
    if (json_object_set(m->document, "schedule", schedule))
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return commit(m, json_incref(m->document), err);
}

int pp_manifest_set_stages(struct pp_manifest *m, const struct pp_mesh *mesh,
                           const struct pp_graph *graph,
                           const struct pp_manifest_stage *stages,
                           struct pp_err *err)
{
    json_t *document = begin_change(m, err);
    if (!document)
        return -1;
    json_object_del(document, "components");
    json_object_del(document, "schedule");
    struct pp_manifest fresh;
    if (replace(document, "mesh", pp_write_mesh_section(mesh, err), err) ||
        replace(document, "stages",
                pp_write_stages_section(&m->model, graph, stages, err), err)) {
        json_decref(document);
        return -1;
    }
    if (pp_manifest_load(document, PP_OWN_NAME, &fresh, err))
        return -1;
    if (keep_schedule(m, &fresh, err)) {
        pp_manifest_finish(&fresh);
        return -1;
    }
    swap_in(m, &fresh);
    return 0;
}

int pp_manifest_set_components(struct pp_manifest *m,
                               const struct pp_component *components, size_t n,
                               struct pp_err *err)
{
    struct pp_component *all = pp_arena_alloc(&m->arena, n, sizeof *all);
    json_t *document = begin_change(m, err), *stages;
    if (!document)
        return -1;
    if (!all) {
        json_decref(document);
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        all[i] = components[i];
        all[i].first_unit =
            i > 0 ? all[i - 1].first_unit + all[i - 1].n_units : 0;
    }
    stages = pp_write_stage_components(json_object_get(document, "stages"), m,
                                       all, n, err);
    if (replace(document, "stages", stages, err)) {
        json_decref(document);
        return -1;
    }
    return change_section(m, document, "components",
                          pp_write_components_section(m, all, n, err), err);
}

int pp_manifest_set_data(struct pp_manifest *m,
                         const struct pp_manifest_data *data,
                         struct pp_err *err)
{
    return set_section(m, "data", pp_write_data_section(data, err), err);
}

int pp_manifest_set_schedule(struct pp_manifest *m, const struct pp_schedule *s,
                             struct pp_err *err)
{
    return set_section(m, "schedule", pp_write_schedule_section(s, err), err);
}

int pp_manifest_add_history(struct pp_manifest *m, const char *tool,
                            const char *version, const char *args,
                            struct pp_err *err)
{
    json_t *entry = json_object();
    int bad = pp_put_text(entry, "tool", tool, err);
    bad |= pp_put_text(entry, "version", version, err);
    bad |= pp_put_text(entry, "args", args, err);
    entry = pp_written(entry, bad, err);
    if (!entry)
        return -1;
    json_t *history = json_object_get(m->document, "history");
    bad = history ? json_array_append(history, entry)
                  : pp_put(m->document, "history", json_pack("[O]", entry));
    json_decref(entry);
    return bad ? pp_fail(err, PP_EXIT_SYSTEM, "out of memory") : 0;
}
