/* SPDX-License-Identifier: MIT */
/* cuda_delta - compares linear attention of a GPU with the CPU's. */
#ifndef PP_TESTS_CUDA_DELTA_H
#define PP_TESTS_CUDA_DELTA_H

#include "cuda_call.h"

/* Compares rows of sequences, which a part of their first and last ones may be,
 * then with room for what passes. */
static void compare_delta(struct call *c, struct pp_delta_shape s,
                          const int32_t *bounds, bool is_part)
{
    size_t CH = 2 * s.NK * s.DK + s.NV * s.DV, NZ = s.NV * s.DV;
    size_t R = CH + NZ + 2 * s.NV, scratch = s.NV * 200 * s.DK * s.DV;
    size_t passes = pp_delta_passes(s.NK, s.NV, s.DK, s.DV, s.taps);
    struct tensor *x = in(c, ELEMENT, s.N * R), *dy = in(c, ELEMENT, s.N * NZ);
    size_t shares = 1 + s.others;
    struct tensor *conv = in(c, ELEMENT, shares * CH * s.taps),
                  *dt = in(c, ELEMENT, shares * s.NV),
                  *lg = in(c, ELEMENT, shares * s.NV),
                  *norm = in(c, ELEMENT, s.DV);
    struct tensor *y = out(c, ELEMENT, s.N * NZ),
                  *o = out(c, ELEMENT, s.N * NZ);
    struct tensor *din = out(c, ELEMENT, s.N * R),
                  *du = out(c, ELEMENT, s.N * CH),
                  *dnorm = out(c, ELEMENT, s.N * s.DV);
    struct tensor *before = in(c, ACCUMULATED, passes),
                  *passed = in(c, ACCUMULATED, passes),
                  *behind = in(c, ACCUMULATED, passes);
    struct tensor *dconv = in(c, ACCUMULATED, shares * CH * s.taps),
                  *ddt = in(c, ACCUMULATED, shares * s.NV),
                  *dlog = in(c, ACCUMULATED, shares * s.NV),
                  *dweight = in(c, ACCUMULATED, s.DV);
    size_t row_scratch =
        (size_t)pp_delta_cuda_row_scratch(s.NK, s.NV, s.DK, s.DV) + 1;
    void *room = gpu_alloc(
        (pp_delta_cuda_scratch(s.NK, s.NV, s.DK, s.DV) + s.N * row_scratch) *
        sizeof(float));
    double *ref_room = calloc(scratch, sizeof *ref_room);
    if (!ref_room)
        abort();
    struct pp_delta_shape r = s;
    s.cu_padded = ids_on_device(bounds, s.n_sequences + 1);
    r.cu_padded = bounds;
    s.before = is_part ? before->at : NULL;
    r.before = is_part ? before->want : NULL;
    s.behind = is_part ? passed->at : NULL;
    r.behind = is_part ? passed->want : NULL;
    const struct pp_delta_kernels *k = c->k->delta;
    const struct pp_delta_weights w = {conv->at, dt->at, lg->at, norm->at};
    const struct pp_delta_weights rw = {conv->want, dt->want, lg->want,
                                        norm->want};
    const struct pp_delta_gradients g = {dconv->at, ddt->at, dlog->at,
                                         dweight->at};
    const struct pp_delta_gradients rg = {dconv->want, ddt->want, dlog->want,
                                          dweight->want};
    void *stream = gpu_stream();
    int rc = k->fwd(y->at, o->at, x->at, &w, &s, room, stream);
    ref->delta->fwd(y->want, o->want, x->want, &rw, &r, ref_room, NULL);
    s.behind = is_part ? behind->at : NULL;
    r.behind = is_part ? behind->want : NULL;
    rc = rc ||
         k->bwd_input(din->at, du->at, dnorm->at, dy->at, x->at, o->at, &w, &s,
                      room, stream) ||
         k->bwd_weight(&g, din->at, du->at, dnorm->at, x->at, &w, &s, stream);
    ref->delta->bwd_input(din->want, du->want, dnorm->want, dy->want, x->want,
                          o->want, &rw, &r, ref_room, NULL);
    ref->delta->bwd_weight(&rg, din->want, du->want, dnorm->want, x->want, &rw,
                           &r, NULL);
    ok(!rc, "%s linear attention %zu x %zu x %zu runs", c->k->name, s.N, s.NV,
       s.DV);
    double bound = bound_of(c, 1e-4, 1e-10);
    close_to(c, o, bound, "outputs of states");
    close_to(c, y, bound, "linear attention");
    close_to(c, passed, bound, "what passes");
    close_to(c, din, bound, "gradients of its rows");
    close_to(c, du, bound, "gradients of the convolution");
    close_to(c, dnorm, bound, "gradients of the norm");
    close_to(c, before, bound, "gradients of what passes");
    close_to(c, dconv, bound, "gradients of taps");
    close_to(c, ddt, bound, "gradients of dt");
    close_to(c, dlog, bound, "gradients of log");
    close_to(c, dweight, bound, "gradients of the norm's weight");
    gpu_free((void *)s.cu_padded);
    gpu_free(room);
    free(ref_room);
    finish(c);
}

static void compare_deltas(struct call *c)
{
    static const int32_t whole[] = {0, 70, 71, 145}, part[] = {0, 2, 67, 130};
    compare_delta(c,
                  (struct pp_delta_shape){.N = 150,
                                          .NK = 2,
                                          .NV = 4,
                                          .DK = 5,
                                          .DV = 3,
                                          .taps = 4,
                                          .n_sequences = 3,
                                          .eps = 1e-2},
                  whole, false);
    compare_delta(c,
                  (struct pp_delta_shape){.N = 130,
                                          .NK = 2,
                                          .NV = 6,
                                          .DK = 9,
                                          .DV = 35,
                                          .taps = 4,
                                          .n_sequences = 3,
                                          .eps = 1e-2,
                                          .share = 1,
                                          .others = 2,
                                          .grouped = true},
                  part, true);
}

#endif
