/* SPDX-License-Identifier: MIT */
/* policy - clipped policy gradients over rollouts: PPO and GRPO (Schulman et
 * al. 2017, Shao et al. 2024), GSPO (Zheng et al. 2025), CISPO (MiniMax 2025)
 * and REINFORCE, with the order of operations of NeMo-RL. */
#include "run/objectives/objective.h"

#include <math.h>

enum {
    METRIC_RATIO,
    METRIC_RATIO_MIN,
    METRIC_RATIO_MAX,
    METRIC_CLAMPED,
    METRIC_CLAMPED_MIN,
    METRIC_CLAMPED_MAX,
    METRIC_CLIPPED,
    METRIC_CLIPPED_LOW,
    METRIC_CLIPPED_HIGH,
    METRIC_KL,
    METRIC_ENTROPY,
    METRIC_GEN_KL,
    METRIC_POLICY_KL,
    METRIC_JS,
    METRIC_MULT,
    METRIC_IMPORTANCE,
    METRIC_OUTSIDE,
    N_METRICS
};

#define P_BIT (1u << PP_COLUMN_PREV_LOGPROBS)
#define Q_BIT (1u << PP_COLUMN_LOGPROBS)
#define F_BIT (1u << PP_COLUMN_REF_LOGPROBS)

static const struct pp_metric metrics_of_policies[N_METRICS] = {
    [METRIC_RATIO] = {"probs_ratio", PP_COMBINE_SUM, 0},
    [METRIC_RATIO_MIN] = {"probs_ratio_min", PP_COMBINE_MIN, 0},
    [METRIC_RATIO_MAX] = {"probs_ratio_max", PP_COMBINE_MAX, 0},
    [METRIC_CLAMPED] = {"probs_ratio_clamped", PP_COMBINE_SUM, 0},
    [METRIC_CLAMPED_MIN] = {"probs_ratio_clamped_min", PP_COMBINE_MIN, 0},
    [METRIC_CLAMPED_MAX] = {"probs_ratio_clamped_max", PP_COMBINE_MAX, 0},
    [METRIC_CLIPPED] = {"clip_fraction", PP_COMBINE_SUM, 0},
    [METRIC_CLIPPED_LOW] = {"clip_fraction_low", PP_COMBINE_SUM, 0},
    [METRIC_CLIPPED_HIGH] = {"clip_fraction_high", PP_COMBINE_SUM, 0},
    [METRIC_KL] = {"kl_penalty", PP_COMBINE_SUM, F_BIT},
    [METRIC_ENTROPY] = {"approx_entropy", PP_COMBINE_SUM, 0},
    [METRIC_GEN_KL] = {"gen_kl_error", PP_COMBINE_SUM, P_BIT | Q_BIT},
    [METRIC_POLICY_KL] = {"policy_kl_error", PP_COMBINE_SUM, P_BIT | Q_BIT},
    [METRIC_JS] = {"js_divergence_error", PP_COMBINE_SUM, P_BIT | Q_BIT},
    [METRIC_MULT] = {"token_mult_prob_error", PP_COMBINE_SUM, P_BIT | Q_BIT},
    [METRIC_IMPORTANCE] = {"sampling_importance_ratio", PP_COMBINE_SUM,
                           P_BIT | Q_BIT},
    [METRIC_OUTSIDE] = {"is_oob_ratio", PP_COMBINE_SUM, P_BIT | Q_BIT},
};
_Static_assert((int)N_METRICS <= (int)PP_MAX_METRICS, "there is room");

/* One scored token, and the values of its sequence. */
struct token {
    double x, p, q, f, advantage;
    double n;          /* scored tokens of the sequence */
    double mean_ratio; /* of x - p, over the sequence */
    double importance; /* weight of the policy's loss */
};

/* A value and its derivative with respect to x. */
struct dual {
    double value, slope;
};

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double finite_or_0(double x)
{
    return isfinite(x) ? x : 0;
}

static bool is_outside(const struct pp_objective_options *o, double weight)
{
    return !(weight >= o->importance_min && weight <= o->importance_max);
}

static bool weighs_sequences(const struct pp_objective_options *o)
{
    return o->ratio == PP_RATIO_SEQUENCE ||
           o->importance == PP_IMPORTANCE_SEQUENCE_PRODUCT;
}

