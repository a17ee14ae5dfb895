/* SPDX-License-Identifier: MIT */
/* pack - bin packing of sequence lengths. Pure: lengths in, bins out. */
#ifndef PP_PACK_PACK_H
#define PP_PACK_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_bins {
    size_t n_bins, n_items;
    size_t *first;   /* n_bins + 1: bin b holds items[first[b]..first[b+1]) */
    uint32_t *items; /* input indices in the order the rule emits them */
};

/* A packing rule: n lengths (already aligned, none above capacity) into bins of
 * the given capacity, at least 1. Fills *out, which pp_bins_finish frees; on
 * failure there is nothing to free. For the rule "none" the capacity is the
 * number of items of a bin, whatever their lengths. */
typedef int pp_pack_fn(const uint32_t *lengths, size_t n, uint32_t capacity,
                       struct pp_bins *out, struct pp_err *err);

/* Divides n sequences into n_parts, of which there are at least 1 and at most
 * n, with no regard to a capacity. */
typedef int pp_parts_fn(const uint32_t *lengths, size_t n, size_t n_parts,
                        struct pp_bins *out, struct pp_err *err);

/* A rule that draws from a seed. */
typedef int pp_draw_fn(const uint32_t *lengths, size_t n, uint32_t capacity,
                       uint64_t seed, struct pp_bins *out, struct pp_err *err);

/* A rule that looks at lengths without padding, too: slots are with it. */
typedef int pp_unpadded_fn(const uint32_t *lengths, const uint32_t *padded,
                           size_t n, uint32_t capacity, struct pp_bins *out,
                           struct pp_err *err);

struct pp_packer {
    const char *name;    /* "bfd" */
    const char *summary; /* one line */
    pp_pack_fn *pack;
    pp_parts_fn *divide; /* for a given number of parts; or NULL */
    pp_draw_fn *draw;    /* for a given seed, which is PP_PACK_SEED with pack;
                            or NULL */
    pp_unpadded_fn *unpadded; /* with padded sequences, in place of pack; or
                                 NULL */
};

#define PP_PACK_SEED 42

/* All rules, ending with a zeroed entry. */
extern const struct pp_packer pp_packers[];

const struct pp_packer *pp_packer_find(const char *name);

void pp_bins_finish(struct pp_bins *b);

/* The largest sum of lengths in a bin. */
uint64_t pp_bins_largest(const struct pp_bins *b, const uint32_t *lengths);

/* Raises the number of bins to a multiple that is at least least, balancing
 * loads; no bin is empty and none exceeds capacity. Fails when there are fewer
 * items than that. */
int pp_bins_multiple(struct pp_bins *b, const uint32_t *lengths,
                     uint32_t capacity, size_t least, size_t multiple,
                     struct pp_err *err) PP_MUST_USE;

/* The same in NeMo-RL's way: bins of most items first, of as many the last,
 * each gives its last items up, one to a new bin at the end, until it has one
 * left. */
int pp_bins_multiple_by_popping(struct pp_bins *b, size_t least,
                                size_t multiple,
                                struct pp_err *err) PP_MUST_USE;

/* Moves items between bins so that the costliest bin costs less; the number of
 * bins stays, none is empty and none exceeds capacity. The sum of all costs
 * does not overflow. */
int pp_bins_balance(struct pp_bins *b, const uint32_t *lengths,
                    const uint64_t *cost, uint32_t capacity,
                    struct pp_err *err) PP_MUST_USE;

/* Puts the bins in an order for steps of per_step bins, of which lanes run at a
 * time: like ones at the same time, each step a mixture, the cheap ones at the
 * ends of a step. lanes divides per_step, which divides the number of bins. */
int pp_bins_deal(struct pp_bins *b, const uint64_t *cost, size_t lanes,
                 size_t per_step, struct pp_err *err) PP_MUST_USE;

/* Puts the bins, not the items in them, in an order drawn from seed. */
int pp_bins_shuffle(struct pp_bins *b, uint64_t seed,
                    struct pp_err *err) PP_MUST_USE;

/* A lower bound on the number of bins, from sums of lengths: the Martello-Toth
 * L2 bound and those of dual feasible functions. */
int pp_pack_lower_bound(const uint32_t *lengths, size_t n, uint32_t capacity,
                        size_t *bound, struct pp_err *err) PP_MUST_USE;

/* A better lower bound, at most n_bins of a packing that is known: that, and
 * what a search of bounded length shows to be impossible. */
int pp_pack_certify(const uint32_t *lengths, size_t n, uint32_t capacity,
                    size_t n_bins, size_t *bound,
                    struct pp_err *err) PP_MUST_USE;

#endif
