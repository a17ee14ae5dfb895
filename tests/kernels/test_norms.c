/* SPDX-License-Identifier: MIT */
/* test_norms - tests rmsnorm, layernorm, swiglu, gelu, exp and the rotary
 * tables against simple loops and finite differences in fp64, and fp32 against
 * fp64.
 */
#define PP_REAL_F32
#include "real.h"
#include "run/parts/layer.h"
#include "values.h"

static const struct pp_kernels *const tables[] = {&pp_kernels_f32,
                                                  &pp_kernels_f64};
static const size_t sizes[] = {1, 3, 17, 64, 65, 1000};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static double bound(const struct pp_kernels *k)
{
    return k->element_bytes == 8 ? 1e-14 : 2e-6;
}

/* Tests that ranks which divide a group compute the whole group's y and dx from
 * their sums. Each has C columns. */
static void test_divided(const struct pp_kernels *k, size_t ranks, size_t C)
{
    const size_t N = 3, W = ranks * C;
    const double eps = 1e-3, shift = 1;
    size_t e = k->element_bytes, s = k->accumulator_bytes;
    struct values x = values_new(k, N * W, 1), dy = values_new(k, N * W, 1);
    struct values w = values_new(k, W, 1), dx = values_new(k, N * W, 0);
    struct values y = values_new(k, N * W, 0),
                  sums = values_new(k, ranks * N, 0);
    struct values want_y = values_new(k, N * W, 0), rstd = values_new(k, N, 0);
    struct values want_dx = values_new(k, N * W, 0);
    struct values want_rstd = values_new(k, N, 0);
    struct values *all[] = {&x,    &dy,     &w,    &dx,      &y,
                            &sums, &want_y, &rstd, &want_dx, &want_rstd};
    const struct pp_norm_sums of = {sums.at, ranks, N, W};
    fill_normal(&x, "x", 1);
    fill_normal(&w, "w", 1);
    fill_normal(&dy, "dy", 1);
    bool fine =
        !k->rmsnorm_fwd(want_y.at, want_rstd.at, x.at, w.at, NULL, N, 1, W, W,
                        1, W, shift, eps, NULL, NULL) &&
        !k->rmsnorm_bwd_input(want_dx.at, dy.at, x.at, want_rstd.at, w.at, NULL,
                              N, 1, W, W, W, W, 1, shift, NULL, NULL);
    for (size_t backward = 0; backward < 2; backward++) {
        for (size_t r = 0; r < ranks; r++) {
            const char *a = (char *)(backward ? dy.at : x.at) + r * C * e;
            const char *by = backward ? (char *)w.at + r * C * e : NULL;
            fine = fine && !k->rmsnorm_sums((char *)sums.at + r * N * s, a,
                                            (char *)x.at + r * C * e, by, N, 1,
                                            C, W, W, shift, NULL);
        }
        for (size_t r = 0; r < ranks; r++) {
            size_t at = r * C * e;
            const char *in = (char *)x.at + at, *by = (char *)w.at + at;
            fine =
                fine && !(backward ? k->rmsnorm_bwd_input(
                                         (char *)dx.at + at, (char *)dy.at + at,
                                         in, rstd.at, by, NULL, N, 1, C, W, W,
                                         W, 1, shift, &of, NULL)
                                   : k->rmsnorm_fwd((char *)y.at + at, rstd.at,
                                                    in, by, NULL, N, 1, C, W, 1,
                                                    W, shift, eps, &of, NULL));
        }
    }
    ok(fine && values_near(&y, &want_y, bound(k), 1, "y") &&
           values_near(&rstd, &want_rstd, bound(k), 1, "rstd") &&
           values_near(&dx, &want_dx, bound(k), 1, "dx"),
       "%s rmsnorm of %zu that %zu ranks divide", k->name, W, ranks);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* Tests rows of G groups, with gaps between rows and y in place of x. */
static void test_rmsnorm(const struct pp_kernels *k, size_t G, size_t C,
                         double shift)
{
    const size_t N = 3, ld = G * C + 2, ldr = G + 1;
    const double eps = 1e-3;
    struct values x = values_new(k, N * ld, 1), y = values_new(k, N * ld, 0);
    struct values w = values_new(k, C, 0), rstd = values_new(k, N * ldr, 0);
    struct values dx = values_new(k, N * ld, 0), dw = values_new(k, C, 0);
    struct values want_y = values_new(k, N * ld, 0);
    struct values want_dx = values_new(k, N * ld, 0);
    struct values want_dw = values_new(k, C, 0), dy = values_new(k, N * ld, 0);
    struct values *all[] = {&x,  &y,  &w,      &rstd,    &dx,
                            &dw, &dy, &want_y, &want_dx, &want_dw};
    struct values *kept[] = {&y, &dx, &want_y, &want_dx};
    fill_normal(&x, "x", 1);
    fill_normal(&w, "w", 1);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < 4; i++)
        fill(kept[i], 9);
    fill(&dw, 2);
    fill(&want_dw, 2);
    for (size_t row = 0; row < N * G; row++) {
        size_t at = row / G * ld + row % G * C;
        double squares = 0, mean = 0;
        for (size_t i = 0; i < C; i++)
            squares += get(&x, at + i) * get(&x, at + i);
        double r = 1 / sqrt(squares / (double)C + eps);
        for (size_t i = 0; i < C; i++)
            mean += get(&dy, at + i) * (shift + get(&w, i)) * get(&x, at + i) *
                    r / (double)C;
        for (size_t i = 0; i < C; i++) {
            double hat = get(&x, at + i) * r, d = get(&dy, at + i);
            set(&want_y, at + i, hat * (shift + get(&w, i)));
            set(&want_dx, at + i, r * (d * (shift + get(&w, i)) - hat * mean));
            set(&want_dw, i, get(&want_dw, i) + d * hat);
        }
    }
    bool fine =
        !k->rmsnorm_fwd(y.at, rstd.at, x.at, w.at, NULL, N, G, C, ld, ldr, ld,
                        shift, eps, NULL, NULL) &&
        !k->rmsnorm_bwd_input(dx.at, dy.at, x.at, rstd.at, w.at, NULL, N, G, C,
                              ld, ld, ld, ldr, shift, NULL, NULL) &&
        !k->rmsnorm_bwd_weight(dw.at, dy.at, x.at, rstd.at, N, G, C, ld, ld,
                               ldr, NULL);
    ok((values_near(&y, &want_y, bound(k), 1, "y") &&
        values_near(&dx, &want_dx, bound(k), 1, "dx") &&
        values_near(&dw, &want_dw, bound(k), 1, "dw")) &&
           fine && guard_whole(&y) && guard_whole(&dx) && guard_whole(&rstd),
       "%s rmsnorm of %zu groups of %zu, shift %g", k->name, G, C, shift);
    /* A residual is added as by the kernel of elementwise. */
    struct values sum = values_new(k, N * ld, 0),
                  apart = values_new(k, N * ld, 0);
    fine = !k->add(apart.at, dx.at, x.at, N * ld, NULL) &&
           !k->rmsnorm_bwd_input(sum.at, dy.at, x.at, rstd.at, w.at, x.at, N, G,
                                 C, ld, ld, ld, ldr, shift, NULL, NULL);
    for (size_t i = 0; i < sum.n; i++)
        fine = fine && (i % ld >= G * C || get(&sum, i) == get(&apart, i));
    ok(fine, "%s rmsnorm gradient plus a residual", k->name);
    fine = !k->add(apart.at, y.at, dy.at, N * ld, NULL) &&
           !k->rmsnorm_fwd(sum.at, rstd.at, x.at, w.at, dy.at, N, G, C, ld, ldr,
                           ld, shift, eps, NULL, NULL);
    for (size_t i = 0; i < sum.n; i++)
        fine = fine && (i % ld >= G * C || get(&sum, i) == get(&apart, i));
    ok(fine, "%s rmsnorm plus a residual", k->name);
    values_free(&sum);
    values_free(&apart);
    fine = !k->rmsnorm_bwd_input(dy.at, dy.at, x.at, rstd.at, w.at, NULL, N, G,
                                 C, ld, ld, ld, ldr, shift, NULL, NULL) &&
           !k->rmsnorm_fwd(x.at, rstd.at, x.at, w.at, NULL, N, G, C, ld, ldr,
                           ld, shift, eps, NULL, NULL);
    for (size_t i = 0; i < x.n; i++)
        fine = fine && (i % ld >= G * C || (get(&x, i) == get(&y, i) &&
                                            get(&dy, i) == get(&dx, i)));
    ok(fine, "%s rmsnorm in place", k->name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* Tests rows of mean 3, whose sum of squares is no variance. */
/* n_params: none, a weight, or a bias, too. */
static void test_layernorm(const struct pp_kernels *k, size_t C, int n_params)
{
    const size_t N = 3;
    const double eps = 1e-3;
    struct values x = values_new(k, N * C, 1), y = values_new(k, N * C, 0);
    struct values w = values_new(k, C, 0), b = values_new(k, C, 0);
    struct values mean = values_new(k, N, 0), rstd = values_new(k, N, 0);
    struct values dy = values_new(k, N * C, 0), dx = values_new(k, N * C, 0);
    struct values dw = values_new(k, C, 0), db = values_new(k, C, 0);
    struct values want_y = values_new(k, N * C, 0);
    struct values want_dx = values_new(k, N * C, 0);
    struct values want_dw = values_new(k, C, 0), want_db = values_new(k, C, 0);
    struct values *all[] = {&x,      &y,       &w,       &b,      &mean,
                            &rstd,   &dy,      &dx,      &dw,     &db,
                            &want_y, &want_dx, &want_dw, &want_db};
    fill_normal(&x, "x", 1);
    fill_normal(&w, "w", 1);
    fill_normal(&b, "b", 1);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < C; i++) {
        if (n_params < 1)
            set(&w, i, 1);
        if (n_params < 2)
            set(&b, i, 0);
    }
    fill(&dw, 2);
    fill(&want_dw, 2);
    fill(&db, 3);
    fill(&want_db, 3);
    for (size_t t = 0; t < N; t++) {
        double m = 0, squares = 0, sum = 0, normed = 0, n = (double)C;
        for (size_t i = t * C; i < t * C + C; i++) {
            set(&x, i, get(&x, i) + 3);
            m += get(&x, i) / n;
        }
        for (size_t i = t * C; i < t * C + C; i++)
            squares += (get(&x, i) - m) * (get(&x, i) - m);
        double r = 1 / sqrt(squares / n + eps);
        for (size_t i = 0; i < C; i++) {
            double hat = (get(&x, t * C + i) - m) * r, d = get(&dy, t * C + i);
            sum += d * get(&w, i) / n;
            normed += d * get(&w, i) * hat / n;
            set(&want_y, t * C + i, hat * get(&w, i) + get(&b, i));
            set(&want_dw, i, get(&want_dw, i) + d * hat);
            set(&want_db, i, get(&want_db, i) + d);
        }
        for (size_t i = 0; i < C; i++)
            set(&want_dx, t * C + i,
                r * (get(&dy, t * C + i) * get(&w, i) - sum -
                     (get(&x, t * C + i) - m) * r * normed));
    }
    const void *by = n_params < 1 ? NULL : w.at;
    const void *shift = n_params < 2 ? NULL : b.at;
    bool fine = !k->layernorm_fwd(y.at, mean.at, rstd.at, x.at, by, shift, NULL,
                                  N, C, eps, NULL) &&
                !k->layernorm_bwd_input(dx.at, dy.at, x.at, mean.at, rstd.at,
                                        by, NULL, N, C, NULL) &&
                !k->layernorm_bwd_weight(dw.at, db.at, dy.at, x.at, mean.at,
                                         rstd.at, N, C, NULL);
    /* eps is most of a small variance: 1 / sqrt(eps) is 32. */
    double more = C == 1 ? 100 : 10;
    ok((values_near(&y, &want_y, more * bound(k), 1, "y") &&
        values_near(&dx, &want_dx, more * bound(k), 1, "dx") &&
        values_near(&dw, &want_dw, more * bound(k), 1, "dw") &&
        values_near(&db, &want_db, bound(k), 1, "db")) &&
           fine && guard_whole(&y) && guard_whole(&dx) && guard_whole(&mean) &&
           guard_whole(&rstd) && guard_whole(&dw) && guard_whole(&db),
       "%s layernorm of %zu with %d parameters", k->name, C, n_params);
    struct values sum = values_new(k, N * C, 0),
                  apart = values_new(k, N * C, 0);
    fine = !k->add(apart.at, dx.at, x.at, N * C, NULL) &&
           !k->layernorm_bwd_input(sum.at, dy.at, x.at, mean.at, rstd.at, by,
                                   x.at, N, C, NULL);
    ok(fine && same_bits(&sum, &apart), "%s layernorm gradient plus a residual",
       k->name);
    fine = !k->add(apart.at, y.at, dy.at, N * C, NULL) &&
           !k->layernorm_fwd(sum.at, mean.at, rstd.at, x.at, by, shift, dy.at,
                             N, C, eps, NULL);
    ok(fine && same_bits(&sum, &apart), "%s layernorm plus a residual",
       k->name);
    values_free(&sum);
    values_free(&apart);
    fine = !k->layernorm_bwd_input(dy.at, dy.at, x.at, mean.at, rstd.at, by,
                                   NULL, N, C, NULL) &&
           same_bits(&dy, &dx);
    ok(fine, "%s layernorm gradient in place", k->name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* The formulas of kernels.h. */
static double gelu(double x, enum pp_gelu form)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    if (form == PP_GELU_SIGMOID)
        return x / (1 + exp(-1.702 * x));
    if (form == PP_RELU_SQUARED)
        return x > 0 ? x * x : 0;
    return 0.5 * x * (1 + (form == PP_GELU_ERF ? erf(x / sqrt(2)) : tanh(u)));
}

static void test_gelu(const struct pp_kernels *k, size_t n, enum pp_gelu form)
{
    static const char *const words[] = {"tanh", "erf", "sigmoid",
                                        "relu squared"};
    struct values x = values_new(k, n, 1), y = values_new(k, n, 0);
    struct values dy = values_new(k, n, 0), dx = values_new(k, n, 0);
    struct values want_y = values_new(k, n, 0), want = values_new(k, n, 0);
    struct values *all[] = {&x, &y, &dy, &dx, &want_y, &want};
    const double h = 1e-5;
    fill_normal(&x, "x", 4);
    fill_normal(&dy, "dy", 1);
    set(&x, 0, -200); /* both exps end there */
    for (size_t i = 0; i < n; i++) {
        double a = get(&x, i);
        set(&want_y, i, gelu(a, form));
        set(&want, i,
            get(&dy, i) * (gelu(a + h, form) - gelu(a - h, form)) / (2 * h));
    }
    bool fine = !k->gelu_fwd(y.at, x.at, n, form, NULL) &&
                !k->gelu_bwd(dx.at, dy.at, x.at, n, form, NULL);
    ok(values_near(&y, &want_y, bound(k), 1, "y") && fine && guard_whole(&y),
       "%s gelu forward of %zu by %s", k->name, n, words[form]);
    ok(values_near(&dx, &want, k->element_bytes == 8 ? 1e-9 : 2e-6, 1, "dx") &&
           guard_whole(&dx) &&
           !k->gelu_bwd(dy.at, dy.at, x.at, n, form, NULL) &&
           same_bits(&dy, &dx),
       "%s gelu backward of %zu by %s", k->name, n, words[form]);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* Gates that lie in rows of more elements. */
static void test_gate(const struct pp_kernels *k, size_t C)
{
    const size_t N = 3, ld = C + 2;
    struct values x = values_new(k, N * C, 1), g = values_new(k, N * ld, 2);
    struct values y = values_new(k, N * C, 0), dy = values_new(k, N * C, 0);
    struct values dx = values_new(k, N * C, 0), dg = values_new(k, N * ld, 0);
    struct values want_y = values_new(k, N * C, 0);
    struct values want_dx = values_new(k, N * C, 0);
    struct values want_dg = values_new(k, N * ld, 0);
    struct values *all[] = {&x,  &g,      &y,       &dy,     &dx,
                            &dg, &want_y, &want_dx, &want_dg};
    fill_normal(&x, "x", 1);
    fill_normal(&g, "g", 2);
    fill(&dg, 2); /* also between the rows */
    fill(&want_dg, 2);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < N * C; i++) {
        size_t at = i / C * ld + i % C;
        double s = 1 / (1 + exp(-get(&g, at))), d = get(&dy, i);
        set(&want_y, i, get(&x, i) * s);
        set(&want_dx, i, d * s);
        set(&want_dg, at, d * get(&x, i) * s * (1 - s));
    }
    bool fine = !k->sigmoid_gate_fwd(y.at, x.at, g.at, N, C, ld, NULL) &&
                !k->sigmoid_gate_fwd(dx.at, dy.at, g.at, N, C, ld, NULL) &&
                !k->sigmoid_gate_bwd(dg.at, dx.at, x.at, g.at, N, C, ld, NULL);
    ok(fine && values_near(&y, &want_y, bound(k), 1, "y") &&
           values_near(&dx, &want_dx, bound(k), 1, "dx") &&
           values_near(&dg, &want_dg, bound(k), 1, "dg") && guard_whole(&y) &&
           guard_whole(&dx) && guard_whole(&dg),
       "%s gate of %zu", k->name, C);
    fine = !k->sigmoid_gate_fwd(dy.at, dy.at, g.at, N, C, ld, NULL) &&
           same_bits(&dy, &dx);
    ok(fine, "%s gate in place", k->name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* The formula of kernels.h. */
static double xielu(double x, const double w[4])
{
    double low = x < w[3] ? x : w[3];
    double a = log(1 + exp(w[0])), b = w[2] + log(1 + exp(w[1]));
    return (x > 0 ? a * x * x : b * (exp(low) - 1 - x)) + w[2] * x;
}

/* Returns the difference quotient of xielu by x, or by p or n. */
static double xielu_slope(double x, const double w[4], int of)
{
    const double h = 1e-5;
    double a[4], b[4];
    memcpy(a, w, sizeof a);
    memcpy(b, w, sizeof b);
    if (of >= 0) {
        a[of] += h;
        b[of] -= h;
    }
    return (xielu(x + (of < 0) * h, a) - xielu(x - (of < 0) * h, b)) / (2 * h);
}

/* eps is far below 0 here, so that elements between it and 0 matter. */
static void test_xielu(const struct pp_kernels *k, size_t C)
{
    const size_t N = 3;
    const double w[] = {0.3, -1.1, 0.7, -0.125};
    struct values by = values_new(k, 4, 1);
    struct values x = values_new(k, N * C, 1), y = values_new(k, N * C, 0);
    struct values dy = values_new(k, N * C, 0), dx = values_new(k, N * C, 0);
    struct values sums = values_new(k, 2 * N, 0);
    struct values want_y = values_new(k, N * C, 0);
    struct values want_dx = values_new(k, N * C, 0);
    struct values want_sums = values_new(k, 2 * N, 0);
    struct values *all[] = {&by,   &x,      &y,       &dy,       &dx,
                            &sums, &want_y, &want_dx, &want_sums};
    double wide[4];
    fill_normal(&x, "x", 4);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < 4; i++) {
        set(&by, i, w[i]);
        wide[i] = get(&by, i);
    }
    set(&x, 0, -200);
    for (size_t t = 0; t < N; t++) {
        double of[2] = {0, 0};
        for (size_t i = t * C; i < (t + 1) * C; i++) {
            double a = get(&x, i), d = get(&dy, i);
            set(&want_y, i, xielu(a, wide));
            set(&want_dx, i, d * xielu_slope(a, wide, -1));
            for (int j = 0; j < 2; j++)
                of[j] += d * xielu_slope(a, wide, j);
        }
        set(&want_sums, t, of[0]);
        set(&want_sums, N + t, of[1]);
    }
    const char *at = by.at;
    size_t e = k->element_bytes;
    const struct pp_xielu p = {at, at + e, at + 2 * e, at + 3 * e};
    bool fine = !k->xielu_fwd(y.at, x.at, N, C, &p, NULL) &&
                !k->xielu_bwd(dx.at, sums.at, dy.at, x.at, N, C, &p, NULL);
    double near = e == 8 ? 1e-8 : 4e-6;
    ok(fine && values_near(&y, &want_y, bound(k), 1, "y") && guard_whole(&y),
       "%s xielu forward of %zu", k->name, C);
    ok(values_near(&dx, &want_dx, near, 1, "dx") && guard_whole(&dx) &&
           values_near(&sums, &want_sums, near, 1, "sums") &&
           guard_whole(&sums) &&
           !k->xielu_bwd(dy.at, sums.at, dy.at, x.at, N, C, &p, NULL) &&
           same_bits(&dy, &dx),
       "%s xielu backward of %zu", k->name, C);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* Finds the largest error of the form by erf in fp32, relative to the value, or
 * to 1e-3 where that is more. */
static void test_exact_gelu(void)
{
    double worst = 0, where = 0;
    for (int i = -120000; i <= 120000; i++) {
        float x = (float)i * 1e-4f, y;
        pp_kernels_f32.gelu_fwd(&y, &x, 1, PP_GELU_ERF, NULL);
        double want = 0.5 * (double)x * erfc(-(double)x / sqrt(2));
        double off = fabs((double)y - want) / fmax(1e-3, fabs(want));
        if (off > worst) {
            worst = off;
            where = (double)x;
        }
    }
    ok(worst < 1e-6, "exact gelu within 1e-6 (worst %.2g at %g)", worst, where);
}

static double gated(double g, bool by_gelu)
{
    return by_gelu ? gelu(g, PP_GELU_TANH) : g / (1 + exp(-g));
}

/* Tests swiglu, or geglu. */
static void test_gated(const struct pp_kernels *k, size_t C, bool by_gelu)
{
    const size_t N = 3;
    struct values gu = values_new(k, N * 2 * C, 1), y = values_new(k, N * C, 0);
    struct values dgu = values_new(k, gu.n, 0), dy = values_new(k, N * C, 0);
    struct values want = values_new(k, gu.n, 0), wy = values_new(k, y.n, 0);
    fill_normal(&gu, "gu", 4);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < N * C; i++) {
        size_t at = i / C * 2 * C + i % C;
        double g = get(&gu, at), u = get(&gu, at + C), h = 1e-5;
        set(&wy, i, gated(g, by_gelu) * u);
        set(&want, at,
            get(&dy, i) * u * (gated(g + h, by_gelu) - gated(g - h, by_gelu)) /
                (2 * h));
        set(&want, at + C, get(&dy, i) * gated(g, by_gelu));
    }
    bool fine =
        !(by_gelu ? k->geglu_fwd : k->swiglu_fwd)(y.at, gu.at, N, C, NULL) &&
        !(by_gelu ? k->geglu_bwd : k->swiglu_bwd)(dgu.at, dy.at, gu.at, N, C,
                                                  NULL);
    const char *name = by_gelu ? "geglu" : "swiglu";
    ok(values_near(&y, &wy, bound(k), 1, "y") && fine && guard_whole(&y),
       "%s %s forward of %zu", k->name, name, C);
    ok(values_near(&dgu, &want, k->element_bytes == 8 ? 1e-9 : 2e-6, 1,
                   "dgu") &&
           guard_whole(&dgu),
       "%s %s backward of %zu", k->name, name, C);
    struct values *all[] = {&gu, &y, &dgu, &dy, &want, &wy};
    for (size_t i = 0; i < 6; i++)
        values_free(all[i]);
}

static double ulps(float got, double want)
{
    int e;
    frexp(want, &e);
    double ulp = ldexp(1, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / ulp;
}

static void test_exp(void)
{
    double worst = 0;
    float where = 0;
    for (int i = -1040000; i <= 887000; i++) {
        float x = (float)i * 1e-4f + 3e-6f;
        double u = ulps(fast_expf(x), exp((double)x));
        if (u > worst) {
            worst = u;
            where = x;
        }
    }
    ok(worst < 2, "exp within 2 ulp (worst %.2f at %g)", worst, (double)where);
    ok(fast_expf(-INFINITY) == 0 && fast_expf(-200) == 0 &&
           isinf(fast_expf(INFINITY)) && isinf(fast_expf(90)) &&
           isnan(fast_expf(NAN)) && fast_expf(0) == 1,
       "exp at its ends");
}

static double table_frequency(const struct pp_model *m, size_t i)
{
    double c[8 * 4], s[8 * 4];
    pp_rope_tables(&m->rope, pp_model_rotary(m, false), 8, sizeof(double), c,
                   s);
    return atan2(s[4 + i], c[4 + i]); /* angle at position 1 */
}

/* Tests the wavelengths 6.3, 63, 628 and 6283 of theta 10^4 and width 8. The
 * middle one of llama3 is computed by hand: original 1000, low 1 and high 4, so
 * it is between 250 and 1000. */
static void test_rope_tables(void)
{
    struct pp_model m = {.head_dim = 8,
                         .rope = {.theta = 1e4, .attention_factor = 1}};
    double s = (1000 / (200 * M_PI) - 1) / 3;
    float cos_f[32], sin_f[32];
    is_near(table_frequency(&m, 3), 1e-3, 1e-15, "default frequency");
    m.rope.type = PP_ROPE_LINEAR;
    m.rope.factor = 4;
    is_near(table_frequency(&m, 0), 0.25, 1e-15, "linear frequency");
    m.rope.type = PP_ROPE_LLAMA3;
    m.rope.low_freq_factor = 1;
    m.rope.high_freq_factor = 4;
    m.rope.original_max_position = 1000;
    is_near(table_frequency(&m, 1), 0.1, 1e-15, "llama3: short wave");
    is_near(table_frequency(&m, 3), 0.25e-3, 1e-15, "llama3: long wave");
    is_near(table_frequency(&m, 2), (1 - s) * 0.25e-2 + s * 1e-2, 1e-15,
            "llama3: between");
    pp_rope_tables(&m.rope, pp_model_rotary(&m, false), 8, sizeof(float), cos_f,
                   sin_f);
    is_near((double)sin_f[5 * 4], sin(5.0), 1e-7, "fp32 table");
}

/* Frequencies of transformers 5.23 for theta 10^4 and width 32. */
static void test_yarn(void)
{
    static const double whole[] = {1, 0.5623413324356079, 0.2766992747783661,
                                   0.13337095081806183},
                        between[] = {1, 0.5623413324356079, 0.3162277638912201,
                                     0.1704140305519104};
    struct pp_model m = {.head_dim = 32,
                         .rope = {.type = PP_ROPE_YARN,
                                  .theta = 1e4,
                                  .factor = 8,
                                  .original_max_position = 512,
                                  .attention_factor = 1.25,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .truncate = true}};
    double c[2 * 16], s[2 * 16];
    pp_rope_tables(&m.rope, pp_model_rotary(&m, false), 2, sizeof(double), c,
                   s);
    is_near(c[0], 1.25, 1e-15, "yarn scales the attention");
    for (size_t i = 0; i < 4; i++)
        is_near(atan2(s[16 + i], c[16 + i]), whole[i], 1e-7,
                "yarn: a frequency");
    m.rope.truncate = false;
    m.rope.beta_fast = 16;
    m.rope.beta_slow = 2;
    pp_rope_tables(&m.rope, pp_model_rotary(&m, false), 2, sizeof(double), c,
                   s);
    for (size_t i = 0; i < 4; i++)
        is_near(atan2(s[16 + i], c[16 + i]), between[i], 1e-7,
                "yarn without truncation: a frequency");
}

int main(void)
{
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < N_SIZES; j++) {
            test_rmsnorm(tables[i], 1 + j % 3, sizes[j], 0);
            test_rmsnorm(tables[i], 1 + j % 3, sizes[j], 1);
            test_divided(tables[i], 1 + j % 4, sizes[j]);
            test_gated(tables[i], sizes[j], false);
            test_gated(tables[i], sizes[j], true);
            for (int n = 0; n <= 2; n++)
                test_layernorm(tables[i], sizes[j], n);
            test_gelu(tables[i], sizes[j], (enum pp_gelu)(j % 4));
            test_gate(tables[i], sizes[j]);
            test_xielu(tables[i], sizes[j]);
        }
        for (int form = PP_GELU_TANH; form <= PP_RELU_SQUARED; form++)
            test_gelu(tables[i], 700, (enum pp_gelu)form);
    }
    test_exp();
    test_exact_gelu();
    test_rope_tables();
    test_yarn();
    return done();
}
