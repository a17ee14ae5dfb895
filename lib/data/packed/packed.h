/* SPDX-License-Identifier: MIT */
/* packed - the packed directory: an index of bins and the token columns; how it
 * is read, checked, written, exported and made in memory.
 *
 * pp-pack(5) has the byte layout. A bin is a microbatch. Everything is mapped
 * read-only; the pointers below point into the map and are valid until
 * pp_packed_finish. Every rank of every stage maps the index itself, so it
 * knows all sizes before step 0. */
#ifndef PP_DATA_PACKED_PACKED_H
#define PP_DATA_PACKED_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/err.h"
#include "data/documents.h"
#include "data/file_check.h"
#include "data/packed/stream.h"
#include "data/packed/ranks.h"
#include "data/pieces.h"

#define PP_LABEL_IGNORE (-100)

/* The index, ids, labels, columns and the rows of streams. */
enum { PP_PACKED_N_FILES = 3 + PP_N_COLUMNS + PP_N_MODALITIES };

/* The order of the bins in the second and later epochs: blocks of that many
 * bins are permuted by the seed, the epoch and the number of bins. */
struct pp_epoch_order {
    uint32_t block; /* 0: every epoch has the order of the first */
    uint64_t seed;
    uint64_t length; /* microbatches of an epoch: microbatches behind the last
                        bin are empty, or the last bins are left out. 0: n_bins.
                        It is the reader's choice, and not in the index */
};

/* A microbatch without tokens: no bin is left. */
#define PP_NO_BIN SIZE_MAX

struct pp_packed {
    size_t n_bins, n_sequences; /* sequences in all bins */
    size_t n_groups;            /* groups in all bins */
    size_t n_inputs;            /* documents of the input, with dropped ones */
    uint64_t n_tokens, n_positions; /* without and with padding */
    uint32_t capacity; /* that of packing, or max_tokens if padding anew has
                          made a bin longer */
    uint32_t align, max_tokens, max_seqlen;
    uint32_t vocab; /* one more than the largest token id */
    struct pp_epoch_order epoch;
    enum pp_data_kind kind;
    uint32_t top_k; /* elements of a position in columns that are lists */
    uint32_t bytes; /* 1: the ids are bytes and PP_BYTES_END, not tokens of a
                       model; else 0 */
    struct pp_input_counts input;
    uint64_t checksum; /* of the index; a manifest records it */
    uint64_t origin;   /* the checksum of the index that was realigned, however
                          often, into this one; else its own. Sets with the same
                          have the same bins, but for padding; a checkpoint
                          records it */
    struct pp_packed_stream streams[PP_N_MODALITIES];
    uint32_t generator_vocab; /* one more than the largest of the generator's
                                 ids; 0: the set has none */
    /* The context-parallel ranks of which each sequence has some, and the most
     * positions of a bin on one of them. 0: all ranks share all sequences. */
    uint32_t cp, max_rank_tokens;
    /* Private to the files of packed. */
    const void *map[PP_PACKED_N_FILES];
    size_t map_bytes[PP_PACKED_N_FILES];
    const void *sections[17];
    char *dir;   /* the directory, or NULL */
    void *owned; /* holds everything if made in memory, else NULL */
    void *owned_items[PP_N_MODALITIES]; /* likewise, the items */
};

/* One bin. Sequence i begins at position cu_seqlens_padded[i] and has
 * cu_seqlens[i + 1] - cu_seqlens[i] tokens; its other positions are padding
 * with label -100. */
struct pp_bin {
    uint32_t n_sequences;
    uint32_t tokens;     /* positions: cu_seqlens_padded[n_sequences] */
    uint32_t scored;     /* labels other than -100, except at position 0 of each
                            sequence: nothing predicts it */
    uint32_t n_groups;   /* sequences that belong together count once */
    uint32_t max_seqlen; /* positions of the largest sequence */
    uint64_t first_position;          /* among the positions of all bins */
    const int32_t *cu_seqlens;        /* n_sequences + 1 */
    const int32_t *cu_seqlens_padded; /* n_sequences + 1 */
    const uint32_t *source;           /* input index of each sequence */
    const uint32_t *start; /* position of its first token there: not 0
                              if a long input was split */
    /* One element per position. Labels are in line with input_ids, not shifted.
     */
    const int32_t *input_ids, *labels;
    /* n_groups + 1: group g is sequences cu_groups[g]..cu_groups[g + 1]; NULL
     * if every sequence is a group. */
    const uint32_t *cu_groups;
    const float *columns[PP_N_COLUMNS]; /* the bin's elements; NULL: absent */
    uint32_t top_k;                     /* as in struct pp_packed */
    const struct pp_rank_range *ranks;  /* n_sequences, or NULL: all ranks */
};

