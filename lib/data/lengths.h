/* SPDX-License-Identifier: MIT */
/* lengths - documents of which only the length is known: a number per line. */
#ifndef PP_DATA_LENGTHS_H
#define PP_DATA_LENGTHS_H

#include <stdio.h>

#include "data/documents.h"

/* Appends a document per line of f that is not empty. name is f's in messages;
 * progress may be NULL. */
int pp_lengths_read(const char *name, FILE *f, struct pp_documents *d,
                    pp_read_progress_fn *progress, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

#endif
