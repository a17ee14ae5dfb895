/* SPDX-License-Identifier: MIT */
/* inject - what the files of faults share. */
#ifndef PP_TESTS_INJECT_H
#define PP_TESTS_INJECT_H

#include "run/execute/exec.h"

/* Returns whether this is the fault of a run of several ranks. */
bool inject_is(const char *fault);

/* The same on a thread that copies for an exec. */
bool inject_is_of(const struct pp_exec *e, const char *fault);

/* Copies activations of stage 1 with a fault (inject_copy.c). reload-other: the
 * next microbatch's come back. reload-away: the backward reads where they were
 * before they left. offload-late: nobody waits until they have left, so that
 * what overwrites them leaves. reload-late: nor until they are back. */
int inject_copy(const struct pp_exec *e, struct pp_device *on,
                struct pp_action a, struct pp_err *err);

/* Faults of ranks that divide tokens (inject_view.c, as all below): the scale
 * of a pass, and the microbatch of a rank. */
double inject_scale(const struct pp_exec *e, const struct pp_pass *p);
void inject_part(const struct pp_exec *e, const struct pp_batch_part *part,
                 const struct pp_batch *b, struct pp_microbatch *mb,
                 struct pp_pass *p);

/* Shifts labels across the bounds of sequences, loses the earlier slices, and
 * loses the labels at the ends of chunks. */
void inject_order(const struct pp_batch *b, const struct pp_microbatch *mb);
void inject_shift_labels(const struct pp_batch *b, const struct pp_packed *p,
                         size_t bin, struct pp_microbatch *mb);
void inject_forget_context(const struct pp_batch *b, struct pp_microbatch *mb);
void inject_cut_labels(const struct pp_batch *b, struct pp_microbatch *mb);

/* Scatters n rows of x. features-order: those of images go to the placeholders
 * of the features before them. features-lost: in backward, the gradient of the
 * last one is lost. */
int inject_features(const struct pp_kernels *real, bool forward, void *y,
                    const void *x, const int32_t *rows, size_t n, size_t width,
                    void *stream);

/* Faults of an encoder on ranks of its own, in fp64 (inject_bridge.c).
 * bridge-swapped: the first and the last feature of a message change places.
 * bridge-twice: the gradient of a feature comes twice.
 * bridge-factor: the encoder's gradients are multiplied by its data-parallel
 * ranks over those of the language model. bridge-absent: an encoder's rank
 * joins their sum with nothing. encoder-bias: each of the ranks that divide the
 * projector adds its last bias. encoder-norms: gradients of norms count once
 * for each of them. */
void inject_bridge_send(const struct pp_exec *e, struct pp_action a);
void inject_bridge_sync(const struct pp_exec *e, struct pp_action a,
                        bool after);

/* Faults where two encoders meet, in fp64. encoders-swapped: the first rows of
 * each are those of the other. encoders-alike: those of the second are the
 * first's. encoders-gradients: gradients go to the other encoder. */
int inject_join(struct pp_exec *e, struct pp_action a, bool after,
                struct pp_err *err);

/* Scores a microbatch of an exec with a fault (inject_score.c). */
int inject_score(const struct pp_exec *e, const struct pp_microbatch *mb,
                 double *x, double *loss, struct pp_err *err);

/* Changes the counts of rows that a rank tells for each of n experts: one row
 * of the first expert that has some goes to its neighbour, on the same rank. */
void inject_miscount(int32_t *counts, size_t n);

/* Divides the gradients of the experts of a stage by the ranks of a row. */
void inject_average(const struct pp_worker *w, int stage);

/* With whole experts: multiplies the gradients of those of a stage by the
 * tensor-parallel ranks; and clears those of its routers on all of these ranks
 * but the first. */
void inject_repeat(const struct pp_worker *w, int stage);
void inject_drop_routers(const struct pp_worker *w, int stage);

/* Faults of adapters (inject_lora.c): reports whether weights are those of the
 * adapter that counts twice, fills B, and decays weights without gradients. */
bool inject_is_chosen(const struct pp_exec *e, const void *w);
void inject_noise(const struct pp_exec *e);
void inject_decay(const struct pp_exec *e);

/* Not faults: count the products of a rank that run while messages of its row
 * travel. note_products replaces kernels of the rank's table. Receives are
 * posted and waited for. print_received prints the bytes, the waits for
 * messages, and those that a product came before. */
void inject_note_products(struct pp_kernels *k);
void inject_posted(enum pp_direction direction);
void inject_waited(enum pp_direction direction);
void inject_print_received(int rank, size_t bytes);

#endif
