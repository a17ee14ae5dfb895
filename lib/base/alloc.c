/* SPDX-License-Identifier: MIT */
#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

/* Never 0 bytes, for which malloc may return NULL. */
static bool is_addressable(size_t n, size_t size, size_t *bytes)
{
    return !__builtin_mul_overflow(n ? n : 1, size, bytes);
}

void *pp_calloc(size_t n, size_t size, struct pp_err *err)
{
    size_t bytes;
    void *p = is_addressable(n, size, &bytes) ? calloc(1, bytes) : NULL;
    if (!p)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return p;
}

void *pp_realloc(void *old, size_t n, size_t size, struct pp_err *err)
{
    size_t bytes;
    void *p = is_addressable(n, size, &bytes) ? realloc(old, bytes) : NULL;
    if (!p)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return p;
}

int pp_array_reserve(void *array, size_t *capacity, size_t n, size_t size,
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
    items = pp_realloc(items, more, size, err);
    if (!items)
        return -1;
    memcpy(array, &items, sizeof items);
    *capacity = more;
    return 0;
}
