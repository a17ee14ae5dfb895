/* SPDX-License-Identifier: MIT */
/* timed_kernels - wraps the matrix products of a kernel table. */
#include "run/timing/timed_kernels.h"

#include "base/clock.h"

static PP_LINEAR_FWD(timed_linear_fwd)
{
    struct pp_timed_stream *s = stream;
    double start = pp_clock();
    int rc = s->inner->linear_fwd(y, x, w, b, r, N, C, OC, ldy, ldx, s->stream);
    s->product_seconds += pp_clock() - start;
    return rc;
}

static PP_LINEAR_BWD_INPUT(timed_linear_bwd_input)
{
    struct pp_timed_stream *s = stream;
    double start = pp_clock();
    int rc = s->inner->linear_bwd_input(dx, dy, w, r, N, C, OC, lddx, lddy,
                                        s->stream);
    s->product_seconds += pp_clock() - start;
    return rc;
}

static PP_LINEAR_BWD_WEIGHT(timed_linear_bwd_weight)
{
    struct pp_timed_stream *s = stream;
    double start = pp_clock();
    int rc = s->inner->linear_bwd_weight(dw, db, dy, x, N, C, OC, lddy, ldx,
                                         writes, s->stream);
    s->product_seconds += pp_clock() - start;
    return rc;
}

struct pp_kernels pp_timed_kernels(const struct pp_kernels *inner)
{
    struct pp_kernels k = *inner;
#define PP_TIME(name, type) k.name = timed_##name;
    PP_PRODUCT_KERNELS(PP_TIME)
#undef PP_TIME
    return k;
}
