/* SPDX-License-Identifier: MIT */
/* expert_router - the kernels of routers on the CPU: the choice of experts, its
 * gradient, loads and auxiliary losses. A part of experts.c. */
#ifndef PP_KERNELS_EXPERT_ROUTER_H
#define PP_KERNELS_EXPERT_ROUTER_H

#include <math.h>

#include "experts.h"
#include "real.h"

static void softmax_row(real *p, const real *x, size_t E)
{
    double sum = 0;
    real most = max_row(x, E);
    for (size_t e = 0; e < E; e++) {
        p[e] = exp_below(x[e] - most);
        sum += (double)p[e];
    }
    for (size_t e = 0; e < E; e++)
        p[e] = (real)((double)p[e] / sum);
}

static void sigmoid_row(real *p, const real *x, size_t E)
{
    for (size_t e = 0; e < E; e++)
        p[e] = 1 / (1 + fast_exp(-x[e]));
}

/* The scores that choose: x, with a bias if there is one. */
struct candidates {
    const real *x, *bias;
};

static real value(const struct candidates *c, size_t e)
{
    return c->bias ? c->x[e] + c->bias[e] : c->x[e];
}

/* Puts candidate e into the list of the K largest of which there are n. Returns
 * their number. */
static size_t list_best(int32_t *best, size_t n, const struct candidates *c,
                        size_t e, size_t K)
{
    size_t i = n;
    if (n == K && !(value(c, e) > value(c, (size_t)best[K - 1])))
        return n;
    i -= n == K;
    for (; i > 0 && value(c, e) > value(c, (size_t)best[i - 1]); i--)
        best[i] = best[i - 1];
    best[i] = (int32_t)e;
    return n < K ? n + 1 : n;
}

/* Returns the score of n candidates: the largest, or the sum of the two
 * largest.
 */
static real group_score(const struct candidates *c, size_t first, size_t n,
                        bool two)
{
    int32_t best[2];
    size_t found = 0, K = two && n > 1 ? 2 : 1;
    for (size_t e = first; e < first + n; e++)
        found = list_best(best, found, c, e, K);
    real one = value(c, (size_t)best[0]);
    return K == 2 ? one + value(c, (size_t)best[1]) : one;
}

/* Writes the experts with the K largest values, the largest first. Only experts
 * of the best groups count. */
static void choose(int32_t *best, const struct candidates *c, size_t E,
                   size_t K, const struct pp_router *rule)
{
    real score[PP_MOST_EXPERT_GROUPS];
    int32_t kept[PP_MOST_EXPERT_GROUPS];
    bool is_kept[PP_MOST_EXPERT_GROUPS] = {false};
    size_t G = rule->n_groups ? rule->n_groups : 1, n = 0, each = E / G;
    const struct candidates groups = {score, NULL};
    is_kept[0] = G == 1;
    for (size_t g = 0; G > 1 && g < G; g++) {
        score[g] = group_score(c, g * each, each, rule->two_best);
        n = list_best(kept, n, &groups, g, rule->kept_groups);
    }
    for (size_t i = 0; i < n; i++)
        is_kept[kept[i]] = true;
    n = 0;
    for (size_t e = 0; e < E; e++)
        if (G == 1 || is_kept[e / each])
            n = list_best(best, n, c, e, K);
}

/* Experts that are sorted at a time, the number of none, and what is added to
 * the number of an expert that drops the token. */
enum { SORTED = 256, NO_EXPERT = INT32_MAX, DROPPED = 1 << 30 };

/* Replaces experts in r->row by their rows, for experts from first on. done
 * rows belong to the experts before `first`. Returns the rows up to the last
 * expert. A row that is in its place is stored as -1 - row, so that it is not
 * taken for an expert. */
static size_t sort_experts(struct pp_routing *r, size_t N, size_t E, size_t K,
                           size_t first, size_t done)
{
    size_t at[SORTED], count[SORTED] = {0}, R = N * K;
    size_t n = E - first < SORTED ? E - first : SORTED;
    for (size_t i = 0; i < R; i++) {
        size_t e = (size_t)r->row[i] - first;
        if (r->row[i] >= 0 && e < n)
            count[e]++;
    }
    for (size_t e = 0; e < n; done += count[e++])
        at[e] = done;
    for (size_t i = 0; i < R; i++) {
        size_t e = (size_t)r->row[i] - first;
        if (r->row[i] < 0 || e >= n)
            continue;
        r->token[at[e]] = (int32_t)(i / K);
        r->expert[at[e]] = r->row[i];
        r->row[i] = -1 - (int32_t)at[e]++;
    }
    return done;
}

