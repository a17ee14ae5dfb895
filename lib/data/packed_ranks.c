/* SPDX-License-Identifier: MIT */
/* packed_ranks - reads and checks the ranks of the sequences of a packed set.
 */
#include "data/packed_ranks.h"

#include "data/packed.h"
#include "data/packed_format.h"

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

int pp_packed_find_ranks(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    p->cp = h->cp;
    p->max_rank_tokens = h->max_rank_tokens;
    if (h->cp < 2 || h->cp > PP_MOST_SIZED_RANKS || h->stream.n_items ||
        (uint64_t)h->max_rank_tokens * h->cp > h->capacity)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%u' context-parallel ranks of at most %u "
                       "positions are impossible",
                       h->cp, h->max_rank_tokens);
    return pp_packed_find_section(p, PP_SECTION_RANKS, h->ranks, h->n_sequences,
                                  sizeof(struct pp_rank_range), err);
}

/* Checks the ranks of the sequences of a bin. */
static int check_ranges(const struct pp_packed *p, size_t b, struct pp_err *err)
{
    struct pp_bin bin;
    pp_packed_bin(p, b, &bin);
    const int32_t *cu = bin.cu_seqlens_padded;
    for (uint32_t i = 0; i < bin.n_sequences; i++) {
        struct pp_rank_range r = bin.ranks[i];
        if (!r.n || p->cp % r.n || r.first % r.n || r.first >= p->cp)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: sequence %u cannot be on '%u' of "
                           "%u context-parallel ranks from %u on",
                           b, i, r.n, p->cp, r.first);
        if (i > 0 && r.n > bin.ranks[i - 1].n)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: sequence %u on '%u' ranks must "
                           "precede those on fewer",
                           b, i, r.n);
        if ((cu[i + 1] - cu[i]) % (2 * r.n))
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: the '%d' positions of sequence %u "
                           "are not a multiple of 2 x %u context-parallel "
                           "ranks",
                           b, cu[i + 1] - cu[i], i, r.n);
    }
    return 0;
}

int pp_packed_check_ranks(const struct pp_packed *p, struct pp_err *err)
{
    for (size_t b = 0; p->cp && b < p->n_bins; b++)
        if (check_ranges(p, b, err) != 0)
            return -1;
    if (p->cp && pp_packed_most_rank_tokens(p) != p->max_rank_tokens)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%u' is not the most positions of a "
                       "context-parallel rank",
                       p->max_rank_tokens);
    return 0;
}
