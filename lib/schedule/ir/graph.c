/* SPDX-License-Identifier: MIT */
#include "schedule/ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

int pp_placement_row(enum pp_placement placement, int n_rows, int stage)
{
    int at = stage % n_rows;
    bool back = placement != PP_PLACEMENT_LOOP && stage / n_rows % 2 == 1;
    return back ? n_rows - 1 - at : at;
}

/* Returns true if stage s is the first of a chain in this placement. */
static bool is_first(enum pp_placement placement, int n_rows, int s)
{
    return s == 0 || (placement == PP_PLACEMENT_BOTH_WAYS && s == n_rows);
}

int pp_graph_chain(struct pp_arena *a, int n_rows, int n_chunks,
                   enum pp_placement placement, struct pp_graph *g,
                   struct pp_err *err)
{
    size_t n;
    int n_copies = placement == PP_PLACEMENT_BOTH_WAYS ? 2 : 1;
    if (n_copies > 1 && n_chunks > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d chunks do not work with placement both-ways, which "
                       "puts one stage of each copy on a rank",
                       n_chunks);
    n = (size_t)n_rows * (size_t)(n_chunks * n_copies);
    if (n > 1 << 24)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d ranks with %d chunks each are too many stages",
                       n_rows, n_chunks);
    *g = (struct pp_graph){.n_rows = n_rows,
                           .n_stages = (int)n,
                           .stages = pp_arena_alloc(a, n, sizeof *g->stages),
                           .tied = {-1, -1},
                           .n_copies = n_copies};
    int *inputs = pp_arena_alloc(a, n, sizeof *inputs);
    for (int s = 0; s < g->n_stages; s++) {
        inputs[s] = s - 1;
        g->stages[s] = (struct pp_stage_node){
            .row = pp_placement_row(placement, n_rows, s),
            .n_inputs = !is_first(placement, n_rows, s),
            .inputs = &inputs[s]};
    }
    return pp_graph_connect(a, g, err);
}

int pp_graph_precede(struct pp_arena *a, int n, struct pp_graph *g,
                     struct pp_err *err)
{
    const struct pp_stage_node *chain = g->stages;
    int *inputs = pp_arena_alloc(a, (size_t)(n + g->n_stages), sizeof *inputs);
    g->stages = pp_arena_alloc(a, (size_t)(n + g->n_stages), sizeof *g->stages);
    g->n_rows += n;
    g->n_stages += n;
    for (int s = 0; s < g->n_stages; s++) {
        inputs[s] = s - 1;
        g->stages[s] =
            (struct pp_stage_node){.row = s < n ? s : n + chain[s - n].row,
                                   .n_inputs = s > 0,
                                   .inputs = &inputs[s]};
    }
    return pp_graph_connect(a, g, err);
}

int pp_graph_add_head(struct pp_arena *a, int n, struct pp_graph *g,
                      struct pp_err *err)
{
    const struct pp_stage_node *chain = g->stages;
    int first = g->n_stages, loss = first + n;
    if (first != g->n_rows || g->n_copies > 1)
        return pp_fail_setting(err, PP_EXIT_INPUT, "head-stages", NULL,
                               "a head of %d stages needs one stage on each "
                               "rank before it",
                               n);
    if (n % g->n_rows)
        return pp_fail_setting(err, PP_EXIT_INPUT, "head-stages", NULL,
                               "a head of %d stages does not divide evenly "
                               "over %d ranks",
                               n, g->n_rows);
    int *inputs = pp_arena_alloc(a, (size_t)n + 1, sizeof *inputs);
    g->stages = pp_arena_alloc(a, (size_t)loss + 1, sizeof *g->stages);
    memcpy(g->stages, chain, (size_t)first * sizeof *chain);
    inputs[0] = first - 1;
    for (int k = 0; k < n; k++) {
        inputs[k + 1] = first + k;
        g->stages[first + k] = (struct pp_stage_node){
            .row = k / (n / g->n_rows), .n_inputs = 1, .inputs = inputs};
    }
    g->stages[loss] = (struct pp_stage_node){
        .row = chain[first - 1].row, .n_inputs = n, .inputs = inputs + 1};
    g->n_stages = loss + 1;
    return pp_graph_connect(a, g, err);
}

static int check_stage(const struct pp_graph *g, int s, struct pp_err *err)
{
    const struct pp_stage_node *n = &g->stages[s];
    if (n->row < 0 || n->row >= g->n_rows)
        return pp_fail(err, PP_EXIT_INPUT,
                       "stage %d: rank '%d' is not between 0 and %d", s, n->row,
                       g->n_rows - 1);
    for (int i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i] < 0 || n->inputs[i] >= s)
            return pp_fail(err, PP_EXIT_INPUT,
                           "stage %d: input '%d' is not an earlier stage", s,
                           n->inputs[i]);
        if (i > 0 && n->inputs[i] <= n->inputs[i - 1])
            return pp_fail(err, PP_EXIT_INPUT,
                           "stage %d: inputs are not ascending", s);
    }
    return 0;
}

/* Checks that the inputs of a copy are the copies of its original's inputs. */
static int check_copy(const struct pp_graph *g, int s, struct pp_err *err)
{
    const struct pp_stage_node *n = &g->stages[s];
    int original = pp_original(g, s);
    const struct pp_stage_node *o = &g->stages[original];
    bool same = n->n_inputs == o->n_inputs;
    for (int i = 0; same && i < n->n_inputs; i++)
        same = n->inputs[i] - o->inputs[i] == s - original;
    if (same)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "stage %d: inputs are not the copies of the inputs of stage "
                   "%d, which has the same weights",
                   s, original);
}

