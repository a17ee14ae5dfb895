/* SPDX-License-Identifier: MIT */
#include "manifest/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/foreign.h"

/* A JSON pointer always fits, because it consists of our own short keys. */
#define PLACE_TEXT 240

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            return false;
    return true;
}

static void *allocate(size_t bytes)
{
    return pp_realloc(NULL, bytes, 1);
}

/* Makes jansson's allocations end the program, for every document. */
static void end_without_memory(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *pp_value_new(void)
{
    end_without_memory();
    return json_object();
}

/* head is the n bytes that the document begins with. */
static int fail_parse(const char *name, const void *head, size_t n,
                      const json_error_t *e, struct pp_err *err)
{
    const char *other = pp_foreign_file(head, n);
    if (other)
        return pp_fail(err, PP_EXIT_INPUT, "%s: is %s", name, other);
    return pp_fail(err, PP_EXIT_INPUT, "%s: line %d, column %d: %s", name,
                   e->line, e->column, e->text);
}

int pp_value_parse(const char *text, size_t n, const char *name, json_t **root,
                   struct pp_err *err)
{
    if (is_blank(text, n))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: is empty; a JSON document is expected", name);
    json_error_t e;
    end_without_memory();
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    return *root ? 0 : fail_parse(name, text, n, &e, err);
}

struct json_stream {
    FILE *f;
    const char *name;
    size_t n;
    bool is_blank, ended;
    char **copy; /* or NULL */
    size_t room;
    char head[32];
    size_t n_head;
    struct pp_err *err;
};

static size_t next_bytes(void *buffer, size_t bytes, void *ctx)
{
    struct json_stream *s = ctx;
    ssize_t n = pp_file_next(s->f, buffer, bytes);
    if (n < 0)
        return (void)pp_fail_read(s->err, s->name), (size_t)-1;
    s->ended = n == 0;
    for (ssize_t i = 0; i < n && s->n_head < sizeof s->head; i++)
        s->head[s->n_head++] = ((const char *)buffer)[i];
    s->n += (size_t)n;
    if (s->n > PP_TEXT_BYTES) {
        pp_fail(s->err, PP_EXIT_INPUT, "%s: is longer than 1 GiB", s->name);
        return (size_t)-1;
    }
    s->is_blank &= is_blank(buffer, (size_t)n);
    if (!s->copy)
        return (size_t)n;
    pp_array_reserve(s->copy, &s->room, s->n + 1, 1);
    memcpy(*s->copy + s->n - n, buffer, (size_t)n);
    return (size_t)n;
}

int pp_value_read_stream(FILE *f, const char *name, char **copy, size_t *n,
                         json_t **root, struct pp_err *err)
{
    struct json_stream s = {
        .f = f, .name = name, .is_blank = true, .copy = copy, .err = err};
    json_error_t e;
    end_without_memory();
    *root = json_load_callback(next_bytes, &s, JSON_REJECT_DUPLICATES, &e);
    if (copy)
        *n = s.n;
    if (*root)
        return 0;
    if (err->code != PP_EXIT_OK)
        return -1;
    if (s.is_blank && s.ended)
        return f == stdin
                   ? pp_file_fail_empty(name, err)
                   : pp_fail(err, PP_EXIT_INPUT,
                             "%s: is empty; a JSON document is expected", name);
    return fail_parse(name, s.head, s.n_head, &e, err);
}

int pp_value_read(const char *path, json_t **root, struct pp_err *err)
{
    const void *text;
    size_t n;
    if (pp_file_map(path, &text, &n, err))
        return -1;
    int rc = pp_value_parse(text, n, path, root, err);
    pp_file_unmap(text, n);
    return rc;
}

/* Returns the length of a number at text that is not finite, or 0. */
static size_t infinite_length(const char *text, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(end - text) >= n && !memcmp(text, words[i], n))
            return n;
    }
    return 0;
}

/* Copies text, with numbers that are not finite as objects. Returns the length
 * of the copy, which is not written if it is NULL. */
