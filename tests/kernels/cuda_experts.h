/* SPDX-License-Identifier: MIT */
/* cuda_experts - compares the kernels of experts and their routers. For
 * test_cuda.c. */
#ifndef PP_TESTS_CUDA_EXPERTS_H
#define PP_TESTS_CUDA_EXPERTS_H

#include "cuda_call.h"

/* Two sequences of 2 and N - 5 tokens. Two tokens of padding are behind the
 * first and one is behind the second; an empty one is between them. */
struct bounds {
    int32_t cu[4], padded[4];
};

static struct bounds bounds_of(size_t N)
{
    int32_t n = (int32_t)N;
    return (struct bounds){{0, 2, 2, n - 3}, {0, 3, 4, n}};
}

/* The routing of N tokens, on the host (mine) and on the device. */
struct both_routings {
    struct pp_routing host, device;
    size_t n;
};

static struct both_routings routings_new(const int32_t *given, size_t n)
{
    struct both_routings b = {.n = n};
    int32_t **host[] = {&b.host.row, &b.host.token, &b.host.expert};
    int32_t **device[] = {&b.device.row, &b.device.token, &b.device.expert};
    for (int i = 0; i < 3; i++) {
        *host[i] = malloc((n + 1) * sizeof **host[i]);
        for (size_t k = 0; k < n; k++)
            (*host[i])[k] = i == 0 && given ? given[k] : -7;
        *device[i] = ids_on_device(*host[i], n);
    }
    return b;
}

static bool same_ints(const int32_t *host, const int32_t *device, size_t n)
{
    int32_t *got = malloc((n + 1) * sizeof *got);
    gpu_get(got, device, n * sizeof *got);
    bool same = !memcmp(got, host, n * sizeof *got);
    free(got);
    return same;
}

static bool same_routings(const struct both_routings *b)
{
    return same_ints(b->host.row, b->device.row, b->n) &&
           same_ints(b->host.token, b->device.token, b->n) &&
           same_ints(b->host.expert, b->device.expert, b->n);
}

static void routings_free(struct both_routings *b)
{
    free(b->host.row);
    free(b->host.token);
    free(b->host.expert);
    gpu_free(b->device.row);
    gpu_free(b->device.token);
    gpu_free(b->device.expert);
}

