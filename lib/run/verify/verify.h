/* SPDX-License-Identifier: MIT */
/* verify - whether a pipeline computes what one rank does: pprun --verify.
 *
 * Three runs of the same steps from the same weights, plain SGD, are compared:
 *
 *   reference  one rank, fp64, one sequence a microbatch, no padding
 *   twin       the same in fp32
 *   mesh       the pipeline as planned, on the CPU or a device
 *
 * An error is the norm of a difference from the reference over the norm of
 * what the reference has: of a tensor's gradient in the first step, of the way
 * its weights went in all steps. The twin shows how much of that is rounding,
 * in fp32 or, by the ratio of the epsilons, in fp64. The mesh may show
 * PP_VERIFY_FACTOR times as much, since it rounds in another order, and no less
 * than a floor of its element type, but never more than PP_VERIFY_CAP: a fault
 * that the twin has too is not rounding.
 *
 * On some models rounding in fp32 grows from step to step until the twin itself
 * goes elsewhere. Where no rate keeps it small, later steps say nothing in fp32
 * and are judged in fp64, by two further runs:
 *
 *   shaken     the reference, its weights off by PP_VERIFY_SHAKE in step 2
 *   wide       the pipeline as planned, in fp64
 *
 * What the shaken run errs, scaled to the epsilon, is what rounding in fp64
 * becomes, also where the twin is far beyond what is in proportion.
 *
 * Runs may evaluate after every step. What that leaves behind shows in the step
 * that follows.
 */
#ifndef PP_RUN_VERIFY_VERIFY_H
#define PP_RUN_VERIFY_VERIFY_H

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
    PP_VERIFY_MESH,
    PP_VERIFY_SHAKEN,
    PP_VERIFY_WIDE,
    PP_VERIFY_N_RUNS
};

/* One error and what it may be. */
struct pp_verify_error {
    double error, bound;
};

/* A tensor on a stage of the mesh. */
struct pp_verify_row {
    const char *name;
    size_t tensor; /* its order in the model */
    int stage, rank;
    struct pp_verify_error gradient, weights;
    double factor; /* the gradient's best multiple of the reference's: 1 */
    double worst;  /* the larger of error / bound */
};

/* What a stage gives to the next one, in the first step. */
struct pp_verify_output {
    struct pp_verify_error e;
    size_t microbatch, sequence; /* the worst, and its number in there */
    bool first_sequences;        /* some that begin a microbatch differ too */
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
    PP_VERIFY_EVAL, /* where the runs evaluate */
    PP_VERIFY_SCALARS
};

struct pp_verify;

/* What a job's ctx points to while one of the runs is under way; its report,
 * inspect and output are the three functions below. */
struct pp_verify_job {
    struct pp_verify *v;
    enum pp_verify_run run;
    const struct pp_packed *data; /* of the run */
    size_t element_bytes;
};

struct pp_verify {
    const struct pp_model *model;       /* borrowed */
    const struct pp_graph *graph;       /* the mesh's, borrowed */
    const enum pp_recompute *recompute; /* the same; NULL: none */
    const struct pp_packed *data;       /* the mesh's, borrowed */
    size_t element_bytes;               /* of the mesh */
    struct pp_verify_tensor *tensors;
    size_t n_tensors;
    struct pp_verify_seen *seen; /* (2 + stages, n_tensors): the twin's, the
                                    shaken one's, then the mesh's */
    enum pp_verify_run later;    /* MESH or WIDE: whose steps after the first
                                    are judged */
    double *probes;              /* (runs, stages, sequences, values) */
    double loss[PP_VERIFY_N_RUNS][PP_VERIFY_STEPS];
    double norm[PP_VERIFY_N_RUNS];
    bool evaluates; /* some run did, after its first step */
    double eval_loss[PP_VERIFY_N_RUNS];

    /* Filled by pp_verify_judge. */
    struct pp_verify_row *rows; /* worst first */
    size_t n_rows;
    struct pp_verify_output *outputs; /* by stage; 0 where there is none */
    struct pp_verify_scalar scalars[PP_VERIFY_SCALARS];
    int n_scalars; /* all but the last where nothing was evaluated */
    bool same;
};

/* data: the mesh's, whose sequences the other runs take one by one under the
 * same numbers. */
int pp_verify_init(struct pp_verify *v, const struct pp_model *m,
                   const struct pp_graph *mesh, const struct pp_packed *data,
                   size_t element_bytes, struct pp_err *err) PP_MUST_USE;
void pp_verify_finish(struct pp_verify *v);

/* The job's callbacks; ctx is a struct pp_verify_job. The reference runs
 * first, and fails where its numbers are not finite. */
int pp_verify_report(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err) PP_MUST_USE;
int pp_verify_inspect(void *ctx, const struct pp_inspection *i,
                      struct pp_err *err) PP_MUST_USE;
void pp_verify_output(void *ctx, int stage, size_t bin,
                      const struct pp_microbatch *mb, const void *y,
                      size_t width);

/* A learning rate that moves the weights by about a five-hundredth of their
 * norm in a step, after one step of the reference with a rate of 0; 0 where no
 * gradient is there. */
double pp_verify_lr(const struct pp_verify *v);

/* After reference and twin: whether the loss fell in every step, rounding was
 * not magnified by the steps beyond what bounds allow, and weights went further
 * than their last bit. Where not, the rate is too large or too small. */
bool pp_verify_is_calm(const struct pp_verify *v);

/* After all runs: rows, outputs, scalars and the verdict. */
int pp_verify_judge(struct pp_verify *v, struct pp_err *err) PP_MUST_USE;

/* Where the differences point to, in one sentence; "" when all is the same.
 * (verify_hint.c) */
#define PP_VERIFY_HINT_TEXT 400
void pp_verify_hint(const struct pp_verify *v, char text[PP_VERIFY_HINT_TEXT]);

#endif
