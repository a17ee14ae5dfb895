/* SPDX-License-Identifier: MIT */
/* test_kernels - compares products, sums, gathers, rotations and optimizers
 * with simple loops in double, exactly if the data are integers. */
#include <math.h>

#include "kernel_sizes.h"
#include "values.h"

static const struct pp_kernels *const tables[] = {
    &pp_kernels_f32, &pp_kernels_f64, &pp_kernels_rows_f32,
    &pp_kernels_rows_f64};
enum { N_TABLES = sizeof tables / sizeof *tables };
static const size_t sizes[] = {1, 3, 17, 64, 65};
#define N_SIZES (sizeof sizes / sizeof *sizes)

/* Computes c += a b with simple loops; a (M, K) and b (K, N) have strides. */
static void multiply(struct values *c, const struct values *a,
                     const struct values *b, size_t M, size_t N, size_t K,
                     size_t a_row, size_t a_col, size_t b_row, size_t b_col,
                     size_t ldc)
{
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = get(c, i * ldc + j);
            for (size_t l = 0; l < K; l++)
                sum += get(a, i * a_row + l * a_col) *
                       get(b, l * b_row + j * b_col);
            set(c, i * ldc + j, sum);
        }
}

/* Compares on integers, for which every order of summation is exact. */
static bool linear_exact(const struct pp_kernels *k, size_t N, size_t C,
                         size_t OC, size_t gap)
{
    size_t ldx = C + gap, ldy = OC + gap;
    struct values x = values_new(k, N * ldx, 1), w = values_new(k, OC * C, 0);
    struct values b = values_new(k, OC, 0), dy = values_new(k, N * ldy, 0);
    struct values y = values_new(k, N * ldy, 0), dx = values_new(k, x.n, 0);
    struct values r = values_new(k, N * ldy, 0), rx = values_new(k, x.n, 0);
    struct values dw = values_new(k, w.n, 0), db = values_new(k, OC, 0);
    struct values *in[] = {&x, &w, &b, &dy, &dw, &db, &r, &rx};
    struct values want[4];
    const size_t n_in = sizeof in / sizeof *in;
    for (size_t i = 0; i < n_in; i++)
        fill_integers(in[i], &"xwbdyWBr"[i], 4);
    fill(&y, 9);
    fill(&dx, 9);
    struct values *out[] = {&y, &dx, &dw, &db};
    for (size_t i = 0; i < 4; i++) {
        want[i] = values_new(k, out[i]->n, 0);
        memcpy(want[i].at, out[i]->at, out[i]->n * out[i]->bytes);
    }
    for (size_t t = 0; t < N; t++) {
        for (size_t j = 0; j < OC; j++)
            set(&want[0], t * ldy + j, 2 * get(&b, j) + get(&r, t * ldy + j));
        for (size_t j = 0; j < C; j++)
            set(&want[1], t * ldx + j, get(&rx, t * ldx + j));
        for (size_t j = 0; j < OC; j++)
            set(&want[3], j, get(&want[3], j) + get(&dy, t * ldy + j));
    }
    for (int i = 0; i < 2; i++) { /* added to another array, then in place */
        multiply(&want[0], &x, &w, N, OC, C, ldx, 1, 1, C, ldy);
        multiply(&want[1], &dy, &w, N, C, OC, ldy, 1, C, 1, ldx);
    }
    multiply(&want[2], &dy, &x, OC, C, N, 1, ldy, ldx, 1, C);
    bool same = !k->linear_fwd(y.at, x.at, w.at, b.at, r.at, N, C, OC, ldy, ldx,
                               NULL) &&
                !k->linear_fwd(y.at, x.at, w.at, b.at, y.at, N, C, OC, ldy, ldx,
                               NULL) &&
                !k->linear_bwd_input(dx.at, dy.at, w.at, rx.at, N, C, OC, ldx,
                                     ldy, NULL) &&
                !k->linear_bwd_input(dx.at, dy.at, w.at, dx.at, N, C, OC, ldx,
                                     ldy, NULL) &&
                !k->linear_bwd_weight(dw.at, db.at, dy.at, x.at, N, C, OC, ldy,
                                      ldx, false, NULL);
    const char *const names[] = {"y", "dx", "dw", "db"};
    for (size_t i = 0; i < 4; i++) {
        same = values_near(out[i], &want[i], 0, 1, names[i]) && same &&
               guard_whole(out[i]);
        values_free(&want[i]);
    }
    for (size_t i = 0; i < n_in; i++)
        values_free(in[i]);
    values_free(&y);
    values_free(&dx);
    return same;
}

