/* SPDX-License-Identifier: MIT */
/* json - typed getters over jansson that report a JSON pointer.
 *
 * Private to lib/manifest. A struct pp_value is a value and its parents, on the
 * reader's stack; the JSON pointer is formatted only after a failure. Every
 * failure is one line, "name: /pointer: reason", with PP_EXIT_INPUT. jansson's
 * allocations end the program if memory runs out, as allocations of
 * base/alloc.h do. */
#ifndef PP_MANIFEST_JSON_H
#define PP_MANIFEST_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* A message quotes at most so many characters of a user's value. */
#define PP_VALUE_QUOTE 60

struct pp_value_source {
    const char *name; /* the file's, for messages */
    struct pp_err *err;
};

struct pp_value {
    const struct pp_value_source *source;
    const struct pp_value *parent; /* NULL: the whole document */
    const char *key;               /* in the parent; NULL: index counts */
    size_t index;
    json_t *value; /* borrowed */
};

/* Parses n bytes. Fails, with line and column, on a syntax error or a duplicate
 * key. The caller owns *root. */
int pp_value_parse(const char *text, size_t n, const char *name, json_t **root,
                   struct pp_err *err) PP_MUST_USE;

/* Reads and parses a stream to its end, or to the first byte that cannot
 * belong. If copy is not NULL, *copy takes the *n bytes that were read, and the
 * caller frees it, also after a failure. */
int pp_value_read_stream(FILE *f, const char *name, char **copy, size_t *n,
                         json_t **root, struct pp_err *err) PP_MUST_USE;

/* Reads and parses the file at path. */
int pp_value_read(const char *path, json_t **root,
                  struct pp_err *err) PP_MUST_USE;

/* Does the same with a file that Python wrote. Its NaN, Infinity and -Infinity,
 * which are no JSON, become {"__float__": "NaN"} and so on, as transformers 5
 * writes them: no getter takes them for a number. */
int pp_value_read_python(const char *path, json_t **root,
                         struct pp_err *err) PP_MUST_USE;

/* Returns the name of a number that is not finite, such as "NaN", or NULL if
 * the value is not such an object. */
const char *pp_value_infinite(const json_t *value);

/* pp_value_fail reports an error with its place. pp_value_fail_at puts the
 * place in front of an error that is there already. Both return -1. */
int pp_value_fail(const struct pp_value *at, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int pp_value_fail_at(const struct pp_value *at);

/* Finds a member of an object. Returns false if it is absent; *out then still
 * names its place. */
bool pp_value_find(const struct pp_value *object, const char *key,
                   struct pp_value *out);

/* Finds a member of an object, and fails if it is absent. */
int pp_value_member(const struct pp_value *object, const char *key,
                    struct pp_value *out) PP_MUST_USE;

/* Returns an element of an array. index is less than the array's length. */
struct pp_value pp_value_item(const struct pp_value *array, size_t index);

int pp_value_is_object(const struct pp_value *at) PP_MUST_USE;
int pp_value_array(const struct pp_value *at, size_t *n) PP_MUST_USE;
int pp_value_bool(const struct pp_value *at, bool *out) PP_MUST_USE;
int pp_value_int(const struct pp_value *at, int64_t min, int64_t max,
                 int64_t *out) PP_MUST_USE;

/* Reads a number. An integer is a real, too. */
int pp_value_real(const struct pp_value *at, double min, double max,
                  double *out) PP_MUST_USE;

int pp_value_string(const struct pp_value *at) PP_MUST_USE;

/* Reads a string and fails if it is empty. The document owns *out. */
int pp_value_text(const struct pp_value *at, const char **out) PP_MUST_USE;

/* Reads an array of exactly n reals. */
int pp_value_reals(const struct pp_value *at, double min, double max, size_t n,
                   double *out) PP_MUST_USE;

/* Fails if two of n records of so many bytes, which begin with their names,
 * have the same name. n is at least 1. */
int pp_value_distinct(const struct pp_value *at, const void *records,
                      size_t size, size_t n) PP_MUST_USE;

/* These read a member and fail if it is absent. */
int pp_value_get_int(const struct pp_value *object, const char *key,
                     int64_t min, int64_t max, int64_t *out) PP_MUST_USE;
int pp_value_get_real(const struct pp_value *object, const char *key,
                      double min, double max, double *out) PP_MUST_USE;
int pp_value_get_text(const struct pp_value *object, const char *key,
                      const char **out) PP_MUST_USE;

/* Fails unless "format" and "version" of a file are as given, or the version is
 * older. */
int pp_value_format(const struct pp_value *root, const char *format,
                    int newest) PP_MUST_USE;

/* Returns a new object: the root of a document. */
json_t *pp_value_new(void);

/* Adds a member to an object. A text that is not UTF-8 is left out and fills
 * *err: a writer looks at it once, at its end. */
void pp_put(json_t *object, const char *key, json_t *takes);
void pp_put_text(json_t *object, const char *key, const char *s,
                 struct pp_err *err);

#endif
