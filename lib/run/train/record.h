/* SPDX-License-Identifier: MIT */
/* record - what the recorders of all ranks hold, in one place. */
#ifndef PP_RUN_TRAIN_RECORD_H
#define PP_RUN_TRAIN_RECORD_H

#include "base/arena.h"
#include "model/profile.h"
#include "run/execute/recorder.h"
#include "schedule/simulate/sim.h"

struct pp_rank;

/* Times are of rank 0's base/clock.h. */
struct pp_record {
    const struct pp_schedule *schedule;
    int n_steps, n_passes;
    int64_t first_step; /* number of the first one that is kept */
    size_t n;           /* actions of the longest row */
    double (*spans)[2]; /* (ranks, n_steps, n_passes, n) start and end */
    double (*marks)[PP_N_MARKS]; /* (ranks, n_steps) */
    double error; /* most seconds that a rank's times may be off; 0 where all
                     have read one clock */

    bool has_profile; /* layers were recorded */
    struct pp_profile profile;
    int n_profiled; /* steps that it is of: the run's first two are not */
    bool alike;     /* microbatches are too much alike to tell tokens from
                       pairs: see pp_least_deviation */
    struct pp_arena arena; /* the profile's */
};

/* The spans of a rank's row in a pass. */
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

/* A pass as the simulator gives one, in seconds from origin. Finish it with
 * pp_sim_finish. */
int pp_record_view(const struct pp_record *r, int step, int pass, double origin,
                   struct pp_sim *sim, struct pp_err *err) PP_MUST_USE;

/* Steps of a run that no profile is made of: caches, pages and clocks are not
 * yet what they will be. */
enum { PP_WARM_UP_STEPS = 2 };

/* Collects what all ranks recorded and hands it to the job, on rank 0. All
 * ranks call it. */
int pp_rank_gather_record(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

#endif
