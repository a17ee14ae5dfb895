/* SPDX-License-Identifier: MIT */
/* documents - tokenised documents and their columns. The readers of the input
 * formats fill them, and the packer reads them.
 *
 * Tokens are in memory or, if there are many, in mapped files without a name. A
 * document is one sequence, or several that belong together. */
#ifndef PP_DATA_DOCUMENTS_H
#define PP_DATA_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/items.h"
#include "data/spill.h"

enum pp_column {
    PP_COLUMN_ADVANTAGES,
    PP_COLUMN_LOGPROBS,
    PP_COLUMN_PREV_LOGPROBS,
    PP_COLUMN_REF_LOGPROBS,
    PP_COLUMN_REWARDS,
    PP_COLUMN_REF_LOGPS,
    PP_COLUMN_MARGINS,
    PP_COLUMN_TOPK_IDS,
    PP_COLUMN_TOPK_LOGITS,
    PP_COLUMN_GENERATOR_IDS, /* of a generator behind the language model */
    PP_COLUMN_GENERATOR_LABELS,
    PP_N_COLUMNS
};

/* The things of which an array of a packed directory has one or several
 * elements each. A column has them for a token, sequence or group. The numbers
 * stand in pp-pack(5). */
enum pp_scope {
    PP_SCOPE_TOKEN,
    PP_SCOPE_SEQUENCE,
    PP_SCOPE_GROUP,
    PP_SCOPE_ROW,
    PP_SCOPE_BIN,
    PP_SCOPE_ITEM,
    PP_N_SCOPES
};

struct pp_column_kind {
    const char *name; /* also of its file in a packed directory */
    enum pp_scope scope;
    bool is_list; /* several elements, as many for every token */
    bool is_ids;  /* int32 in place of float: pointers to float hold it, and
                     it is only copied through them */
    int32_t pad;  /* of ids: in padding and in sequences that have none */
};

extern const struct pp_column_kind pp_columns[PP_N_COLUMNS];

/* Returns how many elements a token, sequence or group has, if lists have
 * top_k. */
static inline size_t pp_column_width(int column, size_t top_k)
{
    return pp_columns[column].is_list ? top_k : 1;
}

/* The most elements of a list; kernels take no more. */
enum { PP_LONGEST_LIST = 1024 };

/* Ids of lists are kept as floats, which have all integers below this one. */
#define PP_LISTED_IDS (1 << 24)

/* The kind of all documents of an input. pp-pack(5) has the numbers. */
enum pp_data_kind {
    PP_DATA_DOCUMENTS, /* one sequence each */
    PP_DATA_PAIRS,     /* two sequences: chosen, then rejected */
    PP_DATA_ROLLOUTS,  /* one or more sequences: responses to one prompt */
    PP_DATA_N_KINDS
};

extern const char *const pp_data_kinds[PP_DATA_N_KINDS];

/* The integer types of token ids, with the codes of Megatron's indexed
 * datasets. */
enum pp_token_type {
    PP_TOKEN_U8 = 1,
    PP_TOKEN_I8 = 2,
    PP_TOKEN_I16 = 3,
    PP_TOKEN_I32 = 4,
    PP_TOKEN_I64 = 5,
    PP_TOKEN_F64 = 6, /* not tokens */
    PP_TOKEN_F32 = 7, /* not tokens */
    PP_TOKEN_U16 = 8,
    PP_TOKEN_N_TYPES, /* the end of Megatron's; arrays have the others */
    PP_TOKEN_U32,
    PP_TOKEN_U64
};

/* Returns the bytes of one token, or 0 if the code is unknown or not an
 * integer. */
unsigned pp_token_bytes(unsigned type);

/* Converts n little-endian integers at any address to token ids. A number that
 * is negative or above 2^31 - 2 becomes -1. Returns false if there was one. */
bool pp_token_convert(unsigned type, const void *from, size_t n, int32_t *out);

/* Sequences or tokens that were left out of a document. */
struct pp_omission {
    size_t document, n_sequences, n_tokens;
};

/* A zeroed struct is empty. */
struct pp_documents {
    size_t n, n_sequences;
    size_t *first;    /* n_sequences + 1: sequence s is
                         ids[first[s]..first[s + 1]); NULL if there is none */
    uint32_t *member; /* n + 1: document i is sequences member[i]..member[i +
                         1]; NULL if each is one sequence */
    int32_t *ids;     /* at least 0; NULL if they are not kept */
    bool forget_ids;  /* keep only lengths and labels, and of a label only
                         whether it is PP_LABEL_IGNORE; set before adding */
    int32_t *labels;  /* like ids, or PP_LABEL_IGNORE; NULL if every label is
                         its id */
    float *columns[PP_N_COLUMNS]; /* an element per token, sequence or document,
                                     by scope; NULL if absent */
    size_t top_k;                 /* elements of a list, or 0 */
    struct pp_items items[PP_N_MODALITIES]; /* of the sequences */
    enum pp_data_kind kind;
    bool bytes;       /* some ids are bytes and PP_BYTES_END, not tokens of a
                         model */
    size_t n_skipped; /* malformed lines that were skipped */
    struct pp_omission
        *omissions; /* n_omissions elements, by ascending document */
    size_t n_omissions;

