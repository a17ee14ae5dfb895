/* SPDX-License-Identifier: MIT */
/* split_memory - what a partition needs on each rank, for many partitions.
 *
 * When buffers live follows from the schedule alone, so a rank is described by
 * how many of each kind live together at its fullest moments; a partition only
 * says how large they are. Largest sums, as pp_memory_plan's peak_bytes, not
 * the places in an arena, which may take a little more. */
#ifndef PP_SPLIT_SPLIT_MEMORY_H
#define PP_SPLIT_SPLIT_MEMORY_H

#include "schedule/memory/memory.h"

/* Bytes of a unit: what is trained with it, once; the rest for the largest
 * microbatch, or slice of it. */
enum {
    PP_UNIT_ACT_I,
    PP_UNIT_ACT_W,
    PP_UNIT_GRAD_W,
    PP_UNIT_TRAINED,
    PP_UNIT_PASSING, /* within an action: of a rank's units the largest counts
                      */
    PP_N_UNIT_BYTES
};

struct pp_split_memory {
    const struct pp_graph *graph;
    /* before[i]: sum of the bytes of units 0 .. i - 1; n_units + 1 */
    double (*before)[PP_N_UNIT_BYTES];
    double *workspace; /* largest of 2^k units from i on, at k * n_units + i;
                        NULL where nothing passes */
    int *n_workspaces; /* per rank: buffers for what passes */
    size_t n_units;
    double message_bytes; /* largest, of a slice */
    int *first_stage;     /* per rank: into stages; n_ranks + 1 */
    int *stages;          /* by rank */
    size_t *first_peak;   /* per rank: into peaks; n_ranks + 1 */
    size_t *at;           /* per peak: into counts */
    unsigned *counts;     /* of a moment: ACT_I, ACT_W, GRAD_W of each stage of
                             the rank, then messages */
    size_t n_peaks, n_counts, peak_capacity, count_capacity;
};

/* Reads s, which has its messages. bytes has n_units entries. */
int pp_split_memory_init(struct pp_split_memory *m, const struct pp_schedule *s,
                         const double (*bytes)[PP_N_UNIT_BYTES], size_t n_units,
                         double message_bytes, struct pp_err *err) PP_MUST_USE;

/* Other bytes for the same units. */
int pp_split_memory_set(struct pp_split_memory *m,
                        const double (*bytes)[PP_N_UNIT_BYTES],
                        struct pp_err *err) PP_MUST_USE;

/* What a rank needs. bounds are those of one copy. */
double pp_split_memory_need(const struct pp_split_memory *m,
                            const size_t *bounds, int rank);

/* The same with the first n_decided stages of bounds alone, the others being
 * empty: no partition that begins so needs less. */
double pp_split_memory_least(const struct pp_split_memory *m,
                             const size_t *bounds, int n_decided, int rank);

/* The same without messages, which are counted as large as any: what a plan of
 * the rank's buffers needs at least, but for rounding. */
double pp_split_memory_held(const struct pp_split_memory *m,
                            const size_t *bounds, int rank);

/* How much the ranks need above their limits: the largest excess, 0 where all
 * fit; *rank is whose, and *total the sum, where they are not NULL. */
double pp_split_memory_excess(const struct pp_split_memory *m,
                              const size_t *bounds, const double *limit,
                              int *rank, double *total);

/* Accepts a zeroed struct. */
void pp_split_memory_finish(struct pp_split_memory *m);

#endif
