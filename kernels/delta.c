/* SPDX-License-Identifier: MIT */
/* delta - the gated delta rule, token by token. A head's state stays in the
 * cache, and nothing is saved for backward but the inputs: it walks forward
 * once more, keeps the state before every PP_DELTA_ROWS rows, and from there
 * the states of the rows that it walks back. */
#include "delta_rows.h"

#include "real.h"

/* A value head at a token. */
struct delta_head {
    const struct pp_delta_shape *s;
    const real *in, *conv;
    size_t R, CH, NZ;  /* widths of rows: in, u, and outputs */
    size_t key, value; /* numbers of the heads */
    struct pp_delta_gates at;
    double decay, dt;   /* -exp(log), dt */
    real *state, *rows; /* before the first row, or NULL */
    /* DK, DK, DV each: before and after the activation; and q and k as the
     * state has them. */
    real *u, *act, *q, *k;
    double q_by, k_by;        /* what q and k were multiplied by */
    double alpha, beta, rate; /* exp(g), sigmoid(b), a + dt */
};

/* The places of what passes between parts of a sequence; NULL without. */
PP_INLINE real *states_in(void *passed)
{
    return passed;
}

PP_INLINE real *rows_in(void *passed, const struct pp_delta_shape *s)
{
    return passed ? states_in(passed) + s->NV * s->DK * s->DV : NULL;
}

PP_INLINE real *gradients_in(void *passed, const struct pp_delta_shape *s)
{
    return passed ? rows_in(passed, s) + (s->taps - 1) * pp_delta_channels_of(s)
                  : NULL;
}

PP_INLINE double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

PP_INLINE double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* Adds taps of channels of a token, whose sequence begins at row `first`. */
PP_CLONES static void convolve(real *u, const struct delta_head *h,
                               struct pp_delta_part at, size_t t, size_t first)
{
    size_t taps = h->s->taps, n = at.n;
    const real *w = h->conv + pp_delta_taps(h->s, at.channel) * taps;
    for (size_t c = 0; c < n; c++)
        u[c] = 0;
    for (size_t j = 0; j < taps; j++) {
        size_t back = taps - 1 - j;
        const real *x;
        if (t >= first + back)
            x = h->in + (t - back) * h->R + at.column;
        else if (t < back && !first && h->rows)
            x = h->rows + (t + j) * h->CH + at.channel;
        else
            continue;
        for (size_t c = 0; c < n; c++)
            u[c] += w[c * taps + j] * x[c];
    }
}

PP_CLONES static void silu_row(real *y, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + fast_exp(-x[i]));
}

PP_CLONES static void silu_row_bwd(real *dx, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real by = 1 / (1 + fast_exp(-x[i]));
        dx[i] *= by * (1 + x[i] * (1 - by));
    }
}

/* y = x by / length of x; returns the factor. */
static double unit(real *y, const real *x, size_t n, double by)
{
    double f = by / sqrt(dot_rows(x, x, n) + 1e-6);
    for (size_t i = 0; i < n; i++)
        y[i] = (real)(f * (double)x[i]);
    return f;
}

/* Turns the gradient of y, by * x / length, into the gradient of x. */
static void unit_bwd(real *dx, const real *x, size_t n, double f, double by)
{
    double pull = f * dot_rows(dx, x, n) * (f / by) * (f / by);
    for (size_t i = 0; i < n; i++)
        dx[i] = (real)(f * (double)dx[i] - pull * (double)x[i]);
}

static void read_token(struct delta_head *h, size_t t, size_t first)
{
    const struct pp_delta_shape *s = h->s;
    const real *row = h->in + t * h->R;
    size_t DK = s->DK, before = h->value % (s->NV / s->NK) * s->DV;
    struct pp_delta_part values = pp_delta_part(s, h->key, PP_DELTA_VALUES);
    values = (struct pp_delta_part){values.channel + before,
                                    values.column + before, s->DV};
    convolve(h->u, h, pp_delta_part(s, h->key, PP_DELTA_QUERY), t, first);
    convolve(h->u + DK, h, pp_delta_part(s, h->key, PP_DELTA_KEY), t, first);
    convolve(h->u + 2 * DK, h, values, t, first);
    silu_row(h->act, h->u, 2 * DK + s->DV);
    h->q_by = unit(h->q, h->act, DK, 1 / sqrt((double)DK));
    h->k_by = unit(h->k, h->act + DK, DK, 1);
    h->beta = logistic((double)row[h->at.b]);
    h->rate = (double)row[h->at.a] + h->dt;
    h->alpha = exp(h->decay * softplus(h->rate));
}