static void test_linear(const struct pp_kernels *k)
{
    for (size_t n = 0; n < N_SIZES; n++)
        for (size_t c = 0; c < N_SIZES; c++) {
            size_t oc = sizes[(n + c + 1) % N_SIZES];
            ok(linear_exact(k, sizes[n], sizes[c], oc, 0) &&
                   linear_exact(k, sizes[n], sizes[c], oc, 5),
               "%s linear (%zu, %zu) to %zu", k->name, sizes[n], sizes[c], oc);
        }
    ok(linear_exact(k, 0, 3, 4, 0), "%s linear without rows", k->name);
}

static bool equal_rows(const struct values *a, size_t at,
                       const struct values *b, size_t n)
{
    return !memcmp((char *)a->at + at * a->bytes, b->at, n * b->bytes);
}

/* Compares rows first .. first + n - 1 of whole products (y and dx) with the
 * products of these rows alone. */
static bool rows_alone(const struct pp_kernels *k, const struct values whole[4],
                       const struct values *w, size_t first, size_t n, size_t C,
                       size_t OC)
{
    struct values y = values_new(k, n * OC, 1), dx = values_new(k, n * C, 0);
    const char *x = (char *)whole[0].at + first * C * y.bytes;
    const char *dy = (char *)whole[1].at + first * OC * y.bytes;
    bool same =
        !k->linear_fwd(y.at, x, w->at, NULL, NULL, n, C, OC, OC, C, NULL) &&
        !k->linear_bwd_input(dx.at, dy, w->at, NULL, n, C, OC, C, OC, NULL) &&
        equal_rows(&whole[2], first * OC, &y, n * OC) &&
        equal_rows(&whole[3], first * C, &dx, n * C);
    values_free(&y);
    values_free(&dx);
    return same;
}

/* Tests that a row of a product has the same bits alone, in another place and
 * beside other rows. The sizes are larger than the parts of linear_rows.c. */
static void test_rows(const struct pp_kernels *k)
{
    const size_t N = 401, C = 300, OC = 131;
    struct values whole[4] = {values_new(k, N * C, 0), values_new(k, N * OC, 0),
                              values_new(k, N * OC, 0),
                              values_new(k, N * C, 0)};
    struct values w = values_new(k, OC * C, 0);
    size_t same = 0, n_parts = 0;
    fill_normal(&whole[0], "x", 1);
    fill_normal(&whole[1], "dy", 1);
    fill_normal(&w, "w", 1);
    ok(linear_exact(k, N, C, OC, 3), "%s linear of several parts", k->name);
    k->linear_fwd(whole[2].at, whole[0].at, w.at, NULL, NULL, N, C, OC, OC, C,
                  NULL);
    k->linear_bwd_input(whole[3].at, whole[1].at, w.at, NULL, N, C, OC, C, OC,
                        NULL);
    for (size_t n = 1; n <= N; n = 2 * n + 1)
        for (size_t first = 0; first + n <= N; first += n + 7) {
            n_parts++;
            same += rows_alone(k, whole, &w, first, n, C, OC);
        }
    ok(same == n_parts && n_parts > 100,
       "%s: %zu of %zu parts of the rows have the bits of the whole", k->name,
       same, n_parts);
    for (size_t i = 0; i < 4; i++)
        values_free(&whole[i]);
    values_free(&w);
}

