/* SPDX-License-Identifier: MIT */
/* stage_states - hidden states of an encoder that its later units pass on,
 * behind their own rows, until the projector reads them. A message then has the
 * rows of the last unit, and after them the rows of every state that is kept,
 * in ascending order. */
#ifndef PP_RUN_PARTS_STAGE_STATES_H
#define PP_RUN_PARTS_STAGE_STATES_H

#include "model/edge.h"
#include "run/parts/call.h"

/* c: the call of the layer. at: the edges before and behind it. */

/* Copies the states that x has to y, and keeps the layer's output if the
 * projector reads it. */
int pp_states_fwd(const struct pp_call *c, const struct pp_edge at[2], void *y,
                  const void *x) PP_MUST_USE;

/* Adds the gradient of the layer's output as a kept state to that of its rows,
 * before the backward of the layer. */
int pp_states_join(const struct pp_call *c, const struct pp_edge at[2],
                   void *dy) PP_MUST_USE;

/* Copies the gradients of the states that x has from dy to dx. */
int pp_states_bwd(const struct pp_call *c, const struct pp_edge at[2], void *dx,
                  const void *dy) PP_MUST_USE;

#endif
