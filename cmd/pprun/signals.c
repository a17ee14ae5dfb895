/* SPDX-License-Identifier: MIT */
/* signals - requests to stop, and requests for weights. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "pprun.h"

/* After a stop request, the time of a reader of a trace or a profile. */
enum { READER_SECONDS = 5 };

/* The time of the first SIGINT, minus the number of SIGTERM or SIGUSR1, 0
 * without a request to stop. It is global because a signal handler sets it.
 * Polling for blocked signals would need no handler, but BLAS starts threads
 * before main, and these threads do not block the signals. */
static _Atomic double stop_signal;

/* SIGUSR2 came: the sampler asks for the weights. */
static atomic_bool weights_signal;

static void ask_weights(int number)
{
    (void)number;
    weights_signal = true;
}

bool pprun_weights_asked(void *ctx)
{
    (void)ctx;
    return atomic_exchange(&weights_signal, false);
}

static void take_signal(int number)
{
    double none = 0;
    atomic_compare_exchange_strong(&stop_signal, &none, -number);
}

/* A second SIGINT ends the run at once, but not within a second: a launcher may
 * repeat the signal that the terminal sent. */
static void take_interrupt(int number)
{
    double now = pp_clock(), first = stop_signal;
    if (first <= 0) {
        stop_signal = now;
    } else if (now - first > 1) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

bool pprun_signalled(void)
{
    return stop_signal != 0;
}

int pprun_stop_requested(void *ctx)
{
    struct runner *p = ctx;
    double signal = stop_signal;
    if (signal != 0)
        return signal < 0 ? -(int)signal : SIGINT;
    return pprun_of(p)->lines.failed ? PP_STOP_OTHER : 0;
}

/* Ends a run that has nothing to save. */
static void end_unsaved(int number)
{
    runner_tell("pprun: stopped by a signal; without --save nothing is kept\n");
    signal(number, SIG_DFL);
    raise(number);
}

void pprun_install_handlers(const struct runner *p)
{
    if (p->job.stream.path) {
        runner_handle(SIGUSR2, ask_weights);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    }
    if (p->job.save) {
        runner_handle(SIGTERM, take_signal);
        runner_handle(SIGUSR1, take_signal);
        struct sigaction at_start;
        if (sigaction(SIGINT, NULL, &at_start) == 0 &&
            at_start.sa_handler != SIG_IGN)
            runner_handle(SIGINT, take_interrupt);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    } else if (p->options.transport != RUNNER_THREADS) {
        runner_end_soon();
    } else if (p->job.optim.steps > 0) {
        runner_handle(SIGTERM, end_unsaved);
        runner_handle(SIGUSR1, end_unsaved);
    }
}

static void end_stopped(int number)
{
    (void)number;
    runner_tell(
        "pprun: stopped by a signal; the trace or profile is lost: nothing "
        "reads it\n");
    _exit(PP_EXIT_STOPPED);
}

void pprun_release_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; !pprun_signalled() && i < 3; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            runner_handle(numbers[i], SIG_DFL);
    }
    if (pprun_signalled()) {
        runner_handle(SIGALRM, end_stopped);
        alarm(READER_SECONDS);
    }
}
