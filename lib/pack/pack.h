/* SPDX-License-Identifier: MIT */
/* pack - bin packing of sequence lengths. It reads lengths and makes bins; it
 * knows no files and no options. */
#ifndef PP_PACK_PACK_H
#define PP_PACK_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rank_range.h"

struct pp_bins {
    size_t n_bins, n_items;
    size_t *first;    /* n_bins + 1: bin b holds items[first[b]..first[b+1]) */
    uint32_t *items;  /* input indices in the order the rule emits them */
    const char *noun; /* what items are, in messages; NULL: sequences */
};

/* The input of a rule. A zeroed member behind capacity has no effect. */
struct pp_pack_input {
    const uint32_t *lengths; /* (n) aligned, and not above the capacity */
    size_t n;
    uint32_t capacity;        /* of a bin, at least 1; of "none" in items */
    uint64_t seed;            /* of a rule that draws */
    const uint32_t *unpadded; /* (n) lengths without padding, or NULL */
    struct pp_waste_budget *budget; /* private to lib/pack */
};

/* A packing rule. Fills *out, which pp_bins_finish frees. */
typedef void pp_pack_fn(const struct pp_pack_input *in, struct pp_bins *out);

/* Divides n sequences into n_parts, without a capacity. 1 <= n_parts <= n. For
 * parts of an equal number of sequences, n_parts divides n. */
typedef void pp_parts_fn(const uint32_t *lengths, size_t n, size_t n_parts,
                         struct pp_bins *out);

struct pp_packer {
    const char *name;    /* "bfd" */
    const char *summary; /* one line */
    bool no_empty;       /* takes no sequence of length 0 */
    bool draws;          /* from the seed */
    pp_pack_fn *pack;
    pp_parts_fn *divide; /* into a given number of parts; or NULL */
};

#define PP_PACK_SEED 42

/* All rules; the last entry is zeroed. */
extern const struct pp_packer pp_packers[];

const struct pp_packer *pp_packer_find(const char *name);

/* One of several sizes of items, such as tokens, and how much of it a bin
 * holds. No size is above the capacity. */
struct pp_pack_size {
    const uint32_t *sizes;
    uint32_t capacity; /* at least 1 */
};

enum { PP_MOST_SIZES = 3 };

/* Packs n items that have n_sizes sizes, at most PP_MOST_SIZES. */
void pp_pack_sizes(const struct pp_pack_size *sizes, size_t n_sizes, size_t n,
                   struct pp_bins *out);

void pp_bins_finish(struct pp_bins *b);

/* Returns the largest sum of lengths in a bin. */
uint64_t pp_bins_largest(const struct pp_bins *b, const uint32_t *lengths);

/* Raises the number of bins to the next multiple that is at least `least`, and
 * balances the loads. No bin is empty, and none exceeds the capacity. Fails if
 * there are fewer items than bins. */
int pp_bins_multiple(struct pp_bins *b, const uint32_t *lengths,
                     uint32_t capacity, size_t least, size_t multiple,
                     struct pp_err *err) PP_MUST_USE;

/* Does the same in NeMo-RL's way: the bins with most items come first, and the
 * last one among equals. Each gives up its last items, one to a new bin each,
 * until it has one left. */
int pp_bins_multiple_by_popping(struct pp_bins *b, size_t least,
                                size_t multiple,
                                struct pp_err *err) PP_MUST_USE;

/* Does the same in Megatron's way (dp_balanced): from the last bin back, each
 * gives up its last items, one to a new bin each, until it has one left. */
int pp_bins_multiple_from_tail(struct pp_bins *b, size_t least, size_t multiple,
                               struct pp_err *err) PP_MUST_USE;

/* Moves items between bins so that the costliest bin costs less; it ends
 * when that costs at most `enough` or is a single item; 0: it does its best.
 * The number of bins stays; no bin is empty, and none exceeds the capacity, nor
 * the capacities of n_others other sizes. The sum of all costs must not
 * overflow. */
void pp_bins_balance(struct pp_bins *b, const uint32_t *lengths,
                     const uint64_t *cost, uint32_t capacity,
                     const struct pp_pack_size *others, size_t n_others,
                     uint64_t enough);

/* Orders the bins for steps of per_step bins, of which dp run at a time. Bins
 * of about equal cost run at the same time, each step is a mixture, and the
 * cheap bins are at both ends of a step. dp divides per_step, which divides the
 * number of bins. */
void pp_bins_deal(struct pp_bins *b, const uint64_t *cost, size_t dp,
                  size_t per_step);

/* Moves bin k to place[k], for each k. */
void pp_bins_move(struct pp_bins *b, const uint32_t *place);

/* The sequences of one bin, for pp_bin_place. */
struct pp_bin_sequences {
    const uint32_t *tokens; /* multiples of 2 cp */
    const uint64_t *cost;   /* the sum must not overflow */
    size_t n;
    uint32_t cp;       /* context-parallel ranks, at least 2 */
    uint32_t capacity; /* most tokens of a rank; all ranks together have room
                          for the bin */
};

/* Chooses the ranks of each sequence: as few as possible for most, so that all
 * ranks cost about the same and none exceeds its capacity. out has n elements.
 */
void pp_bin_place(const struct pp_bin_sequences *s, struct pp_rank_range *out);

/* Shuffles the bins by seed; the items in a bin keep their order. */
void pp_bins_shuffle(struct pp_bins *b, uint64_t seed);

/* Computes a lower bound on the number of bins from sums of lengths: the
 * Martello-Toth bound L2 and bounds from dual feasible functions. */
void pp_pack_lower_bound(const uint32_t *lengths, size_t n, uint32_t capacity,
                         size_t *bound);

/* Raises that lower bound by a linear program, and then while a search of
 * bounded length shows that fewer bins are impossible. n_bins is the size of a
 * known packing, which limits it. */
void pp_pack_certify(const uint32_t *lengths, size_t n, uint32_t capacity,
                     size_t n_bins, size_t *bound);

#endif