/* Gives dropped tokens the rows from `done` on. */
static void place_dropped(struct pp_routing *r, size_t R, size_t K, size_t done)
{
    for (size_t i = 0; i < R; i++) {
        if (r->row[i] < DROPPED || r->row[i] == NO_EXPERT)
            continue;
        r->token[done] = -1 - (int32_t)(i / K);
        r->expert[done] = r->row[i] - DROPPED;
        r->row[i] = -1 - (int32_t)done++;
    }
}

/* Returns how sort_experts takes what is given. */
static int32_t given_expert(int32_t e)
{
    return e >= 0 ? e : e == -1 ? NO_EXPERT : -2 - e + DROPPED;
}

/* Returns what the scores of a token's experts are divided by. Sigmoids may all
 * be 0. */
static double divisor(const real *p, const struct pp_routing *r,
                      const int32_t *row, size_t K,
                      const struct pp_router *rule)
{
    double sum = rule->sigmoid ? 1e-20 : 0;
    double scale = rule->scale > 0 ? rule->scale : 1;
    for (size_t j = 0; j < K; j++)
        sum += (double)p[r->expert[row[j]]];
    return (rule->norm ? sum : 1) / scale;
}

static PP_ROUTE_FWD(route_fwd)
{
    (void)stream;
    const real *x = logits;
    real *p = probs, *w = weight;
    size_t done = 0;
    for (size_t t = 0; t < N; t++)
        (rule->sigmoid ? sigmoid_row : softmax_row)(p + t * E, x + t * E, E);
    for (size_t i = 0; i < N * K; i++)
        r->row[i] = given ? given_expert(r->row[i]) : NO_EXPERT;
    for (size_t i = 0; !given && i < tokens->n; i++) {
        const struct pp_token_range at = pp_real_range(tokens, i, N);
        for (size_t t = at.begin; t < at.end; t++) {
            /* A softmax keeps the order of the logits. */
            bool by_score = rule->sigmoid || bias;
            const struct candidates c = {by_score ? p + t * E : x + t * E,
                                         bias};
            choose(r->row + t * K, &c, E, K, rule);
        }
    }
    for (size_t first = 0; first < E; first += SORTED)
        done = sort_experts(r, N, E, K, first, done);
    place_dropped(r, N * K, K, done);
    for (size_t i = 0; i < N * K; i++)
        r->row[i] = r->row[i] < 0 ? -1 - r->row[i] : -1;
    for (size_t t = 0; t < N; t++) {
        const int32_t *row = r->row + t * K;
        if (row[0] < 0)
            continue;
        double by = divisor(p + t * E, r, row, K, rule);
        for (size_t j = 0; j < K; j++)
            w[row[j]] =
                (real)((double)p[t * E + (size_t)r->expert[row[j]]] / by);
    }
    return 0;
}

/* Writes the gradient of the logits from the gradients of the chosen scores,
 * (dweight - s) / by. Sigmoids do not depend on each other. */
static void logits_bwd(real *out, const real *dw, const real *p,
                       const struct pp_routing *r, const int32_t *row, size_t E,
                       size_t K, const struct pp_router *rule, double s,
                       double by)
{
    bool sigmoid = rule->sigmoid;
    double sum = 0;
    for (size_t j = 0; !sigmoid && j < K; j++)
        sum += ((double)dw[row[j]] - s) / by * (double)p[r->expert[row[j]]];
    for (size_t e = 0; e < E; e++)
        out[e] = sigmoid ? 0 : (real)(-sum * (double)p[e]);
    for (size_t j = 0; j < K; j++) {
        size_t e = (size_t)r->expert[row[j]];
        double dp = ((double)dw[row[j]] - s) / by, at = (double)p[e];
        double slope = rule->weighs_input ? 1 - at : at * (1 - at);
        out[e] = (real)(sigmoid ? dp * slope : (dp - sum) * at);
    }
}

/* The derivative of the loss by a score is (dweight - s) / divisor with norm,
 * where s is the sum of dweight and score over the sum of the scores; else s is
 * 0. Then that of the softmax or of the sigmoid follows. */
