/* SPDX-License-Identifier: MIT */
#include "manifest/profile_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "manifest/sections.h"

/* Values above this are refused as implausible. */
static const double most_seconds = 1e9, most_tokens = 1e15;

static int read_pair(const struct pp_value *unit, const char *key,
                     double out[2])
{
    struct pp_value at;
    if (pp_value_member(unit, key, &at))
        return -1;
    return pp_value_reals(&at, 0, most_seconds, 2, out);
}

/* Reads n numbers of tokens. */
static int read_tokens(const struct pp_value *loads, const char *key, size_t n,
                       struct pp_arena *a, double **out)
{
    struct pp_value at;
    if (pp_value_member(loads, key, &at))
        return -1;
    *out = pp_arena_alloc(a, n, sizeof **out);
    if (!*out)
        return pp_value_no_memory(&at);
    return pp_value_reals(&at, 0, most_tokens, n, *out);
}

static int read_loads(const struct pp_value *unit, struct pp_arena *a,
                      struct pp_expert_loads *l)
{
    static const char *const keys[] = {"tokens", "fullest", NULL};
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
    static const char *const keys[] = {"fqn",    "fwd",     "input",
                                       "weight", "experts", NULL};
    const char *fqn;
    if (pp_value_object(at, keys) || pp_value_get_text(at, "fqn", &fqn) ||
        read_pair(at, "fwd", u->fwd) || read_pair(at, "input", u->input) ||
        read_pair(at, "weight", u->weight) || read_loads(at, a, &u->experts))
        return -1;
    u->fqn = pp_arena_strdup(a, fqn);
    return u->fqn ? 0 : pp_value_no_memory(at);
}

