/* SPDX-License-Identifier: MIT */
/* mpi - the functions of MPI that are used, in a module that is opened when the
 * program runs: it starts where there is no MPI, and MPIs differ in their
 * types, so that one program can do with either.
 *
 * mpi_module.c is the module: all that includes MPI's header, and nothing of
 * libpp's. A request or a message of MPI's is kept as a number. */
#ifndef PP_COMM_MPI_H
#define PP_COMM_MPI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Changes with struct pp_mpi: what a module is built for. */
#define PP_MPI_ABI 1
/* The name of the module's struct. */
#define PP_MPI_SYMBOL "pp_mpi_module"
/* What a count of MPI's holds. */
#define PP_MPI_MOST INT_MAX

struct pp_mpi_world {
    int rank, size;
    bool threads; /* calls may come from one thread after the other */
};

/* Between processes of the world, by rank and tag. Functions return 0 or MPI's
 * own code; none but start and finish waits for another process. Bytes beyond
 * most go as a type of several blocks, the same at both sides. */
struct pp_mpi {
    int abi;

    /* Collective, from any thread, before the others; finish after them. */
    int (*start)(struct pp_mpi_world *w);
    int (*finish)(void);

    /* The request is done when the message is being received and buf is the
     * caller's again. */
    int (*send)(const void *buf, size_t bytes, size_t most, int to, int tag,
                uintptr_t *request);
    /* Whether there is a message: it is taken, for recv alone. */
    int (*probe)(int from, int tag, bool *found, size_t *bytes,
                 uintptr_t *message);
    /* bytes is what probe has told. */
    int (*recv)(void *buf, size_t bytes, size_t most, uintptr_t *message,
                uintptr_t *request);
    int (*test)(uintptr_t *request, bool *done);
    /* Moves on what can be. */
    int (*progress)(void);

    void (*error_text)(int code, char *text, size_t room);
};

/* Opens the module of this name or path; it stays open. What is missing or
 * built for another version is PP_EXIT_SYSTEM. */
int pp_mpi_open(const char *module, const struct pp_mpi **out,
                struct pp_err *err) PP_MUST_USE;

/* mpi_process - this process as one of MPI's: how it starts and ends without
 * waiting for ever for ranks that will not come, and how what it has sent moves
 * on while it computes. Knows nothing of channels.
 *
 * MPI moves large messages only inside its calls, and a receiver would wait for
 * the sender's next one. So a thread of this file's calls MPI in the rank's
 * place while the rank is away from it. */
struct pp_mpi_process;
struct pp_rendezvous; /* rendezvous.h */

/* Starts MPI: once in the life of a process. Collective, and so is closing; it
 * fails at all ranks or at none. join outlives it. */
int pp_mpi_process_open(struct pp_rendezvous *join, const struct pp_mpi *mpi,
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
