/* SPDX-License-Identifier: MIT */
/* layer - a unit that computes: forward, input gradient, weight gradient.
 *
 * A stage is a sequence of layers and knows nothing else of transformers. The
 * widths and offsets of saved tensors come from model/model.h. */
#ifndef PP_RUN_PARTS_LAYER_H
#define PP_RUN_PARTS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels.h"
#include "model/edge.h"
#include "model/unit_bytes.h"
#include "run/parts/env.h"
#include "run/parts/router_losses.h"

/* The loss of multi-token prediction in a step. F adds the sums of this rank,
 * without weight. */
struct pp_ahead_loss {
    double weight; /* in the loss that is minimised */
    double loss;
};

/* The loss of a generator, likewise. */
struct pp_generator_loss {
    double weight;
    double scale; /* 1 / its scored tokens of the step; 0 if there are none */
    double loss;
};

/* An earlier slice of the same microbatch, and its saved blocks in the stage.
 */
struct pp_slice_blocks {
    size_t tokens, room; /* see struct pp_microbatch */
    size_t n_scored;     /* with an objective, and only if a backward follows */
    void *block[PP_N_UNIT_BLOCKS];
};

enum { PP_MOST_TOP_K = 1024 };

/* How features go from the ranks that make them to those that have their
 * tokens. The parts of each rank are bounds, as pp_all_to_all takes them. */
struct pp_feature_routes {
    const int32_t *order; /* the features that this rank sends, by destination
                           */
    const size_t *out, *in;
};

/* The features of an encoder for the rows of this rank. */
struct pp_taken_features {
    size_t n;
    const int32_t *rows; /* (n) of this rank, by the rank that makes them; the
                            ids of these placeholders are -1 */
    const struct pp_feature_routes *routes; /* NULL: one rank has all, or there
                                               is a bridge */
    /* The images of this rank in the microbatch, as the encoder sees them; NULL
     * if the rank has none of this encoder. */
    const struct pp_microbatch *images;
};

/* How the head draws tokens. */
struct pp_sampler {
    bool greedy;  /* the largest logit */
    uint64_t key; /* of the noise */
    void *room;   /* (vocab) elements in host memory */
};

/* Sequences of a bin that `ranks` context-parallel ranks share, if sequences
 * have ranks of their own: this one and its neighbours. They are microbatches
 * of their own for attention. */
struct pp_cp_span {
    int ranks, first; /* the group: its first rank among all */
    size_t first_row, tokens, n_sequences;
    /* As in struct pp_microbatch, from first_row on; on one rank without keys.
     */
    const int32_t *cu_seqlens, *cu_seqlens_padded;
    const struct pp_attention_keys *keys;
    const int32_t *order;
    size_t n_whole;
    const int32_t *whole_cu, *whole_cu_padded;
};

enum { PP_MOST_SPANS = 32 }; /* divisors of PP_MOST_SIZED_RANKS or less */

/* The input of every layer: one microbatch, or one slice of it. The rows are
 * those of the slice then. The integer arrays are device memory. */
struct pp_microbatch {
    size_t tokens; /* rows, padding included; may be 0. Each tensor-parallel
                      rank has a part of them between products */
    size_t room;   /* tokens that the saved blocks are laid out for; 0: as many.
                      Ranks that divide experts get rows of each other, and
                      experts with a capacity compare tokens of all ranks */
    size_t n_sequences;
    const int32_t *cu_seqlens, *cu_seqlens_padded; /* n_sequences + 1 */
    const int32_t *host_cu, *host_cu_padded;       /* the same in host memory */
    const int32_t *positions; /* (tokens) in the sequence; 0 on padding */
    const int32_t *input_ids; /* (tokens) 0 for the class token of an image, -1
                                 for patches; -1 on padding, and for words of
                                 other tensor-parallel ranks; else an index
                                 into the words of this one */

