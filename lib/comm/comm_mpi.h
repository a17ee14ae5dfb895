/* SPDX-License-Identifier: MIT */
/* comm_mpi - ranks as processes, on one machine or many, their messages in the
 * host's memory and through MPI.
 *
 * A lane is a tag, and every send is one that MPI calls synchronous: its end
 * tells that the message has been received. How ranks find each other, who is
 * lost and why the job ends goes by the job's own connections (join.h), as MPI
 * would wait for a lost rank for ever, or end all without a word. */
#ifndef PP_COMM_COMM_MPI_H
#define PP_COMM_COMM_MPI_H

#include "comm/comm.h"
#include "comm/join.h"
#include "comm/mpi.h"

struct pp_mpi_options {
    const struct pp_mpi *mpi;
    int depth;   /* of the schedule's channels */
    size_t most; /* bytes of one block; 0: as many as MPI takes */
};

/* Opens this rank's handle and starts MPI, which closing ends: once in the life
 * of a process. Collective, and so is closing; it fails at all ranks or at
 * none. join outlives the handle. */
int pp_comm_mpi_open(struct pp_join *join, const struct pp_mpi_options *o,
                     struct pp_comm **out, struct pp_err *err) PP_MUST_USE;

#endif
