/* SPDX-License-Identifier: MIT */
/* test_experts - the router against its definition, with ties, experts without
 * tokens and more experts than are sorted at a time; products of groups against
 * those of one expert at a time. Gradients are in test_layers. */
#include <math.h>

#include "values.h"

static const struct pp_kernels *const tables[] = {
    &pp_kernels_f32, &pp_kernels_f64, &pp_kernels_rows_f32,
    &pp_kernels_rows_f64};

enum { MOST = 4096 };

static bool equal(double a, double b)
{
    return !(a < b) && !(a > b);
}

struct routed {
    struct values logits, probs, weight;
    int32_t row[MOST], token[MOST], expert[MOST];
    struct pp_routing r;
};

static void route(struct routed *x, const struct pp_kernels *k, size_t N,
                  size_t E, size_t K, bool norm)
{
    const struct pp_router rule = {.norm = norm};
    const int32_t cu[] = {0, (int32_t)N};
    const struct pp_real_tokens all = {1, cu, cu};
    x->probs = values_new(k, N * E, 0);
    x->weight = values_new(k, N * K, 0);
    x->r = (struct pp_routing){x->row, x->token, x->expert};
    k->experts->route_fwd(x->probs.at, x->weight.at, &x->r, x->logits.at, NULL,
                          &all, N, E, K, &rule, false, NULL);
}

static void routed_free(struct routed *x)
{
    values_free(&x->logits);
    values_free(&x->probs);
    values_free(&x->weight);
}

/* Returns how many experts come before e for token t. */
static size_t rank_of(const struct routed *x, size_t E, size_t t, size_t e)
{
    size_t before = 0;
    double mine = get(&x->logits, t * E + e);
    for (size_t i = 0; i < E; i++) {
        double other = get(&x->logits, t * E + i);
        before += other > mine || (i < e && other >= mine);
    }
    return before;
}

/* Returns whether rows are those of the K first experts of every token, in
 * their order, with their weights. */
static bool is_routed(const struct routed *x, size_t N, size_t E, size_t K,
                      bool norm)
{
    size_t r = 0;
    bool right = true;
    for (size_t e = 0; e < E; e++)
        for (size_t t = 0; t < N; t++) {
            size_t j = rank_of(x, E, t, e);
            if (j >= K)
                continue;
            double sum = 0, of = 0, p = exp(get(&x->logits, t * E + e));
            for (size_t i = 0; i < E; i++) {
                double q = exp(get(&x->logits, t * E + i));
                sum += q;
                of += rank_of(x, E, t, i) < K ? q : 0;
            }
            right = right && x->token[r] == (int32_t)t &&
                    x->expert[r] == (int32_t)e &&
                    x->row[t * K + j] == (int32_t)r &&
                    fabs(get(&x->probs, t * E + e) - p / sum) < 1e-6 &&
                    fabs(get(&x->weight, r) - p / (norm ? of : sum)) < 1e-6;
            r++;
        }
    return right && r == N * K && guard_whole(&x->probs) &&
           guard_whole(&x->weight);
}

static void test_route(const struct pp_kernels *k, size_t N, size_t E, size_t K,
                       double size, bool norm)
{
    struct routed x;
    x.logits = values_new(k, N * E, 0);
    fill_normal(&x.logits, "logits", size);
    /* Few different values, so that there are ties. */
    for (size_t i = 0; i < x.logits.n; i++)
        set(&x.logits, i, rint(4 * get(&x.logits, i)) / 4);
    route(&x, k, N, E, K, norm);
    ok(is_routed(&x, N, E, K, norm), "%s: %zu of %zu experts, %zu tokens%s",
       k->name, K, E, N, size > 0 ? "" : ", all equal");
    routed_free(&x);
}

/* Two sequences of 2 and 3 tokens have a token of padding behind each, and an
 * empty one between them has nothing else. Checks that the real ones have the
 * rows and weights that they have without padding, and padding has none. */
