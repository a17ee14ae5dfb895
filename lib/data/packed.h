/* SPDX-License-Identifier: MIT */
/* packed - the packed directory: an index of bins and the token columns.
 *
 * pp-pack(5) has the byte layout. A bin is a microbatch. Everything is mapped
 * read-only; pointers below point into the map and live until finish. Every
 * rank of every stage maps the index itself, so sizes are known everywhere
 * before step 0. */
#ifndef PP_DATA_PACKED_H
#define PP_DATA_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_LABEL_IGNORE (-100)

struct pp_packed {
    size_t n_bins, n_sequences; /* sequences in all bins */
    size_t n_inputs;            /* sequences in the input, dropped ones too */
    uint64_t n_tokens, n_slots; /* real tokens, and with padding */
    uint32_t capacity, align, max_tokens, max_seqlen;
    uint32_t vocab;     /* one more than the largest token id */
    uint64_t checksum;  /* of the index; what a manifest records */
    const void *map[3]; /* index, input_ids, labels */
    size_t map_bytes[3];
    const void *sections[8]; /* private to packed*.c */
    void *owned; /* where all of it is when made in memory, else NULL */
};

/* One bin. Sequence i lies at cu_seqlens_padded[i] of the columns and has
 * cu_seqlens[i + 1] - cu_seqlens[i] real tokens; the rest of its slot is
 * padding with label -100. */
struct pp_bin {
    uint32_t n_sequences;
    uint32_t tokens;     /* slots: cu_seqlens_padded[n_sequences] */
    uint32_t scored;     /* labels other than -100, position 0 of each sequence
                            not counted: nothing predicts it */
    uint32_t n_groups;   /* sequences that belong together count once */
    uint32_t max_seqlen; /* largest slot */
    const int32_t *cu_seqlens;        /* n_sequences + 1 */
    const int32_t *cu_seqlens_padded; /* n_sequences + 1 */
    const uint32_t *source;           /* input index of each sequence */
    const uint32_t *start;            /* its first token's position there: not 0
                                         where a long input was split */
    const int32_t *input_ids;         /* tokens */
    const int32_t *labels;            /* tokens; aligned with input_ids, not
                                         shifted */
};

/* Maps dir and checks header, sizes and offsets (not the contents: see
 * pp_packed_check). */
int pp_packed_open(const char *dir, struct pp_packed *p,
                   struct pp_err *err) PP_MUST_USE;

/* b < n_bins. */
void pp_packed_bin(const struct pp_packed *p, size_t b, struct pp_bin *out);

/* Reads everything: checksums, counts, alignment, ids, padding, each input
 * token at most once. PP_EXIT_NO with the first fault. */
int pp_packed_check(const struct pp_packed *p, struct pp_err *err) PP_MUST_USE;

/* Unmaps; accepts a zeroed struct. */
void pp_packed_finish(struct pp_packed *p);

#endif
