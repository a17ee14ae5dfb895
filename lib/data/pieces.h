/* SPDX-License-Identifier: MIT */
/* pieces - what is packed: documents, the responses of rollouts, or parts of
 * documents that are longer than a bin. It reads and writes no files. */
#ifndef PP_DATA_PIECES_H
#define PP_DATA_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/documents.h"

struct pp_piece {
    size_t at;       /* index of its first token in the documents' arrays */
    uint32_t source; /* its document, counted from the first packed one */
    uint32_t start;  /* position of its first token in that document */
    uint32_t length; /* tokens */
    uint32_t padded; /* tokens and padding */
};

/* Counts of what was done to an input. */
struct pp_input_counts {
    uint64_t sequences, tokens; /* sequences and tokens of the input */
    uint64_t n_empty;           /* documents without tokens, left out */
    uint64_t n_dropped, dropped_tokens;
    uint64_t n_truncated, truncated_tokens; /* the tokens that were cut off */
    uint64_t n_split;
    uint64_t n_skipped;   /* malformed lines */
    uint64_t other_modes; /* sequences left out of documents; their tokens count
                             as cut off */
};

/* How to handle a document that is longer than a bin. */
enum pp_oversize {
    PP_OVERSIZE_ERROR,
    PP_OVERSIZE_TRUNCATE,
    PP_OVERSIZE_SPLIT, /* into pieces that fill a bin, and a last piece */
    PP_OVERSIZE_DROP
};

struct pp_pieces {
    size_t n;
    struct pp_piece *piece;
    uint32_t *padded; /* the same of each piece, for the packing rules */
    uint32_t *rows[PP_N_MODALITIES]; /* of each piece's items; NULL if no
                                        document has any of that modality */
    uint64_t n_tokens;
    struct pp_input_counts counts;
    size_t first_dropped; /* the first of the n_dropped documents */
};

/* Returns the least alignment of sequences: a multiple of pad_to, of the 2 x cp
 * chunks of context parallelism, and of cp x tp, so that tensor parallelism can
 * divide the part of a rank. Returns 0 if it is above 2^31. */
uint32_t pp_pieces_align(uint32_t pad_to, uint32_t cp, uint32_t tp);

/* Does the same as NeMo-RL: a multiple of 2 x cp x tp, which is more than
 * needed. */
uint32_t pp_pieces_align_product(uint32_t pad_to, uint32_t cp, uint32_t tp);

struct pp_piece_options {
    uint32_t capacity, align;
    enum pp_oversize oversize;
    bool drop_empty;
    size_t first, end;              /* documents [first, end); end 0: all */
    uint32_t rows[PP_N_MODALITIES]; /* most in a bin; 0: no limit */
};

/* Makes pairs and responses shorter that are longer than a bin, if that is the
 * way to handle them; call it once, before pieces are made. To truncate cuts
 * off the ends of the longest sequences, all to one length. A response that
 * would lose every scored token, or is to be dropped, loses all tokens, if
 * others of its group have some; such a pair is left, and makes no piece. So
 * are documents with items. Fails with PP_EXIT_INPUT if a document that must
 * be cut has sums over its tokens. (cut.c) */
int pp_documents_cut(struct pp_documents *d, const struct pp_piece_options *o,
                     struct pp_err *err) PP_MUST_USE;

/* Makes the pieces. The padded length of a sequence is its length rounded up to
 * a multiple of align, which is at most capacity. Sequences that share a bin
 * are one piece, whose padded length is their sum; each response of a rollout
 * is a piece. No piece exceeds the capacity. With drop_empty, empty documents
 * make no piece. A pair, a rollout or a document with items is not cut here;
 * with more rows than fit into a bin it is too long. Pairs and rollouts without
 * items that are still too long after pp_documents_cut are dropped. */
int pp_pieces_make(const struct pp_documents *d,
                   const struct pp_piece_options *o, struct pp_pieces *out,
                   struct pp_err *err) PP_MUST_USE;

/* Makes pieces that fill bins in their order: documents follow each other and
 * are cut wherever a bin is full. Empty documents make no piece. Only capacity,
 * first and end of the options are used. */
int pp_pieces_wrap(const struct pp_documents *d,
                   const struct pp_piece_options *o, struct pp_pieces *out,
                   struct pp_err *err) PP_MUST_USE;

/* Returns how many sequences a piece has: more than one if they share a bin.
 * *first is the first of them. Document first_document has source 0. */
size_t pp_piece_sequences(const struct pp_documents *d, size_t first_document,
                          const struct pp_piece *q, size_t *first);

/* Pads n pieces to the longest of them. */
void pp_pieces_pad_evenly(struct pp_pieces *p, const uint32_t *members,
                          size_t n);

/* Pads the shortest of n pieces until the sum of their padded lengths is a
 * multiple of row. n is at least 1. */
void pp_pieces_pad_bin(struct pp_pieces *p, const uint32_t *members, size_t n,
                       uint32_t row);

void pp_pieces_finish(struct pp_pieces *p);

#endif
