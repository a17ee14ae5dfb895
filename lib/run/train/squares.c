/* SPDX-License-Identifier: MIT */
/* squares - sums of squares of gradients and weights.
 *
 * The kernel makes a sum of each PP_SQUARES_BLOCK elements. If ranks divide the
 * optimizer's state, each makes the sums of its own blocks and gets the sums of
 * the others. The sums of a tensor are added in the order of its blocks, so all
 * numbers of owners give the same bits. */
#include "run/train/squares.h"

#include <math.h>
#include <string.h>

#include "kernel_sizes.h"

/* The ranks that divide the state of some tensors. Expert-parallel ranks hold
 * other experts each, so that experts come in a pass of their own, as does an
 * encoder with its own division of these ranks. */
struct squares_pass {
    enum pp_group_kind kind;
    struct pp_group group;
    size_t owners;
};

static enum pp_group_kind kind_of(const struct pp_parameter *t)
{
    return t->expert    ? PP_GROUP_EXPERT_DATA
           : t->encoder ? PP_GROUP_ENCODER_DATA
                        : PP_GROUP_DATA;
}

/* Reports whether a tensor counts in the norm on this rank or on an owner of
 * the same piece. */
static bool is_summed(const struct squares_pass *o,
                      const struct pp_parameter *t)
{
    if (t->info.frozen || kind_of(t) != o->kind)
        return false;
    return o->owners > 1 ? !t->tied_copy && t->copy == 0 && !t->piece.replica
                         : pp_parameter_counts(t);
}

static struct squares_pass owners_of(const struct pp_rank *r,
                                     enum pp_group_kind kind)
{
    const struct pp_parameters *p = &r->params;
    const struct pp_parameter like = {.expert = kind == PP_GROUP_EXPERT_DATA,
                                      .encoder = kind == PP_GROUP_ENCODER_DATA};
    return (struct squares_pass){
        kind, pp_layout_group(&r->env.layout, &r->env.place, kind),
        pp_parameter_shares(p, &like)->owners};
}

/* Finds where the sums of each owner begin. */
static void lay_out(struct pp_rank *r, const struct squares_pass *o)
{
    size_t n = (size_t)o->group.n;
    r->owned_at[0] = 0;
    for (size_t owner = 0; owner < n; owner++) {
        size_t blocks = 0;
        for (size_t i = 0; i < r->params.n; i++) {
            const struct pp_parameter *t = &r->params.at[i];
            struct pp_range own = pp_owned_range(t->n, t->slot, n, owner);
            blocks += is_summed(o, t) ? pp_squares_blocks(own.n) : 0;
        }
        r->owned_at[owner + 1] = r->owned_at[owner] + blocks;
    }
}

/* Queues the sums of n values at x, and moves *at behind them. */
static int queue(struct pp_rank *r, const struct pp_parameter *t, const void *x,
                 size_t n, size_t *at, struct pp_err *err)
{
    if (n > 0 && r->kernels.sum_squares(&r->squares[*at], x, n, r->env.stream))
        return pp_fail(err, PP_EXIT_SYSTEM, "'%s': norm failed", t->info.name);
    *at += pp_squares_blocks(n);
    return 0;
}

int pp_rank_read_sums(struct pp_rank *r, size_t n, struct pp_err *err)
{
    return pp_device_read(r->env.device, r->losses, n * sizeof *r->losses,
                          r->host_sums, err)
               ? 0
               : -1;
}

/* Returns n sums in host memory, or NULL with *err filled. The losses in front
 * of them come with them: in a step the host waits for a GPU only here. */
static const double *fetch(struct pp_rank *r, size_t n, struct pp_err *err)
{
    size_t losses = (size_t)(r->squares - r->losses);
    return pp_rank_read_sums(r, losses + n, err) ? NULL : r->host_sums + losses;
}

