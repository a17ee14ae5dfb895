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

struct pp_backend; /* unit_bytes.h */

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
    size_t width;    /* elements of a row */
    bool statistics; /* they have the type of accumulated values, and element i
                        of all rows comes before element i + 1 of the first */
};

/* A unit that divides a head passes on two statistics of each row: its
 * log-sum-exp, and the log-probability of the target, over the words of the
 * unit. The loss gives the log-sum-exp over all words back, and the derivative
 * of the loss by minus the log-probability. */
enum { PP_HEAD_STATISTICS = 2 };

/* Returns the bytes of a row. */
static inline size_t pp_edge_bytes(struct pp_edge e, size_t element_bytes,
                                   size_t accumulator_bytes)
{
    return e.width * (e.statistics ? accumulator_bytes : element_bytes);
}

/* A stage passes on rows of one kind, or features of encoders, one encoder's
 * behind another's. n is 0 if nothing passes. */
struct pp_edges {
    size_t n;
    struct pp_edge at[PP_MAX_ENCODERS];
};

/* Returns the edge before unit number `at`, which may be the number of units.
 * Before the first unit of another encoder it has the features of the one
 * before, which no unit of the other reads; and so it is with what units that
 * divide a head pass on. pp_edge_read is what the unit reads: of width 0 before
 * the first one of a component. */
struct pp_edge pp_edge_before(const struct pp_model *m, size_t at);
struct pp_edge pp_edge_read(const struct pp_model *m, size_t at);

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

/* Returns the bytes of all edges of a stage, likewise. */
double pp_stage_edges_rate(const struct pp_shard *s, size_t first, size_t n,
                           const struct pp_backend *b);

/* Returns the elements of the edge before a unit, and of the features that a
 * stage holds, likewise. */
double pp_edge_rate(const struct pp_shard *s, size_t at);
double pp_stage_held_rate(const struct pp_shard *s, size_t first, size_t n);

#endif
