/* SPDX-License-Identifier: MIT */
/* cuda_positions - compares the kernels of positions, and those of the rows of
 * an encoder of audio. For test_cuda.c. */
#ifndef PP_TESTS_CUDA_POSITIONS_H
#define PP_TESTS_CUDA_POSITIONS_H

#include "cuda_call.h"

static void compare_rope(struct call *c, size_t N, size_t G, size_t HD,
                         size_t gap, bool adjacent)
{
    size_t ld = G * HD + gap, half = HD / 2;
    struct tensor *x = in(c, ELEMENT, N * ld);
    struct tensor *cosine = in(c, ACCUMULATED, 7 * half);
    struct tensor *sine = in(c, ACCUMULATED, 7 * half);
    int32_t *position = malloc((N + 1) * sizeof *position);
    for (size_t i = 0; i < N; i++)
        position[i] = (int32_t)(i * 5 % 7);
    int32_t *at = ids_on_device(position, N);
    int rc = c->k->rope(x->at, cosine->at, sine->at, at, N, G, HD, ld, HD,
                        adjacent, -1, gpu_stream());
    ref->rope(x->want, cosine->want, sine->want, position, N, G, HD, ld, HD,
              adjacent, -1, NULL);
    ok(!rc, "%s rope of %zu x %zu heads of %zu runs", c->k->name, N, G, HD);
    close_to(c, x, bound_of(c, 1e-5, 1e-12), "rope");
    free(position);
    gpu_free(at);
    finish(c);
}

/* With tables there are three axes, without them two of large positions. */
static void compare_rope_axes(struct call *c, size_t N, size_t G, size_t HD,
                              bool tables)
{
    size_t ld = G * HD + 8, half = HD / 2, n = tables ? 3 : 2;
    struct tensor *x = in(c, ELEMENT, N * ld);
    struct tensor *cosine = in(c, ACCUMULATED, 7 * half);
    struct tensor *sine = in(c, ACCUMULATED, 7 * half);
    int32_t *position = malloc(n * (N + 1) * sizeof *position);
    double frequency[256];
    struct pp_rope_axes want = {
        n, {half / 2, half / 4, half / 4}, NULL, NULL, frequency};
    if (!tables)
        want.width[1] = half / 2;
    for (size_t i = 0; i < n * N; i++)
        position[i] = (int32_t)(i * 5 % 7 * (tables ? 1 : 100));
    for (size_t i = 0; i < half; i++)
        frequency[i] = pow(100, -(double)i / (double)half);
    int32_t *at = ids_on_device(position, n * N);
    struct pp_rope_axes axes = want;
    if (tables) {
        axes.cos = cosine->at;
        axes.sin = sine->at;
        want.cos = cosine->want;
        want.sin = sine->want;
    }
    int rc =
        c->k->rope_axes(x->at, &axes, at, N, G, HD, ld, HD, -1, gpu_stream());
    ref->rope_axes(x->want, &want, position, N, G, HD, ld, HD, -1, NULL);
    ok(!rc, "%s rope_axes of %zu x %zu heads of %zu runs", c->k->name, N, G,
       HD);
    close_to(c, x, bound_of(c, 1e-5, 1e-12), "rope_axes");
    free(position);
    gpu_free(at);
    finish(c);
}

/* Runs of three rows, the last of which may have half of its frames, and some
 * padding. */
static void compare_taps(struct call *c, size_t N, size_t C)
{
    struct tensor *x = in(c, ELEMENT, N * 2 * C),
                  *dy = in(c, ELEMENT, N * 3 * C);
    struct tensor *y = out(c, ELEMENT, N * 3 * C);
    struct tensor *dx = out(c, ELEMENT, N * 2 * C);
    int32_t *kind = malloc((N + 1) * sizeof *kind);
    for (size_t i = 0; i < N; i++)
        kind[i] = i % 7 == 6   ? -1
                  : i % 3 == 0 ? PP_ROW_BEGINS
                  : i % 6 == 5 ? PP_ROW_HALF
                               : 0;
    int32_t *at = ids_on_device(kind, N);
    int rc = c->k->taps_fwd(y->at, x->at, at, N, C, gpu_stream()) ||
             c->k->taps_bwd(dx->at, dy->at, at, N, C, gpu_stream());
    ref->taps_fwd(y->want, x->want, kind, N, C, NULL);
    ref->taps_bwd(dx->want, dy->want, kind, N, C, NULL);
    ok(!rc, "%s taps of %zu x %zu runs", c->k->name, N, C);
    close_to(c, y, 0, "taps_fwd");
    close_to(c, dx, bound_of(c, 1e-5, 1e-13), "taps_bwd");
    free(kind);
    gpu_free(at);
    finish(c);
}

static void compare_sinusoids(struct call *c, size_t N, size_t C)
{
    struct tensor *y = out(c, ELEMENT, N * C);
    int rc = c->k->sinusoids(y->at, N, C, gpu_stream());
    ref->sinusoids(y->want, N, C, NULL);
    ok(!rc, "%s sinusoids of %zu x %zu run", c->k->name, N, C);
    close_to(c, y, bound_of(c, 1e-5, 1e-13), "sinusoids");
    finish(c);
}

#endif