static void test_padding(const struct pp_kernels *k)
{
    enum { N = 8, REAL = 5, E = 4, K = 2, C = 3 };
    static const int32_t cu[] = {0, 2, 2, REAL}, padded[] = {0, 3, 4, N};
    static const int32_t place[N] = {0, 1, -1, -1, 2, 3, 4, -1};
    const struct pp_real_tokens real = {3, cu, padded};
    const struct pp_router rule = {.norm = true};
    struct routed x, alone;
    struct values rows = values_new(k, REAL * K * C, 0);
    struct values y = values_new(k, N * C, 0), dx = values_new(k, N * E, 0);
    bool same = true, zero = true;
    x.logits = values_new(k, N * E, 0);
    alone.logits = values_new(k, REAL * E, 0);
    x.probs = values_new(k, N * E, 0);
    x.weight = values_new(k, N * K, 0);
    x.r = (struct pp_routing){x.row, x.token, x.expert};
    fill_normal(&x.logits, "logits", 1);
    fill_normal(&rows, "rows", 1);
    fill(&y, 1); /* it must be overwritten */
    fill(&dx, 1);
    for (size_t t = 0; t < N; t++)
        for (size_t e = 0; place[t] >= 0 && e < E; e++)
            set(&alone.logits, (size_t)place[t] * E + e,
                get(&x.logits, t * E + e));
    route(&alone, k, REAL, E, K, true);
    k->experts->route_fwd(x.probs.at, x.weight.at, &x.r, x.logits.at, NULL,
                          &real, N, E, K, &rule, false, NULL);
    k->experts->combine(y.at, rows.at, x.weight.at, x.row, N, K, C, false,
                        NULL);
    k->experts->route_bwd(dx.at, x.weight.at, x.probs.at, &x.r, N, E, K, &rule,
                          NULL);
    for (size_t r = 0; r < REAL * K; r++)
        same = same && x.expert[r] == alone.expert[r] &&
               place[x.token[r]] == alone.token[r] &&
               equal(get(&x.weight, r), get(&alone.weight, r));
    for (size_t t = 0; t < N; t++) {
        for (size_t j = 0; j < K; j++)
            same =
                same &&
                x.row[t * K + j] ==
                    (place[t] < 0 ? -1 : alone.row[(size_t)place[t] * K + j]);
        for (size_t i = 0; place[t] < 0 && i < C; i++)
            zero = zero && equal(get(&y, t * C + i), 0);
        for (size_t e = 0; place[t] < 0 && e < E; e++)
            zero = zero && equal(get(&dx, t * E + e), 0);
    }
    ok(same, "%s: padding has no rows", k->name);
    ok(zero && guard_whole(&y) && guard_whole(&dx),
       "%s: padding has no outputs and no gradients", k->name);
    routed_free(&x);
    routed_free(&alone);
    values_free(&rows);
    values_free(&y);
    values_free(&dx);
}

/* The same sequences in parts, as tensor-parallel ranks have them: checks that
 * the tokens of each part get the experts and weights that they get among all.
 */
static void test_parts(const struct pp_kernels *k)
{
    enum { N = 8, REAL = 5, E = 4, K = 2 };
    static const int32_t cu[] = {0, 2, 2, REAL}, padded[] = {0, 3, 4, N};
    const struct pp_real_tokens all = {3, cu, padded};
    const struct pp_router rule = {.norm = true};
    size_t value = k->accumulator_bytes;
    struct routed x, part;
    x.logits = part.logits = values_new(k, N * E, 0);
    x.probs = values_new(k, N * E, 0);
    x.weight = values_new(k, N * K, 0);
    x.r = (struct pp_routing){x.row, x.token, x.expert};
    part.r = (struct pp_routing){part.row, part.token, part.expert};
    fill_normal(&x.logits, "logits", 1);
    k->experts->route_fwd(x.probs.at, x.weight.at, &x.r, x.logits.at, NULL,
                          &all, N, E, K, &rule, false, NULL);
    for (size_t n = 1; n <= N; n++) {
        size_t real = 0;
        bool same = true;
        for (size_t first = 0; first < N; first += n) {
            size_t here = N - first < n ? N - first : n, rows = 0;
            const struct pp_real_tokens some = {3, cu, padded, first};
            part.probs = values_new(k, N * E, 0);
            part.weight = values_new(k, N * K, 0);
            k->experts->route_fwd(part.probs.at, part.weight.at, &part.r,
                                  (char *)x.logits.at + first * E * value, NULL,
                                  &some, here, E, K, &rule, false, NULL);
            for (size_t i = 0; i < here * K; i++) {
                int32_t a = x.row[first * K + i], b = part.row[i];
                rows += b >= 0;
                same = same && (a < 0) == (b < 0);
                if (a >= 0 && b >= 0)
                    same = same && x.expert[a] == part.expert[b] &&
                           part.token[b] == (int32_t)(i / K) &&
                           equal(get(&x.weight, (size_t)a),
                                 get(&part.weight, (size_t)b));
            }
            for (size_t r = 1; r < rows; r++)
                same = same && part.expert[r - 1] <= part.expert[r];
            real += rows;
            values_free(&part.probs);
            values_free(&part.weight);
        }
        ok(same && real == REAL * K, "%s: tokens in parts of %zu", k->name, n);
    }
    routed_free(&x);
}

