/* SPDX-License-Identifier: MIT */
/* ranks - places the sequences of a bin on context-parallel ranks.
 *
 * A sequence on n of cp ranks costs each of them 1/n. The more sequences are
 * whole on a rank, the less the ranks exchange, but the harder it is to make
 * their loads equal. So a limit of the cost per rank falls until the loads are
 * equal enough. The costliest sequences are placed first, each where the load
 * is least (Graham's rule), on the fewest ranks that keep to the limit, have
 * room, and do not come above the mean by more than the tolerance. If nothing
 * else helps, all ranks share all sequences, and all loads are equal. */
#include <stdlib.h>

#include "base/alloc.h"
#include "pack/rule.h"

/* Loads are equal enough if the largest is above the mean by 1 in so many. */
enum { TOLERANCE = 256 };

struct placing {
    const struct pp_bin_sequences *s;
    uint64_t mean, highest;  /* cost of a rank */
    uint32_t *order;         /* sequences, costliest first */
    struct pp_by_cost *keys; /* scratch of the sort */
    struct rank_load {
        uint64_t cost;
        uint32_t tokens;
    } * load; /* (cp) */
};

/* Returns the fewest ranks for which a sequence keeps to the limit and to the
 * capacity of a rank. */
static uint32_t fewest_ranks(const struct placing *x, uint32_t i,
                             uint64_t limit)
{
    const struct pp_bin_sequences *s = x->s;
    for (uint32_t n = 1; n < s->cp; n++)
        if (s->cp % n == 0 && s->cost[i] / n <= limit &&
            s->tokens[i] / n <= s->capacity)
            return n;
    return s->cp;
}

/* Returns the first of n neighbouring ranks with the least load that have room
 * and keep to the highest load, or cp. */
static uint32_t find_ranks(const struct placing *x, uint32_t i, uint32_t n)
{
    const struct pp_bin_sequences *s = x->s;
    uint64_t least = n < s->cp ? x->highest - s->cost[i] / n + 1 : UINT64_MAX;
    uint32_t best = s->cp;
    if (n < s->cp && s->cost[i] / n > x->highest)
        return best;
    for (uint32_t first = 0; first < s->cp; first += n) {
        uint64_t most = 0;
        uint32_t fullest = 0;
        for (uint32_t k = first; k < first + n; k++) {
            const struct rank_load *load = &x->load[k];
            most = load->cost > most ? load->cost : most;
            fullest = load->tokens > fullest ? load->tokens : fullest;
        }
        if (most < least && fullest + s->tokens[i] / n <= s->capacity) {
            least = most;
            best = first;
        }
    }
    return best;
}

/* Places a sequence on at least n ranks. Returns false if it has no room. */
static bool place_sequence(const struct placing *x, uint32_t i, uint32_t n,
                           struct pp_rank_range *out)
{
    const struct pp_bin_sequences *s = x->s;
    uint32_t first = find_ranks(x, i, n);
    while (first == s->cp && n < s->cp) {
        do
            n++;
        while (s->cp % n);
        first = find_ranks(x, i, n);
    }
    if (first == s->cp)
        return false;
    out[i] = (struct pp_rank_range){(uint16_t)first, (uint16_t)n};
    for (uint32_t r = first; r < first + n; r++) {
        x->load[r].cost += s->cost[i] / n;
        x->load[r].tokens += s->tokens[i] / n;
    }
    return true;
}

/* Places all sequences, with at most the limit of cost on a rank of each, if
 * possible. Returns whether they have room and the loads are equal enough. */
static bool place(const struct placing *x, uint64_t limit,
                  struct pp_rank_range *out)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < x->s->cp; r++)
        x->load[r] = (struct rank_load){0, 0};
    for (size_t k = 0; k < x->s->n; k++) {
        uint32_t i = x->order[k];
        if (!place_sequence(x, i, fewest_ranks(x, i, limit), out))
            return false;
    }
    for (uint32_t r = 0; r < x->s->cp; r++)
        most = x->load[r].cost > most ? x->load[r].cost : most;
    return most <= x->highest;
}

void pp_bin_place(const struct pp_bin_sequences *s, struct pp_rank_range *out)
{
    struct placing x = {.s = s};
    uint64_t total = 0;
    x.order = pp_calloc(s->n, sizeof *x.order);
    x.keys = pp_calloc(s->n, sizeof *x.keys);
    x.load = pp_calloc(s->cp, sizeof *x.load);
    for (size_t i = 0; i < s->n; i++)
        total += s->cost[i];
    x.mean = total / s->cp;
    x.highest = x.mean + x.mean / TOLERANCE;
    uint64_t limit = x.mean;
    pp_sort_by_cost(s->cost, s->n, x.keys, x.order);
    while (!place(&x, limit, out) && limit > 0)
        limit /= 2;
    free(x.order);
    free(x.keys);
    free(x.load);
}
