/* SPDX-License-Identifier: MIT */
/* 1f1b, eager-1f1b, zb-h1, zb-h2, seq1f1b - the kinds of a pipeline that passes
 * each row once. */
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/kinds/kinds.h"

/* A pipeline that passes each row once.
 *
 * Its rows form a DAG as stages do: row a comes before row b if a stage on a
 * feeds one on b, and there is no path back. One stage per row is the usual
 * case. Encoders may also share a row, with each other or with the first stage
 * of the model that they feed. A row runs a microbatch through all of its
 * stages at once, so the kinds below can treat a row as one stage. */
struct row_dag {
    const struct pp_graph *graph;
    int *depth;  /* per row: the longest path to a row without outputs */
    int longest; /* rows on the longest path */
    int *first;  /* per row: the start of its stages in stages; n_rows + 1 */
    int *stages; /* all stages by row, ascending */
};

static void sort_stages_by_row(struct row_dag *p)
{
    const struct pp_graph *g = p->graph;
    for (int s = 0; s < g->n_stages; s++)
        p->first[g->stages[s].row + 1]++;
    for (int r = 0; r < g->n_rows; r++)
        p->first[r + 1] += p->first[r];
    /* Going down, each row's end moves to its start. */
    for (int s = g->n_stages - 1; s >= 0; s--)
        p->stages[--p->first[g->stages[s].row + 1]] = s;
    for (int r = 0; r < g->n_rows; r++)
        p->first[r] = p->first[r + 1];
    p->first[g->n_rows] = g->n_stages;
}

/* Visits row r after all of its outputs: the rows before it are at least one
 * deeper. Adds the rows that have no unvisited outputs left to ready. */
static void raise_input_depths(struct row_dag *p, int r, int *left, int *ready,
                               int *n)
{
    const struct pp_graph *g = p->graph;
    for (int i = p->first[r]; i < p->first[r + 1]; i++) {
        const struct pp_stage_node *node = &g->stages[p->stages[i]];
        for (int k = 0; k < node->n_inputs; k++) {
            int from = g->stages[node->inputs[k]].row;
            if (from == r)
                continue;
            if (p->depth[from] <= p->depth[r])
                p->depth[from] = p->depth[r] + 1;
            if (--left[from] == 0)
                ready[(*n)++] = from;
        }
    }
}

/* Finds the depths, starting from the rows without outputs. Returns the number
 * of rows visited. */
static int find_row_depths(struct row_dag *p)
{
    const struct pp_graph *g = p->graph;
    int *left = pp_calloc((size_t)g->n_rows, sizeof *left);
    int *ready = pp_calloc((size_t)g->n_rows, sizeof *ready);
    int n = 0, taken = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_outputs; i++)
            left[g->stages[s].row] +=
                g->stages[g->stages[s].outputs[i]].row != g->stages[s].row;
    for (int r = 0; r < g->n_rows; r++)
        if (left[r] == 0)
            ready[n++] = r;
    for (; taken < n; taken++) {
        int depth = p->depth[ready[taken]];
        p->longest = depth >= p->longest ? depth + 1 : p->longest;
        raise_input_depths(p, ready[taken], left, ready, &n);
    }
    free(left);
    free(ready);
    return taken;
}

static int fail_row_dag(const struct pp_schedule *s, const char *what,
                        struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s needs a pipeline that passes each rank once, but with "
                   "%d stages on %d ranks %s: use 1 chunk per rank, or gpipe",
                   s->kind, g->n_stages, g->n_rows, what);
}

static void row_dag_finish(struct row_dag *p)
{
    free(p->depth);
    free(p->first);
    free(p->stages);
    *p = (struct row_dag){0};
}

static int row_dag_init(struct row_dag *p, const struct pp_schedule *s,
                        struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    *p =
        (struct row_dag){.graph = g,
                         .depth = pp_calloc((size_t)g->n_rows, sizeof(int)),
                         .first = pp_calloc((size_t)g->n_rows + 1, sizeof(int)),
                         .stages = pp_calloc((size_t)g->n_stages, sizeof(int))};
    bool empty = false;
    sort_stages_by_row(p);
    int taken = find_row_depths(p), rc = 0;
    for (int r = 0; r < g->n_rows; r++)
        empty |= p->first[r] == p->first[r + 1];
    if (empty)
        rc = fail_row_dag(s, "one rank has no stage", err);
    else if (taken < g->n_rows)
        rc = fail_row_dag(s, "one rank is passed twice", err);
    if (rc)
        row_dag_finish(p);
    return rc;
}

/* Emits op of a microbatch for all stages of a row: forwards ascending,
 * backwards descending. */
static void row_dag_emit(struct pp_schedule *s, const struct row_dag *p,
                         enum pp_op op, int row, int microbatch)
{
    int from = p->first[row], n = p->first[row + 1] - from;
    for (int i = 0; i < n; i++)
        pp_emit(s, op, p->stages[from + (op == PP_F ? i : n - 1 - i)],
                microbatch);
}

/* 1f1b - warmup, then one forward and one backward in turn, then cooldown.
 *
 * A rank warms up with as many forwards as there are ranks between it and the
 * loss, counted along the longest path, so that branches of different lengths
 * meet. There may be fewer microbatches than ranks. Narayanan et al.,
 * "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021
 * (PipeDream-Flush). */

