/* SPDX-License-Identifier: MIT */
/* safetensors - Hugging Face's tensor files: a JSON header and raw data.
 *
 * Layout: u64 little-endian header size, JSON {name: {dtype, shape,
 * data_offsets}}, data. A set is one file, or the shards that a
 * *.safetensors.index.json names. Headers are read by our own small scanner:
 * only lib/manifest uses a JSON library. */
#ifndef PP_DATA_SAFETENSORS_H
#define PP_DATA_SAFETENSORS_H

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

/* Bytes of one element; 0 for PP_DTYPE_OTHER. */
size_t pp_dtype_bytes(enum pp_dtype d);

#define PP_MAX_DIMS 8

struct pp_tensor {
    const char *name;
    enum pp_dtype dtype;
    int n_dims;
    uint64_t dims[PP_MAX_DIMS];
    uint64_t n;       /* elements */
    const void *data; /* mapped; may be unaligned */
    size_t bytes;
    const char *dtype_name; /* as the file has it: "U16" */
};

struct pp_tensors; /* an open set */

/* Opens a .safetensors file, a .safetensors.index.json, or a directory that
 * holds model.safetensors or model.safetensors.index.json. Checks headers:
 * offsets inside the file, sizes that fit shapes, no overlap, no name twice;
 * PP_EXIT_INPUT with file and tensor otherwise. A missing file is
 * PP_EXIT_INPUT too. */
int pp_tensors_open(const char *path, struct pp_tensors **out,
                    struct pp_err *err) PP_MUST_USE;

/* Tensors in the order of their names. */
size_t pp_tensors_n(const struct pp_tensors *t);
const struct pp_tensor *pp_tensors_at(const struct pp_tensors *t, size_t i);

/* NULL when there is none. */
const struct pp_tensor *pp_tensors_find(const struct pp_tensors *t,
                                        const char *name);

/* The tensor's elements as float or double, from any floating dtype; n of them
 * from element first. Fails for integer tensors. */
int pp_tensor_read_f32(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       float *out, struct pp_err *err) PP_MUST_USE;
int pp_tensor_read_f64(const struct pp_tensor *t, uint64_t first, uint64_t n,
                       double *out, struct pp_err *err) PP_MUST_USE;

/* Accepts NULL. */
void pp_tensors_close(struct pp_tensors *t);

/* Whether a directory holds weights at all. */
bool pp_tensors_exist(const char *dir);

struct pp_tensor_spec {
    const char *name;
    enum pp_dtype dtype;
    int n_dims;
    uint64_t dims[PP_MAX_DIMS];
};

struct pp_tensor_writer;

/* Creates path with a header for n tensors, whose data follow in that order.
 * The header carries "__metadata__": {"format": "pt"}, without which
 * transformers refuses the file. */
int pp_tensor_writer_open(const char *path, const struct pp_tensor_spec *specs,
                          size_t n, struct pp_tensor_writer **out,
                          struct pp_err *err) PP_MUST_USE;

/* Writes the next bytes of data. */
int pp_tensor_writer_put(struct pp_tensor_writer *w, const void *data,
                         size_t bytes, struct pp_err *err) PP_MUST_USE;

/* Flushes to the disk (fsync) and closes; fails when the bytes put are not
 * those the header promises, and then removes the file. Frees w in any case. */
int pp_tensor_writer_close(struct pp_tensor_writer *w,
                           struct pp_err *err) PP_MUST_USE;

/* Closes and removes the file. Accepts NULL. */
void pp_tensor_writer_abort(struct pp_tensor_writer *w);

/* safetensors_header - one mapped file's header as a list of tensors.
 *
 * Private to lib/data and its tests; others open sets with safetensors.h. */
/* A growing list; zeroed is empty. items is malloc'ed, names lie in an
 * arena. */
struct pp_tensor_list {
    struct pp_tensor *items;
    size_t n, capacity;
};

/* Appends the tensors of the file in data, in the order they lie in it. path
 * starts every message. Checks all that safetensors.h promises of one file
 * but repeated names, and as the format's own reader does that the tensors
 * leave no gap between them and nothing behind them. */
int pp_safetensors_parse(const char *path, const void *data, size_t bytes,
                         struct pp_arena *a, struct pp_tensor_list *list,
                         struct pp_err *err) PP_MUST_USE;

#endif