static void test_embedding(const struct pp_kernels *k)
{
    const int32_t ids[] = {3, -1, 0, 3, 2, 3};
    const size_t N = 6, C = 17, V = 4;
    struct values w = values_new(k, V * C, 0), y = values_new(k, N * C, 0);
    struct values dw = values_new(k, V * C, 0), want = values_new(k, V * C, 0);
    bool same = true;
    fill_integers(&w, "w", 9);
    same = !k->embedding_fwd(y.at, ids, w.at, N, C, NULL);
    for (size_t i = 0; i < N * C; i++)
        same =
            same &&
            get(&y, i) ==
                (ids[i / C] < 0 ? 0 : get(&w, (size_t)ids[i / C] * C + i % C));
    ok(same && guard_whole(&y), "%s embedding forward", k->name);
    fill(&y, 5);
    same = !k->embedding_add(y.at, ids, w.at, N, C, NULL);
    for (size_t i = 0; i < N * C; i++)
        same = same && get(&y, i) ==
                           5 + (ids[i / C] < 0
                                    ? 0
                                    : get(&w, (size_t)ids[i / C] * C + i % C));
    ok(same && guard_whole(&y), "%s embedding added", k->name);
    fill_integers(&y, "dy", 9);
    fill(&dw, 2);
    fill(&want, 2);
    for (size_t i = 0; i < N * C; i++)
        if (ids[i / C] >= 0) {
            size_t at = (size_t)ids[i / C] * C + i % C;
            set(&want, at, get(&want, at) + get(&y, i));
        }
    same = !k->embedding_bwd_weight(dw.at, y.at, ids, N, C, NULL);
    ok(same && same_bits(&dw, &want), "%s embedding backward", k->name);
    struct values *all[] = {&w, &y, &dw, &want};
    for (size_t i = 0; i < 4; i++)
        values_free(all[i]);
}

static void test_elementwise(const struct pp_kernels *k)
{
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t n = sizes[i] * 61;
        struct values a = values_new(k, n, 1), b = values_new(k, n, 0);
        fill_integers(&a, "a", 9);
        fill_integers(&b, "b", 9);
        double sum = 0, got = 0;
        bool same = true;
        for (size_t j = 0; j < n; j++)
            sum += get(&a, j) * get(&a, j);
        same = !k->sum_squares(&got, a.at, n, NULL) && got == sum;
        ok(same, "%s sum of %zu squares", k->name, n);
        struct values was = values_new(k, n, 0);
        memcpy(was.at, b.at, n * b.bytes);
        same = !k->add(b.at, a.at, b.at, n, NULL);
        for (size_t j = 0; j < n; j++)
            same = same && get(&b, j) == get(&a, j) + get(&was, j);
        ok(same && guard_whole(&b), "%s add in place, %zu", k->name, n);
        fill(&b, 9);
        size_t C = sizes[i];
        same = !k->copy(b.at, a.at, 30, C, C + 1, C, NULL);
        for (size_t j = 0; j < 30 * (C + 1); j++)
            same = same &&
                   get(&b, j) == (j % (C + 1) < C
                                      ? get(&a, j / (C + 1) * C + j % (C + 1))
                                      : 9);
        ok(same, "%s copy with strides, width %zu", k->name, C);
        same = !k->scale_by(b.at, 0.5, 30, C, C + 1, NULL);
        for (size_t j = 0; j + 1 < n; j++)
            same =
                same && get(&b, j) ==
                            (j % (C + 1) < C && j < 30 * (C + 1)
                                 ? 0.5 * get(&a, j / (C + 1) * C + j % (C + 1))
                                 : 9);
        ok(same, "%s scale_by", k->name);
        same = !k->zero(b.at, n - 1, NULL);
        for (size_t j = 0; j + 1 < n; j++)
            same = same && get(&b, j) == 0;
        ok(same && get(&b, n - 1) != 0, "%s zero", k->name);
        values_free(&a);
        values_free(&b);
        values_free(&was);
    }
}

