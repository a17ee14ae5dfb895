/* SPDX-License-Identifier: MIT */
/* test_cuda - compares every CUDA kernel with the CPU's in fp64, by normalised
 * error with a bound for each type. Outputs are NaN first, shapes are odd, and
 * results are exact for integers.
 *
 * usage: test_cuda [NAME...], with names of kernels; the default is all. The
 * name warpgroups stands for the cases of attention that differ on a GPU that
 * has products of warpgroups. With FEWER set, attention has one of so many
 * cases. */
#include "cuda_attention.h"
#include "cuda_call.h"
#include "cuda_capacity.h"
#include "cuda_delta.h"
#include "cuda_ends.h"
#include "cuda_positions.h"

static void compare_linear(struct call *c, size_t N, size_t C, size_t OC,
                           size_t gap)
{
    size_t ldx = C + gap, ldy = OC + gap;
    struct tensor *x = in(c, ELEMENT, N * ldx), *w = in(c, ELEMENT, OC * C);
    struct tensor *b = in(c, ELEMENT, OC), *dy = in(c, ELEMENT, N * ldy);
    struct tensor *r = in(c, ELEMENT, N * ldy), *rx = in(c, ELEMENT, N * ldx);
    struct tensor *z = out(c, ELEMENT, N * ldy), *u = out(c, ELEMENT, N * ldy);
    struct tensor *y = out(c, ELEMENT, N * ldy), *dx = out(c, ELEMENT, N * ldx);
    struct tensor *dw = in(c, ACCUMULATED, OC * C),
                  *db = in(c, ACCUMULATED, OC);
    struct tensor *first = out(c, ACCUMULATED, OC * C);
    void *s = gpu_stream();
    const struct pp_kernels *k = c->k;
    int rc = k->linear_fwd(y->at, x->at, w->at, b->at, NULL, N, C, OC, ldy, ldx,
                           s) ||
             k->linear_fwd(z->at, x->at, w->at, b->at, r->at, N, C, OC, ldy,
                           ldx, s) ||
             k->linear_fwd(u->at, x->at, w->at, NULL, r->at, N, C, OC, ldy, ldx,
                           s) ||
             k->linear_fwd(u->at, x->at, w->at, NULL, u->at, N, C, OC, ldy, ldx,
                           s) ||
             k->linear_bwd_input(dx->at, dy->at, w->at, rx->at, N, C, OC, ldx,
                                 ldy, s) ||
             k->linear_bwd_input(dx->at, dy->at, w->at, dx->at, N, C, OC, ldx,
                                 ldy, s) ||
             k->linear_bwd_weight(dw->at, db->at, dy->at, x->at, N, C, OC, ldy,
                                  ldx, false, s) ||
             k->linear_bwd_weight(first->at, db->at, dy->at, x->at, N, C, OC,
                                  ldy, ldx, true, s);
    ref->linear_fwd(y->want, x->want, w->want, b->want, NULL, N, C, OC, ldy,
                    ldx, NULL);
    ref->linear_fwd(z->want, x->want, w->want, b->want, r->want, N, C, OC, ldy,
                    ldx, NULL);
    ref->linear_fwd(u->want, x->want, w->want, NULL, r->want, N, C, OC, ldy,
                    ldx, NULL);
    ref->linear_fwd(u->want, x->want, w->want, NULL, u->want, N, C, OC, ldy,
                    ldx, NULL);
    ref->linear_bwd_input(dx->want, dy->want, w->want, rx->want, N, C, OC, ldx,
                          ldy, NULL);
    ref->linear_bwd_input(dx->want, dy->want, w->want, dx->want, N, C, OC, ldx,
                          ldy, NULL);
    ref->linear_bwd_weight(dw->want, db->want, dy->want, x->want, N, C, OC, ldy,
                           ldx, false, NULL);
    ref->linear_bwd_weight(first->want, db->want, dy->want, x->want, N, C, OC,
                           ldy, ldx, true, NULL);
    ok(!rc, "%s linear %zu x %zu x %zu runs", k->name, N, C, OC);
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "linear_fwd");
    close_to(c, z, bound_of(c, 1e-5, 1e-11), "linear_fwd bias, residual");
    close_to(c, u, bound_of(c, 1e-5, 1e-11), "linear_fwd residual");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "linear_bwd_input");
    close_to(c, dw, bound_of(c, 1e-11, 1e-11), "linear_bwd_weight");
    close_to(c, first, bound_of(c, 1e-11, 1e-11), "linear_bwd_weight, writing");
    close_to(c, db, bound_of(c, 1e-11, 1e-11), "linear_bwd_weight bias");
    finish(c);
}

