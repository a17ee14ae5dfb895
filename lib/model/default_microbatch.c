/* SPDX-License-Identifier: MIT */
#include "plan/assumed.h"

struct pp_assumed pp_assumed_of(int64_t seq_len)
{
    return (struct pp_assumed){.tokens = seq_len, .seq_len = seq_len};
}

/* Attended pairs in the first n tokens: a token attends to itself and to those
 * before it in its sequence. */
static double pairs_before(const struct pp_assumed *mb, int64_t n)
{
    double length = (double)mb->seq_len, rest = (double)(n % mb->seq_len);
    return (double)(n / mb->seq_len) * length * (length + 1) / 2 +
           rest * (rest + 1) / 2;
}

struct pp_assumed_part pp_assumed_slice(const struct pp_assumed *mb, int64_t q,
                                        int64_t n)
{
    int64_t from = mb->tokens * q / n, to = mb->tokens * (q + 1) / n;
    double scale = (double)mb->tokens * ((double)mb->seq_len + 1) / 2 /
                   pairs_before(mb, mb->tokens);
    return (struct pp_assumed_part){
        (double)(to - from),
        (pairs_before(mb, to) - pairs_before(mb, from)) * scale};
}
