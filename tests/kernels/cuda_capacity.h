/* SPDX-License-Identifier: MIT */
/* cuda_capacity - compares the kernels of experts with a capacity. For
 * test_cuda.c. */
#ifndef PP_TESTS_CUDA_CAPACITY_H
#define PP_TESTS_CUDA_CAPACITY_H

#include "cuda_experts.h"

/* Compares the choices that experts keep of n, every seventh of which is
 * padding. Few different weights, so that there are ties. Most choices are of
 * the first experts. */
static void compare_kept(struct call *c, size_t n, size_t E, size_t capacity,
                         bool largest)
{
    struct tensor *chosen = in(c, ACCUMULATED, n);
    struct tensor *table = in(c, ACCUMULATED, n);
    int32_t *kept = calloc(n + 1, sizeof *kept);
    int32_t *order = calloc(n + 1, sizeof *order);
    int32_t *before = calloc(E, sizeof *before);
    uint64_t key = pp_rng_key(12, "kept");
    for (size_t i = 0; i < n; i++) {
        size_t e = pp_rng_bits(key, i) % E;
        chosen->want[i] = i % 7 == 3 ? 0 : (double)(1 + e * e / E);
        table->want[i] = (double)(pp_rng_bits(key, n + i) % 5) / 4;
        kept[i] = -9;
    }
    for (size_t e = 0; e < E; e++)
        before[e] = (int32_t)(e % 3);
    upload(chosen);
    upload(table);
    int32_t *there = ids_on_device(kept, n), *room = ids_on_device(order, n);
    int32_t *earlier = ids_on_device(before, E);
    int rc = c->k->experts->keep(there, earlier, room, chosen->at,
                                 largest ? table->at : NULL, n, E, capacity,
                                 gpu_stream());
    ref->experts->keep(kept, before, order, chosen->want,
                       largest ? table->want : NULL, n, E, capacity, NULL);
    size_t keeps = 0, drops = 0;
    for (size_t i = 0; i < n; i++) {
        keeps += kept[i] >= 0;
        drops += kept[i] < -1 && kept[i] != -9;
    }
    ok(!rc && same_ints(kept, there, n) && keeps && drops,
       "%s experts keep the %s %zu of %zu choices", c->k->name,
       largest ? "largest" : "first", keeps, keeps + drops);
    free(kept);
    free(order);
    free(before);
    gpu_free(there);
    gpu_free(room);
    gpu_free(earlier);
    finish(c);
}

/* The tokens of bounds_of, and where they are in whole sequences: that of the
 * first and the last one is the second. */
struct numbered_tokens {
    int32_t *cu, *padded, *of, *whole, *position; /* on the device */
    struct pp_token_numbers host, device;
    int32_t host_position[64];
    struct bounds at;
    size_t n; /* of all ranks */
};

static void number_tokens(struct numbered_tokens *x, size_t first, size_t N,
                          bool parts)
{
    static const int32_t of[] = {1, 0, 1}, whole[] = {0, 5, 90};
    size_t end = first + N;
    x->at = bounds_of(end);
    for (size_t i = 0; i < end; i++)
        x->host_position[i] = (int32_t)(i < 2 ? 3 + i : 20 + i);
    x->cu = ids_on_device(x->at.cu, 4);
    x->padded = ids_on_device(x->at.padded, 4);
    x->of = ids_on_device(of, 3);
    x->whole = ids_on_device(whole, 3);
    x->position = ids_on_device(x->host_position, end);
    x->host = (struct pp_token_numbers){{3, x->at.cu, x->at.padded, first},
                                        parts ? of : NULL,
                                        whole,
                                        x->host_position};
    x->device = (struct pp_token_numbers){{3, x->cu, x->padded, first},
                                          parts ? x->of : NULL,
                                          x->whole,
                                          x->position};
    x->n = parts ? 90 : end;
}

/* A routing whose experts keep LEAST choices of each microbatch at most. */
enum { LEAST = 3, MOST_EXPERTS = 64 };

