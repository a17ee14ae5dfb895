/* SPDX-License-Identifier: MIT */
#include "model/default_microbatch.h"

struct pp_default_microbatch pp_default_microbatch_of(int64_t seq_len)
{
    return (struct pp_default_microbatch){.tokens = seq_len,
                                          .seq_len = seq_len};
}

/* Attended pairs in the first n tokens: a token attends to itself and to those
 * before it in its sequence. */
static double pairs_before(const struct pp_default_microbatch *mb, int64_t n)
{
    double length = (double)mb->seq_len, rest = (double)(n % mb->seq_len);
    return (double)(n / mb->seq_len) * length * (length + 1) / 2 +
           rest * (rest + 1) / 2;
}

struct pp_default_microbatch_part
pp_default_microbatch_slice(const struct pp_default_microbatch *mb, int64_t q,
                            int64_t n)
{
    int64_t from = mb->tokens * q / n, to = mb->tokens * (q + 1) / n;
    double scale = (double)mb->tokens * ((double)mb->seq_len + 1) / 2 /
                   pairs_before(mb, mb->tokens);
    return (struct pp_default_microbatch_part){
        (double)(to - from),
        (pairs_before(mb, to) - pairs_before(mb, from)) * scale};
}
