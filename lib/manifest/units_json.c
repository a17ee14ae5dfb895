/* SPDX-License-Identifier: MIT */
#include "manifest/units_json.h"

#include <string.h>

#include "base/file.h"
#include "manifest/sections.h"
#include "model/model.h"

enum { NEWEST = 1, MOST_UNITS = 1 << 20 };

/* Units come in the order of these kinds. */
static const struct {
    const char *name, *class;
    enum pp_unit_kind kind;
} kinds[] = {
    {"embedding", "Embedding", PP_UNIT_EMBED},
    {"layer", "Layer", PP_UNIT_LAYER},
    {"norm", "Norm", PP_UNIT_NORM},
    {"head", "Linear", PP_UNIT_HEAD},
};

/* Reads a name that fits in PP_FQN_TEXT. The document owns *out. */
static int get_name(const struct pp_value *at, const char *key,
                    const char **out)
{
    struct pp_value member;
    if (pp_value_member(at, key, &member) || pp_value_text(&member, out))
        return -1;
    size_t n = strlen(*out);
    if (n == 0 || n >= PP_FQN_TEXT)
        return pp_value_fail(&member, "'%.*s' is longer than %d characters",
                             PP_VALUE_QUOTE, *out, PP_FQN_TEXT - 1);
    return 0;
}

static int read_kind(const struct pp_value *at, struct pp_unit_row *row)
{
    struct pp_value member;
    const char *text = "layer";
    if (pp_value_find(at, "kind", &member) && pp_value_text(&member, &text))
        return -1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].name, text)) {
            row->kind = kinds[k].kind;
            row->class = kinds[k].class;
            return 0;
        }
    return pp_value_fail(&member,
                         "'%.*s' is not embedding, layer, norm or head",
                         PP_VALUE_QUOTE, text);
}

#define AT(member) PP_AT(struct pp_unit_row, member)
#define COST .most = PP_MAX_COST
static const struct pp_doc_field row_fields[] = {
    {"fqn"},
    {"kind"},
    {"class"},
    {"params", PP_INTEGER, PP_NEEDED, AT(costs.params), 0, PP_MAX_COUNT},
    {"fwd_flops", PP_REALS, PP_NEEDED, AT(costs.fwd_flops), COST},
    {"act_bytes", PP_REALS, PP_NEEDED, AT(costs.act_bytes), COST},
    {"out_bytes", PP_REAL, PP_NEEDED, AT(costs.out_bytes), COST},
    {"workspace_bytes", PP_OWN, PP_OPTIONAL, AT(workspace),
     .read = pp_read_workspace},
    {NULL},
};
#undef AT

static int read_table_row(const struct pp_value *at, struct pp_arena *a,
                          struct pp_unit_row *row)
{
    const char *fqn;
    struct pp_value member;
    if (pp_fields_read(at, row_fields, row) || get_name(at, "fqn", &fqn) ||
        read_kind(at, row))
        return -1;
    if (pp_value_find(at, "class", &member) &&
        get_name(at, "class", &row->class))
        return -1;
    row->fqn = pp_arena_strdup(a, fqn);
    row->class = pp_arena_strdup(a, row->class);
    return 0;
}

/* Units are embeddings, then layers (at least one), norms and heads. */
static int check_kinds(const struct pp_value *at, struct pp_unit_row *rows,
                       size_t n, struct pp_unit_table *t, struct pp_model *m)
{
    struct pp_value unit, kind;
    for (size_t i = 0; i < n; i++) {
        t->n_first += rows[i].kind == PP_UNIT_EMBED;
        m->n_layers += rows[i].kind == PP_UNIT_LAYER;
        if (i == 0 || rows[i - 1].kind <= rows[i].kind)
            continue;
        unit = pp_value_item(at, i);
        return pp_value_fail(
            pp_value_find(&unit, "kind", &kind) ? &kind : &unit,
            "'%s' must come before '%s'", kinds[rows[i].kind].name,
            kinds[rows[i - 1].kind].name);
    }
    if (m->n_layers == 0)
        return pp_value_fail(at, "there are no layers");
    return 0;
}

static int check_params(const struct pp_value *at,
                        const struct pp_unit_row *rows, size_t n)
{
    uint64_t params = 0;
    for (size_t i = 0; i < n; i++) {
        params += rows[i].costs.params; /* both are below 2^63 */
        if (params > PP_MAX_COUNT)
            return pp_value_fail(at, "the sum of params is too large");
    }
    return 0;
}

static int read_table_units(const struct pp_value *at, struct pp_arena *a,
                            struct pp_unit_table *t, struct pp_model *m)
{
    size_t n;
    if (pp_value_array(at, &n))
        return -1;
    if (n > MOST_UNITS)
        return pp_value_fail(at, "%zu units are more than %d", n, MOST_UNITS);
    struct pp_unit_row *rows = pp_arena_alloc(a, n + 1, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        struct pp_value unit = pp_value_item(at, i);
        if (read_table_row(&unit, a, &rows[i]))
            return -1;
    }
    t->rows = rows;
    t->n = n;
    return check_kinds(at, rows, n, t, m) || check_params(at, rows, n) ||
                   pp_value_distinct(at, rows, sizeof *rows, n)
               ? -1
               : 0;
}

static int read_table(const struct pp_value *root, struct pp_arena *a,
                      struct pp_model *m)
{
    static const struct pp_doc_field keys[] = {
        {"format"}, {"version"}, {"architecture"}, {"units"}, {NULL}};
    struct pp_unit_table *t = pp_arena_alloc(a, 1, sizeof *t);
    const char *text;
    struct pp_value at;
    if (pp_value_object(root, keys) ||
        pp_value_format(root, "pp-units", NEWEST))
        return -1;
    if (get_name(root, "architecture", &text) ||
        pp_value_member(root, "units", &at))
        return -1;
    t->architecture = pp_arena_strdup(a, text);
    *m = (struct pp_model){.architecture = PP_TABLE, .table = t};
    return read_table_units(&at, a, t, m);
}

int pp_units_parse(const char *text, size_t n, const char *name,
                   struct pp_arena *a, struct pp_model *m, struct pp_err *err)
{
    json_t *value;
    if (pp_value_parse(text, n, name, &value, err))
        return -1;
    const struct pp_value_source source = {name, err};
    const struct pp_value root = {.source = &source, .value = value};
    int rc = read_table(&root, a, m);
    json_decref(value);
    return rc;
}

int pp_units_read(const char *path, struct pp_arena *a, struct pp_model *m,
                  struct pp_err *err)
{
    const void *text;
    size_t n;
    if (pp_file_map(path, &text, &n, err))
        return -1;
    int rc = pp_units_parse(text, n, path, a, m, err);
    pp_file_unmap(text, n);
    return rc;
}