/* Compares linear without cuBLASLt, on a stream that has it. */
static void compare_linear_apart(struct call *c, size_t N, size_t C, size_t OC)
{
    struct pp_cuda_stream *s = gpu_stream();
    struct pp_fuser *fuser = s->fuser;
    s->fuser = NULL;
    compare_linear(c, N, C, OC, 0);
    s->fuser = fuser;
}

/* The sums of a rank, and what it computes from those of three. */
static void compare_divided_norm(struct call *c, size_t N, size_t C)
{
    const size_t ranks = 3;
    struct tensor *x = in(c, ELEMENT, N * C), *w = in(c, ELEMENT, C);
    struct tensor *dy = in(c, ELEMENT, N * C), *y = out(c, ELEMENT, N * C);
    struct tensor *squares = out(c, ACCUMULATED, N);
    struct tensor *dots = out(c, ACCUMULATED, N);
    struct tensor *rstd = out(c, ACCUMULATED, N), *dx = out(c, ELEMENT, N * C);
    struct tensor *sums = in(c, ACCUMULATED, ranks * N);
    for (size_t i = 0; i < ranks * N; i++)
        ((double *)sums->want)[i] = fabs(((double *)sums->want)[i]);
    upload(sums);
    const struct pp_norm_sums of = {sums->at, ranks, N, ranks * C};
    const struct pp_norm_sums want = {sums->want, ranks, N, ranks * C};
    void *s = gpu_stream();
    const struct pp_kernels *k = c->k;
    int rc =
        k->rmsnorm_sums(squares->at, x->at, x->at, NULL, N, 1, C, C, C, 1, s) ||
        k->rmsnorm_sums(dots->at, dy->at, x->at, w->at, N, 1, C, C, C, 1, s) ||
        k->rmsnorm_fwd(y->at, rstd->at, x->at, w->at, NULL, N, 1, C, C, 1, C, 1,
                       1e-5, &of, s) ||
        k->rmsnorm_bwd_input(dx->at, dy->at, x->at, rstd->at, w->at, NULL, N, 1,
                             C, C, C, C, 1, 1, &of, s);
    ref->rmsnorm_sums(squares->want, x->want, x->want, NULL, N, 1, C, C, C, 1,
                      NULL);
    ref->rmsnorm_sums(dots->want, dy->want, x->want, w->want, N, 1, C, C, C, 1,
                      NULL);
    ref->rmsnorm_fwd(y->want, rstd->want, x->want, w->want, NULL, N, 1, C, C, 1,
                     C, 1, 1e-5, &want, NULL);
    ref->rmsnorm_bwd_input(dx->want, dy->want, x->want, rstd->want, w->want,
                           NULL, N, 1, C, C, C, C, 1, 1, &want, NULL);
    ok(!rc, "%s divided rmsnorm of %zu x %zu runs", k->name, N, C);
    close_to(c, squares, 1e-12, "rmsnorm_sums of squares");
    close_to(c, dots, 1e-11, "rmsnorm_sums of products");
    close_to(c, y, bound_of(c, 1e-5, 1e-12), "divided rmsnorm_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-12), "divided rmsnorm_bwd_input");
    finish(c);
}

static void compare_rmsnorm(struct call *c, size_t N, size_t G, size_t C)
{
    double shift = (double)(C % 2);
    size_t ld = G * C + 8, ldr = G + 1;
    struct tensor *x = in(c, ELEMENT, N * ld), *w = in(c, ELEMENT, C);
    struct tensor *dy = in(c, ELEMENT, N * ld), *y = out(c, ELEMENT, N * ld);
    struct tensor *rstd = out(c, ACCUMULATED, N * ldr);
    struct tensor *dx = out(c, ELEMENT, N * ld), *dw = in(c, ACCUMULATED, C);
    struct tensor *more = in(c, ELEMENT, N * ld);
    struct tensor *sum = out(c, ELEMENT, N * ld), *z = out(c, ELEMENT, N * ld);
    void *s = gpu_stream();
    const struct pp_kernels *k = c->k;
    int rc =
        k->rmsnorm_fwd(y->at, rstd->at, x->at, w->at, NULL, N, G, C, ld, ldr,
                       ld, shift, 1e-5, NULL, s) ||
        k->rmsnorm_fwd(z->at, rstd->at, x->at, w->at, more->at, N, G, C, ld,
                       ldr, ld, shift, 1e-5, NULL, s) ||
        k->rmsnorm_bwd_input(dx->at, dy->at, x->at, rstd->at, w->at, NULL, N, G,
                             C, ld, ld, ld, ldr, shift, NULL, s) ||
        k->rmsnorm_bwd_input(sum->at, dy->at, x->at, rstd->at, w->at, more->at,
                             N, G, C, ld, ld, ld, ldr, shift, NULL, s) ||
        k->rmsnorm_bwd_weight(dw->at, dy->at, x->at, rstd->at, N, G, C, ld, ld,
                              ldr, s);
    ref->rmsnorm_fwd(y->want, rstd->want, x->want, w->want, NULL, N, G, C, ld,
                     ldr, ld, shift, 1e-5, NULL, NULL);
    ref->rmsnorm_fwd(z->want, rstd->want, x->want, w->want, more->want, N, G, C,
                     ld, ldr, ld, shift, 1e-5, NULL, NULL);
    ref->rmsnorm_bwd_input(dx->want, dy->want, x->want, rstd->want, w->want,
                           NULL, N, G, C, ld, ld, ld, ldr, shift, NULL, NULL);
    ref->rmsnorm_bwd_input(sum->want, dy->want, x->want, rstd->want, w->want,
                           more->want, N, G, C, ld, ld, ld, ldr, shift, NULL,
                           NULL);
    ref->rmsnorm_bwd_weight(dw->want, dy->want, x->want, rstd->want, N, G, C,
                            ld, ld, ldr, NULL);
    ok(!rc, "%s rmsnorm of %zu x %zu groups of %zu runs", k->name, N, G, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-12), "rmsnorm_fwd");
    close_to(c, z, bound_of(c, 1e-5, 1e-12), "rmsnorm_fwd, residual");
    close_to(c, rstd, 1e-12, "rmsnorm_fwd rstd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-12), "rmsnorm_bwd_input");
    close_to(c, sum, bound_of(c, 1e-5, 1e-12), "rmsnorm_bwd_input, residual");
    close_to(c, dw, 1e-11, "rmsnorm_bwd_weight");
    finish(c);
}

/* n_params: none, a weight, or a bias, too. */
static void compare_layernorm(struct call *c, size_t N, size_t C, int n_params)
{
    struct tensor *x = in(c, ELEMENT, N * C), *w = in(c, ELEMENT, C);
    struct tensor *b = in(c, ELEMENT, C), *dy = in(c, ELEMENT, N * C);
    struct tensor *y = out(c, ELEMENT, N * C), *mean = out(c, ACCUMULATED, N);
    struct tensor *rstd = out(c, ACCUMULATED, N);
    struct tensor *dx = out(c, ELEMENT, N * C), *dw = in(c, ACCUMULATED, C);
    struct tensor *db = in(c, ACCUMULATED, C);
    struct tensor *rest = in(c, ELEMENT, N * C), *sum = out(c, ELEMENT, N * C);
    struct tensor *z = out(c, ELEMENT, N * C);
    void *s = gpu_stream();
    const struct pp_kernels *k = c->k;
    void *by = n_params < 1 ? NULL : w->at, *more = n_params < 2 ? NULL : b->at;
    void *ref_by = n_params < 1 ? NULL : w->want;
    void *ref_more = n_params < 2 ? NULL : b->want;
    int rc = k->layernorm_fwd(y->at, mean->at, rstd->at, x->at, by, more, NULL,
                              N, C, 1e-5, s) ||
             k->layernorm_fwd(z->at, mean->at, rstd->at, x->at, by, more,
                              rest->at, N, C, 1e-5, s) ||
             k->layernorm_bwd_input(dx->at, dy->at, x->at, mean->at, rstd->at,
                                    by, NULL, N, C, s) ||
             k->layernorm_bwd_input(sum->at, dy->at, x->at, mean->at, rstd->at,
                                    by, rest->at, N, C, s) ||
             k->layernorm_bwd_weight(dw->at, db->at, dy->at, x->at, mean->at,
                                     rstd->at, N, C, s);
    ref->layernorm_fwd(y->want, mean->want, rstd->want, x->want, ref_by,
                       ref_more, NULL, N, C, 1e-5, NULL);
    ref->layernorm_fwd(z->want, mean->want, rstd->want, x->want, ref_by,
                       ref_more, rest->want, N, C, 1e-5, NULL);
    ref->layernorm_bwd_input(dx->want, dy->want, x->want, mean->want,
                             rstd->want, ref_by, NULL, N, C, NULL);
    ref->layernorm_bwd_input(sum->want, dy->want, x->want, mean->want,
                             rstd->want, ref_by, rest->want, N, C, NULL);
    ref->layernorm_bwd_weight(dw->want, db->want, dy->want, x->want, mean->want,
                              rstd->want, N, C, NULL);
    ok(!rc, "%s layernorm of %zu x %zu runs", k->name, N, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "layernorm_fwd");
    close_to(c, z, bound_of(c, 1e-5, 1e-11), "layernorm_fwd, residual");
    close_to(c, mean, 1e-11, "layernorm_fwd mean");
    close_to(c, rstd, 1e-11, "layernorm_fwd rstd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "layernorm_bwd_input");
    close_to(c, sum, bound_of(c, 1e-5, 1e-11), "layernorm_bwd_input, residual");
    close_to(c, dw, 1e-11, "layernorm_bwd_weight");
    close_to(c, db, 1e-11, "layernorm_bwd_weight bias");
    finish(c);
}

static void compare_gelu(struct call *c, size_t n, enum pp_gelu form)
{
    struct tensor *x = in(c, ELEMENT, n), *dy = in(c, ELEMENT, n);
    struct tensor *y = out(c, ELEMENT, n), *dx = out(c, ELEMENT, n);
    int rc = c->k->gelu_fwd(y->at, x->at, n, form, gpu_stream()) ||
             c->k->gelu_bwd(dx->at, dy->at, x->at, n, form, gpu_stream());
    ref->gelu_fwd(y->want, x->want, n, form, NULL);
    ref->gelu_bwd(dx->want, dy->want, x->want, n, form, NULL);
    ok(!rc, "%s gelu of %zu, form %d, runs", c->k->name, n, (int)form);
    close_to(c, y, bound_of(c, 1e-5, 1e-12), "gelu_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-12), "gelu_bwd");
    finish(c);
}

static void compare_xielu(struct call *c, size_t N, size_t C)
{
    struct tensor *x = in(c, ELEMENT, N * C), *dy = in(c, ELEMENT, N * C);
    struct tensor *y = out(c, ELEMENT, N * C), *dx = out(c, ELEMENT, N * C);
    struct tensor *sums = out(c, ACCUMULATED, 2 * N);
    struct tensor *w[4];
    for (size_t i = 0; i < 4; i++)
        w[i] = in(c, ELEMENT, 1);
    const struct pp_xielu on = {w[0]->at, w[1]->at, w[2]->at, w[3]->at};
    const struct pp_xielu of = {w[0]->want, w[1]->want, w[2]->want, w[3]->want};
    int rc = c->k->xielu_fwd(y->at, x->at, N, C, &on, gpu_stream()) ||
             c->k->xielu_bwd(dx->at, sums->at, dy->at, x->at, N, C, &on,
                             gpu_stream());
    ref->xielu_fwd(y->want, x->want, N, C, &of, NULL);
    ref->xielu_bwd(dx->want, sums->want, dy->want, x->want, N, C, &of, NULL);
    ok(!rc, "%s xielu of %zu x %zu runs", c->k->name, N, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-11), "xielu_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-11), "xielu_bwd");
    close_to(c, sums, 1e-11, "xielu_bwd, sums");
    finish(c);
}

static void compare_swiglu(struct call *c, size_t N, size_t C)
{
    struct tensor *gu = in(c, ELEMENT, N * 2 * C), *dy = in(c, ELEMENT, N * C);
    struct tensor *y = out(c, ELEMENT, N * C);
    struct tensor *dgu = out(c, ELEMENT, N * 2 * C);
    struct tensor *z = out(c, ELEMENT, N * C);
    struct tensor *dgeglu = out(c, ELEMENT, N * 2 * C);
    int rc = c->k->swiglu_fwd(y->at, gu->at, N, C, gpu_stream()) ||
             c->k->swiglu_bwd(dgu->at, dy->at, gu->at, N, C, gpu_stream()) ||
             c->k->geglu_fwd(z->at, gu->at, N, C, gpu_stream()) ||
             c->k->geglu_bwd(dgeglu->at, dy->at, gu->at, N, C, gpu_stream());
    ref->swiglu_fwd(y->want, gu->want, N, C, NULL);
    ref->swiglu_bwd(dgu->want, dy->want, gu->want, N, C, NULL);
    ref->geglu_fwd(z->want, gu->want, N, C, NULL);
    ref->geglu_bwd(dgeglu->want, dy->want, gu->want, N, C, NULL);
    ok(!rc, "%s swiglu of %zu x %zu runs", c->k->name, N, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-12), "swiglu_fwd");
    close_to(c, dgu, bound_of(c, 1e-5, 1e-12), "swiglu_bwd");
    close_to(c, z, bound_of(c, 1e-5, 1e-12), "geglu_fwd");
    close_to(c, dgeglu, bound_of(c, 1e-5, 1e-12), "geglu_bwd");
    finish(c);
}

static void compare_elementwise(struct call *c, size_t N, size_t C,
                                size_t shift)
{
    size_t n = N * C;
    struct tensor *a = in_at(c, ELEMENT, n, shift), *b = in(c, ELEMENT, n);
    struct tensor *y = out(c, ELEMENT, n), *z = out(c, ELEMENT, N * (C + 3));
    struct tensor *f = in(c, ACCUMULATED, n), *g = in(c, ACCUMULATED, n);
    struct tensor *sum = out(c, DOUBLES, pp_squares_blocks(n)),
                  *zero = out(c, ELEMENT, n);
    void *s = gpu_stream();
    const struct pp_kernels *k = c->k;
    int rc = k->add(y->at, a->at, b->at, n, s) ||
             k->copy(z->at, a->at, N, C, C + 3, C, s) ||
             k->add_gradient(f->at, f->at, g->at, n, s) ||
             k->sum_squares(sum->at, g->at, n, s) || k->zero(zero->at, n, s) ||
             k->scale_by(b->at, 0.5, 1, n, n, s) ||
             k->scale_by(z->at, 0.5, N, C, C + 3, s);
    ref->add(y->want, a->want, b->want, n, NULL);
    ref->copy(z->want, a->want, N, C, C + 3, C, NULL);
    ref->add_gradient(f->want, f->want, g->want, n, NULL);
    ref->sum_squares(sum->want, g->want, n, NULL);
    ref->zero(zero->want, n, NULL);
    ref->scale_by(b->want, 0.5, 1, n, n, NULL);
    ref->scale_by(z->want, 0.5, N, C, C + 3, NULL);
    ok(!rc, "%s elementwise of %zu x %zu runs", k->name, N, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-13), "add");
    close_to(c, z, 0, "copy, scale_by of rows");
    close_to(c, f, 1e-13, "add_gradient");
    close_to(c, sum, 1e-24, "sum_squares");
    close_to(c, zero, 0, "zero");
    close_to(c, b, bound_of(c, 1e-5, 1e-13), "scale_by");
    finish(c);
}

/* Compares ten steps, with master weights if the weights have fewer bits. */
static void compare_optimizers(struct call *c, size_t n, size_t shift)
{
    struct tensor *w = in_at(c, ELEMENT, n, shift);
    struct tensor *m = in_at(c, ACCUMULATED, n, shift);
    struct tensor *v = in_at(c, ACCUMULATED, n, shift);
    struct tensor *g = in_at(c, ACCUMULATED, n, shift);
    struct tensor *master = in_at(c, ACCUMULATED, n, shift);
    struct tensor *w2 = in_at(c, ELEMENT, n, shift);
    bool small = c->k->element_bytes < c->k->accumulator_bytes;
    void *s = gpu_stream();
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        m->want[i] = 0;
        v->want[i] = 0;
        master->want[i] = w->want[i];
        w2->want[i] = w->want[i];
    }
    upload(m), upload(v), upload(master), upload(w2);
    struct pp_adamw_step step = {1e-2, 0.9, 0.99, 1e-8, 0.1, 1, 1, 0.5};
    for (int i = 1; i <= 10; i++) {
        step.bias1 = 1 - pow(step.beta1, i);
        step.bias2 = 1 - pow(step.beta2, i);
        rc = rc || c->k->adamw(w->at, small ? master->at : NULL, m->at, v->at,
                               g->at, n, &step, s);
        ref->adamw(w->want, NULL, m->want, v->want, g->want, n, &step, NULL);
    }
    ok(!rc, "%s adamw of %zu behind %zu runs", c->k->name, n, shift);
    close_to(c, w, bound_of(c, 1e-5, 1e-11), "adamw");
    close_to(c, v, 1e-11, "adamw second moment");
    if (small) {
        memcpy(master->want, w->want, n * sizeof(double));
        close_to(c, master, 1e-11, "adamw master");
    }
    rc = c->k->sgd(w2->at, NULL, g->at, n, &step, s);
    ref->sgd(w2->want, NULL, g->want, n, &step, NULL);
    ok(!rc, "%s sgd of %zu runs", c->k->name, n);
    close_to(c, w2, bound_of(c, 1e-5, 1e-12), "sgd");
    finish(c);
}

