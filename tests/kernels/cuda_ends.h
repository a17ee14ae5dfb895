/* SPDX-License-Identifier: MIT */
/* cuda_ends - compares the kernels of the embedding and of the head. For
 * test_cuda.c. */
#ifndef PP_TESTS_CUDA_ENDS_H
#define PP_TESTS_CUDA_ENDS_H

#include "cuda_call.h"

static void compare_embedding(struct call *c, size_t N, size_t C, size_t V)
{
    struct tensor *w = in(c, ELEMENT, V * C), *dy = in(c, ELEMENT, N * C);
    struct tensor *y = out(c, ELEMENT, N * C), *dw = in(c, ACCUMULATED, V * C);
    struct tensor *rows = in(c, ELEMENT, V * C), *sum = in(c, ELEMENT, N * C);
    int32_t *ids = malloc((N + V + 1) * sizeof *ids);
    for (size_t i = 0; i < N; i++)
        ids[i] = (int32_t)(i * i % (V + 1)) - 1;
    int32_t *at = ids_on_device(ids, N);
    void *s = gpu_stream();
    int rc = c->k->embedding_fwd(y->at, at, w->at, N, C, s) ||
             c->k->embedding_add(sum->at, at, w->at, N, C, s) ||
             c->k->embedding_bwd_weight(dw->at, dy->at, at, N, C, s);
    ref->embedding_fwd(y->want, ids, w->want, N, C, NULL);
    ref->embedding_add(sum->want, ids, w->want, N, C, NULL);
    ref->embedding_bwd_weight(dw->want, dy->want, ids, N, C, NULL);
    gpu_free(at);
    size_t some = N < V ? N : V;
    for (size_t i = 0; i < some; i++)
        ids[i] = (int32_t)(V - 1 - i);
    at = ids_on_device(ids, some);
    rc = rc || c->k->scatter(rows->at, dy->at, at, some, C, s);
    ref->scatter(rows->want, dy->want, ids, some, C, NULL);
    ok(!rc, "%s embedding of %zu in %zu x %zu runs", c->k->name, N, V, C);
    close_to(c, y, 0, "embedding_fwd");
    close_to(c, sum, bound_of(c, 1e-5, 1e-13), "embedding_add");
    close_to(c, dw, 1e-12, "embedding_bwd_weight");
    close_to(c, rows, 0, "scatter");
    free(ids);
    gpu_free(at);
    finish(c);
}

/* Logits are small integers, so that there are ties. */
static void compare_distribution(struct call *c, size_t N, size_t V, size_t k)
{
    bool integers = c->integers;
    c->integers = true;
    struct tensor *x = in(c, ELEMENT, N * V);
    c->integers = integers;
    struct tensor *lse = out(c, ACCUMULATED, N), *logp = out(c, ACCUMULATED, N);
    struct tensor *h = out(c, ACCUMULATED, N);
    struct tensor *best = out(c, ACCUMULATED, N * k);
    int32_t *ids = calloc(N * k + 1, sizeof *ids), *got = calloc(N * k + 1, 4);
    int32_t *zeros = ids_on_device(ids, N), *at = ids_on_device(ids, N * k);
    void *s = gpu_stream();
    int rc =
        c->k->cross_entropy_fwd(lse->at, logp->at, x->at, zeros, N, V, s) ||
        c->k->entropy(h->at, x->at, lse->at, N, V, s) ||
        c->k->top_k(best->at, at, x->at, N, V, k, s);
    ref->cross_entropy_fwd(lse->want, logp->want, x->want, ids, N, V, NULL);
    ref->entropy(h->want, x->want, lse->want, N, V, NULL);
    ref->top_k(best->want, ids, x->want, N, V, k, NULL);
    gpu_get(got, at, N * k * sizeof *got);
    ok(!rc && !memcmp(got, ids, N * k * sizeof *ids),
       "%s the ids of the %zu largest of %zu", c->k->name, k, V);
    close_to(c, h, 1e-11, "entropy");
    close_to(c, best, 0, "top_k");
    gpu_free(zeros);
    gpu_free(at);
    free(ids);
    free(got);
    finish(c);
}

