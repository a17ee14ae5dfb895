/* SPDX-License-Identifier: MIT */
/* clock - seconds on a clock that only goes forward. */
#ifndef PP_BASE_CLOCK_H
#define PP_BASE_CLOCK_H

#include <time.h>

static inline double pp_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
