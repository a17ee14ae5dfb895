/* SPDX-License-Identifier: MIT */
/* generated - the microbatch of a generator behind the language model: the same
 * rows with tokens of their own, or, if its ranks divide them in another way,
 * rows that come over a bridge (bridge_rows.h). As of batch.h, every action
 * makes it again from the mapped index. */
#ifndef PP_RUN_EXECUTE_GENERATED_H
#define PP_RUN_EXECUTE_GENERATED_H

#include "run/execute/batch.h"
#include "run/execute/bridge_rows.h"
#include "run/execute/sent_arrays.h"

struct pp_generated {
    struct pp_batch batch; /* zeroed if the rank has no units of a generator */
    struct pp_device *device;
    void *memory; /* of the arrays below; NULL: there is no bridge */
    size_t *tokens, *next, *bounds;
    int32_t *places; /* (rows) */
    size_t n_places;
    struct pp_sent_arrays sent; /* places for kernels */
    struct pp_joined_bin joined;
    struct pp_host_microbatch view; /* of the last action */
    struct pp_microbatch there;     /* the same for kernels */
};

/* The device outlives g. Without rows of a generator it has no batch, and
 * without a bridge no arrays for it. */
int pp_generated_init(struct pp_generated *g, struct pp_device *d,
                      const struct pp_table_counts *c, size_t vocab,
                      struct pp_err *err) PP_MUST_USE;
void pp_generated_finish(struct pp_generated *g);

/* Fills g->view with the generator's tokens of a bin, or over a bridge with
 * this rank's. env is the generator's. b may be NULL. */
int pp_generated_view(struct pp_generated *g, const struct pp_env *env,
                      const struct pp_bridge *b, const struct pp_packed *p,
                      size_t bin, struct pp_err *err) PP_MUST_USE;

/* Makes g->there, if *mb has it, and the places of rows for kernels: on a GPU
 * copies of their arrays there. */
int pp_generated_send(struct pp_generated *g, struct pp_microbatch *mb,
                      struct pp_err *err) PP_MUST_USE;

/* Returns the places of the rows of this rank in its messages. */
const int32_t *pp_generated_places(struct pp_generated *g,
                                   const struct pp_bridge *b);

#endif
