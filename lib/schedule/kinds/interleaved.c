/* SPDX-License-Identifier: MIT */
/* interleaved, zb-interleaved - 1F1B with several stages per rank, placed in a
 * loop.
 *
 * Microbatches go in groups of g: a group passes a rank's first chunk, then its
 * second, and so on; then the next group follows. The backward takes the chunks
 * from the last. Narayanan et al., "Efficient Large-Scale Language Model
 * Training on GPU Clusters Using Megatron-LM", SC 2021. The order is
 * Megatron-LM's, and PyTorch's Interleaved1F1B with the default group. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/numbering.h"
#include "schedule/kinds/kinds.h"

/* The sizes of an interleaved kind: p ranks of c chunks, m microbatches in
 * groups of g. */
struct rounds {
    int p, c, m, g;
};

/* Finds the chunk and microbatch of forward k: groups, then chunks, then
 * microbatches. The last group may be shorter. */
static void forward_at(const struct rounds *z, size_t k, int *chunk, int *mb)
{
    size_t group = k / ((size_t)z->g * (size_t)z->c);
    int first = (int)group * z->g;
    int size = z->m - first < z->g ? z->m - first : z->g;
    size_t rest = k - (size_t)first * (size_t)z->c;
    *chunk = (int)(rest / (size_t)size);
    *mb = first + (int)(rest % (size_t)size);
}

static void rounds_emit(struct pp_schedule *s, const struct rounds *z,
                        enum pp_op op, int row, size_t k)
{
    int chunk, mb;
    forward_at(z, k, &chunk, &mb);
    if (op != PP_F)
        chunk = z->c - 1 - chunk;
    pp_emit(s, op, chunk * z->p + row, mb);
}

static int rounds_init(struct rounds *z, const struct pp_schedule *s,
                       const struct pp_kind_options *o, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    *z = (struct rounds){
        .p = g->n_rows, .c = g->n_stages / g->n_rows, .m = o->n_microbatches};
    if (!pp_graph_is(g, PP_PLACEMENT_LOOP))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s needs a chain of stages placed in a loop: use "
                       "placement loop",
                       s->kind);
    if (z->c * z->p != g->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s needs equally many stages on each rank, not %d on "
                       "%d ranks: use %d chunks per rank",
                       s->kind, g->n_stages, z->p, z->c + 1);
    return 0;
}

/* Returns the default group, or 0 if m microbatches have none: m must be a
 * multiple of the number of rounds, max(1, m div p). */
static int rounds_group(int m, int p)
{
    int rounds = m / p > 1 ? m / p : 1;
    return m % rounds == 0 ? m / rounds : 0;
}

/* Fails and offers the nearest numbers of microbatches that have a default
 * group. */
static int rounds_fail(const struct rounds *z, const char *kind,
                       const char *more, struct pp_err *err)
{
    char value[32];
    int below = z->m - 1, above = z->m + 1;
    while (!rounds_group(below, z->p))
        below--;
    while (!rounds_group(above, z->p))
        above++;
    snprintf(value, sizeof value, "%d or %d", below, above);
    return pp_fail_setting(err, PP_EXIT_INPUT, "microbatches", value,
                           "%s has no default group for %d microbatches on "
                           "%d ranks%s",
                           kind, z->m, z->p, more);
}

static void emit_interleaved_row(struct pp_schedule *s, const struct rounds *z,
                                 const struct pp_kind_options *o, int row)
{
    size_t total = (size_t)z->m * (size_t)z->c;
    int drain = 2 * (z->p - 1 - row);
    size_t warmup = (size_t)(z->c - 1) * (size_t)z->g + (size_t)drain;
    if (warmup > total)
        warmup = total;
    int wait = z->c * z->p + drain - (int)warmup - row;
    pp_emit_idle(s, o, row, row);
    for (size_t k = 0; k < total + warmup; k++) {
        if (k < total)
            rounds_emit(s, z, PP_F, row, k);
        else
            pp_emit_idle(s, o, row, 1);
        if (k + 1 == warmup)
            pp_emit_idle(s, o, row, wait);
        if (k >= warmup)
            rounds_emit(s, z, PP_B, row, k - warmup);
    }
}

/* Returns true if every group, the last one too, has a microbatch per rank. */
static bool group_fits(int m, int p, int g)
{
    return g >= p && g <= m && (m % g == 0 || m % g >= p);
}

/* Writes the first few group sizes that fit, such as "4, 5 or 9". */
static void list_groups(int m, int p, char *text, size_t bytes)
{
    int found[6], n = 0;
    for (int g = p; g <= m && n < 6; g++)
        if (group_fits(m, p, g))
            found[n++] = g;
    size_t at = 0;
    for (int i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%d",
                               i == 0       ? ""
                               : i == n - 1 ? " or "
                                            : ", ",
                               found[i]);
}

/* Fails for a group that does not fit, or, if group is 0, for the lack of a
 * default group. */
static int fail_group(const struct rounds *z, int group, struct pp_err *err)
{
    char groups[100] = "", more[120];
    list_groups(z->m, z->p, groups, sizeof groups);
    snprintf(more, sizeof more, "%d or more", z->p);
    if (group && z->m < z->p)
        return pp_fail_setting(err, PP_EXIT_INPUT, "microbatches", more,
                               "groups of %d do not fit: a group needs a "
                               "microbatch for each of %d ranks, but there "
                               "are only %d",
                               group, z->p, z->m);
    if (group)
        return pp_fail_setting(err, PP_EXIT_INPUT, "group", groups,
                               "groups of %d do not fit %d microbatches on %d "
                               "ranks",
                               group, z->m, z->p);
    snprintf(more, sizeof more, "; groups of %s fit", groups);
    return rounds_fail(z, "interleaved", more, err);
}

