/* SPDX-License-Identifier: MIT */
/* memory_available - the memory that this process may still take. */
#ifndef PP_BASE_MEMORY_AVAILABLE_H
#define PP_BASE_MEMORY_AVAILABLE_H

#include <stddef.h>

struct pp_available_memory {
    size_t bytes; /* SIZE_MAX if nothing is known */
    char of[160]; /* the limit that is met first, as "this machine" */
};

/* Returns the least of what is free on the machine, with swap; what the control
 * groups of the process leave (cgroups, both versions; the page cache of files
 * counts as free); and the address space that ulimit -v leaves. root: "", or
 * for tests a directory with files in place of /proc and /sys. */
struct pp_available_memory pp_available_memory(const char *root);

#endif
