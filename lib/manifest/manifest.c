/* SPDX-License-Identifier: MIT */
/* manifest - reads, checks, changes and writes the document.
 *
 * Validation has one path: a setter builds the changed document and reads it
 * like any other, so that every manifest that is written can be read back. */
#include "manifest/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "manifest/sections.h"

#define FORMAT "pp-manifest"

/* An entry of the history. Its texts may be empty. */
struct history_entry {
    const char *tool, *version, *args;
};

#define AT(member) PP_AT(struct history_entry, member)
static const struct pp_doc_field entry_fields[] = {
    {"tool", PP_STRING, PP_NEEDED, AT(tool)},
    {"version", PP_STRING, PP_NEEDED, AT(version)},
    {"args", PP_STRING, PP_NEEDED, AT(args)},
    {NULL},
};
#undef AT

static int read_history(const struct pp_value *at, void *manifest)
{
    size_t n;
    (void)manifest;
    if (pp_value_array(at, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct pp_value entry = pp_value_item(at, i), member;
        if (pp_value_object(&entry, entry_fields))
            return -1;
        for (const struct pp_doc_field *f = entry_fields; f->key; f++)
            if (pp_value_member(&entry, f->key, &member) ||
                pp_value_string(&member))
                return -1;
    }
    return 0;
}

/* Sections are read in this order. */
const struct pp_doc_field pp_manifest_fields[] = {
    {"format"}, /* pp_value_format reads both */
    {"version"},
    {"model", PP_OWN, PP_OPTIONAL, .read = pp_read_model_section,
     .fields = pp_model_fields},
    {"profile", PP_OWN, PP_OPTIONAL, .read = pp_read_profile_section,
     .fields = pp_profile_fields},
    {"machine", PP_OWN, PP_OPTIONAL, .read = pp_read_machine_section,
     .fields = pp_machine_fields},
    {"microbatch", PP_OWN, PP_OPTIONAL, .read = pp_read_microbatch_section,
     .fields = pp_microbatch_fields},
    {"mesh", PP_OWN, PP_OPTIONAL, .read = pp_read_mesh_section,
     .fields = pp_mesh_fields},
    {"stages", PP_OWN, PP_OPTIONAL, .read = pp_read_stages_section,
     .fields = pp_stage_fields},
    {"components", PP_OWN, PP_OPTIONAL, .read = pp_read_components_section,
     .fields = pp_component_fields},
    {"data", PP_OWN, PP_OPTIONAL, .read = pp_read_data_section,
     .fields = pp_data_fields},
    {"schedule", PP_OWN, PP_OPTIONAL, .read = pp_read_schedule_section,
     .fields = pp_schedule_fields},
    {"history", PP_OWN, PP_OPTIONAL, .read = read_history,
     .fields = entry_fields},
    {NULL},
};

void pp_manifest_finish(struct pp_manifest *m)
{
    pp_schedule_finish(&m->schedule);
    pp_arena_finish(&m->arena);
    json_decref(m->document);
    *m = (struct pp_manifest){0};
}

/* Returns a manifest without sections, which takes the document. */
static struct pp_manifest unread(json_t *document)
{
    return (struct pp_manifest){
        .document = document, .mesh = {1, 1, 1, 1, 1}, .graph.tied = {-1, -1}};
}

int pp_manifest_load(json_t *document, const char *name, struct pp_manifest *m,
                     struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    const struct pp_value root = {.source = &source, .value = document};
    *m = unread(document);
    if (!pp_value_is_object(&root) &&
        !pp_value_format(&root, FORMAT, PP_MANIFEST_VERSION) &&
        !pp_fields_read(&root, pp_manifest_fields, m))
        return 0;
    pp_manifest_finish(m);
    return -1;
}

int pp_manifest_parse(const char *text, size_t n, const char *name,
                      struct pp_manifest *m, struct pp_err *err)
{
    *m = (struct pp_manifest){0};
    json_t *document;
    if (pp_value_parse(text, n, name, &document, err))
        return -1;
    return pp_manifest_load(document, name, m, err);
}

int pp_manifest_read_text(FILE *f, const char *name, char **text, size_t *n,
                          struct pp_err *err)
{
    json_t *document = NULL;
    *text = NULL;
    int rc = pp_value_read_stream(f, name, text, n, &document, err);
    json_decref(document);
    return rc;
}

int pp_manifest_read(FILE *f, const char *name, struct pp_manifest *m,
                     struct pp_err *err)
{
    *m = (struct pp_manifest){0};
    json_t *document;
    if (pp_value_read_stream(f, name, NULL, NULL, &document, err))
        return -1;
    return pp_manifest_load(document, name, m, err);
}

void pp_manifest_init(struct pp_manifest *m)
{
    *m = unread(pp_value_new());
    pp_put(m->document, "format", json_string(FORMAT));
    pp_put(m->document, "version", json_integer(PP_MANIFEST_VERSION));
}

/* Puts section, which it takes, in the place of another one, whose x- keys it
 * keeps. */
static void replace(json_t *document, const char *key, json_t *section)
{
    json_t *old = json_object_get(document, key), *value;
    const char *name;
    json_object_foreach(old, name, value)
    {
        if (!strncmp(name, "x-", 2))
            json_object_set(section, name, value);
    }
    pp_put(document, key, section);
}

/* Replaces *m by *fresh, and corrects the pointers that point into the
 * struct. */
static void swap_in(struct pp_manifest *m, struct pp_manifest *fresh)
{
    pp_manifest_finish(m);
    *m = *fresh;
    if (m->has_schedule)
        m->schedule.graph = &m->graph;
}

/* Reads the changed document, takes it, and replaces the old one. Fails if a
 * text was not UTF-8. */
static int commit(struct pp_manifest *m, json_t *document, struct pp_err *err)
{
    struct pp_manifest fresh;
    if (err->code != PP_EXIT_OK) {
        json_decref(document);
        return -1;
    }
    if (pp_manifest_load(document, PP_OWN_NAME, &fresh, err))
        return -1;
    swap_in(m, &fresh);
    return 0;
}

/* Sets a section that no other section depends on, and takes it. The change is
 * made to a copy of the document, which shares the other sections, so that *m
 * stays as it is if the change is refused. */
static int set_section(struct pp_manifest *m, const char *key, json_t *section,
                       struct pp_err *err)
{
    json_t *document = json_copy(m->document);
    replace(document, key, section);
    return commit(m, document, err);
}

int pp_manifest_set_model(struct pp_manifest *m,
                          const struct pp_plan_model *model, struct pp_err *err)
{
    json_t *document = json_copy(m->document);
    json_object_del(document, "profile");
    json_object_del(document, "microbatch");
    json_object_del(document, "stages");
    json_object_del(document, "components");
    json_object_del(document, "schedule");
    replace(document, "model", pp_write_model_section(model, err));
    return commit(m, document, err);
}

int pp_manifest_set_profile(struct pp_manifest *m, const struct pp_profile *p,
                            struct pp_err *err)
{
    return set_section(m, "profile", pp_write_profile_section(p, err), err);
}

int pp_manifest_set_machine(struct pp_manifest *m,
                            const struct pp_machine *machine,
                            struct pp_err *err)
{
    return set_section(m, "machine",
                       pp_fields_write(pp_machine_fields, machine, err), err);
}

int pp_manifest_set_microbatch(struct pp_manifest *m,
                               const struct pp_default_microbatch *mb,
                               struct pp_err *err)
{
    return set_section(m, "microbatch",
                       pp_fields_write(pp_microbatch_fields, mb, err), err);
}

static bool same_graph(const struct pp_graph *a, const struct pp_graph *b)
{
    if (a->n_rows != b->n_rows || a->n_stages != b->n_stages ||
        a->n_copies != b->n_copies || memcmp(a->tied, b->tied, sizeof a->tied))
        return false;
    for (int s = 0; s < a->n_stages; s++) {
        const struct pp_stage_node *x = &a->stages[s], *y = &b->stages[s];
        if (x->row != y->row || x->n_inputs != y->n_inputs)
            return false;
        for (int i = 0; i < x->n_inputs; i++)
            if (x->inputs[i] != y->inputs[i])
                return false;
    }
    return true;
}

/* Keeps the schedule if the new stages form the graph that it was made for.
 * The graphs are compared after both were read, because reading finds the tied
 * stages. */
static int keep_schedule(const struct pp_manifest *old, struct pp_manifest *m,
                         struct pp_err *err)
{
    if (!old->has_schedule || !same_graph(&old->graph, &m->graph))
        return 0;
    json_object_set(m->document, "schedule",
                    json_object_get(old->document, "schedule"));
    return commit(m, json_incref(m->document), err);
}

int pp_manifest_set_stages(struct pp_manifest *m,
                           const struct pp_plan_model *model,
                           const struct pp_mesh *mesh,
                           const struct pp_graph *graph,
                           const struct pp_plan_stage *stages,
                           struct pp_err *err)
{
    json_t *document = json_copy(m->document);
    json_object_del(document, "components");
    json_object_del(document, "schedule");
    if (model)
        replace(document, "model", pp_write_model_section(model, err));
    replace(document, "mesh", pp_fields_write(pp_mesh_fields, mesh, err));
    replace(document, "stages",
            pp_write_stages_section(&m->model, graph, stages, err));
    struct pp_manifest fresh = {0};
    if (commit(&fresh, document, err))
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
    json_t *document = json_copy(m->document);
    for (size_t i = 0; i < n; i++) {
        all[i] = components[i];
        all[i].first_unit =
            i > 0 ? all[i - 1].first_unit + all[i - 1].n_units : 0;
    }
    replace(document, "stages",
            pp_write_stage_components(json_object_get(document, "stages"), m,
                                      all, n));
    replace(document, "components",
            pp_write_components_section(m, all, n, err));
    return commit(m, document, err);
}

int pp_manifest_set_data(struct pp_manifest *m, const struct pp_plan_data *data,
                         struct pp_err *err)
{
    return set_section(m, "data", pp_fields_write(pp_data_fields, data, err),
                       err);
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
    const struct history_entry texts = {tool, version, args};
    json_t *entry = pp_fields_write(entry_fields, &texts, err);
    json_t *history = json_object_get(m->document, "history");
    if (err->code != PP_EXIT_OK) {
        json_decref(entry);
        return -1;
    }
    if (history)
        json_array_append_new(history, entry);
    else
        pp_put(m->document, "history", json_pack("[o]", entry));
    return 0;
}

struct pp_plan_name pp_manifest_plan_name(const struct pp_manifest *m)
{
    static const char *const keys[] = {"model", "mesh", "stages"};
    struct pp_plan_name name = {""};
    uint64_t hash = PP_FNV_START;
    if (!m->has_model)
        return name;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *section = json_object_get(m->document, keys[i]);
        char *text = json_dumps(section, JSON_COMPACT | JSON_SORT_KEYS);
        hash = pp_fnv(hash, text, text ? strlen(text) : 0);
        free(text);
    }
    snprintf(name.text, sizeof name.text, "%016" PRIx64, hash);
    return name;
}

void pp_manifest_write(const struct pp_manifest *m, FILE *f)
{
    pp_value_print(m->document, pp_manifest_fields, f);
}