/* Tests that a step has the same bits for all elements at once and for the
 * first one and the others, which begin at no aligned address. */
static void compare_parts(struct call *c, size_t n)
{
    struct tensor *a[5], *b[5];
    const enum kind kinds[] = {ELEMENT, ACCUMULATED, ACCUMULATED, ACCUMULATED,
                               ACCUMULATED}; /* w, master, m, v, g */
    size_t bytes[5], all = 0;
    struct pp_adamw_step step = {1e-2, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.01, 0.5};
    bool small = c->k->element_bytes < c->k->accumulator_bytes;
    for (int i = 0; i < 5; i++) {
        a[i] = in(c, kinds[i], n);
        b[i] = make(c, kinds[i], n, 0);
        for (size_t j = 0; j < n; j++)
            b[i]->want[j] = a[i]->want[j] =
                i == 3 ? fabs(a[i]->want[j]) : a[i]->want[j];
        upload(a[i]), upload(b[i]);
        bytes[i] = a[i]->bytes;
        all = n * bytes[i] > all ? n * bytes[i] : all;
    }
    void *s = gpu_stream(), *at[5], *one = malloc(all), *two = malloc(all);
    int rc = c->k->adamw(a[0]->at, small ? a[1]->at : NULL, a[2]->at, a[3]->at,
                         a[4]->at, n, &step, s);
    for (size_t from = 0; from < 2; from++) {
        for (int i = 0; i < 5; i++)
            at[i] = (char *)b[i]->at + from * bytes[i];
        rc = rc || c->k->adamw(at[0], small ? at[1] : NULL, at[2], at[3], at[4],
                               from ? n - 1 : 1, &step, s);
    }
    bool same = !rc && one && two;
    for (int i = 0; same && i < 5; i++) {
        gpu_get(one, a[i]->at, n * bytes[i]);
        gpu_get(two, b[i]->at, n * bytes[i]);
        same = !memcmp(one, two, n * bytes[i]);
    }
    ok(same, "%s adamw of %zu: the same bits in parts", c->k->name, n);
    free(one);
    free(two);
    finish(c);
}

