/* SPDX-License-Identifier: MIT */
/* verify - checks that a pipeline computes the same as one rank.
 *
 * Three runs of the same steps from the same weights, plain SGD, are compared:
 *
 *   reference  one rank, fp64, one sequence a microbatch, no padding; if
 *              experts have a capacity, the microbatches of the plan
 *   twin       the same in fp32
 *   pipeline   the job as planned, on the CPU or a device
 *
 * An error is the norm of the difference from the reference over the norm of
 * the reference. It is computed for the gradient of each tensor in the first
 * step, and for the change of its weights over all steps. The error of the twin
 * is rounding, in fp32; the ratio of the epsilons scales it to fp64. The bound
 * of the pipeline is PP_VERIFY_FACTOR times that error, since it rounds in
 * another order. It is at least a floor of the element type, and at most
 * PP_VERIFY_CAP, so that a fault of the twin does not pass as rounding.
 *
 * In some models the rounding of fp32 grows from step to step until the twin
 * diverges. If no learning rate keeps it small, or if the pipeline differs in
 * later steps only, these are judged in fp64, by two further runs:
 *
 *   shaken     the reference, with a change of PP_VERIFY_SHAKE in its weights
 *              before step 2
 *   wide       the pipeline as planned, in fp64
 *
 * The error of the shaken run, scaled to the epsilon, is the rounding of fp64
 * after the later steps.
 *
 * Runs may evaluate after every step. A fault that the evaluation causes then
 * shows in the next step. */
#ifndef PP_RUN_VERIFY_VERIFY_H
#define PP_RUN_VERIFY_VERIFY_H

#include "run/execute/digest.h"
#include "run/execute/job.h"

#define PP_VERIFY_STEPS 5
#define PP_VERIFY_FACTOR 16
#define PP_VERIFY_CAP 1e-1
#define PP_VERIFY_FLOOR_F32 1e-5
#define PP_VERIFY_FLOOR_F64 1e-10
#define PP_VERIFY_SHAKE 0x1p-40

enum pp_verify_run {
    PP_VERIFY_REFERENCE,
    PP_VERIFY_TWIN,
    PP_VERIFY_PIPELINE,
    PP_VERIFY_SHAKEN,
    PP_VERIFY_WIDE,
    PP_VERIFY_EXACT, /* one rank with the pipeline's bins and kernels */
    PP_VERIFY_N_RUNS
};

/* An error and its bound. */
struct pp_verify_error {
    double error, bound;
};

/* A tensor on a stage of the pipeline. */
struct pp_verify_row {
    const char *name;
    size_t tensor; /* its number in the model */
    int stage, rank;
    struct pp_verify_error gradient, weights;
    double factor; /* the gradient over the reference; 1 if they agree */
    double worst;  /* the larger of error / bound */
    bool shared;   /* several tensor-parallel ranks hold it */
};

/* The output of a stage in the first step. */
struct pp_verify_output {
    struct pp_verify_error e;
    bool compared; /* ranks that divide tokens have no whole sequence */
    size_t microbatch, sequence; /* place of the largest error */
    bool first_sequences; /* first sequences of microbatches differ too */
};

struct pp_verify_scalar {
    const char *name;
    double found, expected;
    struct pp_verify_error e;
};
enum {
    PP_VERIFY_LOSS,
    PP_VERIFY_NORM,
    PP_VERIFY_LAST_LOSS,
    PP_VERIFY_EVAL, /* if the runs evaluate */
    PP_VERIFY_SCALARS
};

/* The loss to the bit, and 1 if a stage has other bits. */
enum { PP_VERIFY_EXACT_ONES = 2 };

struct pp_verify;

/* The ctx of the job of a run. Its report, inspect and output are the functions
 * below. */
struct pp_verify_job {
    struct pp_verify *v;
    enum pp_verify_run run;
    const struct pp_packed *data; /* the run's data */
    size_t element_bytes;
};

