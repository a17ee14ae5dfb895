/* SPDX-License-Identifier: MIT */
/* layer_tensor - products that tensor-parallel ranks divide, with sequence
 * parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models", MLSys 2023).
 *
 * Each rank has a part of the rows between products. It gathers the rows of all
 * before a product whose outputs are divided, and adds up the parts of a
 * product whose inputs are. Sums go through the ranks in their order. One rank
 * alone moves nothing.
 *
 * The ranks of an encoder have all rows between products, because images have
 * any number of patches. They gather nothing, and each gets the whole sums. */
#include "run/parts/layer_impl.h"

#include "comm/collective.h"

static bool is_alone(const struct pp_layer *l)
{
    return pp_env_tp(l->env) == 1;
}

/* Reports whether the rank has all rows between products. */
static bool has_all_rows(const struct pp_layer *l)
{
    return pp_model_tp(l->env->model) == 1;
}

size_t pp_layer_first_row(const struct pp_layer *l,
                          const struct pp_microbatch *mb)
{
    return has_all_rows(l)
               ? 0
               : (size_t)l->env->tensor.group.index * pp_layer_rows(l, mb);
}

/* Returns the rows of this rank among those of all. */
static void *rows_of_rank(const struct pp_layer *l,
                          const struct pp_microbatch *mb, const void *all)
{
    return pp_layer_at(l, all,
                       pp_layer_first_row(l, mb) * l->env->model->hidden);
}

const void *pp_layer_gather(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, const void *x,
                            struct pp_err *err)
{
    size_t C = l->env->model->hidden, n = pp_layer_rows(l, mb);
    if (has_all_rows(l))
        return x;
    int code = l->env->kernels->copy(rows_of_rank(l, mb, b->gathered), x, n, C,
                                     C, C, l->env->stream);
    if (code) {
        pp_layer_fail(l, code, err);
        return NULL;
    }
    return pp_all_gather(&l->env->tensor, b->gathered, NULL, mb->tokens * C,
                         err)
               ? NULL
               : b->gathered;
}

void *pp_layer_part(const struct pp_layer *l, const struct pp_layer_blocks *b,
                    void *y)
{
    return has_all_rows(l) ? y : b->summed;
}

int pp_layer_add_up(const struct pp_layer *l, const struct pp_layer_blocks *b,
                    void *y, size_t rows, size_t width, struct pp_err *err)
{
    struct pp_collective c = l->env->tensor;
    c.room = b->gathered;
    c.room_values = rows * l->env->model->hidden;
    return is_alone(l) || rows == 0 ? 0
                                    : pp_all_reduce(&c, y, rows * width, err);
}

