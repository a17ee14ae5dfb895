/* SPDX-License-Identifier: MIT */
/* units_json - reads a table of units from a file. pp-manifest(5) describes its
 * keys. */
#ifndef PP_MANIFEST_UNITS_JSON_H
#define PP_MANIFEST_UNITS_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"

/* Reads path into a model that has nothing but its table, which the arena owns.
 * Fails with PP_EXIT_INPUT, file and JSON pointer. */
int pp_units_read(const char *path, struct pp_arena *a, struct pp_model *m,
                  struct pp_err *err) PP_MUST_USE;

/* Does the same from memory. name starts the messages. */
int pp_units_parse(const char *text, size_t n, const char *name,
                   struct pp_arena *a, struct pp_model *m,
                   struct pp_err *err) PP_MUST_USE;

#endif
