/* SPDX-License-Identifier: MIT */
/* The tree of edge finding. Node 1 is the root; the leaves follow the inner
 * nodes. */
#include "schedule/bound/bound_edges.h"

#include <math.h>

static size_t count_leaves(size_t n)
{
    size_t leaves = 1;
    while (leaves < n)
        leaves *= 2;
    return leaves;
}

size_t pp_edge_nodes(size_t n)
{
    return 2 * count_leaves(n);
}

static const struct pp_edge_node no_task = {0,         -INFINITY, -INFINITY,
                                            -INFINITY, -1,        -1};

/* Joins two neighbouring runs of tasks. */
static void join(struct pp_edge_node *to, const struct pp_edge_node *l,
                 const struct pp_edge_node *r)
{
    double after = l->end + r->sum;
    to->sum = l->sum + r->sum;
    to->end = after > r->end ? after : r->end;
    double left = l->sum_with + r->sum, right = l->sum + r->sum_with;
    to->sum_with = left > right ? left : right;
    to->sum_task = left > right ? l->sum_task : r->sum_task;
    left = l->end_with + r->sum;
    right = l->end + r->sum_with;
    double most = left > right ? left : right;
    int32_t task = left > right ? l->end_task : r->sum_task;
    to->end_with = most > r->end_with ? most : r->end_with;
    to->end_task = most > r->end_with ? task : r->end_task;
}

static void set_leaf(struct pp_edge_node *nodes, size_t at,
                     struct pp_edge_node leaf)
{
    nodes[at] = leaf;
    for (at /= 2; at > 0; at /= 2)
        join(&nodes[at], &nodes[2 * at], &nodes[2 * at + 1]);
}

static void fill_tree(const struct pp_edge_task *tasks, size_t n,
                      const uint32_t *by_from, uint32_t *leaf,
                      struct pp_edge_node *nodes)
{
    size_t leaves = count_leaves(n);
    for (size_t k = 0; k < leaves; k++) {
        nodes[leaves + k] = no_task;
        if (k >= n)
            continue;
        const struct pp_edge_task *t = &tasks[by_from[k]];
        nodes[leaves + k].sum = t->time;
        nodes[leaves + k].end = t->from + t->time;
        leaf[by_from[k]] = (uint32_t)(leaves + k);
    }
    for (size_t k = leaves; k-- > 1;)
        join(&nodes[k], &nodes[2 * k], &nodes[2 * k + 1]);
}

bool pp_edges_find(struct pp_edge_task *tasks, size_t n,
                   const uint32_t *by_from, const uint32_t *by_until,
                   double eps, uint32_t *leaf, struct pp_edge_node *nodes)
{
    fill_tree(tasks, n, by_from, leaf, nodes);
    for (size_t k = 0; k < n; k++) {
        uint32_t j = by_until[k];
        double limit = tasks[j].until + eps;
        if (nodes[1].end > limit)
            return false;
        while (nodes[1].end_with > limit) {
            int32_t i = nodes[1].end_task;
            if (nodes[1].end > tasks[i].pushed)
                tasks[i].pushed = nodes[1].end;
            set_leaf(nodes, leaf[i], no_task);
        }
        const struct pp_edge_task *t = &tasks[j];
        struct pp_edge_node out = no_task;
        out.sum_with = t->time;
        out.end_with = t->from + t->time;
        out.sum_task = out.end_task = (int32_t)j;
        set_leaf(nodes, leaf[j], out);
    }
    return true;
}
