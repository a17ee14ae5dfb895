/* SPDX-License-Identifier: MIT */
/* nccl - the functions of NCCL that we use. They are loaded at run time, so
 * that the program starts on a machine without NCCL.
 *
 * Types are as in the ABI: an enumeration is an int, a handle a pointer.
 * nccl.c checks the values against NCCL's header if that is installed. */
#ifndef PP_COMM_NCCL_H
#define PP_COMM_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "base/err.h"

enum {
    PP_NCCL_SUCCESS = 0,
    PP_NCCL_INVALID_ARGUMENT = 4,
    PP_NCCL_INVALID_USAGE = 5,
    PP_NCCL_REMOTE_ERROR = 6,
    PP_NCCL_IN_PROGRESS = 7,
    PP_NCCL_INT8 = 0,
    PP_NCCL_FLOAT = 7,
    PP_NCCL_SUM = 0
};

/* The first version with all that we use, such as this layout of
 * configurations. */
#define PP_NCCL_OLDEST 21800
#define PP_NCCL_MAGIC 0xcafebeefu
#define PP_NCCL_UNDEFINED INT_MIN

struct pp_nccl_id {
    char bytes[128];
};

/* ncclConfig_t of version 2.18. Later versions are longer and accept this
 * one. */
struct pp_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

struct pp_nccl {
    void *library;
    int version; /* 22809 is 2.28.9 */
    int (*get_version)(int *version);
    int (*get_unique_id)(struct pp_nccl_id *id);
    int (*init)(void **comm, int n_ranks, struct pp_nccl_id id, int rank,
                struct pp_nccl_config *config);
    int (*finalize)(void *comm);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *error);
    const char *(*error_text)(int error);
    const char *(*last_error)(void *comm);
    int (*send)(const void *buf, size_t n, int type, int peer, void *comm,
                void *stream);
    int (*recv)(void *buf, size_t n, int type, int peer, void *comm,
                void *stream);
    int (*reduce)(const void *from, void *to, size_t n, int type, int op,
                  int root, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
};

/* Opens NCCL. library is a name or path, or NULL for NCCL's own name. Fails
 * with PP_EXIT_SYSTEM if the library is missing, incomplete or too old. */
int pp_nccl_open(const char *library, struct pp_nccl *n,
                 struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_nccl_close(struct pp_nccl *n);

#endif
