/* SPDX-License-Identifier: MIT */
/* call - one layer at work on one microbatch: all that the functions of the
 * layer share. A stage makes a call for every layer of every action.
 *
 * Errors stick: once *err is filled, PP_RUN and PP_TRY do nothing. So the
 * functions of layers return nothing and go on to their ends; who made the call
 * looks at *err. Only what reads numbers of the device on the host must look
 * before it uses them (pp_call_failed). */
#ifndef PP_RUN_PARTS_CALL_H
#define PP_RUN_PARTS_CALL_H

#include "run/parts/layer.h"

/* The memory of a call. Each block has pp_unit_saved_bytes() or more for every
 * row. All units of a stage share the workspace block, and in forward-only runs
 * they share all blocks. */
struct pp_layer_blocks {
    void *block[PP_N_UNIT_BLOCKS];   /* grad_w may be NULL in forward, the
                                        workspace if it is empty */
    size_t offset[PP_N_UNIT_BLOCKS]; /* bytes per row before this unit in the
                                        blocks of the stage */
    /* (tokens, hidden) each, in the workspace: rows gathered from, and sums
     * over, the tensor-parallel ranks; empty if there is one. In an encoder
     * gathered alone, (rows, hidden). */
    void *gathered, *summed;
    /* The bytes of the unit's workspace (unit_bytes.h) behind the part that it
     * recomputes: adapters have the first. */
    void *scratch;
};

struct pp_call {
    const struct pp_layer *l;
    const struct pp_microbatch *mb;
    const struct pp_env *env;   /* the layer's */
    const struct pp_model *m;   /* the env's, whole */
    const struct pp_kernels *k; /* likewise */
    void *const *w, *const *g;  /* the layer's parameters and gradients, by
                                   slot; NULL if there is none */
    size_t T;                   /* tokens of the microbatch, padding included */
    size_t R; /* rows of them that this rank has between products: all, or a
                 part if tensor-parallel ranks divide them */
    size_t C; /* hidden */
    void *s[PP_MAX_SAVED]; /* saved tensors, by slot; NULL if their block is */
    size_t offset[PP_N_UNIT_BLOCKS]; /* as in the blocks, like what follows */
    void *gathered, *summed, *scratch;
    void *states; /* the layer's block of PP_SAVED_STATES */
    void *narrow; /* (T, rank), where a product of an adapter is, in front of
                     the scratch */
    bool both;    /* W follows I in the same action: I does the parts of W whose
                     rows it has gathered */
    struct pp_err *err;
};

/* Makes the call of a layer in F (PP_IN_FORWARD), or in I, W or B. It borrows
 * all arguments. */
struct pp_call pp_layer_call(const struct pp_layer *l,
                             const struct pp_microbatch *mb,
                             const struct pp_layer_blocks *b,
                             enum pp_saved_when when, struct pp_err *err);

/* Writes y (rows, hidden) from x. Patches have no x, the head no y. A
 * projector's x are the rows of its encoder; its y are the features of the
 * images of this rank, (encoder.n_features, hidden). The embedding's x is an
 * array by kind of rows (edge.h) with pointers to the features of each encoder,
 * or NULL if the model has none. */
int pp_layer_fwd(const struct pp_call *c, void *y, const void *x) PP_MUST_USE;

/* Writes dx from dy. Keeps in grad_w what bwd_weight needs, and recomputes what
 * fwd did not keep. dx is NULL if there is no x, and for a projector whose
 * encoder does not train; dy is NULL for the head. dx and dy do not alias. The
 * embedding's dx is an array as its x, NULL where no gradient is needed. */
int pp_layer_bwd_input(const struct pp_call *c, void *dx,
                       const void *dy) PP_MUST_USE;

/* Adds to the gradients. It comes after bwd_input of the same microbatch. */
int pp_layer_bwd_weight(const struct pp_call *c) PP_MUST_USE;

/* Does both, with the same bits, but computes shared values only once. Only a
 * layer that joins them has it. */
bool pp_layer_joins(const struct pp_layer *l);
int pp_layer_bwd(const struct pp_call *c, void *dx, const void *dy) PP_MUST_USE;

/* Returns where fwd keeps x, or bwd_input dy; NULL: nowhere. If x or dy is
 * there, the layer before or after has written it there, and nothing is copied.
 */
void *pp_layer_kept(const struct pp_call *c, enum pp_saved_when when);

/* Makes dy the place where the layer keeps it, if it keeps it. Then dy must
 * last from bwd_input to bwd_weight. */
void pp_layer_lend(struct pp_call *c, void *dy);

/* Reports whether an error has stopped the call. */
static inline bool pp_call_failed(const struct pp_call *c)
{
    return c->err->code != PP_EXIT_OK;
}

/* Fails if the code that a kernel returned is not 0. */
void pp_call_check(const struct pp_call *c, int code);

/* Fails, if *err says nothing yet. */
void pp_call_stop(const struct pp_call *c);

/* Runs a kernel of the call's table on its stream, unless the call failed:
 * PP_RUN(c, add, y, a, b, n) */
#define PP_RUN(c, kernel, ...) \
    (pp_call_failed(c)         \
         ? (void)0             \
         : pp_call_check(c, (c)->k->kernel(__VA_ARGS__, (c)->env->stream)))

/* Runs a function that takes (c)->err and returns 0 or -1, unless the call
 * failed. */
#define PP_TRY(c, fallible) \
    (pp_call_failed(c) || !(fallible) ? (void)0 : pp_call_stop(c))

/* Returns p moved by n elements of the type of the layer. */
static inline void *pp_at(const struct pp_call *c, const void *p, size_t n)
{
    return (char *)p + n * c->k->element_bytes;
}

/* Returns p moved by n values of the accumulated type. */
static inline void *pp_statistic_at(const struct pp_call *c, const void *p,
                                    size_t n)
{
    return (char *)p + n * c->k->accumulator_bytes;
}

/* Copies bytes of the host to the layer's memory, or within this memory;
 * zeroes bytes of it. */
void pp_call_put(const struct pp_call *c, void *to, const void *from,
                 size_t bytes);
void pp_call_move(const struct pp_call *c, void *to, const void *from,
                  size_t bytes);
void pp_call_erase(const struct pp_call *c, void *at, size_t bytes);

/* Returns c->g[slot] for kernels that add to it: what the step has added so
 * far, or 0. A gradient is written by no other way than this, pp_call_writes
 * and pp_linear_bwd_weight (gradients.h). */
void *pp_call_gradient(const struct pp_call *c, int slot);

/* Reports whether the caller must write n elements from c->g[slot] on; else it
 * must add to them. */
bool pp_call_writes(const struct pp_call *c, int slot, size_t n);

/* Returns bytes of the layer's memory where the host can read them: at `from`,
 * or in room. Returns NULL if the call failed. */
const void *pp_call_read(const struct pp_call *c, const void *from,
                         size_t bytes, void *room);

/* Copies bytes of a GPU to page-locked memory of the host, behind what is
 * queued so far. told waits for these bytes, whatever has been queued since. */
void pp_call_tell(const struct pp_call *c, void *to, const void *from,
                  size_t bytes);
void pp_call_told(const struct pp_call *c);

#endif
