/* SPDX-License-Identifier: MIT */
/* The tree of edge finding. Node 1 is the root; the leaves follow the inner
 * nodes. */
#include "schedule/bound/edges.h"

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

static const struct pp_edge_node no_task = {0, -INFINITY, -INFINITY, -INFINITY};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Joins two neighbouring runs of tasks. */
static struct pp_edge_node join(const struct pp_edge_node *l,
                                const struct pp_edge_node *r)
{
    return (struct pp_edge_node){
        .sum = l->sum + r->sum,
        .end = larger(l->end + r->sum, r->end),
        .sum_with = larger(l->sum_with + r->sum, l->sum + r->sum_with),
        .end_with = larger(larger(l->end_with + r->sum, l->end + r->sum_with),
                           r->end_with)};
}

/* Returns the leaf of the task that makes end_with of the root most. */
static size_t find_end_leaf(const struct pp_edge_node *nodes, size_t leaves)
{
    bool sum = false; /* the sum counts, not the end */
    size_t at = 1;
    while (at < leaves) {
        const struct pp_edge_node *l = &nodes[2 * at], *r = l + 1;
        bool right;
        if (sum) {
            right = l->sum + r->sum_with >= l->sum_with + r->sum;
        } else {
            double left = l->end_with + r->sum, both = l->end + r->sum_with;
            right = r->end_with >= larger(left, both) || both >= left;
            sum = right && r->end_with < both;
        }
        at = 2 * at + right;
    }
    return at;
}

static void set_leaf(struct pp_edge_node *nodes, size_t at,
                     struct pp_edge_node leaf)
{
    nodes[at] = leaf;
    for (at /= 2; at > 0; at /= 2)
        nodes[at] = join(&nodes[2 * at], &nodes[2 * at + 1]);
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
        nodes[k] = join(&nodes[2 * k], &nodes[2 * k + 1]);
}

bool pp_edges_find(struct pp_edge_task *tasks, size_t n,
                   const uint32_t *by_from, const uint32_t *by_until,
                   double eps, uint32_t *leaf, struct pp_edge_node *nodes)
{
    size_t leaves = count_leaves(n);
    fill_tree(tasks, n, by_from, leaf, nodes);
    for (size_t k = 0; k < n; k++) {
        uint32_t j = by_until[k];
        double limit = tasks[j].until + eps;
        if (nodes[1].end > limit)
            return false;
        while (nodes[1].end_with > limit) {
            size_t at = find_end_leaf(nodes, leaves);
            uint32_t i = by_from[at - leaves];
            if (nodes[1].end > tasks[i].pushed)
                tasks[i].pushed = nodes[1].end;
            set_leaf(nodes, at, no_task);
        }
        const struct pp_edge_task *t = &tasks[j];
        struct pp_edge_node out = no_task;
        out.sum_with = t->time;
        out.end_with = t->from + t->time;
        set_leaf(nodes, leaf[j], out);
    }
    return true;
}
