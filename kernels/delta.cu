/* SPDX-License-Identifier: MIT */
/* delta on a GPU: linear attention by the gated delta rule, token by token. A
 * column of a state depends on no other column, so in forward a block has 32
 * columns of a head. In backward the gradients of a key are sums over columns:
 * a block has a head, and the value heads of a key come one after the other. */
#include "columns.cuh"
#include "delta_rows.h"
#include "device.cuh"
#include "kernel_sizes.h"

#define THREADS 256
#define WARPS (THREADS / PP_WARP)

/* Numbers of all rows, in scratch. */
struct delta_rows {
    float *qkv;   /* (N, CH): unit queries by 1 / sqrt(DK), unit keys, values */
    float *by;    /* (N, 2 NK): what queries and keys were multiplied by */
    float *gates; /* (N, 2 NV): alpha, then beta */
    float *dout, *dqkv, *dnorm; /* (N, NV DV), (N, CH), (N, DV) */
    float *kept, *states, *dS;  /* of a value head of each key head */
    float *state;               /* of the blocks of forward */
};

static struct delta_rows rows_of(const struct pp_delta_shape *s, void *scratch)
{
    size_t CH = pp_delta_channels_of(s), size = s->DK * s->DV;
    struct delta_rows r;
    r.qkv = (float *)(((uintptr_t)scratch + 15) / 16 * 16);
    r.by = r.qkv + s->N * CH;
    r.gates = r.by + s->N * 2 * s->NK;
    r.dout = r.gates + s->N * 2 * s->NV;
    r.dqkv = r.dout + s->N * s->NV * s->DV;
    r.dnorm = r.dqkv + s->N * CH;
    r.state = r.dnorm + s->N * s->DV;
    r.states = r.state;
    r.dS = r.states + s->NK * PP_DELTA_ROWS * size;
    r.kept = r.dS + s->NK * size;
    return r;
}

/* The sequence of a row: its first row, and the row behind it. Rows behind the
 * last sequence are one more. */
struct row_bounds {
    size_t first, end;
};

static __device__ struct row_bounds bounds_of(const struct pp_delta_shape *s,
                                              size_t t)
{
    size_t low = 0, high = s->n_sequences;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((size_t)s->cu_padded[middle + 1] <= t)
            low = middle + 1;
        else
            high = middle;
    }
    struct row_bounds b = {(size_t)s->cu_padded[low],
                           low < s->n_sequences ? (size_t)s->cu_padded[low + 1]
                                                : s->N};
    return b;
}

/* The places of what passes between parts of a sequence. */
static __device__ float *state_in(const struct pp_delta_shape *s, void *passed,
                                  size_t value)
{
    return (float *)passed + value * s->DK * s->DV;
}

static __device__ float *rows_in(const struct pp_delta_shape *s, void *passed)
{
    return (float *)passed + s->NV * s->DK * s->DV;
}

static __device__ float *gradients_in(const struct pp_delta_shape *s,
                                      void *passed)
{
    return rows_in(s, passed) + (s->taps - 1) * pp_delta_channels_of(s);
}

/* Returns the column of in of a channel. */
static __device__ size_t column_of(const struct pp_delta_shape *s, size_t c)
{
    size_t keys = s->NK * s->DK, kind = c < 2 * keys ? c / keys : 2;
    size_t n = kind < 2 ? s->DK : s->NV / s->NK * s->DV;
    struct pp_delta_part p = pp_delta_part(s, (c - kind * keys) / n, kind);
    return p.column + c - p.channel;
}

static __device__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* --- before the states --- */

