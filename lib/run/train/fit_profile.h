/* SPDX-License-Identifier: MIT */
/* profile - from recorded times to coefficients. Private to record.c. */
#ifndef PP_RUN_TRAIN_FIT_PROFILE_H
#define PP_RUN_TRAIN_FIT_PROFILE_H

#include "run/train/rank.h"
#include "run/train/record.h"

/* Of one unit, as doubles that ranks can exchange. */
struct pp_unit_fit {
    double seconds[PP_N_LAYER_TIMES][2]; /* per token, per pair */
    double n;     /* ranks (copies) that have measured it */
    double alike; /* 1: pp_least_deviation could not tell pairs from tokens */
};

/* Fits the rank's own units, of the kept steps behind `skip`; others are left
 * zeroed. fits has one entry for each unit of the model. */
int pp_fit_layers(const struct pp_rank *r, int skip, struct pp_unit_fit *fits,
                  struct pp_err *err) PP_MUST_USE;

/* Fills p's times of messages and of a step's other work from the record, of
 * the kept steps behind skip. */
int pp_fit_messages(const struct pp_rank *r, const struct pp_record *record,
                    int skip, struct pp_profile *p,
                    struct pp_err *err) PP_MUST_USE;
int pp_fit_step(const struct pp_rank *r, const struct pp_record *record,
                int skip, struct pp_profile *p, struct pp_err *err) PP_MUST_USE;

#endif
