/* SPDX-License-Identifier: MIT */
/* shard - what one rank has of a model: the sizes of its part, and what its
 * units save between forward and backward. Pure.
 *
 * A model is what config.json says, and nobody changes it; its sizes are the
 * whole model's. A shard says which ranks divide it. */
#ifndef PP_MODEL_SHARD_H
#define PP_MODEL_SHARD_H

#include <math.h>

#include "base/num.h"
#include "model/mesh.h"

/* The images of an encoder, and how ranks divide them. */
struct pp_image_load {
    size_t n_images, seq_len; /* of a sequence, and its tokens with images */
    size_t patches;           /* of an image */
    size_t sharers;           /* ranks that divide the tokens of a microbatch */
    size_t makers, lanes; /* groups of ranks, which divide the images of that
                             many microbatches */
    size_t tp;            /* ranks of such a group, which divide its tensors */
    size_t exchangers;    /* ranks of the language model that make features and
                             exchange them; 0: others do */
};

struct pp_shard {
    const struct pp_model *model; /* borrowed */
    struct pp_mesh mesh;          /* of the ranks that divide it */
    struct pp_image_load images[PP_MAX_ENCODERS];
    /* (n_layers) Only costs read it: the rows of experts at the fullest
     * expert-parallel rank over the mean. Borrowed. NULL: as the mesh says. */
    const double *skew;
    bool one_round; /* experts take all rows at once, however many come */
    /* Tensor-parallel ranks do not divide the rows between products: an
       encoder's have all rows of their images. */
    bool whole_rows;
};

/* Return the shard of a rank of that mesh, and of one that has the whole model.
 * A sequence is an image of the usual size, which no ranks divide. */
struct pp_shard pp_shard_of(const struct pp_model *m, const struct pp_mesh *x);
struct pp_shard pp_shard_whole(const struct pp_model *m);

/* Returns the shard that a unit belongs to, *s or that of the generator on the
 * same ranks, and makes *u the unit of that model (pp_unit_model). */
static inline struct pp_shard pp_unit_shard(const struct pp_shard *s,
                                            struct pp_unit_id *u)
{
    struct pp_shard of = *s;
    of.model = pp_unit_model(s->model, u);
    return of;
}

static inline size_t pp_shard_tp(const struct pp_shard *s)
{
    return (size_t)s->mesh.tp;
}

/* Returns the ranks that divide the rows between products. */
static inline size_t pp_shard_row_ranks(const struct pp_shard *s)
{
    return s->whole_rows ? 1 : pp_shard_tp(s);
}

/* Returns the heads of a layer on the rank. Of fewer heads of keys and values
 * than ranks, several ranks have the same one. */
static inline struct pp_heads pp_shard_heads(const struct pp_shard *s,
                                             struct pp_unit_id u)
{
    struct pp_heads h = pp_unit_heads(s->model, u);
    size_t tp = pp_shard_tp(s);
    h.n /= tp;
    h.n_kv = h.n_kv < tp ? 1 : h.n_kv / tp;
    return h;
}

/* Returns the linear attention of the rank. */
static inline struct pp_delta pp_shard_delta(const struct pp_shard *s)
{
    struct pp_delta d = s->model->delta;
    d.key_heads /= pp_shard_tp(s);
    d.value_heads /= pp_shard_tp(s);
    return d;
}

/* Returns the columns of an MLP. */
static inline size_t pp_shard_columns(const struct pp_shard *s)
{
    return s->model->intermediate / pp_shard_tp(s);
}

/* Return the most words of the vocabulary on a rank, and the most outputs of
 * its head for a row. */
static inline size_t pp_shard_words(const struct pp_shard *s)
{
    size_t n = s->model->vocab, tp = pp_shard_tp(s);
    return n / tp + (n % tp > 0);
}

static inline size_t pp_shard_outputs(const struct pp_shard *s)
{
    size_t n = s->model->head_stages ? s->model->head_stages : 1;
    return s->model->scores ? 1 : (pp_shard_words(s) + n - 1) / n;
}

/* Return the experts of the rank, the columns that it has of each, and of all
 * shared ones together. */
static inline size_t pp_shard_experts(const struct pp_shard *s)
{
    return s->model->moe.n_experts / (size_t)s->mesh.ep;
}

static inline size_t pp_shard_expert_columns(const struct pp_shard *s)
{
    bool whole = pp_mesh_has_whole_experts(&s->mesh);
    return s->model->moe.intermediate / (whole ? 1 : pp_shard_tp(s));
}

static inline size_t pp_shard_shared_columns(const struct pp_shard *s)
{
    return s->model->moe.shared / pp_shard_tp(s);
}

/* Returns the ranks whose rows a router and the experts see together, as for a
 * product. */
static inline size_t pp_shard_routed_ranks(const struct pp_shard *s)
{
    return pp_mesh_has_whole_experts(&s->mesh) ? 1 : pp_shard_row_ranks(s);
}

/* Return the rows of experts that the rank has room for at a time if it has so
 * many tokens, and the values of such rows for each token, rounded up. */
static inline size_t pp_shard_expert_room(const struct pp_shard *s,
                                          size_t tokens)
{
    return (size_t)(pp_mesh_expert_rows(&s->mesh, s->model) * (double)tokens);
}

