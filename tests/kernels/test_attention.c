/* SPDX-License-Identifier: MIT */
/* test_attention - attention against straight loops and, on small shapes,
 * against finite differences: groups, windows, sinks, widths, padding, caps. */
#include "values.h"

#define MAX_SEQUENCES 6

struct shape_case {
    const char *name;
    size_t NH, NKV, HDQK, HDV, gap; /* gap: elements between rows */
    size_t window;
    bool sinks;
    size_t n;
    int real[MAX_SEQUENCES], padded[MAX_SEQUENCES];
    int chunks; /* if not 0: two sequences are the first and the last of so many
                   chunks of one, and share its keys */
    bool whole;
    double cap;
    bool chunked; /* the window is a chunk of positions */
};

static const struct shape_case cases[] = {
    {"plain", 2, 2, 4, 4, 0, 0, 0, 2, {3, 5}, {3, 5}},
    {"padding", 2, 1, 4, 4, 0, 0, 0, 4, {3, 0, 1, 4}, {4, 2, 1, 8}},
    {"groups, gaps", 6, 2, 3, 3, 5, 0, 0, 2, {7, 2}, {8, 2}},
    {"widths", 2, 1, 5, 3, 2, 0, 0, 1, {6}, {6}},
    {"window 1", 2, 2, 4, 4, 0, 1, 0, 1, {6}, {7}},
    {"window 3, sinks", 4, 2, 4, 4, 1, 3, 1, 2, {9, 4}, {9, 6}},
    {"sinks", 3, 1, 4, 6, 0, 0, 1, 2, {5, 1}, {6, 1}},
    {"large group", 20, 1, 3, 4, 2, 0, 1, 2, {6, 1}, {6, 3}},
    {"chunks", 2, 1, 4, 4, 1, 0, 0, 4, {3, 2, 2, 0}, {3, 3, 2, 2}, 4},
    {"chunks, window", 2, 2, 4, 3, 0, 5, 0, 2, {4, 4}, {4, 4}, 4},
    {"whole",
     4,
     2,
     3,
     4,
     2,
     0,
     0,
     4,
     {5, 1, 0, 3},
     {6, 1, 2, 3},
     .whole = true},
    {"cap", 4, 2, 4, 4, 1, 3, 1, 2, {7, 3}, {8, 3}, .cap = 0.8},
    {"chunk 3", 4, 2, 4, 4, 1, 3, 0, 2, {10, 4}, {11, 6}, .chunked = true},
    {"chunks, chunk 3",
     2,
     2,
     4,
     3,
     0,
     3,
     0,
     2,
     {4, 4},
     {4, 4},
     4,
     .chunked = true},
    {"blocks, chunk 100",
     2,
     1,
     16,
     8,
     0,
     100,
     1,
     2,
     {700, 128},
     {700, 130},
     .chunked = true},
    {"blocks", 2, 1, 17, 17, 0, 0, 0, 3, {129, 64, 65}, {136, 64, 72}},
    {"more blocks", 3, 3, 64, 64, 3, 0, 0, 2, {600, 17}, {600, 20}},
    {"blocks, chunks", 4, 2, 16, 8, 3, 0, 0, 2, {130, 97}, {130, 130}, 6},
    {"blocks, window", 2, 1, 16, 8, 0, 100, 1, 2, {700, 128}, {700, 130}},
    {"blocks, wide window", 2, 2, 8, 8, 0, 531, 0, 1, {1085}, {1090}},
    {"blocks, large groups", 34, 2, 5, 8, 1, 0, 0, 2, {40, 81}, {48, 81}},
    {"blocks, whole",
     3,
     1,
     17,
     8,
     1,
     0,
     0,
     3,
     {150, 64, 577},
     {152, 64, 580},
     .whole = true},
    {"blocks, cap", 3, 1, 16, 8, 1, 150, 0, 1, {341}, {350}, .cap = 1.5},
    {"no sequences", 2, 1, 4, 4, 0, 0, 0, 0, {0}, {0}},
};
#define N_CASES (sizeof cases / sizeof *cases)
#define N_SMALL 12 /* cases small enough for finite differences */

/* Arguments, gradients and scratch of one call. */
struct call {
    const struct pp_kernels *k;
    struct pp_attention_shape s;
    int32_t cu[MAX_SEQUENCES + 1], cu_padded[MAX_SEQUENCES + 1];
    struct pp_attention_keys keys[MAX_SEQUENCES];
    bool with_sinks;
    struct values q, kk, v, sinks, o, lse, dq, dk, dv, dout, scratch;
};