static int gather_sums(struct pp_rank *r, const struct squares_pass *o,
                       struct pp_err *err)
{
    const struct pp_collective c = {.comm = r->env.comm,
                                    .group = o->group,
                                    .direction = PP_DIRECTION_WEIGHTS,
                                    .value_bytes = sizeof(double),
                                    .stream = r->env.stream};
    return pp_all_gather(&c, r->squares, r->owned_at, r->owned_at[c.group.n],
                         err);
}

/* Adds the sums of a tensor's blocks. next: the place of the next sum of each
 * owner, or of all if there is one. */
static double add_blocks(const struct pp_parameter *t, size_t owners,
                         const double *sums, size_t *next)
{
    double sum = 0;
    for (size_t k = 0; k < owners; k++) {
        size_t owner = (k + t->slot) % owners;
        struct pp_range own = pp_owned_range(t->n, t->slot, owners, owner);
        for (size_t n = pp_squares_blocks(own.n); n > 0; n--)
            sum += sums[next[owner]++];
    }
    return sum;
}

/* Fills r->mine for the tensors of one pass. */
static int sum_pass(struct pp_rank *r, const struct squares_pass *o,
                    struct pp_err *err)
{
    bool divides = o->owners > 1;
    size_t owners = divides ? (size_t)o->group.n : 1;
    size_t at = 0, all = 0, *next = &all;
    bool reports = !divides || o->group.index == 0;
    if (divides) {
        lay_out(r, o);
        at = r->owned_at[o->group.index];
        next = r->owned_at + owners + 1;
        memcpy(next, r->owned_at, owners * sizeof *next);
    }
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pp_parameter *t = &r->params.at[i];
        size_t first = t->own.first * r->params.accumulator_bytes;
        if (is_summed(o, t) &&
            queue(r, t, (char *)t->g + first, t->own.n, &at, err))
            return -1;
    }
    if (divides && gather_sums(r, o, err))
        return -1;
    const double *sums = fetch(r, divides ? r->owned_at[owners] : at, err);
    for (size_t i = 0; sums && reports && i < r->params.n; i++) {
        const struct pp_parameter *t = &r->params.at[i];
        if (is_summed(o, t))
            r->mine[t->order] = add_blocks(t, owners, sums, next);
    }
    return sums ? 0 : -1;
}

int pp_squares_of_gradients(struct pp_rank *r, struct pp_err *err)
{
    const struct {
        enum pp_group_kind kind;
        bool used;
    } kinds[] = {{PP_GROUP_DATA, true},
                 {PP_GROUP_EXPERT_DATA,
                  pp_env_ep(&r->env) > 1 || r->params.experts_whole},
                 {PP_GROUP_ENCODER_DATA, r->params.encoder_apart}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct squares_pass pass = owners_of(r, kinds[i].kind);
        if (kinds[i].used && sum_pass(r, &pass, err))
            return -1;
    }
    return 0;
}

struct checked_values {
    const void *at;
    size_t n;
};

/* Returns the values of a tensor that tell whether the block is finite. */
static struct checked_values checked(const struct pp_parameter *t,
                                     enum pp_weights_block block)
{
    if (block == PP_BLOCK_G)
        return (struct checked_values){t->g, t->g ? t->n : 0};
    return t->master ? (struct checked_values){t->master, t->own.n}
                     : (struct checked_values){t->w, t->held.n};
}

int pp_squares_find_infinite(struct pp_rank *r, enum pp_weights_block block,
                             const struct pp_parameter **found,
                             struct pp_err *err)
{
    size_t n = 0, at = 0;
    *found = NULL;
    for (size_t i = 0; i < r->params.n; i++) {
        const struct pp_parameter *t = &r->params.at[i];
        struct checked_values x = checked(t, block);
        if (queue(r, t, x.at, x.n, &n, err))
            return -1;
    }
    const double *sums = fetch(r, n, err);
    for (size_t i = 0; sums && !*found && i < r->params.n; i++) {
        const struct pp_parameter *t = &r->params.at[i];
        double sum = 0;
        for (size_t k = pp_squares_blocks(checked(t, block).n); k > 0; k--)
            sum += sums[at++];
        if (!isfinite(sum))
            *found = t;
    }
    return sums ? 0 : -1;
}
