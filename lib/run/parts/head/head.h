/* SPDX-License-Identifier: MIT */
/* head - what the files of the head share. The head makes logits of some
 * scored rows at a time, a block. */
#ifndef PP_RUN_PARTS_HEAD_HEAD_H
#define PP_RUN_PARTS_HEAD_HEAD_H

#include "run/parts/layer_impl.h"

/* A block: the scored rows at .. at + n - 1. */
struct pp_head_block {
    size_t at, n;
    void *logits; /* (n, words of this rank) */
    void *lse;    /* (n) log-sum-exp over all words */
    void *room;   /* unused, beside them */
    size_t room_bytes;
};

/* Returns the part of at most `most` rows of a block that begins at row i. */
struct pp_head_block pp_head_part(const struct pp_call *c,
                                  const struct pp_head_block *h, size_t i,
                                  size_t most);

/* Returns the ranks that divide the words, and the words of this one. */
size_t pp_head_ranks(const struct pp_call *c);
size_t pp_head_words(const struct pp_call *c);

/* Words first .. first + n - 1. */
struct pp_head_span {
    size_t first, n;
};
struct pp_head_span pp_head_span(const struct pp_call *c, size_t rank);

/* Returns the bytes of the statistics that a unit with some of the words passes
 * on, and of what the loss gives back: PP_HEAD_STATISTICS values of each row of
 * this rank. */
static inline size_t pp_head_statistics(const struct pp_call *c)
{
    return PP_HEAD_STATISTICS * c->R * c->k->accumulator_bytes;
}

/* Returns the cap of the logits, or 0. */
double pp_head_cap(const struct pp_call *c);

/* Writes the details of the rows of a block, over the words of all ranks. */
void pp_head_details(const struct pp_call *c, const struct pp_head_block *h);

/* Draws a token for each of them. */
void pp_head_sample(const struct pp_call *c, const struct pp_head_block *h);

/* For a microbatch with a teacher, whose distributions are the targets. fwd
 * writes logp (n), the negative divergence from them at each row; bwd replaces
 * the logits with the gradient of the sum of scale (n) times the divergence. */
void pp_head_teacher_fwd(const struct pp_call *c, const struct pp_head_block *h,
                         void *logp);
void pp_head_teacher_bwd(const struct pp_call *c, const struct pp_head_block *h,
                         const void *scale);

/* The row of t predicts the token of t + 2 in multi-token prediction. */
enum { PP_PREDICTS_AHEAD = 2 };

/* Writes the derivative of the loss by minus the log-probability of each scored
 * row, without an objective. */
void pp_head_write_scale(const struct pp_call *c);

/* Adds up the loss of the scored rows from logp (n_scored), and hands them to
 * an objective, whose derivatives it writes. all_logps has room for the rows of
 * all context-parallel ranks if the loss is exact. */
void pp_head_sum_loss(const struct pp_call *c, const void *logp,
                      void *all_logps);

/* The head of a language model with a generator behind it: writes its rows x
 * (rows of this rank, C) to y, in the order of the ranks that take them; adds
 * their gradient dy, in that order, to dx. room is as large as dx. */
void pp_head_pass_on(const struct pp_call *c, void *y, const void *x);
void pp_head_add_passed(const struct pp_call *c, void *dx, const void *dy,
                        void *room);

#endif
