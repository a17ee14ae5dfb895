/* SPDX-License-Identifier: MIT */
/* parameters - the tensors that one rank trains: weights, gradients,
 * optimizer moments and master weights, in five blocks of device memory. */
#ifndef PP_RUN_PARAMETERS_PARAMETERS_H
#define PP_RUN_PARAMETERS_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "model/model.h"
#include "device/device.h"
#include "run/parameters/stored.h"

/* The blocks. The weights have the element type of the run, the others have the
 * type of accumulated values (kernels.h). */
enum pp_weights_block {
    PP_BLOCK_W,
    PP_BLOCK_G,
    PP_BLOCK_M,
    PP_BLOCK_V,
    PP_BLOCK_MASTER, /* if elements are narrower than accumulated values */
    PP_N_BLOCKS
};

struct pp_parameter {
    struct pp_tensor_info info;   /* Hugging Face name and shape */
    struct pp_tensor_piece piece; /* what this rank holds of it */
    size_t n;                     /* elements of the piece */
    size_t order;                 /* index in the model: units in order, then as
                                     pp_table_order. Norms are summed in this order */
    size_t unit, slot;            /* index of the unit in the model; the slot */
    int stage, copy;              /* copy of the weights that the stage has */
    bool expert;    /* other ranks hold it than the dense tensors: expert-
                       parallel ranks divide tensors like it, or it is whole */
    bool encoder;   /* other ranks hold it than the language model's */
    bool replica;   /* a rank before this one, of its row, has it too */
    bool tied_copy; /* the head of a tied model, or a copy of the embedding:
                       its name in files is model.embed_tokens.weight,
                       which is saved once */
    struct pp_range own;     /* elements of the piece whose optimizer state this
                                rank has: all, unless ranks divide it (ZeRO-1) */
    struct pp_range held;    /* elements of w: all, or own if ranks divide the
                                weights (ZeRO-3) */
    struct pp_stored stored; /* of a mapped tensor, in its file */
    size_t whole; /* first element of the piece among the whole weights of its
                     stage */
    /* (held.n) of w, (n) of g, (own.n) of the others; all but w may be NULL,
     * and are if the tensor is not in that block. With REDUCE_GRAD, ranks that
     * divide the state have the sum in g of their own elements alone. */
    void *w, *g, *m, *v, *master;
    /* (n) Without a gradient, in its place: the tokens of each expert in the
     * step (info.by_load); else NULL. Sums of the gradients of whole stages
     * include it. */
    void *load;
};

/* How ranks hold tensors that they divide alike. */
struct pp_shares {
    size_t tp, tp_rank; /* tensor-parallel ranks, and the number of this one;
                           tp 0 is 1 */
    size_t owners;      /* ranks that divide the optimizer's state; 0 is 1 */
    size_t owner; /* number among the ranks with the same dense weights, of
                     which the first alone writes them; mod ep among the ranks
                     that divide experts */
};

/* The parameters of a rank. In w and g, these are contiguous in each layer: q,
 * k and v; their biases; gate and up; their biases. */
struct pp_parameters {
    struct pp_parameter *at; /* ascending by copy, unit and slot */
    size_t n;
    size_t element_bytes, accumulator_bytes;
    size_t n_elements; /* all tensors, and the gaps between units */
    size_t n_held;     /* elements of W: the same, unless ranks divide it */
    size_t n_trained;  /* elements of G: of all tensors that may change */
    size_t n_owned;    /* elements of each of the other blocks */
    bool *stale;       /* (n) of each tensor: gradients.h */
    void *blocks[PP_N_BLOCKS]; /* initially 0; NULL if not asked for */
    bool wanted[PP_N_BLOCKS];  /* asked for: the same on every rank, also on one
                                  without tensors */
    struct pp_device *device;  /* NULL: the CPU */
    struct pp_shares shares;   /* of the language model */
    struct pp_shares encoder;  /* of an encoder; the same, unless it has its own
                                  division of these ranks */
    bool encoder_apart;        /* it has */
    bool whole_encoders;       /* every rank has all of an encoder's tensors */
    struct pp_shares experts;  /* of whole experts */
    bool experts_whole;        /* tensor-parallel ranks divide no expert */
    size_t ep;                 /* expert-parallel ranks */
    bool divided;              /* the owners divide the weights too */
    bool adapts;               /* the model has adapters (lora.h) */
};

/* Returns how ranks hold a tensor. */
static inline const struct pp_shares *
pp_parameter_shares(const struct pp_parameters *p, const struct pp_parameter *t)
{
    return t->encoder                      ? &p->encoder
           : t->expert && p->experts_whole ? &p->experts
                                           : &p->shares;
}

enum pp_parameter_blocks { PP_WITH_GRADS = 1, PP_WITH_MOMENTS = 2 };

/* Consecutive units on one stage. */
struct pp_unit_range {
    int stage;
    size_t first, n;
    int copy; /* the copy of the weights that it uses: its own, or an earlier
                 one of which the rank has the same units (pp_home) */
};

