/* SPDX-License-Identifier: MIT */
/* documents - tokenised inputs in memory, one after the other. What the
 * readers of the input formats fill and the packer takes. */
#ifndef PP_DATA_DOCUMENTS_H
#define PP_DATA_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A zeroed struct is empty. */
struct pp_documents {
    size_t n;
    size_t *first;   /* n + 1: document i is ids[first[i]..first[i + 1]); NULL
                        while n is 0 */
    int32_t *ids;    /* at least 0 */
    int32_t *labels; /* like ids, or PP_LABEL_IGNORE; NULL while every label is
                        its id */
    size_t ids_room, first_room; /* allocated elements */
};

/* Where the next document's tokens go, with room for n of them; NULL with *err
 * filled on failure. Valid until the next call. */
int32_t *pp_documents_room(struct pp_documents *d, size_t n,
                           struct pp_err *err) PP_MUST_USE;

/* Appends the document of the n ids that were put there. labels has n
 * elements, or is NULL when the labels are the ids. Where only lengths are
 * known no ids are put anywhere, and ids stays NULL. */
int pp_documents_add(struct pp_documents *d, size_t n, const int32_t *labels,
                     struct pp_err *err) PP_MUST_USE;

/* Called by readers after every line with the bytes read so far. */
typedef void pp_read_progress_fn(void *ctx, size_t line, size_t bytes);

void pp_documents_finish(struct pp_documents *d);

#endif
