/* SPDX-License-Identifier: MIT */
/* documents_grow - arrays that grow, in memory or in a mapped file without a
 * name. For documents.c only. */
#ifndef PP_DATA_DOCUMENTS_GROW_H
#define PP_DATA_DOCUMENTS_GROW_H

#include "data/documents.h"

/* Makes room for at least n elements of size bytes, by half again or more. With
 * a directory, an array above limit bytes goes to a file there; its file
 * system being full is PP_EXIT_SYSTEM. */
int pp_grow(struct pp_growing *g, size_t n, size_t size, const char *dir,
            size_t limit, struct pp_err *err) PP_MUST_USE;

/* Lets go of the memory that holds an array's file. */
void pp_grow_release(struct pp_growing *g);

void pp_grow_finish(struct pp_growing *g);

#endif