static bool wanted(const struct call *c, const char *name)
{
    for (char **at = c->only; *at; at++)
        if (strcmp(*at, name) == 0)
            return true;
    return !*c->only;
}

static void compare_norms_and_rope(struct call *c)
{
    if (wanted(c, "rmsnorm")) {
        compare_rmsnorm(c, 5, 1, 33);
        compare_rmsnorm(c, 3, 4, 16);
        compare_rmsnorm(c, 40, 1, 1040);
        compare_rmsnorm(c, 9, 1, 2056);
        compare_rmsnorm(c, 9, 1, 2049);
        compare_rmsnorm(c, 700, 1, 3);
        compare_divided_norm(c, 5, 33);
        compare_divided_norm(c, 3, 2049);
    }
    if (wanted(c, "layernorm")) {
        compare_layernorm(c, 5, 33, 2);
        compare_layernorm(c, 5, 33, 1);
        compare_layernorm(c, 5, 33, 0);
        compare_layernorm(c, 9, 2056, 0);
        compare_layernorm(c, 40, 1040, 2);
        compare_layernorm(c, 9, 2056, 2);
        compare_layernorm(c, 9, 2049, 2);
        compare_layernorm(c, 700, 3, 2);
    }
    if (wanted(c, "gelu")) {
        for (int form = PP_GELU_TANH; form <= PP_RELU_SQUARED; form++) {
            compare_gelu(c, 5 * 24, (enum pp_gelu)form);
            compare_gelu(c, 35, (enum pp_gelu)form);
        }
    }
    if (wanted(c, "xielu")) {
        compare_xielu(c, 5, 24);
        compare_xielu(c, 3, 700);
    }
    if (wanted(c, "rope")) {
        compare_rope(c, 9, 3, 16, 5, false);
        compare_rope(c, 9, 3, 16, 5, true);
        compare_rope(c, 9, 3, 32, 8, false);
        compare_rope_axes(c, 9, 3, 16, true);
        compare_rope_axes(c, 9, 4, 80, false);
    }
    if (wanted(c, "frames")) {
        compare_taps(c, 9, 24);
        compare_taps(c, 40, 7);
        compare_sinusoids(c, 40, 24);
    }
    if (wanted(c, "swiglu")) {
        compare_swiglu(c, 5, 24);
        compare_swiglu(c, 5, 7);
    }
}

