/* SPDX-License-Identifier: MIT */
/* profile_json - measured costs of a model's units, as pprun --profile writes
 * them:
 *
 *   {"format": "pp-profile", "version": 1,
 *    "units": [{"fqn": "model.embed_tokens", "fwd": [s, s], "input": [s, s],
 *               "weight": [s, s]}, ...],
 *    "messages": {"seconds_per_byte": s, "latency": s}}
 *
 * Seconds of forward, input and weight gradient: per token, and per attended
 * pair of positions. Messages may be absent: they take no time. */
#ifndef PP_MANIFEST_PROFILE_JSON_H
#define PP_MANIFEST_PROFILE_JSON_H

#include "base/arena.h"
#include "base/err.h"

/* [0] per token, [1] per attended pair. */
struct pp_unit_seconds {
    const char *fqn;
    double fwd[2], input[2], weight[2];
};

struct pp_profile {
    struct pp_unit_seconds *units;
    size_t n_units;
    double seconds_per_byte, latency; /* of a message */
};

/* Reads the file; units and names are a's. PP_EXIT_INPUT with file and JSON
 * pointer, also where a name is there twice or a number is negative. */
int pp_profile_read(const char *path, struct pp_arena *a, struct pp_profile *p,
                    struct pp_err *err) PP_MUST_USE;

#endif
