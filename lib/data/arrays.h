/* SPDX-License-Identifier: MIT */
/* arrays - documents from numbered arrays, as .npy and .safetensors files hold
 * them: ids one after the other with cu_seqlens, or a row each. pppack(1) has
 * the names. */
#ifndef PP_DATA_ARRAYS_H
#define PP_DATA_ARRAYS_H

#include <stdbool.h>

#include "data/documents.h"

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
int pp_columns_file_read(const char *path, bool allow_empty,
                         struct pp_documents *d,
                         struct pp_err *err) PP_MUST_USE;

#endif
