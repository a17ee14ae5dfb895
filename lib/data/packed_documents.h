/* SPDX-License-Identifier: MIT */
/* packed_documents - the documents of a packed directory, to be packed anew. */
#ifndef PP_DATA_PACKED_DOCUMENTS_H
#define PP_DATA_PACKED_DOCUMENTS_H

#include "data/documents.h"
#include "data/packed.h"

/* Appends them in the order of the input they were; the pieces of one that was
 * split are put together again. */
int pp_packed_documents(const struct pp_packed *p, struct pp_documents *d,
                        struct pp_err *err) PP_MUST_USE;

#endif