    /* For the head: the rows whose prediction is scored, and the token that
     * each should predict, already shifted inside its sequence. The first
     * n_labelled ascend, and so do the others. No block of rows has both, since
     * the bits of a product may depend on the rows beside it. */
    size_t n_scored, n_labelled;
    const int32_t *scored_rows, *targets; /* (n_scored) */
    int32_t predicts; /* the row of position t is scored for the token of
                         t + predicts; 0 without targets */
    /* For an encoder: the rows whose features the language model gets, in its
     * order. */
    size_t n_features;
    const int32_t *feature_rows; /* (n_features, hidden states that make one);
                                    an encoder that merges patches counts as
                                    many rows as make a feature as one. NULL:
                                    all, in order */
    const int32_t *sources;  /* (n_features) host memory, if they are in another
                                order in the encoder: the number of each, by its
                                place there; else NULL */
    const int32_t *n_frames; /* (n_sequences) of each clip, if the encoder works
                                on chunks; host memory */
    const int32_t *row_kinds; /* (tokens) for an encoder of audio, as the kernel
                                 taps takes them */
    /* For an encoder some of whose layers attend to windows or chunks, not to
     * images. */
    size_t n_windows;
    const int32_t *cu_windows; /* (n_windows + 1) */
    /* (tokens, number of axes) the positions on each axis; NULL: they are all
     * those of `positions`. */
    const int32_t *axes;
    const struct pp_feature_routes *routes; /* before a bridge: the order in
                                               which a projector sends; or NULL
                                             */
    const float *const *pixels; /* (n_sequences) of each image, (patches,
                                   patch_inputs); host memory */
    /* For the embedding: the features of each encoder. */
    struct pp_taken_features taken[PP_MAX_ENCODERS];
    double scale;       /* 1 / scored tokens of the whole step */
    double temperature; /* divides logits; 0: 1 */
    double *loss;       /* F writes: sum of -logp over scored rows, in row
                           order, times scale; or that of `objective` */
    double *logps;      /* (n_scored) F writes; may be NULL without objective */
    bool at_once; /* the backward follows F at once (schedule/ir/at_once.h); F
                     may do what belongs to it, also to g */
    /* If wanted, F writes the entropy at every scored row, then top_k ids and
     * as many logits, details_stride apart. */
    size_t top_k; /* at most PP_MOST_TOP_K */
    bool entropy;
    double *details; /* (n_scored) or NULL */
    size_t details_stride;
    /* Instead, F draws a token for every scored row, and writes its id and its
     * log-probability. */
    const struct pp_sampler *sampler; /* or NULL */
    uint64_t draw; /* number of the first one; a row has one of its own */
    /* Turns log-probabilities of the scored rows, x, into the loss, and
     * replaces them by its negative gradient; or scores of sequences by its
     * gradient. With slices the last one does so
     * for all, whose x come one before the other; a slice that continues leaves
     * them. NULL: every row's is scale. */
    int (*objective)(void *ctx, const struct pp_microbatch *mb, double *x,
                     double *loss, struct pp_err *err);
    void *objective_ctx;

    /* Writes the distributions that the scored rows from `at` on should predict
     * in place of targets, for teacher_k words each: ids (n, teacher_k), as
     * targets are, their weights, and the entropies (n). The log-probability of
     * a row is then minus the divergence from its distribution. Or NULL. */
    int (*teacher)(void *ctx, size_t at, size_t n, int32_t *ids,
                   double *weights, double *entropy, struct pp_err *err);
    void *teacher_ctx;
    size_t teacher_k; /* at most PP_MOST_TOP_K */

    /* For multi-token prediction, in a step that trains; else ahead is NULL.
     * The row of position t predicts the token of t + 2 from the trunk's output
     * and the token of t + 1, as input_ids has it; -1 at the end of a sequence.
     * A row is scored if that target is. */
    struct pp_ahead_loss *ahead;
    const int32_t *next_ids; /* (tokens) */
    size_t n_ahead;
    const int32_t *ahead_rows, *ahead_targets; /* (n_ahead) */

