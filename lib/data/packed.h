/* SPDX-License-Identifier: MIT */
/* packed - the packed directory: an index of bins and the token columns.
 *
 * pp-pack(5) has the byte layout. A bin is a microbatch. Everything is mapped
 * read-only; pointers below point into the map and live until finish. Every
 * rank of every stage maps the index itself, so sizes are known everywhere
 * before step 0. */
#ifndef PP_DATA_PACKED_H
#define PP_DATA_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/documents.h"
#include "data/pieces.h"

#define PP_LABEL_IGNORE (-100)

enum { PP_PACKED_N_FILES = 3 + PP_N_COLUMNS }; /* index, ids, labels, others */

struct pp_packed {
    size_t n_bins, n_sequences; /* sequences in all bins */
    size_t n_groups;            /* groups in all bins */
    size_t n_inputs;            /* documents in the input, dropped ones too */
    uint64_t n_tokens, n_positions; /* real tokens, and with padding */
    uint32_t capacity, align, max_tokens, max_seqlen;
    uint32_t vocab; /* one more than the largest token id */
    enum pp_data_kind kind;
    bool index_only;   /* tokens lie in the files they came from */
    uint64_t checksum; /* of the index; what a manifest records */
    /* Private to packed*.c. */
    uint32_t version;
    const void *map[PP_PACKED_N_FILES];
    size_t map_bytes[PP_PACKED_N_FILES];
    const void *sections[11];
    struct pp_token_map *token_files;
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
    /* tokens of each, and labels are aligned with input_ids, not shifted; NULL
     * with index_only: see pp_packed_tokens. */
    const int32_t *input_ids, *labels;
    /* n_groups + 1: group g is sequences cu_groups[g]..cu_groups[g + 1]; NULL
     * where each sequence is one. */
    const uint32_t *cu_groups;
    const float *columns[PP_N_COLUMNS]; /* the bin's elements; NULL: none */
};

/* Whether dir has an index of this format in it. */
bool pp_packed_is(const char *dir);

/* Maps dir and checks header, sizes and offsets (not the contents: see
 * pp_packed_check). */
int pp_packed_open(const char *dir, struct pp_packed *p,
                   struct pp_err *err) PP_MUST_USE;

/* b < n_bins. */
void pp_packed_bin(const struct pp_packed *p, size_t b, struct pp_bin *out);

/* Copies the ids and labels of a bin, as many as its tokens, wherever they
 * lie. An id of another file that is no token id is -1. */
void pp_packed_tokens(const struct pp_packed *p, size_t b, int32_t *ids,
                      int32_t *labels);

/* Reads everything: checksums, counts, alignment, ids, padding, each input
 * token packed once or counted as left out. PP_EXIT_NO with the first fault. */
int pp_packed_check(const struct pp_packed *p, struct pp_err *err) PP_MUST_USE;

/* Unmaps; accepts a zeroed struct. */
void pp_packed_finish(struct pp_packed *p);

/* packed_export - a packed directory in the formats of others. Both are read
 * by pppack again: the same sequences in packed order. */
/* PREFIX.bin and PREFIX.idx, Megatron's indexed dataset: each packed sequence
 * is a document, without padding. Elements are of 16 bits when the vocabulary
 * is less than 65500, as Megatron does. Data that the format has no place for,
 * labels other than the ids, groups and columns, are PP_EXIT_INPUT. */
int pp_packed_export_megatron(const struct pp_packed *p, const char *prefix,
                              struct pp_err *err) PP_MUST_USE;

/* A safetensors file: input_ids, labels, cu_seqlens, cu_seqlens_padded,
 * cu_bins, source, start, and the columns and groups that there are. */
int pp_packed_export_safetensors(const struct pp_packed *p, const char *path,
                                 struct pp_err *err) PP_MUST_USE;

struct pp_packed_content {
    const int32_t *ids;    /* tokens of all inputs; NULL: an index only, of the
                              files that docs names */
    const int32_t *labels; /* likewise, or NULL: the ids are the labels */
    const struct pp_piece *pieces; /* none empty */
    size_t n_bins;
    const size_t *first; /* n_bins + 1: bin b is items[first[b]..first[b+1]) */
    const uint32_t *items; /* indices into pieces */
    size_t n_inputs;
    uint32_t capacity, align;
    /* What the pieces are of: their sequences, columns and files. NULL: a piece
     * is a sequence, and there are no columns. */
    const struct pp_documents *docs;
    size_t first_document; /* source 0 */
    struct pp_input_counts counts;
    /* Called now and then with the bins written so far; may be NULL. */
    void (*progress)(void *ctx, size_t bins);
    void *ctx;
};

/* Whether dir may be written: absent, empty, or a packed directory that holds
 * nothing else. PP_EXIT_INPUT otherwise. */
int pp_packed_may_write(const char *dir, struct pp_err *err) PP_MUST_USE;

/* Writes dir: as DIR.tmp beside it, flushed to the disk, then put in its place
 * at once; a packed directory that was there stays whole until then. Nothing
 * of DIR.tmp is left after a failure. There must be a bin. */
int pp_packed_write(const char *dir, const struct pp_packed_content *c,
                    struct pp_err *err) PP_MUST_USE;

/* The first n_bins bins as they are, the set beginning anew at its end. */
int pp_packed_take(const struct pp_packed *p, size_t n_bins,
                   struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* Every sequence in a bin of its own, without padding, in order. p was made
 * here, and sequences keep their numbers. */
int pp_packed_unpack(const struct pp_packed *p, struct pp_packed *out,
                     struct pp_err *err) PP_MUST_USE;

struct pp_synthetic_data {
    uint32_t tokens;        /* slots of the largest bin, about */
    uint32_t max_sequences; /* of a bin: further ones are left out */
    uint32_t vocab;
    uint64_t seed;
};

/* As many bins of sequences whose lengths, padding and ignored labels are those
 * of p's first bins in small; ids are random. Without p the lengths are random
 * too and nothing is padded. */
int pp_packed_synthetic(const struct pp_packed *p, size_t n_bins,
                        const struct pp_synthetic_data *l,
                        struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

#endif
