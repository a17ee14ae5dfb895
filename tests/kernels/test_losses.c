/* SPDX-License-Identifier: MIT */
/* test_losses - tests cross-entropy, soft targets, caps of logits and
 * distributions against simple loops in fp64.
 */
#define PP_REAL_F32
#include "real.h"
#include "values.h"

static const struct pp_kernels *const tables[] = {&pp_kernels_f32,
                                                  &pp_kernels_f64};
static const size_t sizes[] = {1, 3, 17, 64, 65, 1000};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static double bound(const struct pp_kernels *k)
{
    return k->element_bytes == 8 ? 1e-14 : 2e-6;
}

/* size is the spread of the logits, which softcap made if cap is not 0. */
static void test_cross_entropy(const struct pp_kernels *k, size_t V,
                               double size, double cap)
{
    const size_t N = 3;
    const double scale = 0.3;
    int32_t targets[3] = {0, (int32_t)(V - 1), (int32_t)(V / 2)};
    struct values x = values_new(k, N * V, 1), want = values_new(k, N * V, 0);
    struct values lse = values_new(k, N, 0), logp = values_new(k, N, 0);
    struct values wlse = values_new(k, N, 0), wlogp = values_new(k, N, 0);
    struct values scales = values_new(k, N, 0);
    fill_normal(&x, "logits", size);
    for (size_t i = 0; cap > 0 && i < N * V; i++)
        set(&x, i, cap * tanh(get(&x, i) / cap));
    for (size_t t = 0; t < N; t++) {
        double max = get(&x, t * V), sum = 0;
        for (size_t i = 0; i < V; i++)
            max = fmax(max, get(&x, t * V + i));
        for (size_t i = 0; i < V; i++)
            sum += exp(get(&x, t * V + i) - max);
        double l = max + log(sum);
        set(&wlse, t, l);
        /* Another scale for every row, of either sign. */
        set(&scales, t, t % 2 ? scale : -scale / (double)(t + 1));
        set(&wlogp, t, get(&x, t * V + (size_t)targets[t]) - l);
        for (size_t i = 0; i < V; i++) {
            double a = get(&x, t * V + i), y = cap > 0 ? a / cap : 0;
            set(&want, t * V + i,
                get(&scales, t) * (1 - y * y) *
                    (exp(a - l) - (i == (size_t)targets[t])));
        }
    }
    bool fine =
        !k->cross_entropy_fwd(lse.at, logp.at, x.at, targets, N, V, NULL) &&
        !k->cross_entropy_bwd(x.at, lse.at, targets, scales.at, N, V, cap,
                              NULL);
    /* lse in fp32 is rounded, which adds an error to gradients. */
    double b = bound(k) * (size > 10 ? size / 2 : 1);
    ok((values_near(&lse, &wlse, bound(k), 1, "lse") &&
        values_near(&logp, &wlogp, bound(k), 1, "logp") &&
        values_near(&x, &want, b, scale, "dlogits")) &&
           fine && guard_whole(&x) && guard_whole(&lse) && guard_whole(&logp),
       "%s cross-entropy over %zu, spread %g, cap %g", k->name, V, size, cap);
    struct values *all[] = {&x, &want, &lse, &logp, &wlse, &wlogp, &scales};
    for (size_t i = 0; i < 7; i++)
        values_free(all[i]);
}

/* Cuts the vocabulary in two parts: their terms add up, and both compute the
 * gradient of the whole. */
