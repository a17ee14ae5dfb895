/* SPDX-License-Identifier: MIT */
/* packed_export - a packed directory in the formats of others. Both are read
 * by pppack again: the same sequences in packed order. */
#ifndef PP_DATA_PACKED_EXPORT_H
#define PP_DATA_PACKED_EXPORT_H

#include "data/packed.h"

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

#endif