static size_t write_finite(const char *text, size_t n, char *copy)
{
    static const char open[] = "{\"__float__\": \"", close[] = "\"}";
    const char *end = text + n;
    bool quoted = false;
    size_t to = 0, length;
    for (; text < end; text += length) {
        size_t word = quoted ? 0 : infinite_length(text, end);
        bool escape = quoted && *text == '\\' && text + 1 < end;
        quoted ^= *text == '"';
        length = word ? word : escape ? 2 : 1;
        if (copy && word)
            to += (size_t)sprintf(copy + to, "%s%.*s%s", open, (int)word, text,
                                  close);
        else {
            if (copy)
                memcpy(copy + to, text, length);
            to += length + (word ? sizeof open + sizeof close - 2 : 0);
        }
    }
    return to;
}

int pp_value_read_python(const char *path, json_t **root, struct pp_err *err)
{
    const void *text;
    size_t n;
    if (pp_file_map(path, &text, &n, err))
        return -1;
    char *copy = pp_calloc(write_finite(text, n, NULL) + 1, 1);
    int rc = pp_value_parse(copy, write_finite(text, n, copy), path, root, err);
    free(copy);
    pp_file_unmap(text, n);
    return rc;
}

static size_t write_pointer(const struct pp_value *at, char *buf, size_t size)
{
    if (!at->parent)
        return 0;
    size_t n = write_pointer(at->parent, buf, size);
    int more = at->key ? snprintf(buf + n, size - n, "/%s", at->key)
                       : snprintf(buf + n, size - n, "/%zu", at->index);
    size_t end = n + (size_t)more;
    return end < size ? end : size - 1;
}

int pp_value_fail_at(const struct pp_value *at)
{
    struct pp_err *err = at->source->err;
    char pointer[PLACE_TEXT] = "";
    write_pointer(at, pointer, sizeof pointer);
    return pp_fail_at(err, "%.120s: %s%s", at->source->name, pointer,
                      *pointer ? ": " : "");
}

