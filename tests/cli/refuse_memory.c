/* SPDX-License-Identifier: MIT */
/* refuse_memory - a library to load before a program: the program's own
 * allocation number $PP_ALLOCATION, from 0, and all later ones are refused.
 * Allocations of shared libraries are granted, and not counted. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <link.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static struct {
    uintptr_t begin, end; /* of the program; 0 if not known yet */
    long left;            /* allocations to grant */
} program;

/* The first object is the program. */
static int find_program(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const char *text = getenv("PP_ALLOCATION");
    program.left = text ? atol(text) : -1;
    program.begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        program.begin = at < program.begin ? at : program.begin;
        program.end = at + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

static bool refuses(void *caller)
{
    if (!program.end)
        dl_iterate_phdr(find_program, NULL);
    if ((uintptr_t)caller < program.begin || (uintptr_t)caller >= program.end)
        return false;
    if (program.left <= 0)
        return program.left == 0;
    program.left--;
    return false;
}

void *malloc(size_t n)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return refuses(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}