/* Returns what the convolution makes of a channel of row t. */
static __device__ float convolve(const struct pp_delta_shape *s,
                                 const elem *conv, const elem *in, size_t t,
                                 size_t first, size_t c)
{
    size_t taps = s->taps, column = column_of(s, c), R = pp_delta_row(s);
    float u = 0;
    for (size_t j = 0; j < taps; j++) {
        size_t back = taps - 1 - j;
        float x = 0;
        if (t >= first + back)
            x = to_float(in[(t - back) * R + column]);
        else if (t < back && !first && s->before)
            x = rows_in(s, s->before)[(t + j) * pp_delta_channels_of(s) + c];
        u += to_float(conv[pp_delta_taps(s, c) * taps + j]) * x;
    }
    return u;
}

/* A warp has the query or the key of a key head at a token, or the values of a
 * value head. */
struct delta_item {
    size_t t, number, channel, n;
    bool unit; /* a query or a key */
};

static __device__ size_t n_items(const struct pp_delta_shape *s)
{
    return s->N * (2 * s->NK + s->NV);
}

static __device__ struct delta_item item_of(const struct pp_delta_shape *s,
                                            size_t i)
{
    size_t each = 2 * s->NK + s->NV, number = i % each;
    struct delta_item k = {i / each, number, number * s->DK, s->DK, true};
    if (number >= 2 * s->NK) {
        k.number = number - 2 * s->NK;
        k.channel = 2 * s->NK * s->DK + k.number * s->DV;
        k.n = s->DV;
        k.unit = false;
    }
    return k;
}

/* Returns 1 / sqrt(DK) for a query, 1 for a key. */
static __device__ float length_of(const struct pp_delta_shape *s, size_t number)
{
    return number < s->NK ? 1 / sqrtf((float)s->DK) : 1;
}

static __global__ void prepare_kernel(struct pp_delta_shape s,
                                      struct delta_rows r, const elem *in,
                                      const elem *conv, const elem *dt,
                                      const elem *lg)
{
    size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / PP_WARP;
    size_t lane = threadIdx.x % PP_WARP;
    if (i >= n_items(&s))
        return;
    struct delta_item k = item_of(&s, i);
    size_t first = bounds_of(&s, k.t).first;
    float *to = r.qkv + k.t * pp_delta_channels_of(&s) + k.channel, sum = 0;
    for (size_t c = lane; c < k.n; c += PP_WARP) {
        float u = convolve(&s, conv, in, k.t, first, k.channel + c);
        float x = u * sigmoid(u);
        to[c] = x;
        sum += x * x;
    }
    sum = warp_sum(sum);
    if (k.unit) {
        float by = length_of(&s, k.number) / sqrtf(sum + 1e-6f);
        for (size_t c = lane; c < k.n; c += PP_WARP)
            to[c] *= by;
        if (lane == 0)
            r.by[k.t * 2 * s.NK + k.number] = by;
    } else if (lane == 0) {
        const elem *row = in + k.t * pp_delta_row(&s);
        struct pp_delta_gates at = pp_delta_gates(&s, k.number);
        size_t head = pp_delta_head(&s, k.number);
        float rate = to_float(row[at.a]) + to_float(dt[head]);
        float *gates = r.gates + k.t * 2 * s.NV + k.number;
        gates[0] = expf(-expf(to_float(lg[head])) * softplus(rate));
        gates[s.NV] = sigmoid(to_float(row[at.b]));
    }
}

static int prepare(const struct pp_delta_shape *s, const struct delta_rows *r,
                   const void *in, const struct pp_delta_weights *w,
                   void *stream)
{
    size_t n = s->N * (2 * s->NK + s->NV);
    return PP_LAUNCH(prepare_kernel, (unsigned)((n + WARPS - 1) / WARPS),
                     THREADS, 0, stream, *s, *r, (const elem *)in,
                     (const elem *)w->conv, (const elem *)w->dt,
                     (const elem *)w->log);
}

/* --- states --- */

/* Moves 32 columns of the state of a head from row to row. With KEEP it keeps
 * the states before every PP_DELTA_ROWS rows for backward, else it writes
 * outputs. Value heads are `first`, first + step and so on. */
