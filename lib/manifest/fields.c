/* SPDX-License-Identifier: MIT */
#include "manifest/fields.h"

#include <string.h>

const struct pp_doc_field *pp_field_find(const struct pp_doc_field *fields,
                                         const char *key)
{
    for (; fields->key; fields++)
        if (!strcmp(key, fields->key))
            return fields;
    return NULL;
}

/* Version 1 reserves these keys for a later version. */
static const struct pp_doc_field reserved[] = {{"stream"}, {NULL}};

int pp_value_object(const struct pp_value *at,
                    const struct pp_doc_field *fields)
{
    if (pp_value_is_object(at))
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach(at->value, key, value)
    {
        if (!strncmp(key, "x-", 2) || pp_field_find(fields, key))
            continue;
        if (pp_field_find(reserved, key))
            return pp_value_fail(at, "'%s' is reserved", key);
        return pp_value_fail(at, "'%.*s' is not a known key", PP_VALUE_QUOTE,
                             key);
    }
    return 0;
}

static int64_t load(const void *member, size_t size)
{
    uint32_t narrow;
    int64_t wide;
    if (size == sizeof wide)
        return memcpy(&wide, member, size), wide;
    if (size == sizeof narrow)
        return memcpy(&narrow, member, size), (int64_t)narrow;
    return *(const unsigned char *)member;
}

static void store(int64_t v, void *member, size_t size)
{
    uint32_t narrow = (uint32_t)v;
    if (size == sizeof v)
        memcpy(member, &v, size);
    else if (size == sizeof narrow)
        memcpy(member, &narrow, size);
    else
        *(unsigned char *)member = (unsigned char)v;
}

static int read_integer(const struct pp_value *at, const struct pp_doc_field *f,
                        char *record)
{
    int64_t v, max = f->max_at ? load(record + f->max_at, f->size) : f->max;
    if (pp_value_int(at, f->min, max, &v))
        return -1;
    store(v, record + f->offset, f->size);
    return 0;
}

static int read_choice(const struct pp_value *at, const struct pp_doc_field *f,
                       void *member)
{
    const char *text;
    int64_t i = 0;
    if (pp_value_text(at, &text))
        return -1;
    while (f->words[i] && strcmp(f->words[i], text))
        i++;
    store(i, member, f->size);
    return f->words[i] ? 0
                       : pp_value_fail(at, "'%.*s' is not %s", PP_VALUE_QUOTE,
                                       text, f->list);
}

static int read_field(const struct pp_value *at, const struct pp_doc_field *f,
                      char *record)
{
    void *member = record + f->offset;
    switch (f->type) {
    case PP_OWN:
        return f->read ? f->read(at, member) : 0;
    case PP_INTEGER:
        return read_integer(at, f, record);
    case PP_REAL:
        return pp_value_real(at, f->least, f->most, member);
    case PP_REALS:
        return pp_value_reals(at, f->least, f->most, f->size / sizeof(double),
                              member);
    case PP_FLAG:
        return pp_value_bool(at, member);
    case PP_STRING:
        return pp_value_text(at, member);
    case PP_CHOICE:
        return read_choice(at, f, member);
    case PP_OBJECT:
        if (f->flagged)
            *(bool *)member = true;
        return pp_fields_read(at, f->fields, member);
    }
    return 0;
}

int pp_fields_read(const struct pp_value *at, const struct pp_doc_field *fields,
                   void *record)
{
    if (pp_value_object(at, fields))
        return -1;
    for (const struct pp_doc_field *f = fields; f->key; f++) {
        struct pp_value member;
        if (pp_value_find(at, f->key, &member)) {
            if (read_field(&member, f, record))
                return -1;
        } else if (f->presence == PP_NEEDED && (f->type || f->read)) {
            return pp_value_member(at, f->key, &member);
        } else if (f->absent) {
            store(f->absent, (char *)record + f->offset, f->size);
        }
    }
    return 0;
}

static bool is_zero(const char *bytes, size_t n)
{
    while (n > 0 && bytes[n - 1] == 0)
        n--;
    return n == 0;
}

static json_t *reals(size_t n, const double *x)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return list;
}

static bool is_absent(const struct pp_doc_field *f, const void *member)
{
    if (f->presence != PP_OPTIONAL)
        return false;
    if (f->type == PP_OBJECT)
        return f->flagged && !*(const bool *)member;
    if (f->type != PP_INTEGER)
        return is_zero(member, f->size);
    int64_t v = load(member, f->size);
    return v == f->absent || v < f->min || (!f->max_at && v > f->max);
}

static void put_object(json_t *object, const struct pp_doc_field *f,
                       const void *member, struct pp_err *err)
{
    json_t *o = pp_fields_write(f->fields, member, err);
    if (f->presence == PP_OPTIONAL && !json_object_size(o))
        json_decref(o);
    else
        pp_put(object, f->key, o);
}

static void put_field(json_t *o, const struct pp_doc_field *f,
                      const char *record, struct pp_err *err)
{
    const void *member = record + f->offset;
    if (f->type == PP_OWN && f->put)
        f->put(o, f->key, member);
    if (f->type == PP_OWN || is_absent(f, member))
        return;
    switch (f->type) {
    case PP_INTEGER:
        pp_put(o, f->key, json_integer(load(member, f->size)));
        break;
    case PP_REAL:
        pp_put(o, f->key, json_real(*(const double *)member));
        break;
    case PP_REALS:
        pp_put(o, f->key, reals(f->size / sizeof(double), member));
        break;
    case PP_FLAG:
        pp_put(o, f->key, json_boolean(*(const bool *)member));
        break;
    case PP_CHOICE:
        pp_put(o, f->key, json_string(f->words[load(member, f->size)]));
        break;
    case PP_OBJECT:
        put_object(o, f, member, err);
        break;
    default:
        pp_put_text(o, f->key, *(const char *const *)member, err);
        break;
    }
}

json_t *pp_fields_write(const struct pp_doc_field *fields, const void *record,
                        struct pp_err *err)
{
    json_t *o = json_object();
    for (; fields->key; fields++)
        put_field(o, fields, record, err);
    return o;
}

bool pp_fields_same(const struct pp_doc_field *fields, const void *a,
                    const void *b)
{
    for (; fields->key; fields++)
        if (memcmp((const char *)a + fields->offset,
                   (const char *)b + fields->offset, fields->size))
            return false;
    return true;
}
