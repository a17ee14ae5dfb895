/* SPDX-License-Identifier: MIT */
/* indexed - documents from Megatron's indexed datasets: PREFIX.idx, which says
 * where each sequence lies and which sequences make a document, and
 * PREFIX.bin, the tokens. */
#ifndef PP_DATA_INDEXED_H
#define PP_DATA_INDEXED_H

#include <stdbool.h>

#include "data/documents.h"

/* Whether an input's name means such a pair: NAME.idx, NAME.bin, or a NAME
 * that is no file while NAME.idx is one. Then *prefix_bytes of it are the
 * prefix. */
bool pp_indexed_named(const char *name, size_t *prefix_bytes);

/* How a dataset is read. */
struct pp_indexed_options {
    bool allow_empty;  /* empty documents are an error otherwise */
    bool index_only;   /* tokens are left where they are: each document's
                          sequences have to lie one after the other then */
    const bool *modes; /* 256: whether sequences of the mode, an int8 as an
                          unsigned number, are taken; others are left out of
                          their documents. NULL: mode 0 is taken, another is an
                          error */
};

/* Appends the documents of PREFIX.idx and PREFIX.bin. Everything the index says
 * is verified against the size of the tokens before any is read; malformed
 * input is PP_EXIT_INPUT with the file's name. */
int pp_indexed_read(const char *prefix, const struct pp_indexed_options *o,
                    struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* The same from memory, tokens copied; the names are for messages. */
int pp_indexed_parse(const char *idx_name, const void *idx, size_t idx_bytes,
                     const char *bin_name, const void *bin, size_t bin_bytes,
                     const struct pp_indexed_options *o, struct pp_documents *d,
                     struct pp_err *err) PP_MUST_USE;

#endif
