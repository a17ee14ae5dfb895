/* SPDX-License-Identifier: MIT */
/* v-half, v-min - two stages a rank, there and back, in half or a third of
 * 1f1b's memory.
 *
 * Both repeat one block. On the way down a microbatch advances by two slots a
 * rank in v-half and by one in v-min, on the way up by one, so that it stays on
 * every rank for the same time. The order is planned in slots of equal length;
 * with costs far from equal a bubble comes back. Qi et al., "Pipeline
 * Parallelism with Controllable Memory", NeurIPS 2024. */
#include <stdlib.h>

#include "sched/kinds.h"
#include "sched/vblock.h"

/* A pause at the turn keeps the four apart modulo the period. */
static struct pp_vblock half_block(int p, int r)
{
    int pause = p % 2 == 0 ? 3 : 0;
    return (struct pp_vblock){{2 * r, 3 * p - r - 2, 3 * p + pause + 2 * r - 1,
                               6 * p + pause - r - 2}};
}

static struct pp_vblock min_block(int p, int r)
{
    int pause = p % 3 == 0 ? 2 : 0;
    return (struct pp_vblock){
        {r, 2 * p - r - 1, 2 * p + pause + r, 4 * p + pause - r - 1}};
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_vblock (*block)(int p, int r), struct pp_err *err)
{
    int p = s->graph->n_ranks;
    if (pp_two_in_a_v(s, err))
        return -1;
    struct pp_vblock *blocks = calloc((size_t)p, sizeof *blocks);
    if (!blocks)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int r = 0; r < p; r++)
        blocks[r] = block(p, r);
    int rc = pp_vblock_emit(s, blocks, o->n_microbatches, err);
    free(blocks);
    return rc;
}

static int emit_half(struct pp_schedule *s, const struct pp_kind_options *o,
                     struct pp_err *err)
{
    return emit(s, o, half_block, err);
}

static int emit_min(struct pp_schedule *s, const struct pp_kind_options *o,
                    struct pp_err *err)
{
    return emit(s, o, min_block, err);
}

const struct pp_kind pp_kind_v_half = {
    .name = "v-half",
    .summary = "two stages a rank in a V, backward split; half of zbv's memory",
    .constraint = "V placement of two chunks (ppsplit -c 2 --placement v), "
                  "any -m",
    .paper = "Qi et al., Pipeline Parallelism with Controllable Memory, "
             "NeurIPS 2024",
    .emit = emit_half,
    .n_chunks = 2,
    .v = true,
};

const struct pp_kind pp_kind_v_min = {
    .name = "v-min",
    .summary = "two stages a rank in a V, backward split; a third of zbv's "
               "memory",
    .constraint = "V placement of two chunks (ppsplit -c 2 --placement v), "
                  "any -m",
    .paper = "Qi et al., Pipeline Parallelism with Controllable Memory, "
             "NeurIPS 2024",
    .emit = emit_min,
    .n_chunks = 2,
    .v = true,
};
