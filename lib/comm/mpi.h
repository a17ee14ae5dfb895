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

#endif
