/* SPDX-License-Identifier: MIT */
#include "manifest/profile_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "manifest/json.h"

/* Seconds; more than that is no measurement. */
static const double most_seconds = 1e9;

static int read_pair(const struct pp_value *unit, const char *key,
                     double out[2])
{
    struct pp_value at;
    if (pp_value_member(unit, key, &at))
        return -1;
    return pp_value_reals(&at, 0, most_seconds, 2, out);
}

static int read_unit(const struct pp_value *at, struct pp_arena *a,
                     struct pp_unit_seconds *u)
{
    static const char *const keys[] = {"fqn", "fwd", "input", "weight", NULL};
    const char *fqn;
    if (pp_value_object(at, keys) || pp_value_get_text(at, "fqn", &fqn) ||
        read_pair(at, "fwd", u->fwd) || read_pair(at, "input", u->input) ||
        read_pair(at, "weight", u->weight))
        return -1;
    u->fqn = pp_arena_strdup(a, fqn);
    return u->fqn ? 0 : pp_value_no_memory(at);
}

static int compare_names(const void *pa, const void *pb)
{
    return strcmp(*(const char *const *)pa, *(const char *const *)pb);
}

static int check_names(const struct pp_value *at, const struct pp_profile *p)
{
    const char *twice = NULL, **names = calloc(p->n_units, sizeof *names);
    if (!names)
        return pp_value_no_memory(at);
    for (size_t i = 0; i < p->n_units; i++)
        names[i] = p->units[i].fqn;
    qsort(names, p->n_units, sizeof *names, compare_names);
    for (size_t i = 1; i < p->n_units && !twice; i++)
        if (!strcmp(names[i - 1], names[i]))
            twice = names[i];
    free(names);
    return twice ? pp_value_fail(at, "'%s' is there twice", twice) : 0;
}

static int read_units(const struct pp_value *root, struct pp_arena *a,
                      struct pp_profile *p)
{
    struct pp_value at;
    if (pp_value_member(root, "units", &at) || pp_value_array(&at, &p->n_units))
        return -1;
    if (p->n_units == 0)
        return pp_value_fail(&at, "there are no units");
    p->units = pp_arena_alloc(a, p->n_units, sizeof *p->units);
    if (!p->units)
        return pp_value_no_memory(&at);
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_value unit = pp_value_item(&at, i);
        if (read_unit(&unit, a, &p->units[i]))
            return -1;
    }
    return check_names(&at, p);
}

static int read_messages(const struct pp_value *root, struct pp_profile *p)
{
    static const char *const keys[] = {"seconds_per_byte", "latency", NULL};
    struct pp_value at;
    if (!pp_value_find(root, "messages", &at))
        return 0;
    if (pp_value_object(&at, keys) ||
        pp_value_get_real(&at, "seconds_per_byte", 0, most_seconds,
                          &p->seconds_per_byte))
        return -1;
    return pp_value_get_real(&at, "latency", 0, most_seconds, &p->latency);
}

static int read_profile(const struct pp_value *root, struct pp_arena *a,
                        struct pp_profile *p)
{
    static const char *const keys[] = {"format", "version", "units", "messages",
                                       NULL};
    const char *format;
    struct pp_value at;
    int64_t version;
    if (pp_value_object(root, keys) ||
        pp_value_get_text(root, "format", &format))
        return -1;
    if (strcmp(format, "pp-profile"))
        return pp_value_find(root, "format", &at),
               pp_value_fail(&at, "'%.*s' is not 'pp-profile'", PP_VALUE_QUOTE,
                             format);
    if (pp_value_get_int(root, "version", 1, INT32_MAX, &version))
        return -1;
    if (version > 1)
        return pp_value_find(root, "version", &at),
               pp_value_fail(&at, "version %d is newer than this program's 1",
                             (int)version);
    return read_units(root, a, p) || read_messages(root, p) ? -1 : 0;
}

int pp_profile_read(const char *path, struct pp_arena *a, struct pp_profile *p,
                    struct pp_err *err)
{
    const void *text;
    size_t n;
    json_t *value;
    *p = (struct pp_profile){0};
    if (pp_file_map(path, &text, &n, err))
        return -1;
    int rc = pp_value_parse(text, n, path, &value, err);
    pp_file_unmap(text, n);
    if (rc)
        return -1;
    const struct pp_value_source source = {path, err};
    const struct pp_value root = {.source = &source, .value = value};
    rc = read_profile(&root, a, p);
    json_decref(value);
    return rc;
}
