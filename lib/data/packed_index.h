/* SPDX-License-Identifier: MIT */
/* packed_index - the index of a packed directory, built in memory. For
 * packed_write.c and packed_index.c only. */
#ifndef PP_DATA_PACKED_INDEX_H
#define PP_DATA_PACKED_INDEX_H

#include "data/packed_format.h"
#include "data/packed_write.h"

/* Between calls of progress. Each piece may bring a few mapped pages into
 * memory, which the caller can let go then. */
enum { PP_PROGRESS_PIECES = 128 };

/* One sequence of a piece. */
struct pp_part {
    size_t at;       /* of its first token in the documents' arrays */
    size_t sequence; /* in the documents */
    uint32_t start;  /* position of its first token in its document */
    uint32_t length, slot;
};

/* How many sequences a piece is: more than one where it is a group. */
uint32_t pp_piece_n_parts(const struct pp_packed_content *c,
                          const struct pp_piece *q);

struct pp_part pp_piece_part(const struct pp_packed_content *c,
                             const struct pp_piece *q, uint32_t k);

/* Whether the content has that column. */
bool pp_content_has(const struct pp_packed_content *c, int file);

/* The whole index, to be freed; sums are the files' checksums. */
struct pp_packed_header *
pp_packed_make_index(const struct pp_packed_content *c,
                     const uint64_t sums[PP_PACKED_N_FILES],
                     struct pp_err *err) PP_MUST_USE;

#endif
