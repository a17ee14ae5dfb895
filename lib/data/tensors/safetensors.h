/* SPDX-License-Identifier: MIT */
/* safetensors - reads and writes Hugging Face's tensor files.
 *
 * A file has a u64 header size, little endian; a JSON header {name: {dtype,
 * shape, data_offsets}}; and the data. A set is one file, or the shards that a
 * *.safetensors.index.json names. */
#ifndef PP_DATA_TENSORS_SAFETENSORS_H
#define PP_DATA_TENSORS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum pp_dtype {
    PP_DTYPE_F64,
    PP_DTYPE_F32,
    PP_DTYPE_F16,
    PP_DTYPE_BF16,
    PP_DTYPE_I64,
    PP_DTYPE_I32,
    PP_DTYPE_OTHER
};

/* Return the bytes of one element and the name of the type; 0 and NULL for
 * PP_DTYPE_OTHER. */
size_t pp_dtype_bytes(enum pp_dtype d);
const char *pp_dtype_name(enum pp_dtype d);

/* Returns the type of elements of 8, 4 or 2 bytes (base/elements.h). */
static inline enum pp_dtype pp_dtype_of_bytes(size_t bytes)
{
    return bytes == sizeof(double)  ? PP_DTYPE_F64
           : bytes == sizeof(float) ? PP_DTYPE_F32
                                    : PP_DTYPE_BF16;
}

#define PP_MAX_DIMS 8

struct pp_tensor {
    const char *name;
    enum pp_dtype dtype;
    int n_dims;
    uint64_t dims[PP_MAX_DIMS];
    uint64_t n;       /* elements */
    const void *data; /* mapped; may be unaligned */
    size_t bytes;
    const char *dtype_name; /* as in the file: "U16" */
};

struct pp_tensors; /* an open set */

/* Opens a .safetensors file, a .safetensors.index.json, or a directory that
 * has model.safetensors or model.safetensors.index.json. Checks that offsets
 * are inside the file, sizes fit shapes, tensors do not overlap, and no name
 * is there twice. Failing that, or without the file, the error is
 * PP_EXIT_INPUT. */
int pp_tensors_open(const char *path, struct pp_tensors **out,
                    struct pp_err *err) PP_MUST_USE;

/* Adds the tensors of another set, which path names likewise, under names that
 * begin with prefix. Fails as the other does, and if a name is there already;
 * then t can only be closed. */
int pp_tensors_add(struct pp_tensors *t, const char *path, const char *prefix,
                   struct pp_err *err) PP_MUST_USE;

/* Tensors are in the order of their names. */
size_t pp_tensors_n(const struct pp_tensors *t);
const struct pp_tensor *pp_tensors_at(const struct pp_tensors *t, size_t i);

/* Returns NULL if there is no such tensor. */
const struct pp_tensor *pp_tensors_find(const struct pp_tensors *t,
                                        const char *name);

/* Reads n elements from element first on, from any floating dtype. Fails for
 * other dtypes. */
int pp_tensor_read_f32(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       float *out, struct pp_err *err) PP_MUST_USE;
int pp_tensor_read_f64(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       double *out, struct pp_err *err) PP_MUST_USE;

/* Accepts NULL. */
void pp_tensors_close(struct pp_tensors *t);

/* Returns whether a directory has weights. */
bool pp_tensors_exist(const char *dir);

struct pp_tensor_spec {
    const char *name;
    enum pp_dtype dtype;
    int n_dims;
    uint64_t dims[PP_MAX_DIMS];
};

/* Makes the first bytes of a file of n tensors: the size of the header, in
 * PP_TENSOR_SIZE_BYTES bytes, and the header, padded with spaces so that the
 * data begin at a multiple of 8. The caller frees *out. *data_bytes is the size
 * of the data that follow. The header has "__metadata__": {"format": "pt"},
 * which transformers needs. */
#define PP_TENSOR_SIZE_BYTES 8
int pp_tensor_header_make(const struct pp_tensor_spec *specs, size_t n,
                          char **out, size_t *bytes, uint64_t *data_bytes,
                          struct pp_err *err) PP_MUST_USE;

struct pp_tensor_writer;

/* Opens path with a header for n tensors, whose data follow in that order. The
 * file takes the place of an older one when the writer is closed. */
int pp_tensor_writer_open(const char *path, const struct pp_tensor_spec *specs,
                          size_t n, struct pp_tensor_writer **out,
                          struct pp_err *err) PP_MUST_USE;

/* Writes the next bytes of data. */
int pp_tensor_writer_put(struct pp_tensor_writer *w, const void *data,
                         size_t bytes, struct pp_err *err) PP_MUST_USE;

/* Returns the XXH3 of the file, of which all data must have been written. */
uint64_t pp_tensor_writer_checksum(const struct pp_tensor_writer *w);

/* Flushes to the disk (fsync) and closes. If the data have another size than
 * the header says, it fails and leaves path as it was. Always frees w. */
int pp_tensor_writer_close(struct pp_tensor_writer *w,
                           struct pp_err *err) PP_MUST_USE;

/* Closes the writer and leaves path as it was. Accepts NULL. */
void pp_tensor_writer_abort(struct pp_tensor_writer *w);

/* The rest is private to lib/data and its tests. */

/* A growing list; a zeroed struct is empty. items is malloc'ed, and names are
 * in an arena. */
struct pp_tensor_list {
    struct pp_tensor *items;
    size_t n, capacity;
};

/* Appends the tensors of the file in data, in file order. path starts every
 * message. Checks all that pp_tensors_open promises except repeated names. Like
 * the format's own reader, it also refuses gaps between tensors and bytes after
 * the last one. */
int pp_safetensors_parse(const char *path, const void *data, size_t bytes,
                         struct pp_arena *a, struct pp_tensor_list *list,
                         struct pp_err *err) PP_MUST_USE;

#endif
