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

/* Appends the documents of PREFIX.idx and PREFIX.bin. With index_only their
 * tokens are left where they are: each document's sequences have to lie one
 * after the other then. Everything the index says
 * is verified against the size of the tokens before any is read; malformed
 * input is PP_EXIT_INPUT with the file's name. Empty documents are an error
 * unless allowed. */
int pp_indexed_read(const char *prefix, bool allow_empty, bool index_only,
                    struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* The same from memory; the names are for messages. */
int pp_indexed_parse(const char *idx_name, const void *idx, size_t idx_bytes,
                     const char *bin_name, const void *bin, size_t bin_bytes,
                     bool allow_empty, struct pp_documents *d,
                     struct pp_err *err) PP_MUST_USE;

#endif
