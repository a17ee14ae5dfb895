/* SPDX-License-Identifier: MIT */
#include "manifest/profile_json.h"

#include <string.h>

#include "base/json_writer.h"
#include "manifest/sections.h"

/* Values above this are refused as implausible. */
#define SECONDS .most = 1e9
static const double most_tokens = 1e15;

#define AT(member) PP_AT(struct pp_profile, member)
static const struct pp_doc_field message_fields[] = {
    {"seconds_per_byte", PP_REAL, PP_NEEDED, AT(seconds_per_byte), SECONDS},
    {"latency", PP_REAL, PP_NEEDED, AT(latency), SECONDS},
    {NULL},
};

static const struct pp_doc_field copy_fields[] = {
    {"seconds_per_byte", PP_REAL, PP_OPTIONAL, AT(copy_seconds_per_byte),
     SECONDS},
    {NULL},
};

static const struct pp_doc_field step_fields[] = {
    {"seconds_per_param", PP_REAL, PP_NEEDED, AT(seconds_per_param), SECONDS},
    {NULL},
};

/* The ranks that divided the experts, which loads of units need. */
static const struct pp_doc_field expert_fields[] = {
    {"ranks", PP_INTEGER, PP_NEEDED, AT(expert_ranks), 1, PP_MOST_EXPERT_RANKS},
    {"microbatches", PP_INTEGER, PP_NEEDED, AT(expert_group), 1,
     PP_MOST_EXPERT_RANKS},
    {NULL},
};
#undef AT

#define AT(member) PP_AT(struct pp_unit_seconds, member)
static const struct pp_doc_field elementwise_fields[] = {
    {"norms", PP_REAL, PP_OPTIONAL, AT(elementwise[0]), SECONDS},
    {"qkv", PP_REAL, PP_OPTIONAL, AT(elementwise[2]), SECONDS},
    {"outputs", PP_REAL, PP_OPTIONAL, AT(elementwise[4]), SECONDS},
    {"mlp_act", PP_REAL, PP_OPTIONAL, AT(elementwise[5]), SECONDS},
    {"expert_act", PP_REAL, PP_OPTIONAL, AT(elementwise[7]), SECONDS},
    {NULL},
};
static const struct pp_doc_field unit_fields[] = {
    {"fqn", PP_STRING, PP_NEEDED, AT(fqn)},
    {"fwd", PP_REALS, PP_NEEDED, AT(fwd), SECONDS},
    {"input", PP_REALS, PP_ALWAYS, AT(input), SECONDS},
    {"weight", PP_REALS, PP_ALWAYS, AT(weight), SECONDS},
    {"once", PP_REAL, PP_OPTIONAL, AT(once), SECONDS},
    {"elementwise", PP_OBJECT, PP_OPTIONAL, .fields = elementwise_fields},
    {"experts"},
    {"frozen"}, /* in files only */
    {NULL},
};
#undef AT

/* A file has them, too. */
#define UNITS "units", .fields = unit_fields
#define MESSAGES "messages", PP_OBJECT, PP_ALWAYS, .fields = message_fields
#define COPIES "copies", PP_OBJECT, PP_OPTIONAL, .fields = copy_fields
#define STEP "step", PP_OBJECT, PP_ALWAYS, .fields = step_fields
const struct pp_doc_field pp_profile_fields[] = {
    {UNITS}, {MESSAGES}, {COPIES}, {STEP}, {NULL}};

static const struct pp_doc_field file_fields[] = {
    {"format"}, /* pp_value_format reads both */
    {"version"}, {"experts", PP_OBJECT, PP_OPTIONAL, .fields = expert_fields},
    {UNITS},     {MESSAGES},
    {COPIES},    {STEP},
    {NULL},
};

/* Reads n numbers of tokens. */
static int read_tokens(const struct pp_value *loads, const char *key, size_t n,
                       struct pp_arena *a, double **out)
{
    struct pp_value at;
    if (pp_value_member(loads, key, &at))
        return -1;
    *out = pp_arena_alloc(a, n, sizeof **out);
    return pp_value_reals(&at, 0, most_tokens, n, *out);
}

