/* SPDX-License-Identifier: MIT */
/* mpi_process - this process as one of MPI's: how it starts and ends without
 * waiting for ever for ranks that will not come, and how what it has sent moves
 * on while it computes. Knows nothing of channels.
 *
 * MPI moves large messages only inside its calls, and a receiver would wait for
 * the sender's next one. So a thread of this file's calls MPI in the rank's
 * place while the rank is away from it. */
#ifndef PP_COMM_MPI_PROCESS_H
#define PP_COMM_MPI_PROCESS_H

#include "comm/join.h"
#include "comm/mpi.h"

struct pp_mpi_process;

/* Starts MPI: once in the life of a process. Collective, and so is closing; it
 * fails at all ranks or at none. join outlives it. */
int pp_mpi_process_open(struct pp_join *join, const struct pp_mpi *mpi,
                        struct pp_mpi_process **out,
                        struct pp_err *err) PP_MUST_USE;

/* Ends MPI, unless the job was aborted: then others may never come. Accepts
 * NULL. */
void pp_mpi_process_close(struct pp_mpi_process *p);

/* Between the two MPI is the rank's alone. sending: messages are on their way
 * when it leaves, and someone has to look after them. */
void pp_mpi_process_enter(struct pp_mpi_process *p);
void pp_mpi_process_leave(struct pp_mpi_process *p, bool sending);

#endif
