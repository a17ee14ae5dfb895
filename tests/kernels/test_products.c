/* SPDX-License-Identifier: MIT */
/* test_products - compares the products of every instruction set with simple
 * loops, exactly, and tests the softmax passes. Compiled for each element
 * type. */
#include "products.h"

#include <math.h>
#include <stdlib.h>

#include "tap.h"

#define MOST 100
#define LD (MOST + 3)

/* products.c with the longest vectors but base instructions. It tests that code
 * on machines without the instruction set. */
extern const struct pp_products PP_KERNEL(products_wide);

static const size_t sizes[] = {1,  2,  5,  6,  7,  8,  12, 13,
                               15, 16, 17, 31, 33, 64, 81, MOST};
#define N_SIZES (sizeof sizes / sizeof *sizes)

struct matrices {
    real a[MOST * LD], b[MOST * LD], c[(MOST + 1) * LD], want[(MOST + 1) * LD];
};

/* Fills rows by columns with small integers, and the rest with NaN. */
static void fill_matrix(real *x, size_t rows, size_t columns, unsigned seed)
{
    for (size_t i = 0; i < MOST * LD; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = i / LD < rows && i % LD < columns ? (real)(seed >> 28) - 8
                                                 : (real)NAN;
    }
}

/* Fills c and want with 5, and then the written part of want with the sums. */
static void expect(struct matrices *m, size_t M, size_t N, size_t K, bool t,
                   bool add)
{
    for (size_t i = 0; i < (MOST + 1) * LD; i++)
        m->c[i] = m->want[i] = 5;
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            real sum = add ? 5 : 0;
            for (size_t k = 0; k < K; k++)
                sum += m->a[t ? k * LD + i : i * LD + k] * m->b[k * LD + j];
            m->want[i * LD + j] = sum;
        }
}

static bool product_right(const struct pp_products *p, struct matrices *m,
                          size_t M, size_t N, size_t K)
{
    for (int i = 0; i < 4; i++) {
        bool t = i % 2, add = i / 2;
        fill_matrix(m->a, t ? K : M, t ? M : K, 1);
        fill_matrix(m->b, K, N, 2);
        expect(m, M, N, K, t, add);
        (t ? p->tn : p->nn)(M, N, K, m->a, LD, m->b, LD, add, m->c, LD);
        for (size_t j = 0; j < (MOST + 1) * LD; j++)
            if (!(fabs((double)(m->c[j] - m->want[j])) < 0.5)) {
                printf("# %s %zux%zux%zu%s%s: [%zu, %zu] is %g, not %g\n",
                       p->name, M, N, K, t ? " tn" : "", add ? " add" : "",
                       j / LD, j % LD, (double)m->c[j], (double)m->want[j]);
                return false;
            }
    }
    return true;
}

static void products_right(const struct pp_products *p, struct matrices *m)
{
    bool right = true;
    for (size_t i = 0; right && i < N_SIZES; i++)
        for (size_t j = 0; right && j < N_SIZES; j++)
            for (size_t k = 0; right && k < N_SIZES; k += 3)
                right = product_right(p, m, sizes[i], sizes[j], sizes[k]);
    ok(right, "%s: products of integers", p->name);
    ok(product_right(p, m, 7, 9, 0), "%s: of nothing", p->name);
}

/* Tests that an element has the bits of the product of its row and column
 * alone. */
static void position_has_no_effect(const struct pp_products *p,
                                   struct matrices *m)
{
    size_t M = 20, N = 77, K = MOST;
    bool same = true;
    for (size_t i = 0; i < MOST * LD; i++) {
        m->a[i] = (real)sin((double)i);
        m->b[i] = (real)cos((double)i);
    }
    p->nn(M, N, K, m->a, LD, m->b, LD, false, m->c, LD);
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            real alone;
            p->nn(1, 1, K, m->a + i * LD, LD, m->b + j, LD, false, &alone, 1);
            same = same && memcmp(&alone, &m->c[i * LD + j], sizeof alone) == 0;
        }
    ok(same, "%s: an element's bits are the same at any place", p->name);
}

static void largest(const struct pp_products *p)
{
    bool right = true;
    for (size_t n = 1; n <= MOST; n++)
        for (size_t at = 0; at < n; at++) {
            real x[MOST];
            for (size_t i = 0; i < n; i++)
                x[i] = -3 - (real)(i * 7 % 11);
            x[at] = -2;
            right = right && fabs((double)p->max(x, n) + 2) < 1e-9;
        }
    ok(right, "%s: the largest, wherever it is", p->name);
}

static void exponentials(const struct pp_products *p)
{
    const double unit = sizeof(real) == sizeof(float) ? 6e-8 : 1.2e-16;
    double worst = 0, worst_sum = 0;
    for (size_t n = 1; n <= MOST; n++) {
        real x[MOST + 1], was[MOST];
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            x[i] = was[i] = (real)(-0.83 * (double)(i * i % 101) + 1.5);
        x[n] = 5;
        real got = p->exp(x, n, (real)1.5);
        for (size_t i = 0; i < n; i++) {
            double want = exp((double)(was[i] - (real)1.5));
            worst = fmax(worst, fabs((double)x[i] - want) / want);
            sum += want;
        }
        worst_sum = fmax(worst_sum, fabs((double)got - sum) / sum);
        if (fabs((double)x[n] - 5) > 0)
            worst = INFINITY;
    }
    ok(worst < 4 * unit, "%s: exp is off by %.2g", p->name, worst);
    ok(worst_sum < 10 * unit, "%s: its sum is off by %.2g", p->name, worst_sum);
    real ends[] = {0, -200, -(real)INFINITY, (real)NAN};
    p->exp(ends, 4, 0);
    ok(fabs((double)ends[0] - 1) <= 0 && ends[1] >= 0 && ends[1] < 1.7e-38f &&
           ends[2] >= 0 && ends[2] < 1.7e-38f && isnan(ends[3]),
       "%s: exp of 0, of what vanishes, of no number", p->name);
}

static void check(const struct pp_products *p, struct matrices *m)
{
    products_right(p, m);
    position_has_no_effect(p, m);
    largest(p);
    exponentials(p);
}

int main(void)
{
    struct matrices *m = malloc(sizeof *m);
    if (!m)
        abort();
    for (size_t i = 0; products_at(i); i++)
        check(products_at(i), m);
    check(&PP_KERNEL(products_wide), m);
    free(m);
    return done();
}
