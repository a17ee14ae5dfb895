/* SPDX-License-Identifier: MIT */
#include "base/sort.h"

#include <string.h>

static unsigned byte_of(const struct pp_sort_key *k, int byte)
{
    uint64_t word = byte < 8 ? k->low : k->high;
    return word >> byte % 8 * 8 & 0xff;
}

void pp_sort_keys(struct pp_sort_key *keys, struct pp_sort_key *spare, size_t n)
{
    struct pp_sort_key differ = {0, 0, 0}, *from = keys, *to = spare;
    for (size_t i = 1; i < n; i++) {
        differ.high |= keys[i].high ^ keys[0].high;
        differ.low |= keys[i].low ^ keys[0].low;
    }
    for (int byte = 0; byte < 16; byte++) {
        size_t first[257] = {0};
        if (byte_of(&differ, byte) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            first[byte_of(&from[i], byte) + 1]++;
        for (int b = 0; b < 256; b++)
            first[b + 1] += first[b];
        for (size_t i = 0; i < n; i++)
            to[first[byte_of(&from[i], byte)]++] = from[i];
        struct pp_sort_key *other = from;
        from = to;
        to = other;
    }
    if (from != keys && n > 0)
        memcpy(keys, from, n * sizeof *keys);
}