static int emit_interleaved(struct pp_schedule *s,
                            const struct pp_kind_options *o, struct pp_err *err)
{
    struct rounds z;
    if (rounds_init(&z, s, o, err))
        return -1;
    if (o->group && !group_fits(z.m, z.p, o->group))
        return fail_group(&z, o->group, err);
    /* With one chunk Megatron-LM runs 1F1B. PyTorch's rule, the default, has
     * twice the warmup. */
    if (z.c == 1 && o->group)
        return pp_emit_1f1b(s, o, 1, err);
    z.g = o->group ? o->group : rounds_group(z.m, z.p);
    if (z.g == 0)
        return fail_group(&z, 0, err);
    for (int row = 0; row < z.p; row++)
        emit_interleaved_row(s, &z, o, row);
    return 0;
}

const struct pp_kind pp_kind_interleaved = {
    .name = "interleaved",
    .summary = "1f1b over several stages per rank; the bubble shrinks by c",
    .constraint = "placement loop; max(1, m div p) divides m, or a group",
    .paper = "Narayanan et al., Megatron-LM, SC 2021",
    .chain = true,
    .n_chunks = 2,
    .emit = emit_interleaved,
};

/* zb-interleaved - interleaved with a split backward.
 *
 * The warmup is half that of interleaved. Once a rank has delayed as many
 * weight gradients as its number, the oldest one follows every input gradient.
 * The order is PyTorch's InterleavedZeroBubble. Qi et al., "Zero Bubble
 * Pipeline Parallelism", ICLR 2024. */

static void emit_zb_interleaved_row(struct pp_schedule *s,
                                    const struct rounds *z,
                                    const struct pp_kind_options *o, int row)
{
    size_t total = (size_t)z->m * (size_t)z->c, w = 0;
    size_t warmup =
        (size_t)(z->c - 1) * (size_t)z->g + (size_t)(z->p - 1 - row);
    if (warmup > total)
        warmup = total;
    pp_emit_idle(s, o, row, row);
    for (size_t k = 0; k < total + warmup; k++) {
        if (k < total)
            rounds_emit(s, z, PP_F, row, k);
        if (k + 1 == warmup)
            pp_emit_idle(s, o, row, z->p - 1 - row);
        if (k < warmup)
            continue;
        rounds_emit(s, z, PP_I, row, k - warmup);
        if (k - warmup >= (size_t)row)
            rounds_emit(s, z, PP_W, row, w++);
    }
    for (; w < total; w++)
        rounds_emit(s, z, PP_W, row, w);
}

/* --- empty cells --- */

struct alignment {
    const struct pp_schedule *from;
    struct pp_schedule *to;
    const struct pp_kind_options *options;
    struct pp_cells cells;
    size_t *column; /* by cell: column of its forward, from 1; or 0 */
    size_t *pc;     /* per row */
};

/* Fills the row's cell of a column: with its next action, or with an empty cell
 * if that is a forward whose input is not in an earlier column. */
static void align_row(struct alignment *a, int row, size_t column)
{
    struct pp_action next = a->from->rows[row].actions[a->pc[row]];
    if (next.op == PP_F && next.stage > 0) {
        size_t before = a->column[pp_cell(&a->cells, next.stage - 1,
                                          next.microbatch, next.slice)];
        if (before == 0 || before == column) {
            pp_emit_idle(a->to, a->options, row, 1);
            return;
        }
    }
    if (next.op == PP_F)
        a->column[pp_cell(&a->cells, next.stage, next.microbatch, next.slice)] =
            column;
    a->pc[row]++;
    pp_schedule_add(a->to, row, next);
}

static void align_all(struct alignment *a)
{
    int n_rows = a->from->graph->n_rows;
    bool moved = true;
    for (size_t column = 1; moved; column++) {
        moved = false;
        for (int r = 0; r < n_rows; r++) {
            if (a->pc[r] == a->from->rows[r].n)
                continue;
            moved = true;
            align_row(a, r, column);
        }
    }
}

/* Replaces s by a schedule whose columns line up as in PyTorch's class. */
static void align_rows(struct pp_schedule *s, const struct pp_kind_options *o)
{
    struct pp_schedule to;
    struct alignment a = {.from = s, .to = &to, .options = o};
    pp_schedule_init(&to, s->graph, s->kind, s->n_microbatches);
    pp_cells_init(&a.cells, s);
    a.column = pp_calloc(a.cells.n_cells, sizeof *a.column);
    a.pc = pp_calloc((size_t)s->graph->n_rows, sizeof *a.pc);
    align_all(&a);
    free(a.column);
    free(a.pc);
    pp_cells_finish(&a.cells);
    struct pp_schedule old = *s;
    *s = to;
    to = old;
    pp_schedule_finish(&to);
}

static int emit_zb_interleaved(struct pp_schedule *s,
                               const struct pp_kind_options *o,
                               struct pp_err *err)
{
    struct rounds z;
    if (rounds_init(&z, s, o, err))
        return -1;
    z.g = rounds_group(z.m, z.p);
    if (z.g == 0)
        return rounds_fail(&z, "zb-interleaved", "", err);
    for (int row = 0; row < z.p; row++)
        emit_zb_interleaved_row(s, &z, o, row);
    if (o->idle)
        align_rows(s, o);
    return 0;
}

const struct pp_kind pp_kind_zb_interleaved = {
    .name = "zb-interleaved",
    .summary = "interleaved with a split backward and half the warmup",
    .constraint = "placement loop; max(1, m div p) divides m",
    .paper = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
    .chain = true,
    .n_chunks = 2,
    .emit = emit_zb_interleaved,
};