/* Compares the auxiliary losses of the tokens of the second sequence. */
static void compare_losses(struct call *c, const struct both_routings *r,
                           struct tensor *logits, struct tensor *probs,
                           size_t N, size_t E, size_t K, bool sigmoid)
{
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    struct tensor *load = in(c, ACCUMULATED, E), *dx = in(c, ELEMENT, N * E);
    struct tensor *dz = in(c, ELEMENT, N * E);
    struct tensor *one = in(c, DOUBLES, 1), *two = in(c, DOUBLES, 1);
    size_t first = 4, end = N - 1;
    void *s = gpu_stream();
    int rc = k->load(load->at, &r->device, first, end, E, K, s) ||
             k->balance_fwd(one->at, load->at, probs->at, sigmoid, 0.5, first,
                            end, E, s) ||
             k->balance_bwd(dx->at, load->at, probs->at, sigmoid, 0.5, first,
                            end, E, s) ||
             k->logit_size_fwd(two->at, logits->at, 0.5, first, end, E, s) ||
             k->logit_size_bwd(dz->at, logits->at, 0.5, first, end, E, s);
    f->load(load->want, &r->host, first, end, E, K, NULL);
    f->balance_fwd(one->want, load->want, probs->want, sigmoid, 0.5, first, end,
                   E, NULL);
    f->balance_bwd(dx->want, load->want, probs->want, sigmoid, 0.5, first, end,
                   E, NULL);
    f->logit_size_fwd(two->want, logits->want, 0.5, first, end, E, NULL);
    f->logit_size_bwd(dz->want, logits->want, 0.5, first, end, E, NULL);
    ok(!rc, "%s losses of routers run", c->k->name);
    close_to(c, load, 1e-13, "load");
    close_to(c, one, 1e-11, "balance_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "balance_bwd");
    close_to(c, two, 1e-11, "logit_size_fwd");
    close_to(c, dz, bound_of(c, 1e-5, 1e-11), "logit_size_bwd");
}

/* Compares what goes from tokens to rows and back. */
static void compare_rows(struct call *c, const struct both_routings *r,
                         struct tensor *weight, size_t N, size_t K, size_t C,
                         size_t R)
{
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    struct tensor *x = in(c, ELEMENT, N * C), *y = out(c, ELEMENT, N * C);
    struct tensor *plain = in(c, ELEMENT, N * C);
    struct tensor *rows = out(c, ELEMENT, R * C), *d = in(c, ELEMENT, R * C);
    struct tensor *heavy = out(c, ELEMENT, R * C);
    struct tensor *dw = out(c, ACCUMULATED, R);
    void *s = gpu_stream();
    const int32_t *to = r->device.token, *from = r->device.row;
    int rc = k->spread(rows->at, x->at, NULL, to, R, C, s) ||
             k->spread(heavy->at, x->at, weight->at, to, R, C, s) ||
             k->combine(y->at, rows->at, weight->at, from, N, K, C, false, s) ||
             k->combine(plain->at, rows->at, NULL, from, N, K, C, true, s) ||
             k->weigh_bwd(dw->at, d->at, rows->at, weight->at, R, C, s);
    f->spread(rows->want, x->want, NULL, r->host.token, R, C, NULL);
    f->spread(heavy->want, x->want, weight->want, r->host.token, R, C, NULL);
    f->combine(y->want, rows->want, weight->want, r->host.row, N, K, C, false,
               NULL);
    f->combine(plain->want, rows->want, NULL, r->host.row, N, K, C, true, NULL);
    f->weigh_bwd(dw->want, d->want, rows->want, weight->want, R, C, NULL);
    ok(!rc, "%s rows of %zu run", c->k->name, C);
    close_to(c, rows, 0, "spread");
    close_to(c, heavy, bound_of(c, 1e-5, 1e-12), "spread, weighted");
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "combine");
    close_to(c, plain, bound_of(c, 1e-5, 1e-11),
             "combine without weights, added");
    close_to(c, dw, 1e-11, "weigh_bwd weight");
    close_to(c, d, bound_of(c, 1e-5, 1e-11), "weigh_bwd");
}

/* Few different logits, so that there are ties. With `given`, experts are those
 * of the tokens in descending order. The tokens are those from `first` on. */
static void compare_route(struct call *c, size_t first, size_t N, size_t E,
                          size_t K, size_t C, struct pp_router rule, bool given)
{
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    struct tensor *x = in(c, ACCUMULATED, N * E), *b = in(c, ELEMENT, E);
    struct tensor *probs = out(c, ACCUMULATED, N * E);
    struct tensor *weight = out(c, ACCUMULATED, N * K);
    struct tensor *dw = in(c, ACCUMULATED, N * K), *dx = out(c, ELEMENT, N * E);
    size_t end = first + N, real = 0;
    struct bounds at = bounds_of(end);
    int32_t *fixed = calloc(N * K + 1, sizeof *fixed);
    int32_t *cu = ids_on_device(at.cu, 4),
            *padded = ids_on_device(at.padded, 4);
    const struct pp_real_tokens here = {3, at.cu, at.padded, first},
                                there = {3, cu, padded, first};
    void *s = gpu_stream();
    for (size_t i = 0; i < N * E; i++)
        x->want[i] = rint(4 * x->want[i]) / 4;
    upload(x);
    for (size_t t = 0; t < N; t++) {
        size_t place = first + t;
        bool is_real = place != 2 && place != 3 && place + 1 != end;
        for (size_t j = 0; j < K; j++)
            fixed[t * K + j] = is_real ? (int32_t)((t + K - 1 - j) % E) : -1;
        real += is_real;
    }
    struct both_routings r = routings_new(given ? fixed : NULL, N * K);
    bool biased = rule.sigmoid;
    int rc =
        k->route_fwd(probs->at, weight->at, &r.device, x->at,
                     biased ? b->at : NULL, &there, N, E, K, &rule, given, s) ||
        k->route_bwd(dx->at, dw->at, probs->at, &r.device, N, E, K, &rule, s);
    f->route_fwd(probs->want, weight->want, &r.host, x->want,
                 biased ? b->want : NULL, &here, N, E, K, &rule, given, NULL);
    f->route_bwd(dx->want, dw->want, probs->want, &r.host, N, E, K, &rule,
                 NULL);
    ok(!rc && same_routings(&r), "%s the rows of %zu of %zu experts%s",
       c->k->name, K, E, given ? ", given" : "");
    close_to(c, probs, 1e-12, "route_fwd scores");
    close_to(c, weight, 1e-12, "route_fwd weights");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "route_bwd");
    if (first == 0)
        compare_losses(c, &r, x, probs, N, E, K, rule.sigmoid);
    compare_rows(c, &r, weight, N, K, C, real * K);
    free(fixed);
    gpu_free(cu);
    gpu_free(padded);
    routings_free(&r);
    finish(c);
}

