/* SPDX-License-Identifier: MIT */
/* preference - direct preference optimisation of packed pairs: Rafailov et al.
 * 2023 (sigmoid), Zhao et al. 2023 (hinge), Azar et al. 2024 (IPO), Chowdhury
 * et al. 2024 (robust); and the loss of a reward model (Bradley and Terry
 * 1952), whose rewards are given. Sequence 2k is the chosen one of pair k, and
 * 2k + 1 the rejected one. */
#include "run/objectives/objective.h"

#include <math.h>

/* A reward model has the metrics before METRIC_PREFERENCE. */
enum {
    METRIC_ACCURACY,
    METRIC_MARGIN,
    METRIC_CHOSEN,
    METRIC_REJECTED,
    METRIC_PREFERENCE,
    METRIC_NLL,
    N_METRICS
};

static const struct pp_metric metrics_of_pairs[N_METRICS] = {
    [METRIC_ACCURACY] = {"accuracy", PP_COMBINE_SUM, 0},
    [METRIC_MARGIN] = {"reward_margin", PP_COMBINE_SUM, 0},
    [METRIC_CHOSEN] = {"chosen_reward", PP_COMBINE_SUM, 0},
    [METRIC_REJECTED] = {"rejected_reward", PP_COMBINE_SUM, 0},
    [METRIC_PREFERENCE] = {"preference_loss", PP_COMBINE_SUM, 0},
    [METRIC_NLL] = {"chosen_nll", PP_COMBINE_SUM, 0},
};
_Static_assert((int)N_METRICS <= (int)PP_MAX_METRICS, "there is room");

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* Returns -log sigmoid(x). */
static double softplus_below(double x)
{
    return x < 0 ? log1p(exp(x)) - x : log1p(exp(-x));
}

/* Returns the loss of a difference of rewards, and its derivative. */
static double preference(const struct pp_objective_options *o, double d,
                         double *derivative)
{
    double b = o->beta, e = o->label_smoothing;
    double distance = d - 1 / (2 * b);
    switch ((enum pp_preference_loss)o->preference_loss) {
    case PP_PREFER_HINGE:
        *derivative = b * d < 1 ? -b : 0;
        return b * d < 1 ? 1 - b * d : 0;
    case PP_PREFER_IPO:
        *derivative = 2 * distance;
        return distance * distance;
    case PP_PREFER_ROBUST:
        *derivative =
            -b * ((1 - e) * sigmoid(-b * d) + e * sigmoid(b * d)) / (1 - 2 * e);
        return ((1 - e) * softplus_below(b * d) - e * softplus_below(-b * d)) /
               (1 - 2 * e);
    case PP_PREFER_SIGMOID:
        break;
    }
    *derivative = b * (e * sigmoid(b * d) - (1 - e) * sigmoid(-b * d));
    return (1 - e) * softplus_below(b * d) + e * softplus_below(-b * d);
}

static double least_one(double n)
{
    return n > 1 ? n : 1;
}

/* Returns the reward of a sequence, without beta. */
static double reward(const struct pp_objective_options *o,
                     const struct pp_objective_rows *r,
                     const struct pp_sequence_sums *sums, size_t s)
{
    const double *whole = r->columns[PP_COLUMN_REF_LOGPS];
    double f = whole ? whole[s] : sums[s].reference;
    double sum = sums[s].x - (o->reference_free ? 0 : f);
    return o->average_logprobs ? sum / least_one(sums[s].n) : sum;
}

/* Sets the gradient of every token of a sequence: `slope` times the derivative
 * of its reward, minus nll. */
static void fill(const struct pp_objective_options *o,
                 const struct pp_objective_rows *r,
                 const struct pp_sequence_sums *sums, size_t s, double slope,
                 double nll, double *dx)
{
    double share = o->average_logprobs ? 1 / least_one(sums[s].n) : 1;
    for (size_t t = r->first[s]; t < r->first[s + 1]; t++)
        dx[t] = slope * share - nll;
}

/* Returns the share of a token of a chosen sequence in its own loss. */
static double sft_share(const struct pp_objective_options *o, double n,
                        const struct pp_objective_counts *step)
{
    double pairs = step->pairs > 0 ? 1 / step->pairs : 0;
    switch ((enum pp_aggregate)o->sft_aggregate) {
    case PP_TOKEN_MEAN:
        return step->chosen > 0 ? 1 / step->chosen : 0;
    case PP_SEQ_MEAN_MEAN:
        return pairs / least_one(n);
    case PP_SEQ_MEAN_SUM:
    case PP_CONSTANT_MEAN:
        break;
    }
    return pairs;
}

static void finish_dpo(const struct pp_objective_options *o,
                       const struct pp_objective_rows *r,
                       const struct pp_sequence_sums *sums,
                       const struct pp_objective_counts *step, double *loss,
                       double *metrics, double *dx)
{
    double scale = step->pairs > 0 ? 1 / step->pairs : 0;
    double added = r->adds_whole ? scale : 0;
    *loss = 0;
    for (int k = 0; k < N_METRICS; k++)
        metrics[k] = 0;
    for (size_t s = 0; s + 1 < r->n_sequences; s += 2) {
        double slope, chosen = reward(o, r, sums, s);
        double rejected = reward(o, r, sums, s + 1);
        double share = sft_share(o, sums[s].n, step);
        if (sums[s].n + sums[s + 1].n == 0)
            continue;
        double pair = preference(o, chosen - rejected, &slope);
        double nll = r->adds_whole ? -sums[s].x * share : 0;
        *loss += added * o->preference_weight * pair + o->sft_weight * nll;
        slope *= o->preference_weight * scale;
        fill(o, r, sums, s, slope, o->sft_weight * share, dx);
        fill(o, r, sums, s + 1, -slope, 0, dx);
        metrics[METRIC_ACCURACY] += added * (chosen > rejected);
        metrics[METRIC_MARGIN] += added * (chosen - rejected);
        metrics[METRIC_CHOSEN] += added * chosen;
        metrics[METRIC_REJECTED] += added * rejected;
        metrics[METRIC_PREFERENCE] += added * pair;
        metrics[METRIC_NLL] += nll;
    }
}

static void finish_reward(const struct pp_objective_options *o,
                          const struct pp_objective_rows *r,
                          const struct pp_sequence_sums *sums,
                          const struct pp_objective_counts *step, double *loss,
                          double *metrics, double *dx)
{
    const struct pp_objective_options bradley_terry = {
        .number = o->number,
        .beta = 1,
        .preference_weight = 1,
        .preference_loss = PP_PREFER_SIGMOID,
        .sft_aggregate = PP_SEQ_MEAN_SUM,
        .reference_free = true,
    };
    finish_dpo(&bradley_terry, r, sums, step, loss, metrics, dx);
}

const struct pp_objective pp_objective_dpo = {
    .name = "dpo",
    .kind = PP_DATA_PAIRS,
    .metrics = metrics_of_pairs,
    .n_metrics = N_METRICS,
    .partial = pp_objective_sum,
    .finish = finish_dpo,
};

const struct pp_objective pp_objective_reward = {
    .name = "reward",
    .kind = PP_DATA_PAIRS,
    .metrics = metrics_of_pairs,
    .n_metrics = METRIC_PREFERENCE,
    .partial = pp_objective_sum,
    .finish = finish_reward,
};
