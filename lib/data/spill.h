/* SPDX-License-Identifier: MIT */
/* spill - arrays that grow, and move to files without names if they are large.
 * The system writes the pages of a file back, so an array of any size costs
 * only memory that nothing else needs. */
#ifndef PP_DATA_SPILL_H
#define PP_DATA_SPILL_H

#include <stddef.h>

#include "base/err.h"

/* A zeroed array is empty. */
struct pp_spill_array {
    void *at;
    size_t room, bytes; /* elements, and their bytes */
    int fd;             /* its file plus one; 0 while in memory */
};

/* Makes room for at least n elements. An array of more than limit bytes moves
 * to a file in dir; NULL keeps all arrays in memory. */
int pp_spill_grow(struct pp_spill_array *g, size_t n, size_t size,
                  const char *dir, size_t limit,
                  struct pp_err *err) PP_MUST_USE;

/* Lets mapped elements leave memory, since they will not be read soon. */
void pp_spill_release(struct pp_spill_array *g);

void pp_spill_finish(struct pp_spill_array *g);

#endif