/* Moves a state by one token. delta is beta (v - S^T k), and v - S^T k is left
 * in rest. */
PP_CLONES static void step(real *restrict S, const struct delta_head *h,
                           real *restrict delta, real *restrict rest)
{
    size_t DK = h->s->DK, DV = h->s->DV;
    real alpha = (real)h->alpha, beta = (real)h->beta;
    const real *restrict v = h->act + 2 * DK;
    for (size_t j = 0; j < DV; j++)
        rest[j] = 0;
    for (size_t i = 0; i < DK; i++)
        for (size_t j = 0; j < DV; j++) {
            S[i * DV + j] *= alpha;
            rest[j] += h->k[i] * S[i * DV + j];
        }
    for (size_t j = 0; j < DV; j++) {
        rest[j] = v[j] - rest[j];
        delta[j] = beta * rest[j];
    }
    for (size_t i = 0; i < DK; i++)
        for (size_t j = 0; j < DV; j++)
            S[i * DV + j] += h->k[i] * delta[j];
}

PP_CLONES static void read_state(real *restrict o, const real *restrict S,
                                 const struct delta_head *h)
{
    size_t DK = h->s->DK, DV = h->s->DV;
    for (size_t j = 0; j < DV; j++)
        o[j] = 0;
    for (size_t i = 0; i < DK; i++)
        for (size_t j = 0; j < DV; j++)
            o[j] += h->q[i] * S[i * DV + j];
}

static double rstd_of(const real *o, const struct pp_delta_shape *s)
{
    return 1 / sqrt(dot_rows(o, o, s->DV) / (double)s->DV + s->eps);
}

PP_CLONES static void norm_row(real *y, const real *o, const real *z,
                               const real *norm, real rstd, size_t DV)
{
    for (size_t j = 0; j < DV; j++)
        y[j] = o[j] * rstd * norm[j] * (z[j] / (1 + fast_exp(-z[j])));
}

/* From dy: dz, what it adds to dnorm, and the gradient of o rstd in dn. */
PP_CLONES static void
norm_row_bwd(real *restrict dn, real *restrict dz, real *restrict dnorm,
             const real *restrict dy, const real *restrict o,
             const real *restrict z, const real *restrict norm, real rstd,
             size_t DV)
{
    for (size_t j = 0; j < DV; j++) {
        real by = 1 / (1 + fast_exp(-z[j])), n = o[j] * rstd;
        dnorm[j] += dy[j] * n * z[j] * by;
        dz[j] = dy[j] * n * norm[j] * by * (1 + z[j] * (1 - by));
        dn[j] = dy[j] * norm[j] * z[j] * by;
    }
}

static real *state_of(const struct pp_delta_shape *s, void *passed,
                      size_t value)
{
    return passed ? states_in(passed) + value * s->DK * s->DV : NULL;
}

static struct delta_head head_of(const struct pp_delta_shape *s, const void *in,
                                 const struct pp_delta_weights *w, size_t value,
                                 real *room)
{
    const real *dt = w->dt, *lg = w->log;
    size_t number = pp_delta_head(s, value);
    size_t n = 2 * s->DK + s->DV, each = s->NV / s->NK, key = value / each;
    return (struct delta_head){.s = s,
                               .in = in,
                               .conv = w->conv,
                               .CH = pp_delta_channels_of(s),
                               .NZ = s->NV * s->DV,
                               .R = pp_delta_row(s),
                               .key = key,
                               .value = value,
                               .at = pp_delta_gates(s, value),
                               .state = state_of(s, s->before, value),
                               .rows = rows_in(s->before, s),
                               .decay = -exp((double)lg[number]),
                               .dt = (double)dt[number],
                               .u = room,
                               .act = room + n,
                               .q = room + 2 * n,
                               .k = room + 2 * n + s->DK};
}

