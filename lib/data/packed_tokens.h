/* SPDX-License-Identifier: MIT */
/* packed_tokens - the tokens of an index-only directory, where they lie. For
 * packed*.c only. */
#ifndef PP_DATA_PACKED_TOKENS_H
#define PP_DATA_PACKED_TOKENS_H

#include "data/packed.h"
#include "data/packed_format.h"

/* A mapped file of tokens. */
struct pp_token_map {
    const void *data;
    size_t bytes;
};

/* Maps the n files that the index names and checks their sizes. */
int pp_packed_map_tokens(struct pp_packed *p,
                         const struct pp_packed_token_file *files, size_t n,
                         struct pp_err *err) PP_MUST_USE;

void pp_packed_unmap_tokens(struct pp_packed *p);

/* The files' checksums; PP_EXIT_NO when one is wrong. */
int pp_packed_check_tokens(const struct pp_packed *p,
                           struct pp_err *err) PP_MUST_USE;

#endif
