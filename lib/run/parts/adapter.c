/* SPDX-License-Identifier: MIT */
/* adapter - adapters of low rank beside the products of a layer (lora.h):
 * y += B u with u = scale A x.
 *
 * u and v = scale B^T dy, a row of the rank each, have room of their own while
 * a product runs. W computes both again, which costs as much as it saves in
 * memory: two products of that width. */
#include "run/parts/layer_impl.h"

#include "run/parameters/parameters.h"

/* A and B of one of the tensors of a product, whose outputs begin at element
 * `first` of a row of y. */
struct branch {
    const struct pp_adapter *of;
    const void *a, *b;
    size_t first, rank, ldx, ldy;
};

/* Finds the branch of an adapter in a product, whose outputs are the outputs of
 * some consecutive tensors. */
static bool find_branch(const struct pp_call *c, const struct pp_product *p,
                        const struct pp_adapter *of, struct branch *b)
{
    size_t first = 0;
    if (of->weight < p->weight)
        return false;
    for (int slot = p->weight; slot < of->weight; slot++)
        first += c->l->tensor[slot] ? c->l->tensor[slot]->piece.rows : 0;
    *b = (struct branch){
        .of = of,
        .a = c->w[of->a],
        .b = c->w[of->a + 1],
        .first = first,
        .rank = of->rank,
        .ldx = p->ldx ? p->ldx : p->in,
        .ldy = p->ldy ? p->ldy : p->out,
    };
    return first < p->out;
}

bool pp_product_trains(const struct pp_call *c, const struct pp_product *p)
{
    struct branch b;
    bool trains = c->g[p->weight];
    for (size_t i = 0; i < c->l->n_adapters && !trains; i++)
        trains = c->g[c->l->adapters[i].a] &&
                 find_branch(c, p, &c->l->adapters[i], &b);
    return trains;
}

/* Writes u or v to the room, and returns it. */
static void *narrow_x(const struct pp_call *c, const struct pp_product *p,
                      const struct branch *b, size_t N, const void *x)
{
    PP_RUN(c, linear_fwd, c->narrow, x, b->a, NULL, NULL, N, p->in, b->rank,
           b->rank, b->ldx);
    PP_RUN(c, scale_by, c->narrow, b->of->scale, N, b->rank, b->rank);
    return c->narrow;
}

static void *narrow_dy(const struct pp_call *c, const struct branch *b,
                       size_t N, const void *dy)
{
    PP_RUN(c, linear_bwd_input, c->narrow, pp_at(c, dy, b->first), b->b, NULL,
           N, b->rank, b->of->rows, b->rank, b->ldy);
    PP_RUN(c, scale_by, c->narrow, b->of->scale, N, b->rank, b->rank);
    return c->narrow;
}

void pp_adapters_fwd(const struct pp_call *c, const struct pp_product *p,
                     size_t N, void *y, const void *x)
{
    struct branch b;
    for (size_t i = 0; i < c->l->n_adapters && !c->mb->base; i++) {
        if (!find_branch(c, p, &c->l->adapters[i], &b))
            continue;
        void *u = narrow_x(c, p, &b, N, x), *at = pp_at(c, y, b.first);
        PP_RUN(c, linear_fwd, at, u, b.b, NULL, at, N, b.rank, b.of->rows,
               b.ldy, b.rank);
    }
}

void pp_adapters_bwd_input(const struct pp_call *c, const struct pp_product *p,
                           size_t N, void *dx, const void *dy)
{
    struct branch b;
    for (size_t i = 0; i < c->l->n_adapters; i++) {
        if (!find_branch(c, p, &c->l->adapters[i], &b))
            continue;
        void *v = narrow_dy(c, &b, N, dy);
        PP_RUN(c, linear_bwd_input, dx, v, b.a, dx, N, p->in, b.rank, b.ldx,
               b.rank);
    }
}

void pp_adapters_bwd_weight(const struct pp_call *c, const struct pp_product *p,
                            size_t N, const void *dy, const void *x)
{
    struct branch b;
    for (size_t i = 0; i < c->l->n_adapters; i++) {
        const struct pp_adapter *of = &c->l->adapters[i];
        if (!c->g[of->a] || !find_branch(c, p, of, &b))
            continue;
        void *u = narrow_x(c, p, &b, N, x);
        const struct pp_product up = {of->a + 1, PP_NO_SLOT, b.rank,
                                      of->rows,  b.rank,     b.ldy};
        const struct pp_product down = {of->a,  PP_NO_SLOT, p->in,
                                        b.rank, b.ldx,      b.rank};
        pp_linear_bwd_weight(c, &up, N, pp_at(c, dy, b.first), u);
        pp_linear_bwd_weight(c, &down, N, narrow_dy(c, &b, N, dy), x);
    }
}
