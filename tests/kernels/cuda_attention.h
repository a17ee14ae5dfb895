/* SPDX-License-Identifier: MIT */
/* cuda_attention - compares attention on a GPU with the CPU's, for
 * test_cuda.c. */
#ifndef PP_TESTS_KERNELS_CUDA_ATTENTION_H
#define PP_TESTS_KERNELS_CUDA_ATTENTION_H

#include "attention_cases.h"
#include "cuda_call.h"

static struct pp_attention_shape attention_shape(const struct attention_case *t,
                                                 int32_t *cu, int32_t *padded)
{
    size_t width = t->HDQK > t->HDV ? t->HDQK : t->HDV;
    cu[0] = padded[0] = 0;
    for (size_t i = 0; i < t->n; i++) {
        cu[i + 1] = cu[i] + t->real[i];
        padded[i + 1] = padded[i] + t->padded[i];
    }
    return (struct pp_attention_shape){
        .N = (size_t)padded[t->n],
        .NH = t->NH,
        .NKV = t->NKV,
        .HDQK = t->HDQK,
        .HDV = t->HDV,
        .ldq = t->NH * t->HDQK + t->gap,
        .ldkv = t->NKV * width + t->gap,
        .ldo = t->NH * t->HDV + t->gap,
        .n_sequences = t->n,
        .cu = cu,
        .cu_padded = padded,
        .scale = 1 / sqrt((double)t->HDQK),
        .window = t->window,
        .chunked = t->chunked,
        .whole = t->whole,
        .cap = t->cap,
    };
}

/* Sets the keys of a slice, or of two chunks of each sequence. */
static void set_keys(struct pp_attention_shape *s,
                     const struct attention_case *t,
                     struct pp_attention_keys *of)
{
    int32_t context = (int32_t)t->context, chunks = (int32_t)t->chunks, row = 0;
    if (!t->context && !t->chunks)
        return;
    s->keys = of;
    s->share = t->chunks ? 2 : 1;
    for (size_t i = 0; i < t->n; i++) {
        int32_t n = t->real[i], length = t->padded[i];
        int32_t before =
            chunks ? (i % 2 ? (chunks - 1) * length : 0) : (i ? 0 : context);
        of[i] = (struct pp_attention_keys){row, before + n, before};
        if (chunks)
            row += i % 2 ? chunks * length : 0;
        else
            row += before + length;
    }
    s->NK = (size_t)row;
    if (t->visit) {
        s->NK = s->N;
        s->one_chunk = s->merge = true;
        s->chunk = (t->visit - 1) / 2;
        s->half = (t->visit - 1) % 2;
    }
}

/* Compares attention. Rows of padding hold some numbers, as in a run, and
 * numbers between rows must not change. */
static void compare_attention(struct call *c, const struct attention_case *t)
{
    int32_t cu[MAX_SEQUENCES + 1], padded[MAX_SEQUENCES + 1];
    struct pp_attention_keys of[MAX_SEQUENCES];
    struct pp_attention_shape s = attention_shape(t, cu, padded), d;
    set_keys(&s, t, of);
    d = s;
    /* A call that joins others reads what it writes. */
    struct tensor *(*result)(struct call *, enum kind, size_t) =
        t->visit ? in : out;
    size_t N = s.N, keys = pp_attention_key_rows(&s);
    struct tensor *q = in(c, ELEMENT, N * s.ldq);
    struct tensor *k = in(c, ELEMENT, keys * s.ldkv);
    struct tensor *v = in(c, ELEMENT, keys * s.ldkv);
    struct tensor *dout = in(c, ELEMENT, N * s.ldo);
    struct tensor *sinks = in(c, ELEMENT, t->NH);
    struct tensor *o = result(c, ELEMENT, N * s.ldo);
    struct tensor *lse = result(c, ACCUMULATED, N * t->NH);
    struct tensor *dq = result(c, ELEMENT, N * s.ldq);
    struct tensor *dk = result(c, ELEMENT, keys * s.ldkv);
    struct tensor *dv = result(c, ELEMENT, keys * s.ldkv);
    struct tensor *scratch = out(c, ELEMENT, c->k->attention_scratch(&s));
    double *tiles = malloc(ref->attention_scratch(&s) * sizeof *tiles);
    d.cu = ids_on_device(cu, t->n + 1);
    d.cu_padded = ids_on_device(padded, t->n + 1);
    if (s.keys)
        d.keys = (const struct pp_attention_keys *)ids_on_device(
            (const int32_t *)of, 3 * t->n);
    int rc = c->k->attention_fwd(o->at, lse->at, q->at, k->at, v->at,
                                 t->sinks ? sinks->at : NULL, &d, scratch->at,
                                 gpu_stream()) ||
             c->k->attention_bwd(dq->at, dk->at, dv->at, dout->at, q->at, k->at,
                                 v->at, o->at, lse->at, &d, scratch->at,
                                 gpu_stream());
    ref->attention_fwd(o->want, lse->want, q->want, k->want, v->want,
                       t->sinks ? sinks->want : NULL, &s, tiles, NULL);
    ref->attention_bwd(dq->want, dk->want, dv->want, dout->want, q->want,
                       k->want, v->want, o->want, lse->want, &s, tiles, NULL);
    ok(!rc, "%s attention, %s, heads of %zu and %zu, runs", c->k->name, t->name,
       t->HDQK, t->HDV);
    close_to(c, o, bound_of(c, 2e-5, 1e-11), "attention_fwd");
    close_to(c, lse, bound_of(c, 1e-9, 1e-11), "attention_fwd lse");
    close_to(c, dq, bound_of(c, 5e-5, 1e-11), "attention_bwd dq");
    close_to(c, dk, bound_of(c, 5e-5, 1e-11), "attention_bwd dk");
    close_to(c, dv, bound_of(c, 5e-5, 1e-11), "attention_bwd dv");
    free(tiles);
    gpu_free((void *)d.cu);
    gpu_free((void *)d.cu_padded);
    gpu_free((void *)d.keys);
    finish(c);
}

/* Compares a case in all widths of tensor cores. */
static void compare_widths(struct call *c, struct attention_case t)
{
    for (size_t w = 0; w < N_WIDTHS; w++) {
        t.HDQK = attention_widths[w][0];
        t.HDV = attention_widths[w][1];
        compare_attention(c, &t);
    }
}

/* Compares attention in the cases, and those of tensor cores in all widths. */
static void compare_attention_cases(struct call *c)
{
    for (size_t i = 0; i < N_ATTENTION; i += (size_t)fewer()) {
        compare_attention(c, &attention_cases[i]);
        if (c->k->element_bytes == 2 && attention_cases[i].HDQK >= 64)
            compare_widths(c, attention_cases[i]);
    }
}

/* Compares the cases that products of warpgroups take, and one case in the
 * widths that they leave to products of warps. */
static void compare_warpgroups(struct call *c)
{
    size_t n = 0;
    if (c->k->element_bytes != 2)
        return;
    for (size_t i = 0; i < N_ATTENTION; i++) {
        if (attention_cases[i].HDQK < 64)
            continue;
        compare_attention(c, &attention_cases[i]);
        if (n++ == 0)
            compare_widths(c, attention_cases[i]);
    }
}

#endif
