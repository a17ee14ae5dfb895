/* SPDX-License-Identifier: MIT */
/* parts - the data that verify.c collects and judge.c compares.
 * Private to them. */
#ifndef PP_RUN_VERIFY_PARTS_H
#define PP_RUN_VERIFY_PARTS_H

#include "run/verify/verify.h"

/* A tensor of the reference: the gradients of the first step, the weights at
 * the start and, after the last step, how much they changed. */
struct pp_verify_tensor {
    char name[PP_FQN_TEXT];
    size_t n;
    bool shared;   /* several tensor-parallel ranks of the pipeline hold it */
    double *g, *w; /* (n) */
    double g_norm, w_norm, moved;
};

/* A piece of a tensor of another run, compared with the reference. */
struct pp_verify_seen {
    bool held;
    double g, w; /* norms of the differences */
    double dot;  /* dot product of both gradients */
};

/* The probe of one sequence at one boundary: projections of its values on fixed
 * random signs, the norm of the values, and the number of rows. */
enum {
    PP_VERIFY_SIGNS = 4,
    PP_VERIFY_NORMS = PP_VERIFY_SIGNS,
    PP_VERIFY_ROWS,
    PP_VERIFY_VALUES
};

/* Returns the entry of a run for the piece of a tensor on a tensor-parallel
 * rank. Stage and rank matter only for runs of the pipeline. */
static inline struct pp_verify_seen *pp_verify_at(const struct pp_verify *v,
                                                  enum pp_verify_run run,
                                                  int stage, size_t tp_rank,
                                                  size_t order)
{
    size_t row = run == PP_VERIFY_TWIN ? 0
                 : run == PP_VERIFY_SHAKEN
                     ? 1
                     : 2 + (size_t)stage * v->tp + tp_rank;
    return &v->seen[row * v->n_tensors + order];
}

static inline double *pp_verify_probe(const struct pp_verify *v,
                                      enum pp_verify_run run, int stage,
                                      size_t sequence)
{
    size_t row = (size_t)run * (size_t)v->graph->n_stages + (size_t)stage;
    return v->probes +
           (row * v->data->n_sequences + sequence) * PP_VERIFY_VALUES;
}

/* Keeps the digests of the first step of the pipeline, or of one rank; NULL:
 * there are none. */
int pp_verify_keep_digests(struct pp_verify *v, enum pp_verify_run run,
                           const uint64_t *digests,
                           struct pp_err *err) PP_MUST_USE;

/* Appends the scalars of an exact plan, if this is one. */
void pp_verify_judge_exact(struct pp_verify *v);

#endif