static void test_soft_targets(const struct pp_kernels *k, size_t V, size_t top,
                              double cap)
{
    const size_t N = 3, cut = V / 3;
    struct values x = values_new(k, N * V, 1), want = values_new(k, N * V, 0);
    struct values lse = values_new(k, N, 0), logp = values_new(k, N, 0);
    struct values wlogp = values_new(k, N, 0), scales = values_new(k, N, 0);
    struct values w = values_new(k, N * top, 0);
    int32_t *ids = calloc(N * top, sizeof *ids);
    fill_normal(&x, "logits", 2);
    for (size_t i = 0; cap > 0 && i < N * V; i++)
        set(&x, i, cap * tanh(get(&x, i) / cap));
    for (size_t t = 0; t < N; t++) {
        double sum = 0;
        for (size_t i = 0; i < V; i++)
            sum += exp(get(&x, t * V + i));
        set(&lse, t, log(sum));
        set(&scales, t, t % 2 ? .3 : -.2);
        set(&logp, t, (double)t); /* is added to */
        set(&wlogp, t, (double)t);
        for (size_t i = 0; i < V; i++)
            set(&want, t * V + i,
                get(&scales, t) * exp(get(&x, t * V + i) - log(sum)));
        for (size_t j = 0; j < top; j++) {
            size_t id = (t + j * (V / top)) % V, at = t * V + id;
            double weight = 2 * (double)(j + 1) / (double)(top * (top + 1));
            ids[t * top + j] = (int32_t)id;
            set(&w, t * top + j, weight);
            set(&wlogp, t, get(&wlogp, t) + weight * (get(&x, at) - log(sum)));
            set(&want, at, get(&want, at) - get(&scales, t) * weight);
        }
        for (size_t i = t * V; cap > 0 && i < (t + 1) * V; i++)
            set(&want, i, get(&want, i) * (1 - pow(get(&x, i) / cap, 2)));
    }
    bool fine = true;
    int32_t *here = calloc(N * top, sizeof *here);
    for (int part = 0; part < 2; part++) {
        size_t first = part ? cut : 0, n = part ? V - cut : cut;
        struct values y = values_new(k, N * n, 1);
        for (size_t i = 0; i < N * n; i++)
            set(&y, i, get(&x, i / n * V + first + i % n));
        for (size_t i = 0; i < N * top; i++) {
            size_t id = (size_t)ids[i];
            here[i] =
                id >= first && id < first + n ? (int32_t)(id - first) : -1;
        }
        fine &= !k->soft_targets_fwd(logp.at, y.at, lse.at, here, w.at, N, n,
                                     top, NULL) &&
                !k->soft_targets_bwd(y.at, lse.at, here, w.at, scales.at, N, n,
                                     top, cap, NULL) &&
                guard_whole(&y);
        for (size_t i = 0; i < N * n; i++)
            set(&x, i / n * V + first + i % n, get(&y, i));
        values_free(&y);
    }
    ok(fine && guard_whole(&logp) &&
           values_near(&logp, &wlogp, bound(k), 1, "logp") &&
           values_near(&x, &want, bound(k), .3, "dlogits"),
       "%s soft targets, %zu of %zu, cap %g", k->name, top, V, cap);
    struct values *all[] = {&x, &want, &lse, &logp, &wlogp, &scales, &w};
    for (size_t i = 0; i < 7; i++)
        values_free(all[i]);
    free(ids);
    free(here);
}

/* The error of a tanh is relative to it, also near 0. */
static void test_softcap(const struct pp_kernels *k)
{
    const size_t n = 4001;
    const double cap = 30;
    struct values x = values_new(k, n, 1);
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        set(&x, i, ((double)i - 2000) * fabs((double)i - 2000) * 1e-4);
    bool fine = !k->softcap(x.at, cap, n, NULL) && get(&x, 2000) == 0;
    for (size_t i = 0; i < n; i++) {
        struct values from = values_new(k, 1, 0); /* rounds the input */
        set(&from, 0, ((double)i - 2000) * fabs((double)i - 2000) * 1e-4);
        double want = cap * tanh(get(&from, 0) / cap);
        double off = fabs(get(&x, i) - want) / fmax(fabs(want), 1e-30);
        worst = fmax(worst, off);
        values_free(&from);
    }
    ok(fine && guard_whole(&x) && worst < bound(k) / 5,
       "%s softcap is off by %.2g", k->name, worst);
    values_free(&x);
}

/* Logits are integers, so that there are ties. */
static void test_distribution(const struct pp_kernels *k, size_t V, size_t top)
{
    const size_t N = 3;
    struct values x = values_new(k, N * V, 1), h = values_new(k, N, 0);
    struct values lse = values_new(k, N, 0), want = values_new(k, N, 0);
    struct values best = values_new(k, N * top, 0);
    int32_t *ids = calloc(N * top, sizeof *ids);
    bool right = true;
    fill_normal(&x, "logits", 3);
    for (size_t t = 0; t < N; t++) {
        double sum = 0, expected = 0;
        for (size_t i = 0; i < V; i++) {
            set(&x, t * V + i, round(get(&x, t * V + i)));
            sum += exp(get(&x, t * V + i));
        }
        for (size_t i = 0; i < V; i++) {
            double p = exp(get(&x, t * V + i)) / sum;
            expected -= p * log(p);
        }
        set(&lse, t, log(sum));
        set(&want, t, expected);
    }
    bool fine = !k->entropy(h.at, x.at, lse.at, N, V, NULL) &&
                !k->top_k(best.at, ids, x.at, N, V, top, NULL);
    for (size_t i = 0; i < N * top; i++) {
        size_t t = i / top, before = 0, id = (size_t)ids[i];
        double value = get(&x, t * V + id);
        for (size_t j = 0; j < V; j++)
            before += get(&x, t * V + j) > value ||
                      (get(&x, t * V + j) == value && j < id);
        right &= before == i % top && get(&best, i) == value;
    }
    ok(fine && values_near(&h, &want, bound(k), 1, "entropy") &&
           guard_whole(&h),
       "%s entropy over %zu", k->name, V);
    ok(right && guard_whole(&best), "%s the %zu largest of %zu", k->name, top,
       V);
    struct values *all[] = {&x, &h, &lse, &want, &best};
    for (size_t i = 0; i < 5; i++)
        values_free(all[i]);
    free(ids);
}

