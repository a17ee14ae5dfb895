/* SPDX-License-Identifier: MIT */
#include "model/expert_loads.h"

#include <math.h>

#include "model/mesh.h"

size_t pp_n_divisors(size_t n)
{
    size_t count = 0;
    for (size_t i = 1; i <= n; i++)
        count += n % i == 0;
    return count;
}

size_t pp_expert_group(const struct pp_mesh *x)
{
    size_t sharers = (size_t)x->cp * (x->experts_over_tp ? (size_t)x->tp : 1);
    return (size_t)x->ep > sharers ? (size_t)x->ep / sharers : 1;
}

/* Returns the most tokens of a rank, of `ranks`. */
static double most_tokens(const double *tokens, size_t n, size_t ranks)
{
    double most = 0;
    for (size_t first = 0; first < n; first += n / ranks) {
        double sum = 0;
        for (size_t e = first; e < first + n / ranks; e++)
            sum += tokens[e];
        most = fmax(most, sum);
    }
    return most;
}

void pp_expert_loads_add(struct pp_expert_loads *l, const double *tokens)
{
    double *fullest = l->fullest;
    for (size_t e = 0; e < l->n_experts; e++)
        l->tokens[e] += tokens[e];
    for (size_t ranks = 1; ranks <= l->n_experts; ranks++)
        if (l->n_experts % ranks == 0)
            *fullest++ += most_tokens(tokens, l->n_experts, ranks);
}

/* Returns the place of a divisor of n among its divisors. */
static size_t divisor_index(size_t n, size_t divisor)
{
    size_t at = 0;
    for (size_t i = 1; i < divisor; i++)
        at += n % i == 0;
    return at;
}

double pp_expert_loads_skew(const struct pp_expert_loads *l, size_t ranks,
                            size_t group)
{
    double each = l->fullest[divisor_index(l->n_experts, ranks)];
    double all = most_tokens(l->tokens, l->n_experts, ranks);
    double sum = most_tokens(l->tokens, l->n_experts, 1);
    double most = all + (each - all) / sqrt((double)group);
    return sum > 0 ? most * (double)ranks / sum : 1;
}
