/* SPDX-License-Identifier: MIT */
/* cost - what a unit's actions cost, per token, in floating-point operations.
 *
 * What stages are balanced by. Forward is pp_unit_fwd_flops at a sequence
 * length. The input and the weight gradient of a product cost its forward each;
 * attention's input gradient 2.5 times its forward; the head recomputes its
 * logits in both, so each costs it twice, or once for both where they run
 * together. Embedding and norm multiply nothing: they count PP_ELEMENT_FLOPS
 * for each element they move, so that they weigh something, and little. */
#ifndef PP_MODEL_COST_H
#define PP_MODEL_COST_H

#include <stdint.h>

#include "model/model.h"

#define PP_ELEMENT_FLOPS 16

/* Of F, I and W; and of I and W in one action, as B has them. */
struct pp_cost {
    double forward, input_grad, weight_grad, backward;
};

/* From the operations of a forward: products, and attention's pairs.
 * recomputes: the unit makes its products again in each half of its backward,
 * or once for both, as the head does. */
static inline struct pp_cost pp_cost_of(double products, double pairs,
                                        bool recomputes)
{
    double again = recomputes ? products : 0, attention = 2.5 * pairs;
    return (struct pp_cost){products + pairs, products + again + attention,
                            products + again, 2 * products + again + attention};
}

/* The same as it was measured, each half of the backward alone. What a unit
 * makes again in each takes about its forward's time, and not more than the
 * shorter half. */
static inline struct pp_cost pp_cost_measured(double forward, double input_grad,
                                              double weight_grad,
                                              bool recomputes)
{
    double again = recomputes ? forward : 0;
    if (again > input_grad)
        again = input_grad;
    if (again > weight_grad)
        again = weight_grad;
    return (struct pp_cost){forward, input_grad, weight_grad,
                            input_grad + weight_grad - again};
}

static inline struct pp_cost pp_cost_sum(struct pp_cost a, struct pp_cost b)
{
    return (struct pp_cost){a.forward + b.forward, a.input_grad + b.input_grad,
                            a.weight_grad + b.weight_grad,
                            a.backward + b.backward};
}

/* The same where I makes some of the forward again (recompute.h). */
static inline struct pp_cost pp_cost_recompute(struct pp_cost c,
                                               double products, double pairs)
{
    c.input_grad += products + pairs;
    c.backward += products + pairs;
    return c;
}

/* Per token of sequences of seq_len tokens, which attend (seq_len + 1) / 2
 * pairs a token, or fewer in a window. */
struct pp_cost pp_unit_cost(const struct pp_model *m, struct pp_unit_id u,
                            enum pp_recompute r, double seq_len);

/* Of F and B. */
static inline double pp_cost_total(struct pp_cost c)
{
    return c.forward + c.backward;
}

/* Microbatches of a step of n_microbatches that a stage keeps between forward
 * and backward at most, under 1F1B (one chunk on each rank), interleaved 1F1B
 * in groups of n_ranks (several), or, when placed in a V, 1F1B over all the
 * stages. */
int pp_live_microbatches(int n_ranks, int n_chunks, bool v, int stage,
                         int n_microbatches);

/* "none", "selective", "full"; NULL ends them. */
extern const char *const pp_recompute_names[];

/* False where there is no such mode. */
bool pp_recompute_find(const char *name, enum pp_recompute *out);

/* Operations that I does again for the unit, as pp_unit_fwd_flops counts
 * them; all 0 for what is not a decoder layer. */
struct pp_flops pp_unit_recompute_flops(const struct pp_model *m,
                                        struct pp_unit_id u,
                                        enum pp_recompute r);

struct pp_default_microbatch {
    int64_t tokens, seq_len;         /* at least 1 each */
    int64_t n_images, image_patches; /* of a sequence, and of each of them; 0
                                        where there is no encoder of images */
};

/* What a microbatch is where nothing else is known: one sequence. */
struct pp_default_microbatch pp_default_microbatch_of(int64_t seq_len);

/* Tokens and attended pairs of slice q of n. Slices are equal to a token. Every
 * token of a whole microbatch has (seq_len + 1) / 2 pairs on average, also
 * where sequences do not divide it. */
struct pp_default_microbatch_part {
    double tokens, pairs;
};
struct pp_default_microbatch_part
pp_default_microbatch_slice(const struct pp_default_microbatch *mb, int64_t q,
                            int64_t n);

#endif
