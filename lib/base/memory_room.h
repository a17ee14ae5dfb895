/* SPDX-License-Identifier: MIT */
/* memory_room - the memory that this process may still take. */
#ifndef PP_BASE_MEMORY_ROOM_H
#define PP_BASE_MEMORY_ROOM_H

#include <stddef.h>

struct pp_memory_room {
    size_t bytes; /* SIZE_MAX if nothing is known */
    char of[160]; /* the limit that is met first, as "this machine" */
};

/* Returns the least of what is free on the machine, with swap; what the control
 * groups of the process leave (cgroups, both versions; the page cache of files
 * counts as free); and the address space that ulimit -v leaves. root: "", or
 * for tests a directory with files in place of /proc and /sys. */
struct pp_memory_room pp_memory_room(const char *root);

#endif
