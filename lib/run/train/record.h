/* SPDX-License-Identifier: MIT */
/* record - the times of all ranks, gathered at one place. */
#ifndef PP_RUN_TRAIN_RECORD_H
#define PP_RUN_TRAIN_RECORD_H

#include "base/arena.h"
#include "model/profile.h"
#include "run/execute/recorder.h"
#include "schedule/simulate/sim.h"

struct pp_rank;

/* Times are on the clock of rank 0 (base/clock.h). */
struct pp_record {
    const struct pp_schedule *schedule;
    int n_steps, n_passes;
    int64_t first_step; /* number of the first step kept */
    size_t n;           /* actions of the longest row */
    double (*spans)[2]; /* (ranks, n_steps, n_passes, n) start and end */
    double (*marks)[PP_N_MARKS]; /* (ranks, n_steps) */
    double error; /* largest error of a time, in seconds; 0 if all ranks
                     read one clock */

    bool has_profile; /* if layers were recorded */
    struct pp_profile profile;
    int n_profiled; /* steps in the profile; the first two of the run are not */
    bool alike;     /* microbatches are too much alike to tell tokens from
                       pairs: see pp_least_deviation */
    struct pp_arena arena; /* owns the profile's arrays */
};

/* Returns the spans of the row of a rank in a pass. */
static inline const double (*pp_record_spans(const struct pp_record *r,
                                             int rank, int step, int pass))[2]
{
    size_t at = ((size_t)rank * (size_t)r->n_steps + (size_t)step) *
                    (size_t)r->n_passes +
                (size_t)pass;
    return (const double(*)[2])(r->spans + at * r->n);
}

static inline const double *pp_record_marks(const struct pp_record *r, int rank,
                                            int step)
{
    return r->marks[rank * r->n_steps + step];
}

/* Fills the spans of *sim with a recorded pass, in seconds from origin. Finish
 * it with pp_sim_finish. */
int pp_record_view(const struct pp_record *r, int step, int pass, double origin,
                   struct pp_sim *sim, struct pp_err *err) PP_MUST_USE;

/* The first steps of a run are not in a profile: caches, pages and clock rates
 * are not steady yet. */
enum { PP_WARM_UP_STEPS = 2 };

/* Gathers the records of all ranks and calls the callback of the job on rank 0.
 * Collective. */
int pp_rank_gather_record(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

#endif
