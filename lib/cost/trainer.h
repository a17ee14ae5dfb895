/* SPDX-License-Identifier: MIT */
/* trainer - the systems that may run a plan: what a rank of each keeps in
 * memory, which exchanges it hides, and what it takes of a plan. Pure.
 *
 * pprun's bytes are the bytes that it allocates (model/unit_bytes.h). The bytes
 * of the other trainers follow from the tensors that their layers save for the
 * backward, the tensors that the backward makes, and the state of AdamW in
 * mixed precision; pp-costs(7) lists them. They leave out what no tensor holds:
 * the context of CUDA, the buffers of communicators, unused blocks of the
 * allocator, which a machine's reserve is for. */
#ifndef PP_COST_TRAINER_H
#define PP_COST_TRAINER_H

#include "model/cost.h"
#include "model/precision.h"
#include "model/unit_bytes.h"

/* How a trainer reduces gradients on GPUs: it computes nothing meanwhile; or it
 * goes on, and a reduction begins behind the last backward of its stage, but
 * the first stage's begins inside, as buckets fill (Megatron-LM's overlap of
 * the reduction); or the reduction of each stage begins inside, with each
 * layer. */
enum pp_trainer_buckets {
    PP_BUCKETS_NONE,
    PP_BUCKETS_FIRST,
    PP_BUCKETS_LAYERS
};

/* How a rank gets the weights that others have updated: as the update of the
 * profile says; after the update; or beside the next forward. */
enum pp_trainer_gathers {
    PP_GATHERS_MEASURED,
    PP_GATHERS_AFTER,
    PP_GATHERS_BESIDE
};

/* The exchanges of a layer, each of rows of hidden that tensor-parallel ranks
 * gather or add up, for a product whose inputs they divide and the one before
 * it. */
struct pp_trainer_exchanges {
    int input, weight; /* of I and W; F has two */
    int once;          /* of both, which B makes once */
    int expert_weight; /* W exchanges rows of experts again */
    int a2a_input;     /* I exchanges heads so many times as F */
};

/* Passes over memory: of the loss over the head's logits, in F and in I;
 * in the update, beside AdamW's own, over gradients of the parameters that a
 * rank updates, over all gradients that it holds, and over these again if ranks
 * add them up. */
struct pp_trainer_passes {
    int loss_forward, loss_input;
    int updated, held, reduced;
    bool remade; /* weights are made of master weights after the update */
};

struct pp_trainer {
    const char *name;
    /* The plans that it takes. Kinds are by name, NULL at the end; NULL: all.
     * Sets have bits. */
    const char *const *kinds;
    bool any_order;        /* of one copy of the weights, without slices */
    unsigned zero;         /* of 0, 1 and 3 */
    unsigned cp_exchanges; /* of enum pp_cp_exchange; 0: no cp */
    unsigned orders;       /* of axes (mesh.h); 0: all */
    bool experts;          /* expert-parallel ranks */
    bool modes;            /* stages may recompute each in its own mode */
    bool selective;        /* it recomputes selectively, too ... */
    unsigned parts;        /* ... and any set of these parts */
    enum pp_cp_exchange usual_exchange;
    bool layout;       /* stages are whole layers, as Megatron-LM's layouts */
    bool gpu;          /* on GPUs in bf16 alone */
    bool narrow_state; /* gradients and moments may be in bf16 */
    /* How it runs. */
    struct pp_trainer_exchanges exchanges;
    struct pp_trainer_passes passes;
    enum pp_trainer_buckets buckets;
    enum pp_trainer_gathers gathers;
    bool keeps_messages; /* messages have buffers of their own */
    /* As pp_unit_rates and pp_state_bytes for pprun; and what a rank holds for
     * units first to end - 1 whatever it computes. */
    struct pp_unit_rates (*rates)(const struct pp_shard *s, struct pp_unit_id u,
                                  enum pp_recompute r,
                                  const struct pp_backend *b);
    struct pp_state_bytes (*state)(const struct pp_mesh *x,
                                   const struct pp_model *m,
                                   struct pp_unit_id u,
                                   const struct pp_precision *p);
    double (*fixed)(const struct pp_mesh *x, const struct pp_model *m,
                    size_t first, size_t end);
};

/* pprun is the first one; the last one has no name. */
extern const struct pp_trainer pp_trainers[];
enum { PP_MAX_TRAINERS = 8 };

/* Return the bytes that the update moves of a parameter that a rank updates,
 * and of one that it holds. */
double pp_trainer_update_bytes(const struct pp_trainer *t,
                               const struct pp_precision *p);
double pp_trainer_held_bytes(const struct pp_trainer *t,
                             const struct pp_precision *p, bool reduces);

/* Returns the collectives that run beside the computation, as in pp_costs. */
unsigned pp_trainer_beside(const struct pp_trainer *t, bool gpu);

/* Fills names with the names of the table, and NULL at the end. */
void pp_trainer_names(const char *names[PP_MAX_TRAINERS]);

/* Returns the trainer of that name, or NULL. A NULL name is pprun's. */
const struct pp_trainer *pp_trainer_find(const char *name);

/* Reports whether it has a set of recomputation. */
bool pp_trainer_recomputes(const struct pp_trainer *t, enum pp_recompute r);

/* An order of work for a trainer. */
struct pp_trainer_order {
    const char *kind; /* of the schedule, or "auto"; NULL: the usual one */
    int slices;       /* of that kind; below 2: none */
    bool copies;      /* it has two copies of the weights */
    bool v;           /* stages lie in a V */
};

/* Checks that the trainer takes an order. An error carries the setting schedule
 * or placement. */
int pp_trainer_check_order(const struct pp_trainer *t,
                           const struct pp_trainer_order *o,
                           struct pp_err *err) PP_MUST_USE;

/* Checks a mesh and a type, too: zero, cp, cp-exchange, ep, mesh-order, dtype
 * or device. */
int pp_trainer_check(const struct pp_trainer *t, const struct pp_mesh *x,
                     const struct pp_backend *b,
                     const struct pp_trainer_order *o,
                     struct pp_err *err) PP_MUST_USE;

#endif
