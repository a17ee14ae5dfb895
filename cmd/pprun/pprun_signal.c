/* SPDX-License-Identifier: MIT */
/* What SIGTERM and SIGUSR1 do to a run. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "pprun.h"

/* Set by the first SIGTERM or SIGUSR1. The only variable of its kind: blocking
 * the signals and looking for pending ones would need none, but BLAS starts
 * threads of its own before main, which block nothing. */
static atomic_int stop_signal;

static void take_signal(int number)
{
    stop_signal = number;
}

bool pprun_stop_requested(void *ctx)
{
    (void)ctx;
    return stop_signal != 0;
}

/* mpirun sends SIGTERM to all ranks when one is lost. A moment later they know
 * which, and have said so. */
static void end_soon(int number)
{
    (void)number;
    alarm(1);
}

static void end_now(int number)
{
    (void)number;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void pprun_handle_signals(const struct pprun *p)
{
    if (p->job.save) {
        handle(SIGTERM, take_signal);
        handle(SIGUSR1, take_signal);
    } else if (p->options.transport != PPRUN_THREADS) {
        handle(SIGALRM, end_now);
        handle(SIGTERM, end_soon);
    }
}
