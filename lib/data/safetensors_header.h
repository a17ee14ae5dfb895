/* SPDX-License-Identifier: MIT */
/* safetensors_header - one mapped file's header as a list of tensors.
 *
 * Private to lib/data and its tests; others open sets with safetensors.h. */
#ifndef PP_DATA_SAFETENSORS_HEADER_H
#define PP_DATA_SAFETENSORS_HEADER_H

#include "base/arena.h"
#include "data/safetensors.h"

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
