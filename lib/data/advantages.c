/* SPDX-License-Identifier: MIT */
/* advantages - makes the advantages of rollouts from the rewards of their
 * group, as NeMo-RL does: a reward less a baseline, over a standard deviation.
 */
#include <math.h>

#include "data/documents.h"
#include "data/packed/packed.h"

/* Added to a standard deviation before the division. */
#define LEAST_DEVIATION 1e-6

/* Returns the advantage of response i of n. Without `all` it is left out of its
 * own baseline (Ahmadian et al., "Back to Basics", 2024). */
static double advantage(const float *rewards, size_t n, size_t i, bool all)
{
    size_t others = all ? n : n - 1;
    double mean = 0, squares = 0, own = (double)rewards[i];
    if (others == 0)
        return 0;
    for (size_t k = 0; k < n; k++)
        mean += all || k != i ? (double)rewards[k] : 0;
    /* A division for each would round, and equal rewards would deviate. */
    mean /= (double)others;
    for (size_t k = 0; k < n; k++) {
        double off = (double)rewards[k] - mean;
        squares += all || k != i ? off * off : 0;
    }
    double deviation = others > 1 ? sqrt(squares / (double)(others - 1)) : 0;
    return (own - mean) / (deviation > 0 ? deviation + LEAST_DEVIATION : 1);
}

int pp_documents_add_advantages(struct pp_documents *d,
                                enum pp_baseline baseline, struct pp_err *err)
{
    const float *rewards = d->columns[PP_COLUMN_REWARDS];
    if (d->n == 0)
        return 0;
    if (d->kind != PP_DATA_ROLLOUTS || !rewards)
        return pp_fail(err, PP_EXIT_INPUT,
                       "advantages need rollouts with rewards, and the input "
                       "has %s%s",
                       d->kind == PP_DATA_ROLLOUTS ? "no " : "",
                       d->kind == PP_DATA_ROLLOUTS ? "rewards"
                                                   : pp_data_kinds[d->kind]);
    float *out = pp_documents_make_column(d, PP_COLUMN_ADVANTAGES, err);
    if (!out)
        return -1;
    for (size_t i = 0; i < d->n; i++) {
        size_t first = pp_documents_sequence(d, i);
        size_t n = pp_documents_sequence(d, i + 1) - first;
        for (size_t s = 0; s < n; s++) {
            double a =
                advantage(rewards + first, n, s, baseline == PP_BASELINE_GROUP);
            for (size_t t = d->first[first + s]; t < d->first[first + s + 1];
                 t++)
                out[t] =
                    d->labels && d->labels[t] == PP_LABEL_IGNORE ? 0 : (float)a;
        }
    }
    return 0;
}