/* Returns the first row of the sequence of row t; *sequence is its number, from
 * the number of a row before t on, or after t if the walk goes back. Rows
 * behind the last sequence are one more. */
static size_t first_row(const struct pp_delta_shape *s, size_t t,
                        size_t *sequence)
{
    const int32_t *cu = s->cu_padded;
    while (*sequence < s->n_sequences && t >= (size_t)cu[*sequence + 1])
        ++*sequence;
    while (*sequence > 0 && t < (size_t)cu[*sequence])
        --*sequence;
    return (size_t)cu[*sequence];
}

/* Sets the state before row t, if its sequence begins there, or goes on there
 * from an earlier part. */
static void begin(real *S, const struct delta_head *h, size_t t, size_t first)
{
    size_t bytes = h->s->DK * h->s->DV * sizeof *S;
    if (t == 0 && h->state)
        memcpy(S, h->state, bytes);
    else if (t == first)
        memset(S, 0, bytes);
}

/* Writes the last rows that the convolution of a later part reads. */
static void pass_rows(const struct pp_delta_shape *s, const real *in)
{
    size_t CH = pp_delta_channels_of(s), n = s->taps - 1, sequence = 0;
    const real *before = rows_in(s->before, s);
    size_t first = s->N ? first_row(s, s->N - 1, &sequence) : 0;
    real *to = rows_in(s->behind, s);
    for (size_t j = 0; j < n; j++, to += CH) {
        size_t at = s->N + j; /* of row at - n */
        bool here = at >= first + n, earlier = at < n && !first && before;
        if (earlier)
            memcpy(to, before + at * CH, CH * sizeof *to);
        else if (!here)
            memset(to, 0, CH * sizeof *to);
        for (size_t i = 0; here && i < s->NK * PP_N_DELTA_KINDS; i++) {
            const struct pp_delta_part c =
                pp_delta_part(s, i / PP_N_DELTA_KINDS, i % PP_N_DELTA_KINDS);
            memcpy(to + c.channel, in + (at - n) * pp_delta_row(s) + c.column,
                   c.n * sizeof *to);
        }
    }
}

static PP_DELTA_FWD(delta_fwd)
{
    (void)stream;
    size_t DK = s->DK, DV = s->DV, NZ = s->NV * DV;
    real *S = scratch, *delta = S + DK * DV, *rest = delta + DV;
    for (size_t value = 0; value < s->NV; value++) {
        struct delta_head h = head_of(s, in, w, value, rest + DV);
        size_t sequence = 0;
        begin(S, &h, 0, 0);
        for (size_t t = 0; t < s->N; t++) {
            size_t first = first_row(s, t, &sequence), at = t * NZ + value * DV;
            real *out = (real *)o + at;
            begin(S, &h, t, first);
            read_token(&h, t, first);
            step(S, &h, delta, rest);
            read_state(out, S, &h);
            norm_row((real *)y + at, out, h.in + t * h.R + h.at.z, w->norm,
                     (real)rstd_of(out, s), DV);
        }
        if (s->behind)
            memcpy(state_of(s, s->behind, value), S, DK * DV * sizeof *S);
    }
    if (s->behind)
        pass_rows(s, in);
    return 0;
}

/* The gradients of a token in backward, and room. */
struct back {
    real *dS, *du; /* (DK, DV); q, k, v */
    real *dout, *delta, *rest, *ddelta, *dread;
};

/* Takes the gradients of a token through the state: S is the state before it.
 * Returns the gradient of alpha. */