static void compare_scores(struct call *c, size_t N, size_t C, size_t E)
{
    struct tensor *x = in(c, ELEMENT, N * C), *w = in(c, ELEMENT, E * C);
    struct tensor *b = in(c, ELEMENT, E), *y = out(c, ACCUMULATED, N * E);
    struct tensor *z = out(c, ACCUMULATED, N * E);
    void *s = gpu_stream();
    int rc = c->k->experts->scores(y->at, x->at, w->at, b->at, N, C, E, s) ||
             c->k->experts->scores(z->at, x->at, w->at, NULL, N, C, E, s);
    ref->experts->scores(y->want, x->want, w->want, b->want, N, C, E, NULL);
    ref->experts->scores(z->want, x->want, w->want, NULL, N, C, E, NULL);
    ok(!rc, "%s scores of %zu experts run", c->k->name, E);
    close_to(c, y, 1e-11, "scores"); /* not rounded to bf16 */
    close_to(c, z, 1e-11, "scores without bias");
    finish(c);
}

/* Two of five experts have no rows. */
/* With a stride of whole packs the products go in one call, those of weight
 * gradients in fp32 and without biases. */
static void compare_grouped(struct call *c, size_t C, size_t OC, bool packed)
{
    enum { R = 12, E = 5 };
    static const int32_t expert[R] = {0, 0, 0, 0, 2, 3, 3, 3, 3, 3, 3, 3};
    static const int32_t counts[E] = {4, 0, 1, 7, 0};
    size_t stride = C * OC + OC + (packed ? 0 : 3);
    struct tensor *x = in(c, ELEMENT, R * C), *y = out(c, ELEMENT, R * OC);
    struct tensor *dy = in(c, ELEMENT, R * OC), *dx = out(c, ELEMENT, R * C);
    struct tensor *w = in(c, ELEMENT, E * stride);
    struct tensor *b = in(c, ELEMENT, E * stride);
    struct tensor *dw = in(c, ACCUMULATED, E * stride);
    struct tensor *first = in(c, ACCUMULATED, E * stride);
    struct tensor *db = packed ? NULL : in(c, ACCUMULATED, E * stride);
    struct tensor *dot = in(c, ACCUMULATED, R);
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    int32_t *there = ids_on_device(expert, R), *of = ids_on_device(expert, R);
    const struct pp_routing all = {NULL, there, there};
    const struct pp_expert_rows rows = {R, there, counts, E},
                                want = {R, expert, NULL, E};
    void *s = gpu_stream();
    int rc =
        k->grouped_fwd(y->at, x->at, w->at, b->at, &rows, C, OC, stride, s) ||
        k->grouped_bwd_input(dx->at, dy->at, w->at, &rows, C, OC, stride, s) ||
        k->grouped_bwd_weight(dw->at, db ? db->at : NULL, dy->at, x->at, &rows,
                              C, OC, stride, false, s) ||
        k->grouped_bwd_weight(first->at, db ? db->at : NULL, dy->at, x->at,
                              &rows, C, OC, stride, true, s) ||
        k->bias_dot(dot->at, dy->at, b->at, there, R, OC, stride, s) ||
        k->count(of, &all, R, E, s);
    f->grouped_fwd(y->want, x->want, w->want, b->want, &want, C, OC, stride,
                   NULL);
    f->grouped_bwd_input(dx->want, dy->want, w->want, &want, C, OC, stride,
                         NULL);
    f->grouped_bwd_weight(dw->want, db ? db->want : NULL, dy->want, x->want,
                          &want, C, OC, stride, false, NULL);
    f->grouped_bwd_weight(first->want, db ? db->want : NULL, dy->want, x->want,
                          &want, C, OC, stride, true, NULL);
    f->bias_dot(dot->want, dy->want, b->want, expert, R, OC, stride, NULL);
    ok(!rc && same_ints(counts, of, E), "%s products of groups run",
       c->k->name);
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "grouped_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "grouped_bwd_input");
    close_to(c, dw, 1e-11, "grouped_bwd_weight");
    close_to(c, first, 1e-11, "grouped_bwd_weight, writing");
    if (db)
        close_to(c, db, 1e-11, "grouped_bwd_weight bias");
    close_to(c, dot, 1e-11, "bias_dot");
    gpu_free(there);
    gpu_free(of);
    finish(c);
}

