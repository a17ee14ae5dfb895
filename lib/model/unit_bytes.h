/* SPDX-License-Identifier: MIT */
/* unit_bytes - the memory of a rank, in bytes: what its units keep, what an
 * action needs while it runs, and the tables of the rank. Pure.
 *
 * ppsplit, ppsched and pprun call the functions below, so they give one number
 * for one plan. pprun allocates these sizes, each in whole cache lines. */
#ifndef PP_MODEL_UNIT_BYTES_H
#define PP_MODEL_UNIT_BYTES_H

#include "base/num.h"
#include "model/precision.h"

/* The types of a run, and the sizes of its kernels (kernel_sizes.h). */
struct pp_backend {
    size_t element_bytes, accumulator_bytes;
    size_t head_logits, head_rows;
    bool is_host; /* the CPU, not a GPU */
};

/* Returns the backend of a device for a precision. */
struct pp_backend pp_backend_of(const struct pp_precision *p, bool is_host);

/* Returns the rows of logits that the head computes at a time, and the rows
 * that need room: few tokens are one smaller block. */
size_t pp_head_block_rows(const struct pp_backend *b, size_t vocab);
size_t pp_head_room_rows(size_t block_rows, size_t tokens);

/* Returns the bytes that each row of the room has in which tensor-parallel
 * ranks gather the rows of all, or add them up. A workspace has two such rooms,
 * for the rows of all of them. They also hold the two numbers of each part of
 * the vocabulary. */
size_t pp_gathered_row_bytes(const struct pp_shard *s,
                             const struct pp_backend *b);

/* Returns the bytes of a workspace for so many rows. copied: rows of keys and
 * values that attention copies (pp_copied_keys). */
size_t pp_workspace_bytes(const struct pp_workspace *w, size_t rows,
                          size_t copied);

/* Returns the rows of keys and values that attention of a slice copies; tp
 * tokens count as a row. context: most earlier tokens of a sequence before a
 * slice; 0 without slices. */
size_t pp_copied_keys(const struct pp_mesh *x, size_t rows, size_t context);

/* The bytes of a unit for each row of a rank. pp_rank_rows gives the rows. */
struct pp_unit_rates {
    double act[PP_N_SAVED_BLOCKS];
    double out; /* not whole for the units of an encoder */
    struct pp_workspace workspace;
};

struct pp_unit_rates pp_unit_rates(const struct pp_shard *s,
                                   struct pp_unit_id u, enum pp_recompute r,
                                   const struct pp_backend *b);

/* Returns the bytes that linear attention of a unit passes from a slice to the
 * next, in whole cache lines; 0 for other units. */
size_t pp_unit_states(const struct pp_shard *s, struct pp_unit_id u,
                      size_t accumulator_bytes);

/* Returns the rows of a rank for so many tokens of a microbatch or a slice. */
size_t pp_rank_rows(const struct pp_mesh *x, const struct pp_backend *b,
                    size_t tokens);

/* Returns the whole bytes of so many rows. Rates that come from a manifest may
 * differ from whole numbers by rounding errors. */
size_t pp_bytes_of_rows(double rate, size_t rows);

/* Bytes of a unit for the rows of a rank. */
struct pp_unit_bytes {
    size_t act[PP_N_SAVED_BLOCKS];
    size_t output;
    size_t grad_keys; /* of keys and values; only slices need them */
    size_t states;    /* what passes to the next slice; likewise */
    size_t told;      /* what F tells the host of a GPU */
    size_t workspace; /* of an action; a rank shares the largest */
};
struct pp_unit_bytes pp_unit_bytes(const struct pp_unit_rates *rates,
                                   size_t rows, size_t copied);

/* Weights, gradients, and optimizer state (moments and master weights). */
struct pp_state_bytes {
    size_t weights, gradients, optimizer;
};

/* Returns the state of one rank for the elements of a unit that it holds, with
 * AdamW. A unit's tensors begin on a cache line in every block, so that their
 * alignment depends on the model alone. */
struct pp_state_bytes pp_state_bytes(const struct pp_mesh *x,
                                     struct pp_held held,
                                     const struct pp_precision *p);

/* Returns the bytes of these weights when they are whole, if ranks divide them
 * and gather them for use, else 0. */
size_t pp_gathered_bytes(const struct pp_mesh *x, struct pp_held held,
                         const struct pp_precision *p);

static inline size_t pp_state_sum(struct pp_state_bytes s)
{
    return s.weights + s.gradients + s.optimizer;
}

/* --- tables --- */

