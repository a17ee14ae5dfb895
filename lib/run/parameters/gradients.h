/* SPDX-License-Identifier: MIT */
/* gradients - how the gradients of a step begin at 0.
 *
 * Nothing clears them all. A step marks the gradient of every tensor as stale:
 * it has sums of another step. The first product that adds to a stale gradient
 * writes it instead, and other kernels clear it first. What no microbatch has
 * added to is cleared before anything reads it. So a gradient that products
 * make costs no pass over its memory.
 *
 * A product may write -0 where 0 + -0 is 0: where the sum of a microbatch is so
 * small that it rounds to -0. OpenBLAS clears first, and makes 0. Norms and
 * updates do not tell them apart. */
#ifndef PP_RUN_PARAMETERS_GRADIENTS_H
#define PP_RUN_PARAMETERS_GRADIENTS_H

#include "run/parameters/parameters.h"

/* Begins a step: all gradients are stale, and the loads of experts are 0. */
int pp_gradients_begin(struct pp_parameters *p, struct pp_err *err) PP_MUST_USE;

/* Prepares n elements of gradients, from the gradient of t on, which are of t
 * and of the tensors behind it in its unit. If writes is not NULL, *writes
 * tells whether all of them are stale, and the caller must write all; else the
 * stale ones are cleared on that device, and may be added to. */
int pp_gradients_take(const struct pp_parameters *p,
                      const struct pp_parameter *t, size_t n,
                      struct pp_device *d, bool *writes,
                      struct pp_err *err) PP_MUST_USE;

/* Clears what is still stale of a unit of a stage; PP_ALL: of all units, of all
 * stages. */
enum { PP_ALL = -1 };
int pp_gradients_settle(const struct pp_parameters *p, int stage, int64_t unit,
                        struct pp_err *err) PP_MUST_USE;

#endif
