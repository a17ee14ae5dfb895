/* SPDX-License-Identifier: MIT */
/* cost - the cost of a unit's F, I, W and B per token, in floating-point
 * operations; recomputation; and the default microbatch.
 *
 * ppsplit balances stages by these costs. Forward is pp_unit_fwd_flops at a
 * sequence length. The input gradient and the weight gradient of a product each
 * cost as much as its forward. Attention's input gradient costs 2.5 times its
 * forward, since it recomputes the scores. The head may recompute its logits:
 * see enum pp_logits. Embedding and norm have no products: each element
 * they move counts PP_ELEMENT_FLOPS, so that they cost little but not
 * nothing. */
#ifndef PP_MODEL_COST_H
#define PP_MODEL_COST_H

#include <stdint.h>

#include "model/profile.h"
#include "model/shard.h"

#define PP_ELEMENT_FLOPS 16

/* backward is I and W in one action, B. */
struct pp_cost {
    double forward, input_grad, weight_grad, backward;
};

/* Who makes the logits of a head. The products of other units are kept. */
enum pp_logits {
    PP_LOGITS_KEPT,  /* F, for all */
    PP_LOGITS_AGAIN, /* I and W each make them again, or B does once. Measured
                        times of I and W have this. */
    PP_LOGITS_ONCE,  /* F, and all gradients from them: the backward follows at
                        once (schedule/ir/at_once.h) */
    PP_LOGITS_LEAST, /* F, I and W each their own product: no order takes less
                        than this */
};

/* Returns the costs for the operations of a forward: products, and attention's
 * pairs. */
static inline struct pp_cost pp_cost_of(double products, double pairs,
                                        enum pp_logits logits)
{
    double again = logits == PP_LOGITS_AGAIN ? products : 0;
    double attention = 2.5 * pairs;
    return (struct pp_cost){products + pairs, products + again + attention,
                            products + again, 2 * products + again + attention};
}

/* Takes what W lacks, because weights are frozen, from the costs. */
static inline struct pp_cost pp_cost_lacking(struct pp_cost c, double frozen)
{
    c.weight_grad -= frozen;
    c.backward -= frozen;
    return c;
}

static inline double pp_cost_less(double cost, double by)
{
    return cost > by ? cost - by : 0;
}

/* Returns the costs for measured times of F, I and W. To make logits again
 * takes about the time of F, and at most that of I or W. */
static inline struct pp_cost pp_cost_measured(double forward, double input_grad,
                                              double weight_grad,
                                              enum pp_logits logits)
{
    double again = logits == PP_LOGITS_KEPT ? 0 : forward;
    if (logits == PP_LOGITS_ONCE || logits == PP_LOGITS_LEAST) {
        input_grad = pp_cost_less(input_grad, again);
        weight_grad = pp_cost_less(weight_grad, again);
        again = 0;
    }
    if (again > input_grad)
        again = input_grad;
    if (again > weight_grad)
        again = weight_grad;
    return (struct pp_cost){forward, input_grad, weight_grad,
                            input_grad + weight_grad - again};
}

/* Returns the costs of a unit in this role: it lacks what it does not compute.
 */
static inline struct pp_cost pp_cost_in_role(struct pp_cost c, enum pp_role r)
{
    if (r == PP_ROLE_FORWARD)
        return (struct pp_cost){c.forward, 0, 0, 0};
    if (r == PP_ROLE_PASSED)
        return (struct pp_cost){c.forward, c.input_grad, 0, c.input_grad};
    return c;
}

/* Moves the gradients to the forward if it makes them. c lacks what its role
 * does not compute. */
static inline struct pp_cost pp_cost_at_once(struct pp_cost c,
                                             enum pp_logits logits)
{
    return logits == PP_LOGITS_ONCE
               ? (struct pp_cost){c.forward + c.backward, 0, 0, 0}
               : c;
}

static inline struct pp_cost pp_cost_sum(struct pp_cost a, struct pp_cost b)
{
    return (struct pp_cost){a.forward + b.forward, a.input_grad + b.input_grad,
                            a.weight_grad + b.weight_grad,
                            a.backward + b.backward};
}

/* Adds operations that I recomputes. */
static inline struct pp_cost pp_cost_recompute(struct pp_cost c,
                                               double products, double pairs)
{
    c.input_grad += products + pairs;
    c.backward += products + pairs;
    return c;
}

/* Returns a unit's costs per token. A token attends (seq_len + 1) / 2 pairs on
 * average, or fewer in a window. */
