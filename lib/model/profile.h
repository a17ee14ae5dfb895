/* SPDX-License-Identifier: MIT */
/* measured - seconds that a model's units, messages and the rest of a step were
 * found to take. lib/run finds them, lib/manifest reads and writes them. */
#ifndef PP_MODEL_PROFILE_H
#define PP_MODEL_PROFILE_H

#include <stdbool.h>
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

/* One measurement: y is about c[0] x[0] + c[1] x[1]. Nothing is negative. */
struct pp_fit_point {
    double x[2], y;
};

/* Finds c, not negative, with the least sum of distances from y: a few
 * measurements that were disturbed do not move it, as squares would. By least
 * squares, reweighted (Schlossmacher, "An iterative technique for absolute
 * deviations curve fitting", JASA 1973).
 *
 * Where the two x are all but proportional to each other, so that their
 * coefficients cannot be told apart, or where one is always 0, c is in
 * proportion of share; the answer is then false. */
bool pp_least_deviation(const struct pp_fit_point *p, size_t n,
                        const double share[2], double c[2]);

#endif
