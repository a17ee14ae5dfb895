/* SPDX-License-Identifier: MIT */
/* batch - a packed bin as the layers see it: positions, ids, shifted targets.
 *
 * Every action makes it again from the mapped index. This takes about 5 ns a
 * token, which no stage of real size notices; kept views would need 48 bytes a
 * token for every microbatch in flight. */
#ifndef PP_RUN_EXECUTE_BATCH_H
#define PP_RUN_EXECUTE_BATCH_H

#include <stdbool.h>

#include "data/packed/packed.h"
#include "run/execute/sent_arrays.h"
#include "run/parts/layer.h"
#include "schedule/ir/slices.h"

/* Returns the tokens of a slice of a microbatch of `room` on the
 * tensor-parallel ranks of a context-parallel one, for which memory plans lay
 * blocks out. Returns 0 if ranks divide no experts: then all blocks are laid
 * out for their own tokens. */
size_t pp_layout_room(const struct pp_env *env, const struct pp_slices *slices,
                      int slice, size_t room);

/* Returns the number of a word on a rank that has n_words of them, or -1; 0:
 * all. */
static inline int32_t pp_word_here(int32_t first_word, int32_t n_words,
                                   int32_t id)
{
    int32_t i = id - first_word;
    return n_words == 0 ? id : i >= 0 && i < n_words ? i : -1;
}

/* Returns the position in its bin of the token that scored row k predicts, or
 * of the row itself in a reward model. The caller goes through rows that
 * ascend; *part begins with 0. */
static inline size_t pp_batch_predicts(const struct pp_bin *b,
                                       const struct pp_host_microbatch *host,
                                       size_t k, size_t *part)
{
    const struct pp_microbatch *mb = &host->of;
    int32_t row = mb->scored.rows[k];
    while (row >= mb->cu_seqlens_padded[*part + 1])
        ++*part;
    return (size_t)(b->cu_seqlens_padded[mb->sequence[*part]] +
                    mb->positions[row] + mb->scored.predicts);
}

struct pp_batch_part {
    size_t bin;
    int slice;
    struct pp_slices slices;
    bool score_all; /* score every token, ignoring the labels */
    /* Context-parallel ranks, and the number of this one. With n_ranks above 1
     * there is one slice, and the padded length of every sequence divides by
     * 2 x n_ranks. */
    int n_ranks, rank;
    /* The words of a tensor-parallel rank; 0 words: all of the vocabulary. */
    int32_t first_word, n_words;
    size_t grain;    /* of slices (pp_slice_begin); 0: 1 */
    bool score_ends; /* score the last token of every sequence, for itself */
    bool ahead;      /* also for multi-token prediction */
    bool generator;  /* of the generator's tokens; the vocabulary is then its */
};

/* Buffers for one microbatch of up to max_tokens, of max_tokens + 1 entries
 * each. */
struct pp_batch {
    int32_t vocab;
    double *logps; /* this and the arrays below are one allocation */
    int32_t *positions, *input_ids, *scored_rows, *targets;
    int32_t *cu_seqlens, *cu_seqlens_padded;
    int32_t *sequence;     /* number of each sequence in the bin */
    int32_t *ids, *labels; /* for packed data in other files */
    struct pp_attention_keys *keys;
    int32_t *order;
    int32_t *next_ids, *ahead_rows, *ahead_targets; /* or NULL */
    struct pp_cp_span spans[PP_MOST_SPANS];

    struct pp_sent_arrays sent; /* all integers of one microbatch */
};

/* The device, NULL for the CPU, outlives b. With ahead it has the arrays for
 * multi-token prediction. */
int pp_batch_init(struct pp_batch *b, struct pp_device *d, size_t max_tokens,
                  size_t vocab, bool ahead, struct pp_err *err) PP_MUST_USE;
void pp_batch_finish(struct pp_batch *b);

/* Makes *mb, which has *host for kernels: on a GPU copies of its arrays there.
 * Kernels that are queued already are not affected. */
int pp_batch_send(struct pp_batch *b, const struct pp_host_microbatch *host,
                  struct pp_microbatch *mb, struct pp_err *err) PP_MUST_USE;

/* Fills *host from a part of a bin of at most max_tokens. Its pointers point
 * into b. It has the sequences with a row in the part. If the part begins
 * inside a sequence, at a real row, context is the number of earlier rows of
 * it.
 *
 * Labels are shifted inside their sequence: row t predicts position t + 1, and
 * the last row of a sequence predicts nothing. A row is scored if its label is
 * not -100. With score_all every row but the last one of a sequence is scored
 * and predicts the next input id, which may be in the next slice. Rows with a
 * label come first, so that the head multiplies them as it does in training.
 *
 * A context-parallel rank has two chunks of each sequence that is cut into 2 x
 * n_ranks: chunk rank and chunk 2 n_ranks - 1 - rank, so that all ranks have as
 * many pairs of a query and a key (Llama Team, "The Llama 3 Herd of Models",
 * 2024). *host has each chunk as a sequence. The target of its last row may be
 * a token of another rank.
 *
 * If sequences have ranks of their own, a rank of the n that share one has its
 * chunks of 2 n, or all of it if n is 1. Sequences of as many ranks are a span.
 *
 * Ids and targets are numbers among the words of the rank, and -1 for others.
 *
 * With part->ahead, row t also has the next id and, if the label of t + 2 is in
 * the sequence and not -100, that label for multi-token prediction. The caller
 * sets ahead.
 *
 * Leaves scale, loss, logps and before unset. Fails with PP_EXIT_INPUT if an id
 * is outside the vocabulary: opening a directory maps the columns but does not
 * read them. */
int pp_batch_view(struct pp_batch *b, const struct pp_packed *p,
                  const struct pp_batch_part *part,
                  struct pp_host_microbatch *host,
                  struct pp_err *err) PP_MUST_USE;

/* Does so for a bin that the caller has; the number in *part is for messages.
 * sized: its sequences have ranks of their own. */
int pp_batch_view_bin(struct pp_batch *b, const struct pp_bin *v, bool sized,
                      const struct pp_batch_part *part,
                      struct pp_host_microbatch *host,
                      struct pp_err *err) PP_MUST_USE;

#endif
