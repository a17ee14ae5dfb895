/* SPDX-License-Identifier: MIT */
#include "data/token_type.h"

#include <assert.h>
#include <string.h>

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
#define CONVERT(name, type)                                          \
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

CONVERT(from_u8, uint8_t)
CONVERT(from_i8, int8_t)
CONVERT(from_i16, int16_t)
CONVERT(from_i32, int32_t)
CONVERT(from_i64, int64_t)
CONVERT(from_u16, uint16_t)
CONVERT(from_u32, uint32_t)

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
