/* SPDX-License-Identifier: MIT */
/* delta_rows - where rows of linear attention have their heads, for the CPU and
 * for CUDA. */
#ifndef PP_KERNELS_DELTA_ROWS_H
#define PP_KERNELS_DELTA_ROWS_H

#include "delta.h"

#ifdef __CUDACC__
#define PP_DELTA_INLINE static inline __host__ __device__
#else
#define PP_DELTA_INLINE static inline
#endif

/* Queries, keys or values of a key head: n channels from `channel` on, which
 * are columns of in from `column` on. */
enum pp_delta_kind {
    PP_DELTA_QUERY,
    PP_DELTA_KEY,
    PP_DELTA_VALUES,
    PP_N_DELTA_KINDS
};
struct pp_delta_part {
    size_t channel, column, n;
};

PP_DELTA_INLINE size_t pp_delta_channels_of(const struct pp_delta_shape *s)
{
    return 2 * s->NK * s->DK + s->NV * s->DV;
}

/* Returns the width of a row of in. */
PP_DELTA_INLINE size_t pp_delta_row(const struct pp_delta_shape *s)
{
    return pp_delta_channels_of(s) + s->NV * (s->DV + 2);
}

PP_DELTA_INLINE struct pp_delta_part
pp_delta_part(const struct pp_delta_shape *s, size_t key, size_t kind)
{
    size_t n = kind == PP_DELTA_VALUES ? s->NV / s->NK * s->DV : s->DK;
    size_t channel = kind * s->NK * s->DK + key * n;
    size_t group = 2 * (s->DK + s->NV / s->NK * s->DV);
    struct pp_delta_part p = {
        channel, s->grouped ? key * group + kind * s->DK : channel, n};
    return p;
}

/* Returns the row of conv of a channel. */
PP_DELTA_INLINE size_t pp_delta_taps(const struct pp_delta_shape *s, size_t c)
{
    size_t keys = s->NK * s->DK, kind = c < 2 * keys ? c / keys : 2;
    size_t n = kind < 2 ? keys : s->NV * s->DV;
    return c + kind * keys * s->others + s->share * n;
}

/* Returns the number of a value head in dt and log. */
PP_DELTA_INLINE size_t pp_delta_head(const struct pp_delta_shape *s,
                                     size_t value)
{
    return s->share * s->NV + value;
}

/* The columns of in of z, b and a of a value head. */
struct pp_delta_gates {
    size_t z, b, a;
};

PP_DELTA_INLINE struct pp_delta_gates
pp_delta_gates(const struct pp_delta_shape *s, size_t value)
{
    size_t each = s->NV / s->NK, key = value / each;
    size_t behind = pp_delta_channels_of(s), b = behind + s->NV * s->DV;
    struct pp_delta_gates g = {behind + value * s->DV, b + value,
                               b + s->NV + value};
    if (s->grouped) {
        struct pp_delta_part v = pp_delta_part(s, key, PP_DELTA_VALUES);
        g.z = v.column + v.n + value % each * s->DV;
        g.b = b + key * each + value;
        g.a = g.b + each;
    }
    return g;
}

#endif