/* Three ranks send rows to the second of three, which has two experts. */
static void compare_arrivals(struct call *c)
{
    enum { P = 3, E = 6, FIRST = 2, N = 2, R = 15 };
    static const int32_t counts[P * E] = {9, 9, 3, 0, 9, 9, 9, 9, 1,
                                          4, 9, 9, 9, 9, 2, 5, 9, 9};
    int32_t arrival[R], expert[R];
    int32_t *of = ids_on_device(counts, P * E);
    int32_t *at = ids_on_device(arrival, R), *to = ids_on_device(expert, R);
    const struct pp_expert_kernels *k = c->k->experts;
    int rc = k->arrivals(at, to, of, P, E, FIRST, N, gpu_stream());
    ref->experts->arrivals(arrival, expert, counts, P, E, FIRST, N, NULL);
    ok(!rc && same_ints(arrival, at, R) && same_ints(expert, to, R),
       "%s arrivals", c->k->name);
    gpu_free(of);
    gpu_free(at);
    gpu_free(to);
}

/* A third of the values are beyond the limit. */
static void compare_activations(struct call *c, size_t R, size_t C)
{
    const struct pp_clamp by = {.limit = 1, .gain = 1.702};
    struct tensor *gu = in(c, ELEMENT, R * 2 * C), *dy = in(c, ELEMENT, R * C);
    struct tensor *y = out(c, ELEMENT, R * C), *dx = out(c, ELEMENT, R * 2 * C);
    struct tensor *gate = out(c, ACCUMULATED, R), *d = in(c, ACCUMULATED, R);
    struct tensor *dgate = out(c, ELEMENT, R);
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    void *s = gpu_stream();
    int rc = k->clamped_swiglu_fwd(y->at, gu->at, R, C, &by, s) ||
             k->clamped_swiglu_bwd(dx->at, dy->at, gu->at, R, C, &by, s) ||
             k->gate_fwd(gate->at, dy->at, R, s) ||
             k->gate_bwd(dgate->at, d->at, gate->at, R, s);
    f->clamped_swiglu_fwd(y->want, gu->want, R, C, &by, NULL);
    f->clamped_swiglu_bwd(dx->want, dy->want, gu->want, R, C, &by, NULL);
    f->gate_fwd(gate->want, dy->want, R, NULL);
    f->gate_bwd(dgate->want, d->want, gate->want, R, NULL);
    ok(!rc, "%s activations of %zu x %zu run", c->k->name, R, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "clamped_swiglu_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "clamped_swiglu_bwd");
    close_to(c, gate, 1e-12, "gate_fwd");
    close_to(c, dgate, bound_of(c, 1e-5, 1e-11), "gate_bwd");
    finish(c);
}

static void compare_sinks(struct call *c, size_t N, size_t NH, size_t HD)
{
    size_t ld = NH * HD + 3;
    struct tensor *d = in(c, ELEMENT, N * ld), *o = in(c, ELEMENT, N * ld);
    struct tensor *lse = in(c, ACCUMULATED, N * NH), *w = in(c, ELEMENT, NH);
    struct tensor *ds = out(c, ACCUMULATED, N * NH),
                  *dw = in(c, ACCUMULATED, NH);
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    void *s = gpu_stream();
    int rc = k->sinks_bwd_input(ds->at, d->at, o->at, lse->at, w->at, N, NH, HD,
                                ld, s) ||
             k->add_rows(dw->at, ds->at, N, NH, s);
    f->sinks_bwd_input(ds->want, d->want, o->want, lse->want, w->want, N, NH,
                       HD, ld, NULL);
    f->add_rows(dw->want, ds->want, N, NH, NULL);
    ok(!rc, "%s sinks of %zu heads run", c->k->name, NH);
    close_to(c, ds, 1e-11, "sinks_bwd_input");
    close_to(c, dw, 1e-11, "add_rows");
    finish(c);
}

/* Loads are integers, some of which are the mean. */
static void compare_follow_load(struct call *c, bool centred)
{
    enum { E = 9, FIRST = 2, N = 6 };
    struct tensor *load = in(c, ACCUMULATED, E), *bias = in(c, ELEMENT, N);
    struct tensor *master = in(c, ACCUMULATED, N);
    bool small = c->k->element_bytes < c->k->accumulator_bytes;
    double sum = 0;
    memcpy(master->want, bias->want, N * sizeof(double));
    upload(master);
    for (size_t e = 0; e + 1 < E; e++)
        sum += load->want[e] = (double)(e % 4);
    load->want[E - 1] = 2 * E - sum;
    upload(load);
    int rc = 0;
    for (int i = 0; i < 8; i++) {
        rc = rc || c->k->experts->follow_load(
                       bias->at, small ? master->at : NULL, load->at, FIRST, N,
                       E, 0.001, centred, gpu_stream());
        ref->experts->follow_load(bias->want, NULL, load->want, FIRST, N, E,
                                  0.001, centred, NULL);
    }
    ok(!rc, "%s follow_load runs", c->k->name);
    close_to(c, bias, bound_of(c, 1e-5, 1e-12), "follow_load");
    if (small) {
        memcpy(master->want, bias->want, N * sizeof(double));
        close_to(c, master, 1e-12, "follow_load master");
    }
    finish(c);
}

static void compare_experts(struct call *c)
{
    const struct pp_router groups = {.sigmoid = true,
                                     .norm = true,
                                     .two_best = true,
                                     .n_groups = 40,
                                     .kept_groups = 3,
                                     .scale = 2.5},
                           best = {.n_groups = 4, .kept_groups = 2};
    compare_route(c, 0, 9, 5, 2, 7, (struct pp_router){.norm = true}, false);
    compare_route(c, 3, 9, 5, 2, 7, (struct pp_router){.norm = true}, false);
    compare_route(c, 1, 40, 8, 3, 8, best, true);
    compare_route(c, 0, 9, 8, 3, 2056, best, true);
    compare_route(c, 0, 70, 8, 3, 8, best, false);
    compare_route(c, 0, 40, 320, 9, 24, groups, false);
    compare_scores(c, 33, 40, 24);
    compare_scores(c, 5, 7, 3);
    compare_grouped(c, 24, 16, true);
    compare_grouped(c, 24, 16, false);
    compare_grouped(c, 7, 5, false);
    compare_arrivals(c);
    compare_activations(c, 11, 7);
    compare_sinks(c, 9, 3, 40);
    compare_follow_load(c, false);
    compare_follow_load(c, true);
}

#endif