static inline size_t pp_shard_expert_values(const struct pp_shard *s,
                                            size_t width)
{
    return (size_t)ceil(pp_mesh_expert_rows(&s->mesh, s->model) *
                        (double)width);
}

/* Reports whether more rows may come to the rank than it has room for. */
static inline bool pp_shard_has_rounds(const struct pp_shard *s)
{
    return pp_mesh_expert_rows(&s->mesh, s->model) <
           (double)pp_mesh_all_expert_rows(&s->mesh, s->model);
}

/* Reports whether a layer of experts has room for the rows of this rank beside
 * what comes to it. */
static inline bool pp_shard_keeps_own_rows(const struct pp_shard *s)
{
    return pp_shard_has_rounds(s) || s->mesh.expert_padding;
}

/* Returns the work of experts on the slowest rank of a layer over the mean, at
 * most the work of all rows that can come to it. */
static inline double pp_shard_skew(const struct pp_shard *s, size_t layer)
{
    bool listed = s->skew && layer < s->model->n_layers;
    double skew = listed ? s->skew[layer] : s->mesh.expert_imbalance;
    if (!(skew > 1))
        return 1;
    return fmin(skew, (double)pp_mesh_all_expert_rows(&s->mesh, s->model) /
                          (double)s->model->moe.top_k);
}

/* Return the rounds in which the rows of this rank go through a layer, and the
 * rows of all but the first, over the mean. */
static inline double pp_shard_rounds(const struct pp_shard *s, size_t layer)
{
    double room =
        pp_mesh_expert_rows(&s->mesh, s->model) / (double)s->model->moe.top_k;
    return s->one_round ? 1 : fmax(1, ceil(pp_shard_skew(s, layer) / room));
}

static inline double pp_shard_further_rows(const struct pp_shard *s,
                                           size_t layer)
{
    double room =
        pp_mesh_expert_rows(&s->mesh, s->model) / (double)s->model->moe.top_k;
    return s->one_round ? 0 : fmax(0, pp_shard_skew(s, layer) - room);
}

/* With recomputation, a tensor may lie in other blocks in F than in I and W. */
enum pp_saved_when { PP_IN_FORWARD, PP_IN_BACKWARD };

/* A row is a token of this rank: tensor-parallel ranks divide the tokens of
 * what lies between their products. A tensor inside, which has the heads or
 * columns of a rank for the tokens of all tp ranks, counts tp times its width.
 */
struct pp_saved {
    enum pp_saved_block block;
    size_t width;
    bool is_statistic; /* true if values have the accumulator type, not the
                          element type */
    size_t offset;     /* values per token before it in the unit's block: with
                          T tokens the tensor begins at offset * T */
    size_t statistics; /* how many of these bytes are statistics */
};

#define PP_MAX_SAVED PP_N_LAYER_SAVED

/* Returns the parts that a unit recomputes if its stage recomputes r: more, if
 * their inputs are not kept, or fewer, if nobody reads them. */
enum pp_recompute pp_unit_recompute(const struct pp_model *m,
                                    struct pp_unit_id u, enum pp_recompute r);

/* Fills the unit's table of saved tensors; returns their number. A tensor that
 * lives from F on has the same offset in F, I and W. */
size_t pp_unit_saved(const struct pp_shard *s, struct pp_unit_id u,
                     enum pp_recompute r, enum pp_saved_when when,
                     struct pp_saved out[PP_MAX_SAVED]);

/* Returns the values per token of one block of the unit; precision.h has
 * bytes. The workspace is the larger of F's and I's. */
size_t pp_unit_saved_width(const struct pp_shard *s, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block);

/* The room that a layer of experts needs beside what it saves: elements, and
 * values of the accumulated type, for each row of a product, or of this rank if
 * no expert is divided. Ranks that divide the experts need two of product and
 * weights: what arrives, and the same by expert; and their own rows, if more
 * may come to them than they have room for. */
struct pp_experts_room {
    size_t product; /* inputs or outputs of the experts, or their gradients */
    size_t act;     /* gradients of activations */
    size_t again;   /* activations of a further round, and their gradients */
    size_t logits;  /* accumulated type, like the members below; also loads */
    size_t weights, other_weights;
    size_t arrivals;     /* the places of rows of other ranks */
    size_t choices;      /* with a capacity: the choices of all ranks that
                            divide the tokens */
    size_t counts;       /* 32-bit integers, whatever the rows: tokens of each
                            expert by rank, twice, and the tokens that each keeps */
    size_t rows, values; /* the rows of experts, rounded up, and their elements
                            in one of the products */
};
struct pp_experts_room pp_experts_room(const struct pp_shard *s);

/* Returns the 32-bit integers that F of such a layer tells the host of a GPU: a
 * double of each auxiliary loss, the load of each expert, and the rows of each
 * rank for each expert. They are in front of the counts above. */
static inline size_t pp_experts_told(const struct pp_shard *s)
{
    size_t E = s->model->moe.n_experts;
    return pp_round_up(
        2 * sizeof(double) / sizeof(int32_t) + (1 + (size_t)s->mesh.ep) * E, 2);
}

/* Returns the elements that attention of a layer needs beside what it saves,
 * for each row of a product. */
size_t pp_attention_room(const struct pp_shard *s, struct pp_unit_id u);

#endif
