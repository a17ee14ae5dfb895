/* SPDX-License-Identifier: MIT */
#include "model/profile.h"

#include <math.h>

enum { MAX_ROUNDS = 60 };

/* The two x are distinct if the squared sine between them is above this, which
 * means that their ratio varies by about 3 %. Below it, an error of 1 % in the
 * times would move the coefficients by a third, in opposite directions. */
static const double least_sine2 = 1e-3;

double pp_recompute_seconds(const struct pp_unit_seconds *t,
                            enum pp_recompute r, double share)
{
    double all = 0, again = 0;
    for (int k = 0; k < PP_N_RECOMPUTED; k++) {
        all += t->elementwise[k];
        again += r >> k & 1 ? t->elementwise[k] : 0;
    }
    return again + share * (t->fwd[0] - all);
}

/* Weighted sums of products of x and y. */
struct sums {
    double xx[3], xy[2]; /* 00, 01, 11 */
};

static struct sums add_up(const struct pp_fit_point *p, size_t n,
                          const double c[2], double least)
{
    struct sums s = {0};
    for (size_t i = 0; i < n; i++) {
        double off = fabs(p[i].y - c[0] * p[i].x[0] - c[1] * p[i].x[1]);
        double w = 1 / fmax(off, least);
        s.xx[0] += w * p[i].x[0] * p[i].x[0];
        s.xx[1] += w * p[i].x[0] * p[i].x[1];
        s.xx[2] += w * p[i].x[1] * p[i].x[1];
        s.xy[0] += w * p[i].x[0] * p[i].y;
        s.xy[1] += w * p[i].x[1] * p[i].y;
    }
    return s;
}

/* Fits c = k * along. */
static void solve_one(const struct sums *s, const double along[2], double c[2])
{
    double xx = along[0] * along[0] * s->xx[0] +
                2 * along[0] * along[1] * s->xx[1] +
                along[1] * along[1] * s->xx[2];
    double xy = along[0] * s->xy[0] + along[1] * s->xy[1];
    double k = xx > 0 ? xy / xx : 0;
    c[0] = k * along[0];
    c[1] = k * along[1];
}

/* Fits both coefficients. A negative one becomes 0; the other is fitted again.
 */
static void solve_two(const struct sums *s, double c[2])
{
    double det = s->xx[0] * s->xx[2] - s->xx[1] * s->xx[1];
    c[0] = (s->xy[0] * s->xx[2] - s->xy[1] * s->xx[1]) / det;
    c[1] = (s->xy[1] * s->xx[0] - s->xy[0] * s->xx[1]) / det;
    if (c[0] < 0)
        solve_one(s, (const double[]){0, 1}, c);
    else if (c[1] < 0)
        solve_one(s, (const double[]){1, 0}, c);
}

bool pp_least_deviation(const struct pp_fit_point *p, size_t n,
                        const double share[2], double c[2])
{
    double mean = 0;
    c[0] = c[1] = 0;
    for (size_t i = 0; i < n; i++)
        mean += p[i].y / (double)n;
    if (mean <= 0)
        return false;
    /* A bound this large gives all points the same weight. */
    struct sums s = add_up(p, n, c, 1e9 * mean);
    double sine2 = 1 - s.xx[1] * s.xx[1] / (s.xx[0] * s.xx[2]);
    bool both = s.xx[0] > 0 && s.xx[2] > 0 && sine2 > least_sine2;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        if (both)
            solve_two(&s, c);
        else
            solve_one(&s, share, c);
        s = add_up(p, n, c, 1e-6 * mean);
    }
    return both;
}