template <bool KEEP>
static __global__ void scan_kernel(struct pp_delta_shape s, struct delta_rows r,
                                   elem *o, size_t first_head, size_t step)
{
    __shared__ float reads[2][WARPS][PP_WARP], outs[WARPS][PP_WARP];
    size_t value = first_head + blockIdx.x * step, key = value / (s.NV / s.NK);
    size_t lane = threadIdx.x % PP_WARP, part = threadIdx.x / PP_WARP;
    size_t j = (size_t)blockIdx.y * PP_WARP + lane;
    size_t CH = pp_delta_channels_of(&s), keys = s.NK * s.DK;
    size_t size = s.DK * s.DV, end = 0, first = 0;
    bool inside = j < s.DV;
    float *S = (KEEP ? r.dS + blockIdx.x * size : r.state + value * size) + j;
    for (size_t i = part; inside && i < s.DK; i += WARPS)
        S[i * s.DV] =
            s.before ? state_in(&s, s.before, value)[i * s.DV + j] : 0;
    for (size_t t = 0; t < s.N; t++) {
        if (t >= end) {
            struct row_bounds b = bounds_of(&s, t);
            first = b.first;
            end = b.end;
        }
        const float *row = r.qkv + t * CH, *q = row + key * s.DK;
        const float *k = q + keys;
        float alpha = r.gates[t * 2 * s.NV + value];
        float beta = r.gates[t * 2 * s.NV + s.NV + value], sum = 0, out = 0;
        float v = inside ? row[2 * keys + value * s.DV + j] : 0;
        float *kept =
            r.kept + (t / PP_DELTA_ROWS * s.NK + blockIdx.x) * size + j;
        for (size_t i = part; inside && i < s.DK; i += WARPS) {
            float x = t == first && t > 0 ? 0 : S[i * s.DV];
            if (KEEP && t % PP_DELTA_ROWS == 0)
                kept[i * s.DV] = x;
            x *= alpha;
            S[i * s.DV] = x;
            sum += k[i] * x;
        }
        reads[t % 2][part][lane] = sum;
        __syncthreads();
        float read = 0;
        for (int p = 0; p < WARPS; p++)
            read += reads[t % 2][p][lane];
        float delta = beta * (v - read);
        for (size_t i = part; inside && i < s.DK; i += WARPS) {
            float x = S[i * s.DV] + k[i] * delta;
            S[i * s.DV] = x;
            out += q[i] * x;
        }
        if (KEEP)
            continue;
        outs[part][lane] = out;
        __syncthreads();
        for (int p = 1; p < WARPS && part == 0; p++)
            out += outs[p][lane];
        if (part == 0 && inside)
            store(&o[t * s.NV * s.DV + value * s.DV + j], out);
    }
    for (size_t i = part; !KEEP && s.behind && inside && i < s.DK; i += WARPS)
        state_in(&s, s.behind, value)[i * s.DV + j] = S[i * s.DV];
}

static unsigned groups_of(const struct pp_delta_shape *s)
{
    return (unsigned)((s->DV + PP_WARP - 1) / PP_WARP);
}

/* --- the norm behind the states --- */

/* The sum of squares of a head's outputs at a token gives 1 / their root. */
static __device__ float rstd_of(const struct pp_delta_shape *s, const elem *o)
{
    float sum = 0;
    for (size_t j = threadIdx.x % PP_WARP; j < s->DV; j += PP_WARP)
        sum += to_float(o[j]) * to_float(o[j]);
    return 1 / sqrtf(warp_sum(sum) / (float)s->DV + (float)s->eps);
}

