/* SPDX-License-Identifier: MIT */
/* stage_states - copies of the hidden states that a projector reads. */
#include "run/parts/stage_states.h"

/* Returns the states that an edge has beside the rows of its unit. */
static size_t kept(const struct pp_call *c, struct pp_edge e)
{
    return e.width ? e.width / c->C - 1 : 0;
}

/* Returns the first element of kept state k of a message. */
static void *state(const struct pp_call *c, const void *message, size_t k)
{
    return pp_at(c, message, (1 + k) * c->T * c->C);
}

/* Copies the kept states that the layer reads. */
static int copy_states(const struct pp_call *c, struct pp_edge read, void *to,
                       const void *from)
{
    size_t n = kept(c, read);
    if (n > 0)
        PP_RUN(c, copy, state(c, to, 0), state(c, from, 0), n * c->T, c->C,
               c->C, c->C);
    return pp_call_failed(c) ? -1 : 0;
}

int pp_states_fwd(const struct pp_call *c, const struct pp_edge at[2], void *y,
                  const void *x)
{
    size_t n = kept(c, at[0]);
    if (kept(c, at[1]) > n)
        PP_RUN(c, copy, state(c, y, n), y, c->T, c->C, c->C, c->C);
    return copy_states(c, at[0], y, x);
}

int pp_states_join(const struct pp_call *c, const struct pp_edge at[2],
                   void *dy)
{
    size_t n = kept(c, at[0]);
    if (kept(c, at[1]) > n)
        PP_RUN(c, add, dy, dy, state(c, dy, n), c->T * c->C);
    return pp_call_failed(c) ? -1 : 0;
}

int pp_states_bwd(const struct pp_call *c, const struct pp_edge at[2], void *dx,
                  const void *dy)
{
    return copy_states(c, at[0], dx, dy);
}