/* Lists the keys of the sequences, and returns their rows. */
static size_t set_keys(struct call *c, const struct shape_case *t)
{
    int32_t first = 0;
    for (size_t i = 0; i < t->n; i++) {
        int32_t position = 0;
        if (t->chunks && i % 2)
            position = (t->chunks - 1) * t->padded[i];
        c->keys[i] =
            (struct pp_attention_keys){first, position + t->real[i], position};
        if (!t->chunks || i % 2)
            first += position + t->padded[i];
    }
    return (size_t)first;
}

static void call_init(struct call *c, const struct shape_case *t,
                      const struct pp_kernels *k, size_t shift)
{
    *c = (struct call){.k = k, .with_sinks = t->sinks};
    for (size_t i = 0; i < t->n; i++) {
        c->cu[i + 1] = c->cu[i] + t->real[i];
        c->cu_padded[i + 1] = c->cu_padded[i] + t->padded[i];
    }
    size_t N = (size_t)c->cu_padded[t->n], width = t->HDQK;
    size_t NK = set_keys(c, t);
    width = t->HDV > width ? t->HDV : width;
    c->s = (struct pp_attention_shape){
        .N = N,
        .NH = t->NH,
        .NKV = t->NKV,
        .HDQK = t->HDQK,
        .HDV = t->HDV,
        .ldq = t->NH * t->HDQK + t->gap,
        .ldkv = t->NKV * width + t->gap,
        .ldo = t->NH * t->HDV + t->gap,
        .n_sequences = t->n,
        .cu = c->cu,
        .cu_padded = c->cu_padded,
        .scale = 0.4,
        .window = t->window,
        .chunked = t->chunked,
        .whole = t->whole,
        .cap = t->cap,
        .keys = t->chunks ? c->keys : NULL,
        .NK = NK,
        .share = 2,
    };
    c->q = values_new(k, N * c->s.ldq, shift);
    c->kk = values_new(k, NK * c->s.ldkv, shift);
    c->v = values_new(k, NK * c->s.ldkv, shift);
    c->sinks = values_new(k, t->NH, shift);
    c->o = values_new(k, N * c->s.ldo, shift);
    c->dout = values_new(k, N * c->s.ldo, shift);
    c->lse = values_new(k, N * t->NH, shift);
    c->dq = values_new(k, c->q.n, shift);
    c->dk = values_new(k, c->kk.n, shift);
    c->dv = values_new(k, c->v.n, shift);
    c->scratch = values_new(k, k->attention_scratch(&c->s), shift);
    fill_normal(&c->q, "q", 1);
    fill_normal(&c->kk, "k", 1);
    fill_normal(&c->v, "v", 1);
    fill_normal(&c->sinks, "sinks", 1);
    fill_normal(&c->dout, "dout", 1);
    /* Numbers between rows must not change. */
    struct values *out[] = {&c->o, &c->dq, &c->dk, &c->dv};
    for (size_t i = 0; i < 4; i++)
        fill(out[i], 9);
}

