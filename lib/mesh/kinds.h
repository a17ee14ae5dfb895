/* SPDX-License-Identifier: MIT */
/* kinds - the kinds of schedule on one mesh, each on its best split, for every
 * placement and number of chunks that the kind is made for; and orders that are
 * searched from the best of them. Pure. */
#ifndef PP_MESH_KINDS_H
#define PP_MESH_KINDS_H

#include "split/least.h"
#include "split/row.h"

/* The most chunks of a kind that takes several. */
enum { PP_MESH_KIND_CHUNKS = 4 };

/* A comparison to make. Pointers are borrowed. */
struct pp_mesh_contest {
    const struct pp_split_request *request; /* its kind is not read; n_chunks
                                               and placement are kept to if has_
                                               says so */
    const struct pp_kind *const *kinds;     /* NULL-terminated */
    bool has_chunks, has_placement;
    bool orders; /* search orders from the best rows, and try B on the last
                    stage where it takes less than I and W */
    /* Called before each plan, with NULL for an order; may be NULL. */
    void (*tell)(void *ctx, const struct pp_kind *kind, int n_chunks);
    void *ctx;
};

/* The answer. Its address must not change. */
struct pp_mesh_kinds {
    struct pp_arena arena;
    struct pp_split_row *rows; /* in the order of pp_split_row_compare; a
                                  request with search_order is an order */
    size_t n, capacity;
    struct pp_split_request request; /* of the plan */
    struct pp_split_plan plan;       /* of the first row, if it has one */
    struct pp_least_found bound;     /* with orders: no split, no placement and
                                        no order has a shorter step */
};

/* Plans each kind. A kind that cannot run has one row; one that runs on some
 * numbers of chunks has only these. Finish `out` also after an error. */
int pp_mesh_compare(const struct pp_mesh_contest *c, struct pp_mesh_kinds *out,
                    struct pp_err *err) PP_MUST_USE;

/* Accepts a zeroed struct. */
void pp_mesh_kinds_finish(struct pp_mesh_kinds *x);

#endif