static PP_ROUTE_BWD(route_bwd)
{
    (void)stream;
    const real *dw = dweight, *p = probs;
    real *out = dlogits;
    for (size_t t = 0; t < N; t++, p += E, out += E) {
        const int32_t *row = r->row + t * K;
        if (row[0] < 0) {
            memset(out, 0, E * sizeof *out);
            continue;
        }
        double by = divisor(p, r, row, K, rule), s = 0;
        double scale = rule->scale > 0 ? rule->scale : 1;
        for (size_t j = 0; rule->norm && j < K; j++)
            s += (double)dw[row[j]] * (double)p[r->expert[row[j]]] /
                 (by * scale);
        logits_bwd(out, dw, p, r, row, E, K, rule, s, by);
    }
    return 0;
}

/* --- its auxiliary losses --- */

static PP_LOAD(load)
{
    (void)stream;
    (void)E;
    real *of = load;
    for (size_t i = first * K; i < end * K; i++)
        of[r->expert[r->row[i]]] += 1;
    return 0;
}

static PP_FOLLOW_LOAD(follow_load)
{
    (void)stream;
    (void)master;
    const real *of = load;
    real *b = bias;
    double sum = 0, below = 0, above = 0;
    for (size_t e = 0; e < E; e++)
        sum += (double)of[e];
    /* Loads are integers, so that these comparisons are exact. */
    for (size_t e = 0; e < E; e++) {
        below += (double)of[e] * (double)E < sum;
        above += (double)of[e] * (double)E > sum;
    }
    double mean = centred ? (below - above) / (double)E : 0;
    for (size_t i = 0; i < n; i++) {
        double at = (double)of[first + i] * (double)E;
        double sign = (at < sum) - (at > sum);
        b[i] = (real)((double)b[i] + rate * (sign - mean));
    }
    return 0;
}

/* Returns what scores are divided by, so that they add up to 1. */
static double score_sum(const real *p, size_t E, bool sigmoid)
{
    double sum = 0;
    for (size_t e = 0; sigmoid && e < E; e++)
        sum += (double)p[e];
    return sigmoid ? sum : 1;
}

/* Returns the sum of load[e] p[e] over `by`. */
static double mean_load(const real *load, const real *p, size_t E, double by)
{
    double sum = 0;
    for (size_t e = 0; e < E; e++)
        sum += (double)load[e] * (double)p[e];
    return sum / by;
}

static PP_BALANCE_FWD(balance_fwd)
{
    (void)stream;
    const real *p = probs;
    double sum = 0;
    for (size_t t = first; t < end; t++)
        sum += mean_load(load, p + t * E, E, score_sum(p + t * E, E, sigmoid));
    *loss += scale * sum;
    return 0;
}

static PP_BALANCE_BWD(balance_bwd)
{
    (void)stream;
    const real *of = load;
    for (size_t t = first; t < end; t++) {
        const real *p = (const real *)probs + t * E;
        real *out = (real *)dlogits + t * E;
        double by = score_sum(p, E, sigmoid), mean = mean_load(of, p, E, by);
        for (size_t e = 0; e < E; e++) {
            double slope = sigmoid ? 1 - (double)p[e] : 1;
            out[e] += (real)(scale * (double)p[e] / by * slope *
                             ((double)of[e] - mean));
        }
    }
    return 0;
}

static double log_sum_exp(const real *x, size_t E)
{
    double sum = 0, most = (double)max_row(x, E);
    for (size_t e = 0; e < E; e++)
        sum += exp((double)x[e] - most);
    return most + log(sum);
}

static PP_LOGIT_SIZE_FWD(logit_size_fwd)
{
    (void)stream;
    const real *x = logits;
    double sum = 0;
    for (size_t t = first; t < end; t++) {
        double size = log_sum_exp(x + t * E, E);
        sum += size * size;
    }
    *loss += scale * sum;
    return 0;
}

static PP_LOGIT_SIZE_BWD(logit_size_bwd)
{
    (void)stream;
    for (size_t t = first; t < end; t++) {
        const real *x = (const real *)logits + t * E;
        real *out = (real *)dlogits + t * E;
        double size = log_sum_exp(x, E);
        for (size_t e = 0; e < E; e++)
            out[e] += (real)(2 * scale * size * exp((double)x[e] - size));
    }
    return 0;
}

#endif
