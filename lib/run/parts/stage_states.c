/* SPDX-License-Identifier: MIT */
/* stage_states - copies of the hidden states that a projector reads. */
#include "run/parts/stage_states.h"

#include "run/parts/layer_impl.h"

/* Returns the states that an edge has beside the rows of its unit. */
static size_t kept(const struct pp_layer *l, struct pp_edge e)
{
    return e.width ? e.width / l->env->model->hidden - 1 : 0;
}

/* Returns the first element of kept state k of a message. */
static void *state(const struct pp_layer *l, const void *message, size_t rows,
                   size_t k)
{
    return pp_layer_at(l, message, (1 + k) * rows * l->env->model->hidden);
}

/* Copies the first n kept states. */
static int copy_states(const struct pp_layer *l, size_t rows, size_t n,
                       void *to, const void *from, struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    if (n > 0)
        PP_LAYER_RUN(l->env->kernels->copy(state(l, to, rows, 0),
                                           state(l, from, rows, 0), n * rows, C,
                                           C, C, l->env->stream));
    return 0;
}

int pp_states_fwd(const struct pp_layer *l, const struct pp_edge at[2],
                  size_t rows, void *y, const void *x, struct pp_err *err)
{
    size_t n = kept(l, at[0]), C = l->env->model->hidden;
    if (kept(l, at[1]) > n)
        PP_LAYER_RUN(l->env->kernels->copy(state(l, y, rows, n), y, rows, C, C,
                                           C, l->env->stream));
    return copy_states(l, rows, n, y, x, err);
}

int pp_states_join(const struct pp_layer *l, const struct pp_edge at[2],
                   size_t rows, void *dy, struct pp_err *err)
{
    size_t n = kept(l, at[0]);
    if (kept(l, at[1]) > n)
        PP_LAYER_RUN(l->env->kernels->add(dy, dy, state(l, dy, rows, n),
                                          rows * l->env->model->hidden,
                                          l->env->stream));
    return 0;
}

int pp_states_bwd(const struct pp_layer *l, const struct pp_edge at[2],
                  size_t rows, void *dx, const void *dy, struct pp_err *err)
{
    return copy_states(l, rows, kept(l, at[0]), dx, dy, err);
}
