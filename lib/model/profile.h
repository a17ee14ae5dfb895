/* SPDX-License-Identifier: MIT */
/* profile - measured seconds of a model's units, of messages and of the rest of
 * a step, and the fit of two coefficients to measured times. lib/run measures,
 * lib/manifest reads and writes. */
#ifndef PP_MODEL_PROFILE_H
#define PP_MODEL_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/expert_loads.h"
#include "model/model.h"

/* Coefficients: [0] per token, [1] per attended pair. */
struct pp_unit_seconds {
    const char *fqn;
    double fwd[2], input[2], weight[2];
    /* Seconds per token that I and W each take, and B once, beside the logits
     * of a head. */
    double once;
    /* Seconds per token of the elementwise work in F that I does again for each
     * part of a layer, by its bit of enum pp_recompute; 0: unknown. */
    double elementwise[PP_N_RECOMPUTED];
    /* Files alone have these, of the run. */
    struct pp_expert_loads experts; /* in a layer with experts */
    double frozen; /* the share of F's operations that W lacked, because only
                      adapters were trained */
    bool no_input, no_weight; /* it was frozen, and had no such gradient */
};

struct pp_profile {
    struct pp_unit_seconds *units;
    size_t n_units;
    double seconds_per_byte, latency; /* time of a message */
    double
        copy_seconds_per_byte; /* of a copy to the host or back; 0: unknown */
    /* Time of a step outside its schedule, for each parameter that a rank
     * updates. */
    double seconds_per_param;
    /* The ranks that divided the experts in the run, and how many microbatches
     * went through a layer at a time; 0: there are no loads of experts. */
    size_t expert_ranks, expert_group;
};

/* Returns the seconds per token that I takes to recompute a set of parts with
 * that share of the operations of F: their elementwise work, and the share of
 * the rest of F's time. */
double pp_recompute_seconds(const struct pp_unit_seconds *t,
                            enum pp_recompute r, double share);

/* One measurement: y is about c[0] x[0] + c[1] x[1]. No value is negative. */
struct pp_fit_point {
    double x[2], y;
};

/* Finds c >= 0 with the least sum of absolute deviations from y. Unlike least
 * squares, a few disturbed measurements do not move it. The method is
 * reweighted least squares (Schlossmacher, "An iterative technique for absolute
 * deviations curve fitting", JASA 1973).
 *
 * If the two x are almost proportional, or one is always 0, the coefficients
 * cannot be told apart. Then c is proportional to share, and the function
 * returns false. */
bool pp_least_deviation(const struct pp_fit_point *p, size_t n,
                        const double share[2], double c[2]);

#endif
