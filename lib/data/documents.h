/* SPDX-License-Identifier: MIT */
/* documents - tokenised inputs, one after the other. What the readers of the
 * input formats fill and the packer takes.
 *
 * Tokens are held in memory, or, where there are many, in files without a name
 * that are mapped. A document is what a bin takes as a whole: a sequence, or
 * several that belong together. */
#ifndef PP_DATA_DOCUMENTS_H
#define PP_DATA_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pp_column {
    PP_COLUMN_ADVANTAGES,
    PP_COLUMN_LOGPROBS,
    PP_COLUMN_PREV_LOGPROBS,
    PP_COLUMN_REF_LOGPROBS,
    PP_COLUMN_REWARDS,
    PP_COLUMN_REF_LOGPS,
    PP_COLUMN_MARGINS,
    PP_N_COLUMNS
};

/* What a column has one element for. The numbers are those of pp-pack(5). */
enum pp_scope { PP_SCOPE_TOKEN, PP_SCOPE_SEQUENCE, PP_SCOPE_GROUP };

struct pp_column_kind {
    const char *name; /* of the file in a packed directory */
    enum pp_scope scope;
};

extern const struct pp_column_kind pp_columns[PP_N_COLUMNS];

/* What the documents of an input are. The numbers are those of pp-pack(5). */
enum pp_data_kind {
    PP_DATA_DOCUMENTS, /* a sequence each */
    PP_DATA_PAIRS,     /* two: the chosen one, then the rejected one */
    PP_DATA_ROLLOUTS,  /* one or more: the responses to one prompt */
    PP_DATA_N_KINDS
};

extern const char *const pp_data_kinds[PP_DATA_N_KINDS];

/* token_type - integers of several widths as token ids. The types have the
 * codes of Megatron's indexed datasets. */
enum pp_token_type {
    PP_TOKEN_U8 = 1,
    PP_TOKEN_I8 = 2,
    PP_TOKEN_I16 = 3,
    PP_TOKEN_I32 = 4,
    PP_TOKEN_I64 = 5,
    PP_TOKEN_F64 = 6, /* not tokens */
    PP_TOKEN_F32 = 7, /* not tokens */
    PP_TOKEN_U16 = 8,
    PP_TOKEN_N_TYPES, /* of Megatron; the others are in other files */
    PP_TOKEN_U32,
    PP_TOKEN_U64
};

/* Bytes of one token; 0 for a code that is unknown or not of integers. */
unsigned pp_token_bytes(unsigned type);

/* n little-endian integers at any address as token ids; what is none, because
 * it is negative or above 2^31 - 2, becomes -1. False when there was one. */
bool pp_token_convert(unsigned type, const void *from, size_t n, int32_t *out);

/* An array that grows; private to documents.c. Zeroed is empty. */
struct pp_spill_array {
    void *at;
    size_t room, bytes; /* elements, and what they take */
    int fd;             /* of its file, plus one; 0 while in memory */
};

/* A file of tokens that documents lie in, where they are not copied. */
struct pp_token_file {
    char *path;
    const void *map;
    size_t bytes;
    uint64_t checksum; /* FNV-1a 64 of the file */
    unsigned type;     /* enum pp_token_type */
};

/* What was left out of a document when it was read. */
struct pp_omission {
    size_t document, n_sequences, n_tokens;
};

/* A zeroed struct is empty. */
struct pp_documents {
    size_t n, n_sequences;
    size_t *first;    /* n_sequences + 1: sequence s is
                         ids[first[s]..first[s + 1]); NULL while there is none */
    uint32_t *member; /* n + 1: document i is sequences member[i]..member[i +
                         1]; NULL while each is one sequence */
    int32_t *ids;     /* at least 0; NULL where they are not kept */
    bool forget_ids;  /* set before anything is added: only lengths and labels
                         are wanted, and a label is PP_LABEL_IGNORE or not */
    int32_t *labels;  /* like ids, or PP_LABEL_IGNORE; NULL while every label is
                         its id */
    float *columns[PP_N_COLUMNS]; /* an element per token, sequence or document,
                                     as their scope says; NULL: not there */
    enum pp_data_kind kind;
    size_t n_skipped; /* malformed lines that were left out */
    struct pp_omission
        *omissions; /* n_omissions of them, by ascending document */
    size_t n_omissions;

    /* With ids left in their files: document i begins at byte file_at[i] of
     * files[file_of[i]]. */
    struct pp_token_file *files;
    size_t n_files;
    uint32_t *file_of;
    uint64_t *file_at;

    /* Where tokens go when there are more than spill_bytes of them: a directory
     * on whose file system there is room; NULL: always memory. Borrowed. */
    const char *spill;
    size_t spill_bytes;

    /* Private. */
    struct pp_spill_array grow_first, grow_member, grow_ids, grow_labels,
        grow_columns[PP_N_COLUMNS], grow_file_of, grow_file_at, grow_omissions;
    size_t n_values[PP_N_COLUMNS]; /* elements that were put */
    size_t released;               /* tokens at the last release */
};

/* Tokens of all documents. */
size_t pp_documents_n_tokens(const struct pp_documents *d);

/* The first sequence of document i; of n: n_sequences. */
static inline size_t pp_documents_sequence(const struct pp_documents *d,
                                           size_t i)
{
    return d->member ? d->member[i] : i;
}

/* Where the next sequence's tokens go, with room for n of them; NULL with *err
 * filled on failure. Valid until the next call. */
int32_t *pp_documents_reserve(struct pp_documents *d, size_t n,
                              struct pp_err *err) PP_MUST_USE;

/* Appends a document of one sequence, the n ids that were put there. labels has
 * n elements, or is NULL when the labels are the ids. Where only lengths are
 * known no ids are put anywhere, and ids stays NULL. */
int pp_documents_add(struct pp_documents *d, size_t n, const int32_t *labels,
                     struct pp_err *err) PP_MUST_USE;

/* Makes the last document part of the one before it. */
int pp_documents_join(struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* Puts a column's values for the last sequence: one per token, or one. Before
 * pp_documents_join. */
int pp_documents_set_column(struct pp_documents *d, enum pp_column column,
                            const float *values,
                            struct pp_err *err) PP_MUST_USE;

/* After the last sequence of a document: whether it has the columns that those
 * before it have, and is of their kind. */
int pp_documents_check_last(struct pp_documents *d, enum pp_data_kind kind,
                            struct pp_err *err) PP_MUST_USE;

/* Forgets all documents from n on. */
void pp_documents_truncate(struct pp_documents *d, size_t n);

/* Says that the tokens mapped so far will not be read soon: what lies in files
 * leaves memory. */
void pp_documents_release(struct pp_documents *d);

/* Says where the last document lies: byte at of the last of files. */
int pp_documents_set_place(struct pp_documents *d, uint64_t at,
                           struct pp_err *err) PP_MUST_USE;

/* Says that so much of the last document was left out. */
int pp_documents_add_omission(struct pp_documents *d, size_t n_sequences,
                              size_t n_tokens, struct pp_err *err) PP_MUST_USE;

/* Appends to files; takes what f holds, also on failure. */
int pp_documents_add_file(struct pp_documents *d, const struct pp_token_file *f,
                          struct pp_err *err) PP_MUST_USE;

/* Called by readers after every line with the bytes read so far. */
typedef void pp_read_progress_fn(void *ctx, size_t line, size_t bytes);

void pp_documents_finish(struct pp_documents *d);

#endif
