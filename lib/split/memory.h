/* SPDX-License-Identifier: MIT */
/* memory - the memory that partitions need on each rank.
 *
 * The schedule alone determines which buffers are alive together; a partition
 * determines only their sizes. So the schedule is read once: for each rank, the
 * numbers of live buffers of each kind at its peaks. Results are the largest
 * sums of sizes, as pp_memory_plan's peak_bytes. An arena with these buffers
 * may need a little more, so the sums are lower bounds of it. */
#ifndef PP_SPLIT_MEMORY_H
#define PP_SPLIT_MEMORY_H

#include "schedule/memory/memory.h"

/* Bytes of a unit. All but the training state are for the largest microbatch,
 * or its largest slice. */
enum {
    PP_UNIT_ACT_I,
    PP_UNIT_ACT_W,
    PP_UNIT_GRAD_W,
    PP_UNIT_GRAD_KEYS,  /* only slices need them */
    PP_UNIT_STATES,     /* likewise */
    PP_UNIT_GRAD_LAYER, /* as PP_UNIT_GRAD_W; of a stage, that of its largest
                           unit */
    PP_UNIT_WHOLE,      /* weights, if ranks gather them for their use */
    PP_UNIT_TRAINED,    /* training state: weights, gradients, optimizer */
    PP_UNIT_WORKSPACE,  /* of an action, shared by a rank's units */
    PP_N_UNIT_BYTES
};

/* Reports whether a stage has the largest of its units' bytes, not the sum. */
static inline bool pp_unit_shares(int kind)
{
    return kind == PP_UNIT_GRAD_LAYER || kind == PP_UNIT_WORKSPACE;
}

/* Sends in flight in one direction to one rank. All n buffers of a ring are as
 * large as the largest message. */
struct pp_split_ring {
    int to, backward; /* rank and direction */
    unsigned n;
    size_t first; /* boundaries: indices into crossings */
    size_t end;
};

struct pp_split_memory {
    const struct pp_graph *graph;
    /* before[i]: sum of the bytes of units 0 .. i - 1; (n_units + 1) */
    double (*before)[PP_N_UNIT_BYTES];
    /* [k * n_units + i]: the largest bytes of one of 2^k units from i on, of a
     * kind that pp_unit_shares; NULL if no unit has any. */
    double *largest[PP_N_UNIT_BYTES];
    int *n_workspaces; /* per rank: number of workspace buffers */
    size_t n_units;
    double *message_bytes; /* after each unit, the largest slice's */
    double least_message;
    bool equal_messages; /* then a rank counts all its messages as one kind */
    int *first_stage;    /* per rank: index into stages; (n_ranks + 1) */
    int *stages;         /* sorted by rank */
    size_t *first_peak;  /* per rank: index into at; (n_ranks + 1) */
    size_t *at;          /* per peak: index into counts */
    unsigned *counts; /* at a peak: buffers of each kind up to TRAINED of each
                         stage of the rank, then messages over each boundary
                         that begins or ends one of these stages (those that
                         begin first), or over any if messages are equal */
    size_t n_peaks, n_counts, peak_capacity, count_capacity;
    double *sizes; /* scratch: the bytes of each count of a peak */
    struct pp_split_ring
        *rings;         /* sorted by rank; none if messages are equal */
    size_t *first_ring; /* per rank: index into rings; (n_ranks + 1) */
    size_t n_rings, ring_capacity;
    int *crossings; /* boundaries that the rings cross */
    size_t n_crossings, crossing_capacity;
};

/* Reads the schedule, which has its messages. bytes and message_bytes, the
 * message after each unit, have n_units entries. */
void pp_split_memory_init(struct pp_split_memory *m,
                          const struct pp_schedule *s,
                          const double (*bytes)[PP_N_UNIT_BYTES],
                          size_t n_units, const double *message_bytes);

/* Replaces the bytes of the units. */
void pp_split_memory_set(struct pp_split_memory *m,
                         const double (*bytes)[PP_N_UNIT_BYTES]);

/* Returns the bytes that a rank needs. bounds are of one copy, and no stage is
 * empty. */
double pp_split_memory_need(const struct pp_split_memory *m,
                            const size_t *bounds, int rank);

/* Returns the bytes for only the first n_decided stages of bounds. No partition
 * that begins with these stages needs less. The result grows with the end of
 * the last of them: other messages count as the smallest. */
double pp_split_memory_least(const struct pp_split_memory *m,
                             const size_t *bounds, int n_decided, int rank);

/* Returns the bytes with every message as small as the smallest. The result
 * grows with each stage of the rank. */
double pp_split_memory_small(const struct pp_split_memory *m,
                             const size_t *bounds, int rank);

/* Returns true if need is above the limit by more than rounding errors. */
static inline bool pp_split_memory_over(double need, double limit)
{
    return need > limit * (1 + 1e-12);
}

/* Returns the bytes without messages. This is a lower bound for a plan of the
 * rank's buffers, also with empty stages. */
double pp_split_memory_held(const struct pp_split_memory *m,
                            const size_t *bounds, int rank);

/* Returns the largest excess of a rank over its limit, 0 if all fit. Sets *rank
 * to that rank and *total to the sum of all, unless they are NULL. */
double pp_split_memory_excess(const struct pp_split_memory *m,
                              const size_t *bounds, const double *limit,
                              int *rank, double *total);

/* Accepts a zeroed struct. */
void pp_split_memory_finish(struct pp_split_memory *m);

#endif