    /* The microbatch of the generator, which has tokens of its own; or NULL.
     * Its rows are those of the language model, unless other ranks have it. */
    const struct pp_microbatch *generated;
    const struct pp_generator_loss *of_generator; /* its own; else NULL */
    /* (rows of this rank) At either end of a bridge between the two: the place
     * of each row in what is sent or received. NULL: they are in order. */
    const int32_t *bridge;

    /* For experts, or NULL. given writes the experts that the tokens get in a
     * layer, (tokens, K), the best first, and -1 for padding; then the router
     * chooses none. chosen takes what they got. Layers with experts count. */
    int (*given)(void *ctx, size_t layer, int32_t *experts, struct pp_err *err);
    int (*chosen)(void *ctx, size_t layer, const struct pp_routing *r,
                  struct pp_err *err);
    void *replay_ctx;
    /* For experts, in a step that trains; or NULL. Slices have no losses. */
    struct pp_router_losses *router;

    /* For a slice, and for the rows of a context-parallel rank. */
    const struct pp_attention_keys *keys; /* (n_sequences), or NULL */
    size_t key_rows;
    /* (key_rows) For a context-parallel rank: the row of each key when the rows
     * of all ranks follow each other. */
    const int32_t *order;
    size_t n_whole;
    const int32_t *whole_cu, *whole_cu_padded; /* (n_whole + 1) the
                                                  sequences on all ranks */
    const int32_t *host_whole_cu;              /* the first in host memory */
    const int32_t *sequence; /* (n_sequences) host memory: number in the bin. A
                                rank has two parts of each sequence. */
    const int32_t *of_whole; /* the same for kernels, if there are whole ones */
    /* (n_spans) host memory, in the order of the rows; NULL unless sequences
     * have ranks of their own. Then there are no keys and no order. */
    const struct pp_cp_span *spans;
    size_t n_spans;

    /* For a slice. */
    size_t first_row; /* tokens of the earlier slices */
    size_t context;   /* those of them in the sequence that continues here */
    size_t real;      /* tokens of the whole microbatch, without padding */
    size_t n_before;  /* number of earlier slices */
    const struct pp_slice_blocks *before; /* (n_before) */
    bool continues;                       /* later slices follow */
};

/* One unit bound to its parameters on one rank. */
struct pp_layer {
    const struct pp_env *env; /* borrowed */
    struct pp_unit_id unit;   /* of the env's model */
    size_t number;            /* of the unit in the whole model */
    enum pp_rows rows;        /* of what it saves */
    enum pp_role role;
    enum pp_recompute recompute;
    /* The tensor of its head, and the rows that it has of it; NULL, 0: all
     * words. */
    const struct pp_tensor_info *words;
    size_t n_words;
    void *w[PP_N_LAYER_PARAMS]; /* by slot; NULL if there is none */
    void *g[PP_N_LAYER_PARAMS]; /* gradients; all NULL if only forward runs */
    void *load; /* (experts) accumulated type; in a step that trains F adds the
                   tokens of each expert; or NULL */
};

/* Returns the tokens that the saved blocks are laid out for. */
static inline size_t pp_layer_room(size_t tokens, size_t room)
{
    return room ? room : tokens;
}

/* Returns how attention reaches the keys of other slices, or of the
 * context-parallel ranks of a mesh. */
const struct pp_attention_exchange *
pp_attention_exchange(int n_slices, const struct pp_mesh *x);

/* Returns frequency number i of rotary / 2. pp_rope_tables fills tables of a
 * rotary embedding in host memory: (positions, rotary / 2) values of
 * value_bytes each. Both compute in double. */
double pp_rope_frequency(const struct pp_rope *r, size_t rotary, size_t i);
void pp_rope_tables(const struct pp_rope *r, size_t rotary, size_t positions,
                    size_t value_bytes, void *cos, void *sin);

#endif