/* Cuts the vocabulary in two parts of uneven size. Their numbers merge to those
 * of the whole, and both compute its gradient. */
static void test_merged_cross_entropy(const struct pp_kernels *k, size_t V,
                                      double size)
{
    const size_t N = 3, first = V / 3 + 1, n[2] = {first, V - first};
    const int32_t targets[3] = {0, (int32_t)(V - 1), (int32_t)first};
    struct values x = values_new(k, N * V, 1), scales = values_new(k, N, 0);
    struct values want = values_new(k, N * V, 1);
    struct values wlse = values_new(k, N, 0), wlogp = values_new(k, N, 0);
    struct values lse = values_new(k, N, 0), logp = values_new(k, N, 0);
    struct values numbers = values_new(k, 4 * N, 0);
    fill_normal(&x, "logits", size);
    for (size_t i = 0; i < N * V; i++)
        set(&want, i, get(&x, i));
    for (size_t t = 0; t < N; t++)
        set(&scales, t, 0.5 + (double)t);
    int rc =
        k->cross_entropy_fwd(wlse.at, wlogp.at, want.at, targets, N, V, NULL) ||
        k->cross_entropy_bwd(want.at, wlse.at, targets, scales.at, N, V, 0,
                             NULL);
    for (int merged = 0; merged < 2; merged++) {
        for (size_t part = 0, at = 0; part < 2; at += n[part++]) {
            struct values y = values_new(k, N * n[part], 1);
            int32_t here[3];
            for (size_t t = 0; t < N; t++) {
                int32_t i = targets[t] - (int32_t)at;
                here[t] = i >= 0 && i < (int32_t)n[part] ? i : -1;
                for (size_t c = 0; c < n[part]; c++)
                    set(&y, t * n[part] + c, get(&x, t * V + at + c));
            }
            char *to = (char *)numbers.at + 2 * part * N * k->accumulator_bytes;
            rc |= merged
                      ? k->cross_entropy_bwd(y.at, lse.at, here, scales.at, N,
                                             n[part], 0, NULL)
                      : k->cross_entropy_fwd(to, to + N * k->accumulator_bytes,
                                             y.at, here, N, n[part], NULL);
            for (size_t t = 0; merged && t < N; t++)
                for (size_t c = 0; c < n[part]; c++)
                    set(&x, t * V + at + c, get(&y, t * n[part] + c));
            values_free(&y);
        }
        if (!merged)
            rc |=
                k->cross_entropy_merge(lse.at, logp.at, numbers.at, N, 2, NULL);
    }
    double b = bound(k) * (size > 10 ? size : 2);
    ok(!rc && values_near(&lse, &wlse, b, 1, "lse") &&
           values_near(&logp, &wlogp, b, 1, "logp") &&
           values_near(&x, &want, b, 1, "dlogits"),
       "%s two parts of a vocabulary of %zu, spread %g", k->name, V, size);
    struct values *all[] = {&x,   &scales, &want,    &wlse,
                            &lse, &wlogp,  &numbers, &logp};
    for (size_t i = 0; i < 8; i++)
        values_free(all[i]);
}

int main(void)
{
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < N_SIZES; j++) {
            test_cross_entropy(tables[i], sizes[j], 3, 0);
            test_cross_entropy(tables[i], sizes[j], 9, 5);
        }
        test_cross_entropy(tables[i], 1537, 200, 0);
        test_softcap(tables[i]);
        test_distribution(tables[i], 1537, 20);
        test_distribution(tables[i], 5, 5);
        test_soft_targets(tables[i], 1537, 20, 0);
        test_soft_targets(tables[i], 5, 5, 0);
        test_soft_targets(tables[i], 700, 9, 1.5);
        test_merged_cross_entropy(tables[i], 61, 3);
        test_merged_cross_entropy(tables[i], 1537, 200);
    }
    return done();
}
