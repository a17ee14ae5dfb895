/* SPDX-License-Identifier: MIT */
/* watch - callbacks of the thread that watches the other processes: the
 * place of this rank, requests to stop, reports of silent ranks. Everything
 * here runs in that thread. */
#include <poll.h>
#include <unistd.h>

#include "runner/runner.h"

/* Prints a line at once, if standard error takes it: the thread must not wait
 * for a reader. The progress line belongs to another thread, so a terminal's
 * line is erased in any case. */
static void say(void *ctx, const char *text)
{
    const struct runner *p = ctx;
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1)
        fprintf(stderr, "%s%s: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
                p->tool->name, text);
}

static void describe(void *ctx, char *text, size_t room)
{
    struct runner *p = ctx;
    pp_progress_format(&p->progress, &p->job, p->rank, text, room);
}

static bool stopping(void *ctx)
{
    const struct runner *p = ctx;
    return p->job.stop(p->job.ctx) != 0;
}

static void stop(void *ctx)
{
    struct runner *p = ctx;
    p->others_stop = true;
}

/* Says at once which rank is lost: what follows may not return. */
static void aborted(void *ctx, const struct pp_err *why)
{
    const struct runner *p = ctx;
    if (why->origin.known & PP_ORIGIN_LOST)
        say(ctx, why->text);
    runner_must_end(p->name, why->text);
}

struct pp_rendezvous_observer runner_observer(struct runner *p)
{
    return (struct pp_rendezvous_observer){
        .seconds = p->options.stall_timeout,
        .abort = !p->options.stall_wait,
        .say = say,
        .describe = describe,
        .stopping = p->job.save ? stopping : NULL,
        .stop = stop,
        .aborted = aborted,
        .ctx = p,
    };
}
