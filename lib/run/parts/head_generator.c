/* SPDX-License-Identifier: MIT */
/* head_generator - the way of the rows that a head reads to the generator
 * behind the language model, and of their gradients back. */
#include "run/parts/layer_impl.h"

int pp_head_pass_on(const struct pp_layer *l, const struct pp_microbatch *mb,
                    void *y, const void *x, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    PP_LAYER_RUN(mb->bridge ? k->scatter(y, x, mb->bridge, R, C, l->env->stream)
                            : k->copy(y, x, R, C, C, C, l->env->stream));
    return 0;
}

int pp_head_add_passed(const struct pp_layer *l, const struct pp_microbatch *mb,
                       void *dx, const void *dy, void *room, struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t R = pp_layer_rows(l, mb), C = l->env->model->hidden;
    if (mb->bridge) {
        PP_LAYER_RUN(
            k->embedding_fwd(room, mb->bridge, dy, R, C, l->env->stream));
        dy = room;
    }
    PP_LAYER_RUN(k->add(dx, dx, dy, R * C, l->env->stream));
    return 0;
}