/* With a gap the heads are not next to each other. */
static void test_rope(const struct pp_kernels *k, bool adjacent, size_t gap)
{
    const size_t N = 5, G = 3, HD = 6, half = HD / 2, ldg = HD + gap;
    const size_t ld = G * ldg + 2;
    const int32_t position[] = {0, 1, 4, 2, 2};
    struct values x = values_new(k, N * ld, 0), want = values_new(k, x.n, 0);
    struct values cos_t = values_new(k, 5 * half, 0);
    struct values sin_t = values_new(k, 5 * half, 0);
    fill_normal(&x, "x", 1);
    for (size_t i = 0; i < 5 * half; i++) {
        set(&cos_t, i, cos((double)i));
        set(&sin_t, i, sin((double)i));
    }
    memcpy(want.at, x.at, x.n * x.bytes);
    struct values was = values_new(k, x.n, 0);
    memcpy(was.at, x.at, x.n * x.bytes);
    for (size_t t = 0; t < N; t++)
        for (size_t i = 0; i < G * half; i++) {
            size_t head = t * ld + i / half * ldg, j = i % half;
            size_t lo = head + (adjacent ? 2 * j : j);
            size_t hi = lo + (adjacent ? 1 : half);
            size_t at = (size_t)position[t] * half + i % half;
            double c = get(&cos_t, at), s = get(&sin_t, at);
            double a = get(&was, lo), b = get(&was, hi);
            set(&want, lo, a * c - b * s);
            set(&want, hi, b * c + a * s);
        }
    bool fine = !k->rope(x.at, cos_t.at, sin_t.at, position, N, G, HD, ld, ldg,
                         adjacent, 1, NULL);
    ok(values_near(&x, &want, 2e-7, 1, "rope") && fine && guard_whole(&x),
       "%s rope%s", k->name, adjacent ? ", adjacent pairs" : "");
    fine = !k->rope(x.at, cos_t.at, sin_t.at, position, N, G, HD, ld, ldg,
                    adjacent, -1, NULL);
    ok(values_near(&x, &was, 5e-7, 1, "rope back") && fine, "%s rope and back",
       k->name);
    struct values *all[] = {&x, &want, &was, &cos_t, &sin_t};
    for (size_t i = 0; i < 5; i++)
        values_free(all[i]);
}

/* Each pair turns by the position on its axis: by the tables, or by the
 * frequency of the pair. */
static void test_rope_axes(const struct pp_kernels *k, bool tabled)
{
    enum { N = 4, G = 2, HD = 12, HALF = HD / 2, LD = G * HD + 1, AXES = 2 };
    const int32_t position[N * AXES] = {0, 0, 3, 1, 2, 4, 1, 1};
    const double frequency[HALF] = {1, .5, .25, 1, .7, .3};
    struct values x = values_new(k, N * LD, 0), want = values_new(k, x.n, 0);
    struct values cos_t = values_new(k, 5 * HALF, 0);
    struct values sin_t = values_new(k, 5 * HALF, 0);
    struct pp_rope_axes axes = {AXES, {2, 4}, NULL, NULL, frequency};
    fill_normal(&x, "x", 1);
    for (size_t i = 0; i < 5 * HALF; i++) {
        set(&cos_t, i, cos((double)i));
        set(&sin_t, i, sin((double)i));
    }
    if (tabled) {
        axes.cos = cos_t.at;
        axes.sin = sin_t.at;
    }
    memcpy(want.at, x.at, x.n * x.bytes);
    for (size_t t = 0; t < N; t++)
        for (size_t i = 0; i < (size_t)G * HALF; i++) {
            size_t c = i % HALF, lo = t * LD + i / HALF * HD + c;
            int32_t p = position[t * AXES + (c < 2 ? 0 : 1)];
            double angle = tabled ? (double)p * HALF + (double)c
                                  : (double)p * frequency[c];
            double a = get(&x, lo), b = get(&x, lo + HALF);
            set(&want, lo, a * cos(angle) - b * sin(angle));
            set(&want, lo + HALF, b * cos(angle) + a * sin(angle));
        }
    bool fine = !k->rope_axes(x.at, &axes, position, N, G, HD, LD, HD, 1, NULL);
    ok(values_near(&x, &want, 5e-7, 1, "rope_axes") && fine && guard_whole(&x),
       "%s rope on axes, %s", k->name, tabled ? "tables" : "frequencies");
    struct values *all[] = {&x, &want, &cos_t, &sin_t};
    for (size_t i = 0; i < 4; i++)
        values_free(all[i]);
}

/* A run of two rows, one of one row, padding, and a run that ends with half of
 * its frames. */