static __global__ void norm_kernel(struct pp_delta_shape s, elem *y,
                                   const elem *o, const elem *in,
                                   const elem *norm)
{
    size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / PP_WARP;
    if (i >= s.N * s.NV)
        return;
    size_t t = i / s.NV, value = i % s.NV;
    const elem *z = in + t * pp_delta_row(&s) + pp_delta_gates(&s, value).z;
    float rstd = rstd_of(&s, o + i * s.DV);
    for (size_t j = threadIdx.x % PP_WARP; j < s.DV; j += PP_WARP) {
        float gate = to_float(z[j]);
        store(&y[i * s.DV + j], to_float(o[i * s.DV + j]) * rstd *
                                    to_float(norm[j]) * gate * sigmoid(gate));
    }
}

/* A warp has a token. */
static __global__ void norm_bwd_kernel(struct pp_delta_shape s,
                                       struct delta_rows r, elem *din,
                                       elem *dnorm, const elem *dy,
                                       const elem *o, const elem *in,
                                       const elem *norm)
{
    size_t t = (size_t)blockIdx.x * WARPS + threadIdx.x / PP_WARP;
    size_t lane = threadIdx.x % PP_WARP, R = pp_delta_row(&s);
    if (t >= s.N)
        return;
    for (size_t value = 0; value < s.NV; value++) {
        size_t at = (t * s.NV + value) * s.DV;
        size_t z = t * R + pp_delta_gates(&s, value).z;
        float rstd = rstd_of(&s, o + at), mean = 0;
        for (size_t j = lane; j < s.DV; j += PP_WARP) {
            float g = to_float(in[z + j]), by = sigmoid(g);
            float n = to_float(o[at + j]) * rstd, d = to_float(dy[at + j]);
            float w = to_float(norm[j]), *sum = &r.dnorm[t * s.DV + j];
            *sum = (value ? *sum : 0) + d * n * g * by;
            store(&din[z + j], d * n * w * by * (1 + g * (1 - by)));
            r.dout[at + j] = d * w * g * by;
            mean += r.dout[at + j] * to_float(o[at + j]);
        }
        mean = warp_sum(mean) * rstd * rstd / (float)s.DV;
        for (size_t j = lane; j < s.DV; j += PP_WARP)
            r.dout[at + j] =
                rstd * (r.dout[at + j] - mean * to_float(o[at + j]));
    }
    for (size_t j = lane; j < s.DV; j += PP_WARP)
        store(&dnorm[t * s.DV + j], r.dnorm[t * s.DV + j]);
}

/* --- states in backward --- */

/* A block of backward has a value head. */
struct value_head {
    size_t value, key, size, CH, keys;
    float *kept, *states, *dS;
};

/* Computes the states before rows start to end - 1, a thread for a column. */
static __device__ void states_again(const struct pp_delta_shape *s,
                                    const struct delta_rows *r,
                                    const struct value_head *h, size_t start,
                                    size_t end)
{
    const float *kept = h->kept + start / PP_DELTA_ROWS * s->NK * h->size;
    for (size_t j = threadIdx.x; j < s->DV; j += THREADS) {
        for (size_t i = 0; i < s->DK; i++)
            h->states[i * s->DV + j] = kept[i * s->DV + j];
        for (size_t t = start; t + 1 < end; t++) {
            const float *S = h->states + (t - start) * h->size + j;
            float *to = h->states + (t + 1 - start) * h->size + j;
            const float *row = r->qkv + t * h->CH;
            const float *k = row + h->keys + h->key * s->DK;
            float alpha = r->gates[t * 2 * s->NV + h->value], read = 0;
            float beta = r->gates[t * 2 * s->NV + s->NV + h->value];
            for (size_t i = 0; i < s->DK; i++)
                read += k[i] * (alpha * S[i * s->DV]);
            float v = row[2 * h->keys + h->value * s->DV + j];
            float delta = beta * (v - read);
            bool begins = bounds_of(s, t + 1).first == t + 1;
            for (size_t i = 0; i < s->DK; i++)
                to[i * s->DV] =
                    begins ? 0 : alpha * S[i * s->DV] + k[i] * delta;
        }
    }
    __syncthreads();
}