struct pp_verify {
    const struct pp_model *model; /* borrowed */
    const struct pp_graph *graph; /* the pipeline's, borrowed */
    const enum pp_recompute
        *recompute;               /* the pipeline's, borrowed; NULL: none */
    const struct pp_packed *data; /* the pipeline's, borrowed */
    size_t element_bytes;         /* the pipeline's */
    bool objective;               /* the loss is not that of the next token */
    bool offloads;                /* activations leave for the host */
    double generator_weight;      /* of a generator's loss in that of a run */
    size_t tp;                    /* most ranks that divide its tensors */
    struct pp_verify_tensor *tensors;
    size_t n_tensors;
    struct pp_verify_seen *seen; /* (2 + stages x tp, n_tensors): twin, shaken,
                                    then the pieces of each stage */
    enum pp_verify_run later;    /* PIPELINE or WIDE: the run to judge after the
                                    first step */
    double *probes;              /* (runs, stages, sequences, values) */
    double loss[PP_VERIFY_N_RUNS][PP_VERIFY_STEPS];
    double norm[PP_VERIFY_N_RUNS];
    /* The plan is exact (pp_mesh), and its gradients of activations too. */
    bool exact, exact_gradients;
    uint64_t *digests[2]; /* (stages, PP_DIGEST_N) of the first step: of one
                             rank, of the pipeline */
    bool evaluates;       /* a run evaluated after its first step */
    double eval_loss[PP_VERIFY_N_RUNS];

    /* Filled by pp_verify_judge. */
    struct pp_verify_row *rows; /* worst first */
    size_t n_rows;
    struct pp_verify_output *outputs; /* by stage; zeroed if there is none */
    struct pp_verify_scalar scalars[PP_VERIFY_SCALARS + PP_VERIFY_EXACT_ONES];
    int n_scalars; /* without PP_VERIFY_EVAL if no run evaluated; then the
                      scalars of an exact plan */
    bool same;
};

/* data: of the pipeline. The other runs take its sequences one by one, under
 * the same numbers. layout: of its ranks. */
int pp_verify_init(struct pp_verify *v, const struct pp_model *m,
                   const struct pp_graph *pipeline,
                   const struct pp_packed *data, size_t element_bytes,
                   const struct pp_layout *layout,
                   struct pp_err *err) PP_MUST_USE;
void pp_verify_finish(struct pp_verify *v);

/* The callbacks of the job; ctx is a struct pp_verify_job. The reference runs
 * first, and fails if its numbers are not finite. */
int pp_verify_report(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err) PP_MUST_USE;
int pp_verify_inspect(void *ctx, const struct pp_inspection *i,
                      struct pp_err *err) PP_MUST_USE;
void pp_verify_output(void *ctx, int stage, size_t bin,
                      const struct pp_microbatch *mb, const void *y,
                      struct pp_edge edge);

/* Returns a learning rate that changes the weights by about 1/500 of their norm
 * in a step. Call it after one step of the reference with a rate of 0. Returns
 * 0 if all gradients are 0. */
double pp_verify_lr(const struct pp_verify *v);

/* Reports, after reference and twin, whether the learning rate suits: the loss
 * fell in every step, the steps did not increase rounding beyond the bounds,
 * and the weights changed by more than their last bit. */
bool pp_verify_is_calm(const struct pp_verify *v);

/* Fills rows, outputs, scalars and the verdict, after all runs. */
int pp_verify_judge(struct pp_verify *v, struct pp_err *err) PP_MUST_USE;

/* Returns whether the first step agrees and a later one does not. */
bool pp_verify_differs_later(const struct pp_verify *v);

/* Returns the first stage of an exact plan whose bits differ from the bits of
 * one rank, and in *of which; -1: none. */
int pp_verify_inexact(const struct pp_verify *v, enum pp_digest_of *of);

/* Writes one sentence about the likely place of the fault; "" if there is no
 * difference. (hint.c) */
#define PP_VERIFY_HINT_TEXT 400
void pp_verify_hint(const struct pp_verify *v, char text[PP_VERIFY_HINT_TEXT]);

#endif
