/* SPDX-License-Identifier: MIT */
/* tensor - products that tensor-parallel ranks divide, with sequence
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

static bool is_alone(const struct pp_call *c)
{
    return pp_env_tp(c->env) == 1;
}

/* Reports whether the rank has all rows between products. */
static bool has_all_rows(const struct pp_call *c)
{
    return pp_shard_row_ranks(&c->env->shard) == 1;
}

size_t pp_layer_first_row(const struct pp_call *c)
{
    return has_all_rows(c) ? 0 : (size_t)c->env->tensor.group.index * c->R;
}

/* Returns the rows of this rank among the rows of all. */
static void *rows_of_rank(const struct pp_call *c, const void *all)
{
    return pp_at(c, all, pp_layer_first_row(c) * c->C);
}

const void *pp_layer_gather(const struct pp_call *c, const void *x)
{
    if (has_all_rows(c))
        return x;
    PP_RUN(c, copy, rows_of_rank(c, c->gathered), x, c->R, c->C, c->C, c->C);
    PP_TRY(c, pp_all_gather(&c->env->tensor, c->gathered, NULL, c->T * c->C,
                            c->err));
    return c->gathered;
}

void *pp_layer_part(const struct pp_call *c, void *y)
{
    return has_all_rows(c) ? y : c->summed;
}

void pp_layer_add_up(const struct pp_call *c, void *y, size_t rows,
                     size_t width)
{
    struct pp_collective of = c->env->tensor;
    of.room = c->gathered;
    of.room_values = rows * c->C;
    if (!is_alone(c) && rows > 0)
        PP_TRY(c, pp_all_reduce(&of, y, rows * width, c->err));
}

void pp_layer_reduce(const struct pp_call *c, void *y)
{
    if (has_all_rows(c)) {
        pp_layer_add_up(c, y, c->T, c->C);
        return;
    }
    struct pp_collective of = c->env->tensor;
    of.room = c->gathered;
    of.room_values = c->T * c->C;
    if (c->T == 0)
        return;
    PP_TRY(c, pp_reduce_scatter(&of, c->summed, NULL, c->T * c->C, c->err));
    PP_RUN(c, copy, y, rows_of_rank(c, c->summed), c->R, c->C, c->C, c->C);
}

bool pp_layer_adds_bias(const struct pp_call *c)
{
    return c->env->tensor.group.index == 0;
}

void pp_join_fwd(const struct pp_call *c, const struct pp_product *p, void *y,
                 const void *x, const void *residual)
{
    struct pp_product own = *p;
    if (!pp_layer_adds_bias(c))
        own.bias = PP_NO_SLOT;
    pp_product_fwd(c, &own, c->T, pp_layer_part(c, y), x,
                   is_alone(c) ? residual : NULL);
    pp_layer_reduce(c, y);
    if (residual && !is_alone(c))
        PP_RUN(c, add, y, y, residual, c->R * c->C);
}

/* dy has the rows of all ranks. */
static void join_weight(const struct pp_call *c, const struct pp_product *p,
                        const void *dy, const void *x)
{
    struct pp_product own = *p;
    /* With all rows each rank has the whole gradient (pp_sync_tensor). */
    if (!pp_layer_adds_bias(c) && !has_all_rows(c))
        own.bias = PP_NO_SLOT;
    pp_product_bwd_weight(c, &own, c->T, dy, x);
}

void pp_join_bwd_input(const struct pp_call *c, const struct pp_product *p,
                       void *dx, const void *dy, const void *x)
{
    const void *all = pp_layer_gather(c, dy);
    pp_product_bwd_input(c, p, c->T, dx, all);
    if (c->both && pp_product_trains(c, p))
        join_weight(c, p, all, x);
}

void pp_join_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                        const void *dy, const void *x)
{
    if (!c->both && pp_product_trains(c, p))
        join_weight(c, p, pp_layer_gather(c, dy), x);
}

void pp_split_bwd_input(const struct pp_call *c, const struct pp_product *p,
                        void *dx, const void *dy)
{
    pp_product_bwd_input(c, p, c->T, pp_layer_part(c, dx), dy);
    pp_layer_reduce(c, dx);
}

size_t pp_layer_collected_bytes(const struct pp_call *c)
{
    if (is_alone(c))
        return SIZE_MAX;
    /* At least a row of each rank (pp_gathered_row_bytes). */
    return c->T * c->C * c->k->element_bytes / (size_t)c->env->tensor.group.n;
}

const void *pp_layer_collect(const struct pp_call *c, const void *own,
                             size_t bytes)
{
    struct pp_collective of = c->env->tensor;
    of.value_bytes = 1;
    if (is_alone(c))
        return own;
    pp_call_move(c, (char *)c->summed + (size_t)of.group.index * bytes, own,
                 bytes);
    PP_TRY(c, pp_all_gather(&of, c->summed, NULL, (size_t)of.group.n * bytes,
                            c->err));
    return c->summed;
}