static void compare_ends(struct call *c)
{
    if (wanted(c, "embedding")) {
        compare_embedding(c, 600, 24, 5);
        compare_embedding(c, 3, 7, 300);
    }
    if (wanted(c, "cross_entropy")) {
        compare_cross_entropy(c, 3, 1000, 0);
        compare_cross_entropy(c, 2, 5, 0);
        compare_cross_entropy(c, 2, 5, 1.5);
        compare_cross_entropy(c, 3, 1000, 30);
        compare_merge(c, 700, 3);
        compare_sum(c, 1);
        compare_sum(c, 1300);
        compare_soft_targets(c, 3, 1000, 150, 0);
        compare_soft_targets(c, 2, 5, 5, 0);
        compare_soft_targets(c, 3, 300, 7, 3);
    }
    if (wanted(c, "distribution")) {
        compare_distribution(c, 3, 1000, 20);
        compare_distribution(c, 2, 5, 5);
    }
    if (wanted(c, "elementwise")) {
        compare_elementwise(c, 5, 24, 0);
        compare_elementwise(c, 5, 13, 1);
        compare_elementwise(c, 5, 24, 1);
        compare_elementwise(c, 700, 128, 0);
    }
    if (wanted(c, "adamw")) {
        compare_optimizers(c, 1003, 0);
        compare_optimizers(c, 1008, 0);
        compare_optimizers(c, 1008, 1);
        compare_parts(c, 4096);
    }
}