/* Returns the weight that corrects for the sampler, without and with its
 * limits. mean: of p - q over the sequence. */
static double importance(const struct pp_objective_options *o, double log_ratio,
                         double mean, bool *outside)
{
    double w = finite_or_0(exp(log_ratio));
    *outside = is_outside(o, w);
    switch ((enum pp_importance)o->importance) {
    case PP_IMPORTANCE_NONE:
        *outside = false;
        return w;
    case PP_IMPORTANCE_TIS:
        return clamp(w, o->importance_min, o->importance_max);
    case PP_IMPORTANCE_SEQUENCE_MASK:
        *outside = is_outside(o, exp(mean));
        break;
    case PP_IMPORTANCE_ICEPOP:
    case PP_IMPORTANCE_SEQUENCE_PRODUCT:
        break;
    }
    return *outside ? 0 : w;
}

/* Returns the ratio. With sequence ratios the slope is that of the log-ratio of
 * the whole sequence, which the caller spreads. */
static struct dual ratio_of(const struct pp_objective_options *o,
                            const struct token *k)
{
    double r;
    switch ((enum pp_policy_ratio)o->ratio) {
    case PP_RATIO_SEQUENCE:
        r = exp(k->mean_ratio);
        return (struct dual){r, r};
    case PP_RATIO_ON_POLICY:
        return (struct dual){1, 1};
    case PP_RATIO_NONE:
        return (struct dual){k->x, 1};
    case PP_RATIO_TOKEN:
        break;
    }
    r = exp(k->x - k->p);
    return (struct dual){r, r};
}

/* Returns the clipped loss of a token, and the clamped ratio. */
static struct dual policy_loss(const struct pp_objective_options *o,
                               const struct token *k, struct dual r,
                               double *clamped)
{
    double a = k->advantage, low = 1 - o->clip_low, high = 1 + o->clip_high;
    bool clips = o->ratio == PP_RATIO_TOKEN || o->ratio == PP_RATIO_SEQUENCE;
    *clamped = clips ? clamp(r.value, low, high) : r.value;
    if (o->policy_loss == PP_POLICY_CISPO)
        return (struct dual){-a * *clamped * k->x, -a * *clamped};
    struct dual l = {-a * r.value, -a * r.slope};
    if (-a * *clamped > l.value)
        l = (struct dual){-a * *clamped, 0};
    if (o->dual_clip > 0 && a < 0 && -a * o->dual_clip < l.value)
        l = (struct dual){-a * o->dual_clip, 0};
    return l;
}

/* Returns whether the ratio of its sequence weighs a divergence, after the
 * limits. */
static bool weighs_kl_by_sequence(const struct pp_objective_options *o)
{
    return o->kl != PP_KL_NONE && o->kl_weighting == PP_KL_PREVIOUS &&
           o->ratio == PP_RATIO_SEQUENCE;
}

/* Returns the factor of the divergence, whose derivative is itself. */
static double kl_factor(const struct pp_objective_options *o,
                        const struct token *k)
{
    switch ((enum pp_kl_weighting)o->kl_weighting) {
    case PP_KL_GENERATION:
        return finite_or_0(exp(k->x - k->q));
    case PP_KL_PREVIOUS:
        return finite_or_0(exp(k->x - k->p));
    case PP_KL_UNWEIGHTED:
    case PP_KL_SCORE:
        break;
    }
    return 1;
}

/* Returns the estimate of the divergence from the reference (Schulman 2020),
 * with its limits and the weight of the token. */
static struct dual divergence(const struct pp_objective_options *o,
                              const struct token *k, bool *limited)
{
    double raw = k->f - k->x, r = clamp(raw, -o->kl_clamp, o->kl_clamp);
    bool by_sequence = weighs_kl_by_sequence(o);
    double w = by_sequence ? 1 : kl_factor(o, k);
    *limited = false;
    struct dual d = {0, 0};
    switch ((enum pp_kl)o->kl) {
    case PP_KL_NONE:
        return d;
    case PP_KL_K1:
        d = (struct dual){-r, 1};
        break;
    case PP_KL_K2:
        d = (struct dual){r * r / 2, -r};
        break;
    case PP_KL_K3:
        d = (struct dual){expm1(r) - r, -expm1(r)};
        break;
    }
    if (o->kl_weighting != PP_KL_UNWEIGHTED && !by_sequence)
        d.slope += d.value;
    d.value *= w;
    d.slope *= w;
    *limited = raw != r || fabs(d.value) > o->kl_limit;
    if (*limited)
        d.slope = 0;
    d.value = clamp(d.value, -o->kl_limit, o->kl_limit);
    return d;
}