struct limited {
    size_t first, N, E, K, n, R; /* n choices of all ranks, R rows */
    const struct pp_router *rule;
    struct tensor *x, *probs, *weight, *chosen, *table;
    struct numbered_tokens t;
    struct both_routings r;
    int32_t *kept, *kept_there;
    int32_t counts[3][MOST_EXPERTS],
        *counts_there[3]; /* before; count; added */
};

static void limited_new(struct call *c, struct limited *l, bool parts)
{
    size_t N = l->N, end = l->first + N;
    l->x = in(c, ACCUMULATED, N * l->E);
    l->probs = out(c, ACCUMULATED, N * l->E);
    l->weight = out(c, ACCUMULATED, N * l->K);
    number_tokens(&l->t, l->first, N, parts);
    l->n = l->t.n * l->K;
    l->chosen = in(c, ACCUMULATED, l->n);
    l->table = in(c, ACCUMULATED, l->n);
    l->r = routings_new(NULL, N * l->K);
    l->kept = calloc(l->n, sizeof *l->kept);
    l->kept_there = ids_on_device(l->kept, l->n);
    for (int i = 0; i < 3; i++)
        l->counts_there[i] = ids_on_device(l->counts[i], l->E);
    for (size_t i = 0; i < N * l->E; i++) /* ties */
        l->x->want[i] = rint(4 * l->x->want[i]) / 4;
    upload(l->x);
    memset(l->chosen->want, 0, l->n * sizeof *l->chosen->want);
    upload(l->chosen);
    for (size_t at = l->first; at < end; at++)
        l->R += at != 2 && at != 3 && at + 1 != end ? l->K : 0;
}

static int limit_there(const struct call *c, struct limited *l)
{
    const struct pp_expert_kernels *k = c->k->experts;
    struct pp_routing *r = &l->r.device;
    const struct pp_real_tokens *real = &l->t.device.tokens;
    size_t N = l->N, E = l->E, K = l->K;
    void *s = gpu_stream();
    return k->route_fwd(l->probs->at, l->weight->at, r, l->x->at, NULL, real, N,
                        E, K, l->rule, false, s) ||
           k->tell_choices(l->chosen->at, l->table->at, r, l->weight->at,
                           &l->t.device, N, K, s) ||
           k->keep(l->kept_there, l->counts_there[0], NULL, l->chosen->at, NULL,
                   l->n, E, LEAST, s) ||
           k->mark_kept(r->row, l->kept_there, &l->t.device, N, K, s) ||
           k->route_fwd(l->probs->at, l->weight->at, r, l->x->at, NULL, real, N,
                        E, K, l->rule, true, s) ||
           k->count(l->counts_there[1], r, l->R, E, s) ||
           k->add_kept(l->counts_there[2], r, N, E, K, s);
}

static void limit_here(struct limited *l)
{
    const struct pp_expert_kernels *k = ref->experts;
    struct pp_routing *r = &l->r.host;
    const struct pp_real_tokens *real = &l->t.host.tokens;
    size_t N = l->N, E = l->E, K = l->K;
    k->route_fwd(l->probs->want, l->weight->want, r, l->x->want, NULL, real, N,
                 E, K, l->rule, false, NULL);
    k->tell_choices(l->chosen->want, l->table->want, r, l->weight->want,
                    &l->t.host, N, K, NULL);
    k->keep(l->kept, l->counts[0], NULL, l->chosen->want, NULL, l->n, E, LEAST,
            NULL);
    k->mark_kept(r->row, l->kept, &l->t.host, N, K, NULL);
    k->route_fwd(l->probs->want, l->weight->want, r, l->x->want, NULL, real, N,
                 E, K, l->rule, true, NULL);
    k->count(l->counts[1], r, l->R, E, NULL);
    k->add_kept(l->counts[2], r, N, E, K, NULL);
}

static void limited_free(struct limited *l)
{
    int32_t *there[] = {l->t.cu,
                        l->t.padded,
                        l->t.of,
                        l->t.whole,
                        l->t.position,
                        l->kept_there,
                        l->counts_there[0],
                        l->counts_there[1],
                        l->counts_there[2]};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        gpu_free(there[i]);
    free(l->kept);
    routings_free(&l->r);
}

