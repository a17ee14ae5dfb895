/* SPDX-License-Identifier: MIT */
/* interleaved - 1F1B with several stages on each rank, placed in a loop.
 *
 * Work goes round in groups of g microbatches: a group passes a rank's first
 * chunk, then its second, and so on; then the next group. Backward takes the
 * chunks from the last. Narayanan et al., "Efficient Large-Scale Language Model
 * Training on GPU Clusters Using Megatron-LM", SC 2021. The order is
 * Megatron-LM's, and PyTorch's Interleaved1F1B at the default group. */
#include <stdio.h>

#include "sched/kinds.h"

/* The chunk and microbatch of forward k: groups, then chunks, then
 * microbatches. The last group may be shorter. */
static void forward_at(const struct pp_rounds *z, size_t k, int *chunk, int *mb)
{
    size_t group = k / ((size_t)z->g * (size_t)z->c);
    int first = (int)group * z->g;
    int size = z->m - first < z->g ? z->m - first : z->g;
    size_t rest = k - (size_t)first * (size_t)z->c;
    *chunk = (int)(rest / (size_t)size);
    *mb = first + (int)(rest % (size_t)size);
}

int pp_rounds_emit(struct pp_schedule *s, const struct pp_rounds *z,
                   enum pp_op op, int rank, size_t k, struct pp_err *err)
{
    int chunk, mb;
    forward_at(z, k, &chunk, &mb);
    if (op != PP_F)
        chunk = z->c - 1 - chunk;
    return pp_emit(s, op, chunk * z->p + rank, mb, err);
}

int pp_rounds_init(struct pp_rounds *z, const struct pp_schedule *s,
                   const struct pp_kind_options *o, struct pp_err *err)
{
    const struct pp_graph *g = s->graph;
    *z = (struct pp_rounds){
        .p = g->n_ranks, .c = g->n_stages / g->n_ranks, .m = o->n_microbatches};
    if (pp_chain_only(s, err))
        return -1;
    if (!pp_graph_is(g, PP_PLACEMENT_LOOP))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s needs a chain of stages placed in a loop: split "
                       "with 'ppsplit --placement loop'",
                       s->kind);
    if (z->c * z->p != g->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s needs as many stages on each rank, not %d on %d "
                       "ranks: split with 'ppsplit -p %d -c %d'",
                       s->kind, g->n_stages, z->p, z->p, z->c + 1);
    return 0;
}

int pp_rounds_group(int m, int p)
{
    int rounds = m / p > 1 ? m / p : 1;
    return m % rounds == 0 ? m / rounds : 0;
}

int pp_rounds_fail(const struct pp_rounds *z, const char *kind,
                   const char *more, struct pp_err *err)
{
    int below = z->m - 1, above = z->m + 1;
    while (!pp_rounds_group(below, z->p))
        below--;
    while (!pp_rounds_group(above, z->p))
        above++;
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s has no default group for -m '%d' on %d ranks: use -m "
                   "%d or %d%s",
                   kind, z->m, z->p, below, above, more);
}

static int emit_rank(struct pp_schedule *s, const struct pp_rounds *z,
                     const struct pp_kind_options *o, int rank,
                     struct pp_err *err)
{
    size_t total = (size_t)z->m * (size_t)z->c;
    int drain = 2 * (z->p - 1 - rank);
    size_t warmup = (size_t)(z->c - 1) * (size_t)z->g + (size_t)drain;
    if (warmup > total)
        warmup = total;
    int wait = z->c * z->p + drain - (int)warmup - rank;
    if (pp_emit_idle(s, o, rank, rank, err))
        return -1;
    for (size_t k = 0; k < total + warmup; k++) {
        if (k < total ? pp_rounds_emit(s, z, PP_F, rank, k, err)
                      : pp_emit_idle(s, o, rank, 1, err))
            return -1;
        if (k + 1 == warmup && pp_emit_idle(s, o, rank, wait, err))
            return -1;
        if (k >= warmup && pp_rounds_emit(s, z, PP_B, rank, k - warmup, err))
            return -1;
    }
    return 0;
}

static bool group_fits(int m, int p, int g)
{
    return g >= p && g <= m && (m % g == 0 || m % g >= p);
}

/* "4, 5 or 9": the groups that fit, the first few. */
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

static int fail_group(const struct pp_rounds *z, int group, struct pp_err *err)
{
    char groups[100] = "", more[120];
    list_groups(z->m, z->p, groups, sizeof groups);
    if (group && z->m < z->p)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--group '%d' does not fit: a group holds from %d "
                       "microbatches (the ranks) to -m %d; use -m %d or more, "
                       "or leave --group out",
                       group, z->p, z->m, z->p);
    if (group)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--group '%d' does not fit %d microbatches on %d ranks: "
                       "use --group %s",
                       group, z->m, z->p, groups);
    snprintf(more, sizeof more, ", or --group %s", groups);
    return pp_rounds_fail(z, "interleaved", more, err);
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    struct pp_rounds z;
    if (pp_rounds_init(&z, s, o, err))
        return -1;
    if (o->group && !group_fits(z.m, z.p, o->group))
        return fail_group(&z, o->group, err);
    /* With one chunk Megatron-LM runs 1F1B; PyTorch's rule, the default, warms
     * up twice as far. */
    if (z.c == 1 && o->group)
        return pp_emit_1f1b(s, o, 1, err);
    z.g = o->group ? o->group : pp_rounds_group(z.m, z.p);
    if (z.g == 0)
        return fail_group(&z, 0, err);
    for (int rank = 0; rank < z.p; rank++)
        if (emit_rank(s, &z, o, rank, err))
            return -1;
    return 0;
}

const struct pp_kind pp_kind_interleaved = {
    .name = "interleaved",
    .summary = "1f1b over several stages a rank; the bubble shrinks by c",
    .constraint = "loop placement (ppsplit --placement loop -c N); -m a "
                  "multiple of max(1, m div p), or --group",
    .paper = "Narayanan et al., Megatron-LM, SC 2021",
    .n_chunks = 2,
    .emit = emit,
};