/* The memory of a rank's tensors, and the ranks that divide them. Accumulated
 * values may have a wider type than elements; then gradients come with master
 * weights. */
struct pp_parameter_memory {
    struct pp_device *device; /* NULL: the CPU */
    size_t element_bytes, accumulator_bytes;
    struct pp_shares shares;
    struct pp_shares encoder; /* of an encoder with its own division of the
                                 ranks; tp 0: it has none */
    bool whole_encoders;      /* ranks divide no tensor of an encoder */
    struct pp_shares experts; /* of whole experts: all ranks of a row have a
                                 number; tp 0: experts are divided */
    bool divided;             /* the owners divide the weights too */
    size_t ep;                /* expert-parallel ranks; 0 is 1 */
};

/* Allocates the tensors of the given ranges, in the memory of a device, which
 * outlives p. The copies must ascend, and the ranges within each copy. All
 * ranks of a group that divides tensors have blocks of one size. flags: enum
 * pp_parameter_blocks. */
int pp_parameters_init(struct pp_parameters *p, const struct pp_model *m,
                       const struct pp_unit_range *ranges, size_t n_ranges,
                       const struct pp_parameter_memory *where, int flags,
                       struct pp_err *err) PP_MUST_USE;

/* Returns the bytes of an element of the block. */
static inline size_t pp_parameters_bytes(const struct pp_parameters *p,
                                         enum pp_weights_block block)
{
    return block == PP_BLOCK_W ? p->element_bytes : p->accumulator_bytes;
}

/* Reports whether a rank has its own elements of the block alone if ranks
 * divide the optimizer's state: of moments and master weights, and of divided
 * weights. */
static inline bool pp_block_is_owned(const struct pp_parameters *p,
                                     enum pp_weights_block block)
{
    return block == PP_BLOCK_W ? p->divided : block != PP_BLOCK_G;
}

/* Returns the elements of a piece that the rank has in that block. */
static inline struct pp_range pp_parameter_range(const struct pp_parameter *t,
                                                 enum pp_weights_block block)
{
    return block == PP_BLOCK_W   ? t->held
           : block == PP_BLOCK_G ? (struct pp_range){0, t->n}
                                 : t->own;
}

/* Returns the tensor of that copy, unit and slot, or NULL. */
struct pp_parameter *pp_parameters_find(const struct pp_parameters *p, int copy,
                                        size_t unit, size_t slot);

/* Report whether a tensor is in that block. A mapped one is in none. A bias
 * that follows loads has master weights, but no gradient. */
static inline bool pp_tensor_in(const struct pp_tensor_info *t,
                                enum pp_weights_block block)
{
    return (block == PP_BLOCK_W && !t->mapped) || !t->frozen ||
           (block == PP_BLOCK_MASTER && t->by_load);
}

static inline bool pp_parameter_in(const struct pp_parameter *t,
                                   enum pp_weights_block block)
{
    return pp_tensor_in(&t->info, block);
}

/* Returns the number of elements of a block. */
static inline size_t pp_parameters_elements(const struct pp_parameters *p,
                                            enum pp_weights_block block)
{
    return block == PP_BLOCK_W   ? p->n_held
           : block == PP_BLOCK_G ? p->n_trained
                                 : p->n_owned;
}

/* Changes what depends on the rank in a tensor: piece, n, replica, own and
 * held. Another rank of the row has the tensor like that, but its addresses are
 * not set. table is that of the tensor's unit, of n_rows rows; s are the shares
 * of that rank. Returns false if it does not hold the tensor. */
bool pp_parameter_at(const struct pp_parameters *p,
                     const struct pp_tensor_info *table, size_t n_rows,
                     const struct pp_shares *s, struct pp_parameter *t);

/* Returns the shares of a tensor on member k of n ranks: all ranks of a row, or
 * the ranks that divide tensors. */
struct pp_shares pp_parameter_shares_of(const struct pp_parameters *p,
                                        const struct pp_parameter *t, size_t k,
                                        size_t n);

/* Reports whether the piece counts in a norm or a file, where each element
 * counts once: replicas, second copies and the head of a tied model do not. */
bool pp_parameter_counts(const struct pp_parameter *t);

/* Returns the elements of the piece that this rank writes to files of the
 * block: each element counts once, and owners write what they own. Of a model
 * with adapters these alone are written. */
struct pp_range pp_parameter_written(const struct pp_parameters *p,
                                     const struct pp_parameter *t,
                                     enum pp_weights_block block);

/* Returns the gradients of all tensors of a stage, which have the same layout
 * in every copy of the stage. *n is the number of elements, with the zeros
 * between units. Returns NULL, with *n = 0, if there are none. */
void *pp_parameters_stage_grads(const struct pp_parameters *p, int stage,
                                size_t *n);

/* Frees; accepts a zeroed struct. */
void pp_parameters_finish(struct pp_parameters *p);

#endif