    /* A directory for tokens beyond spill_bytes, on a file system with room;
     * borrowed. NULL keeps all tokens in memory. */
    const char *spill;
    size_t spill_bytes;

    /* Private. */
    struct pp_spill_array grow_first, grow_member, grow_ids, grow_labels,
        grow_columns[PP_N_COLUMNS], grow_omissions;
    size_t n_values[PP_N_COLUMNS]; /* elements so far */
    size_t released;               /* tokens at the last release */
};

/* Returns the number of tokens of all documents. */
size_t pp_documents_n_tokens(const struct pp_documents *d);

/* Returns the first sequence of document i; for i = n it is n_sequences. */
static inline size_t pp_documents_sequence(const struct pp_documents *d,
                                           size_t i)
{
    return d->member ? d->member[i] : i;
}

/* Returns room for the n tokens of the next sequence, or NULL with *err filled.
 * It is valid until the next call. */
int32_t *pp_documents_reserve(struct pp_documents *d, size_t n,
                              struct pp_err *err) PP_MUST_USE;

/* Appends a document of one sequence, whose n ids are in the reserved room.
 * labels has n elements; NULL if the labels are the ids. If only lengths are
 * known, nothing is reserved, and ids stays NULL. */
int pp_documents_add(struct pp_documents *d, size_t n, const int32_t *labels,
                     struct pp_err *err) PP_MUST_USE;

/* Joins the last document to the one before it. */
int pp_documents_join(struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* Reports whether any sequence has items of a modality. */
bool pp_documents_have_items(const struct pp_documents *d);

/* Attaches the loaded items of all modalities to the last sequence, which has
 * none. */
int pp_documents_attach_items(struct pp_documents *d,
                              struct pp_err *err) PP_MUST_USE;

/* Sets a column's values for the last sequence: one or a list per token, or
 * one; they are float, or int32 in columns of ids. Call it before
 * pp_documents_join. */
int pp_documents_set_column(struct pp_documents *d, enum pp_column column,
                            const void *values, struct pp_err *err) PP_MUST_USE;

/* Sets the length of lists, before the first column of lists. Fails with
 * PP_EXIT_INPUT if the lists of earlier documents have another length. 0: the
 * next documents have none. */
int pp_documents_set_top_k(struct pp_documents *d, size_t top_k,
                           struct pp_err *err) PP_MUST_USE;

/* Sets the tokens of a generator for the last sequence: its ids and their
 * labels, one each per token. NULL labels: the ids where the sequence has a
 * label, and else PP_LABEL_IGNORE. Sequences without such tokens get ids of 0
 * without a label. Fails with PP_EXIT_INPUT if the documents have other columns
 * or are pairs or rollouts. */
int pp_documents_set_generator(struct pp_documents *d, const int32_t *ids,
                               const int32_t *labels,
                               struct pp_err *err) PP_MUST_USE;

/* Makes a column of all documents, or returns the one that there is, for the
 * caller to fill: an element per token, sequence or document. Nothing may be
 * added later. */
float *pp_documents_make_column(struct pp_documents *d, enum pp_column column,
                                struct pp_err *err) PP_MUST_USE;

/* The responses that a reward is compared with: all of its group, or the others
 * of its group. */
enum pp_baseline { PP_BASELINE_GROUP, PP_BASELINE_LEAVE_ONE_OUT };

/* Makes the column of advantages from that of rewards: 0 at the tokens without
 * a label. Fails with PP_EXIT_INPUT unless the documents are rollouts with
 * rewards. (advantages.c) */
int pp_documents_add_advantages(struct pp_documents *d,
                                enum pp_baseline baseline,
                                struct pp_err *err) PP_MUST_USE;

/* Checks that the last document, now complete, has the columns and the kind of
 * the earlier ones. */
int pp_documents_check_last(struct pp_documents *d, enum pp_data_kind kind,
                            struct pp_err *err) PP_MUST_USE;

/* Removes all documents from n on. */
void pp_documents_truncate(struct pp_documents *d, size_t n);

/* Lets the mapped tokens leave memory, since they will not be read soon. */
void pp_documents_release(struct pp_documents *d);

/* Notes what was left out of a document, the last one with omissions. */
int pp_documents_add_omission(struct pp_documents *d, size_t document,
                              size_t n_sequences, size_t n_tokens,
                              struct pp_err *err) PP_MUST_USE;

/* Readers call it after every line, with the bytes read so far. */
typedef void pp_read_progress_fn(void *ctx, size_t line, size_t bytes);

void pp_documents_finish(struct pp_documents *d);

#endif
