/* SPDX-License-Identifier: MIT */
/* columns - the named columns that data may have beside ids and labels, for
 * objectives that need them. pp-pack(5) says what each means. Their elements
 * are floats. */
#ifndef PP_DATA_COLUMNS_H
#define PP_DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