/* Routes one token to two of six experts in three groups, and checks which they
 * are, their weights, and the gradient of the logits. */
static void test_rule(const struct pp_kernels *k, const char *name,
                      const struct pp_router *rule, const double bias[6],
                      const int32_t want[2])
{
    enum { E = 6, K = 2 };
    static const double logits[E] = {2, -2, 1.5, 1.25, 0, 1};
    static const int32_t cu[] = {0, 1};
    const struct pp_real_tokens one = {1, cu, cu};
    struct routed x;
    struct values b = values_new(k, E, 0), dx = values_new(k, E, 0);
    struct values dw = values_new(k, K, 0);
    double p[E], sum = 0, all = 0, scale = rule->scale, s = 0, mean = 0;
    bool right = true;
    x.logits = values_new(k, E, 0);
    x.probs = values_new(k, E, 0);
    x.weight = values_new(k, K, 0);
    x.r = (struct pp_routing){x.row, x.token, x.expert};
    for (size_t e = 0; e < E; e++) {
        set(&x.logits, e, logits[e]);
        set(&b, e, bias ? bias[e] : 0);
        all += exp(logits[e]);
    }
    for (size_t e = 0; e < E; e++)
        p[e] = rule->sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e]) / all;
    set(&dw, 0, 0.5);
    set(&dw, 1, -2);
    k->experts->route_fwd(x.probs.at, x.weight.at, &x.r, x.logits.at,
                          bias ? b.at : NULL, &one, 1, E, K, rule, false, NULL);
    k->experts->route_bwd(dx.at, dw.at, x.probs.at, &x.r, 1, E, K, rule, NULL);
    for (size_t j = 0; j < K; j++) {
        right = right && x.expert[x.row[j]] == want[j];
        sum += p[want[j]];
    }
    if (!ok(right, "%s: %s", k->name, name))
        printf("# chosen %d and %d, expected %d and %d\n", x.expert[x.row[0]],
               x.expert[x.row[1]], want[0], want[1]);
    sum = rule->norm ? sum : 1;
    for (size_t j = 0; j < K; j++) {
        size_t r = (size_t)x.row[j];
        right =
            right && fabs(get(&x.weight, r) - scale * p[want[j]] / sum) < 1e-6;
        s += rule->norm ? get(&dw, r) * p[want[j]] / sum : 0;
    }
    for (size_t j = 0; j < K; j++)
        mean += scale * (get(&dw, (size_t)x.row[j]) - s) / sum * p[want[j]];
    ok(right, "its weights, without bias");
    for (size_t e = 0; e < E; e++) {
        double dp = 0;
        for (size_t j = 0; j < K; j++)
            if ((size_t)want[j] == e)
                dp = scale * (get(&dw, (size_t)x.row[j]) - s) / sum;
        dp *= rule->sigmoid ? p[e] * (1 - p[e]) : p[e];
        dp /= rule->weighs_input ? p[e] : 1;
        dp -= rule->sigmoid ? 0 : mean * p[e];
        right = right && fabs(get(&dx, e) - dp) < 1e-6;
    }
    ok(right, "their gradient");
    routed_free(&x);
    values_free(&b);
    values_free(&dx);
    values_free(&dw);
}

