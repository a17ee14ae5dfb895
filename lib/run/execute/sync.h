/* SPDX-License-Identifier: MIT */
/* sync - adds the gradients of weights that several ranks hold, and gathers
 * weights that ranks divide. */
#ifndef PP_RUN_EXECUTE_SYNC_H
#define PP_RUN_EXECUTE_SYNC_H

#include "run/execute/exec.h"

/* Adds the gradients of the copies of each stage. All ranks go through the
 * stages in the same order, so that no two ranks wait for each other. Each part
 * of the values is added on one rank, in the order of the ranks that hold
 * copies, and all get the same bits. */
int pp_sync_copies(const struct pp_worker *w, struct pp_err *err) PP_MUST_USE;

/* Returns the ranks at a place like p that hold copies of a stage of the first
 * copy, if the row of p does. */
struct pp_group pp_group_of_copies(const struct pp_layout *l,
                                   const struct pp_place *p,
                                   const struct pp_graph *graph, int stage);

/* Adds the gradients of a tied embedding and of the other, the head. Both ranks
 * add embedding + head in this order and get the same bits. */
int pp_sync_tied(const struct pp_worker *w, const struct pp_tied *t,
                 struct pp_err *err) PP_MUST_USE;

/* Adds the gradients of tensors that several tensor-parallel ranks hold, such
 * as norms, in the order of the ranks: each has the gradients of its rows or
 * heads. */
int pp_sync_tensor(const struct pp_worker *w, struct pp_err *err) PP_MUST_USE;

/* REDUCE_GRAD: adds the gradients of a stage on the ranks that hold the same
 * weights and divide the tokens of a step, in the order of the ranks: gradients
 * of an expert on the ranks that hold it, to which its tokens come. If they
 * divide the optimizer's state, each gets the sums that it owns; the other two
 * functions then add owned elements alone. With a reducer it begins the sums
 * and returns, and computation goes on beside them. pp_sync_unit begins the
 * sums of a unit of the stage earlier, when its gradients are queued: every
 * replica calls it for the same units in the same order, and has a reducer.
 * pp_sync_join lets later work wait for all sums that have begun. */
int pp_sync_replicas(struct pp_worker *w, int stage,
                     struct pp_err *err) PP_MUST_USE;
int pp_sync_unit(struct pp_worker *w, int stage, size_t unit,
                 struct pp_err *err) PP_MUST_USE;
int pp_sync_join(struct pp_worker *w, struct pp_err *err) PP_MUST_USE;

/* Makes the reducer of a rank on that device, which has none if its memory is
 * the host's. */
int pp_reducer_init(struct pp_reducer *r, struct pp_device *d, size_t n_params,
                    struct pp_err *err) PP_MUST_USE;
/* Accepts a zeroed struct. */
void pp_reducer_finish(struct pp_reducer *r);

/* Fills the (n) elements of a tensor at `to`, whose weights ranks divide, from
 * all of them. */
int pp_sync_whole(const struct pp_worker *w, const struct pp_parameter *t,
                  void *to, struct pp_err *err) PP_MUST_USE;

/* UNSHARD and RESHARD: gathers the weights of a stage into their buffer and
 * gives them to its layers, or takes them away. Weights that ranks do not
 * divide are always there. */
int pp_sync_weights(const struct pp_exec *e, struct pp_action a,
                    struct pp_err *err) PP_MUST_USE;

/* If ranks divide the optimizer's state: fetches the elements of W or G that
 * other ranks own, but not of divided weights. */
int pp_sync_gather(const struct pp_worker *w, enum pp_weights_block block,
                   struct pp_err *err) PP_MUST_USE;

#endif
