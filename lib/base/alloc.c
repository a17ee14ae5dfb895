/* SPDX-License-Identifier: MIT */
#include "base/alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_CAPACITY = 16 };

void pp_out_of_memory(void)
{
    const char *erase = isatty(STDERR_FILENO) ? "\r\033[K" : ""; /* progress */
    /* Another thread may fail at the same time: it waits here for the end. */
    flockfile(stderr);
    fprintf(stderr, "%s%s: out of memory\n", erase,
            program_invocation_short_name);
    exit(PP_EXIT_SYSTEM);
}

/* Never 0 bytes, for which malloc may return NULL. */
static bool is_addressable(size_t n, size_t size, size_t *bytes)
{
    return !__builtin_mul_overflow(n ? n : 1, size, bytes);
}

static void *zeroed(size_t n, size_t size)
{
    size_t bytes;
    return is_addressable(n, size, &bytes) ? calloc(1, bytes) : NULL;
}

static void *resized(void *old, size_t n, size_t size)
{
    size_t bytes;
    return is_addressable(n, size, &bytes) ? realloc(old, bytes) : NULL;
}

static void *or_end(void *p)
{
    if (!p)
        pp_out_of_memory();
    return p;
}

static void *or_fail(void *p, struct pp_err *err)
{
    if (!p)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return p;
}

void *pp_calloc(size_t n, size_t size)
{
    return or_end(zeroed(n, size));
}

void *pp_try_calloc(size_t n, size_t size, struct pp_err *err)
{
    return or_fail(zeroed(n, size), err);
}

void *pp_realloc(void *old, size_t n, size_t size)
{
    return or_end(resized(old, n, size));
}

void *pp_try_realloc(void *old, size_t n, size_t size, struct pp_err *err)
{
    return or_fail(resized(old, n, size), err);
}

char *pp_strdup(const char *s)
{
    return or_end(strdup(s));
}

int pp_try_array_reserve(void *array, size_t *capacity, size_t n, size_t size,
                         struct pp_err *err)
{
    size_t more = *capacity ? 2 * *capacity : FIRST_CAPACITY;
    if (n <= *capacity)
        return 0;
    if (more < n)
        more = n;
    /* Aliasing: a pointer to struct x is not an object of type void *. */
    void *items;
    memcpy(&items, array, sizeof items);
    items = pp_try_realloc(items, more, size, err);
    if (!items)
        return -1;
    memcpy(array, &items, sizeof items);
    *capacity = more;
    return 0;
}

void pp_array_reserve(void *array, size_t *capacity, size_t n, size_t size)
{
    if (n <= *capacity) /* for each action of millions */
        return;
    struct pp_err ignored = {0};
    if (pp_try_array_reserve(array, capacity, n, size, &ignored))
        pp_out_of_memory();
}
