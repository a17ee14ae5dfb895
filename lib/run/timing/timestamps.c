/* SPDX-License-Identifier: MIT */
/* timestamps - the times of a step on the clock of the host.
 *
 * A GPU has its own clock, which may drift. So each step measures the offset
 * again: it puts a marker into an idle queue, and the GPU reaches the marker
 * between two readings of the host's clock. The first marker is the origin of
 * the times of the step; each further one narrows down when the origin was. */
#include "run/timing/timestamps.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/num.h"

enum { UNSET = -1, QUEUED = -2 };
enum { TRIES = 16 }; /* markers per step, about 10 us each */

/* The error of one measured interval: cudaEventElapsedTime has "a resolution of
 * around 0.5 microseconds", at both ends. */
#define RESOLUTION_S 1e-6

static int open_timers(struct pp_timestamps *s, struct pp_err *err)
{
    s->timers = calloc(s->n + 2, sizeof *s->timers);
    if (!s->timers)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < s->n + 2; i++)
        if (s->device->ops->timer_open(s->device, &s->timers[i], err))
            return -1;
    return 0;
}

int pp_timestamps_init(struct pp_timestamps *s, struct pp_device *d, size_t n,
                       struct pp_err *err)
{
    size_t bytes;
    *s = (struct pp_timestamps){.n = n, .device = d};
    if (pp_mul(n + 2, sizeof *s->times, &bytes, err))
        return -1;
    s->times = malloc(bytes);
    if (!s->times)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    /* This touches the pages, so that no page is new during a step. */
    pp_timestamps_clear(s);
    return pp_device_ops(d)->is_host ? 0 : open_timers(s, err);
}

void pp_timestamps_finish(struct pp_timestamps *s)
{
    for (size_t i = 0; s->timers && i < s->n + 2; i++)
        s->device->ops->streams->event_close(s->timers[i]);
    free(s->timers);
    free(s->times);
    *s = (struct pp_timestamps){0};
}

void pp_timestamps_clear(struct pp_timestamps *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->times[i] = UNSET;
}

void pp_timestamp(struct pp_timestamps *s, struct pp_device *d, size_t at)
{
    if (!s->timers) {
        s->times[at] = pp_clock();
        return;
    }
    s->times[at] = QUEUED;
    int rc = d->ops->streams->event_record(d, s->timers[at], NULL, &s->err);
    (void)rc; /* s->err keeps it */
}

/* Passes a marker through the idle device. By the clock of the host, the device
 * reached it after *from and before *to. */
static int pass(struct pp_timestamps *s, void *timer, double *from, double *to,
                struct pp_err *err)
{
    struct pp_device *d = s->device;
    *from = pp_clock();
    if (d->ops->streams->event_record(d, timer, NULL, err) ||
        d->ops->wait(d, err))
        return -1;
    *to = pp_clock();
    return 0;
}

/* Finds the time of the origin, by the clock of the host. */
static int find_origin(struct pp_timestamps *s, double *at, struct pp_err *err)
{
    void *origin = s->timers[s->n], *again = s->timers[s->n + 1];
    double earliest, latest;
    if (pass(s, origin, &earliest, &latest, err))
        return -1;
    for (int i = 1; i < TRIES; i++) {
        double from, to, later;
        if (pass(s, again, &from, &to, err) ||
            s->device->ops->elapsed(s->device, origin, again, &later, err))
            return -1;
        earliest = fmax(earliest, from - later);
        latest = fmin(latest, to - later);
    }
    *at = (earliest + latest) / 2;
    s->error = fabs(latest - earliest) / 2 + RESOLUTION_S;
    return 0;
}

int pp_timestamps_read(struct pp_timestamps *s, struct pp_err *err)
{
    double origin, before;
    if (s->err.code != PP_EXIT_OK) {
        if (err->code == PP_EXIT_OK)
            *err = s->err;
        return -1;
    }
    if (!s->timers)
        return 0;
    if (find_origin(s, &origin, err))
        return -1;
    for (size_t i = 0; i < s->n; i++) {
        if (s->times[i] != QUEUED)
            continue;
        if (s->device->ops->elapsed(s->device, s->timers[i], s->timers[s->n],
                                    &before, err))
            return -1;
        s->times[i] = origin - before;
    }
    return 0;
}
