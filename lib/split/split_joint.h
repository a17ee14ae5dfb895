/* SPDX-License-Identifier: MIT */
/* split_joint - the split, the placement, the number of chunks, recomputation
 * and the order of the work, chosen together.
 *
 * Every named kind gets its best split on every placement and number of chunks.
 * Orders are then searched from the best of these (split_auto.c). The choice is
 * not worse than any of them, and it is compared with a bound that holds for
 * every split, placement and order (split_least.h). */
#ifndef PP_SPLIT_SPLIT_JOINT_H
#define PP_SPLIT_SPLIT_JOINT_H

#include "split/split_least.h"
#include "split/split_plan.h"

/* The most chunks that are tried if the request does not say how many. */
enum { PP_JOINT_CHUNKS = 4 };

/* A combination that was tried. */
struct pp_split_choice {
    enum pp_placement placement;
    int n_chunks;
    const char *kind; /* a named kind, or auto */
    bool whole_head;  /* the stage of the head runs B although the kind has I */
    const char *start; /* auto: the kind whose split it began with */
    double step;       /* on its best split; infinite if none fits */
    double busiest;    /* least work of the busiest rank of its split */
    double idle;       /* share of the step that ranks wait */
    double need;       /* bytes of the fullest rank, of a split that does not
                          fit if none does; 0: there is no split */
    const size_t *bounds;
};

/* The answer. Its address must not change. */
struct pp_split_joint {
    struct pp_arena arena;
    struct pp_split_request request; /* the choice's */
    struct pp_split_choice *choices; /* in the order of trial */
    size_t n_choices, capacity;
    struct pp_least_found bound;
};

/* Plans the best combination. q says how many chunks it may have, or 0 for any
 * number; any_placement allows a loop and a V, otherwise q has the placement.
 * Its kind is not read. If nothing fits in memory the plan does not either.
 * Finish both also after an error, the plan first. */
int pp_split_joint(const struct pp_split_request *q, bool any_placement,
                   struct pp_split_joint *joint, struct pp_split_plan *plan,
                   struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_split_joint_finish(struct pp_split_joint *joint);

#endif