static void test_frames(const struct pp_kernels *k)
{
    enum { N = 6, C = 2 };
    const int32_t kind[N] = {PP_ROW_BEGINS, 0,          PP_ROW_BEGINS, -1,
                             PP_ROW_BEGINS, PP_ROW_HALF};
    struct values x = values_new(k, N * 2 * C, 0),
                  y = values_new(k, N * 3 * C, 0);
    struct values dx = values_new(k, x.n, 0), p = values_new(k, 3 * 6, 0);
    double forward = 0, backward = 0;
    /* The even output of row t and column c is 10 t + c, the odd one half more.
     */
    for (size_t i = 0; i < x.n; i++)
        set(&x, i, (double)(i / (2 * C) * 10 + i % C) + (i / C % 2 ? .5 : 0));
    bool fine = !k->taps_fwd(y.at, x.at, kind, N, C, NULL);
    const double want[N][3] = {{-1, 0, .5},  {.5, 10, 10.5}, {-1, 20, 20.5},
                               {-1, -1, -1}, {-1, 40, 40.5}, {40.5, 50, -1}};
    for (size_t i = 0; i < y.n; i++) {
        double w = want[i / (3 * C)][i % 3], c = (double)(i / 3 % C);
        fine = fine && fabs(get(&y, i) - (w < 0 ? 0 : w + c)) < 1e-12;
    }
    ok(fine && guard_whole(&y), "%s taps", k->name);
    /* The transpose: <y, taps(x)> = <taps'(y), x>. */
    fill_normal(&y, "dy", 1);
    struct values taps = values_new(k, y.n, 0);
    fine = !k->taps_fwd(taps.at, x.at, kind, N, C, NULL) &&
           !k->taps_bwd(dx.at, y.at, kind, N, C, NULL);
    for (size_t i = 0; i < y.n; i++)
        forward += get(&y, i) * get(&taps, i);
    for (size_t i = 0; i < x.n; i++)
        backward += get(&dx, i) * get(&x, i);
    ok(fine && fabs(forward - backward) < 1e-4 && fabs(forward) > 1 &&
           guard_whole(&dx),
       "%s gradients of taps", k->name);
    fine = !k->sinusoids(p.at, 3, 6, NULL);
    for (size_t i = 0; i < p.n; i++) {
        double angle = (double)(i / 6) * pow(10000, -(double)(i % 3) / 2);
        double w = i % 6 < 3 ? sin(angle) : cos(angle);
        fine = fine && fabs(get(&p, i) - w) < 1e-7;
    }
    ok(fine && guard_whole(&p), "%s sinusoids", k->name);
    struct values *all[] = {&x, &y, &dx, &p, &taps};
    for (size_t i = 0; i < 5; i++)
        values_free(all[i]);
}

/* Compares three steps with the formulas in double. */
static void test_adamw(const struct pp_kernels *k)
{
    const size_t n = 65;
    struct values w = values_new(k, n, 1), m = values_new(k, n, 0);
    struct values v = values_new(k, n, 0), g = values_new(k, n, 0);
    double rw[65], rm[65] = {0}, rv[65] = {0}, worst = 0;
    fill_normal(&w, "w", 1);
    fill(&m, 0);
    fill(&v, 0);
    for (size_t i = 0; i < n; i++)
        rw[i] = get(&w, i);
    for (int step = 1; step <= 3; step++) {
        struct pp_adamw_step s = {.lr = 0.01,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .bias1 = 1 - pow(0.9, step),
                                  .bias2 = 1 - pow(0.95, step),
                                  .g_scale = 0.5};
        fill_normal(&g, step == 2 ? "g2" : "g", 1);
        if (k->adamw(w.at, NULL, m.at, v.at, g.at, n, &s, NULL))
            abort();
        for (size_t i = 0; i < n; i++) {
            double d = get(&g, i) * s.g_scale;
            rm[i] = 0.9 * rm[i] + (1 - 0.9) * d;
            rv[i] = 0.95 * rv[i] + (1 - 0.95) * d * d;
            rw[i] *= 1 - s.lr * s.weight_decay;
            rw[i] -=
                s.lr / s.bias1 * rm[i] / (sqrt(rv[i]) / sqrt(s.bias2) + s.eps);
            worst = fmax(worst, fabs(rw[i] - get(&w, i)));
        }
    }
    ok(worst <= (k->element_bytes == 8 ? 1e-15 : 5e-7) && guard_whole(&w) &&
           guard_whole(&m) && guard_whole(&v),
       "%s three steps of AdamW (worst %.2g)", k->name, worst);
    struct values *all[] = {&w, &m, &v, &g};
    for (size_t i = 0; i < 4; i++)
        values_free(all[i]);
}

