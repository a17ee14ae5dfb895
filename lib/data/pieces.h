/* SPDX-License-Identifier: MIT */
/* pieces - the sequences to be packed: documents, or parts of those that are
 * longer than a bin. Pure: no files. */
#ifndef PP_DATA_PIECES_H
#define PP_DATA_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/documents.h"

struct pp_piece {
    size_t at;       /* of its first token in the documents' arrays */
    uint32_t source; /* document, from the first that is packed on */
    uint32_t start;  /* position of its first token in that document */
    uint32_t length; /* tokens */
    uint32_t padded; /* with padding */
};

/* What was done to the documents of an input, in documents and in tokens. */
struct pp_input_counts {
    uint64_t sequences, tokens; /* of the input */
    uint64_t n_empty;           /* documents without tokens, left out */
    uint64_t n_dropped, dropped_tokens;
    uint64_t n_truncated, truncated_tokens; /* those cut off */
    uint64_t n_split;
    uint64_t n_skipped;   /* malformed lines, which are no documents */
    uint64_t other_modes; /* sequences left out of documents, whose tokens are
                             among those cut off */
};

/* What becomes of a document that is longer than a bin. */
enum pp_oversize {
    PP_OVERSIZE_ERROR,
    PP_OVERSIZE_TRUNCATE,
    PP_OVERSIZE_SPLIT, /* into pieces that fill a bin, and a rest */
    PP_OVERSIZE_DROP
};

struct pp_pieces {
    size_t n;
    struct pp_piece *piece;
    uint32_t *padded; /* the pieces' slots again, for the packing rules */
    uint64_t n_tokens;
    struct pp_input_counts counts;
};

/* The least multiple that slots need: of pad_to, of the 2 x cp chunks that
 * context parallelism cuts a sequence into, and so that tensor parallelism can
 * cut what a rank then has into tp. 0 when above 2^31. */
uint32_t pp_pieces_align(uint32_t pad_to, uint32_t cp, uint32_t tp);

/* The same as NeMo-RL pads, to a multiple of 2 x cp x tp where both are above
 * 1, which is more than either needs. */
uint32_t pp_pieces_align_product(uint32_t pad_to, uint32_t cp, uint32_t tp);

/* Which documents, and how. */
struct pp_piece_options {
    uint32_t capacity, align;
    enum pp_oversize oversize;
    bool drop_empty;
    size_t first, end; /* documents first..end; end 0: all */
};

/* Slots are the lengths of sequences rounded up to a multiple of align, which
 * is at most capacity, and added up where a document has several; no slot
 * exceeds capacity. With drop_empty documents without tokens make no piece.
 * Documents of several sequences cannot be cut. */
int pp_pieces_make(const struct pp_documents *d,
                   const struct pp_piece_options *o, struct pp_pieces *out,
                   struct pp_err *err) PP_MUST_USE;

/* Documents one after the other, cut wherever capacity tokens are full: pieces
 * that fill bins in their order. Documents without tokens make none. Of the
 * options, capacity and the documents count. */
int pp_pieces_wrap(const struct pp_documents *d,
                   const struct pp_piece_options *o, struct pp_pieces *out,
                   struct pp_err *err) PP_MUST_USE;

/* Makes the slots of n pieces as long as the longest of them. */
void pp_pieces_pad_evenly(struct pp_pieces *p, const uint32_t *members,
                          size_t n);

/* Lengthens the shortest of n slots until all together are a multiple of row.
 * n is at least 1. */
void pp_pieces_pad_bin(struct pp_pieces *p, const uint32_t *members, size_t n,
                       uint32_t row);

void pp_pieces_finish(struct pp_pieces *p);

#endif
