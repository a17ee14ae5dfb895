/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

int pp_thread_start(pthread_t *thread, void *(*run)(void *), void *ctx,
                    struct pp_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0
                   : pp_fail(err, PP_EXIT_SYSTEM, "cannot start a thread: %s",
                             strerror(rc));
}
