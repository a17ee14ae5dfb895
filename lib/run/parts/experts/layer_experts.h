/* SPDX-License-Identifier: MIT */
/* layer_experts - what the files of a layer of experts share: the tokens that a
 * router sees, its losses, given and recorded choices, capacities, rows on
 * their way to other ranks, and the shared expert. */
#ifndef PP_RUN_PARTS_EXPERTS_LAYER_EXPERTS_H
#define PP_RUN_PARTS_EXPERTS_LAYER_EXPERTS_H

#include "run/parts/layer_impl.h"

/* Reports whether tensor-parallel ranks hold whole experts. */
static inline bool pp_layer_is_whole(const struct pp_call *c)
{
    return pp_mesh_has_whole_experts(&c->env->shard.mesh);
}

/* --- the tokens that the router of this rank sees (routed.c) --- */

/* Return the tokens of the microbatch among its rows; the tokens of sequence i
 * among them, without padding; and the number of all that are not padding. */
struct pp_token_range pp_layer_routed(const struct pp_call *c);
struct pp_token_range pp_layer_routed_of(const struct pp_call *c, size_t i);
size_t pp_layer_routed_tokens(const struct pp_call *c);

/* Returns the tokens that their arrays have room for, each of which begins on a
 * cache line on a GPU. */
size_t pp_layer_routed_room(const struct pp_call *c, size_t tokens,
                            size_t room);

/* Returns the routing of a microbatch, or a slice, that is saved at `at`. */
struct pp_routing pp_routing_at(const struct pp_call *c, size_t tokens,
                                size_t room, void *at);

/* --- what F tells the host of a GPU (layer_experts.c) --- */

/* Parts of pp_experts_told integers, in memory of the device or of the host. */
struct pp_told {
    double *sums;    /* (2) of the losses of the router */
    void *loads;     /* (E) accumulated type: the tokens that chose each expert,
                        of all ranks that divide the microbatch */
    int32_t *counts; /* (ranks, E) rows of each rank for each expert */
};

static inline struct pp_told pp_told_at(const struct pp_call *c, void *at)
{
    double *sums = at;
    void *loads = sums + 2;
    return (struct pp_told){sums, loads,
                            pp_statistic_at(c, loads, c->m->moe.n_experts)};
}

/* --- auxiliary losses of the router (router.c) --- */

/* The losses read these. tokens: the tokens that the router sees. */
struct pp_router_rows {
    const void *probs; /* (tokens, E) */
    struct pp_routing routing;
    void *logits; /* (tokens, E) of fwd; overwritten, and as much behind them
                     as the workspace has for more tokens */
    struct pp_told told; /* on a GPU: fwd writes sums and loads */
};

/* Without losses in the microbatch they do nothing. fwd adds to l->load and to
 * the sums of the losses; a GPU's are added when they have been told. bwd adds
 * the gradient to dlogits (tokens, E); norm has the inputs of the router, rows
 * of this rank, and c->gathered is overwritten if it sees more. */
void pp_layer_router_fwd(const struct pp_call *c,
                         const struct pp_router_rows *r);
void pp_layer_router_told(const struct pp_call *c, const struct pp_told *told);
void pp_layer_router_bwd(const struct pp_call *c,
                         const struct pp_router_rows *r, void *dlogits,
                         const void *norm);

/* --- given experts (replay.c) --- */

/* replays reports whether the router chooses none; replay writes the experts to
 * row, as route takes them; record takes what the tokens got, if that is
 * wanted. */
bool pp_layer_replays(const struct pp_call *c);
void pp_layer_replay(const struct pp_call *c, int32_t *row);
void pp_layer_record(const struct pp_call *c, const struct pp_routing *r);

/* --- capacities (capacity.c) --- */

/* Finds the rows that experts drop. r and weight are what the router chose
 * without a capacity; r->row becomes what route takes as given. Collective over
 * the ranks that divide the tokens, which need room for the choices of all
 * (pp_experts_room), and for E counts. */
void pp_layer_capacity(const struct pp_call *c, struct pp_routing *r,
                       const void *weight, int32_t *counts, void *room);

/* Returns the rows of R before the first one that is dropped. They are in host
 * memory. */
size_t pp_routing_kept(const struct pp_routing *r, size_t R);

/* --- rows of experts on ranks that divide them (dispatch.c) --- */