struct pp_cost pp_unit_cost(const struct pp_shard *s, struct pp_unit_id u,
                            enum pp_recompute r, double seq_len);

/* The costs of a model's units on one rank. All borrowed. */
struct pp_cost_source {
    const struct pp_shard *shard;
    const struct pp_unit_seconds *measured; /* per unit, of one rank; NULL:
                                               count operations */
    double seq_len;
    enum pp_logits logits;
};

/* Returns the cost of unit i for these tokens and attended pairs: seconds if
 * units were measured, otherwise operations of matrix products. Embedding and
 * norm then cost nothing. */
struct pp_cost pp_unit_cost_for(const struct pp_cost_source *x, size_t i,
                                enum pp_recompute r, double tokens,
                                double pairs);

/* Returns the cost of unit i for one token, by which ranks are balanced.
 * Without measurements it is pp_unit_cost, in which every unit costs something.
 * halves: I and W run as two actions, not as B. */
double pp_unit_token_cost(const struct pp_cost_source *x, size_t i,
                          enum pp_recompute r, bool halves);

/* Returns the cost of F and B. */
static inline double pp_cost_total(struct pp_cost c)
{
    return c.forward + c.backward;
}

/* Returns the largest number of microbatches that a stage has in flight, of
 * n_microbatches. The schedule is 1F1B for one chunk on each rank, interleaved
 * 1F1B in groups of n_ranks for several, and 1F1B over all stages for a V. */
int pp_live_microbatches(int n_ranks, int n_chunks, bool v, int stage,
                         int n_microbatches);

/* Recomputation: I recomputes, once, what F did not keep; W recomputes nothing.
 * Selective and full are as in V. Korthikanti et al., "Reducing Activation
 * Recomputation in Large Transformer Models", MLSys 2023, but attention keeps
 * no scores in any set. The other names are of parts, as Megatron-LM's
 * --recompute-modules. No set recomputes the last product of a block that no
 * norm follows: no gradient reads its output. */

/* The names of sets, and these sets. Names begin with "none", "selective" and
 * "full", and end with NULL. */
enum { PP_N_RECOMPUTE_NAMES = 12 };
extern const char *const pp_recompute_names[PP_N_RECOMPUTE_NAMES + 1];
extern const enum pp_recompute pp_recompute_sets[PP_N_RECOMPUTE_NAMES];

/* Reads names of sets with '+' between them. Returns false if that is no such
 * text. */
bool pp_recompute_find(const char *text, enum pp_recompute *out);

/* Writes a set as pp_recompute_find reads it; returns text. */
enum { PP_RECOMPUTE_TEXT = 96 };
const char *pp_recompute_text(enum pp_recompute r,
                              char text[PP_RECOMPUTE_TEXT]);

/* The sets among which a search chooses, none first: each level has the parts
 * of the one before. */
enum { PP_N_RECOMPUTES = 4 };
extern const enum pp_recompute pp_recompute_levels[PP_N_RECOMPUTES];

/* Returns the operations of one of the three products of an expert in a layer,
 * for the rows that go to experts in further rounds. I has the first two
 * products of these rows once more, and W the first two and the input gradient
 * of the last. */
enum { PP_FURTHER_INPUT = 2, PP_FURTHER_WEIGHT = 3 };
double pp_unit_further_flops(const struct pp_shard *s, struct pp_unit_id u);

/* Returns the operations that I recomputes, counted as by pp_unit_fwd_flops.
 * They are 0 for all but decoder layers. */
struct pp_flops pp_unit_recompute_flops(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        enum pp_recompute r);

/* The microbatch that a plan assumes before there is data: sequences of one
 * length, as many as make up its tokens. */
struct pp_default_microbatch {
    int64_t tokens, seq_len; /* at least 1 each */
    /* For each encoder: images or clips of a sequence, and the rows of one; 0
     * without that encoder. */
    struct pp_item_counts {
        int64_t n, rows;
    } items[PP_MAX_ENCODERS];
};

/* Returns a microbatch of one sequence. */
struct pp_default_microbatch pp_default_microbatch_of(int64_t seq_len);

/* Returns the tokens of a range, and the pairs that they attend to. The pairs
 * are scaled: a token of the microbatch has (seq_len + 1) / 2 on average, even
 * if its last sequence is shorter. */
struct pp_default_microbatch_part {
    double tokens, pairs;
};
struct pp_default_microbatch_part
pp_default_microbatch_part(const struct pp_default_microbatch *mb, int64_t from,
                           int64_t to);

#endif
