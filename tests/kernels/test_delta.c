/* SPDX-License-Identifier: MIT */
/* test_delta - tests linear attention by the gated delta rule: fp64 against a
 * sum over pairs of tokens and finite differences, fp32 against fp64. Sequences
 * are longer than the rows between two kept states, and one is a single token.
 */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

enum { NK = 2, NV = 4, DK = 5, DV = 3, TAPS = 4, N = 150, N_SEQUENCES = 3 };
enum { CH = 2 * NK * DK + NV * DV, NZ = NV * DV, R = CH + NZ + 2 * NV };
/* All inputs of the function, one after the other. */
enum {
    AT_CONV = N * R,
    AT_DT = AT_CONV + CH * TAPS,
    AT_LOG = AT_DT + NV,
    AT_NORM = AT_LOG + NV,
    N_INPUTS = AT_NORM + DV
};

static const int32_t bounds[] = {0, 70, 71, 145};
static const struct pp_delta_shape shape = {.N = N,
                                            .NK = NK,
                                            .NV = NV,
                                            .DK = DK,
                                            .DV = DV,
                                            .taps = TAPS,
                                            .n_sequences = N_SEQUENCES,
                                            .cu_padded = bounds,
                                            .eps = 1e-3};

static double random_of(size_t i)
{
    return sin(12.9898 * (double)(i + 1)) * 1.1 + cos(0.37 * (double)i) * 0.4;
}

static void *room(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);
    if (!p)
        abort();
    return p;
}

static size_t scratch_size(void)
{
    return pp_delta_scratch(DK, DV) +
           (size_t)(pp_delta_row_scratch(DK, DV) * N) + 1;
}