/* Takes the gradients of a token through the state S before it. wide has room
 * for two numbers of each column. */
static __device__ void token_bwd(const struct pp_delta_shape *s,
                                 const struct delta_rows *r,
                                 const struct value_head *h, const float *S,
                                 size_t t, bool adds, float *wide, float *sums,
                                 elem *din, float slope)
{
    const float *row = r->qkv + t * h->CH, *q = row + h->key * s->DK;
    const float *k = q + h->keys, *v = row + 2 * h->keys + h->value * s->DV;
    const float *dout = r->dout + (t * s->NV + h->value) * s->DV;
    float *drow = r->dqkv + t * h->CH, *delta = wide, *dread = wide + s->DV;
    float alpha = r->gates[t * 2 * s->NV + h->value];
    float beta = r->gates[t * 2 * s->NV + s->NV + h->value];
    float dbeta = 0, through = 0, dalpha = 0;
    size_t lane = threadIdx.x % PP_WARP;
    for (size_t j = threadIdx.x; j < s->DV; j += THREADS) {
        float read = 0, ddelta = 0;
        for (size_t i = 0; i < s->DK; i++) {
            float *d = &h->dS[i * s->DV + j];
            *d += q[i] * dout[j];
            ddelta += k[i] * *d;
            read += k[i] * S[i * s->DV + j];
        }
        float rest = v[j] - alpha * read;
        delta[j] = beta * rest;
        dread[j] = -beta * ddelta;
        drow[2 * h->keys + h->value * s->DV + j] = beta * ddelta;
        dbeta += ddelta * rest;
        through += delta[j] * dout[j];
    }
    dbeta = team_sum<THREADS>(dbeta, sums);
    through = team_sum<THREADS>(through, sums);
    for (size_t i = threadIdx.x / PP_WARP; i < s->DK; i += WARPS) {
        float dq = 0, dk = 0;
        for (size_t j = lane; j < s->DV; j += PP_WARP) {
            float *d = &h->dS[i * s->DV + j], x = S[i * s->DV + j];
            dq += x * dout[j];
            dk += *d * delta[j] + alpha * x * dread[j];
            float after = *d + k[i] * dread[j];
            dalpha += after * x;
            *d = after * alpha;
        }
        dq = alpha * warp_sum(dq) + k[i] * through;
        dk = warp_sum(dk);
        float *to = drow + h->key * s->DK + i;
        if (lane == 0) {
            to[0] = (adds ? to[0] : 0) + dq;
            to[h->keys] = (adds ? to[h->keys] : 0) + dk;
        }
    }
    dalpha = team_sum<THREADS>(dalpha, sums);
    struct pp_delta_gates at = pp_delta_gates(s, h->value);
    if (threadIdx.x == 0) {
        store(&din[t * pp_delta_row(s) + at.b], dbeta * beta * (1 - beta));
        store(&din[t * pp_delta_row(s) + at.a], dalpha * alpha * slope);
    }
    __syncthreads();
}

