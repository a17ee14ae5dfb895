/* SPDX-License-Identifier: MIT */
/* megatron - Megatron-LM's rules for the layers of each stage: the same
 * number everywhere, other numbers on the first and last rank, embedding and
 * loss counted as layers, and layout strings. Pure. Input that Megatron-LM
 * accepts but then crashes on or handles wrong is an error here.
 *
 * Stages are in data order: stage s is chunk s div n_ranks of rank s mod
 * n_ranks. */
#ifndef PP_SPLIT_MEGATRON_H
#define PP_SPLIT_MEGATRON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

struct pp_megatron {
    size_t n_layers, n_ranks, n_chunks;
    size_t first, last;   /* layers of the first and last rank; 0: not given */
    bool embedding, loss; /* counts as a layer */
};

/* Counts the layers of the n_ranks * n_chunks stages. All chunks of a rank have
 * the same number of layers, but embedding and loss may shorten the first and
 * the last stage by one. */
int pp_split_megatron(const struct pp_megatron *m, size_t *counts,
                      struct pp_err *err) PP_MUST_USE;

/* Expands a layout string. Its symbols are E (embedding), t (decoder layer), m
 * (layer for multi-token prediction) and L (loss), with '|' between stages. x*N
 * repeats a symbol, (...)*N repeats a group, and commas are ignored. *symbols
 * becomes the same without counts, groups and commas, such as "Et|tt|tL". It
 * has at most PP_LAYOUT_SYMBOLS symbols. */
#define PP_LAYOUT_SYMBOLS (1 << 20)
int pp_layout_expand(const char *layout, struct pp_arena *a,
                     const char **symbols, struct pp_err *err) PP_MUST_USE;

/* The model and mesh that a layout is for, and results of the check. */
struct pp_layout_check {
    size_t n_ranks;
    size_t n_chunks; /* 0: any. The check sets it to the layout's. */
    size_t n_layers, n_mtp;
};

/* Checks expanded symbols: Megatron-LM's checks in Megatron-LM's order. An m on
 * the first of several ranks is an error, too. */
int pp_layout_check(const char *symbols, struct pp_layout_check *c,
                    struct pp_err *err) PP_MUST_USE;

size_t pp_layout_n_stages(const char *symbols);

/* Counts the decoder layers of each stage. */
void pp_layout_counts(const char *symbols, size_t *counts);

/* Returns the layout string for stages with these numbers of layers, E first
 * and L last. Counts and groups make it short. */
const char *pp_layout_format(struct pp_arena *a, const size_t *counts,
                             size_t n_stages) PP_MUST_USE;

#endif