/* The groups are {2, -2}, {1.5, 1.25} and {0, 1}. */
static void test_rules(const struct pp_kernels *k)
{
    static const double bias[6] = {0, 0, 0, 0, 0.5, -0.25};
    test_rule(k, "the group with the best expert",
              &(struct pp_router){.n_groups = 3, .kept_groups = 1, .scale = 16},
              NULL, (int32_t[]){0, 1});
    test_rule(k, "the group with the two best",
              &(struct pp_router){.sigmoid = true,
                                  .norm = true,
                                  .two_best = true,
                                  .n_groups = 3,
                                  .kept_groups = 1,
                                  .scale = 2.5},
              NULL, (int32_t[]){2, 3});
    test_rule(k, "two groups",
              &(struct pp_router){.sigmoid = true,
                                  .two_best = true,
                                  .n_groups = 3,
                                  .kept_groups = 2,
                                  .scale = 1},
              NULL, (int32_t[]){2, 3});
    test_rule(k, "weights of inputs",
              &(struct pp_router){.sigmoid = true,
                                  .weighs_input = true,
                                  .n_groups = 1,
                                  .kept_groups = 1,
                                  .scale = 1},
              NULL, (int32_t[]){0, 2});
    test_rule(k, "a bias chooses",
              &(struct pp_router){.sigmoid = true,
                                  .norm = true,
                                  .n_groups = 1,
                                  .kept_groups = 1,
                                  .scale = 1},
              bias, (int32_t[]){4, 0});
}

/* Returns the sum of c[r] times the weight of row r, if token t has experts
 * given[t]. The second of three tokens is padding. */
enum { GIVEN_N = 3, GIVEN_E = 6, GIVEN_K = 3 };
static const int32_t given_experts[GIVEN_N * GIVEN_K] = {5,  0, 3, -1, -1,
                                                         -1, 4, 2, 1};
static double weigh_given(const struct pp_kernels *k, struct routed *x,
                          const struct pp_router *rule, const struct values *c)
{
    static const int32_t cu[] = {0, 1, 2}, padded[] = {0, 2, 3};
    const struct pp_real_tokens real = {2, cu, padded};
    double sum = 0;
    memcpy(x->row, given_experts, sizeof given_experts);
    x->r = (struct pp_routing){x->row, x->token, x->expert};
    k->experts->route_fwd(x->probs.at, x->weight.at, &x->r, x->logits.at, NULL,
                          &real, GIVEN_N, GIVEN_E, GIVEN_K, rule, true, NULL);
    for (size_t r = 0; r < 2 * GIVEN_K; r++)
        sum += get(c, r) * get(&x->weight, r);
    return sum;
}

/* Experts that are given are not the best, so that their rows and weights show
 * whether the router chose. Differences are those of fp64. */
static void test_given(const struct pp_kernels *k, const char *name,
                       const struct pp_router *rule)
{
    enum { N = GIVEN_N, E = GIVEN_E, K = GIVEN_K };
    const double step = 1e-5;
    struct routed x = {.logits = values_new(k, N * E, 0),
                       .probs = values_new(k, N * E, 0),
                       .weight = values_new(k, N * K, 0)};
    struct values c = values_new(k, N * K, 0), dx = values_new(k, N * E, 0);
    double off = 0;
    bool kept = true;
    fill_normal(&x.logits, "logits", 1);
    fill_normal(&c, "c", 1);
    weigh_given(k, &x, rule, &c);
    for (size_t i = 0; i < N * K; i++)
        kept = kept && (given_experts[i] < 0
                            ? x.row[i] == -1
                            : x.expert[x.row[i]] == given_experts[i] &&
                                  x.token[x.row[i]] == (int32_t)(i / K));
    ok(kept, "%s: %s: given experts get the rows", k->name, name);
    k->experts->route_bwd(dx.at, c.at, x.probs.at, &x.r, N, E, K, rule, NULL);
    for (size_t i = 0; i < N * E; i++) {
        double at = get(&x.logits, i);
        set(&x.logits, i, at + step);
        double more = weigh_given(k, &x, rule, &c);
        set(&x.logits, i, at - step);
        double less = weigh_given(k, &x, rule, &c);
        set(&x.logits, i, at);
        off = fmax(off, fabs((more - less) / (2 * step) - get(&dx, i)));
    }
    if (!ok(off < 1e-9, "%s: %s: the gradient of their weights", k->name, name))
        printf("# off by %g\n", off);
    routed_free(&x);
    values_free(&c);
    values_free(&dx);
}

static void test_given_rules(void)
{
    const struct pp_kernels *k = &pp_kernels_f64;
    test_given(k, "softmax", &(struct pp_router){.scale = 3});
    test_given(k, "norm", &(struct pp_router){.norm = true});
    test_given(k, "sigmoid with groups",
               &(struct pp_router){.sigmoid = true,
                                   .norm = true,
                                   .two_best = true,
                                   .n_groups = 3,
                                   .kept_groups = 1,
                                   .scale = 2.5});
}

