/* SPDX-License-Identifier: MIT */
/* edge - what one unit of a model passes to the next. Pure.
 *
 * A microbatch of a model with an encoder of images has rows of three kinds:
 * tokens of the language model; tokens of the encoder; and features, the rows
 * that the projector makes and the embedding puts in the place of placeholders.
 * A generator behind the language model has rows of its own: as many, but its
 * ranks may divide them in another way. Messages, buffers and what a unit saves
 * have the rows of their edge. */
#ifndef PP_MODEL_EDGE_H
#define PP_MODEL_EDGE_H

#include "model/shard.h"

/* The kinds of rows. Rows number c are the rows of component c: patches with
 * class tokens, or tokens. Features of encoder k are PP_ROWS_FEATURES + k. */
enum {
    PP_ROWS_TOKENS = PP_LANGUAGE,
    PP_ROWS_GENERATED = PP_GENERATOR,
    PP_ROWS_FEATURES = PP_N_COMPONENTS,
    PP_N_ROWS = PP_ROWS_FEATURES + PP_MAX_ENCODERS
};

/* Returns the component that makes rows of a kind. */
static inline size_t pp_rows_component(size_t rows)
{
    return rows % PP_N_COMPONENTS;
}

/* Reports whether they are tokens, and not an encoder's. */
static inline bool pp_rows_of_tokens(size_t rows)
{
    return pp_rows_component(rows) >= PP_LANGUAGE;
}

/* A row of what passes between two units. The width is 0 before the first unit
 * and after the last one, where nothing passes. A generator reads rows of the
 * language model's width. */
struct pp_edge {
    size_t rows;
    size_t width; /* elements of a row */
};

/* A stage passes on rows of one kind, or features of encoders, one encoder's
 * behind another's. n is 0 if nothing passes. */
struct pp_edges {
    size_t n;
    struct pp_edge at[PP_MAX_ENCODERS];
};

/* Returns the edge before unit number `at`, which may be the number of units.
 * Before the first unit of another encoder it has the features of the one
 * before, which no unit of the other reads. */
struct pp_edge pp_edge_before(const struct pp_model *m, size_t at);

/* Returns what a stage of units first to first + n - 1 passes on; without units
 * it is what it gets. */
struct pp_edges pp_stage_edges(const struct pp_model *m, size_t first,
                               size_t n);

/* Reports whether a stage of these units makes the features of an encoder and
 * holds them while it computes another one, until its embedding reads them. */
bool pp_stage_holds(const struct pp_model *m, size_t first, size_t n,
                    size_t encoder);

/* Returns the rows of which a unit saves tensors. */
size_t pp_unit_rows(struct pp_unit_id u);

/* Returns the rows that an image of so many patches has: features, or patches.
 */
size_t pp_image_rows(const struct pp_vision *v, size_t patches, size_t rows);

/* Returns the rows of a kind on a rank for each of its tokens. */
double pp_rows_rate(const struct pp_shard *s, size_t rows);

/* Returns the elements of the edge before a unit, of all edges of a stage, and
 * of the features that it holds, likewise. */
double pp_edge_rate(const struct pp_shard *s, size_t at);
double pp_stage_edges_rate(const struct pp_shard *s, size_t first, size_t n);
double pp_stage_held_rate(const struct pp_shard *s, size_t first, size_t n);

#endif
