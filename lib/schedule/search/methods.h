/* SPDX-License-Identifier: MIT */
/* methods - the ways in which auto finds orders, private to
 * lib/schedule/search: list schedules under policies, and annealing of single
 * moves. */
#ifndef PP_SCHEDULE_SEARCH_METHODS_H
#define PP_SCHEDULE_SEARCH_METHODS_H

#include "schedule/search/problem.h"

/* --- list schedules under a policy ---
 *
 * Event-driven: a rank that is free starts the ready forward or input gradient
 * that the policy likes best, and runs weight gradients when it would wait.
 * Memory never locks up: a forward enters only if the oldest microbatch that
 * still has forwards to run keeps its memory (banker's rule). */
enum pp_policy_order {
    PP_POLICY_BACKWARD, /* input gradients before forwards */
    PP_POLICY_FORWARD,  /* forwards before input gradients */
    PP_POLICY_PATH      /* the longest path to the end first */
};

struct pp_policy {
    bool shallow;   /* prefer forwards of earlier stages */
    double late;    /* PATH: cost of being one microbatch later in the row, in
                       times of a rank's work for one */
    int32_t *ahead; /* per stage: the most forwards ahead of backwards */
    struct pp_row_heuristic {
        enum pp_policy_order order;
        double min_fill;   /* a weight gradient starts if at least this share of
                             it fits before the next known arrival */
        double wait_ratio; /* wait for an op that is liked better, up to this
                            share of the time of the op that is ready */
    } * heuristics;        /* per rank */
};

/* Allocates the arrays for j, zeroed. */
void pp_policy_init(struct pp_policy *p, const struct pp_search_problem *j);
void pp_policy_finish(struct pp_policy *p);
void pp_policy_copy(struct pp_policy *to, const struct pp_policy *from,
                    const struct pp_search_problem *j);

struct pp_list;

/* Creates the working memory for any number of runs. */
struct pp_list *pp_list_create(const struct pp_search_problem *j);
void pp_list_destroy(struct pp_list *l);

/* Fills ahead, per stage, with the microbatches that a stage starts in that
 * many round trips to the loss; trips 0: no limit. */
void pp_list_ahead(const struct pp_list *l, double trips, int32_t *ahead);

/* Writes the order. Returns false if a rank's limit is below what the banker's
 * rule needs. */
bool pp_list_run(struct pp_list *l, const struct pp_policy *p, int32_t *order);

/* --- the best policy ---
 *
 * A grid of policies, then hill climbing. One change of a policy alters every
 * round of a schedule at once. Single moves cannot do that in a long step. */
struct pp_policy_search {
    const struct pp_search_problem *problem;
    struct pp_list *list;
    struct pp_paths *eval;
    double goal;  /* stop if the objective is no larger */
    uint64_t key; /* key of the random generator */
    struct pp_policy best;
    double worst; /* objective of best; infinity before the first run */
    double steps; /* work done, in visits of an op */
    /* Called with every order that is tried. */
    void (*found)(void *ctx, const struct pp_paths *e, const int32_t *order);
    void *ctx;
    int32_t *order; /* n_ops: scratch space for an order */
};

/* Tries the grid, or as much of it as that many steps allow. */
void pp_policy_grid(struct pp_policy_search *s, double steps);

/* Improves the best policy for that many steps. */
void pp_policy_climb(struct pp_policy_search *s, double steps);

/* --- single moves ---
 *
 * Simulated annealing. A move takes an op on a longest path and puts it
 * elsewhere in its row, if memory and the order within a microbatch allow.
 * moves.h says how long the paths through it are then, so most moves are
 * refused without a pass over the ops. */
struct pp_local_options {
    uint64_t key;   /* key of the random generator */
    double steps;   /* work allowed, in visits of an op */
    double goal;    /* stop if the objective is no larger */
    double heat[2]; /* first and last temperature, in mean op times */
};

/* Improves order in place; the result is the best order met, never worse. Sets
 * *worst to its objective and *steps to the work done. Fails with PP_EXIT_NO if
 * order deadlocks. */
int pp_local_search(const struct pp_search_problem *j,
                    const struct pp_local_options *o, int32_t *order,
                    double *worst, double *steps,
                    struct pp_err *err) PP_MUST_USE;

#endif