/* The sizes of the tables of a rank follow from these. */
struct pp_table_counts {
    size_t tokens;    /* of the largest microbatch, whole */
    size_t positions; /* of the longest sequence */
    size_t rotary;    /* rotated elements of a head; 0: no tables of angles */
    size_t n_tensors; /* of the whole model; a tied head counts */
    size_t n_params;  /* of all its units */
    size_t n_owners;  /* ranks that divide the optimizer's state */
    size_t generated; /* of the largest microbatch of a generator, whole; 0:
                         the rank has none */
    size_t generator_rotary; /* as rotary */
    size_t bridged;  /* most rows that the rank exchanges with a generator on
                        other ranks, or as one, before they are divided; or 0 */
    size_t bridges;  /* the ranks of a row at either end of that bridge, or 0 */
    size_t n_losses; /* microbatches of a step */
    size_t n_metrics; /* numbers of an objective for each of them, by all ranks
                         that divide it; 0: it has no rows of its own */
    size_t n_eval;    /* microbatches of an evaluation */
    size_t n_scores;  /* tokens that a scoring pass keeps */
    size_t score_width;  /* numbers of each */
    size_t widened;      /* elements of mapped weights at a time */
    size_t n_references; /* positions with a log-probability of the base */
    size_t n_ranks;
    size_t sums;  /* most ranks that add the same gradients, this one included;
                     below 2: it adds none with others */
    bool ahead;   /* it has a layer for multi-token prediction */
    bool copies;  /* weights have two copies */
    bool divided; /* ranks divide sequences */
    struct pp_image_counts {
        size_t ranks;  /* to which features of this one go, itself included; 1
                          without sorting, 0: it has no images */
        size_t rows;   /* its most tokens of a microbatch, or features */
        size_t merge;  /* patches of a feature; 0: images have one size */
        size_t states; /* of the encoder in a feature */
    } images[PP_MAX_ENCODERS]; /* of each encoder */
    bool overlap; /* a second queue computes the forward of overlap pairs */
};

/* Returns the values that a rank has room for when it adds gradients with
 * others: the values that come in one round, so that the room does not grow
 * with the model. A round of a GPU receives up to 4 MiB of each rank, and 64
 * MiB in all: at 50 GB/s 4 MiB take 80 us, several times what a launch takes.
 */
size_t pp_sum_values(const struct pp_table_counts *c, bool is_host);

/* Returns the bytes of the arrays of a microbatch on the host, and of its
 * integers that a GPU's kernels read. */
size_t pp_batch_host_bytes(size_t tokens, bool ahead);
size_t pp_batch_device_bytes(size_t tokens, bool ahead);

/* The room of a scored row of an objective other than the next token: its
 * log-probability, eight sums of its sequence, four columns and one of the
 * sequence, and two indices. */
enum { PP_SCORING_ROW_BYTES = 14 * sizeof(double) + 2 * sizeof(uint32_t) };
size_t pp_scoring_bytes(size_t tokens);

/* Returns the bytes of the arrays of such a bridge on the host: the places of
 * rows, which a GPU's kernels read, the tokens and parts of each rank; at the
 * generator also its sequences. */
size_t pp_bridge_bytes(const struct pp_table_counts *c);

/* Return the bytes of the arrays of the images of a microbatch with room for so
 * many tokens or features, on the host, and of the arrays that a GPU's kernels
 * read.
 */
size_t pp_image_batch_bytes(size_t tokens, const struct pp_image_counts *c);
size_t pp_image_batch_device_bytes(size_t tokens,
                                   const struct pp_image_counts *c);

/* The most metrics that such an objective has for a microbatch. */
enum { PP_SCORING_METRICS = 24 };

/* Returns the bytes on a device through which ranks exchange the sums of their
 * sequences. A sequence has two rows or more for each rank. */
size_t pp_scoring_shared_bytes(size_t tokens);

/* Tokens of a message of scores to rank 0. */
enum { PP_SCORES_PART = 256 };

/* Returns the numbers that ranks add up after a step: one for each tensor, each
 * loss and each metric, the numbers that every rank has, and one for each rank.
 */
enum { PP_SHARED_NUMBERS = 13 };
size_t pp_step_numbers(const struct pp_table_counts *c);

/* Returns the most sums that a rank computes in a step: the losses of
 * microbatches, the loss of another head, and sums of squares. */
size_t pp_table_sums(const struct pp_table_counts *c);

/* Returns the bytes of all tables of a rank. On a GPU they are in the device's
 * memory, with the buffers of its queues. */
size_t pp_table_bytes(const struct pp_table_counts *c,
                      const struct pp_backend *b);

#endif
