/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define BLOCK_BYTES ((size_t)1 << 16)

struct pp_arena_block {
    struct pp_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

static struct pp_arena_block *new_block(size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct pp_arena_block *b = pp_calloc(1, sizeof *b + size);
    b->size = size;
    return b;
}

void *pp_arena_alloc(struct pp_arena *a, size_t n, size_t size)
{
    size_t align = alignof(max_align_t), bytes;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        bytes > SIZE_MAX / 2 - BLOCK_BYTES)
        pp_out_of_memory();
    bytes = (bytes + align - 1) / align * align;
    struct pp_arena_block *b = a->blocks;
    if (!b || b->size - b->used < bytes) {
        struct pp_arena_block *fresh = new_block(bytes);
        /* A large block goes behind the current one, whose rest stays open. */
        if (b && bytes > BLOCK_BYTES / 4) {
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->blocks = fresh;
        }
        b = fresh;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

char *pp_arena_strdup(struct pp_arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = pp_arena_alloc(a, n, 1);
    return memcpy(p, s, n);
}

char *pp_arena_printf(struct pp_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) /* a string of more than INT_MAX bytes */
        pp_out_of_memory();
    char *p = pp_arena_alloc(a, (size_t)n + 1, 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void pp_arena_finish(struct pp_arena *a)
{
    struct pp_arena_block *b = a->blocks;
    while (b) {
        struct pp_arena_block *next = b->next;
        free(b);
        b = next;
    }
    a->blocks = NULL;
}
