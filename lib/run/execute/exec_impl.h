/* SPDX-License-Identifier: MIT */
/* exec_impl - what the exec*.c files share; nobody else includes it. */
#ifndef PP_RUN_EXECUTE_EXEC_IMPL_H
#define PP_RUN_EXECUTE_EXEC_IMPL_H

#include "run/execute/exec.h"

/* The planned buffer of an action's microbatch and slice; NULL: there is none.
 */
const struct pp_buffer *pp_exec_find(const struct pp_exec *e,
                                     enum pp_buffer_kind kind, int stage,
                                     struct pp_action a, int peer);

/* Tokens of a's whole microbatch. */
size_t pp_exec_tokens(const struct pp_pass *p, struct pp_action a);

/* Every buffer was made for the largest microbatch that the plan knew of. */
bool pp_exec_has_room(const struct pp_exec *e, struct pp_action a);
int pp_exec_fail_room(const struct pp_exec *e, struct pp_action a,
                      struct pp_err *err);

/* The player's; ctx is the exec. */
int pp_exec_send(void *ctx, struct pp_action a, int peer, struct pp_err *err);
int pp_exec_receive(void *ctx, struct pp_action a, int peer,
                    struct pp_err *err);

#endif