/* Returns the estimate of the entropy, -exp(x - q) x; without q that weight is
 * 1, with its derivative. */
static struct dual entropy(const struct token *k, bool sampled)
{
    double w = sampled ? finite_or_0(exp(k->x - k->q)) : 1;
    return (struct dual){-w * k->x, -w * (1 + k->x)};
}

/* Returns the share of a token in the loss. */
static double share_of(const struct pp_objective_options *o, double n,
                       const struct pp_objective_counts *step)
{
    switch ((enum pp_aggregate)o->aggregate) {
    case PP_SEQ_MEAN_SUM:
        return 1 / step->sequences;
    case PP_SEQ_MEAN_MEAN:
        return 1 / (n * step->sequences);
    case PP_CONSTANT_MEAN:
        return 1 / (o->aggregate_length * step->sequences);
    case PP_TOKEN_MEAN:
        break;
    }
    return 1 / step->tokens;
}

static double k3_of(double r)
{
    return expm1(r) - r;
}

/* Adds the distance between trainer and sampler. */
static void compare_sampler(const struct token *k, double share, double *m)
{
    double d = k->p - k->q;
    double mixture = fmax(k->p, k->q) + log1p(exp(-fabs(d))) - log(2);
    m[METRIC_GEN_KL] += share * k3_of(d);
    m[METRIC_POLICY_KL] += share * k3_of(-d);
    m[METRIC_MULT] += share * exp(fabs(d));
    m[METRIC_JS] += share * (k3_of(k->p - mixture) + k3_of(k->q - mixture)) / 2;
}

static void note_ratio(const struct pp_objective_options *o,
                       const struct token *k, double r, double clamped,
                       double share, double *m)
{
    double a = k->advantage;
    m[METRIC_RATIO] += share * r;
    m[METRIC_CLAMPED] += share * clamped;
    m[METRIC_RATIO_MIN] = fmin(m[METRIC_RATIO_MIN], r);
    m[METRIC_RATIO_MAX] = fmax(m[METRIC_RATIO_MAX], r);
    m[METRIC_CLAMPED_MIN] = fmin(m[METRIC_CLAMPED_MIN], clamped);
    m[METRIC_CLAMPED_MAX] = fmax(m[METRIC_CLAMPED_MAX], clamped);
    m[METRIC_CLIPPED] += share * (-a * clamped > -a * r);
    if (clamped != r) {
        m[METRIC_CLIPPED_LOW] += share * (r < 1 - o->clip_low && a < 0);
        m[METRIC_CLIPPED_HIGH] += share * (r > 1 + o->clip_high && a > 0);
    }
}

/* Reads the token t of a sequence. */
static struct token token_at(const struct pp_objective_rows *r, size_t t,
                             const struct pp_sequence_sums *s)
{
    const double *p = r->columns[PP_COLUMN_PREV_LOGPROBS];
    const double *q = r->columns[PP_COLUMN_LOGPROBS];
    const double *f = r->columns[PP_COLUMN_REF_LOGPROBS];
    return (struct token){.x = r->x[t],
                          .p = p ? p[t] : 0,
                          .q = q ? q[t] : 0,
                          .f = f ? f[t] : 0,
                          .advantage = r->columns[PP_COLUMN_ADVANTAGES][t],
                          .n = s->n,
                          .mean_ratio = s->ratio / s->n,
                          .importance = 1};
}

/* Returns the slope of the loss of a sequence with respect to its mean
 * log-ratio, which all its tokens share: the slope of a token is proportional
 * to its advantage, with one factor for each sign. */
static double shared_slope(const struct pp_objective_options *o,
                           const struct pp_sequence_sums *sum)
{
    double r = exp(sum->ratio / sum->n), clamped;
    const struct token up = {.advantage = sum->up},
                       down = {.advantage = sum->down};
    const struct dual ratio = {r, r};
    return policy_loss(o, &up, ratio, &clamped).slope +
           policy_loss(o, &down, ratio, &clamped).slope;
}