static int read_loads(const struct pp_value *unit, struct pp_arena *a,
                      struct pp_expert_loads *l)
{
    static const struct pp_doc_field keys[] = {{"tokens"}, {"fullest"}, {NULL}};
    struct pp_value at, tokens;
    if (!pp_value_find(unit, "experts", &at))
        return 0;
    if (pp_value_object(&at, keys) || pp_value_member(&at, "tokens", &tokens) ||
        pp_value_array(&tokens, &l->n_experts))
        return -1;
    if (l->n_experts == 0)
        return pp_value_fail(&tokens, "there are no experts");
    return read_tokens(&at, "tokens", l->n_experts, a, &l->tokens) ||
                   read_tokens(&at, "fullest", pp_n_divisors(l->n_experts), a,
                               &l->fullest)
               ? -1
               : 0;
}

static int read_unit_times(const struct pp_value *at, struct pp_arena *a,
                           struct pp_unit_seconds *u)
{
    struct pp_value part;
    if (pp_fields_read(at, unit_fields, u) || read_loads(at, a, &u->experts) ||
        (pp_value_find(at, "frozen", &part) &&
         pp_value_real(&part, 0, 1, &u->frozen)))
        return -1;
    u->no_input = !pp_value_find(at, "input", &part);
    u->no_weight = !pp_value_find(at, "weight", &part);
    u->fqn = pp_arena_strdup(a, u->fqn);
    return 0;
}

static int read_unit_list(const struct pp_value *root, struct pp_arena *a,
                          struct pp_profile *p)
{
    struct pp_value at;
    if (pp_value_member(root, "units", &at) || pp_value_array(&at, &p->n_units))
        return -1;
    if (p->n_units == 0)
        return pp_value_fail(&at, "there are no units");
    p->units = pp_arena_alloc(a, p->n_units, sizeof *p->units);
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_value unit = pp_value_item(&at, i);
        if (read_unit_times(&unit, a, &p->units[i]))
            return -1;
    }
    return pp_value_distinct(&at, p->units, sizeof *p->units, p->n_units);
}

static int check_ranks(const struct pp_value *root, const struct pp_profile *p)
{
    struct pp_value at, ranks;
    for (size_t i = 0; p->expert_ranks && i < p->n_units; i++)
        if (p->units[i].experts.n_experts % p->expert_ranks)
            return pp_value_find(root, "experts", &at),
                   pp_value_find(&at, "ranks", &ranks),
                   pp_value_fail(&ranks,
                                 "'%zu' does not divide the %zu experts "
                                 "of '%.*s'",
                                 p->expert_ranks, p->units[i].experts.n_experts,
                                 PP_VALUE_QUOTE, p->units[i].fqn);
    return 0;
}

static int read_profile(const struct pp_value *root, struct pp_arena *a,
                        struct pp_profile *p)
{
    return pp_value_object(root, file_fields) ||
                   pp_value_format(root, "pp-profile", 1) ||
                   pp_fields_read(root, file_fields, p) ||
                   read_unit_list(root, a, p) || check_ranks(root, p)
               ? -1
               : 0;
}

int pp_profile_parse(const char *text, size_t n, const char *name,
                     struct pp_arena *a, struct pp_profile *p,
                     struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    struct pp_value root = {.source = &source};
    json_t *value;
    *p = (struct pp_profile){0};
    if (pp_value_parse(text, n, name, &value, err))
        return -1;
    root.value = value;
    int rc = read_profile(&root, a, p);
    json_decref(value);
    return rc;
}

static void write_pair(struct pp_json_writer *w, const char *key,
                       const double v[2])
{
    pp_json_array(w, key, PP_JSON_INLINE);
    pp_json_real(w, NULL, v[0]);
    pp_json_real(w, NULL, v[1]);
    pp_json_end(w);
}

static void write_tokens(struct pp_json_writer *w, const char *key,
                         const double *tokens, size_t n)
{
    pp_json_array(w, key, PP_JSON_INLINE);
    for (size_t i = 0; i < n; i++)
        pp_json_real(w, NULL, tokens[i]);
    pp_json_end(w);
}

