/* SPDX-License-Identifier: MIT */
/* manifest - reading, checking, changing and writing the document.
 *
 * There is one path for validation: a setter builds the changed document and
 * has it read like any other, so that what is written can be read back. */
#include "manifest/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/sections.h"

#define FORMAT "pp-manifest"
#define READ_BYTES ((size_t)1 << 16)

static const char *const top_keys[] = {
    "format", "version",    "model", "profile",  "microbatch", "mesh",
    "stages", "components", "data",  "schedule", "history",    NULL,
};
static const char *const history_keys[] = {"tool", "version", "args", NULL};

static int read_version(const struct pp_value *root)
{
    struct pp_value member;
    const char *format;
    int64_t version;
    if (pp_value_is_object(root) || pp_value_member(root, "format", &member) ||
        pp_value_text(&member, &format))
        return -1;
    if (strcmp(format, FORMAT))
        return pp_value_fail(&member, "'%.*s' is not '" FORMAT "'",
                             PP_VALUE_QUOTE, format);
    if (pp_value_member(root, "version", &member) ||
        pp_value_int(&member, 1, INT64_MAX, &version))
        return -1;
    if (version > PP_MANIFEST_VERSION)
        return pp_value_fail(&member,
                             "'%" PRId64 "' is newer than %d: tools that know "
                             "version %" PRId64 " are needed",
                             version, PP_MANIFEST_VERSION, version);
    return 0;
}

static int read_history(const struct pp_value *at)
{
    size_t n;
    if (pp_value_array(at, &n))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct pp_value entry = pp_value_item(at, i);
        if (pp_value_object(&entry, history_keys))
            return -1;
        for (size_t k = 0; history_keys[k]; k++) {
            struct pp_value member;
            if (pp_value_member(&entry, history_keys[k], &member) ||
                pp_value_string(&member))
                return -1;
        }
    }
    return 0;
}

static int read_sections(const struct pp_value *root, struct pp_manifest *m)
{
    static const struct {
        const char *key;
        int (*read)(const struct pp_value *at, struct pp_manifest *m);
    } sections[] = {
        {"model", pp_read_model_section},
        {"profile", pp_read_profile_section},
        {"microbatch", pp_read_microbatch_section},
        {"mesh", pp_read_mesh_section},
        {"stages", pp_read_stages_section},
        {"components", pp_read_components_section},
        {"data", pp_read_data_section},
        {"schedule", pp_read_schedule_section},
    };
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        struct pp_value at;
        if (pp_value_find(root, sections[i].key, &at) &&
            sections[i].read(&at, m))
            return -1;
    }
    struct pp_value history;
    return pp_value_find(root, "history", &history) ? read_history(&history)
                                                    : 0;
}

int pp_manifest_load(json_t *document, const char *name, struct pp_manifest *m,
                     struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    const struct pp_value root = {.source = &source, .value = document};
    *m = (struct pp_manifest){
        .document = document, .mesh = {1, 1, 1, 1, 1}, .graph.tied = {-1, -1}};
    if (!read_version(&root) && !pp_value_object(&root, top_keys) &&
        !read_sections(&root, m))
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

static int read_all(FILE *f, const char *name, char **text, size_t *n,
                    struct pp_err *err)
{
    char *buf = NULL;
    size_t used = 0, size = 0, got;
    do {
        if (size - used < READ_BYTES) {
            size = size ? 2 * size : 2 * READ_BYTES;
            char *more = realloc(buf, size);
            if (!more) {
                free(buf);
                return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", name);
            }
            buf = more;
        }
        got = fread(buf + used, 1, size - used, f);
        used += got;
    } while (got);
    if (ferror(f)) {
        (void)pp_fail_read(err, name);
        free(buf);
        return -1;
    }
    *text = buf;
    *n = used;
    return 0;
}

int pp_manifest_read(FILE *f, const char *name, struct pp_manifest *m,
                     struct pp_err *err)
{
    *m = (struct pp_manifest){0};
    char *text = NULL;
    size_t n = 0;
    if (read_all(f, name, &text, &n, err))
        return -1;
    int rc = pp_manifest_parse(text, n, name, m, err);
    free(text);
    return rc;
}

int pp_manifest_init(struct pp_manifest *m, struct pp_err *err)
{
    *m = (struct pp_manifest){0};
    json_t *document = json_object();
    int bad = pp_put(document, "format", json_string(FORMAT));
    bad |= pp_put(document, "version", json_integer(PP_MANIFEST_VERSION));
    document = pp_written(document, bad, err);
    return document ? pp_manifest_load(document, PP_OWN_NAME, m, err) : -1;
}

int pp_manifest_write(const struct pp_manifest *m, FILE *f, struct pp_err *err)
{
    if (!m->document)
        return pp_fail(err, PP_EXIT_SYSTEM, "there is no manifest to write");
    pp_value_print(m->document, f);
    return 0;
}

void pp_manifest_finish(struct pp_manifest *m)
{
    pp_schedule_finish(&m->schedule);
    pp_arena_finish(&m->arena);
    json_decref(m->document);
    *m = (struct pp_manifest){0};
}