PP_CLONES static double step_bwd(const struct delta_head *h,
                                 const struct back *b, const real *restrict S,
                                 double *dbeta)
{
    size_t DK = h->s->DK, DV = h->s->DV;
    real *dq = b->du, *dk = b->du + DK, *dv = b->du + 2 * DK;
    const real *v = h->act + 2 * DK;
    double alpha = h->alpha, dalpha = 0;
    for (size_t j = 0; j < DV; j++)
        b->rest[j] = b->ddelta[j] = 0;
    for (size_t i = 0; i < DK; i++) {
        real by = (real)(alpha * (double)h->k[i]);
        for (size_t j = 0; j < DV; j++)
            b->rest[j] += by * S[i * DV + j];
    }
    for (size_t j = 0; j < DV; j++) {
        b->rest[j] = v[j] - b->rest[j];
        b->delta[j] = (real)h->beta * b->rest[j];
    }
    for (size_t i = 0; i < DK; i++) {
        real *row = b->dS + i * DV;
        for (size_t j = 0; j < DV; j++) {
            row[j] += h->q[i] * b->dout[j];
            b->ddelta[j] += h->k[i] * row[j];
        }
        dk[i] = (real)dot_rows(row, b->delta, DV);
    }
    *dbeta = dot_rows(b->ddelta, b->rest, DV);
    for (size_t j = 0; j < DV; j++) {
        dv[j] = (real)h->beta * b->ddelta[j];
        b->dread[j] = -dv[j];
    }
    double through = dot_rows(b->delta, b->dout, DV);
    for (size_t i = 0; i < DK; i++) {
        real *row = b->dS + i * DV;
        const real *before = S + i * DV;
        dq[i] = (real)(alpha * dot_rows(before, b->dout, DV) +
                       (double)h->k[i] * through);
        dk[i] += (real)(alpha * dot_rows(before, b->dread, DV));
        for (size_t j = 0; j < DV; j++)
            row[j] += h->k[i] * b->dread[j];
        dalpha += dot_rows(row, before, DV);
        for (size_t j = 0; j < DV; j++)
            row[j] *= (real)alpha;
    }
    return dalpha;
}

/* Arrays that backward reads and writes for all heads. */
struct backward {
    const struct pp_delta_weights *w;
    const real *dy, *o;
    real *din, *du, *dnorm;
};

static void token_bwd(struct delta_head *h, const struct back *b,
                      const struct backward *x, const real *S, size_t t)
{
    const struct pp_delta_shape *s = h->s;
    size_t DK = s->DK, DV = s->DV, keys = s->NK * DK;
    size_t at = t * h->NZ + h->value * DV, z = h->at.z;
    const real *o = x->o + at;
    real *din = x->din + t * h->R, *du = x->du + t * h->CH;
    double rstd = rstd_of(o, s), dbeta;
    norm_row_bwd(b->dout, din + z, x->dnorm + t * DV, x->dy + at, o,
                 h->in + t * h->R + z, x->w->norm, (real)rstd, DV);
    double mean = dot_rows(b->dout, o, DV) * rstd * rstd / (double)DV;
    for (size_t j = 0; j < DV; j++)
        b->dout[j] = (real)(rstd * ((double)b->dout[j] - mean * (double)o[j]));
    double dalpha = step_bwd(h, b, S, &dbeta);
    din[h->at.b] = (real)(dbeta * h->beta * (1 - h->beta));
    din[h->at.a] = (real)(dalpha * h->alpha * h->decay * logistic(h->rate));
    unit_bwd(b->du, h->act, DK, h->q_by, 1 / sqrt((double)DK));
    unit_bwd(b->du + DK, h->act + DK, DK, h->k_by, 1);
    silu_row_bwd(b->du, h->u, 2 * DK + DV);
    for (size_t i = 0; i < DK; i++) {
        du[h->key * DK + i] += b->du[i];
        du[keys + h->key * DK + i] += b->du[DK + i];
    }
    memcpy(du + 2 * keys + h->value * DV, b->du + 2 * DK, DV * sizeof *du);
}