static void call_finish(struct call *c)
{
    struct values *all[] = {&c->q,  &c->kk,   &c->v,      &c->sinks,
                            &c->o,  &c->lse,  &c->dq,     &c->dk,
                            &c->dv, &c->dout, &c->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        values_free(all[i]);
}

/* Old contents of the scratch must not matter. A maximum ignores NaN, but not
 * this. */
static void call_forward(struct call *c)
{
    fill(&c->scratch, 1e30);
    if (c->k->attention_fwd(c->o.at, c->lse.at, c->q.at, c->kk.at, c->v.at,
                            c->with_sinks ? c->sinks.at : NULL, &c->s,
                            c->scratch.at, NULL))
        abort();
}

static void call_backward(struct call *c)
{
    if (c->k->attention_bwd(c->dq.at, c->dk.at, c->dv.at, c->dout.at, c->q.at,
                            c->kk.at, c->v.at, c->o.at, c->lse.at, &c->s,
                            c->scratch.at, NULL))
        abort();
}

/* Adds x to element i. */
static void bump(struct values *v, size_t i, double x)
{
    set(v, i, get(v, i) + x);
}

/* Computes row `t` of head h with simple loops in double, over n keys from row
 * `from` on, and its part of backward. */
static void naive_row(struct call *c, size_t from, size_t n, size_t t, size_t h)
{
    const struct pp_attention_shape *s = &c->s;
    size_t kv = h / (s->NH / s->NKV);
    double *p = calloc(3 * n, sizeof *p), *dp = p + n, *slope = dp + n;
    double sum = c->with_sinks ? exp(get(&c->sinks, h)) : 0, d = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < s->HDQK; i++)
            p[j] += get(&c->q, t * s->ldq + h * s->HDQK + i) *
                    get(&c->kk, (from + j) * s->ldkv + kv * s->HDQK + i) *
                    s->scale;
        if (s->cap > 0)
            p[j] = s->cap * tanh(p[j] / s->cap);
        slope[j] = s->cap > 0 ? 1 - p[j] * p[j] / (s->cap * s->cap) : 1;
        sum += exp(p[j]);
    }
    set(&c->lse, t * s->NH + h, log(sum));
    for (size_t j = 0; j < n; j++) {
        p[j] = exp(p[j]) / sum;
        for (size_t i = 0; i < s->HDV; i++) {
            size_t at_v = (from + j) * s->ldkv + kv * s->HDV + i;
            size_t at_o = t * s->ldo + h * s->HDV + i;
            bump(&c->o, at_o, p[j] * get(&c->v, at_v));
            bump(&c->dv, at_v, p[j] * get(&c->dout, at_o));
            dp[j] += get(&c->dout, at_o) * get(&c->v, at_v);
        }
        d += p[j] * dp[j];
    }
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < s->HDQK; i++) {
            size_t at_q = t * s->ldq + h * s->HDQK + i;
            size_t at_k = (from + j) * s->ldkv + kv * s->HDQK + i;
            double ds = p[j] * (dp[j] - d) * slope[j] * s->scale;
            bump(&c->dq, at_q, ds * get(&c->kk, at_k));
            bump(&c->dk, at_k, ds * get(&c->q, at_q));
        }
    free(p);
}

/* Clears the columns that a kernel writes, but not the gaps between them. */
static void clear_columns(struct values *v, size_t ld, size_t width)
{
    for (size_t i = 0; i < v->n; i++)
        if (i % ld < width)
            set(v, i, 0);
}

static void naive(struct call *c)
{
    const struct pp_attention_shape *s = &c->s;
    fill(&c->lse, 0);
    clear_columns(&c->o, s->ldo, s->NH * s->HDV);
    clear_columns(&c->dq, s->ldq, s->NH * s->HDQK);
    clear_columns(&c->dk, s->ldkv, s->NKV * s->HDQK);
    clear_columns(&c->dv, s->ldkv, s->NKV * s->HDV);
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t first = (size_t)c->cu_padded[i];
        size_t n = (size_t)(c->cu[i + 1] - c->cu[i]);
        size_t key = (size_t)c->keys[i].first;
        for (size_t t = 0; t < n; t++)
            for (size_t h = 0; h < s->NH; h++) {
                size_t end = (size_t)c->keys[i].position + t + 1;
                size_t w = s->window, from = w && end > w ? end - w : 0;
                if (s->chunked)
                    from = (end - 1) / w * w;
                naive_row(c, key + from, s->whole ? n : end - from, first + t,
                          h);
            }
    }
}

static bool calls_near(const struct call *got, const struct call *want,
                       double bound)
{
    return values_near(&got->o, &want->o, bound, 1, "o") &&
           values_near(&got->lse, &want->lse, bound, 1, "lse") &&
           values_near(&got->dq, &want->dq, bound, 1, "dq") &&
           values_near(&got->dk, &want->dk, bound, 1, "dk") &&
           values_near(&got->dv, &want->dv, bound, 1, "dv");
}

static bool calls_guarded(const struct call *c)
{
    return guard_whole(&c->o) && guard_whole(&c->lse) && guard_whole(&c->dq) &&
           guard_whole(&c->dk) && guard_whole(&c->dv) &&
           guard_whole(&c->scratch);
}

