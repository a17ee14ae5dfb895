/* SPDX-License-Identifier: MIT */
/* profile_json - measured costs of a model's units, as pprun --profile writes
 * them:
 *
 *   {"format": "pp-profile", "version": 1,
 *    "units": [{"fqn": "model.embed_tokens", "fwd": [s, s], "input": [s, s],
 *               "weight": [s, s]}, ...],
 *    "messages": {"seconds_per_byte": s, "latency": s},
 *    "step": {"seconds_per_param": s}}
 *
 * Seconds of forward, input and weight gradient: per token, and per attended
 * pair of positions. Messages may be absent: they take no time; so may the
 * rest of the step. */
#ifndef PP_MANIFEST_PROFILE_JSON_H
#define PP_MANIFEST_PROFILE_JSON_H

#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/profile.h"

/* Reads the file; units and names are a's. PP_EXIT_INPUT with file and JSON
 * pointer, also where a name is there twice or a number is negative. */
int pp_profile_read(const char *path, struct pp_arena *a, struct pp_profile *p,
                    struct pp_err *err) PP_MUST_USE;

/* The same from memory; name starts the messages. */
int pp_profile_parse(const char *text, size_t n, const char *name,
                     struct pp_arena *a, struct pp_profile *p,
                     struct pp_err *err) PP_MUST_USE;

/* Writes it, one unit a line. Stream errors are the caller's to check. */
void pp_profile_write(FILE *f, const struct pp_profile *p);

#endif
