/* SPDX-License-Identifier: MIT */
/* json - typed getters over jansson that know where they are.
 *
 * Private to lib/manifest. A struct pp_json is a value with the way to it, on
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
#define PP_JSON_QUOTE 60

struct pp_json_source {
    const char *name; /* of the file, for messages */
    struct pp_err *err;
};

struct pp_json {
    const struct pp_json_source *source;
    const struct pp_json *parent; /* NULL: the whole document */
    const char *key;              /* in the parent, NULL for an index */
    size_t index;
    json_t *value; /* borrowed */
};

/* Parses n bytes; duplicate keys are refused. *root owns the value. Syntax
 * errors carry line and column. */
int pp_json_parse(const char *text, size_t n, const char *name, json_t **root,
                  struct pp_err *err) PP_MUST_USE;

/* Fails at a place. pp_json_fail_at puts the place in front of an error that
 * another module has reported; both return -1. */
int pp_json_fail(const struct pp_json *at, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int pp_json_fail_at(const struct pp_json *at);
int pp_json_no_memory(const struct pp_json *at);

/* The member of an object; false when it is absent. */
bool pp_json_find(const struct pp_json *object, const char *key,
                  struct pp_json *out);

/* The same, and absence is a failure. */
int pp_json_member(const struct pp_json *object, const char *key,
                   struct pp_json *out) PP_MUST_USE;

/* An element that exists. */
struct pp_json pp_json_item(const struct pp_json *array, size_t index);

/* The value must be an object with no other keys than these (a list that NULL
 * ends) and those that begin with x-. */
int pp_json_object(const struct pp_json *at,
                   const char *const *keys) PP_MUST_USE;

int pp_json_is_object(const struct pp_json *at) PP_MUST_USE;
int pp_json_array(const struct pp_json *at, size_t *n) PP_MUST_USE;
int pp_json_bool(const struct pp_json *at, bool *out) PP_MUST_USE;
int pp_json_int(const struct pp_json *at, int64_t min, int64_t max,
                int64_t *out) PP_MUST_USE;

/* Integers are accepted as reals. */
int pp_json_real(const struct pp_json *at, double min, double max,
                 double *out) PP_MUST_USE;

int pp_json_string(const struct pp_json *at) PP_MUST_USE;

/* The string is the document's; an empty one fails. */
int pp_json_text(const struct pp_json *at, const char **out) PP_MUST_USE;

/* An array of exactly n reals. */
int pp_json_reals(const struct pp_json *at, double min, double max, size_t n,
                  double *out) PP_MUST_USE;

/* Members that must be there. */
int pp_json_get_int(const struct pp_json *object, const char *key, int64_t min,
                    int64_t max, int64_t *out) PP_MUST_USE;
int pp_json_get_real(const struct pp_json *object, const char *key, double min,
                     double max, double *out) PP_MUST_USE;
int pp_json_get_text(const struct pp_json *object, const char *key,
                     const char **out) PP_MUST_USE;

#endif