static void head_bwd(struct delta_head *h, const struct back *b,
                     const struct backward *x, real *states, real *kept)
{
    const struct pp_delta_shape *s = h->s;
    size_t size = s->DK * s->DV, bytes = size * sizeof(real), sequence = 0;
    real *S = states + PP_DELTA_ROWS * size;
    const real *behind = state_of(s, s->behind, h->value);
    memset(S, 0, bytes);
    for (size_t t = 0; t < s->N; t++) {
        size_t first = first_row(s, t, &sequence);
        if (t % PP_DELTA_ROWS == 0)
            memcpy(kept + t / PP_DELTA_ROWS * size, S, bytes);
        begin(S, h, t, first);
        read_token(h, t, first);
        step(S, h, b->delta, b->rest);
    }
    if (behind)
        memcpy(b->dS, behind, bytes);
    else
        memset(b->dS, 0, bytes);
    for (size_t end = s->N; end > 0;) {
        size_t start = (end - 1) / PP_DELTA_ROWS * PP_DELTA_ROWS;
        memcpy(S, kept + start / PP_DELTA_ROWS * size, bytes);
        for (size_t t = start; t < end; t++) {
            size_t first = first_row(s, t, &sequence);
            begin(S, h, t, first);
            memcpy(states + (t - start) * size, S, bytes);
            if (t + 1 == end)
                break;
            read_token(h, t, first);
            step(S, h, b->delta, b->rest);
        }
        for (size_t t = end; t-- > start;) {
            size_t first = first_row(s, t, &sequence);
            read_token(h, t, first);
            token_bwd(h, b, x, states + (t - start) * size, t);
            if (t == first && t > 0)
                memset(b->dS, 0, bytes);
        }
        end = start;
    }
    if (h->state)
        memcpy(h->state, b->dS, bytes);
}

/* The gradients of u of row t + later, which is row `later` behind row t of a
 * sequence that ends at row `end`; NULL: there is no such row. The next part
 * has them behind the last row. */
PP_INLINE const real *u_gradient(const struct pp_delta_shape *s, const real *du,
                                 size_t t, size_t end)
{
    const real *behind = gradients_in(s->behind, s);
    return t < end ? du + t * pp_delta_channels_of(s)
           : end == s->N && behind
               ? behind + (t - end) * pp_delta_channels_of(s)
               : NULL;
}

/* Adds to the gradient of what the convolution read of channels `back` rows
 * before. */
PP_CLONES static void convolve_bwd(real *din, const real *du, const real *conv,
                                   struct pp_delta_part at,
                                   const struct pp_delta_shape *s, size_t back)
{
    real *dx = din + at.column;
    size_t taps = s->taps;
    const real *w =
        conv + pp_delta_taps(s, at.channel) * taps + taps - 1 - back;
    const real *d = du + at.channel;
    for (size_t c = 0; c < at.n; c++)
        dx[c] = (back ? dx[c] : 0) + w[c * taps] * d[c];
}

static void convolutions_bwd(real *din, const real *du, const real *conv,
                             const struct pp_delta_shape *s)
{
    size_t sequence = 0;
    for (size_t t = 0; t < s->N; t++) {
        first_row(s, t, &sequence);
        size_t end = sequence < s->n_sequences
                         ? (size_t)s->cu_padded[sequence + 1]
                         : s->N;
        for (size_t i = 0; i < s->taps * s->NK * PP_N_DELTA_KINDS; i++) {
            size_t back = i / (s->NK * PP_N_DELTA_KINDS),
                   part = i % (s->NK * PP_N_DELTA_KINDS);
            const real *d = u_gradient(s, du, t + back, end);
            if (d)
                convolve_bwd(din + t * pp_delta_row(s), d, conv,
                             pp_delta_part(s, part / PP_N_DELTA_KINDS,
                                           part % PP_N_DELTA_KINDS),
                             s, back);
        }
    }
}

/* Writes the gradients of u that an earlier part reads. */
static void pass_gradients(const struct pp_delta_shape *s, const real *du)
{
    size_t CH = pp_delta_channels_of(s);
    size_t end = s->n_sequences ? (size_t)s->cu_padded[1] : s->N;
    real *to = gradients_in(s->before, s);
    for (size_t t = 0; t + 1 < s->taps; t++, to += CH) {
        const real *d = u_gradient(s, du, t, end);
        if (d)
            memcpy(to, d, CH * sizeof *to);
        else
            memset(to, 0, CH * sizeof *to);
    }
}

