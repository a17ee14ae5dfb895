/* SPDX-License-Identifier: MIT */
/* mpi - the functions of MPI that we use. A module provides them. It is opened
 * at run time, so that the program starts on a machine without MPI and works
 * with any MPI, although MPIs differ in their types.
 *
 * mpi_module.c is the module. Only it includes MPI's header, and it is not in
 * libpp. A request or a message of MPI is kept as a number. */
#ifndef PP_COMM_MPI_H
#define PP_COMM_MPI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Version of struct pp_mpi. Increase it if the struct changes. */
#define PP_MPI_ABI 1
/* The name of the module's struct. */
#define PP_MPI_SYMBOL "pp_mpi_module"
/* Largest count of MPI. */
#define PP_MPI_MOST INT_MAX

struct pp_mpi_world {
    int rank, size;
    bool threads; /* several threads may call MPI, one at a time */
};

/* Messages between processes of the world, by rank and tag. Functions return 0
 * or MPI's code. Only start and finish wait for other processes. A message of
 * more than most bytes is sent as several blocks; most is the same at both
 * sides. */
struct pp_mpi {
    int abi;

    /* Both are collective, and any thread may call them: start before all
     * other functions, finish after them. */
    int (*start)(struct pp_mpi_world *w);
    int (*finish)(void);

    /* The request is done when the receiver has begun to receive the message
     * and buf belongs to the caller again. */
    int (*send)(const void *buf, size_t bytes, size_t most, int to, int tag,
                uintptr_t *request);
    /* Looks for a message. If there is one, it is reserved for recv. */
    int (*probe)(int from, int tag, bool *found, size_t *bytes,
                 uintptr_t *message);
    /* Receives a message that probe found, of the size from probe. */
    int (*recv)(void *buf, size_t bytes, size_t most, uintptr_t *message,
                uintptr_t *request);
    int (*test)(uintptr_t *request, bool *done);
    /* Advances all messages. */
    int (*progress)(void);

    void (*error_text)(int code, char *text, size_t room);
};

/* Opens the module of this name or path. It stays open. Fails with
 * PP_EXIT_SYSTEM if it is missing or has another version. */
int pp_mpi_open(const char *module, const struct pp_mpi **out,
                struct pp_err *err) PP_MUST_USE;

/* --- mpi_process: this process as a member of MPI ---
 *
 * It starts and ends MPI without waiting for ever for lost ranks, and advances
 * messages while the rank computes. It knows no channels.
 *
 * MPI moves messages only inside its calls, so a rank would wait until the
 * other one has computed. Therefore a thread calls MPI while the rank does not.
 * That needs MPI_THREAD_SERIALIZED; opening fails if MPI provides less. */
struct pp_mpi_process;
struct pp_rendezvous; /* rendezvous.h */

/* Starts MPI. A process can do this once. Opening and closing are collective.
 * Opening fails at all ranks or at none. join outlives the result. The thread
 * calls advance(ctx) when it has advanced the messages of MPI. */
int pp_mpi_process_open(struct pp_rendezvous *join, const struct pp_mpi *mpi,
                        void (*advance)(void *ctx), void *ctx,
                        struct pp_mpi_process **out,
                        struct pp_err *err) PP_MUST_USE;

/* Ends MPI. It does not if the job was aborted, because other ranks may never
 * call. Accepts NULL. */
void pp_mpi_process_close(struct pp_mpi_process *p);

/* The rank calls MPI only between enter and leave. passing says that messages
 * are sent or receives posted, so that the thread has to advance them. */
void pp_mpi_process_enter(struct pp_mpi_process *p);
void pp_mpi_process_leave(struct pp_mpi_process *p, bool passing);

#endif
