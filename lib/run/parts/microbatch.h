/* SPDX-License-Identifier: MIT */
/* microbatch - the input of every layer: rows of packed sequences, and what
 * some layers read besides. The types of these parts are beside their readers.
 *
 * It is one microbatch, or one slice of it: the rows are then the slice's. The
 * integer arrays are in the memory of the kernels, unless they say otherwise.
 */
#ifndef PP_RUN_PARTS_MICROBATCH_H
#define PP_RUN_PARTS_MICROBATCH_H

#include "model/edge.h"
#include "run/parts/encoder/encoder_rows.h"
#include "run/parts/attention/key_rows.h"
#include "run/parts/experts/router_losses.h"
#include "run/parts/head/scored_rows.h"

struct pp_microbatch {
    size_t tokens; /* rows, padding included; may be 0. Each tensor-parallel
                      rank has a part of them between products */
    size_t room;   /* tokens that the saved blocks are laid out for; 0: as many.
                      Ranks that divide experts get rows of each other, and
                      experts with a capacity compare tokens of all ranks */
    bool base;     /* adapters have no part in it */
    size_t n_sequences;
    const int32_t *cu_seqlens, *cu_seqlens_padded; /* n_sequences + 1 */
    const int32_t *positions; /* (tokens) in the sequence; 0 on padding */
    const int32_t *axes; /* (tokens, number of axes) the positions on each axis;
                            NULL: `positions` on every axis */
    const int32_t *input_ids; /* (tokens) 0 for the class token of an image, -1
                                 for patches; -1 on padding, and for words of
                                 other tensor-parallel ranks; else an index
                                 into the words of this one */

    const int32_t *sequence;               /* (n_sequences) number in the bin. A
                                              context-parallel rank has two parts of each. */
    const struct pp_host_microbatch *host; /* the same rows */
    /* The same microbatch as other components of this rank see it: the images
     * for an encoder, and the generator's tokens; or NULL. The language model's
     * view is this one. */
    const struct pp_microbatch *views[PP_N_COMPONENTS];

    /* For a slice, and for the rows of a context-parallel rank. */
    struct pp_key_rows keys;
    /* (n_spans) host memory, in the order of the rows; NULL unless sequences
     * have ranks of their own. Then there are no keys and no order. */
    const struct pp_cp_span *spans;
    size_t n_spans;
    struct pp_slice slice;

    /* For the head. */
    struct pp_scored_rows scored;
    struct pp_ahead ahead;
    struct pp_head_loss loss;
    struct pp_head_targets teacher;
    struct pp_head_details details;

    struct pp_expert_choices experts;
    struct pp_encoder_rows encoder;                  /* for an encoder */
    struct pp_taken_features taken[PP_MAX_ENCODERS]; /* for the embedding */

    /* (rows of this rank) At either end of a bridge to a generator: the place
     * of each row in what is sent or received. NULL: they are in order. */
    const int32_t *bridge;
};

/* A microbatch whose arrays are in host memory. */
struct pp_host_microbatch {
    struct pp_microbatch of;
};

/* Returns the view of the component with these rows, or NULL. */
static inline const struct pp_microbatch *
pp_microbatch_of(const struct pp_microbatch *mb, size_t rows)
{
    return rows == PP_ROWS_TOKENS ? mb : mb->views[pp_rows_component(rows)];
}

/* Returns the tokens that the saved blocks are laid out for. */
static inline size_t pp_layer_room(size_t tokens, size_t room)
{
    return room ? room : tokens;
}

#endif
