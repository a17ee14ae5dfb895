/* SPDX-License-Identifier: MIT */
/* generator - the way of the rows that a head reads to the generator
 * behind the language model, and of their gradients back. */
#include "run/parts/head/head.h"

void pp_head_pass_on(const struct pp_call *c, void *y, const void *x)
{
    if (c->mb->bridge)
        PP_RUN(c, scatter, y, x, c->mb->bridge, c->R, c->C);
    else
        PP_RUN(c, copy, y, x, c->R, c->C, c->C, c->C);
}

void pp_head_add_passed(const struct pp_call *c, void *dx, const void *dy,
                        void *room)
{
    if (c->mb->bridge)
        PP_RUN(c, embedding_fwd, room, c->mb->bridge, dy, c->R, c->C);
    PP_RUN(c, add, dx, dx, c->mb->bridge ? room : dy, c->R * c->C);
}