int pp_value_fail(const struct pp_value *at, const char *fmt, ...)
{
    struct pp_err *err = at->source->err;
    if (err->code != PP_EXIT_OK)
        return -1;
    char reason[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    pp_fail(err, PP_EXIT_INPUT, "%s", reason);
    return pp_value_fail_at(at);
}

const char *pp_value_infinite(const json_t *value)
{
    return json_string_value(json_object_get(value, "__float__"));
}

/* Fails with "'x' is not an integer". An object is quoted as {...}, an array as
 * [...]. */
static int wrong_type(const struct pp_value *at, const char *wanted)
{
    if (pp_value_infinite(at->value))
        return pp_value_fail(at, "'%.*s' is not %s", PP_VALUE_QUOTE,
                             pp_value_infinite(at->value), wanted);
    if (json_is_object(at->value) || json_is_array(at->value))
        return pp_value_fail(at, "'%s' is not %s",
                             json_is_array(at->value) ? "[...]" : "{...}",
                             wanted);
    char *text =
        json_dumps(at->value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    pp_value_fail(at, "'%.*s' is not %s", PP_VALUE_QUOTE, text, wanted);
    free(text);
    return -1;
}

bool pp_value_find(const struct pp_value *object, const char *key,
                   struct pp_value *out)
{
    *out = (struct pp_value){
        .source = object->source,
        .parent = object,
        .key = key,
        .value = json_object_get(object->value, key),
    };
    return out->value != NULL;
}

int pp_value_member(const struct pp_value *object, const char *key,
                    struct pp_value *out)
{
    if (!pp_value_find(object, key, out))
        return pp_value_fail(object, "'%s' is missing", key);
    return 0;
}

struct pp_value pp_value_item(const struct pp_value *array, size_t index)
{
    return (struct pp_value){
        .source = array->source,
        .parent = array,
        .index = index,
        .value = json_array_get(array->value, index),
    };
}

int pp_value_is_object(const struct pp_value *at)
{
    return json_is_object(at->value) ? 0 : wrong_type(at, "an object");
}

int pp_value_array(const struct pp_value *at, size_t *n)
{
    if (!json_is_array(at->value))
        return wrong_type(at, "an array");
    *n = json_array_size(at->value);
    return 0;
}

int pp_value_bool(const struct pp_value *at, bool *out)
{
    if (!json_is_boolean(at->value))
        return wrong_type(at, "true or false");
    *out = json_is_true(at->value);
    return 0;
}

int pp_value_int(const struct pp_value *at, int64_t min, int64_t max,
                 int64_t *out)
{
    if (!json_is_integer(at->value))
        return wrong_type(at, "an integer");
    json_int_t v = json_integer_value(at->value);
    if (v < min || v > max)
        return pp_value_fail(at,
                             "'%" JSON_INTEGER_FORMAT
                             "' is not between %" PRId64 " and %" PRId64,
                             v, min, max);
    *out = v;
    return 0;
}

int pp_value_real(const struct pp_value *at, double min, double max,
                  double *out)
{
    if (!json_is_number(at->value))
        return wrong_type(at,
                          pp_value_infinite(at->value) ? "finite" : "a number");
    double v = json_number_value(at->value);
    if (!(v >= min && v <= max))
        return pp_value_fail(at, "'%.9g' is not between %g and %g", v, min,
                             max);
    *out = v + 0.0; /* -0 becomes 0: it is written as an integer */
    return 0;
}

int pp_value_string(const struct pp_value *at)
{
    return json_is_string(at->value) ? 0 : wrong_type(at, "a string");
}

int pp_value_text(const struct pp_value *at, const char **out)
{
    if (pp_value_string(at))
        return -1;
    if (!json_string_length(at->value))
        return pp_value_fail(at, "'' is empty");
    *out = json_string_value(at->value);
    return 0;
}

int pp_value_reals(const struct pp_value *at, double min, double max, size_t n,
                   double *out)
{
    size_t have = 0;
    if (pp_value_array(at, &have))
        return -1;
    if (have != n)
        return pp_value_fail(at, "%zu numbers, but %zu are needed", have, n);
    for (size_t i = 0; i < n; i++) {
        struct pp_value item = pp_value_item(at, i);
        if (pp_value_real(&item, min, max, &out[i]))
            return -1;
    }
    return 0;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int pp_value_distinct(const struct pp_value *at, const void *records,
                      size_t size, size_t n)
{
    const char **names = pp_calloc(n, sizeof *names);
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        memcpy(&names[i], (const char *)records + i * size, sizeof *names);
    qsort(names, n, sizeof *names, compare_strings);
    for (size_t i = 1; i < n && !rc; i++)
        if (!strcmp(names[i - 1], names[i]))
            rc = pp_value_fail(at, "'%.*s' is a duplicate name", PP_VALUE_QUOTE,
                               names[i]);
    free(names);
    return rc;
}

int pp_value_get_int(const struct pp_value *object, const char *key,
                     int64_t min, int64_t max, int64_t *out)
{
    struct pp_value at;
    if (pp_value_member(object, key, &at))
        return -1;
    return pp_value_int(&at, min, max, out);
}

int pp_value_get_real(const struct pp_value *object, const char *key,
                      double min, double max, double *out)
{
    struct pp_value at;
    if (pp_value_member(object, key, &at))
        return -1;
    return pp_value_real(&at, min, max, out);
}

int pp_value_get_text(const struct pp_value *object, const char *key,
                      const char **out)
{
    struct pp_value at;
    if (pp_value_member(object, key, &at))
        return -1;
    return pp_value_text(&at, out);
}

int pp_value_format(const struct pp_value *root, const char *format, int newest)
{
    struct pp_value at;
    const char *text;
    int64_t version;
    if (pp_value_member(root, "format", &at) || pp_value_text(&at, &text))
        return -1;
    if (strcmp(text, format))
        return pp_value_fail(&at, "'%.*s' is not '%s'", PP_VALUE_QUOTE, text,
                             format);
    if (pp_value_member(root, "version", &at) ||
        pp_value_int(&at, 1, INT64_MAX, &version))
        return -1;
    return version > newest
               ? pp_value_fail(&at,
                               "'%" PRId64 "' is newer than %d: tools that "
                               "know version %" PRId64 " are needed",
                               version, newest, version)
               : 0;
}

void pp_put(json_t *object, const char *key, json_t *takes)
{
    json_object_set_new(object, key, takes);
}

void pp_put_text(json_t *object, const char *key, const char *s,
                 struct pp_err *err)
{
    json_t *value = json_string(s);
    if (value)
        pp_put(object, key, value);
    else
        pp_fail(err, PP_EXIT_INPUT, "%s: '%.*s' is not UTF-8", key,
                PP_VALUE_QUOTE, s);
}