/* Returns whether dir has an index of this format. */
bool pp_packed_is(const char *dir);

/* Returns the modality of a set with one stream; images if it has none, or
 * both. */
enum pp_modality pp_packed_modality(const struct pp_packed *p);

/* Maps dir and checks the index: its checksum, and every number against the
 * others and the sizes of the files. The checksums of the columns are left to
 * the list of pp_packed_list_files, and vocab and the counts of scored labels
 * to pp_packed_check. */
int pp_packed_open(const char *dir, struct pp_packed *p,
                   struct pp_err *err) PP_MUST_USE;

/* Fills *out with bin b, which is below n_bins. */
void pp_packed_bin(const struct pp_packed *p, size_t b, struct pp_bin *out);

/* Computes a hash of the sequences of all bins: their places and their ids. It
 * does not depend on labels and other columns. It is never 0. */
int pp_packed_sequences(const struct pp_packed *p, uint64_t *hash,
                        struct pp_err *err) PP_MUST_USE;

/* Returns whether the set has tokens for a generator behind the language model:
 * in line with input_ids, an id that the generator reads and a label, or
 * PP_LABEL_IGNORE. */
static inline bool pp_packed_has_generator(const struct pp_packed *p)
{
    return p->generator_vocab > 0;
}

/* Does the work of pp_packed_bin for the generator: the bin's input_ids, labels
 * and scored are the generator's, and it has no columns. The set has a
 * generator's tokens, which are never in other files. */
void pp_packed_generator_bin(const struct pp_packed *p, size_t b,
                             struct pp_bin *out);

/* Returns the scored labels of all bins, or the generator's, if it has some. */
uint64_t pp_packed_scored(const struct pp_packed *p, bool generator);

/* Returns the bin of microbatch `at`, counted from the start of the training
 * over all epochs, or PP_NO_BIN. The first epoch has the packed order. */
size_t pp_packed_place(const struct pp_packed *p, uint64_t at);

/* Returns the number of microbatches of an epoch. */
static inline uint64_t pp_packed_epoch(const struct pp_packed *p)
{
    return p->epoch.length ? p->epoch.length : p->n_bins;
}

/* Appends the columns, with the checksums of the index. */
int pp_packed_list_files(const struct pp_packed *p, struct pp_file_checks *out,
                         struct pp_err *err) PP_MUST_USE;

/* Checks the checksums of the columns. PP_EXIT_INPUT if one
 * is wrong. */
int pp_packed_check_files(const struct pp_packed *p,
                          struct pp_err *err) PP_MUST_USE;

/* Checks checksums, ids, labels and padding, and the counts that depend on
 * them. Fails with PP_EXIT_NO at the first fault. The message names dir. */
int pp_packed_check(const struct pp_packed *p, struct pp_err *err) PP_MUST_USE;

/* Gives the mapped pages back to the system. They are read again when they are
 * needed. */
void pp_packed_release(const struct pp_packed *p);

/* Unmaps everything. Accepts a zeroed struct. */
void pp_packed_finish(struct pp_packed *p);

/* Writes PREFIX.bin and PREFIX.idx, an indexed dataset of Megatron. Each
 * packed sequence is a document, in packed order, without padding. As in
 * Megatron, elements have 16 bits if the vocabulary is less than 65500. The
 * format cannot hold labels other than the ids, groups and columns: these
 * are PP_EXIT_INPUT. */
int pp_packed_export_megatron(const struct pp_packed *p, const char *prefix,
                              struct pp_err *err) PP_MUST_USE;

/* The ranks that share the bins; 0: unknown. */
struct pp_packed_ranks {
    uint32_t cp, dp;
};

/* Writes a safetensors file: input_ids, labels, cu_seqlens, cu_seqlens_padded,
 * cu_bins, source, start, and the groups and columns if there are any. If cp is
 * known also cp_index, the positions of each context-parallel rank; the padded
 * sequences must be multiples of 2 cp. If dp is known also dp_balanced, the bin
 * of each microbatch and rank; the bins must be a multiple of dp. */