int pp_layer_reduce(const struct pp_layer *l, const struct pp_microbatch *mb,
                    const struct pp_layer_blocks *b, void *y,
                    struct pp_err *err)
{
    size_t C = l->env->model->hidden, total = mb->tokens * C;
    if (is_alone(l) || total == 0)
        return 0;
    if (has_all_rows(l))
        return pp_layer_add_up(l, b, y, mb->tokens, C, err);
    struct pp_collective c = l->env->tensor;
    c.room = b->gathered;
    c.room_values = total;
    if (pp_reduce_scatter(&c, b->summed, NULL, total, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->copy(y, rows_of_rank(l, mb, b->summed),
                                       pp_layer_rows(l, mb), C, C, C,
                                       l->env->stream));
    return 0;
}

bool pp_layer_adds_bias(const struct pp_layer *l)
{
    return l->env->tensor.group.index == 0;
}

int pp_layer_join_fwd(const struct pp_layer *l, const struct pp_microbatch *mb,
                      const struct pp_layer_blocks *b, void *y, const void *x,
                      const struct pp_joined *p, const void *residual,
                      struct pp_err *err)
{
    const struct pp_kernels *k = l->env->kernels;
    size_t C = l->env->model->hidden;
    const void *bias = pp_layer_adds_bias(l) ? l->w[p->bias] : NULL;
    PP_LAYER_RUN(k->linear_fwd(pp_layer_part(l, b, y), x, l->w[p->weight], bias,
                               is_alone(l) ? residual : NULL, mb->tokens,
                               p->width, C, C, p->width, l->env->stream));
    if (is_alone(l))
        return 0;
    if (pp_layer_reduce(l, mb, b, y, err))
        return -1;
    if (residual)
        PP_LAYER_RUN(
            k->add(y, y, residual, pp_layer_rows(l, mb) * C, l->env->stream));
    return 0;
}

int pp_layer_join_bwd_input(const struct pp_layer *l,
                            const struct pp_microbatch *mb,
                            const struct pp_layer_blocks *b, void *dx,
                            const void *dy, const struct pp_joined *p,
                            struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    const void *all = pp_layer_gather(l, mb, b, dy, err);
    if (!all)
        return -1;
    PP_LAYER_RUN(l->env->kernels->linear_bwd_input(
        dx, all, l->w[p->weight], mb->tokens, p->width, C, p->width, C,
        l->env->stream));
    return 0;
}

int pp_layer_join_bwd_weight(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, const void *dy,
                             const void *x, const struct pp_joined *p,
                             struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    const void *all = pp_layer_gather(l, mb, b, dy, err);
    /* With all rows each rank has the whole gradient (pp_sync_tensor). */
    bool has_bias = pp_layer_adds_bias(l) || has_all_rows(l);
    if (!all)
        return -1;
    if (l->g[p->weight])
        PP_LAYER_RUN(l->env->kernels->linear_bwd_weight(
            l->g[p->weight], has_bias ? l->g[p->bias] : NULL, all, x,
            mb->tokens, p->width, C, C, p->width, l->env->stream));
    return 0;
}

int pp_layer_split_bwd_input(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b, void *dx,
                             const void *dy, size_t weight, size_t width,
                             struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    PP_LAYER_RUN(l->env->kernels->linear_bwd_input(
        pp_layer_part(l, b, dx), dy, l->w[weight], mb->tokens, C, width, C,
        width, l->env->stream));
    return pp_layer_reduce(l, mb, b, dx, err);
}

int pp_layer_merge_words(const struct pp_layer *l, void *room, void *lse,
                         void *logp, size_t n, struct pp_err *err)
{
    if (is_alone(l))
        return 0;
    const struct pp_device_ops *ops = pp_device_ops(l->env->device);
    struct pp_collective c = l->env->tensor;
    size_t bytes = n * l->env->kernels->accumulator_bytes;
    char *own = (char *)room + (size_t)c.group.index * 2 * bytes;
    c.value_bytes = l->env->kernels->accumulator_bytes;
    if (ops->copy(l->env->device, own, lse, bytes, err) ||
        ops->copy(l->env->device, own + bytes, logp, bytes, err) ||
        pp_all_gather(&c, room, NULL, (size_t)c.group.n * 2 * n, err))
        return -1;
    PP_LAYER_RUN(l->env->kernels->cross_entropy_merge(
        lse, logp, room, n, (size_t)c.group.n, l->env->stream));
    return 0;
}

size_t pp_layer_collected_bytes(const struct pp_layer *l,
                                const struct pp_microbatch *mb)
{
    if (is_alone(l))
        return SIZE_MAX;
    /* At least a row of each rank (pp_gathered_row_bytes). */
    size_t row = l->env->model->hidden * l->env->kernels->element_bytes;
    return mb->tokens * row / (size_t)l->env->tensor.group.n;
}

const void *pp_layer_collect(const struct pp_layer *l,
                             const struct pp_layer_blocks *b, const void *own,
                             size_t bytes, struct pp_err *err)
{
    if (is_alone(l))
        return own;
    struct pp_collective c = l->env->tensor;
    char *to = (char *)b->summed + (size_t)c.group.index * bytes;
    c.value_bytes = 1;
    return pp_device_ops(l->env->device)
                       ->copy(l->env->device, to, own, bytes, err) ||
                   pp_all_gather(&c, b->summed, NULL, (size_t)c.group.n * bytes,
                                 err)
               ? NULL
               : b->summed;
}
