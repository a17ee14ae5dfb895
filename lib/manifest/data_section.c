/* SPDX-License-Identifier: MIT */
/* data_section - "data" of a manifest, which is the packed directory and its
 * sizes, and "microbatch", for which the split was made. */
#include "manifest/sections.h"

#include <inttypes.h>
#include <string.h>

enum { CHECKSUM_DIGITS = 16 };

static const char *const data_keys[] = {
    "path",        "checksum",  "n_bins",        "n_sequences",
    "capacity",    "align",     "max_tokens",    "max_images",
    "max_patches", "max_clips", "max_clip_rows", NULL,
};

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

static int read_checksum(const struct pp_value *at, uint64_t *out)
{
    struct pp_value member;
    const char *text;
    if (pp_value_member(at, "checksum", &member) ||
        pp_value_text(&member, &text))
        return -1;
    if (!parse_checksum(text, out))
        return pp_value_fail(&member,
                             "'%.*s' is not xxh3: and %d lower-case "
                             "hexadecimal digits",
                             PP_VALUE_QUOTE, text, CHECKSUM_DIGITS);
    return 0;
}

/* A count of tokens has 32 bits in every format. */
static int read_u32(const struct pp_value *at, const char *key, int64_t min,
                    int64_t max, uint32_t *out)
{
    int64_t v;
    if (pp_value_get_int(at, key, min, max, &v))
        return -1;
    *out = (uint32_t)v;
    return 0;
}

/* Reads a count of at least 1 that may be absent. */
static int read_some(const struct pp_value *at, const char *key, int64_t max,
                     uint32_t *out)
{
    struct pp_value member;
    return pp_value_find(at, key, &member) ? read_u32(at, key, 1, max, out) : 0;
}

int pp_read_data_section(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_manifest_data *d = &m->data;
    int64_t n_bins, n_sequences;
    if (pp_value_object(at, data_keys) ||
        pp_value_get_text(at, "path", &d->path) ||
        read_checksum(at, &d->checksum) ||
        pp_value_get_int(at, "n_bins", 0, PP_MAX_COUNT, &n_bins) ||
        pp_value_get_int(at, "n_sequences", 0, PP_MAX_COUNT, &n_sequences) ||
        read_u32(at, "capacity", 1, UINT32_MAX, &d->capacity) ||
        read_u32(at, "align", 1, UINT32_MAX, &d->align) ||
        read_u32(at, "max_tokens", 0, d->capacity, &d->max_tokens))
        return -1;
    if (read_some(at, "max_images", d->max_tokens, &d->max_images) ||
        read_some(at, "max_patches", INT32_MAX, &d->max_patches) ||
        read_some(at, "max_clips", d->max_tokens, &d->max_clips) ||
        read_some(at, "max_clip_rows", INT32_MAX, &d->max_clip_rows))
        return -1;
    d->n_bins = (uint64_t)n_bins;
    d->n_sequences = (uint64_t)n_sequences;
    m->has_data = true;
    return 0;
}

json_t *pp_write_data_section(const struct pp_manifest_data *data,
                              struct pp_err *err)
{
    char checksum[32];
    snprintf(checksum, sizeof checksum, "%s%016" PRIx64, checksum_kind,
             data->checksum);
    json_t *o = json_object();
    int bad = pp_put_text(o, "path", data->path, err);
    bad |= pp_put_text(o, "checksum", checksum, err);
    bad |= pp_put(o, "n_bins", json_integer((json_int_t)data->n_bins));
    bad |=
        pp_put(o, "n_sequences", json_integer((json_int_t)data->n_sequences));
    bad |= pp_put(o, "capacity", json_integer(data->capacity));
    bad |= pp_put(o, "align", json_integer(data->align));
    bad |= pp_put(o, "max_tokens", json_integer(data->max_tokens));
    if (data->max_images)
        bad |= pp_put(o, "max_images", json_integer(data->max_images));
    if (data->max_patches)
        bad |= pp_put(o, "max_patches", json_integer(data->max_patches));
    if (data->max_clips)
        bad |= pp_put(o, "max_clips", json_integer(data->max_clips));
    if (data->max_clip_rows)
        bad |= pp_put(o, "max_clip_rows", json_integer(data->max_clip_rows));
    return pp_written(o, bad, err);
}

static const char *const microbatch_keys[] = {
    "tokens", "seq_len", "images", "image_patches", "clips", "clip_rows", NULL,
};

/* Reads two numbers that come together or not at all. */
static int read_both(const struct pp_value *at, const char *items,
                     const char *rows, int64_t *n_items, int64_t *n_rows)
{
    struct pp_value some;
    if (!pp_value_find(at, items, &some) && !pp_value_find(at, rows, &some))
        return 0;
    if (pp_value_get_int(at, items, 1, PP_MAX_TOKENS, n_items))
        return -1;
    return pp_value_get_int(at, rows, 1, PP_MAX_TOKENS, n_rows);
}

int pp_read_microbatch_section(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_default_microbatch *mb = &m->microbatch;
    if (!m->has_model)
        return pp_value_fail(at, "a microbatch needs 'model'");
    if (pp_value_object(at, microbatch_keys) ||
        pp_value_get_int(at, "tokens", 1, PP_MAX_TOKENS, &mb->tokens) ||
        pp_value_get_int(at, "seq_len", 1, PP_MAX_TOKENS, &mb->seq_len) ||
        read_both(at, "images", "image_patches", &mb->n_images,
                  &mb->image_patches) ||
        read_both(at, "clips", "clip_rows", &mb->n_clips, &mb->clip_rows))
        return -1;
    m->has_microbatch = true;
    return 0;
}

json_t *pp_write_microbatch_section(const struct pp_default_microbatch *mb,
                                    struct pp_err *err)
{
    json_t *o = json_object();
    int bad = pp_put(o, "tokens", json_integer(mb->tokens));
    bad |= pp_put(o, "seq_len", json_integer(mb->seq_len));
    if (mb->n_images) {
        bad |= pp_put(o, "images", json_integer(mb->n_images));
        bad |= pp_put(o, "image_patches", json_integer(mb->image_patches));
    }
    if (mb->n_clips) {
        bad |= pp_put(o, "clips", json_integer(mb->n_clips));
        bad |= pp_put(o, "clip_rows", json_integer(mb->clip_rows));
    }
    return pp_written(o, bad, err);
}