static void test_sgd(const struct pp_kernels *k)
{
    const struct pp_adamw_step s = {
        .lr = 0.5, .weight_decay = 0.25, .g_scale = 2};
    struct values w = values_new(k, 17, 0), g = values_new(k, 17, 0);
    bool same = true;
    fill_integers(&w, "w", 8);
    fill_integers(&g, "g", 8);
    struct values was = values_new(k, 17, 0);
    memcpy(was.at, w.at, 17 * w.bytes);
    same = !k->sgd(w.at, NULL, g.at, 17, &s, NULL);
    for (size_t i = 0; i < 17; i++)
        same = same && get(&w, i) == get(&was, i) - 0.5 * (2 * get(&g, i) +
                                                           0.25 * get(&was, i));
    ok(same && guard_whole(&w), "%s SGD", k->name);
    values_free(&w);
    values_free(&g);
    values_free(&was);
}

/* Tests that the values of a block have one sum, whatever stands before and
 * after them. */
/* The first product of a step writes, and others add: of sums that are 0, or
 * too small for the type, the sign of a zero may differ, and nothing else. */
static void test_written_gradient(const struct pp_kernels *k)
{
    enum { N = 3, C = 37, OC = 21 };
    struct values x = values_new(k, N * C, 0), dy = values_new(k, N * OC, 0);
    struct values added = values_new(k, OC * C, 0);
    struct values written = values_new(k, OC * C, 0);
    fill(&added, 0);
    double tiny = k->element_bytes == sizeof(float) ? 1e-30 : 1e-200;
    fill_normal(&x, "x", 1);
    fill_normal(&dy, "dy", 1);
    for (size_t i = 0; i < N * 7; i++) {
        set(&x, i / 7 * C + i % 7, i % 3 ? tiny * get(&x, i) : 0);
        set(&dy, i / 7 * OC + i % 7, i % 2 ? -tiny : 0);
    }
    for (size_t i = 0; i < written.n; i++)
        set(&written, i, NAN);
    bool same = !k->linear_bwd_weight(added.at, NULL, dy.at, x.at, N, C, OC, OC,
                                      C, false, NULL) &&
                !k->linear_bwd_weight(written.at, NULL, dy.at, x.at, N, C, OC,
                                      OC, C, true, NULL);
    size_t zeros = 0;
    for (size_t i = 0; i < added.n; i++) {
        double a = get(&added, i), b = get(&written, i);
        same = same && a == b && (a == 0 || signbit(a) == signbit(b));
        zeros += a == 0;
    }
    ok(same && zeros > 0 && zeros < added.n && guard_whole(&written),
       "%s gradients are the same, written or added to 0", k->name);
    values_free(&x);
    values_free(&dy);
    values_free(&added);
    values_free(&written);
}

/* Neither updates nor norms tell -0 from 0 in a gradient. */
static void test_sign_of_zero(const struct pp_kernels *k)
{
    enum { N = 4 };
    static const double w_of[N] = {0.5, -2, 1e-3, 0}, m_of[N] = {0, 1, -1, 0};
    const struct pp_adamw_step s = {.lr = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99,
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .bias1 = 0.1,
                                    .bias2 = 0.01,
                                    .g_scale = 0.5};
    struct values of[2][4]; /* w, m, v, and w of sgd */
    double squares[2];
    bool same = true;
    for (int i = 0; i < 2; i++) {
        struct values g = values_new(k, N, 0);
        for (size_t j = 0; j < 4; j++)
            of[i][j] = values_new(k, N, 0);
        for (size_t j = 0; j < N; j++) {
            set(&g, j, i ? -0.0 : 0.0);
            set(&of[i][0], j, w_of[j]);
            set(&of[i][1], j, m_of[j]);
            set(&of[i][2], j, m_of[j] * m_of[j]);
            set(&of[i][3], j, w_of[j]);
        }
        same = same &&
               !k->adamw(of[i][0].at, NULL, of[i][1].at, of[i][2].at, g.at, N,
                         &s, NULL) &&
               !k->sgd(of[i][3].at, NULL, g.at, N, &s, NULL) &&
               !k->sum_squares(&squares[i], g.at, N, NULL) &&
               signbit(get(&g, 0)) == (i == 1);
        values_free(&g);
    }
    for (size_t j = 0; j < 4; j++) {
        same = same && same_bits(&of[0][j], &of[1][j]);
        values_free(&of[0][j]);
        values_free(&of[1][j]);
    }
    ok(same && squares[0] == 0 && squares[1] == 0,
       "%s updates do not tell -0 from 0", k->name);
}

