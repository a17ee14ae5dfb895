/* SPDX-License-Identifier: MIT */
#include "model/cost.h"

#include "model/recompute.h"
#include "model/unit_table.h"
#include "model/vision.h"

struct pp_cost pp_unit_cost(const struct pp_model *m, struct pp_unit_id u,
                            enum pp_recompute r, double seq_len)
{
    struct pp_flops f = pp_unit_fwd_flops(m, u);
    struct pp_flops again = pp_unit_recompute_flops(m, u, r);
    double seen = pp_attended_pairs(f.window, seq_len);
    double products = f.per_token, pairs = f.per_pair * seen;
    double row = PP_ELEMENT_FLOPS * (double)m->hidden;
    if (m->table) /* says what its units cost */
        return pp_cost_of(products, pairs, pp_unit_recomputes(m, u));
    switch (u.kind) {
    case PP_UNIT_EMBED: /* copy a row; add the gradient to a row */
        return (struct pp_cost){2 * row, 0, 3 * row, 3 * row};
    case PP_UNIT_NORM: /* x to y; x, dy to dx; x, dy to sums */
        return (struct pp_cost){2 * row, 3 * row, 2 * row, 5 * row};
    case PP_UNIT_PRE_NORM:
        row = PP_ELEMENT_FLOPS * pp_vision_out_width(m, u);
        return (struct pp_cost){2 * row, 3 * row, 2 * row, 5 * row};
    default:
        break;
    }
    return pp_cost_recompute(
        pp_cost_of(products, pairs, pp_unit_recomputes(m, u)), again.per_token,
        again.per_pair * seen);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int pp_live_microbatches(int n_ranks, int n_chunks, bool v, int stage,
                         int n_microbatches)
{
    int rank = stage % n_ranks, chunk = stage / n_ranks;
    if (v || n_chunks == 1)
        return smaller(n_microbatches, n_ranks * n_chunks - stage);
    /* Before its first backward a rank runs n_ranks microbatches through each
     * chunk in turn but the last, then 2 (n_ranks - 1 - rank) + 1 more: through
     * the last chunk first, and what is beyond n_ranks through the first. */
    int rest = 2 * (n_ranks - 1 - rank) + 1;
    int live = n_ranks;
    if (chunk == n_chunks - 1)
        live = smaller(n_ranks, rest);
    else if (chunk == 0 && rest > n_ranks)
        live = rest;
    return smaller(n_microbatches, live);
}
