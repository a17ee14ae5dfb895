/* SPDX-License-Identifier: MIT */
/* key_rows - what attention and routers read of a microbatch that has a part of
 * its sequences alone: a slice, or the rows of a context-parallel rank. */
#ifndef PP_RUN_PARTS_ATTENTION_KEY_ROWS_H
#define PP_RUN_PARTS_ATTENTION_KEY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"
#include "model/unit_bytes.h"

/* The keys that the rows attend to. */
struct pp_key_rows {
    const struct pp_attention_keys *of; /* (n_sequences), or NULL: their own */
    size_t n;
    /* (n) For a context-parallel rank: the row of each key when the rows of all
     * ranks follow each other. */
    const int32_t *order;
    size_t n_whole;
    const int32_t *whole_cu, *whole_cu_padded; /* (n_whole + 1) the sequences,
                                                  or their parts in a slice, on
                                                  all ranks */
};

/* Sequences of a bin that `ranks` context-parallel ranks share, if sequences
 * have ranks of their own: this one and its neighbours. They are microbatches
 * of their own for attention. */
struct pp_cp_span {
    int ranks, first; /* the group: its first rank among all */
    size_t first_row, tokens, n_sequences;
    /* As in struct pp_microbatch, from first_row on; on one rank without keys.
     */
    const int32_t *cu_seqlens, *cu_seqlens_padded;
    struct pp_key_rows keys;
};

enum { PP_MOST_SPANS = 32 }; /* divisors of PP_MOST_SIZED_RANKS or less */

/* An earlier slice of the same microbatch, and its saved blocks in the stage.
 */
struct pp_slice_blocks {
    size_t tokens, room; /* see struct pp_microbatch */
    size_t n_scored;     /* with an objective, and only if a backward follows */
    void *block[PP_N_UNIT_BLOCKS];
};

/* The place of a slice in its microbatch. */
struct pp_slice {
    size_t first_row; /* tokens of the earlier slices */
    size_t context;   /* the part of them in the sequence that continues here;
                         on all context-parallel ranks, as first_row */
    size_t real;      /* tokens of the whole microbatch, without padding */
    size_t n_before;  /* number of earlier slices */
    const struct pp_slice_blocks *before; /* (n_before) */
    bool continues;                       /* later slices follow */
};

#endif