static int check_stages(struct pp_graph *g, struct pp_err *err)
{
    if (g->n_copies < 0 || g->n_stages % (g->n_copies ? g->n_copies : 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%d stages cannot be divided into %d copies",
                       g->n_stages, g->n_copies);
    g->n_copies = g->n_copies ? g->n_copies : 1;
    g->slices.n = g->slices.n ? g->slices.n : 1;
    for (int s = 0; s < g->n_stages; s++) {
        int original = pp_original(g, s);
        g->stages[s].copy_of = original < s ? original : -1;
        if (check_stage(g, s, err) || check_copy(g, s, err))
            return -1;
    }
    return 0;
}

int pp_graph_connect(struct pp_arena *a, struct pp_graph *g, struct pp_err *err)
{
    int **outputs = pp_arena_alloc(a, (size_t)g->n_stages, sizeof *outputs);
    if (check_stages(g, err))
        return -1;
    for (int s = 0; s < g->n_stages; s++)
        g->stages[s].n_outputs = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_inputs; i++)
            g->stages[g->stages[s].inputs[i]].n_outputs++;
    for (int s = 0; s < g->n_stages; s++) {
        struct pp_stage_node *n = &g->stages[s];
        outputs[s] = pp_arena_alloc(a, (size_t)n->n_outputs, sizeof(int));
        n->outputs = outputs[s];
        n->n_outputs = 0;
        n->input_grad = false;
        /* Ascending s makes each list of outputs ascending. */
        for (int i = 0; i < n->n_inputs; i++) {
            int from = n->inputs[i];
            n->input_grad |= g->stages[from].has_backward;
            outputs[from][g->stages[from].n_outputs++] = s;
        }
        n->has_backward = !n->frozen || n->input_grad;
    }
    return 0;
}

bool pp_graph_is(const struct pp_graph *g, enum pp_placement placement)
{
    bool both = placement == PP_PLACEMENT_BOTH_WAYS;
    if (g->n_copies != (both ? 2 : 1) || (both && g->n_stages != 2 * g->n_rows))
        return false;
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *n = &g->stages[s];
        bool first = is_first(placement, g->n_rows, s);
        if (n->row != pp_placement_row(placement, g->n_rows, s) ||
            n->n_inputs != !first || (!first && n->inputs[0] != s - 1))
            return false;
    }
    return true;
}

int pp_graph_break(const struct pp_graph *g)
{
    for (int s = 0; s < g->n_stages; s++) {
        const struct pp_stage_node *n = &g->stages[s];
        int wanted = pp_original(g, s) > 0;
        if (n->n_inputs != wanted || (wanted && n->inputs[0] != s - 1))
            return s;
    }
    return -1;
}

int pp_graph_head(const struct pp_graph *g)
{
    int first = pp_graph_break(g) - 1, loss = g->n_stages - 1;
    int each = (loss - first) / g->n_rows;
    bool is = g->n_copies == 1 && first == g->n_rows &&
              loss - first == each * g->n_rows &&
              g->stages[loss].n_inputs == loss - first;
    for (int s = 0; is && s < first; s++)
        is = g->stages[s].row == s;
    for (int s = first; is && s < loss; s++)
        is = g->stages[s].row == (s - first) / each &&
             g->stages[s].n_inputs == 1 &&
             g->stages[s].inputs[0] == first - 1 &&
             g->stages[loss].inputs[s - first] == s;
    return is ? first : -1;
}

bool pp_copy_rows(const struct pp_graph *g, int stage,
                  struct pp_copy_rows *rows)
{
    int last = -1, n = 0;
    rows->first = g->n_rows;
    for (int s = stage; s < g->n_stages; s += g->n_stages / g->n_copies) {
        int row = g->stages[s].row;
        rows->first = row < rows->first ? row : rows->first;
        last = row > last ? row : last;
        n += pp_home(g, s) == s;
    }
    rows->n = n;
    rows->step = n > 1 ? (last - rows->first) / (n - 1) : 1;
    bool even = rows->first + (n - 1) * rows->step == last;
    for (int s = stage; s < g->n_stages; s += g->n_stages / g->n_copies)
        even &= (g->stages[s].row - rows->first) % rows->step == 0;
    return even;
}

bool pp_graph_meet(const struct pp_graph *g, int stage, int other)
{
    unsigned char *from = pp_calloc((size_t)g->n_stages, sizeof *from);
    bool both = false;
    from[stage] |= 1;
    from[other] |= 2;
    for (int s = 0; s < g->n_stages && !both; s++) {
        for (int i = 0; i < g->stages[s].n_inputs; i++)
            from[s] |= from[g->stages[s].inputs[i]];
        both = from[s] == 3;
    }
    free(from);
    return both;
}

int pp_graph_adds(const struct pp_graph *g, int row)
{
    int most = 1;
    for (int s = 0; g->n_copies > 1 && s < g->n_stages / g->n_copies; s++) {
        struct pp_copy_rows rows;
        pp_copy_rows(g, s, &rows);
        most = pp_in_copy_rows(&rows, row) && rows.n > most ? rows.n : most;
    }
    for (int copy = 0; g->tied[0] >= 0 && copy < g->n_copies; copy++) {
        int first = copy * (g->n_stages / g->n_copies);
        int embed = g->stages[g->tied[0] + first].row;
        int head = g->stages[g->tied[1] + first].row;
        if (embed != head && (row == embed || row == head) && most < 2)
            most = 2;
    }
    return most;
}
