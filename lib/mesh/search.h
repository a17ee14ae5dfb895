/* SPDX-License-Identifier: MIT */
/* search - the mesh, the microbatch, the schedule, the split and the
 * recomputation with the shortest step on a cluster. Pure.
 *
 * Every mesh gets a lower bound of its step by its work and its memory, then
 * one for each kind of schedule, and the meshes with the least are planned
 * exactly and simulated, the most promising first (branch and bound). What was
 * not planned has a bound, so the answer has a proved gap: to the best plan of
 * the space within the model of costs. */
#ifndef PP_MESH_SEARCH_H
#define PP_MESH_SEARCH_H

#include "mesh/shape.h"
#include "split/row.h"

/* Why a mesh has no plan. */
enum pp_mesh_refusal {
    PP_MESH_REFUSED_TP,      /* its ranks cannot divide heads or widths */
    PP_MESH_REFUSED_CP,      /* or sequences */
    PP_MESH_REFUSED_EP,      /* or experts */
    PP_MESH_REFUSED_PP,      /* more pipeline ranks than units */
    PP_MESH_REFUSED_BATCH,   /* dp does not divide the global batch */
    PP_MESH_REFUSED_TRAINER, /* the trainer has no such ranks */
    PP_MESH_REFUSED_MEMORY,  /* no schedule and no split of it can fit */
    PP_N_MESH_REFUSALS
};
extern const char *const pp_mesh_refusal_names[PP_N_MESH_REFUSALS];

/* Settings to keep; 0: any, unless a comment says otherwise. */
struct pp_mesh_fixed {
    int tp, cp, ep, pp, dp, chunks;
    int zero;            /* -1: any */
    int order;           /* -1: any with tp fastest */
    int experts_over_tp; /* -1: any */
    int recompute; /* a level, PP_N_RECOMPUTES for any by stage; -1: any */
    int64_t micro_batch;                       /* sequences */
    const struct pp_kind *kinds[PP_MAX_KINDS]; /* n_kinds; 0: any */
    size_t n_kinds;
};

/* The problem. All pointers are borrowed. */
struct pp_mesh_problem {
    /* Model, types, trainer, machine, memory and length of sequences, and what
     * else all plans have. Its mesh, ranks, chunks, microbatch, kind, profile
     * and recomputation are not read; the mesh has the settings that meshes
     * keep, such as settings of experts. */
    const struct pp_split_request *request;
    int n_ranks;
    int64_t global_batch; /* sequences */
    int node;             /* ranks of a node */
    struct pp_mesh_fixed fixed;
    size_t n_rows;  /* meshes to find, the best ones; >= 1 */
    size_t n_plans; /* the most that are planned exactly */
    bool points;    /* also keep all meshes and plans for a picture */
    bool promising; /* plan only what is estimated to be among these rows */
    /* Called now and then; returns whether to stop with the best so far. May be
     * NULL. */
    bool (*progress)(void *ctx, size_t n_meshes, size_t n_plans, double best);
    void *ctx;
};

/* The parts of a step. */
enum pp_mesh_share {
    PP_MESH_BUBBLE, /* ranks wait for each other */
    PP_MESH_TP,     /* exchanges within compute actions */
    PP_MESH_CP,
    PP_MESH_EP,
    PP_MESH_DP, /* sums of gradients, gathers of weights */
    PP_MESH_UPDATE,
    PP_N_MESH_SHARES
};
extern const char *const pp_mesh_share_names[PP_N_MESH_SHARES];

/* A mesh that was bounded, or a plan. */
struct pp_mesh_point {
    struct pp_mesh mesh;
    int64_t micro_batch; /* sequences */
    const char *kind;    /* of a plan; else NULL */
    double step, need;   /* a bound: no plan of the mesh takes or needs less, if
                            it recomputes nothing, in the mean of its ranks */
    bool fits;           /* for all that is known */
};

struct pp_mesh_found {
    struct pp_arena arena;
    struct pp_split_row *rows; /* plans that fit, each the best found of its
                                 mesh, by step */
    size_t n_rows, capacity;
    struct pp_split_row obvious; /* tp as large as a node, the fewest pipeline
                                   ranks, an even split and 1f1b; step 0: there
                                   is none */
    struct pp_split_row nearest; /* if nothing fits: the plan that needs least;
                                   step 0: there is none */
    double bound;                /* no plan of the space has a shorter step */
    size_t n_meshes, n_refused[PP_N_MESH_REFUSALS];
    size_t n_bounds, n_plans; /* shapes that were bounded, and planned */
    bool stopped;
    struct pp_mesh_point *points; /* all meshes, then plans in their order */
    size_t n_points, points_capacity;
};

/* Searches. Finish found. */
void pp_mesh_search(const struct pp_mesh_problem *p,
                    struct pp_mesh_found *found);

/* Sets *step to the step of a row if the links of a level of the machine were
 * twice as fast. */
int pp_mesh_faster(const struct pp_split_row *row, size_t level, double *step,
                   struct pp_err *err) PP_MUST_USE;

/* Sets *step to the step of a row's mesh and kind with so many bytes more on
 * each rank, which may save recomputation. */
int pp_mesh_larger(const struct pp_split_row *row, size_t bytes, double *step,
                   struct pp_err *err) PP_MUST_USE;

/* Fills the shares of the step of a row. */
int pp_mesh_shares(const struct pp_split_row *row,
                   double shares[PP_N_MESH_SHARES],
                   struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_mesh_found_finish(struct pp_mesh_found *found);

#endif