/* Some words are those of another rank. */
static void compare_soft_targets(struct call *c, size_t N, size_t V, size_t k,
                                 double cap)
{
    struct tensor *x = in(c, ELEMENT, N * V), *w = in(c, ACCUMULATED, N * k);
    struct tensor *lse = in(c, ACCUMULATED, N), *logp = in(c, ACCUMULATED, N);
    struct tensor *scale = in(c, ACCUMULATED, N);
    int32_t *ids = calloc(N * k + 1, sizeof *ids);
    for (size_t i = 0; i < N * k; i++)
        ids[i] = i % 5 == 3 ? -1 : (int32_t)((i / k + i % k * (V / k)) % V);
    int32_t *at = ids_on_device(ids, N * k);
    void *s = gpu_stream();
    int rc = c->k->soft_targets_fwd(logp->at, x->at, lse->at, at, w->at, N, V,
                                    k, s) ||
             c->k->soft_targets_bwd(x->at, lse->at, at, w->at, scale->at, N, V,
                                    k, cap, s);
    ref->soft_targets_fwd(logp->want, x->want, lse->want, ids, w->want, N, V, k,
                          NULL);
    ref->soft_targets_bwd(x->want, lse->want, ids, w->want, scale->want, N, V,
                          k, cap, NULL);
    ok(!rc, "%s soft targets, %zu of %zu, cap %g, run", c->k->name, k, V, cap);
    close_to(c, logp, 1e-11, "soft_targets_fwd");
    close_to(c, x, bound_of(c, 1e-5, 1e-11), "soft_targets_bwd");
    gpu_free(at);
    free(ids);
    finish(c);
}

static void compare_merge(struct call *c, size_t N, size_t P)
{
    struct tensor *parts = in(c, ACCUMULATED, P * 2 * N);
    struct tensor *lse = out(c, ACCUMULATED, N), *logp = out(c, ACCUMULATED, N);
    int rc = c->k->cross_entropy_merge(lse->at, logp->at, parts->at, N, P,
                                       gpu_stream());
    ref->cross_entropy_merge(lse->want, logp->want, parts->want, N, P, NULL);
    ok(!rc, "%s cross_entropy_merge of %zu x %zu runs", c->k->name, N, P);
    close_to(c, lse, 1e-12, "cross_entropy_merge lse");
    close_to(c, logp, 1e-12, "cross_entropy_merge logp");
    finish(c);
}

/* The bits are those of the CPU: a sum of doubles in the order of the rows. */
static void compare_sum(struct call *c, size_t N)
{
    struct tensor *logp = in(c, ACCUMULATED, N);
    double want = 0.7, got = want;
    float *rows = calloc(N + 1, sizeof *rows);
    double *sum = gpu_alloc(sizeof *sum);
    gpu_put(sum, &got, sizeof got);
    gpu_get(rows, logp->at, N * sizeof *rows);
    int rc = c->k->cross_entropy_add(sum, logp->at, 1 / 3.0, N, gpu_stream());
    pp_kernels_f32.cross_entropy_add(&want, rows, 1 / 3.0, N, NULL);
    gpu_get(&got, sum, sizeof got);
    ok(!rc && !memcmp(&got, &want, sizeof got),
       "%s cross_entropy_add of %zu: %.17g, of the CPU %.17g", c->k->name, N,
       got, want);
    gpu_free(sum);
    free(rows);
    finish(c);
}

/* cap: softcap makes the logits; 0: it does not. */
static void compare_cross_entropy(struct call *c, size_t N, size_t V,
                                  double cap)
{
    struct tensor *x = in(c, ELEMENT, N * V);
    struct tensor *lse = out(c, ACCUMULATED, N), *logp = out(c, ACCUMULATED, N);
    struct tensor *scale = in(c, ACCUMULATED, N);
    int32_t *targets = malloc((N + 1) * sizeof *targets);
    for (size_t i = 0; i < N; i++)
        targets[i] = (int32_t)((i * 7 + 3) % V);
    int32_t *at = ids_on_device(targets, N);
    void *s = gpu_stream();
    int rc = cap > 0 ? c->k->softcap(x->at, cap, N * V, s) : 0;
    if (cap > 0)
        ref->softcap(x->want, cap, N * V, NULL);
    ref->cross_entropy_fwd(lse->want, logp->want, x->want, targets, N, V, NULL);
    /* Without a target, in backward alone: no NMSE has infinities. */
    targets[N - 1] = -1;
    int32_t *masked = ids_on_device(targets, N);
    rc = rc || c->k->cross_entropy_fwd(lse->at, logp->at, x->at, at, N, V, s) ||
         c->k->cross_entropy_bwd(x->at, lse->at, masked, scale->at, N, V, cap,
                                 s);
    ref->cross_entropy_bwd(x->want, lse->want, targets, scale->want, N, V, cap,
                           NULL);
    gpu_free(masked);
    ok(!rc, "%s cross_entropy of %zu x %zu, cap %g, runs", c->k->name, N, V,
       cap);
    /* softcap rounds the logits to elements. */
    double bound = cap > 0 ? bound_of(c, 1e-5, 1e-11) : 1e-12;
    close_to(c, lse, bound, "cross_entropy_fwd lse");
    close_to(c, logp, bound, "cross_entropy_fwd logp");
    close_to(c, x, bound_of(c, 1e-5, 1e-12), "cross_entropy_bwd");
    free(targets);
    gpu_free(at);
    finish(c);
}

#endif
