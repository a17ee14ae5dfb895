/* SPDX-License-Identifier: MIT */
/* emulated_counts - the work that the emulated device is given, and how often
 * the host waits for it. */
#ifndef PP_TESTS_EMULATED_COUNTS_H
#define PP_TESTS_EMULATED_COUNTS_H

#include <stdint.h>

enum pp_emulated_work {
    PP_WORK_KERNELS,    /* products of cuBLAS included */
    PP_WORK_COPIES,     /* and writes of one byte value */
    PP_WORK_BYTES,      /* of these copies */
    PP_WORK_MESSAGES,   /* of NCCL, at each end */
    PP_WORK_OPERATIONS, /* of NCCL: a message, or a group of them */
    PP_WORK_HOST_WAITS, /* calls that return when work is done */
    PP_WORK_LOCKED,     /* bytes of the host that are page-locked */
    PP_N_WORK
};

/* Adds n. If PP_EMULATED_COSTS gives such work a cost, the calling thread
 * waits: the host that launches, or the stream of an operation. If
 * PP_EMULATED_COUNTS names a file, the process writes all sums to it when it
 * ends, as lines of a name and a number. */
void pp_emulated_count(enum pp_emulated_work what, uint64_t n);

#endif
