/* SPDX-License-Identifier: MIT */
/* layout - which rank does what: the place of every rank in the mesh, and the
 * groups of ranks that exchange data. Pure.
 *
 * A row of the schedule is played by tp x cp x dp ranks in step. A component (a
 * language model, an encoder) has rows of its own and a mesh of its own on
 * consecutive ranks. The order of a mesh's axes says which of them neighbours
 * in rank differ in (Narayanan et al., "Efficient Large-Scale Language Model
 * Training on GPU Clusters Using Megatron-LM", SC 2021, section 3). */
#ifndef PP_MODEL_LAYOUT_H
#define PP_MODEL_LAYOUT_H

#include <stdbool.h>

#include "base/err.h"
#include "base/group.h"
#include "model/mesh.h"

/* A part of the model with a mesh of its own. Its rows are first_row to
 * first_row + mesh.pp - 1. Its ranks are first_rank and the ranks that follow.
 */
struct pp_layout_component {
    struct pp_mesh mesh;
    int first_rank, first_row;
};

#define PP_MAX_COMPONENTS 8

struct pp_layout {
    struct pp_layout_component components[PP_MAX_COMPONENTS];
    int n_components;
    bool generates; /* the last one is a generator behind the language model */
};

/* Returns the component of the language model, which has the tokens. Components
 * before it are encoders. */
static inline const struct pp_layout_component *
pp_layout_language(const struct pp_layout *l)
{
    return &l->components[l->n_components - 1 - l->generates];
}

/* Returns the most positions of a microbatch of the generator, of lanes with up
 * to `room` each and sequences of up to `longest` (bridge_rows.h). */
size_t pp_layout_generated(const struct pp_layout *l, size_t room,
                           size_t longest);

/* Reports whether a component is an encoder. */
static inline bool pp_layout_encodes(const struct pp_layout *l, int component)
{
    return component + 1 + l->generates < l->n_components;
}

/* Reports whether it is a generator. */
static inline bool pp_layout_generates(const struct pp_layout *l, int component)
{
    return l->generates && component + 1 == l->n_components;
}

/* The place of a rank in its component. Components lie beside each other: they
 * share neither ranks nor rows. */
struct pp_place {
    int component;
    int row;        /* of the schedule */
    int tp, cp, dp; /* index on each axis */
};

/* The ranks that differ from a place in these axes alone. */
enum pp_group_kind {
    PP_GROUP_TP,
    PP_GROUP_CP,
    PP_GROUP_DP,
    PP_GROUP_PP,      /* the same place in every row of the component */
    PP_GROUP_DATA,    /* cp, then dp: these ranks hold the same dense weights */
    PP_GROUP_SHARERS, /* tp, then cp: these ranks divide a microbatch */
    PP_GROUP_ROW,     /* tp, then cp, then dp: these ranks play one row */
    /* The ep ranks that divide the experts. They are consecutive over cp, then
     * dp; over tp first if the mesh says experts_over_tp. */
    PP_GROUP_EP,
    PP_GROUP_EXPERT_DATA, /* the ranks that hold the same experts */
    /* Consecutive ranks of PP_GROUP_ROW that divide the tensors of an encoder,
     * and the ranks of the row that hold the same part of them. */
    PP_GROUP_ENCODER_TP,
    PP_GROUP_ENCODER_DATA,
    /* The ranks of a row that exchange features of images: the fewest that have
     * whole microbatches and whole groups of PP_GROUP_ENCODER_TP. */
    PP_GROUP_FEATURES,
    PP_N_GROUPS
};

/* Returns the number of ranks of a mesh. */
int pp_mesh_ranks(const struct pp_mesh *x);

/* Returns one more than the last rank. */
int pp_layout_ranks(const struct pp_layout *l);

/* Returns the rank of a place. */
int pp_layout_rank(const struct pp_layout *l, const struct pp_place *p);

/* Finds the place of a rank in a component. Returns false if it has none. */
bool pp_layout_place(const struct pp_layout *l, int component, int rank,
                     struct pp_place *p);

/* Finds the first component that plays a row; it is the last one if none
 * does. */
int pp_layout_component(const struct pp_layout *l, int row);

/* Finds the place of a rank in the first component that has it. Returns false
 * if none has. */
bool pp_layout_find(const struct pp_layout *l, int rank, struct pp_place *p);

/* Returns the ranks of a row that exchange messages with the rank at a place:
 * in its component the one at its own place; in another one, all of the row
 * (PP_GROUP_ROW), over a bridge. */
struct pp_group pp_layout_partners(const struct pp_layout *l,
                                   const struct pp_place *p, int row);

/* Returns the rank that has the same place in another row of the component. */
int pp_layout_peer(const struct pp_layout *l, const struct pp_place *p,
                   int row);

/* Returns the group of that kind that the place belongs to. */
struct pp_group pp_layout_group(const struct pp_layout *l,
                                const struct pp_place *p,
                                enum pp_group_kind kind);

/* Returns the ranks that divide the images of an encoder, whose number in the
 * model is that of its component if it has one of its own. Sets the
 * microbatches whose images they divide at once: on the language model's ranks
 * the ranks of PP_GROUP_FEATURES, else one of each of its data-parallel ranks.
 * Each may be several ranks that divide the tensors of the encoder:
 * pp_layout_encoder_tp returns how many. */
size_t pp_layout_makers(const struct pp_layout *l, size_t encoder,
                        size_t *lanes);
size_t pp_layout_encoder_tp(const struct pp_layout *l, size_t encoder);

/* Sets how ranks divide the images of an encoder. */
struct pp_image_load;
void pp_layout_divide_images(const struct pp_layout *l, size_t encoder,
                             struct pp_image_load *load);

/* Returns the mesh of the ranks that hold the units of a row, of an encoder or
 * of the language model (pp_mesh_of). */
struct pp_mesh pp_layout_mesh(const struct pp_layout *l, int row,
                              bool is_encoder);

/* Returns the bytes that the busier end of a bridge sends or takes, over the
 * bytes of the features of a rank of the encoder; 1: there is no bridge. Each
 * of these ranks gets all its gradients, so that the gradients of a feature are
 * sent to as many ranks as divide tensors. */
double pp_layout_busier_end(const struct pp_layout *l, int component);

/* Sets what the tables of a rank of that row have of the images of an encoder.
 * merge: pp_vision_merge_any; states: the encoder's states in a feature;
 * features: the most of an encoder with a mesh of its own, on one rank. */
struct pp_table_counts;
void pp_count_images(struct pp_table_counts *c, const struct pp_layout *l,
                     int row, size_t encoder, size_t merge, size_t states,
                     size_t features);

#endif
