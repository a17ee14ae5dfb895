/* SPDX-License-Identifier: MIT */
/* With copies of the weights the work of a rank depends on the way that each
 * microbatch takes; what they come to together does not, but for the cheaper
 * copy of each. */
#include "schedule/bound/bound_parts.h"

/* Everything that microbatch k has to run, on whichever copy is cheapest. */
static double work_of(const struct pp_bound_case *c, size_t k)
{
    int n = c->g->n_stages / c->g->n_copies;
    double work = 0;
    for (int s = 0; s < n; s++) {
        double least = 0;
        for (int copy = 0; copy < c->g->n_copies; copy++) {
            size_t at = (size_t)(s + copy * n) * c->n + k;
            double time = c->times[PP_BOUND_F][at] + c->times[PP_BOUND_I][at] +
                          c->times[PP_BOUND_W][at];
            least = copy == 0 || time < least ? time : least;
        }
        work += least;
    }
    return work;
}

/* A rank with stages of every copy has work whatever way is taken. */
static bool has_all(const struct pp_graph *g, int row)
{
    unsigned seen = 0;
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == row)
            seen |= 1u << pp_copy_number(g, s);
    return seen == (1u << g->n_copies) - 1;
}

double pp_bound_copies(const struct pp_bound_case *c)
{
    double sum = 0;
    for (size_t k = 0; k < c->n; k++)
        sum += work_of(c, k);
    for (int r = 0; r < c->g->n_rows; r++)
        if (has_all(c->g, r))
            sum += c->row_head[r] + c->row_tail[r];
    return sum / c->g->n_rows;
}
