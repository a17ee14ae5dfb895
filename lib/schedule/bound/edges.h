/* SPDX-License-Identifier: MIT */
/* edges - edge finding on one rank, private to lib/schedule/bound.
 *
 * If some tasks, with one more, cannot all end by the latest end of the others,
 * the one comes after them (Carlier and Pinson, "An algorithm for solving the
 * job-shop problem", Management Science 35, 1989). A tree over the tasks finds
 * all of these in n log n steps (Vilim, "O(n log n) filtering algorithms for
 * unary resource constraint", CPAIOR 2004). */
#ifndef PP_SCHEDULE_BOUND_EDGES_H
#define PP_SCHEDULE_BOUND_EDGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_edge_task {
    double from, until, time; /* earliest start, latest end */
    double pushed;            /* the earliest start that was found */
};

/* A node of the tree: a run of tasks in the order of their earliest starts. */
struct pp_edge_node {
    double sum, end; /* of the tasks that count: time, and earliest end */
    /* The same if one of the tasks that were taken out counts too, that which
     * makes it most. -INFINITY if there is none. */
    double sum_with, end_with;
};

/* Finds the earliest starts of n tasks. by_from has the tasks by ascending
 * earliest start, by_until by descending latest end. nodes is scratch of
 * pp_edge_nodes(n). Returns false if the tasks cannot all run in their windows.
 */
bool pp_edges_find(struct pp_edge_task *tasks, size_t n,
                   const uint32_t *by_from, const uint32_t *by_until,
                   double eps, uint32_t *leaf, struct pp_edge_node *nodes);

/* Returns how many nodes n tasks need. */
size_t pp_edge_nodes(size_t n);

#endif
