/* SPDX-License-Identifier: MIT */
/* measured - seconds that a model's units, messages and the rest of a step were
 * found to take. lib/run finds them, lib/manifest reads and writes them. */
#ifndef PP_MODEL_PROFILE_H
#define PP_MODEL_PROFILE_H

#include <stddef.h>

/* [0] per token, [1] per attended pair. */
struct pp_unit_seconds {
    const char *fqn;
    double fwd[2], input[2], weight[2];
};

struct pp_profile {
    struct pp_unit_seconds *units;
    size_t n_units;
    double seconds_per_byte, latency; /* of a message */
    double seconds_per_param; /* of a step outside its schedule, by the rank
                                 that holds most parameters */
};

#endif
