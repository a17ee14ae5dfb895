/* SPDX-License-Identifier: MIT */
/* units_json - a table of units as a file: ppsplit --units. pp-manifest(5) has
 * its keys. */
#ifndef PP_MANIFEST_UNITS_JSON_H
#define PP_MANIFEST_UNITS_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "model/model.h"

/* Reads path into a model whose table, allocated from the arena, is all that
 * is known of it. PP_EXIT_INPUT with file and JSON pointer. */
int pp_units_read(const char *path, struct pp_arena *a, struct pp_model *m,
                  struct pp_err *err) PP_MUST_USE;

/* The same from memory; name starts every message. */
int pp_units_parse(const char *text, size_t n, const char *name,
                   struct pp_arena *a, struct pp_model *m,
                   struct pp_err *err) PP_MUST_USE;

#endif