static PP_DELTA_BWD_INPUT(delta_bwd_input)
{
    (void)stream;
    size_t DK = s->DK, DV = s->DV, size = DK * DV;
    struct backward x = {w, dy, o, din, du, dnorm};
    real *states = scratch, *room = states + (PP_DELTA_ROWS + 2) * size;
    struct back b = {.dS = states + (PP_DELTA_ROWS + 1) * size, .du = room};
    b.dout = room + 2 * DK + DV;
    b.delta = b.dout + DV;
    b.rest = b.delta + DV;
    b.ddelta = b.rest + DV;
    b.dread = b.ddelta + DV;
    real *kept = states + pp_delta_scratch(DK, DV) - size;
    memset(du, 0, s->N * pp_delta_channels_of(s) * sizeof(real));
    memset(dnorm, 0, s->N * DV * sizeof(real));
    for (size_t value = 0; value < s->NV; value++) {
        struct delta_head h = head_of(s, in, w, value, b.dread + DV);
        head_bwd(&h, &b, &x, states, kept);
    }
    convolutions_bwd(din, du, w->conv, s);
    if (s->before)
        pass_gradients(s, du);
    return 0;
}

PP_CLONES static void taps_row(real *restrict dw, const real *restrict du,
                               const real *restrict x, size_t n, size_t taps)
{
    for (size_t c = 0; c < n; c++)
        dw[c * taps] += du[c] * x[c];
}

/* Adds up the gradients of the weights of the convolution at row t, of which du
 * is a row: it read the rows from `first` on, but no later one than `last`. */
static void taps_bwd(real *dconv, const real *du, const real *in,
                     const struct pp_delta_shape *s, size_t t, size_t first,
                     size_t last)
{
    for (size_t back = 0; back < s->taps && first + back <= t; back++) {
        const real *x = in + (t - back) * pp_delta_row(s);
        for (size_t i = 0; t - back <= last && i < s->NK * PP_N_DELTA_KINDS;
             i++) {
            const struct pp_delta_part c =
                pp_delta_part(s, i / PP_N_DELTA_KINDS, i % PP_N_DELTA_KINDS);
            taps_row(dconv + (pp_delta_taps(s, c.channel) + 1) * s->taps - 1 -
                         back,
                     du + c.channel, x + c.column, c.n, s->taps);
        }
    }
}

/* Adds up the gradients of dt and log of a head: da is the gradient of a. */
static void decay_bwd(real *ddt, real *dlog, real a, real da, double dt)
{
    double rate = (double)a + dt;
    /* softplus / sigmoid: the quotient of the gradients */
    double by = rate < -30 ? 1 : softplus(rate) / logistic(rate);
    *ddt += da;
    *dlog += (real)((double)da * by);
}

static PP_DELTA_BWD_WEIGHT(delta_bwd_weight)
{
    (void)stream;
    size_t DV = s->DV, CH = pp_delta_channels_of(s), R = pp_delta_row(s),
           sequence = 0;
    const real *dt = w->dt;
    real *ddt = g->dt, *dlog = g->log, *dweight = g->norm;
    for (size_t t = 0; t < s->N; t++) {
        size_t first = first_row(s, t, &sequence);
        const real *x = (const real *)in + t * R,
                   *d = (const real *)din + t * R;
        taps_bwd(g->conv, (const real *)du + t * CH, in, s, t, first, t);
        for (size_t v = 0; v < s->NV; v++) {
            size_t a = pp_delta_gates(s, v).a, i = pp_delta_head(s, v);
            decay_bwd(&ddt[i], &dlog[i], x[a], d[a], (double)dt[i]);
        }
        for (size_t j = 0; j < DV; j++)
            dweight[j] += ((const real *)dnorm)[t * DV + j];
    }
    /* Rows behind the last one read these, too. */
    const real *behind = gradients_in(s->behind, s);
    size_t first = s->N ? first_row(s, s->N - 1, &sequence) : 0;
    for (size_t i = 0; behind && s->N && i + 1 < s->taps; i++)
        taps_bwd(g->conv, behind + i * CH, in, s, s->N + i, first, s->N - 1);
    return 0;
}

const struct pp_delta_kernels PP_KERNEL(delta_kernels) = {
    delta_fwd, delta_bwd_input, delta_bwd_weight};
