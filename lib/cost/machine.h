/* SPDX-License-Identifier: MIT */
/* machine - GPUs, the links between them, and the time of messages and
 * collectives over these links. Pure.
 *
 * Ranks lie in the levels of a machine in their order: with nodes of 8, ranks 0
 * to 7 are in one node. A level has what one rank reaches in one direction
 * through its own port: a link of the node, or a network card. Formulas are for
 * rings as NCCL makes them (nccl/doc of nccl-tests, PERFORMANCE.md;
 * nccl/src/graph/tuning.cc), so n ranks that a ring visits in a node enter and
 * leave it by n cards. */
#ifndef PP_COST_MACHINE_H
#define PP_COST_MACHINE_H

#include "model/layout.h"

struct pp_machine_level {
    int64_t size;     /* consecutive ranks; 0: all */
    double bandwidth; /* bytes a second of a rank, one direction */
    double latency;   /* seconds of a hop */
};

enum { PP_MAX_LEVELS = 4 };

struct pp_machine {
    const char *gpu; /* NULL: no name */
    /* Operations a second of matrix products without sparsity; fp32 and fp64
     * without tensor cores, as the kernels of pprun have it. */
    double bf16, fp32, fp64;
    double efficiency;       /* the share of a peak that large products reach */
    double memory_bytes;     /* of a GPU for a rank */
    double memory_bandwidth; /* bytes a second that copies reach */
    /* Ascending sizes; messages between ranks of no common level are free. */
    struct pp_machine_level levels[PP_MAX_LEVELS];
    size_t n_levels; /* 0: all messages are free */
};

/* The known GPUs; the gpu of the last is NULL. Efficiency and links are from
 * published measurements, the rest from data sheets. */
extern const struct pp_machine pp_machines[];

/* Fills names with the names of the table, and NULL at the end. */
enum { PP_MAX_MACHINES = 24 };
void pp_machine_names(const char *names[]);

/* Returns the machine of a GPU of that name, or NULL. */
const struct pp_machine *pp_machine_find(const char *name);

/* Returns the peak for elements of that type ("bf16"). */
double pp_machine_peak(const struct pp_machine *m, const char *dtype);

/* Time as a function of bytes: seconds is that of none. */
struct pp_link {
    double seconds, per_byte;
};

static inline double pp_link_time(struct pp_link l, double bytes)
{
    return bytes > 0 ? l.seconds + l.per_byte * bytes : 0;
}

static inline struct pp_link pp_link_slower(struct pp_link a, struct pp_link b)
{
    return (struct pp_link){a.seconds > b.seconds ? a.seconds : b.seconds,
                            a.per_byte > b.per_byte ? a.per_byte : b.per_byte};
}

/* Returns the link of a message between two ranks. */
struct pp_link pp_machine_message(const struct pp_machine *m, int from, int to);

/* Returns the slowest link of the messages between the ranks of two rows. */
struct pp_link pp_machine_rows(const struct pp_machine *m,
                               const struct pp_layout *l, int from, int to);

/* Returns the link of an all-gather or a reduce-scatter of a group, for the
 * bytes that a rank receives: (n - 1) / n of the whole array. An all-reduce is
 * both. */
struct pp_link pp_machine_ring(const struct pp_machine *m,
                               const struct pp_group *g);

/* Returns the link of an all-to-all of a group, for the bytes that a rank has
 * for all members, itself included. */
struct pp_link pp_machine_all_to_all(const struct pp_machine *m,
                                     const struct pp_group *g);

#endif
