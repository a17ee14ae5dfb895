/* SPDX-License-Identifier: MIT */
/* data_section - "data" of a manifest, which is the packed directory and its
 * sizes, and "microbatch", for which the split was made. */
#include "manifest/sections.h"

#include <inttypes.h>
#include <string.h>

enum { CHECKSUM_DIGITS = 16 };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char checksum_kind[] = "xxh3:";

/* Parses KIND:DIGITS. */
static bool parse_checksum(const char *s, uint64_t *out)
{
    const size_t n = strlen(checksum_kind);
    uint64_t v = 0;
    if (strncmp(checksum_kind, s, n) != 0 || strlen(s + n) != CHECKSUM_DIGITS)
        return false;
    for (s += n; *s; s++) {
        int digit = hex_digit(*s);
        if (digit < 0)
            return false;
        v = v << 4 | (uint64_t)digit;
    }
    *out = v;
    return true;
}

static int read_checksum(const struct pp_value *at, void *checksum)
{
    const char *text;
    if (pp_value_text(at, &text))
        return -1;
    if (!parse_checksum(text, checksum))
        return pp_value_fail(at,
                             "'%.*s' is not xxh3: and %d lower-case "
                             "hexadecimal digits",
                             PP_VALUE_QUOTE, text, CHECKSUM_DIGITS);
    return 0;
}

static void put_checksum(json_t *o, const char *key, const void *checksum)
{
    pp_put(o, key,
           json_sprintf("%s%016" PRIx64, checksum_kind,
                        *(const uint64_t *)checksum));
}

/* A count of tokens has 32 bits in every format. */
#define AT(member) PP_AT(struct pp_plan_data, member)
#define COUNT 0, PP_MAX_COUNT
#define TOKENS 0, .max_at = offsetof(struct pp_plan_data, max_tokens)
const struct pp_doc_field pp_data_fields[] = {
    {"path", PP_STRING, PP_NEEDED, AT(path)},
    {"checksum", PP_OWN, PP_NEEDED, AT(checksum), .read = read_checksum,
     .put = put_checksum},
    {"n_bins", PP_INTEGER, PP_NEEDED, AT(n_bins), COUNT},
    {"n_sequences", PP_INTEGER, PP_NEEDED, AT(n_sequences), COUNT},
    {"capacity", PP_INTEGER, PP_NEEDED, AT(capacity), 1, UINT32_MAX},
    {"align", PP_INTEGER, PP_NEEDED, AT(align), 1, UINT32_MAX},
    {"max_tokens", PP_INTEGER, PP_NEEDED, AT(max_tokens), 0,
     .max_at = offsetof(struct pp_plan_data, capacity)},
    {"max_images", PP_INTEGER, PP_OPTIONAL, AT(items[0].n), 1, TOKENS},
    {"max_patches", PP_INTEGER, PP_OPTIONAL, AT(items[0].rows), 1, INT32_MAX},
    {"max_clips", PP_INTEGER, PP_OPTIONAL, AT(items[1].n), 1, TOKENS},
    {"max_clip_rows", PP_INTEGER, PP_OPTIONAL, AT(items[1].rows), 1, INT32_MAX},
    {NULL},
};
#undef AT

int pp_read_data_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    m->has_data = true;
    return pp_fields_read(at, pp_data_fields, &m->data);
}

#define AT(member) PP_AT(struct pp_default_microbatch, member)
#define ROWS 1, PP_MAX_TOKENS
const struct pp_doc_field pp_microbatch_fields[] = {
    {"tokens", PP_INTEGER, PP_NEEDED, AT(tokens), ROWS},
    {"seq_len", PP_INTEGER, PP_NEEDED, AT(seq_len), ROWS},
    {"images", PP_INTEGER, PP_OPTIONAL, AT(items[0].n), ROWS},
    {"image_patches", PP_INTEGER, PP_OPTIONAL, AT(items[0].rows), ROWS},
    {"clips", PP_INTEGER, PP_OPTIONAL, AT(items[1].n), ROWS},
    {"clip_rows", PP_INTEGER, PP_OPTIONAL, AT(items[1].rows), ROWS},
    {NULL},
};
#undef AT

/* Checks that two keys come together or not at all. */
static int check_both(const struct pp_value *at, const char *a, const char *b)
{
    struct pp_value member;
    return pp_value_find(at, a, &member) == pp_value_find(at, b, &member)
               ? 0
               : pp_value_member(at, a, &member) ||
                     pp_value_member(at, b, &member);
}

int pp_read_microbatch_section(const struct pp_value *at, void *manifest)
{
    struct pp_manifest *m = manifest;
    if (!m->has_model)
        return pp_value_fail(at, "a microbatch needs 'model'");
    m->has_microbatch = true;
    return pp_fields_read(at, pp_microbatch_fields, &m->microbatch) ||
                   check_both(at, "images", "image_patches") ||
                   check_both(at, "clips", "clip_rows")
               ? -1
               : 0;
}
