/* SPDX-License-Identifier: MIT */
/* ranks - reads the ranks of the sequences of a packed set. */
#include "data/packed/ranks.h"

#include "data/packed/packed.h"
#include "data/packed/format.h"

uint32_t pp_bin_rank_tokens(const struct pp_bin *b, int cp, int rank)
{
    const int32_t *cu = b->cu_seqlens_padded;
    uint32_t sum = 0;
    if (!b->ranks || cp == 1)
        return b->tokens / (uint32_t)cp;
    for (uint32_t i = 0; i < b->n_sequences; i++)
        if (pp_range_has(b->ranks[i], rank))
            sum += (uint32_t)(cu[i + 1] - cu[i]) / b->ranks[i].n;
    return sum;
}

uint32_t pp_packed_room(const struct pp_packed *p, int cp)
{
    return p->cp && cp > 1 ? (uint32_t)cp * p->max_rank_tokens : p->max_tokens;
}

int pp_packed_check_mesh(const struct pp_packed *p, int cp, struct pp_err *err)
{
    if (!p->cp || cp <= 1 || p->cp == (uint32_t)cp)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "the sequences are on '%u' context-parallel ranks, but the "
                   "plan has %d; pack for as many",
                   p->cp, cp);
}

uint32_t pp_packed_most_rank_tokens(const struct pp_packed *p)
{
    uint32_t most = 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        uint32_t of[PP_MOST_SIZED_RANKS] = {0};
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        const int32_t *cu = bin.cu_seqlens_padded;
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            struct pp_rank_range r = bin.ranks[i];
            for (int k = r.first; k < r.first + r.n; k++)
                of[k] += (uint32_t)(cu[i + 1] - cu[i]) / r.n;
        }
        for (uint32_t k = 0; k < p->cp; k++)
            pp_raise(&most, of[k]);
    }
    return most;
}