static struct pp_delta_weights weights_of(const double *x)
{
    return (struct pp_delta_weights){x + AT_CONV, x + AT_DT, x + AT_LOG,
                                     x + AT_NORM};
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Returns a channel of a token after the convolution and its activation. */
static double channel(const double *x, size_t t, size_t first, size_t c)
{
    double u = 0;
    for (size_t j = 0; j < TAPS && j <= t - first; j++)
        u += x[AT_CONV + c * TAPS + TAPS - 1 - j] * x[(t - j) * R + c];
    return silu(u);
}

static void unit_of(double out[DK], const double *x, size_t t, size_t first,
                    size_t c)
{
    double sum = 1e-6;
    for (size_t i = 0; i < DK; i++) {
        out[i] = channel(x, t, first, c + i);
        sum += out[i] * out[i];
    }
    for (size_t i = 0; i < DK; i++)
        out[i] /= sqrt(sum);
}

static double dot_of(const double *a, const double *b)
{
    double sum = 0;
    for (size_t i = 0; i < DK; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Computes the outputs of a head from what each earlier token wrote, without a
 * state: writes[s] decays by the product of alphas since. */
static void head_want(const double *x, size_t v, size_t first, size_t end,
                      double *y)
{
    static double q[N][DK], k[N][DK], writes[N][DV], decay[N];
    size_t key = v / (NV / NK);
    for (size_t t = first; t < end; t++) {
        double read[DV] = {0}, o[DV] = {0}, square = 0;
        const double *gates = x + t * R + CH + NZ;
        size_t i = t - first;
        double rate = gates[NV + v] + x[AT_DT + v];
        double alpha = exp(-exp(x[AT_LOG + v]) * log1p(exp(rate)));
        unit_of(q[i], x, t, first, key * DK);
        unit_of(k[i], x, t, first, (NK + key) * DK);
        decay[i] = 1;
        for (size_t s = 0; s < i; s++) {
            decay[s] *= alpha;
            for (size_t j = 0; j < DV; j++)
                read[j] += decay[s] * dot_of(k[i], k[s]) * writes[s][j];
        }
        for (size_t j = 0; j < DV; j++) {
            double value = channel(x, t, first, 2 * NK * DK + v * DV + j);
            writes[i][j] = (value - read[j]) / (1 + exp(-gates[v]));
        }
        for (size_t s = 0; s <= i; s++)
            for (size_t j = 0; j < DV; j++)
                o[j] += decay[s] * dot_of(q[i], k[s]) / sqrt(DK) * writes[s][j];
        for (size_t j = 0; j < DV; j++)
            square += o[j] * o[j] / DV;
        for (size_t j = 0; j < DV; j++)
            y[t * NZ + v * DV + j] = o[j] / sqrt(square + shape.eps) *
                                     x[AT_NORM + j] *
                                     silu(x[t * R + CH + v * DV + j]);
    }
}

static double loss_of(const double *x, const double *dy, double *y, double *o,
                      double *scratch)
{
    const struct pp_delta_weights w = weights_of(x);
    double sum = 0;
    pp_kernels_f64.delta->fwd(y, o, x, &w, &shape, scratch, NULL);
    for (size_t i = 0; i < N * NZ; i++)
        sum += dy[i] * y[i];
    return sum;
}

/* Returns the largest difference, relative to the larger of the number and
 * least. */
static double farthest(const double *a, const double *b, size_t n, double least)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / fmax(least, fabs(b[i])));
    return worst;
}

static void test_single(const double *x, const double *dy, const double *y,
                        const double *din)
{
    size_t n[] = {N_INPUTS, N * NZ, N * NZ, scratch_size(),
                  N * R,    N * CH, N * DV};
    float *of[7];
    double *got = room(N * R, sizeof *got);
    for (size_t i = 0; i < 7; i++)
        of[i] = room(n[i], sizeof **of);
    for (size_t i = 0; i < N_INPUTS; i++)
        of[0][i] = (float)x[i];
    const struct pp_delta_weights w = {of[0] + AT_CONV, of[0] + AT_DT,
                                       of[0] + AT_LOG, of[0] + AT_NORM};
    const struct pp_delta_kernels *k = pp_kernels_f32.delta;
    k->fwd(of[1], of[2], of[0], &w, &shape, of[3], NULL);
    for (size_t i = 0; i < N * NZ; i++)
        got[i] = (double)of[1][i];
    ok(farthest(got, y, N * NZ, 1) < 1e-4, "fp32 is near fp64 (%.2g)",
       farthest(got, y, N * NZ, 1));
    for (size_t i = 0; i < N * NZ; i++)
        of[1][i] = (float)dy[i];
    k->bwd_input(of[4], of[5], of[6], of[1], of[0], of[2], &w, &shape, of[3],
                 NULL);
    for (size_t i = 0; i < N * R; i++)
        got[i] = (double)of[4][i];
    ok(farthest(got, din, N * R, 1) < 1e-3, "fp32 gradients, too (%.2g)",
       farthest(got, din, N * R, 1));
    for (size_t i = 0; i < 7; i++)
        free(of[i]);
    free(got);
}

/* Returns the column of a grouped row that has what is in a column of another
 * row. */
static size_t grouped_column(size_t c)
{
    enum { EACH = NV / NK, GROUP = 2 * DK + 2 * EACH * DV };
    size_t keys = NK * DK, value = c - 2 * keys, gate = c - CH - NZ;
    if (c < keys)
        return c / DK * GROUP + c % DK;
    if (c < 2 * keys)
        return (c - keys) / DK * GROUP + DK + c % DK;
    if (c < CH + NZ) { /* values, then z */
        size_t z = value >= NZ, i = value - z * NZ;
        return i / (EACH * DV) * GROUP + 2 * DK + z * EACH * DV +
               i % (EACH * DV);
    }
    size_t a = gate >= NV, head = gate - a * NV;
    return CH + NZ + head / EACH * 2 * EACH + a * EACH + head % EACH;
}

/* Compares the numbers of the same rows, grouped: they have the same bits. grad
 * has all gradients of rows that are not. */
static void test_grouped(const double *x, const double *dy, const double *y,
                         const double *grad)
{
    struct pp_delta_shape s = shape;
    const struct pp_delta_kernels *k = pp_kernels_f64.delta;
    double *in = room(N_INPUTS, sizeof *in), *g = room(N_INPUTS, sizeof *g);
    double *got = room(N * NZ, sizeof *got), *o = room(N * NZ, sizeof *o);
    double *du = room(N * CH, sizeof *du), *dn = room(N * DV, sizeof *dn);
    double *scratch = room(scratch_size(), sizeof *scratch);
    size_t off = 0;
    memcpy(in, x, N_INPUTS * sizeof *in);
    for (size_t i = 0; i < N * R; i++)
        in[i / R * R + grouped_column(i % R)] = x[i];
    const struct pp_delta_weights w = weights_of(in);
    const struct pp_delta_gradients of = {g + AT_CONV, g + AT_DT, g + AT_LOG,
                                          g + AT_NORM};
    s.grouped = true;
    k->fwd(got, o, in, &w, &s, scratch, NULL);
    ok(!memcmp(got, y, N * NZ * sizeof *y), "grouped rows give the same bits");
    k->bwd_input(g, du, dn, dy, in, o, &w, &s, scratch, NULL);
    k->bwd_weight(&of, g, du, dn, in, &w, &s, NULL);
    for (size_t i = 0; i < N_INPUTS; i++) {
        size_t at = i < N * R ? i / R * R + grouped_column(i % R) : i;
        off += memcmp(&g[at], &grad[i], sizeof *g) != 0;
    }
    ok(off == 0, "and so do their gradients (%zu differ)", off);
    double *all[] = {in, g, got, o, du, dn, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Copies the columns of half of the heads to rows of their own, or back. */
static void copy_share(double *of, double *all, size_t share, bool to)
{
    enum { H = NK / 2, V = NV / 2 };
    const size_t n[] = {H * DK, H * DK, V * DV, V * DV, V, V};
    for (size_t t = 0; t < N; t++)
        for (size_t k = 0, at = 0, i = 0; k < 6; at += 2 * n[k++])
            for (size_t j = 0; j < n[k]; j++, i++) {
                double *a = &of[t * R / 2 + i],
                       *b = &all[t * R + at + share * n[k] + j];
                *(to ? a : b) = *(to ? b : a);
            }
}

/* Computes one half of the heads after the other from the weights of all: they
 * have the same bits. */
static void test_shares(double *x, const double *dy, const double *y,
                        const double *grad)
{
    enum { W = NZ / 2 };
    const struct pp_delta_kernels *k = pp_kernels_f64.delta;
    double *in = room(N * R / 2, sizeof *in),
           *din = room(N * R / 2, sizeof *in);
    double *got = room(N * W, sizeof *got), *o = room(N * W, sizeof *o);
    double *half = room(N * W, sizeof *half), *g = room(N_INPUTS, sizeof *g);
    double *du = room(N * CH / 2, sizeof *du), *dn = room(N * DV, sizeof *dn);
    double *scratch = room(scratch_size(), sizeof *scratch);
    const struct pp_delta_weights w = weights_of(x);
    const struct pp_delta_gradients of = {g + AT_CONV, g + AT_DT, g + AT_LOG,
                                          g + AT_NORM};
    size_t off = 0;
    for (size_t share = 0; share < 2; share++) {
        struct pp_delta_shape s = shape;
        s.NK = NK / 2;
        s.NV = NV / 2;
        s.share = share;
        s.others = 1;
        copy_share(in, x, share, true);
        for (size_t i = 0; i < N * W; i++)
            half[i] = dy[i / W * NZ + share * W + i % W];
        k->fwd(got, o, in, &w, &s, scratch, NULL);
        for (size_t i = 0; i < N * W; i++)
            off += memcmp(&got[i], &y[i / W * NZ + share * W + i % W],
                          sizeof *got) != 0;
        k->bwd_input(din, du, dn, half, in, o, &w, &s, scratch, NULL);
        k->bwd_weight(&of, din, du, dn, in, &w, &s, NULL);
        copy_share(din, g, share, false);
    }
    for (size_t i = 0; i < AT_NORM; i++)
        off += memcmp(&g[i], &grad[i], sizeof *g) != 0;
    ok(off == 0, "shares of the heads give the same bits (%zu differ)", off);
    ok(farthest(g + AT_NORM, grad + AT_NORM, DV, 1) < 1e-12,
       "and add up to the gradients of the norm");
    double *all[] = {in, din, got, o, half, g, du, dn, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Parts of the rows: two of them end within a sequence, one has fewer rows than
 * the convolution reads, and one has none. */
enum { N_PARTS = 5 };
static const size_t cuts[N_PARTS + 1] = {0, 40, 42, 42, 90, N};

struct part {
    struct pp_delta_shape s;
    int32_t bounds[N_SEQUENCES + 1];
    size_t first;
    bool goes_on;
};

/* Finds a part, and its share of each sequence. */
static void find_part(struct part *p, size_t i)
{
    size_t n = 0, end = cuts[i + 1], from = cuts[i];
    *p = (struct part){.s = shape, .first = from};
    for (size_t k = 0; k < N_SEQUENCES; k++) {
        size_t a = (size_t)bounds[k], b = (size_t)bounds[k + 1];
        if (b <= from || a >= end)
            continue;
        p->goes_on |= a < from;
        p->bounds[n] = (int32_t)(a < from ? 0 : a - from);
        p->bounds[++n] = (int32_t)((b < end ? b : end) - from);
    }
    if (from == end)
        p->goes_on = true;
    p->s.N = end - from;
    p->s.n_sequences = n;
    p->s.cu_padded = p->bounds;
}

/* Computes parts one after the other, and back: the numbers are those of whole
 * sequences. */
static void test_parts(const double *x, const double *dy, const double *y,
                       const double *grad)
{
    enum { PASSES = NV * DK * DV + 2 * (TAPS - 1) * CH };
    static double passed[N_PARTS][PASSES];
    const struct pp_delta_kernels *k = pp_kernels_f64.delta;
    double *g = room(N_INPUTS, sizeof *g);
    double *got = room(N * NZ, sizeof *got), *o = room(N * NZ, sizeof *o);
    double *du = room(N * CH, sizeof *du), *dn = room(N * DV, sizeof *dn);
    double *scratch = room(scratch_size(), sizeof *scratch);
    const struct pp_delta_weights w = weights_of(x);
    const struct pp_delta_gradients of = {g + AT_CONV, g + AT_DT, g + AT_LOG,
                                          g + AT_NORM};
    struct part part[N_PARTS];
    memset(passed, 0xff, sizeof passed);
    ok(PASSES == pp_delta_passes(NK, NV, DK, DV, TAPS), "%d numbers pass",
       PASSES);
    for (size_t i = 0; i < N_PARTS; i++) {
        struct part *p = &part[i];
        find_part(p, i);
        p->s.before = p->goes_on ? passed[i - 1] : NULL;
        p->s.behind = i + 1 < N_PARTS ? passed[i] : NULL;
        k->fwd(got + p->first * NZ, o + p->first * NZ, x + p->first * R, &w,
               &p->s, scratch, NULL);
    }
    ok(farthest(got, y, N * NZ, 1) < 1e-12, "parts of sequences (%.2g)",
       farthest(got, y, N * NZ, 1));
    for (size_t i = N_PARTS; i-- > 0;) {
        struct part *p = &part[i];
        if (i > 0 && !p->goes_on)
            memset(passed[i - 1], 0, sizeof *passed);
        k->bwd_input(g + p->first * R, du + p->first * CH, dn + p->first * DV,
                     dy + p->first * NZ, x + p->first * R, o + p->first * NZ,
                     &w, &p->s, scratch, NULL);
        k->bwd_weight(&of, g + p->first * R, du + p->first * CH,
                      dn + p->first * DV, x + p->first * R, &w, &p->s, NULL);
    }
    ok(farthest(g, grad, N_INPUTS, 1) < 1e-12, "and their gradients (%.2g)",
       farthest(g, grad, N_INPUTS, 1));
    double *all[] = {g, got, o, du, dn, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(void)
{
    double *x = room(N_INPUTS, sizeof *x), *dy = room(N * NZ, sizeof *dy);
    double *y = room(N * NZ, sizeof *y), *o = room(N * NZ, sizeof *o);
    double *want = room(N * NZ, sizeof *want);
    double *grad = room(N_INPUTS, sizeof *grad);
    double *du = room(N * CH, sizeof *du), *dn = room(N * DV, sizeof *dn);
    double *scratch = room(scratch_size(), sizeof *scratch);
    for (size_t i = 0; i < N_INPUTS; i++)
        x[i] = random_of(i) * (i < AT_CONV ? 1 : 0.7);
    for (size_t i = 0; i < N * NZ; i++)
        dy[i] = i / NZ < 145 ? random_of(7 * i + 3) : 0; /* padding: 0 */
    loss_of(x, dy, y, o, scratch);
    for (size_t s = 0; s < N_SEQUENCES; s++)
        for (size_t v = 0; v < NV; v++)
            head_want(x, v, (size_t)bounds[s], (size_t)bounds[s + 1], want);
    ok(farthest(y, want, 145 * NZ, 1) < 1e-12,
       "outputs are sums over pairs (%.2g)", farthest(y, want, 145 * NZ, 1));

    const struct pp_delta_weights w = weights_of(x);
    const struct pp_delta_gradients g = {grad + AT_CONV, grad + AT_DT,
                                         grad + AT_LOG, grad + AT_NORM};
    const struct pp_delta_kernels *k = pp_kernels_f64.delta;
    memset(scratch, 0xff, scratch_size() * sizeof *scratch);
    memset(grad, 0xff, N * R * sizeof *grad);
    k->bwd_input(grad, du, dn, dy, x, o, &w, &shape, scratch, NULL);
    k->bwd_weight(&g, grad, du, dn, x, &w, &shape, NULL);
    double worst = 0, where = 0;
    for (size_t i = 0; i < N_INPUTS; i += i < AT_CONV ? 61 : 1) {
        double kept = x[i], step = 1e-5;
        x[i] = kept + step;
        double more = loss_of(x, dy, y, o, scratch);
        x[i] = kept - step;
        double less = loss_of(x, dy, y, o, scratch);
        x[i] = kept;
        double off =
            fabs((more - less) / (2 * step) - grad[i]) / fmax(1, fabs(grad[i]));
        where = off > worst ? (double)i : where;
        worst = fmax(worst, off);
    }
    ok(worst < 1e-7, "gradients are finite differences (%.2g at %.0f)", worst,
       where);
    double none = 0;
    for (size_t i = 145 * R; i < N * R; i++)
        none = fmax(none, fabs(grad[i]));
    ok(none <= 0, "padding has no gradient");
    loss_of(x, dy, y, o, scratch);
    test_grouped(x, dy, y, grad);
    test_parts(x, dy, y, grad);
    test_shares(x, dy, y, grad);
    test_single(x, dy, y, grad);
    double *all[] = {x, dy, y, o, want, grad, du, dn, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return done();
}
