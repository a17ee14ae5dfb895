/* SPDX-License-Identifier: MIT */
/* dualpipe - two copies of the weights, microbatches entering at both ends.
 *
 * The first half of the microbatches goes from rank 0 to rank p - 1, the second
 * half through the copies from rank p - 1 to rank 0. Rank r then does for the
 * one what rank p - 1 - r does for the other, and each half of the ranks runs
 * the order of dualpipev, whose V turns in the middle. DeepSeek-AI,
 * "DeepSeek-V3 Technical Report", 2024, and the DualPipe code. */
#include "sched/kinds.h"

static int check_shape(const struct pp_schedule *s, int m, struct pp_err *err)
{
    int p = s->graph->n_ranks;
    if (!pp_graph_is(s->graph, PP_PLACEMENT_BOTH_WAYS) || p % 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipe needs a chain of one stage on each of an even "
                       "number of ranks, and its copy the other way: split "
                       "with 'ppsplit -p %d --placement both-ways'",
                       p + p % 2);
    if (m < 2 * p || m % 2)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dualpipe needs an even number of microbatches, at "
                       "least two for each rank, not -m '%d': use -m %d%s",
                       m, m < 2 * p ? 2 * p : m + 1,
                       m < 2 * p ? " or more" : "");
    return 0;
}

static int emit(struct pp_schedule *s, const struct pp_kind_options *o,
                struct pp_err *err)
{
    int p = s->graph->n_ranks, half = o->n_microbatches / 2;
    if (check_shape(s, o->n_microbatches, err))
        return -1;
    for (int r = 0; r < p; r++) {
        bool mirrored = r >= p / 2;
        int there = r, back = 2 * p - 1 - r;
        struct pp_two_ways w = {
            .stage = {mirrored ? back : there, mirrored ? there : back},
            .first = {mirrored ? half : 0, mirrored ? 0 : half},
            .m = half,
            .rank = mirrored ? p - 1 - r : r,
            .p = p / 2};
        if (pp_emit_two_ways(s, &w, err))
            return -1;
    }
    return 0;
}

const struct pp_kind pp_kind_dualpipe = {
    .name = "dualpipe",
    .summary = "two copies of the weights, microbatches from both ends",
    .constraint = "copies both ways (ppsplit --placement both-ways), -p and -m "
                  "even, -m at least 2p",
    .paper = "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024",
    .copies = true,
    .emit = emit,
};
