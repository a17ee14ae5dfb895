/* SPDX-License-Identifier: MIT */
/* verify_parts - what verify.c collects and verify_judge.c compares. Private to
 * them. */
#ifndef PP_RUN_VERIFY_PARTS_H
#define PP_RUN_VERIFY_PARTS_H

#include "run/verify.h"

/* A tensor of the reference: gradients of the first step, weights at the start
 * and, once the last step is done, how far they went. */
struct pp_verify_tensor {
    char name[PP_FQN_TEXT];
    size_t n;
    double *g, *w; /* (n) */
    double g_norm, w_norm, moved;
};

/* Norms of another run's differences from it. */
struct pp_verify_seen {
    bool held;
    double g, w; /* of the differences */
    double dot;  /* of gradient and reference's, over the latter's square */
};

/* Of one sequence at one boundary: projections on fixed random signs, which
 * stand for the values themselves, and the norm. */
enum { PP_VERIFY_SIGNS = 4, PP_VERIFY_VALUES = PP_VERIFY_SIGNS + 1 };

static inline double *pp_verify_probe(const struct pp_verify *v,
                                      enum pp_verify_run run, int stage,
                                      size_t sequence)
{
    size_t row = (size_t)run * (size_t)v->graph->n_stages + (size_t)stage;
    return v->probes +
           (row * v->data->n_sequences + sequence) * PP_VERIFY_VALUES;
}

#endif