static void sum_policy(const struct pp_objective_options *o,
                       const struct pp_objective_rows *r,
                       struct pp_sequence_sums *sums)
{
    bool limited;
    pp_objective_sum(o, r, sums);
    for (size_t s = 0; weighs_kl_by_sequence(o) && s < r->n_sequences; s++)
        for (size_t t = r->first[s]; t < r->first[s + 1]; t++) {
            const struct token k = token_at(r, t, &sums[s]);
            struct dual d = divergence(o, &k, &limited);
            sums[s].divergence += limited ? 0 : d.value;
        }
}

/* Weighs a divergence by the ratio of its sequence. Every token of the sequence
 * changes the weights of all. */
static struct dual weigh_by_sequence(struct dual d,
                                     const struct pp_sequence_sums *sum)
{
    double w = finite_or_0(exp(sum->ratio / sum->n));
    return (struct dual){w * d.value, w * (d.slope + sum->divergence / sum->n)};
}

/* One pass over the tokens of sequence s. With ratios of sequences the slope of
 * every token is that of the sequence. */
static void pass_sequence(const struct pp_objective_options *o,
                          const struct pp_objective_rows *r, size_t s,
                          const struct pp_sequence_sums *sum,
                          const struct pp_objective_counts *step, double *loss,
                          double *m, double *dx)
{
    bool sampled = r->columns[PP_COLUMN_LOGPROBS];
    bool compares = sampled && r->columns[PP_COLUMN_PREV_LOGPROBS];
    double share = share_of(o, sum->n, step);
    double mean = sum->importance / sum->n, spread = 0;
    if (o->ratio == PP_RATIO_SEQUENCE && sum->n > 0)
        spread = shared_slope(o, sum) / sum->n;
    for (size_t t = r->first[s]; t < r->first[s + 1]; t++) {
        struct token k = token_at(r, t, sum);
        double clamped, w = 1;
        bool outside = false, limited;
        if (compares)
            w = importance(o, weighs_sequences(o) ? sum->importance : k.p - k.q,
                           mean, &outside);
        if (o->importance != PP_IMPORTANCE_NONE)
            k.importance = w;
        struct dual ratio = ratio_of(o, &k), kl = divergence(o, &k, &limited);
        if (weighs_kl_by_sequence(o))
            kl = weigh_by_sequence(kl, sum);
        struct dual l = policy_loss(o, &k, ratio, &clamped);
        struct dual h = entropy(&k, sampled);
        double slope = o->ratio == PP_RATIO_SEQUENCE ? spread : l.slope;
        dx[t] = share * (k.importance * slope + o->kl_weight * kl.slope -
                         o->entropy_weight * h.slope);
        *loss += share * (k.importance * l.value + o->kl_weight * kl.value -
                          o->entropy_weight * h.value);
        m[METRIC_KL] += share * kl.value;
        m[METRIC_ENTROPY] += h.value / step->tokens;
        note_ratio(o, &k, ratio.value, clamped, 1 / step->tokens, m);
        if (!compares)
            continue;
        compare_sampler(&k, 1 / step->tokens, m);
        bool whole =
            weighs_sequences(o) || o->importance == PP_IMPORTANCE_SEQUENCE_MASK;
        m[METRIC_OUTSIDE] += outside * (whole ? 1 / (sum->n * step->sequences)
                                              : 1 / step->tokens);
        m[METRIC_IMPORTANCE] +=
            w * (weighs_sequences(o) ? 1 / (sum->n * step->sequences)
                                     : 1 / step->tokens);
    }
}

static void finish_grpo(const struct pp_objective_options *o,
                        const struct pp_objective_rows *r,
                        const struct pp_sequence_sums *sums,
                        const struct pp_objective_counts *step, double *loss,
                        double *metrics, double *dx)
{
    *loss = 0;
    for (int k = 0; k < N_METRICS; k++)
        metrics[k] = pp_metric_neutral(metrics_of_policies[k].combine);
    for (size_t s = 0; s < r->n_sequences; s++)
        pass_sequence(o, r, s, &sums[s], step, loss, metrics, dx);
}

const struct pp_objective pp_objective_grpo = {
    .name = "grpo",
    .kind = PP_DATA_ROLLOUTS,
    .metrics = metrics_of_policies,
    .n_metrics = N_METRICS,
    .partial = sum_policy,
    .finish = finish_grpo,
};