static bool is_dropped(size_t choice)
{
    return choice * choice % 7 < 2;
}

/* Experts drop some tokens, whose rows come last, and all choices keep their
 * weights. Token 2 is padding. */
static void test_capacity(const struct pp_kernels *k)
{
    enum { N = 40, E = 300, K = 3, FIRST = 254 };
    static const int32_t cu[] = {0, 2, N - 1}, padded[] = {0, 3};
    const struct pp_real_tokens real = {2, cu, padded};
    const struct pp_router rule = {.norm = true};
    struct routed x = {.logits = values_new(k, N * E, 0),
                       .probs = values_new(k, N * E, 0),
                       .weight = values_new(k, N * K, 0)};
    double all[N * K];
    size_t n = 0, R = (N - 1) * K;
    bool right = true;
    fill_normal(&x.logits, "logits", 1);
    for (size_t t = 0; t < N; t++) /* six experts get nearly all tokens */
        for (size_t e = FIRST; e < FIRST + 6; e++)
            set(&x.logits, t * E + e, get(&x.logits, t * E + e) + 4);
    x.r = (struct pp_routing){x.row, x.token, x.expert};
    k->experts->route_fwd(x.probs.at, x.weight.at, &x.r, x.logits.at, NULL,
                          &real, N, E, K, &rule, false, NULL);
    int32_t chosen[N * K];
    for (size_t i = 0; i < N * K; i++) {
        chosen[i] = x.row[i] < 0 ? -1 : x.expert[x.row[i]];
        all[i] = x.row[i] < 0 ? 0 : get(&x.weight, (size_t)x.row[i]);
    }
    for (size_t i = 0; i < N * K; i++)
        x.row[i] = chosen[i] >= 0 && is_dropped(i) ? -2 - chosen[i] : chosen[i];
    k->experts->route_fwd(x.probs.at, x.weight.at, &x.r, x.logits.at, NULL,
                          &real, N, E, K, &rule, true, NULL);
    for (size_t i = 0; i < N * K; i++) {
        size_t t = i / K, row = (size_t)x.row[i];
        if (chosen[i] < 0) {
            right = right && x.row[i] == -1;
            continue;
        }
        bool keeps = !is_dropped(i);
        n += keeps;
        right = right && row < R && x.expert[row] == chosen[i] &&
                x.token[row] == (keeps ? (int32_t)t : -1 - (int32_t)t) &&
                equal(get(&x.weight, row), all[i]);
    }
    for (size_t r = 1; r < n; r++)
        right =
            right &&
            (x.expert[r - 1] < x.expert[r] ||
             (x.expert[r - 1] == x.expert[r] && x.token[r - 1] < x.token[r]));
    for (size_t r = 0; r < R; r++)
        right = right && (x.token[r] >= 0) == (r < n);
    ok(right && n > R / 4 && n < R - R / 4, "%s: experts keep %zu of %zu rows",
       k->name, n, R);
    routed_free(&x);
}