/* The forwards run `warmup` microbatches ahead of the backwards. */
static void emit_1f1b_row(struct pp_schedule *s, const struct row_dag *p,
                          int row, int m, int warmup)
{
    for (int k = 0; k < m && k < warmup; k++)
        row_dag_emit(s, p, PP_F, row, k);
    for (int k = 0; k < m; k++) {
        if (k < m - warmup)
            row_dag_emit(s, p, PP_F, row, k + warmup);
        row_dag_emit(s, p, PP_B, row, k);
    }
}

int pp_emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                 int ahead, struct pp_err *err)
{
    struct row_dag p;
    if (row_dag_init(&p, s, err))
        return -1;
    for (int r = 0; r < s->graph->n_rows; r++)
        emit_1f1b_row(s, &p, r, o->n_microbatches, ahead * p.depth[r]);
    row_dag_finish(&p);
    return 0;
}

static int emit_1f1b(struct pp_schedule *s, const struct pp_kind_options *o,
                     struct pp_err *err)
{
    return pp_emit_1f1b(s, o, 1, err);
}

const struct pp_kind pp_kind_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; at most p activations live",
    .constraint = "1 chunk, each rank passed once; branches are allowed",
    .paper = "Narayanan et al., PipeDream-Flush, ICML 2021",
    .emit = emit_1f1b,
};

/* eager-1f1b - 1F1B with twice as many warmup forwards.
 *
 * A message then has a whole step to arrive, so its time is hidden at the cost
 * of almost twice the memory. Zhuang et al., "On Optimizing the Communication
 * of Model Parallelism", MLSys 2023. */

static int emit_eager_1f1b(struct pp_schedule *s,
                           const struct pp_kind_options *o, struct pp_err *err)
{
    return pp_emit_1f1b(s, o, 2, err);
}

const struct pp_kind pp_kind_eager_1f1b = {
    .name = "eager-1f1b",
    .summary = "1f1b with twice the warmup, which hides slow messages",
    .constraint = "1 chunk, each rank passed once; branches are allowed",
    .paper = "Zhuang et al., MLSys 2023",
    .emit = emit_eager_1f1b,
};

/* zb-h1, zb-h2 - 1F1B with a split backward and delayed weight gradients.
 *
 * An input gradient is sent at once. A weight gradient waits until the rank has
 * no other work, or until as many microbatches are alive as the limit allows: p
 * for H1, as in 1F1B, and 2p - 1 for H2, which also fills the warmup. p is the
 * longest path to the loss, in ranks. Qi et al., "Zero Bubble Pipeline
 * Parallelism", ICLR 2024. */

static void emit_zb_h_row(struct pp_schedule *s, const struct row_dag *p,
                          int row, int m, int factor)
{
    int warmup = factor * p->depth[row] + 1;
    int limit = factor * (p->longest - 1) + 1, f = 0, w = 0;
    for (; f < warmup && f < m; f++)
        row_dag_emit(s, p, PP_F, row, f);
    for (int i = 0; i < m; i++) {
        row_dag_emit(s, p, PP_I, row, i);
        if ((f == m || f - w >= limit))
            row_dag_emit(s, p, PP_W, row, w++);
        if (f < m)
            row_dag_emit(s, p, PP_F, row, f++);
    }
    for (; w < m; w++)
        row_dag_emit(s, p, PP_W, row, w);
}

static int emit_zb_h(struct pp_schedule *s, const struct pp_kind_options *o,
                     int factor, struct pp_err *err)
{
    struct row_dag p;
    if (row_dag_init(&p, s, err))
        return -1;
    for (int r = 0; r < s->graph->n_rows; r++)
        emit_zb_h_row(s, &p, r, o->n_microbatches, factor);
    row_dag_finish(&p);
    return 0;
}

static int emit_zb_h1(struct pp_schedule *s, const struct pp_kind_options *o,
                      struct pp_err *err)
{
    return emit_zb_h(s, o, 1, err);
}

static int emit_zb_h2(struct pp_schedule *s, const struct pp_kind_options *o,
                      struct pp_err *err)
{
    return emit_zb_h(s, o, 2, err);
}

const struct pp_kind pp_kind_zb_h1 = {
    .name = "zb-h1",
    .summary = "backward split; a third of 1f1b's bubble at its memory",
    .constraint = "1 chunk, each rank passed once; branches are allowed",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_zb_h1,
};

const struct pp_kind pp_kind_zb_h2 = {
    .name = "zb-h2",
    .summary = "backward split; almost no bubble, at most 2p - 1 slots",
    .constraint = "1 chunk, each rank passed once; branches are allowed",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .emit = emit_zb_h2,
};

/* seq1f1b - 1f1b over slices of sequences, two unless the caller has a number
 * (slices.c). */

const struct pp_kind pp_kind_seq1f1b = {
    .name = "seq1f1b",
    .summary = "1f1b over slices of sequences; bubble and activations shrink",
    .constraint = "1 chunk, each rank passed once; branches are allowed",
    .paper = "Sun et al., Seq1F1B, NAACL 2025",
    .slices = 2,
    .emit = emit_1f1b,
};
