/* SPDX-License-Identifier: MIT */
/* split_megatron - Megatron-LM's rules for which stage holds which layers:
 * even, uneven at the ends, embedding and loss accounted for, and layout
 * strings, which write the stages out. Pure; what Megatron accepts and then
 * fails on or gets wrong is refused here.
 *
 * Stages are in data order: stage s is chunk s div n_ranks of rank s mod
 * n_ranks. */
#ifndef PP_SPLIT_SPLIT_MEGATRON_H
#define PP_SPLIT_SPLIT_MEGATRON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

struct pp_megatron {
    size_t n_layers, n_ranks, n_chunks;
    size_t first, last; /* layers of the first and last rank; 0: like others */
    bool embedding, loss; /* each counts as a layer */
};

/* counts[s] layers for each of the n_ranks * n_chunks stages. A rank's layers
 * are the same in all of its chunks, but for a first or last one that an
 * embedding or loss shortens. */
int pp_split_megatron(const struct pp_megatron *m, size_t *counts,
                      struct pp_err *err) PP_MUST_USE;

/* A layout string: symbols E (embedding), t (decoder layer), m (multi-token
 * prediction layer) and L (loss); a bar between stages; x*N for N times x;
 * (x)*N for N times several; commas mean nothing. *symbols is the same without
 * counts, groups and commas: "Et|tt|tL". At most PP_LAYOUT_SYMBOLS symbols. */
#define PP_LAYOUT_SYMBOLS (1 << 20)
int pp_layout_expand(const char *layout, struct pp_arena *a,
                     const char **symbols, struct pp_err *err) PP_MUST_USE;

/* What a layout must agree with, and what it then is. */
struct pp_layout_check {
    size_t n_ranks;
    size_t n_chunks; /* 0: any; the layout's afterwards */
    size_t n_layers, n_mtp;
    bool mtp_standalone; /* out: an m lies on a rank other than the last */
};

/* Whether expanded symbols are a layout for such a model, Megatron's checks in
 * Megatron's order. An m on the first of several ranks is refused, too. */
int pp_layout_check(const char *symbols, struct pp_layout_check *c,
                    struct pp_err *err) PP_MUST_USE;

size_t pp_layout_n_stages(const char *symbols);

/* Decoder layers of each stage. */
void pp_layout_counts(const char *symbols, size_t *counts);

/* The layout string of n_stages stages of so many layers, E first and L last,
 * with counts and groups where they make it shorter. NULL when out of
 * memory. */
const char *pp_layout_format(struct pp_arena *a, const size_t *counts,
                             size_t n_stages) PP_MUST_USE;

#endif
