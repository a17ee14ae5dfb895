/* SPDX-License-Identifier: MIT */
/* units - what the units of a model take and keep on a rank of a mesh, for
 * bounds: units that are alike count as one. Pure.
 *
 * All figures come from the functions that plans get theirs from
 * (cost/stage_costs.h, split/describe.h). */
#ifndef PP_MESH_UNITS_H
#define PP_MESH_UNITS_H

#include "cost/stage_costs.h"
#include "schedule/simulate/makespan.h"
#include "split/describe.h"

/* Units of one kind: alike in all that they take and keep. */
struct pp_mesh_class {
    size_t unit;  /* the first of them */
    size_t count; /* of units that are neither the first nor the last */
    bool layer;   /* has modes of recomputation */
};

enum { PP_MESH_BUCKETS = 4096 }; /* of a hash table */

struct pp_mesh_classes {
    struct pp_arena *arena;
    struct pp_mesh_class *all;
    size_t n, first, last; /* classes of the first and of the last unit */
    size_t main;           /* the layers that take most together */
    size_t before, after;  /* units before them and after them; before has all
                              units if others are among them */
    size_t *of;            /* per unit: its class */
    const char **names;    /* per unit */
    /* Units on the meshes so far. */
    struct pp_mesh_described *described[PP_MESH_BUCKETS];
    /* Room for the plans that costs are read from. */
    struct pp_unit_seconds *seconds;
    struct pp_plan_stage *stages;
    struct pp_stage_node *nodes;
};

/* Finds the classes of the model of a request, in memory of the arena. */
void pp_mesh_classes_init(struct pp_mesh_classes *c, struct pp_arena *a,
                          const struct pp_split_request *q);

/* The time and the memory of a unit of a class. */
struct pp_mesh_unit {
    double time[PP_N_RECOMPUTES][PP_N_TIMES];       /* of a microbatch */
    double act[PP_N_RECOMPUTES][PP_N_SAVED_BLOCKS]; /* bytes of a microbatch */
    double workspace[PP_N_RECOMPUTES]; /* bytes, within an action */
    double fixed;  /* bytes that the trainer holds for it on a rank, whatever it
                      computes */
    double state;  /* bytes */
    double whole;  /* bytes of its weights while its stage keeps anything, if
                      ranks divide them */
    double step;   /* seconds of collectives, once a step, that no work hides */
    double beside; /* the same, that work may hide */
    double update;
    double output; /* bytes of a message after it */
};

/* Fills one entry for each class, for the mesh and the microbatch of a request
 * whose pipeline ranks are mesh.pp. */
void pp_mesh_units(struct pp_mesh_classes *c, const struct pp_split_request *q,
                   struct pp_mesh_unit *units);

/* Fills the seconds of all units of the model: its profile on a mesh. */
void pp_mesh_profile(const struct pp_mesh_classes *c,
                     const struct pp_split_request *q,
                     struct pp_profile *profile);

#endif
