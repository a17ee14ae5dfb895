/* SPDX-License-Identifier: MIT */
/* machine_section - "machine" of a manifest, and a file of its own: the GPUs
 * and the links between them. */

#include "manifest/machine_json.h"
#include "manifest/sections.h"

#define AT(member) PP_AT(struct pp_machine, member)
#define RATE .most = PP_MAX_COST
static const struct pp_doc_field peak_fields[] = {
    {"bf16", PP_REAL, PP_ALWAYS, AT(bf16), RATE},
    {"fp32", PP_REAL, PP_ALWAYS, AT(fp32), RATE},
    {"fp64", PP_REAL, PP_ALWAYS, AT(fp64), RATE},
    {NULL},
};
#undef AT

#define AT(member) PP_AT(struct pp_machine_level, member)
static const struct pp_doc_field level_fields[] = {
    {"size", PP_INTEGER, PP_OPTIONAL, AT(size), 1, PP_MAX_RANKS},
    {"bandwidth", PP_REAL, PP_NEEDED, AT(bandwidth), .least = 1, RATE},
    {"latency", PP_REAL, PP_NEEDED, AT(latency), .most = 1},
    {NULL},
};
#undef AT

/* The sizes of levels ascend, each a multiple of the one before it, and only
 * the last may be absent. */
static int read_levels(const struct pp_value *at, void *machine)
{
    struct pp_machine *m = machine;
    struct pp_value size;
    size_t n;
    if (pp_value_array(at, &n))
        return -1;
    if (n > PP_MAX_LEVELS)
        return pp_value_fail(at, "%zu levels are more than %d", n,
                             PP_MAX_LEVELS);
    for (size_t i = 0; i < n; i++) {
        const struct pp_value level = pp_value_item(at, i);
        struct pp_machine_level *l = &m->levels[i];
        *l = (struct pp_machine_level){0};
        if (pp_fields_read(&level, level_fields, l))
            return -1;
        if (!pp_value_find(&level, "size", &size)) {
            if (i + 1 < n)
                return pp_value_fail(&level, "needs 'size': only the last "
                                             "level has all ranks");
        } else if (i > 0 && (l->size <= l[-1].size || l->size % l[-1].size)) {
            return pp_value_fail(&size,
                                 "'%lld' is not a larger multiple of %lld, the "
                                 "size of the level before it",
                                 (long long)l->size, (long long)l[-1].size);
        }
    }
    m->n_levels = n;
    return 0;
}

static void put_levels(json_t *o, const char *key, const void *machine)
{
    const struct pp_machine *m = machine;
    struct pp_err none = {0}; /* levels have no text */
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_levels; i++)
        json_array_append_new(
            list, pp_fields_write(level_fields, &m->levels[i], &none));
    pp_put(o, key, list);
}

#define AT(member) PP_AT(struct pp_machine, member)
const struct pp_doc_field pp_machine_fields[] = {
    {"gpu", PP_STRING, PP_OPTIONAL, AT(gpu)},
    {"peaks", PP_OBJECT, PP_ALWAYS, .fields = peak_fields},
    {"memory_bytes", PP_REAL, PP_ALWAYS, AT(memory_bytes), RATE},
    {"memory_bandwidth", PP_REAL, PP_ALWAYS, AT(memory_bandwidth), RATE},
    {"efficiency", PP_REAL, PP_ALWAYS, AT(efficiency), .most = 1},
    {"levels", PP_OWN, PP_ALWAYS, .read = read_levels, .put = put_levels,
     .fields = level_fields},
    {NULL},
};
#undef AT

int pp_read_machine_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    m->has_machine = true;
    return pp_fields_read(at, pp_machine_fields, &m->machine);
}

/* Reads a file; where it has no figures of a GPU that it names, they come from
 * the table. */
static int read_root(const struct pp_value *root, struct pp_arena *a,
                     struct pp_machine *m)
{
    const struct pp_machine *known;
    struct pp_value member;
    const char *name;
    if (pp_value_find(root, "gpu", &member)) {
        if (pp_value_text(&member, &name))
            return -1;
        known = pp_machine_find(name);
        *m = known ? *known : *m;
    }
    if (pp_fields_read(root, pp_machine_fields, m))
        return -1;
    m->gpu = m->gpu ? pp_arena_strdup(a, m->gpu) : NULL;
    return 0;
}

int pp_machine_read(const char *path, struct pp_arena *a, struct pp_machine *m,
                    struct pp_err *err)
{
    json_t *value;
    *m = (struct pp_machine){.gpu = NULL};
    if (pp_value_read(path, &value, err))
        return -1;
    const struct pp_value_source source = {path, err};
    const struct pp_value root = {.source = &source, .value = value};
    int rc = read_root(&root, a, m);
    json_decref(value);
    return rc;
}