struct pp_dispatch {
    int32_t *counts;         /* (2, ranks, E) rows of each rank for each expert:
                                of all rounds, and of one of several */
    int32_t *all;            /* the first in host memory */
    const int32_t *of_round; /* the counts of this round, likewise */
    struct pp_routing routing;        /* of the rows of this rank */
    size_t rows;                      /* of these, with dropped ones */
    size_t sent;                      /* of these, in all rounds */
    size_t round, n_rounds, received; /* the last: in this round */
    size_t tokens;                    /* that the ranks have room for */
    size_t room;      /* most rows that may come in a round, at every rank */
    int32_t *arrival; /* (received) of the rows by expert: when each came */
    int32_t *expert;  /* (received) number among this rank's experts; ascends */
    /* The parts of this rank's rows for each member in this round, and of what
     * it receives from each. */
    size_t out_begin[PP_MOST_EXPERT_RANKS], out_end[PP_MOST_EXPERT_RANKS];
    size_t in_begin[PP_MOST_EXPERT_RANKS], in_end[PP_MOST_EXPERT_RANKS];
};

/* Reports whether all ranks send every expert the same number of rows. */
bool pp_dispatch_is_padded(const struct pp_call *c,
                           const struct pp_dispatch *d);

/* Counts the rows to send to each expert, to d->counts, and tells the ranks
 * unless all know by padding: then this is collective. */
void pp_dispatch_count(const struct pp_call *c, struct pp_dispatch *d);

/* Begins the first round: fills d->sent (all rows, if a GPU with padding has
 * not told which are kept), the number of rounds, which is the same on every
 * rank, and what is of this round. d->all is where a GPU's host has the counts,
 * which d->counts has too. On the CPU open counts, and fills d->all. next does
 * so for the next round, or returns false. */
void pp_dispatch_open(const struct pp_call *c, struct pp_dispatch *d);
bool pp_dispatch_next(const struct pp_call *c, struct pp_dispatch *d);

/* Returns the rows of the round at the experts of this rank. */
void pp_dispatch_rows(const struct pp_call *c, const struct pp_dispatch *d,
                      struct pp_expert_rows *rows);

/* Some columns of the rows of this rank, in their order, of the rows that come
 * to it in a round, by expert, and as much room. With one round and no padding
 * own may be at. */
struct pp_moved {
    void *own, *at, *room;
    size_t width, value_bytes;
};

/* Collective. send takes own rows of the round to where their experts are,
 * return takes as many back. begin posts the messages, wait has the rows:
 * nothing else may use r between them, but any other work may run. One rank
 * alone moves nothing, and needs no open. Early messages go when the work is
 * done that was queued when F told the host. */
void pp_dispatch_send_begin(const struct pp_call *c,
                            const struct pp_dispatch *d,
                            const struct pp_moved *r, bool early);
void pp_dispatch_send_wait(const struct pp_call *c, const struct pp_dispatch *d,
                           const struct pp_moved *r);
void pp_dispatch_return_begin(const struct pp_call *c,
                              const struct pp_dispatch *d,
                              const struct pp_moved *r);
void pp_dispatch_return_wait(const struct pp_call *c,
                             const struct pp_dispatch *d,
                             const struct pp_moved *r);

/* --- the shared expert (shared.c) --- */

/* An MLP of every token, which a layer of experts may add to the sum of the
 * experts that the router chose. S is 0, and the functions do nothing, if there
 * is none. */
struct pp_shared_expert {
    size_t S;      /* its width on this rank */
    void *act;     /* (T, S), room */
    void *weights; /* (T), room; accumulated type */
};

/* Writes the weight of each token, if the layer has such a gate. */
void pp_shared_gate_fwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, const void *x);
/* The product of gate and up, and the activation. */
void pp_shared_up_fwd(const struct pp_call *c, const struct pp_shared_expert *e,
                      const void *x);
void pp_shared_activate(const struct pp_call *c,
                        const struct pp_shared_expert *e);
/* Writes the output, with its weight, to y (T, C). */
void pp_shared_down_fwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, void *y);
/* Writes the gradients of gate and up and of the weight, from dy (T, C); */
void pp_shared_down_bwd(const struct pp_call *c,
                        const struct pp_shared_expert *e, const void *dy);
/* then that of the input by gate and up. */
void pp_shared_up_bwd(const struct pp_call *c, const struct pp_shared_expert *e,
                      void *dx);
/* Add to the gradients of the matrices: that of down, and the others. */
void pp_shared_down_bwd_weight(const struct pp_call *c,
                               const struct pp_shared_expert *e,
                               const void *dy);
void pp_shared_up_bwd_weight(const struct pp_call *c,
                             const struct pp_shared_expert *e, const void *x);

#endif