static void test_squares_blocks(const struct pp_kernels *k)
{
    size_t n = 2 * PP_SQUARES_BLOCK + 5;
    struct values x = values_new(k, n, 0);
    fill_normal(&x, "x", 1);
    double all[3] = {-1, -1, -1}, one[3] = {-2, -2, -2}, sum = 0;
    bool same = !k->sum_squares(all, x.at, n, NULL);
    for (size_t b = 0; b < 3; b++) {
        size_t first = b * PP_SQUARES_BLOCK, left = n - first;
        same = same &&
               !k->sum_squares(
                   &one[b], (char *)x.at + first * x.bytes,
                   left < PP_SQUARES_BLOCK ? left : PP_SQUARES_BLOCK, NULL) &&
               one[b] == all[b];
    }
    for (size_t i = 2 * PP_SQUARES_BLOCK; i < n; i++)
        sum += get(&x, i) * get(&x, i);
    ok(same && fabs(all[2] - sum) < 1e-12 * sum, "%s sums of three blocks",
       k->name);
    values_free(&x);
}

/* Tests calls with zero elements, which are legal for all pointers. */
static void test_empty(const struct pp_kernels *k)
{
    double sum = 1;
    double of[4] = {0};
    const struct pp_xielu by = {&of[0], &of[1], &of[2], &of[3]};
    struct pp_adamw_step s = {.lr = 1};
    ok(!k->add(NULL, NULL, NULL, 0, NULL) &&
           !k->copy(NULL, NULL, 0, 4, 4, 4, NULL) && !k->zero(NULL, 0, NULL) &&
           !k->sum_squares(&sum, NULL, 0, NULL) && sum == 1 &&
           !k->embedding_fwd(NULL, NULL, NULL, 0, 4, NULL) &&
           !k->embedding_add(NULL, NULL, NULL, 0, 4, NULL) &&
           !k->layernorm_fwd(NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 4, 1,
                             NULL) &&
           !k->gelu_fwd(NULL, NULL, 0, PP_GELU_ERF, NULL) &&
           !k->xielu_fwd(NULL, NULL, 0, 4, &by, NULL) &&
           !k->rope(NULL, NULL, NULL, NULL, 0, 1, 4, 4, 4, false, 1, NULL) &&
           !k->taps_fwd(NULL, NULL, NULL, 0, 4, NULL) &&
           !k->taps_bwd(NULL, NULL, NULL, 0, 4, NULL) &&
           !k->sinusoids(NULL, 0, 4, NULL) &&
           !k->adamw(NULL, NULL, NULL, NULL, NULL, 0, &s, NULL) &&
           !k->sgd(NULL, NULL, NULL, 0, &s, NULL),
       "%s kernels without rows", k->name);
}

int main(void)
{
    for (size_t i = 0; i < N_TABLES; i++) {
        test_linear(tables[i]);
        test_written_gradient(tables[i]);
        test_sign_of_zero(tables[i]);
        test_embedding(tables[i]);
        test_elementwise(tables[i]);
        test_rope(tables[i], false, 0);
        test_rope(tables[i], true, 0);
        test_rope(tables[i], true, 3);
        test_rope_axes(tables[i], true);
        test_rope_axes(tables[i], false);
        test_frames(tables[i]);
        test_adamw(tables[i]);
        test_sgd(tables[i]);
        test_squares_blocks(tables[i]);
        test_empty(tables[i]);
    }
    test_rows(&pp_kernels_rows_f32);
    test_rows(&pp_kernels_rows_f64);
    return done();
}