/* Two of five experts have no rows. Integers, so that sums are exact. */
static void test_grouped(const struct pp_kernels *k)
{
    enum { R = 7, C = 5, OC = 6, STRIDE = 40, E = 5 };
    static const int32_t expert[R] = {0, 0, 0, 2, 3, 3, 3};
    struct values x = values_new(k, R * C, 0), dx = values_new(k, R * C, 0);
    struct values y = values_new(k, R * OC, 0), dy = values_new(k, R * OC, 0);
    struct values w = values_new(k, E * STRIDE, 0);
    struct values dw = values_new(k, E * STRIDE, 0);
    fill_integers(&x, "x", 4);
    fill_integers(&dy, "dy", 4);
    fill_integers(&w, "w", 4);
    fill(&dw, 1);
    const struct pp_expert_kernels *e = k->experts;
    const struct pp_expert_rows rows = {R, expert, NULL, E};
    e->grouped_fwd(y.at, x.at, w.at, NULL, &rows, C, OC, STRIDE, NULL);
    e->grouped_bwd_input(dx.at, dy.at, w.at, &rows, C, OC, STRIDE, NULL);
    e->grouped_bwd_weight(dw.at, NULL, dy.at, x.at, &rows, C, OC, STRIDE, false,
                          NULL);
    bool fwd = true, input = true, weight = true;
    for (size_t r = 0; r < R; r++) {
        size_t at = (size_t)expert[r] * STRIDE;
        for (size_t o = 0; o < OC; o++) {
            double sum = 0;
            for (size_t c = 0; c < C; c++)
                sum += get(&x, r * C + c) * get(&w, at + o * C + c);
            fwd = fwd && equal(get(&y, r * OC + o), sum);
        }
        for (size_t c = 0; c < C; c++) {
            double sum = 0;
            for (size_t o = 0; o < OC; o++)
                sum += get(&dy, r * OC + o) * get(&w, at + o * C + c);
            input = input && equal(get(&dx, r * C + c), sum);
        }
    }
    for (size_t i = 0; i < E * STRIDE; i++) {
        double sum = 1;
        size_t o = i % STRIDE / C, c = i % STRIDE % C;
        for (size_t r = 0; o < OC && r < R; r++)
            if ((size_t)expert[r] == i / STRIDE)
                sum += get(&dy, r * OC + o) * get(&x, r * C + c);
        weight = weight && equal(get(&dw, i), sum);
    }
    ok(fwd && guard_whole(&y), "%s: products of groups", k->name);
    ok(input && guard_whole(&dx), "%s: their input gradients", k->name);
    ok(weight && guard_whole(&dw), "%s: their weight gradients", k->name);
    struct values *all[] = {&x, &dx, &y, &dy, &w, &dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* A row of a product has the same bits whatever other tokens its expert has. */
static void test_row_invariant(const struct pp_kernels *k)
{
    enum { R = 30, C = 33, OC = 17 };
    static const int32_t expert[R] = {0};
    struct values x = values_new(k, R * C, 0), w = values_new(k, OC * C, 0);
    struct values y = values_new(k, R * OC, 0), one = values_new(k, OC, 0);
    bool same = true;
    fill_normal(&x, "x", 1);
    fill_normal(&w, "w", 1);
    const struct pp_expert_rows rows = {R, expert, NULL, 1},
                                first = {1, expert, NULL, 1};
    k->experts->grouped_fwd(y.at, x.at, w.at, NULL, &rows, C, OC, 0, NULL);
    for (size_t r = 0; r < R; r++) {
        k->experts->grouped_fwd(one.at, (char *)x.at + r * C * x.bytes, w.at,
                                NULL, &first, C, OC, 0, NULL);
        same = same &&
               !memcmp(one.at, (char *)y.at + r * OC * y.bytes, OC * y.bytes);
    }
    ok(same, "%s: a row alone has the same bits", k->name);
    struct values *all[] = {&x, &w, &y, &one};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* The mean load of these is 3. */
static void test_follow_load(const struct pp_kernels *k)
{
    static const double load[] = {3, 0, 4, 5, 3}, steps[] = {0, 1, -1, -1, 0};
    enum { E = 5, FIRST = 1, N = 3 };
    struct values of = values_new(k, E, 0), bias = values_new(k, N, 0);
    for (size_t e = 0; e < E; e++)
        set(&of, e, load[e]);
    for (int centred = 0; centred <= 1; centred++) {
        double off = 0;
        fill(&bias, 0.25);
        k->experts->follow_load(bias.at, NULL, of.at, FIRST, N, E, 0.5, centred,
                                NULL);
        for (size_t i = 0; i < N; i++) {
            double want = 0.25 + 0.5 * (steps[FIRST + i] + (centred ? 0.2 : 0));
            off = fmax(off, fabs(get(&bias, i) - want));
        }
        ok(off < 1e-7 && guard_whole(&bias), "%s: biases follow loads%s",
           k->name, centred ? ", centred" : "");
    }
    values_free(&of);
    values_free(&bias);
}

int main(void)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct pp_kernels *k = tables[i];
        test_route(k, 9, 5, 2, 1, true);
        test_route(k, 9, 5, 5, 1, false);
        test_route(k, 40, 8, 3, 0, true);
        test_route(k, 11, 300, 4, 1, true);
        test_route(k, 0, 4, 2, 1, true);
        test_padding(k);
        test_parts(k);
        test_capacity(tables[i]);
        test_grouped(k);
        test_rules(k);
        test_follow_load(k);
    }
    test_given_rules();
    test_row_invariant(&pp_kernels_rows_f32);
    test_row_invariant(&pp_kernels_rows_f64);
    return done();
}
