/* SPDX-License-Identifier: MIT */
/* token_type - integers of several widths as token ids. The types have the
 * codes of Megatron's indexed datasets. */
#ifndef PP_DATA_TOKEN_TYPE_H
#define PP_DATA_TOKEN_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