static void write_loads(struct pp_json_writer *w,
                        const struct pp_expert_loads *l)
{
    if (l->n_experts == 0)
        return;
    pp_json_object(w, "experts", PP_JSON_INLINE);
    write_tokens(w, "tokens", l->tokens, l->n_experts);
    write_tokens(w, "fullest", l->fullest, pp_n_divisors(l->n_experts));
    pp_json_end(w);
}

static void write_ranks(struct pp_json_writer *w, const struct pp_profile *p)
{
    if (p->expert_ranks == 0)
        return;
    pp_json_break(w);
    pp_json_object(w, "experts", PP_JSON_INLINE);
    pp_json_uint(w, "ranks", p->expert_ranks);
    pp_json_uint(w, "microbatches", p->expert_group);
    pp_json_end(w);
}

void pp_profile_write(FILE *f, const struct pp_profile *p)
{
    struct pp_json_writer w = {.f = f, .indent = 1};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    pp_json_string(&w, "format", "pp-profile");
    pp_json_int(&w, "version", 1);
    pp_json_break(&w);
    pp_json_array(&w, "units", PP_JSON_HUGGED);
    for (size_t i = 0; i < p->n_units; i++) {
        const struct pp_unit_seconds *u = &p->units[i];
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_string(&w, "fqn", u->fqn);
        write_pair(&w, "fwd", u->fwd);
        if (!u->no_input)
            write_pair(&w, "input", u->input);
        if (!u->no_weight)
            write_pair(&w, "weight", u->weight);
        if (u->frozen > 0)
            pp_json_real(&w, "frozen", u->frozen);
        write_loads(&w, &u->experts);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_break(&w);
    pp_json_object(&w, "messages", PP_JSON_INLINE);
    pp_json_real(&w, "seconds_per_byte", p->seconds_per_byte);
    pp_json_real(&w, "latency", p->latency);
    pp_json_end(&w);
    if (p->copy_seconds_per_byte > 0) {
        pp_json_break(&w);
        pp_json_object(&w, "copies", PP_JSON_INLINE);
        pp_json_real(&w, "seconds_per_byte", p->copy_seconds_per_byte);
        pp_json_end(&w);
    }
    pp_json_break(&w);
    pp_json_object(&w, "step", PP_JSON_INLINE);
    pp_json_real(&w, "seconds_per_param", p->seconds_per_param);
    pp_json_end(&w);
    write_ranks(&w, p);
    pp_json_end(&w);
    putc('\n', f);
}

/* --- as a section of a manifest --- */

int pp_read_profile_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    struct pp_value units;
    if (!m->has_model)
        return pp_value_fail(at, "a profile needs 'model'");
    if (pp_fields_read(at, pp_profile_fields, &m->profile) ||
        read_unit_list(at, &m->arena, &m->profile))
        return -1;
    pp_value_find(at, "units", &units);
    if (m->profile.n_units != m->model.n_units)
        return pp_value_fail(&units, "'%zu' units, but the model has %zu",
                             m->profile.n_units, m->model.n_units);
    for (size_t i = 0; i < m->model.n_units; i++) {
        struct pp_value unit = pp_value_item(&units, i), fqn;
        if (pp_value_find(&unit, "experts", &fqn))
            return pp_value_fail(&fqn, "loads of experts are in files only");
        if (pp_value_find(&unit, "frozen", &fqn))
            return pp_value_fail(&fqn, "shares of adapters are in files only");
        if (m->profile.units[i].no_input || m->profile.units[i].no_weight)
            return pp_value_fail(&unit, "lacks a gradient");
        pp_value_find(&unit, "fqn", &fqn);
        if (strcmp(m->profile.units[i].fqn, m->model.units[i].fqn))
            return pp_value_fail(&fqn, "'%.*s' is not the model's '%.*s'",
                                 PP_VALUE_QUOTE, m->profile.units[i].fqn,
                                 PP_VALUE_QUOTE, m->model.units[i].fqn);
    }
    m->has_profile = true;
    return 0;
}

json_t *pp_write_profile_section(const struct pp_profile *p, struct pp_err *err)
{
    json_t *o = pp_fields_write(pp_profile_fields, p, err);
    json_t *units = json_array();
    for (size_t i = 0; i < p->n_units; i++)
        json_array_append_new(units,
                              pp_fields_write(unit_fields, &p->units[i], err));
    pp_put(o, "units", units);
    return o;
}