int pp_packed_export_safetensors(const struct pp_packed *p,
                                 const struct pp_packed_ranks *ranks,
                                 const char *path,
                                 struct pp_err *err) PP_MUST_USE;

/* The contents of a packed directory to write. */
struct pp_packed_content {
    const int32_t *ids;    /* tokens of all inputs */
    const int32_t *labels; /* one per token; NULL: the ids are the labels */
    const struct pp_piece *pieces; /* none empty */
    size_t n_bins;
    const size_t *first; /* n_bins + 1: bin b is items[first[b]..first[b+1]) */
    const uint32_t *items; /* indices into pieces */
    size_t n_inputs;
    uint32_t capacity, align;
    uint32_t
        row_capacity[PP_N_MODALITIES]; /* most rows of a bin; 0: no limit */
    struct pp_epoch_order epoch;
    /* The documents of the pieces: their sequences, columns and images.
     * NULL: a piece is a sequence, and there are no columns. */
    const struct pp_documents *docs;
    size_t first_document;  /* the document of source 0 */
    const uint32_t *inputs; /* the input of each source; NULL: the source */
    uint64_t origin;        /* as in struct pp_packed; 0: the set is its own */
    struct pp_input_counts counts;
    /* The context-parallel ranks that have each sequence, in packed order, of
     * cp ranks; NULL: all. */
    const struct pp_rank_range *ranks;
    uint32_t cp;
    /* Called from time to time with the bins written so far; may be NULL. */
    void (*progress)(void *ctx, size_t bins);
    void *ctx;
};

/* Checks that dir may be written: it is absent, empty, or a packed directory
 * with no other files. Else PP_EXIT_INPUT. */
int pp_packed_may_write(const char *dir, struct pp_err *err) PP_MUST_USE;

/* Writes a directory beside dir, flushes it to the disk and then replaces dir
 * by it in one step; an old packed directory stays whole until then. A failure
 * leaves nothing beside dir. There must be at least one bin. */
int pp_packed_write(const char *dir, const struct pp_packed_content *c,
                    struct pp_err *err) PP_MUST_USE;

/* The next functions make packed sets in memory from another set. They are read
 * like a mapped directory and freed by pp_packed_finish. Sequences are numbered
 * anew: source counts them in bin order, so that the same number means the same
 * sequence in all sets made from the same bins. */

/* Copies the first n_bins bins, with the columns of tokens and sequences, and
 * the ranks of sequences. After the last bin it goes on with the first. */
int pp_packed_take(const struct pp_packed *p, size_t n_bins,
                   struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* Puts every sequence or pair of p into its own bin, in order, without padding.
 * p was made by pp_packed_take; sequences keep their numbers. */
int pp_packed_unpack(const struct pp_packed *p, struct pp_packed *out,
                     struct pp_err *err) PP_MUST_USE;

/* Puts every sequence of p, in order, into its own bin, with `extra` tokens of
 * id 0 behind it that have no label. A bin has a multiple of `align` tokens,
 * with padding; align is at least 1. */
int pp_packed_extend(const struct pp_packed *p, uint32_t extra, uint32_t align,
                     struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* How a packed directory is padded anew. */
struct pp_realignment {
    uint32_t align;    /* the padded length of a sequence is a multiple of it */
    uint32_t row;      /* the padded length of a bin, of this one */
    const char *spill; /* a directory for tokens beyond spill_bytes */
    size_t spill_bytes;
};

/* Writes the bins of p to dir, which may be p's own, with other padding. The
 * index keeps the capacity, above which bins may be. Sequences that have ranks
 * of their own are PP_EXIT_INPUT. (realign.c) */
int pp_packed_realign(const struct pp_packed *p, const struct pp_realignment *o,
                      const char *dir, struct pp_err *err) PP_MUST_USE;

struct pp_synthetic_data {
    uint32_t tokens;        /* approximate positions of the largest bin */
    uint32_t max_sequences; /* per bin; others are left out */
    uint32_t vocab;
    uint32_t align; /* padded lengths are multiples of it; 0: of 1 */
    uint64_t seed;
};

/* Makes n_bins bins of random ids and columns. Lengths, padding and ignored
 * labels are as in p's first bins, scaled down; ranks of sequences stay.
 * Without p, lengths are random too, and nothing is padded. */
int pp_packed_synthetic(const struct pp_packed *p, size_t n_bins,
                        const struct pp_synthetic_data *l,
                        struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

#endif
