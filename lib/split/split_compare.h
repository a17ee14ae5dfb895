/* SPDX-License-Identifier: MIT */
/* split_compare - the kinds of schedule on one model, each on its best split,
 * for every placement and number of chunks that the kind is made for. */
#ifndef PP_SPLIT_SPLIT_COMPARE_H
#define PP_SPLIT_SPLIT_COMPARE_H

#include "split/split_plan.h"

/* The most chunks of a kind that takes several. */
enum { PP_COMPARE_CHUNKS = 4 };

struct pp_split_row {
    const struct pp_kind *kind;
    enum pp_placement placement;
    int n_chunks;
    double step, idle; /* of the split: its seconds with all that is exchanged,
                          or the makespan if there is no profile; idle is the
                          share that ranks wait for each other */
    double need;       /* bytes of the fullest rank; 0: the kind cannot run */
    int rank;          /* the fullest */
    bool fits;
    const char *why; /* the kind cannot run: the reason; else NULL */
};

struct pp_split_comparison {
    struct pp_arena arena;
    struct pp_split_row *rows; /* those that fit by step, then the others */
    size_t n;
};

/* A comparison to make. Pointers are borrowed. */
struct pp_split_contest {
    const struct pp_split_request *request; /* n_chunks and placement are those
                                               to keep to, if has_ says so */
    const struct pp_kind *const *kinds;     /* NULL-terminated */
    bool has_chunks, has_placement;
    /* Called before each plan; may be NULL. */
    void (*tell)(void *ctx, const struct pp_kind *kind, int n_chunks);
    void *ctx;
};

/* Plans each kind. A kind that cannot run has one row; one that runs on some
 * numbers of chunks has only these. */
void pp_split_compare(const struct pp_split_contest *c,
                      struct pp_split_comparison *out);

/* Accepts a zeroed struct. */
void pp_split_comparison_finish(struct pp_split_comparison *c);

#endif