/* Value head number `sibling` of each key head. */
static __global__ void states_bwd_kernel(struct pp_delta_shape s,
                                         struct delta_rows r, elem *din,
                                         const elem *in, const elem *dt,
                                         const elem *lg, size_t sibling)
{
    PP_DYNAMIC_SHARED(room);
    __shared__ float sums[WARPS];
    size_t key = blockIdx.x, size = s.DK * s.DV;
    struct value_head h = {key * (s.NV / s.NK) + sibling,
                           key,
                           size,
                           pp_delta_channels_of(&s),
                           s.NK * s.DK,
                           r.kept + key * size,
                           r.states + key * PP_DELTA_ROWS * size,
                           r.dS + key * size};
    size_t a = pp_delta_gates(&s, h.value).a;
    size_t head = pp_delta_head(&s, h.value);
    float decay = -expf(to_float(lg[head]));
    for (size_t i = threadIdx.x; i < size; i += THREADS)
        h.dS[i] = s.behind ? state_in(&s, s.behind, h.value)[i] : 0;
    __syncthreads();
    for (size_t end = s.N; end > 0;) {
        size_t start = (end - 1) / PP_DELTA_ROWS * PP_DELTA_ROWS;
        states_again(&s, &r, &h, start, end);
        for (size_t t = end; t-- > start;) {
            float rate =
                to_float(in[t * pp_delta_row(&s) + a]) + to_float(dt[head]);
            token_bwd(&s, &r, &h, h.states + (t - start) * size, t, sibling > 0,
                      (float *)room, sums, din, decay * sigmoid(rate));
            if (t > 0 && bounds_of(&s, t).first == t)
                for (size_t i = threadIdx.x; i < size; i += THREADS)
                    h.dS[i] = 0;
            __syncthreads();
        }
        end = start;
    }
    for (size_t i = threadIdx.x; s.before && i < size; i += THREADS)
        state_in(&s, s.before, h.value)[i] = h.dS[i];
}

/* --- behind the states in backward --- */

/* Takes gradients of units and of values through norm and activation, to du. */
static __global__ void activation_bwd_kernel(struct pp_delta_shape s,
                                             struct delta_rows r, elem *du,
                                             const elem *in, const elem *conv)
{
    size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / PP_WARP;
    size_t lane = threadIdx.x % PP_WARP;
    if (i >= n_items(&s))
        return;
    struct delta_item k = item_of(&s, i);
    size_t first = bounds_of(&s, k.t).first;
    size_t at = k.t * pp_delta_channels_of(&s) + k.channel;
    const float *x = r.qkv + at, *d = r.dqkv + at;
    float by = k.unit ? r.by[k.t * 2 * s.NK + k.number] : 1, sum = 0;
    for (size_t c = lane; k.unit && c < k.n; c += PP_WARP)
        sum += d[c] * x[c];
    /* x is a unit, or a unit by 1 / sqrt(DK). */
    float long_by = k.unit ? length_of(&s, k.number) : 1;
    sum = warp_sum(sum) / (long_by * long_by);
    for (size_t c = lane; c < k.n; c += PP_WARP) {
        float u = convolve(&s, conv, in, k.t, first, k.channel + c);
        float one = sigmoid(u);
        float dact = k.unit ? by * (d[c] - sum * x[c]) : d[c];
        store(&du[at + c], dact * one * (1 + u * (1 - one)));
    }
}

/* Returns the gradient of channel c of u of row t of a sequence that ends at
 * row `end`: the next part has the gradients of the rows behind these. */
static __device__ float u_gradient(const struct pp_delta_shape *s,
                                   const elem *du, size_t t, size_t end,
                                   size_t c)
{
    size_t CH = pp_delta_channels_of(s);
    return t < end ? to_float(du[t * CH + c])
           : end == s->N && s->behind
               ? gradients_in(s, s->behind)[(t - end) * CH + c]
               : 0;
}

static __global__ void convolve_bwd_kernel(struct pp_delta_shape s, elem *din,
                                           const elem *du, const elem *conv)
{
    size_t CH = pp_delta_channels_of(&s);
    for (size_t i = grid_thread(); i < s.N * CH; i += grid_threads()) {
        size_t t = i / CH, c = i % CH, end = bounds_of(&s, t).end;
        float sum = 0;
        for (size_t back = 0; back < s.taps; back++)
            sum +=
                to_float(conv[(pp_delta_taps(&s, c) + 1) * s.taps - 1 - back]) *
                u_gradient(&s, du, t + back, end, c);
        store(&din[t * pp_delta_row(&s) + column_of(&s, c)], sum);
    }
}

