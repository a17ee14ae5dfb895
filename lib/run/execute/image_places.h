/* SPDX-License-Identifier: MIT */
/* image_places - which rank makes the features of an image, and which ranks
 * have their tokens: pure functions of the index.
 *
 * Makers divide the images of a group of microbatches, as whole images in their
 * order, with as equal numbers of patches as can be. Takers have the tokens:
 * tp x cp ranks for each microbatch. An encoder in the language model's mesh
 * has groups of one microbatch, whose takers make its features. If it divides
 * the language model's ranks in a way of its own, takers are makers too, and a
 * group may have microbatches of several data-parallel ranks, the lanes. An
 * encoder on ranks of its own has as many makers as data-parallel and
 * context-parallel ranks. Its action k has the microbatches of action k on all
 * lanes. The tensor-parallel ranks of an encoder are copies of a maker: they
 * all have its features and need their gradients. */
#ifndef PP_RUN_EXECUTE_IMAGE_PLACES_H
#define PP_RUN_EXECUTE_IMAGE_PLACES_H

#include "data/packed/packed.h"
#include "model/edge.h"
#include "run/execute/bridge_rows.h"
#include "run/parts/env.h"

/* The images of an encoder that concern a rank in an action. */
struct pp_image_work {
    const struct pp_packed *packed;
    size_t encoder;
    enum pp_modality modality; /* of the stream that the encoder takes */
    uint64_t first, end; /* places of the microbatches (pp_packed_place); places
                            that are not before end are empty */
    size_t n_lanes;
    size_t n_makers, tp, cp; /* tp, cp: of a lane */
    bool makes, takes;       /* this rank is a maker, or a taker */
    size_t maker, lane, taker;
    size_t copies, copy; /* of a maker, and the number of this one; of a taker
                            alone: the one that sends to it */
};

/* Returns the work for an encoder of the rank of an env whose microbatch is at
 * place `at`, or the first lane's if it has no tokens. A rank of another
 * encoder neither makes nor takes. */
struct pp_image_work pp_image_work_of(const struct pp_env *env, size_t encoder,
                                      const struct pp_packed *p, uint64_t at,
                                      uint64_t end);

static inline size_t pp_image_takers(const struct pp_image_work *w)
{
    return w->n_lanes * w->cp * w->tp;
}

/* Reports whether this rank sorts the features that it makes by the rank that
 * takes them. Takers of a lane each follow each other as their features do. */
static inline bool pp_image_sorts(const struct pp_image_work *w)
{
    return w->makes && (w->tp * w->cp > 1 || (w->takes && w->n_lanes > 1));
}

/* Returns the bin of a lane, or PP_NO_BIN. */
size_t pp_image_bin(const struct pp_image_work *w, size_t lane);

/* A walk through the images of a group, lane by lane. */
struct pp_image_walk {
    const struct pp_image_work *work;
    struct pp_bin_items images; /* of the lane */
    uint32_t next;              /* image of the lane */
    uint64_t before, total;     /* patches of the group */
    uint32_t number;            /* the current image of the lane, ... */
    size_t patches, maker;      /* ... its patches, and who makes it */
};

/* Begins a walk before the first lane. Lanes are opened in order, and
 * pp_image_walk_next takes the next image of the lane, if there is one. */
void pp_image_walk_begin(struct pp_image_walk *s,
                         const struct pp_image_work *w);
void pp_image_walk_open(struct pp_image_walk *s, size_t lane);
bool pp_image_walk_next(struct pp_image_walk *s);

/* A feature and its token. */
struct pp_feature {
    size_t maker;
    struct pp_row_place taker;
};
typedef void pp_visit_feature_fn(void *ctx, const struct pp_feature *f);

/* Visits the features of a group in their order: of all lanes on a maker, and
 * of its own lane on another rank. */
void pp_image_visit(const struct pp_image_work *w, const struct pp_model *m,
                    pp_visit_feature_fn *visit, void *ctx);

/* Returns the taker of the token at a place of sequence i of a lane. */
struct pp_row_place pp_image_taker(const struct pp_image_work *w, size_t lane,
                                   const struct pp_bin *bin, size_t i,
                                   size_t place);

/* Counts the features of a message with each maker or taker: features that this
 * maker has for each taker, or that each maker has for this taker. bounds has
 * one more entry than there are such ranks; part k is bounds[k] to bounds[k +
 * 1].
 */
void pp_image_bounds(const struct pp_image_work *w, const struct pp_model *m,
                     size_t *bounds);

/* Returns the part of a message with rank number k of the other row. */
static inline size_t pp_image_part(const struct pp_image_work *w, size_t k)
{
    return w->makes ? k : k / w->copies;
}

/* Reports whether this rank sends features to rank number k of the other row,
 * or gets them from it. Of the copies of a maker one sends to a taker, and they
 * take turns: so a feature is sent once, and in few messages. Gradients go to
 * all copies, which each need them. */
static inline bool pp_image_passes(const struct pp_image_work *w, size_t k)
{
    return k % w->copies == w->copy;
}

/* Returns the rows that the rank has: of the encoder or features that it makes,
 * or features that it takes if it makes none. */
size_t pp_image_rows_of_rank(const struct pp_image_work *w,
                             const struct pp_model *m, size_t rows);

#endif
