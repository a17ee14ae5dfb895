/* SPDX-License-Identifier: MIT */
/* thread - a thread of the library's own, beside the ranks. */
#ifndef PP_BASE_THREAD_H
#define PP_BASE_THREAD_H

#include <pthread.h>

#include "base/err.h"

/* Starts a thread that leaves signals to the others, except signals of its own
 * faults. Fails with PP_EXIT_SYSTEM. */
int pp_thread_start(pthread_t *thread, void *(*run)(void *), void *ctx,
                    struct pp_err *err) PP_MUST_USE;

#endif