static int check_names(const struct pp_value *at, const struct pp_profile *p)
{
    const char **names = calloc(p->n_units, sizeof *names);
    if (!names)
        return pp_value_no_memory(at);
    for (size_t i = 0; i < p->n_units; i++)
        names[i] = p->units[i].fqn;
    int rc = pp_value_distinct(at, names, p->n_units);
    free(names);
    return rc;
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
    if (!p->units)
        return pp_value_no_memory(&at);
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_value unit = pp_value_item(&at, i);
        if (read_unit_times(&unit, a, &p->units[i]))
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

static int read_step(const struct pp_value *root, struct pp_profile *p)
{
    static const char *const keys[] = {"seconds_per_param", NULL};
    struct pp_value at;
    if (!pp_value_find(root, "step", &at))
        return 0;
    if (pp_value_object(&at, keys))
        return -1;
    return pp_value_get_real(&at, "seconds_per_param", 0, most_seconds,
                             &p->seconds_per_param);
}

/* Reads the ranks that divided the experts, which loads of units need. */
static int read_ranks(const struct pp_value *root, struct pp_profile *p)
{
    static const char *const keys[] = {"ranks", "microbatches", NULL};
    struct pp_value at, place;
    int64_t ranks, group;
    if (!pp_value_find(root, "experts", &at))
        return 0;
    if (pp_value_object(&at, keys) ||
        pp_value_get_int(&at, "ranks", 1, PP_MOST_EXPERT_RANKS, &ranks) ||
        pp_value_get_int(&at, "microbatches", 1, PP_MOST_EXPERT_RANKS, &group))
        return -1;
    p->expert_ranks = (size_t)ranks;
    p->expert_group = (size_t)group;
    for (size_t i = 0; i < p->n_units; i++)
        if (p->units[i].experts.n_experts % p->expert_ranks)
            return pp_value_find(&at, "ranks", &place),
                   pp_value_fail(&place,
                                 "'%zu' does not divide the %zu experts "
                                 "of '%.*s'",
                                 p->expert_ranks, p->units[i].experts.n_experts,
                                 PP_VALUE_QUOTE, p->units[i].fqn);
    return 0;
}

static int read_measured(const struct pp_value *at, struct pp_arena *a,
                         struct pp_profile *p)
{
    return read_unit_list(at, a, p) || read_messages(at, p) || read_step(at, p)
               ? -1
               : 0;
}

static int read_profile(const struct pp_value *root, struct pp_arena *a,
                        struct pp_profile *p)
{
    static const char *const keys[] = {"format", "version", "units", "messages",
                                       "step",   "experts", NULL};
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
    return read_measured(root, a, p) || read_ranks(root, p) ? -1 : 0;
}

/* Reads a document and takes it. */
static int load_profile(json_t *value, const char *name, struct pp_arena *a,
                        struct pp_profile *p, struct pp_err *err)
{
    const struct pp_value_source source = {name, err};
    const struct pp_value root = {.source = &source, .value = value};
    *p = (struct pp_profile){0};
    int rc = read_profile(&root, a, p);
    json_decref(value);
    return rc;
}

int pp_profile_parse(const char *text, size_t n, const char *name,
                     struct pp_arena *a, struct pp_profile *p,
                     struct pp_err *err)
{
    json_t *value;
    return pp_value_parse(text, n, name, &value, err)
               ? -1
               : load_profile(value, name, a, p, err);
}

int pp_profile_read(const char *path, struct pp_arena *a, struct pp_profile *p,
                    struct pp_err *err)
{
    json_t *value;
    return pp_value_read(path, &value, err)
               ? -1
               : load_profile(value, path, a, p, err);
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
        write_pair(&w, "input", u->input);
        write_pair(&w, "weight", u->weight);
        write_loads(&w, &u->experts);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_break(&w);
    pp_json_object(&w, "messages", PP_JSON_INLINE);
    pp_json_real(&w, "seconds_per_byte", p->seconds_per_byte);
    pp_json_real(&w, "latency", p->latency);
    pp_json_end(&w);
    pp_json_break(&w);
    pp_json_object(&w, "step", PP_JSON_INLINE);
    pp_json_real(&w, "seconds_per_param", p->seconds_per_param);
    pp_json_end(&w);
    write_ranks(&w, p);
    pp_json_end(&w);
    putc('\n', f);
}

/* --- as a section of a manifest --- */

int pp_read_profile_section(const struct pp_value *at, struct pp_manifest *m)
{
    static const char *const keys[] = {"units", "messages", "step", NULL};
    struct pp_value units;
    if (!m->has_model)
        return pp_value_fail(at, "a profile needs 'model'");
    if (pp_value_object(at, keys) || read_measured(at, &m->arena, &m->profile))
        return -1;
    pp_value_find(at, "units", &units);
    if (m->profile.n_units != m->model.n_units)
        return pp_value_fail(&units, "'%zu' units, but the model has %zu",
                             m->profile.n_units, m->model.n_units);
    for (size_t i = 0; i < m->model.n_units; i++) {
        struct pp_value unit = pp_value_item(&units, i), fqn;
        if (pp_value_find(&unit, "experts", &fqn))
            return pp_value_fail(&fqn, "loads of experts are in files only");
        pp_value_find(&unit, "fqn", &fqn);
        if (strcmp(m->profile.units[i].fqn, m->model.units[i].fqn))
            return pp_value_fail(&fqn, "'%.*s' is not the model's '%.*s'",
                                 PP_VALUE_QUOTE, m->profile.units[i].fqn,
                                 PP_VALUE_QUOTE, m->model.units[i].fqn);
    }
    m->has_profile = true;
    return 0;
}

static int put_pair(json_t *object, const char *key, const double v[2])
{
    json_t *list = json_array();
    int bad = json_array_append_new(list, json_real(v[0]));
    bad |= json_array_append_new(list, json_real(v[1]));
    return bad | pp_put(object, key, list);
}

json_t *pp_write_profile_section(const struct pp_profile *p, struct pp_err *err)
{
    json_t *o = json_object(), *units = json_array();
    json_t *messages = json_object(), *step = json_object();
    int bad = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        json_t *u = json_object();
        bad |= pp_put_text(u, "fqn", p->units[i].fqn, err);
        bad |= put_pair(u, "fwd", p->units[i].fwd);
        bad |= put_pair(u, "input", p->units[i].input);
        bad |= put_pair(u, "weight", p->units[i].weight);
        bad |= json_array_append_new(units, u);
    }
    bad |= pp_put(messages, "seconds_per_byte", json_real(p->seconds_per_byte));
    bad |= pp_put(messages, "latency", json_real(p->latency));
    bad |= pp_put(step, "seconds_per_param", json_real(p->seconds_per_param));
    bad |= pp_put(o, "units", units);
    bad |= pp_put(o, "messages", messages);
    bad |= pp_put(o, "step", step);
    return pp_written(o, bad, err);
}