/* Writes the gradients of u that an earlier part reads. */
static __global__ void pass_gradients_kernel(struct pp_delta_shape s,
                                             const elem *du)
{
    size_t CH = pp_delta_channels_of(&s);
    size_t end = s.n_sequences ? (size_t)s.cu_padded[1] : s.N;
    for (size_t i = grid_thread(); i < (s.taps - 1) * CH; i += grid_threads())
        gradients_in(&s, s.before)[i] = u_gradient(&s, du, i / CH, end, i % CH);
}

/* Writes the last rows that the convolution of a later part reads. */
static __global__ void pass_rows_kernel(struct pp_delta_shape s, const elem *in)
{
    size_t CH = pp_delta_channels_of(&s), n = s.taps - 1;
    size_t first = s.N ? bounds_of(&s, s.N - 1).first : 0;
    for (size_t i = grid_thread(); i < n * CH; i += grid_threads()) {
        size_t at = s.N + i / CH, c = i % CH; /* of row at - n */
        rows_in(&s, s.behind)[i] =
            at < n && !first && s.before ? rows_in(&s, s.before)[at * CH + c]
            : at >= first + n
                ? to_float(in[(at - n) * pp_delta_row(&s) + column_of(&s, c)])
                : 0;
    }
}

static unsigned warp_blocks(size_t n)
{
    return (unsigned)((n + WARPS - 1) / WARPS);
}

static PP_DELTA_FWD(delta_fwd)
{
    const struct delta_rows r = rows_of(s, scratch);
    size_t passed = (s->taps - 1) * pp_delta_channels_of(s);
    dim3 grid((unsigned)s->NV, groups_of(s));
    int rc = s->N ? prepare(s, &r, in, w, stream) : 0;
    if (!rc)
        rc = PP_LAUNCH(scan_kernel<false>, grid, THREADS, 0, stream, *s, r,
                       (elem *)o, (size_t)0, (size_t)1);
    if (!rc && s->N)
        rc = PP_LAUNCH(norm_kernel, warp_blocks(s->N * s->NV), THREADS, 0,
                       stream, *s, (elem *)y, (const elem *)o, (const elem *)in,
                       (const elem *)w->norm);
    if (!rc && s->behind && passed)
        rc = PP_LAUNCH(pass_rows_kernel, blocks_for(passed, THREADS), THREADS,
                       0, stream, *s, (const elem *)in);
    return rc;
}

/* Takes the gradients of outputs through the states of all heads. */
static int states_bwd(const struct pp_delta_shape *s,
                      const struct delta_rows *r, void *din, const void *in,
                      const struct pp_delta_weights *w, void *stream)
{
    dim3 grid((unsigned)s->NK, groups_of(s));
    size_t each = s->NV / s->NK, room = 2 * s->DV * sizeof(float);
    int rc = 0;
    for (size_t k = 0; !rc && k < each; k++) {
        rc = PP_LAUNCH(scan_kernel<true>, grid, THREADS, 0, stream, *s, *r,
                       (elem *)NULL, k, each);
        if (!rc)
            rc = PP_LAUNCH(states_bwd_kernel, (unsigned)s->NK, THREADS,
                           (unsigned)room, stream, *s, *r, (elem *)din,
                           (const elem *)in, (const elem *)w->dt,
                           (const elem *)w->log, k);
    }
    return rc;
}

