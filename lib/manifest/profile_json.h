/* SPDX-License-Identifier: MIT */
/* profile_json - the file of measured costs of a model's units, which pprun
 * writes:
 *
 *   {"format": "pp-profile", "version": 1,
 *    "units": [{"fqn": "model.embed_tokens", "fwd": [s, s], "input": [s, s],
 *               "weight": [s, s]}, ...],
 *    "messages": {"seconds_per_byte": s, "latency": s},
 *    "step": {"seconds_per_param": s}}
 *
 * fwd, input and weight are seconds of the forward, input gradient and weight
 * gradient: per token, and per attended pair of positions. Seconds of an
 * encoder are per patch, and per pair of patches of an image. Messages and step
 * may be absent; they then take no time. Frozen units of a run lack gradients
 * (struct pp_unit_seconds). */
#ifndef PP_MANIFEST_PROFILE_JSON_H
#define PP_MANIFEST_PROFILE_JSON_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "model/profile.h"

/* Reads a profile. The arena owns units and names, and `name` starts the
 * messages. Fails with PP_EXIT_INPUT, name and JSON pointer, also if a unit is
 * there twice or a number is negative. */
int pp_profile_parse(const char *text, size_t n, const char *name,
                     struct pp_arena *a, struct pp_profile *p,
                     struct pp_err *err) PP_MUST_USE;

/* Reports whether a text is a table and not JSON, and reads a table: a unit a
 * line, with the seconds of its forward, input gradient and weight gradient for
 * a microbatch as a rank of the plan has it. These are in the coefficients [0].
 * A name that ends with * is a pattern. */
bool pp_profile_is_table(const char *text, size_t n);
int pp_profile_parse_table(const char *text, size_t n, const char *name,
                           struct pp_arena *a, struct pp_profile *p,
                           struct pp_err *err) PP_MUST_USE;

/* Writes the file, one unit a line. The caller checks the stream for errors. */
void pp_profile_write(FILE *f, const struct pp_profile *p);

#endif
