/* SPDX-License-Identifier: MIT */
/* chain - kinds that run a chain, and rows beside it.
 *
 * A chain with several stages on each row may have rows of one stage beside it:
 * encoders that feed it, a generator that reads from it. The kind orders the
 * chain alone. Then each other row takes the order of the stage that it feeds,
 * with every forward one place ahead, or of the stage that it reads from. So
 * an encoder runs one microbatch ahead of the chain's first stage, as each rank
 * of 1f1b is one ahead of the next, and the chain waits for no other row than
 * it would without a kind of its own: a backward of the other row waits for
 * that of the chain, whose forwards it has fed before. */
#include "schedule/kinds/kinds.h"

/* The chain of a graph; its stages and rows have numbers of their own. */
struct core {
    struct pp_graph graph;
    int *stages, *rows; /* their numbers in the whole graph */
};

/* Adds a stage, with its inputs that are in the core. row and number: the
 * numbers of rows and stages in the core; -1: they are not there. */
static void add_stage(struct core *c, const struct pp_graph *g, int stage,
                      const int *row, const int *number, struct pp_arena *a)
{
    const struct pp_stage_node *from = &g->stages[stage];
    struct pp_stage_node *to = &c->graph.stages[c->graph.n_stages];
    int *inputs = pp_arena_alloc(a, (size_t)from->n_inputs, sizeof *inputs);
    *to = (struct pp_stage_node){.row = row[from->row], .inputs = inputs};
    for (int i = 0; i < from->n_inputs; i++)
        if (number[from->inputs[i]] >= 0)
            inputs[to->n_inputs++] = number[from->inputs[i]];
    c->stages[c->graph.n_stages++] = stage;
}

/* Finds the rows that have several stages. Returns false if there are no other
 * rows, or if the stages are no chain. */
static bool find_core(struct core *c, const struct pp_graph *g,
                      struct pp_arena *a)
{
    struct pp_err none = {0}; /* a part of a graph cannot fail */
    size_t n_rows = (size_t)g->n_rows, n_stages = (size_t)g->n_stages;
    int *row = pp_arena_alloc(a, n_rows, sizeof *row);
    int *number = pp_arena_alloc(a, n_stages, sizeof *number);
    c->rows = pp_arena_alloc(a, n_rows, sizeof *c->rows);
    c->stages = pp_arena_alloc(a, n_stages, sizeof *c->stages);
    c->graph.stages = pp_arena_alloc(a, n_stages, sizeof *c->graph.stages);
    for (int s = 0; s < g->n_stages; s++)
        row[g->stages[s].row]++;
    for (int r = 0; r < g->n_rows; r++) {
        bool several = row[r] > 1;
        row[r] = several ? c->graph.n_rows : -1;
        if (several)
            c->rows[c->graph.n_rows++] = r;
    }
    if (g->n_copies > 1 || c->graph.n_rows == g->n_rows)
        return false;
    for (int s = 0; s < g->n_stages; s++) {
        number[s] = row[g->stages[s].row] < 0 ? -1 : c->graph.n_stages;
        if (number[s] >= 0)
            add_stage(c, g, s, row, number, a);
    }
    return c->graph.n_rows > 0 && !pp_graph_connect(a, &c->graph, &none) &&
           pp_graph_break(&c->graph) < 0;
}

/* Emits the actions of the core. The empty cells of PyTorch's classes are of
 * whole schedules. */
static int emit_core(const struct pp_kind *k, const struct core *c,
                     struct pp_schedule *s, const struct pp_kind_options *o,
                     struct pp_err *err)
{
    struct pp_kind_options options = *o;
    struct pp_schedule core;
    options.idle = false;
    pp_schedule_init(&core, &c->graph, s->kind, s->n_microbatches);
    int rc = k->emit(&core, &options, err);
    for (int r = 0; rc == 0 && r < c->graph.n_rows; r++)
        for (size_t i = 0; i < core.rows[r].n; i++) {
            struct pp_action a = core.rows[r].actions[i];
            a.stage = c->stages[a.stage];
            pp_schedule_add(s, c->rows[r], a);
        }
    pp_schedule_finish(&core);
    return rc;
}

/* Returns the place of a stage's next forward in a row. */
static size_t next_forward(const struct pp_row *row, int stage, size_t at)
{
    while (at < row->n &&
           (row->actions[at].op != PP_F || row->actions[at].stage != stage))
        at++;
    return at;
}

/* Emits a stage in the order of another one. */
static void follow(struct pp_schedule *s, int stage, int other, bool feeds)
{
    const struct pp_row *row = &s->rows[s->graph->stages[other].row];
    size_t forward = next_forward(row, other, 0);
    if (feeds && forward < row->n)
        pp_emit(s, PP_F, stage, row->actions[forward].microbatch);
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (feeds && i == forward) {
            forward = next_forward(row, other, i + 1);
            if (forward < row->n)
                pp_emit(s, PP_F, stage, row->actions[forward].microbatch);
        } else if (a.stage == other) {
            pp_emit(s, a.op, stage, a.microbatch);
        }
    }
}

/* Returns the first of n stages that has its actions, or -1. */
static int find_emitted(const struct pp_schedule *s, const int *stages, int n)
{
    for (int i = 0; i < n; i++)
        if (s->rows[s->graph->stages[stages[i]].row].n > 0)
            return stages[i];
    return -1;
}

/* Emits the rows of one stage: rows that feed the core, from the last one, then
 * rows that read from the core, from the first one. Returns false if one does
 * neither. */
static bool emit_others(struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    bool all = true;
    for (int k = g->n_stages - 1; k >= 0; k--) {
        const struct pp_stage_node *n = &g->stages[k];
        int other = find_emitted(s, n->outputs, n->n_outputs);
        if (other >= 0 && s->rows[n->row].n == 0)
            follow(s, k, other, true);
    }
    for (int k = 0; k < g->n_stages; k++) {
        const struct pp_stage_node *n = &g->stages[k];
        int other = find_emitted(s, n->inputs, n->n_inputs);
        if (other >= 0 && s->rows[n->row].n == 0)
            follow(s, k, other, false);
        all &= s->rows[n->row].n > 0;
    }
    return all;
}

/* Emits the rows of a kind that runs a chain, and the rows beside the chain. */
static int emit_chain(const struct pp_kind *k, struct pp_schedule *s,
                      const struct pp_kind_options *o, struct pp_err *err)
{
    struct pp_arena a = {0};
    struct core c = {.graph = {.tied = {-1, -1}}};
    bool beside = find_core(&c, s->graph, &a);
    int stage = beside ? -1 : pp_graph_break(s->graph);
    int rc = beside      ? emit_core(k, &c, s, o, err)
             : stage < 0 ? k->emit(s, o, err)
                         : -1;
    pp_arena_finish(&a);
    if (rc == 0 && beside && !emit_others(s))
        stage = s->graph->n_stages - 1;
    return stage < 0
               ? rc
               : pp_fail(err, PP_EXIT_INPUT,
                         "%s needs a chain, but stage %d has other inputs than "
                         "the previous stage: gpipe and looped-bfs take "
                         "branches, and so do 1f1b, eager-1f1b, zb-h1 and "
                         "zb-h2 if each rank is passed once",
                         s->kind, stage);
}

int pp_emit_whole(const struct pp_kind *k, struct pp_schedule *s,
                  const struct pp_kind_options *o, struct pp_err *err)
{
    return pp_graph_head(s->graph) > 0 ? pp_emit_head(k, s, o, err)
           : k->chain                  ? emit_chain(k, s, o, err)
                                       : k->emit(s, o, err);
}