static void against_loops(const struct shape_case *t)
{
    struct call f32, f64, want, again;
    call_init(&f32, t, &pp_kernels_f32, 0);
    call_init(&again, t, &pp_kernels_f32, 1);
    call_init(&f64, t, &pp_kernels_f64, 0);
    call_init(&want, t, &pp_kernels_f64, 0);
    struct call *all[] = {&f32, &f64, &again};
    for (size_t i = 0; i < 3; i++) {
        call_forward(all[i]);
        call_backward(all[i]);
    }
    naive(&want);
    ok(calls_near(&f64, &want, 1e-13), "%s: fp64 is the straight loops'",
       t->name);
    ok(calls_near(&f32, &want, 2e-6), "%s: fp32 is near", t->name);
    ok(same_bits(&f32.o, &again.o) && same_bits(&f32.dq, &again.dq) &&
           same_bits(&f32.dk, &again.dk) && same_bits(&f32.dv, &again.dv),
       "%s: same bits at other addresses", t->name);
    ok(calls_guarded(&f32) && calls_guarded(&f64), "%s: writes stay inside",
       t->name);
    for (size_t i = 0; i < 3; i++)
        call_finish(all[i]);
    call_finish(&want);
}

static double scalar(struct call *c)
{
    const struct pp_attention_shape *s = &c->s;
    double sum = 0;
    call_forward(c);
    for (size_t i = 0; i < c->o.n; i++)
        if (i % s->ldo < s->NH * s->HDV)
            sum += get(&c->o, i) * get(&c->dout, i);
    return sum;
}

static bool differs_right(struct call *c, struct values *x,
                          const struct values *dx, size_t ld, size_t width,
                          const char *what)
{
    const double h = 1e-5;
    struct values d = values_new(c->k, x->n, 0);
    for (size_t i = 0; i < x->n; i++) {
        double at = get(x, i);
        set(x, i, at + h);
        double up = scalar(c);
        set(x, i, at - h);
        double down = scalar(c);
        set(x, i, at);
        set(&d, i, i % ld < width ? (up - down) / (2 * h) : 9);
    }
    bool same = values_near(dx, &d, 1e-8, 1, what);
    values_free(&d);
    return same;
}

static void against_differences(const struct shape_case *t)
{
    struct call c;
    call_init(&c, t, &pp_kernels_f64, 0);
    const struct pp_attention_shape *s = &c.s;
    call_forward(&c);
    call_backward(&c);
    ok(differs_right(&c, &c.q, &c.dq, s->ldq, s->NH * s->HDQK, "dq") &&
           differs_right(&c, &c.kk, &c.dk, s->ldkv, s->NKV * s->HDQK, "dk") &&
           differs_right(&c, &c.v, &c.dv, s->ldkv, s->NKV * s->HDV, "dv"),
       "%s: finite differences", t->name);
    call_finish(&c);
}

/* Tests scores of several hundred: exp would overflow without the maximum. */
static void large_scores(void)
{
    const struct shape_case t = {"large", 1, 1, 8, 8, 0, 0, 0, 1, {200}, {200}};
    struct call got, want;
    call_init(&got, &t, &pp_kernels_f32, 0);
    call_init(&want, &t, &pp_kernels_f64, 0);
    fill_normal(&got.q, "q", 60);
    fill_normal(&want.q, "q", 60);
    call_forward(&got);
    call_forward(&want);
    bool finite = true;
    for (size_t i = 0; i < got.o.n; i++)
        finite = finite && isfinite(get(&got.o, i));
    ok(finite && nmse(&got.o, &want.o) < 1e-8, "scores of several hundred");
    call_finish(&got);
    call_finish(&want);
}

/* Tests the softmax of one score, which is 1. Its gradient must be exactly 0,
 * because weights would otherwise follow rounding errors. */
static void lone_queries(void)
{
    const struct shape_case t = {"lone", 4, 2, 24,        24,       0,
                                 0,      0, 3, {1, 1, 1}, {1, 2, 1}};
    const struct pp_kernels *const k[] = {&pp_kernels_f32, &pp_kernels_f64};
    bool zero = true;
    for (size_t i = 0; i < 2; i++) {
        struct call c;
        call_init(&c, &t, k[i], 0);
        call_forward(&c);
        call_backward(&c);
        for (size_t j = 0; j < c.dq.n; j++)
            zero = zero && !(get(&c.dq, j) > 0) && !(get(&c.dq, j) < 0);
        for (size_t j = 0; j < c.s.N * c.s.NKV * c.s.HDQK; j++)
            zero = zero && !(get(&c.dk, j) > 0) && !(get(&c.dk, j) < 0);
        call_finish(&c);
    }
    ok(zero, "sequences of one token: no gradient of q and k");
}

int main(void)
{
    for (size_t i = 0; i < N_CASES; i++)
        against_loops(&cases[i]);
    for (size_t i = 0; i < N_SMALL; i += (size_t)fewer())
        against_differences(&cases[i]);
    large_scores();
    lone_queries();
    return done();
}
