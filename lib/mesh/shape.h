/* SPDX-License-Identifier: MIT */
/* shape - what a kind of schedule asks of every split: paths through its order,
 * and the microbatches that its ranks keep. Pure.
 *
 * Both follow from the kind and from the numbers of ranks, chunks and
 * microbatches alone, so that thousands of meshes share one shape. */
#ifndef PP_MESH_SHAPE_H
#define PP_MESH_SHAPE_H

#include "mesh/units.h"
#include "schedule/kinds/kind.h"

/* A mean of some paths through an order: per stage, how often it has each of
 * its times; and messages on it. */
struct pp_mesh_path {
    double (*weight)[PP_N_TIMES], messages;
};

/* For splits that pay nothing for memory, little and much. */
enum { PP_MESH_N_PATHS = 3 };

struct pp_mesh_shape {
    const struct pp_kind *kind;
    enum pp_placement placement;
    int n_ranks, n_chunks, n_microbatches;
    /* Filled by pp_mesh_shape_init. */
    struct pp_arena *arena;
    bool runs; /* else the kind refuses these numbers */
    int n_stages;
    struct pp_mesh_path path[PP_MESH_N_PATHS]; /* found when first needed */
    /* Per stage: microbatches whose blocks its rank keeps during one action. */
    double (*kept)[PP_N_SAVED_BLOCKS];
    int *row;   /* per stage */
    bool pairs; /* all ranks run a forward and a backward at once */
};

/* Fills a shape whose first lines are set, in memory of the arena, which is
 * borrowed. */
void pp_mesh_shape_init(struct pp_mesh_shape *x, struct pp_arena *a);

/* The units of a model on a mesh, to be split for a shape. */
struct pp_mesh_bound {
    const struct pp_mesh_classes *classes;
    const struct pp_mesh_unit *units;
    double limit;   /* bytes of a rank */
    double message; /* seconds of the quickest message */
};

/* The most pipeline ranks, and stages of one. */
enum { PP_MESH_MOST_ROWS = 512, PP_MESH_MOST_CHUNKS = 4 };

/* A lower bound of the step for every split with one mode of recomputation, or
 * with PP_N_RECOMPUTES for any modes of stages; and an estimate. Both are
 * infinite if nothing fits. */
struct pp_mesh_least {
    double bound, estimate;
};
struct pp_mesh_least pp_mesh_shape_least(struct pp_mesh_shape *x,
                                         const struct pp_mesh_bound *b,
                                         int mode);

/* The same from the memory of ranks alone, which takes less time. */
struct pp_mesh_least pp_mesh_shape_held(const struct pp_mesh_shape *x,
                                        const struct pp_mesh_bound *b,
                                        int mode);

/* The same for every schedule on so many ranks: a rank keeps one microbatch,
 * and never waits. */
struct pp_mesh_least pp_mesh_least(int n_ranks, int n_microbatches,
                                   const struct pp_mesh_bound *b);

/* Returns the bytes of the mean rank that holds all units and one microbatch
 * without recomputation. */
double pp_mesh_need(int n_ranks, const struct pp_mesh_bound *b);

#endif
