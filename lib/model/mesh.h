/* SPDX-License-Identifier: MIT */
/* mesh - the sizes of the parallel dimensions, and one rank's share of a unit.
 * Pure.
 *
 * Tensor-parallel ranks divide heads, widths of MLPs and experts, and rows of
 * embedding and head. With sequence parallelism (Korthikanti et al., "Reducing
 * Activation Recomputation in Large Transformer Models", MLSys 2023) they also
 * divide the tokens of everything else. So each has 1 / tp of the operations,
 * activations and messages. Context-parallel ranks divide every sequence. Both
 * divide the images of an encoder, whole ones, and have all its weights, unless
 * it has a mesh of its own (vision.h). On the language model's ranks such a
 * mesh says how many consecutive ranks of a row divide its tensors, whatever
 * the axes of the language model; the others hold the same tensors.
 * Expert-parallel ranks form dp * cp / ep groups; the ep ranks of a group
 * divide the experts and exchange tokens. Groups may also be cut from tp x cp x
 * dp: then no expert is divided (Liu et al., "MoE Parallel Folding", 2025).
 * Ranks that hold the same weights
 * divide the optimizer state (ZeRO-1; Rajbhandari et al., SC 2020), and may
 * divide the weights too (ZeRO-3). */
#ifndef PP_MODEL_MESH_H
#define PP_MODEL_MESH_H

#include <limits.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"

/* The axes on which ranks have an index. Expert parallelism has none of its
 * own: its groups are cut from the others (layout.h). */
enum pp_axis { PP_AXIS_TP, PP_AXIS_CP, PP_AXIS_DP, PP_AXIS_PP, PP_N_AXES };

/* How context-parallel ranks exchange the keys and values of their parts. */
enum pp_cp_exchange {
    PP_CP_GATHER, /* every rank gathers the keys and values of all */
    PP_CP_A2A,    /* all-to-all: every rank gets a share of the heads */
    PP_CP_RING,   /* they go round from rank to rank */
    PP_N_CP_EXCHANGES
};
extern const char *const pp_cp_exchange_names[PP_N_CP_EXCHANGES + 1];

/* The tokens that an expert with a capacity keeps. */
enum pp_expert_drop {
    PP_DROP_POSITION, /* the first ones */
    PP_DROP_PROBS,    /* the choices with the largest weights */
    PP_N_EXPERT_DROPS
};
extern const char *const pp_expert_drop_names[PP_N_EXPERT_DROPS + 1];

struct pp_mesh {
    int pp, dp, tp, cp, ep;
    int order;            /* which axes neighbours in rank differ in: number of
                             the permutation of tp, cp, dp, pp in the order of a
                             dictionary. 0: tp changes fastest, pp slowest */
    bool whole_state;     /* every rank has the whole state of the optimizer,
                             and not a part of it (ZeRO-1) */
    bool divided_weights; /* ranks divide the weights too, and gather the
                             weights of a stage while it is used (ZeRO-3) */
    int resident; /* with divided weights: most stages of a rank that are whole
                     at once; 0: all */
    bool experts_over_tp; /* expert-parallel groups are cut from tp, cp and dp,
                             and no expert is divided */
    enum pp_cp_exchange cp_exchange;
    bool cp_exact; /* scores and losses have the bits of one rank of cp */
    /* The rows of experts that an expert-parallel rank has room for at a time,
     * over an even share; 0: the default. */
    double expert_limit;
    /* The rows of experts of the fullest expert-parallel rank of a layer over
     * the mean, of which costs follow; 0: all ranks have the same. */
    double expert_imbalance;
    double expert_capacity; /* the most tokens that an expert keeps of a
                               microbatch, over an even share; 0: all */
    enum pp_expert_drop expert_drop; /* which ones, if there are more */
    bool expert_padding; /* every rank sends an expert as many rows as the
                            capacity of the largest microbatch */
    int encoder_tp; /* ranks that divide the tensors of an encoder on the ranks
                       of this mesh. It divides tp x cp x dp. 0: the encoder has
                       no mesh of its own there */
};

/* Fills axes with the axes of the mesh, fastest first. */
void pp_mesh_axes(const struct pp_mesh *x, enum pp_axis axes[PP_N_AXES]);

/* The text of an order: "tp-cp-dp-pp". pp_mesh_read_order returns false if text
 * is not one. */
#define PP_MESH_ORDER_TEXT 12
void pp_mesh_write_order(const struct pp_mesh *x,
                         char text[PP_MESH_ORDER_TEXT]);
bool pp_mesh_read_order(struct pp_mesh *x, const char *text);

/* Returns the multiple that sequences must be: a context-parallel rank gets two
 * parts of a sequence, so that all ranks have the same number of pairs, and
 * tensor-parallel ranks divide each part. */
size_t pp_mesh_align(const struct pp_mesh *x);

/* Checks that the model and sequences of seq_len tokens divide by the mesh. The
 * vocabulary need not divide: a rank may have a row fewer. Of fewer key and
 * value heads than ranks, each is on several ranks. An error carries
 * the setting: tp, cp, ep or seq-len. */
int pp_mesh_check(const struct pp_mesh *x, const struct pp_model *m,
                  size_t seq_len, struct pp_err *err) PP_MUST_USE;

/* Checks that an encoder divides by its own mesh, or if it has none by that on
 * the ranks of the language model, x. An error carries the setting
 * encoder-mesh. */
int pp_mesh_check_encoder(const struct pp_mesh *own, const struct pp_mesh *x,
                          const struct pp_model *m, size_t encoder,
                          struct pp_err *err) PP_MUST_USE;

