/* SPDX-License-Identifier: MIT */
/* json - typed getters over jansson that know where they are.
 *
 * Private to lib/manifest. A struct pp_value is a value with the way to it, on
 * the reader's stack; its JSON pointer is written only when something fails.
 * Every failure is "name: /pointer: reason", one line, PP_EXIT_INPUT. */
#ifndef PP_MANIFEST_JSON_H
#define PP_MANIFEST_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Longest part of a user's value that a message quotes. */
#define PP_VALUE_QUOTE 60

struct pp_value_source {
    const char *name; /* of the file, for messages */
    struct pp_err *err;
};

struct pp_value {
    const struct pp_value_source *source;
    const struct pp_value *parent; /* NULL: the whole document */
    const char *key;               /* in the parent, NULL for an index */
    size_t index;
    json_t *value; /* borrowed */
};

/* Parses n bytes; duplicate keys are refused. *root owns the value. Syntax
 * errors carry line and column. */
int pp_value_parse(const char *text, size_t n, const char *name, json_t **root,
                   struct pp_err *err) PP_MUST_USE;

/* Reads and parses the file at path. */
int pp_value_read(const char *path, json_t **root,
                  struct pp_err *err) PP_MUST_USE;

/* Fails at a place. pp_value_fail_at puts the place in front of an error that
 * another module has reported; both return -1. */
int pp_value_fail(const struct pp_value *at, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int pp_value_fail_at(const struct pp_value *at);
int pp_value_no_memory(const struct pp_value *at);

/* The member of an object; false when it is absent. */
bool pp_value_find(const struct pp_value *object, const char *key,
                   struct pp_value *out);

/* The same, and absence is a failure. */
int pp_value_member(const struct pp_value *object, const char *key,
                    struct pp_value *out) PP_MUST_USE;

/* An element that exists. */
struct pp_value pp_value_item(const struct pp_value *array, size_t index);

/* The value must be an object with no other keys than these (a list that NULL
 * ends) and those that begin with x-. */
int pp_value_object(const struct pp_value *at,
                    const char *const *keys) PP_MUST_USE;

int pp_value_is_object(const struct pp_value *at) PP_MUST_USE;
int pp_value_array(const struct pp_value *at, size_t *n) PP_MUST_USE;
int pp_value_bool(const struct pp_value *at, bool *out) PP_MUST_USE;
int pp_value_int(const struct pp_value *at, int64_t min, int64_t max,
                 int64_t *out) PP_MUST_USE;

/* Integers are accepted as reals. */
int pp_value_real(const struct pp_value *at, double min, double max,
                  double *out) PP_MUST_USE;

int pp_value_string(const struct pp_value *at) PP_MUST_USE;

/* The string is the document's; an empty one fails. */
int pp_value_text(const struct pp_value *at, const char **out) PP_MUST_USE;

/* An array of exactly n reals. */
int pp_value_reals(const struct pp_value *at, double min, double max, size_t n,
                   double *out) PP_MUST_USE;

/* Members that must be there. */
int pp_value_get_int(const struct pp_value *object, const char *key,
                     int64_t min, int64_t max, int64_t *out) PP_MUST_USE;
int pp_value_get_real(const struct pp_value *object, const char *key,
                      double min, double max, double *out) PP_MUST_USE;
int pp_value_get_text(const struct pp_value *object, const char *key,
                      const char **out) PP_MUST_USE;

/* Adds a member to an object under construction. All accept what failed
 * before, so that a writer checks once at its end. */
int pp_put(json_t *object, const char *key, json_t *takes);
int pp_put_text(json_t *object, const char *key, const char *s,
                struct pp_err *err);

/* The value when nothing failed; otherwise frees it and reports. */
json_t *pp_written(json_t *value, int bad, struct pp_err *err);

#endif
