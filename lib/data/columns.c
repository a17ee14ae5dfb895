/* SPDX-License-Identifier: MIT */
#include "data/columns.h"

#include <assert.h>
#include <string.h>

const struct pp_column_kind pp_columns[PP_N_COLUMNS] = {
    [PP_COLUMN_ADVANTAGES] = {"advantages", PP_SCOPE_TOKEN},
    [PP_COLUMN_LOGPROBS] = {"logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_PREV_LOGPROBS] = {"prev_logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_REF_LOGPROBS] = {"ref_logprobs", PP_SCOPE_TOKEN},
    [PP_COLUMN_REWARDS] = {"rewards", PP_SCOPE_SEQUENCE},
    [PP_COLUMN_REF_LOGPS] = {"ref_logps", PP_SCOPE_SEQUENCE},
    [PP_COLUMN_MARGINS] = {"margins", PP_SCOPE_GROUP},
};

const char *const pp_data_kinds[PP_DATA_N_KINDS] = {"documents", "pairs",
                                                    "rollouts"};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "tokens are copied as they lie: little endian machines only");

unsigned pp_token_bytes(unsigned type)
{
    static const unsigned char bytes[] = {
        [PP_TOKEN_U8] = 1,  [PP_TOKEN_I8] = 1,  [PP_TOKEN_I16] = 2,
        [PP_TOKEN_I32] = 4, [PP_TOKEN_I64] = 8, [PP_TOKEN_U16] = 2,
        [PP_TOKEN_U32] = 4, [PP_TOKEN_U64] = 8,
    };
    return type < sizeof bytes ? bytes[type] : 0;
}

/* One loop per type, since the compiler then knows the width. */
#define DEFINE_CONVERT(name, type)                                   \
    static bool name(const unsigned char *p, size_t n, int32_t *out) \
    {                                                                \
        bool good = true;                                            \
        for (size_t i = 0; i < n; i++) {                             \
            type v;                                                  \
            memcpy(&v, p + i * sizeof v, sizeof v);                  \
            int64_t id = v;                                          \
            bool is_id = id >= 0 && id < INT32_MAX;                  \
            out[i] = is_id ? (int32_t)id : -1;                       \
            good &= is_id;                                           \
        }                                                            \
        return good;                                                 \
    }

DEFINE_CONVERT(from_u8, uint8_t)
DEFINE_CONVERT(from_i8, int8_t)
DEFINE_CONVERT(from_i16, int16_t)
DEFINE_CONVERT(from_i32, int32_t)
DEFINE_CONVERT(from_i64, int64_t)
DEFINE_CONVERT(from_u16, uint16_t)
DEFINE_CONVERT(from_u32, uint32_t)

bool pp_token_convert(unsigned type, const void *from, size_t n, int32_t *out)
{
    switch (type) {
    case PP_TOKEN_U8:
        return from_u8(from, n, out);
    case PP_TOKEN_I8:
        return from_i8(from, n, out);
    case PP_TOKEN_I16:
        return from_i16(from, n, out);
    case PP_TOKEN_I32:
        return from_i32(from, n, out);
    case PP_TOKEN_U32:
        return from_u32(from, n, out);
    case PP_TOKEN_I64:
    case PP_TOKEN_U64: /* above the signed range is no id either */
        return from_i64(from, n, out);
    case PP_TOKEN_U16:
        return from_u16(from, n, out);
    default:
        return false;
    }
}