/* Returns the mesh of the ranks that hold a unit on the ranks of x, a mesh of
 * the language model: for an encoder its own, or if it has none a mesh of ranks
 * that do not divide its tensors. */
struct pp_mesh pp_mesh_of(const struct pp_mesh *x, bool is_encoder);

/* Returns the most ranks that hold the same tensor, and the most that divide
 * the optimizer's state of dense tensors, or of experts. */
int pp_mesh_replicas(const struct pp_mesh *x);
size_t pp_mesh_most_owners(const struct pp_mesh *x);

/* Returns the most ranks that add the same gradients, 1 if each keeps its own.
 * rows: the most rows that add some of them. */
size_t pp_mesh_most_sums(const struct pp_mesh *x, int rows);

/* Reports whether context-parallel ranks sum the losses of their tokens in the
 * order of one rank. */
static inline bool pp_mesh_is_exact(const struct pp_mesh *x)
{
    return x->cp > 1 && x->cp_exact;
}

/* The default limit of the rows of experts, and its range. */
#define PP_EXPERT_LIMIT 1.25
#define PP_MOST_EXPERT_LIMIT 1e6

#define PP_LEAST_CAPACITY 1e-3
#define PP_MOST_CAPACITY 1e6

enum { PP_MOST_A2A_RANKS = 1024, PP_MOST_EXPERT_RANKS = 1024 };

/* Return the most rows of experts that may come to a rank for each of its
 * tokens, if no expert has a capacity, and the rows that it has room for at a
 * time: a token has a row at each of its experts. */
size_t pp_mesh_all_expert_rows(const struct pp_mesh *x,
                               const struct pp_model *m);
double pp_mesh_expert_rows(const struct pp_mesh *x, const struct pp_model *m);

/* Returns the largest limit that has an effect, over an even share. */
double pp_mesh_most_expert_limit(const struct pp_mesh *x,
                                 const struct pp_model *m);

/* Elements of a unit's tensors on the rank with most of them. dp * cp ranks
 * hold the same dense tensors, dp * cp / ep ranks the same experts. */
struct pp_elements {
    uint64_t dense, experts;
    /* Elements that a rank owns, if ranks divide states and the tensors are
     * known; else 0. On the rank with most of them. */
    uint64_t owned;
};

/* The weights, and the part of them that has gradients and optimizer states:
 * none in a frozen unit. */
struct pp_held {
    struct pp_elements all, trained;
};

/* Returns what one rank holds of a unit of so many parameters. */
static inline struct pp_held pp_held_whole(uint64_t params, bool trained)
{
    return (struct pp_held){{.dense = params}, {.dense = trained ? params : 0}};
}

struct pp_held pp_mesh_held(const struct pp_mesh *x, const struct pp_model *m,
                            struct pp_unit_id u);

/* Returns the same without owned, which takes long for many ranks: then the
 * state counts as evenly divided. */
struct pp_held pp_mesh_held_evenly(const struct pp_mesh *x,
                                   const struct pp_model *m,
                                   struct pp_unit_id u);

/* Reports whether tensor-parallel ranks hold whole experts. */
static inline bool pp_mesh_has_whole_experts(const struct pp_mesh *x)
{
    return x->experts_over_tp && x->tp > 1;
}

/* Returns the ranks that groups of expert-parallel ranks are cut from. */
static inline size_t pp_mesh_expert_ranks(const struct pp_mesh *x)
{
    return (size_t)x->dp * (size_t)x->cp *
           (size_t)(x->experts_over_tp ? x->tp : 1);
}

/* Returns the ranks whose routers divide the tokens of a microbatch. */
static inline size_t pp_mesh_routers(const struct pp_mesh *x)
{
    return (size_t)x->cp * (size_t)(x->experts_over_tp ? x->tp : 1);
}

/* Returns the stage of ZeRO: 0, 1, or 3. */
static inline int pp_mesh_zero(const struct pp_mesh *x)
{
    return x->divided_weights ? 3 : x->whole_state ? 0 : 1;
}

/* Returns the ranks that divide the optimizer's state of dense weights. */
static inline size_t pp_mesh_owners(const struct pp_mesh *x)
{
    return x->whole_state ? 1 : (size_t)x->dp * (size_t)x->cp;
}

/* Returns how many of its elements a rank owns. */
static inline double pp_mesh_own(const struct pp_mesh *x, struct pp_elements h)
{
    double experts =
        x->whole_state ? 1 : (double)pp_mesh_expert_ranks(x) / x->ep;
    return (double)h.dense / (double)pp_mesh_owners(x) +
           (double)h.experts / experts;
}

/* Reports whether several ranks divide the weights. */
static inline bool pp_mesh_divides_weights(const struct pp_mesh *x)
{
    return x->divided_weights && x->dp * x->cp > 1;
}

/* Returns the most stages of a rank whose weights are whole at once, for a
 * graph: 0 if they always are. */
static inline int pp_mesh_resident(const struct pp_mesh *x)
{
    return !pp_mesh_divides_weights(x) ? 0
           : x->resident               ? x->resident
                                       : INT_MAX;
}

/* Returns the ranks that divide a unit's operations, activations and messages.
 */
static inline int pp_mesh_sharers(const struct pp_mesh *x)
{
    return x->tp * x->cp;
}

/* Returns the rows of a microbatch that slices do not divide: tensor-parallel
 * ranks have as many of a slice each, and so have the two chunks of every
 * context-parallel rank. */
static inline size_t pp_mesh_slice_grain(const struct pp_mesh *x)
{
    return (size_t)x->tp * (x->cp > 1 ? 2 * (size_t)x->cp : 1);
}

#endif
