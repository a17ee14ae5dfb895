/* SPDX-License-Identifier: MIT */
#include "split/hybrid.h"

#include <ctype.h>
#include <string.h>

static const char symbols[] = "MG*D+-E";

/* Fails if the pattern has other characters than symbols and, if allowed,
 * bars. */
static int check_symbols(const char *pattern, size_t n, bool bars,
                         struct pp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)pattern[i];
        if (strchr(symbols, c) || (bars && c == '|'))
            continue;
        if (!isprint(c))
            return pp_fail(err, PP_EXIT_INPUT, "'0x%02x' is not a layer type",
                           c);
        if (c == '|')
            return pp_fail(err, PP_EXIT_INPUT,
                           "'|' is not allowed after '/': multi-token "
                           "prediction has no stages of its own");
        return pp_fail(err, PP_EXIT_INPUT, "'%c' is not a layer type", c);
    }
    return 0;
}

static bool has(const char *pattern, size_t n, char c)
{
    return memchr(pattern, c, n) != NULL;
}

/* Reads the depths after the main part, separated by slashes. */
static int parse_depths(const char *text, struct pp_hybrid *h,
                        struct pp_err *err)
{
    size_t n = 0, empty = 0;
    for (const char *at = text; at; n++) {
        size_t length = strcspn(at, "/");
        empty += length == 0;
        if (n == 0) {
            h->mtp = at;
            h->mtp_length = length;
        } else if (length != h->mtp_length || memcmp(at, h->mtp, length)) {
            return pp_fail(err, PP_EXIT_INPUT,
                           "depth %zu of multi-token prediction is '%.*s', but "
                           "the first is '%.*s'",
                           n + 1, (int)(length > 60 ? 60 : length), at,
                           (int)(h->mtp_length > 60 ? 60 : h->mtp_length),
                           h->mtp);
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    /* Slashes without any layers after them are ignored. */
    h->n_mtp = empty == n ? 0 : n;
    return 0;
}

int pp_hybrid_parse(const char *pattern, struct pp_hybrid *h,
                    struct pp_err *err)
{
    size_t all = strlen(pattern);
    *h = (struct pp_hybrid){
        .main = pattern, .length = strcspn(pattern, "/"), .n_segments = 1};
    if (check_symbols(pattern, h->length, true, err))
        return -1;
    for (size_t i = 0; i < h->length; i++) {
        h->n_segments += pattern[i] == '|';
        h->n_layers += pattern[i] != '|';
    }
    if (pattern[h->length] &&
        (parse_depths(pattern + h->length + 1, h, err) ||
         check_symbols(h->mtp, h->mtp_length, false, err)))
        return -1;
    if (has(pattern, all, '*') &&
        (has(pattern, all, 'D') || has(pattern, all, '+')))
        return pp_fail(err, PP_EXIT_INPUT,
                       "attention '*' cannot be mixed with '%c'",
                       has(pattern, all, 'D') ? 'D' : '+');
    return 0;
}

int pp_hybrid_chunks(const struct pp_hybrid *h, size_t n_ranks, size_t n_chunks,
                     size_t *out, struct pp_err *err)
{
    *out = 1;
    if (h->n_segments == 1 && n_chunks > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu chunks on each rank need bars in the pattern",
                       n_chunks);
    if (h->n_segments == 1)
        return 0;
    if (h->n_segments % n_ranks)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu segments do not divide by %zu ranks", h->n_segments,
                       n_ranks);
    *out = h->n_segments / n_ranks;
    if (n_chunks > 0 && n_chunks != *out)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%zu segments are %zu chunks on each rank, not %zu",
                       h->n_segments, *out, n_chunks);
    return 0;
}

int pp_hybrid_split(const struct pp_hybrid *h, const struct pp_megatron *m,
                    size_t *counts, struct pp_err *err)
{
    size_t stage = 0;
    if (h->n_segments == 1)
        return pp_split_megatron(m, counts, err);
    if (m->first > 0 || m->last > 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "bars in the pattern exclude layer counts for the first "
                       "and last rank");
    counts[0] = 0;
    for (size_t i = 0; i < h->length; i++) {
        if (h->main[i] == '|')
            counts[++stage] = 0;
        else
            counts[stage]++;
    }
    return 0;
}
