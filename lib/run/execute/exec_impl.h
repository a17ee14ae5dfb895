/* SPDX-License-Identifier: MIT */
/* exec_impl - shared by the exec*.c files and the table of a test program. */
#ifndef PP_RUN_EXECUTE_EXEC_IMPL_H
#define PP_RUN_EXECUTE_EXEC_IMPL_H

#include "run/execute/exec.h"

/* Returns the planned buffer for the microbatch and slice of an action, or
 * NULL. */
const struct pp_buffer *pp_exec_find(const struct pp_exec *e,
                                     enum pp_buffer_kind kind, int stage,
                                     struct pp_action a, int peer);

/* Returns its memory, or NULL. */
void *pp_exec_buffer(const struct pp_exec *e, enum pp_buffer_kind kind,
                     int stage, struct pp_action a, int peer);

/* Finds the blocks of a stage for an action. The two actions of an overlap pair
 * have a workspace each. */
void pp_exec_blocks(const struct pp_exec *e, struct pp_action a,
                    void *blocks[PP_N_STAGE_BLOCKS]);

/* Returns the bin of an action, or PP_NO_BIN: a rank that has no tokens has no
 * bin. */
size_t pp_exec_bin(const struct pp_exec *e, struct pp_action a);

/* Makes the microbatch of an action for the kernels (*mb) and for the host
 * (*host). */
int pp_exec_view(struct pp_exec *e, struct pp_engine *on, struct pp_action a,
                 struct pp_microbatch *mb, struct pp_host_microbatch *host,
                 struct pp_err *err) PP_MUST_USE;

/* Returns the elements of its rows, or of a slice of it, on an edge of this
 * rank. */
size_t pp_exec_elements(const struct pp_exec *e, struct pp_action a,
                        struct pp_edge edge);

/* Returns the elements that a stage passes on in the microbatch, likewise. */
size_t pp_exec_passed(const struct pp_exec *e, struct pp_action a, int stage);

/* Returns the images of an action for an encoder. */
struct pp_image_work pp_exec_images(const struct pp_exec *e, struct pp_action a,
                                    size_t encoder);

/* Returns the bridge between the ranks of the language model and the ranks of a
 * generator that divide rows in another way, in an action of either. */
struct pp_bridge pp_exec_bridge(const struct pp_exec *e, struct pp_action a);

/* Returns the tokens of the whole microbatch that a generator has in an action;
 * if its sequences have ranks of their own, as if every rank had as many as
 * this one. */
size_t pp_exec_generated(const struct pp_exec *e, struct pp_action a);

/* Completes *host with the microbatch of the generator, if its units are on
 * this rank, and with the places of rows that go over the bridge. */
int pp_exec_attach_generator(const struct pp_exec *e, struct pp_engine *on,
                             struct pp_action a,
                             struct pp_host_microbatch *host,
                             struct pp_err *err);

/* Reports whether a stage ends in the language model's head, or in the loss
 * behind a divided head. */
bool pp_exec_has_head(const struct pp_stage *s);

/* Waits until at most `keep` messages to each rank of a row are under way. */
int pp_exec_wait_sent(const struct pp_exec *e, int row,
                      enum pp_direction direction, int keep,
                      struct pp_err *err);

/* Reports whether the microbatch fits the buffers: they have the size of the
 * largest microbatch that the plan knew. */
bool pp_exec_has_room(const struct pp_exec *e, struct pp_action a);
int pp_exec_fail_room(const struct pp_exec *e, struct pp_action a,
                      struct pp_err *err);

/* Adds the place of an action to an error of this rank. Returns -1. */
int pp_exec_fail_at(const struct pp_exec *e, struct pp_action a,
                    struct pp_err *err);

/* Finds the input of a stage: the features of each encoder from the stage that
 * makes them, of rows the sum of its inputs, in their order, and of statistics
 * all of them, one input's behind another's. */
int pp_exec_join_inputs(const struct pp_exec *e, const struct pp_engine *on,
                        struct pp_action a, struct pp_passed *x,
                        struct pp_err *err);

/* Finds where the output of a stage goes. */
struct pp_passed pp_exec_output(const struct pp_exec *e, struct pp_action a);

/* Finds the gradient of the output of a stage: the sum of the gradients of its
 * outputs, in their order. No other stage reads them, so the first one has the
 * sum. */
int pp_exec_join_gradients(const struct pp_exec *e, const struct pp_engine *on,
                           struct pp_action a, struct pp_passed *dy,
                           struct pp_err *err);

/* Finds where the input gradients go, to inputs that have a backward: that of
 * rows to the first one. */
struct pp_passed pp_exec_input_gradient(const struct pp_exec *e,
                                        struct pp_action a);

/* Gives every input that has a backward the gradient of the sum of rows. dx has
 * the first one's. */
int pp_exec_spread_gradient(const struct pp_exec *e, const struct pp_engine *on,
                            struct pp_action a, const struct pp_passed *dx,
                            struct pp_err *err);

/* The default entries of pp_exec_ops; the ctx of the player is the exec. */
int pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                struct pp_err *err);
int pp_exec_compute(void *ctx, struct pp_action a, struct pp_err *err);
int pp_exec_sync(void *ctx, struct pp_action a, struct pp_err *err);
int pp_exec_send(void *ctx, struct pp_action a, int peer, struct pp_err *err);
/* Posts the receives that stand between the compute action at hand and the next
 * one. Their RECVs then do nothing. */
int pp_exec_post(struct pp_exec *e, struct pp_err *err) PP_MUST_USE;
int pp_exec_receive(void *ctx, struct pp_action a, int peer,
                    struct pp_err *err);

/* Performs an OFFLOAD or a RELOAD. */
int pp_exec_copy(struct pp_exec *e, struct pp_action a, struct pp_err *err);

/* Waits for the messages that compute action a needs. */
int pp_exec_await_inputs(struct pp_exec *e, struct pp_action a,
                         struct pp_err *err);

#endif