static PP_DELTA_BWD_INPUT(delta_bwd_input)
{
    const struct delta_rows r = rows_of(s, scratch);
    size_t CH = pp_delta_channels_of(s), passed = (s->taps - 1) * CH;
    int rc = s->N ? prepare(s, &r, in, w, stream) : 0;
    if (!rc && s->N)
        rc =
            PP_LAUNCH(norm_bwd_kernel, warp_blocks(s->N), THREADS, 0, stream,
                      *s, r, (elem *)din, (elem *)dnorm, (const elem *)dy,
                      (const elem *)o, (const elem *)in, (const elem *)w->norm);
    if (!rc)
        rc = states_bwd(s, &r, din, in, w, stream);
    if (!rc && s->N)
        rc = PP_LAUNCH(activation_bwd_kernel,
                       warp_blocks(s->N * (2 * s->NK + s->NV)), THREADS, 0,
                       stream, *s, r, (elem *)du, (const elem *)in,
                       (const elem *)w->conv);
    if (!rc && s->N)
        rc = PP_LAUNCH(convolve_bwd_kernel, blocks_for(s->N * CH, THREADS),
                       THREADS, 0, stream, *s, (elem *)din, (const elem *)du,
                       (const elem *)w->conv);
    if (!rc && s->before && passed)
        rc = PP_LAUNCH(pass_gradients_kernel, blocks_for(passed, THREADS),
                       THREADS, 0, stream, *s, (const elem *)du);
    return rc;
}

/* --- weights --- */

struct taps_term {
    struct pp_delta_shape s;
    const elem *du, *in;
    size_t first; /* channel */

    __device__ float at(size_t t, size_t i) const
    {
        size_t c = first + i / s.taps, back = s.taps - 1 - i % s.taps;
        size_t last = t < s.N ? t : s.N - 1, first = bounds_of(&s, last).first;
        if (t < first + back || t - back > last)
            return 0;
        return u_gradient(&s, du, t, s.N, c) *
               to_float(in[(t - back) * pp_delta_row(&s) + column_of(&s, c)]);
    }
};

struct decay_term {
    struct pp_delta_shape s;
    const elem *din, *in, *dt;
    bool of_log;

    __device__ float at(size_t t, size_t v) const
    {
        size_t a = t * pp_delta_row(&s) + pp_delta_gates(&s, v).a;
        float rate = to_float(in[a]) + to_float(dt[pp_delta_head(&s, v)]);
        float d = to_float(din[a]);
        /* softplus / sigmoid: the quotient of the gradients */
        return !of_log      ? d
               : rate < -30 ? d
                            : d * softplus(rate) / sigmoid(rate);
    }
};

struct norm_term {
    const elem *dnorm;
    size_t DV;

    __device__ float at(size_t t, size_t j) const
    {
        return to_float(dnorm[t * DV + j]);
    }
};

/* Adds up the gradients of the taps of all queries, keys or values. */
static int add_taps(float *dconv, const void *du, const void *in,
                    const struct pp_delta_shape *s, size_t kind, void *stream)
{
    size_t rows = s->N + (s->behind && s->N ? s->taps - 1 : 0);
    size_t keys = s->NK * s->DK, first = kind * keys;
    size_t n = kind < PP_DELTA_VALUES ? keys : s->NV * s->DV;
    struct taps_term taps = {*s, (const elem *)du, (const elem *)in, first};
    return add_columns(dconv + pp_delta_taps(s, first) * s->taps, taps, rows,
                       n * s->taps, stream);
}

static PP_DELTA_BWD_WEIGHT(delta_bwd_weight)
{
    size_t head = pp_delta_head(s, 0);
    struct decay_term d = {*s, (const elem *)din, (const elem *)in,
                           (const elem *)w->dt, false};
    struct decay_term of_log = d;
    struct norm_term norm = {(const elem *)dnorm, s->DV};
    of_log.of_log = true;
    int rc = 0;
    for (size_t kind = 0; !rc && kind < PP_N_DELTA_KINDS; kind++)
        rc = add_taps((float *)g->conv, du, in, s, kind, stream);
    rc = rc ? rc : add_columns((float *)g->dt + head, d, s->N, s->NV, stream);
    rc = rc ? rc
            : add_columns((float *)g->log + head, of_log, s->N, s->NV, stream);
    return rc ? rc : add_columns((float *)g->norm, norm, s->N, s->DV, stream);
}

extern "C" const struct pp_delta_kernels PP_CUDA(delta_kernels) = {
    delta_fwd, delta_bwd_input, delta_bwd_weight};