/* Rows that are dropped stay as they are, or become zeros. */
static void compare_padded(struct call *c, const struct limited *l, size_t C)
{
    enum { ROWS = LEAST + 1 };
    size_t R = l->R, E = l->E;
    struct tensor *x = in(c, ELEMENT, l->N * C), *rows = out(c, ELEMENT, R * C);
    struct tensor *wide = out(c, ELEMENT, E * ROWS * C);
    struct tensor *back = out(c, ELEMENT, R * C);
    const struct pp_expert_kernels *k = c->k->experts, *f = ref->experts;
    const struct pp_routing *there = &l->r.device, *here = &l->r.host;
    void *s = gpu_stream();
    int rc = k->spread(rows->at, x->at, NULL, there->token, R, C, s) ||
             k->pad(wide->at, rows->at, there, R, E, ROWS, C, s) ||
             k->close_up(back->at, wide->at, there, R, E, ROWS, C, s);
    f->spread(rows->want, x->want, NULL, here->token, R, C, NULL);
    f->pad(wide->want, rows->want, here, R, E, ROWS, C, NULL);
    f->close_up(back->want, wide->want, here, R, E, ROWS, C, NULL);
    size_t kept = 0;
    for (size_t e = 0; e < E; e++)
        kept += (size_t)l->counts[1][e];
    bool same = true;
    for (size_t i = 0; i < R * C; i++)
        same = same && (i < kept * C ? back->want[i] == rows->want[i]
                                     : back->want[i] == 0);
    ok(!rc && same, "%s padding of rows of %zu", c->k->name, C);
    close_to(c, rows, 0, "spread of kept rows");
    close_to(c, wide, 0, "pad");
    close_to(c, back, 0, "close_up");
}

/* Experts drop some choices of the tokens from `first` on. The routing is that
 * of the CPU, and so are weights, gradients and counts. */
static void compare_capacity(struct call *c, struct limited l, bool parts)
{
    limited_new(c, &l, parts);
    struct tensor *dw = in(c, ACCUMULATED, l.N * l.K);
    struct tensor *dx = out(c, ELEMENT, l.N * l.E);
    int rc = limit_there(c, &l) ||
             c->k->experts->route_bwd(dx->at, dw->at, l.probs->at, &l.r.device,
                                      l.N, l.E, l.K, l.rule, gpu_stream());
    limit_here(&l);
    ref->experts->route_bwd(dx->want, dw->want, l.probs->want, &l.r.host, l.N,
                            l.E, l.K, l.rule, NULL);
    ok(!rc && same_routings(&l.r) && l.r.host.token[l.R - 1] < 0,
       "%s the kept rows of %zu tokens%s", c->k->name, l.N,
       parts ? ", parts of sequences" : "");
    ok(same_ints(l.counts[1], l.counts_there[1], l.E) &&
           same_ints(l.counts[2], l.counts_there[2], l.E) &&
           !memcmp(l.counts[1], l.counts[2], l.E * sizeof **l.counts),
       "%s counts of kept rows", c->k->name);
    close_to(c, l.chosen, 0, "tell_choices");
    close_to(c, l.table, 1e-12, "tell_choices weights");
    close_to(c, l.weight, 1e-12, "route_fwd weights of dropped rows");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "route_bwd of dropped rows");
    compare_padded(c, &l, 8);
    compare_padded(c, &l, 5);
    limited_free(&l);
    finish(c);
}

static void compare_mixtures(struct call *c)
{
    const struct pp_router norm = {.norm = true},
                           one = {.sigmoid = true, .norm = true, .scale = 2.5};
    compare_experts(c);
    for (int largest = 0; largest < 2; largest++) {
        compare_kept(c, 900, 5, 60, largest);
        compare_kept(c, 100, 33, 2, largest);
        compare_kept(c, 700, 1, 256, largest);
    }
    for (int parts = 0; parts < 2; parts++) {
        compare_capacity(
            c, (struct limited){.N = 33, .E = 5, .K = 2, .rule = &norm}, parts);
        compare_capacity(
            c, (struct limited){3, 30, .E = 8, .K = 3, .rule = &one}, parts);
    }
}

#endif
