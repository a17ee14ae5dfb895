/* SPDX-License-Identifier: MIT */
#include "emulated_counts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ullong sums[PP_N_WORK];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const names[] = {"kernels",    "copies", "bytes", "messages",
                                    "operations", "waits",  "locked"};

static void write_sums(void)
{
    FILE *f = fopen(getenv("PP_EMULATED_COUNTS"), "w");
    for (int i = 0; f && i < PP_N_WORK; i++)
        fprintf(f, "%s %llu\n", names[i], sums[i]);
    if (!f || fclose(f))
        fputs("emulated CUDA: PP_EMULATED_COUNTS cannot be written\n", stderr);
}

static void write_at_end(void)
{
    if (getenv("PP_EMULATED_COUNTS"))
        atexit(write_sums);
}

/* Returns the microseconds that a piece of work costs, of a list such as
 * "kernels=5,messages=20". */
static double cost_of(enum pp_emulated_work what)
{
    const char *at = getenv("PP_EMULATED_COSTS");
    size_t n = strlen(names[what]);
    while (at && (strncmp(at, names[what], n) != 0 || at[n] != '=')) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return at ? atof(at + n + 1) : 0;
}

void pp_emulated_count(enum pp_emulated_work what, uint64_t n)
{
    pthread_once(&once, write_at_end);
    atomic_fetch_add(&sums[what], n);
    double us = (double)n * cost_of(what);
    if (us > 0)
        usleep((useconds_t)us);
}
