/* SPDX-License-Identifier: MIT */
/* readers - documents from numbered arrays, as .npy and .safetensors files hold
 * them: ids one after the other with cu_seqlens, or a row each. pppack(1) has
 * the names. */
#ifndef PP_DATA_READERS_H
#define PP_DATA_READERS_H

#include <stdbool.h>
#include <stdio.h>

#include "data/documents.h"

struct pp_packed;

enum { PP_ARRAY_MAX_DIMS = 2 };

/* An array in little-endian order, rows one after the other; data may be at any
 * address. */
struct pp_array {
    unsigned type; /* enum pp_token_type; bool is PP_TOKEN_U8 */
    int n_dims;
    size_t dims[PP_ARRAY_MAX_DIMS];
    size_t n; /* elements */
    const void *data;
};

/* The array of that name: 1, or 0 where there is none, or -1 with *err. */
typedef int pp_array_find_fn(void *ctx, const char *name, struct pp_array *out,
                             struct pp_err *err);

/* Appends the documents; name is the source's in messages. Empty documents are
 * an error unless allowed. */
int pp_arrays_read(const char *name, pp_array_find_fn *find, void *ctx,
                   bool allow_empty, struct pp_documents *d,
                   struct pp_err *err) PP_MUST_USE;

/* NAME.npy holds input_ids, NAME.labels.npy labels, and so on: all that are
 * there are read. */
int pp_npy_read(const char *path, bool allow_empty, struct pp_documents *d,
                struct pp_err *err) PP_MUST_USE;

/* A .npy file in memory, of a plain type and at most two dimensions. The data
 * of *out point into it. */
int pp_npy_parse(const char *name, const void *data, size_t bytes,
                 struct pp_array *out, struct pp_err *err) PP_MUST_USE;

/* A .safetensors file with tensors of these names. */
int pp_safetensors_read(const char *path, bool allow_empty,
                        struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* jsonl - documents from JSON Lines: an object per line with "input_ids", or
 * with "text" for the byte tokenizer, or a chat, a preference pair or rollouts.
 * pppack(1) says what each key means. Other keys are checked and skipped. */
#define PP_BYTES_END 256 /* the byte tokenizer's end of document */

struct pp_jsonl {
    const char *name; /* for messages: "data.jsonl" */
    bool bytes;       /* tokens are the bytes of "text", then PP_BYTES_END */
    bool allow_empty; /* take documents without tokens: an error otherwise */
    size_t longest;   /* tokens of a document that is one sequence: more are an
                         error, which skip_bad does not leave out; 0: any */
    size_t skip_bad;  /* malformed lines to leave out, of all inputs of the
                         documents; each is counted there */
    /* Called with the error of each; may be NULL. */
    void (*skipped)(void *ctx, const char *error);
    pp_read_progress_fn *progress; /* may be NULL */
    void *ctx;
};

/* Appends the documents of f. Malformed input is PP_EXIT_INPUT with name and
 * line. */
int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err) PP_MUST_USE;

/* lengths - documents of which only the length is known: a number per line. */
/* Appends a document per line of f that is not empty. name is f's in messages;
 * progress may be NULL. */
int pp_lengths_read(const char *name, FILE *f, struct pp_documents *d,
                    pp_read_progress_fn *progress, void *ctx,
                    struct pp_err *err) PP_MUST_USE;

/* indexed - documents from Megatron's indexed datasets: PREFIX.idx, which says
 * where each sequence lies and which sequences make a document, and
 * PREFIX.bin, the tokens. */
/* Whether an input's name means such a pair: NAME.idx, NAME.bin, or a NAME
 * that is no file while NAME.idx is one. Then *prefix_bytes of it are the
 * prefix. */
bool pp_indexed_is_name(const char *name, size_t *prefix_bytes);

/* How a dataset is read. */
struct pp_indexed_options {
    bool allow_empty;  /* empty documents are an error otherwise */
    bool index_only;   /* tokens are left where they are: each document's
                          sequences have to lie one after the other then */
    const bool *modes; /* 256: whether sequences of the mode, an int8 as an
                          unsigned number, are taken; others are left out of
                          their documents. NULL: mode 0 is taken, another is an
                          error */
};

/* Appends the documents of PREFIX.idx and PREFIX.bin. Everything the index says
 * is verified against the size of the tokens before any is read; malformed
 * input is PP_EXIT_INPUT with the file's name. */
int pp_indexed_read(const char *prefix, const struct pp_indexed_options *o,
                    struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* The same from memory, tokens copied; the names are for messages. */
int pp_indexed_parse(const char *idx_name, const void *idx, size_t idx_bytes,
                     const char *bin_name, const void *bin, size_t bin_bytes,
                     const struct pp_indexed_options *o, struct pp_documents *d,
                     struct pp_err *err) PP_MUST_USE;

/* packed_documents - the documents of a packed directory, to be packed anew. */
/* Appends them in the order of the input they were; the pieces of one that was
 * split are put together again. */
int pp_packed_documents(const struct pp_packed *p, struct pp_documents *d,
                        struct pp_err *err) PP_MUST_USE;

#endif
