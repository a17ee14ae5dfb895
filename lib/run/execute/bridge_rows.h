/* SPDX-License-Identifier: MIT */
/* bridge_rows - the way of rows between the ranks of a language model and the
 * ranks of a generator that divide them in another way: pure functions of the
 * index.
 *
 * Action k of the generator has the sequences of action k of the language model
 * on all its data-parallel ranks, the lanes. The generator's data-parallel
 * ranks divide them. If there are as many lanes for each, it has the sequences
 * of these lanes; else each has consecutive whole sequences, and one belongs to
 * the rank that its middle falls to if all positions are divided equally. The
 * sequences of a rank follow each other as one microbatch, with the padding of
 * the packed data. Context-parallel and tensor-parallel ranks divide its rows
 * as the rows of any microbatch.
 *
 * Every row of a sequence goes from one rank to one rank. A message has its
 * rows in the order of lanes, sequences and positions. */
#ifndef PP_RUN_EXECUTE_BRIDGE_ROWS_H
#define PP_RUN_EXECUTE_BRIDGE_ROWS_H

#include "data/packed/packed.h"
#include "run/parts/env.h"

/* The ranks of a row, which divide the positions of an action. */
struct pp_row_ranks {
    size_t dp, cp, tp;
};

/* The rank that has a row: its number in its row of the schedule; and the row
 * among the rows of the context-parallel rank. */
struct pp_row_place {
    size_t number, row;
};

/* Returns the place of position `at` of a sequence of n, which begins at
 * `first` of the `tokens` of a data-parallel rank. */
struct pp_row_place pp_row_place(const struct pp_row_ranks *r, size_t dp,
                                 size_t tokens, size_t first, size_t n,
                                 size_t at);

struct pp_bridge {
    const struct pp_packed *packed;
    uint64_t first, end; /* places of the microbatches (pp_packed_place); places
                            that are not before end are empty */
    struct pp_row_ranks language, generator;
    bool generates; /* this rank is the generator's */
    size_t dp;      /* index of this rank, ... */
    size_t number;  /* ... and its number in its row (PP_GROUP_ROW) */
    size_t *tokens; /* (generator.dp) positions of each of its ranks */
    size_t *next;   /* (generator.dp) room */
};

/* Returns the ranks at either end. */
static inline size_t pp_row_size(const struct pp_row_ranks *r)
{
    return r->dp * r->cp * r->tp;
}

/* Returns the bridge of the rank of an env in the action whose first lane has
 * its microbatch at place `first`. Fills tokens; tokens and next are borrowed.
 */
struct pp_bridge pp_bridge_of(const struct pp_env *env,
                              const struct pp_packed *p, uint64_t first,
                              uint64_t end, size_t *tokens, size_t *next);

/* Returns the rows of this rank. */
size_t pp_bridge_rows(const struct pp_bridge *b);

/* Counts the rows that this rank exchanges with each rank of the other end, by
 * its number there. Part k of a message is bounds[k] to bounds[k + 1]. */
void pp_bridge_bounds(const struct pp_bridge *b, size_t *bounds);

/* Writes the place of each row of this rank in its messages, one after the
 * other. bounds has the bounds of pp_bridge_bounds before and after. */
void pp_bridge_places(const struct pp_bridge *b, size_t *bounds,
                      int32_t *places);

/* Fills *out with the sequences of this rank of the generator, and the arrays
 * that it points to. */
struct pp_joined_bin {
    int32_t *cu_seqlens, *cu_seqlens_padded, *ids, *labels;
};
void pp_bridge_join(const struct pp_bridge *b, const struct pp_joined_bin *to,
                    struct pp_bin *out);

#endif
