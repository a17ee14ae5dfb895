/* SPDX-License-Identifier: MIT */
/* readers - documents from all input formats: arrays, JSON Lines, lengths,
 * Megatron's indexed datasets, packed directories. pp-pack(5) describes
 * them. */
#ifndef PP_DATA_READERS_H
#define PP_DATA_READERS_H

#include <stdbool.h>
#include <stdio.h>

#include "data/documents.h"

struct pp_packed;

enum { PP_ARRAY_MAX_DIMS = 3 }; /* documents have at most two */

/* An array from a .npy or .safetensors file: little endian, row by row. data
 * may be at any address. */
struct pp_array {
    unsigned type; /* enum pp_token_type; bool is PP_TOKEN_U8 */
    int n_dims;
    size_t dims[PP_ARRAY_MAX_DIMS];
    size_t n; /* elements */
    const void *data;
};

/* Finds the array of that name. Returns 1, 0 if there is none, or -1 with *err
 * filled. */
typedef int pp_array_find_fn(void *ctx, const char *name, struct pp_array *out,
                             struct pp_err *err);

/* Returns whether the elements are reals. */
bool pp_array_is_real(const struct pp_array *a);

/* Returns element i of an array of reals. */
float pp_array_real(const struct pp_array *a, size_t i);

/* Appends the documents of arrays: ids one after the other with cu_seqlens, or
 * a row each. name starts messages. Empty documents are an error unless
 * allowed. */
int pp_arrays_read(const char *name, pp_array_find_fn *find, void *ctx,
                   bool allow_empty, struct pp_documents *d,
                   struct pp_err *err) PP_MUST_USE;

/* Reads NAME.npy, which holds input_ids, and every NAME.COLUMN.npy beside
 * it. */
int pp_npy_read(const char *path, bool allow_empty, struct pp_documents *d,
                struct pp_err *err) PP_MUST_USE;

/* Parses a .npy file in memory, of a plain type and few dimensions. The data of
 * *out point into it. */
int pp_npy_parse(const char *name, const void *data, size_t bytes,
                 struct pp_array *out, struct pp_err *err) PP_MUST_USE;

/* Reads a .safetensors file whose tensors have these names. */
int pp_safetensors_read(const char *path, bool allow_empty,
                        struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

#define PP_BYTES_END 256 /* the byte tokenizer's end of document */

/* How lines have items of a modality. */
struct pp_jsonl_stream {
    uint32_t token;  /* the id of placeholders */
    uint32_t merge;  /* see base/modality.h; at least 1 */
    uint32_t patch;  /* pixels of a patch, each way; 0: images are patches */
    uint32_t frames; /* of a patch, all alike; 0: 1 */
    bool class_out;  /* as in struct pp_item_kind */
    const struct pp_pixel_map *map; /* of images of pixels; NULL: as they are */
};

/* JSON Lines: an object per line with "input_ids", or with "text" for the byte
 * tokenizer, or a chat, a preference pair or rollouts. Other keys are checked
 * and skipped. */
struct pp_jsonl {
    const char *name; /* in messages: "data.jsonl"; items are relative to its
                         folder */
    bool bytes;       /* tokens are the bytes of "text", then PP_BYTES_END */
    bool allow_empty; /* take documents without tokens; else an error */
    const struct pp_jsonl_stream
        *streams[PP_N_MODALITIES]; /* NULL: items of
                                      it are an error */
    size_t longest;  /* most tokens of a document or of a response; more is
                        an error that skip_bad does not skip; 0: no limit */
    size_t skip_bad; /* malformed lines to skip, in all inputs together; the
                        documents count them */
    /* Called with the error of each skipped line; may be NULL. */
    void (*skipped)(void *ctx, const char *error);
    pp_read_progress_fn *progress; /* may be NULL */
    void *ctx;
};

/* Appends the documents of f. Malformed input is PP_EXIT_INPUT, with name and
 * line. */
int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err) PP_MUST_USE;

/* Makes a column of all documents from the lines of ppscore --logprobs: objects
 * with "sequence", the number of a document, and "logprobs", a number per token
 * of all its sequences. The column is replaced if there is one. Every document
 * must have a line. */
int pp_token_scores_read(const char *name, FILE *f, enum pp_column column,
                         struct pp_documents *d,
                         struct pp_err *err) PP_MUST_USE;

/* The same for the ids and values of the largest logits at every token, the
 * columns of lists. A token without any has ids of -1. */
int pp_top_k_scores_read(const char *name, FILE *f, struct pp_documents *d,
                         struct pp_err *err) PP_MUST_USE;

/* Appends documents of which only the length is known: f has a number per line.
 * Empty lines are skipped. name starts messages; progress may be NULL. */
int pp_lengths_read(const char *name, FILE *f, struct pp_documents *d,
                    pp_read_progress_fn *progress, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

/* Returns whether the name means one of Megatron's indexed datasets:
 * NAME.idx, NAME.bin, or a NAME that is no file if NAME.idx is one. The
 * first *prefix_bytes of the name are then the prefix. PREFIX.idx has the
 * place of each sequence and the sequences of each document; PREFIX.bin has
 * the tokens. */
bool pp_indexed_is_name(const char *name, size_t *prefix_bytes);

struct pp_indexed_options {
    bool allow_empty;  /* else empty documents are an error */
    const bool *modes; /* 256 elements, by mode (an int8 as an unsigned number):
                          whether to take its sequences. Others are left out of
                          their documents. NULL takes mode 0, and another mode
                          is an error */
};

/* Appends the documents of PREFIX.idx and PREFIX.bin. Checks all of the index
 * before it reads a token. Malformed input is PP_EXIT_INPUT, with the file's
 * name. */
int pp_indexed_read(const char *prefix, const struct pp_indexed_options *o,
                    struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* Like pp_indexed_read, from memory. The names are for
 * messages. */
int pp_indexed_parse(const char *idx_name, const void *idx, size_t idx_bytes,
                     const char *bin_name, const void *bin, size_t bin_bytes,
                     const struct pp_indexed_options *o, struct pp_documents *d,
                     struct pp_err *err) PP_MUST_USE;

/* Appends the documents of a packed directory in the order of their input. Puts
 * the pieces of a split document together again. */
int pp_packed_documents(const struct pp_packed *p, struct pp_documents *d,
                        struct pp_err *err) PP_MUST_USE;

#endif
