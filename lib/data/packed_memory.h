/* SPDX-License-Identifier: MIT */
/* packed_memory - packed sets made in memory from another: its first bins, one
 * sequence at a time, or a small likeness of it.
 *
 * What is made is read like a mapped directory and freed by pp_packed_finish.
 * Sequences are numbered anew: source counts them in bin order, so that one of
 * these is known by its number in all that were made from the same bins. */
#ifndef PP_DATA_PACKED_MEMORY_H
#define PP_DATA_PACKED_MEMORY_H

#include "data/packed.h"

/* The first n_bins bins as they are, the set beginning anew at its end. */
int pp_packed_take(const struct pp_packed *p, size_t n_bins,
                   struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

/* Every sequence in a bin of its own, without padding, in order. p was made
 * here, and sequences keep their numbers. */
int pp_packed_unpack(const struct pp_packed *p, struct pp_packed *out,
                     struct pp_err *err) PP_MUST_USE;

struct pp_synthetic_data {
    uint32_t tokens;        /* slots of the largest bin, about */
    uint32_t max_sequences; /* of a bin: further ones are left out */
    uint32_t vocab;
    uint64_t seed;
};

/* As many bins of sequences whose lengths, padding and ignored labels are those
 * of p's first bins in small; ids are random. Without p the lengths are random
 * too and nothing is padded. */
int pp_packed_synthetic(const struct pp_packed *p, size_t n_bins,
                        const struct pp_synthetic_data *l,
                        struct pp_packed *out, struct pp_err *err) PP_MUST_USE;

#endif