static void compare_integers(struct call *c)
{
    c->integers = true;
    if (wanted(c, "linear")) {
        compare_linear(c, 17, 24, 9, 1);
        compare_linear(c, 17, 24, 16, 0);
        compare_linear_apart(c, 17, 24, 16);
    }
    if (wanted(c, "experts")) {
        compare_grouped(c, 24, 16, true);
        compare_grouped(c, 24, 16, false);
    }
    if (wanted(c, "embedding"))
        compare_embedding(c, 300, 8, 11);
    if (wanted(c, "elementwise"))
        compare_elementwise(c, 3, 16, 0);
}

static void compare_table(const struct pp_kernels *k, char **only)
{
    struct call c = {.k = k, .only = only};
    if (wanted(&c, "linear")) {
        compare_linear(&c, 5, 7, 3, 2);
        compare_linear(&c, 33, 40, 24, 0);
        compare_linear(&c, 40, 16, 136, 8);
        compare_linear_apart(&c, 33, 40, 24);
    }
    compare_norms_and_rope(&c);
    compare_ends(&c);
    if (wanted(&c, "experts"))
        compare_mixtures(&c);
    if (wanted(&c, "delta"))
        compare_deltas(&c);
    if (wanted(&c, "attention"))
        compare_attention_cases(&c);
    else if (wanted(&c, "warpgroups"))
        compare_warpgroups(&c);
    compare_integers(&c);
}

int main(int argc, char **argv)
{
    const char *why = gpu_open();
    (void)argc;
    if (why) {
        printf("1..0 # skip %s\n", why);
        return 0;
    }
    printf("# %s\n", gpu_name());
    compare_table(&pp_kernels_cuda_f32, argv + 1);
    compare_table(&pp_kernels_cuda_bf16, argv + 1);
    if (tap.n == 0) {
        fprintf(stderr, "test_cuda: no such test\n");
        return 2;
    }
    return done();
}
