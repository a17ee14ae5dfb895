/* SPDX-License-Identifier: MIT */
/* rank - one rank of a job: its parameters, its worker, its lists. Private to
 * rank.c, rank_params.c, train.c and evaluate.c. */
#ifndef PP_RUN_TRAIN_RANK_H
#define PP_RUN_TRAIN_RANK_H

#include "run/execute/exec.h"
#include "run/execute/job.h"
#include "run/timing/timed_kernels.h"

struct pp_record;
struct pp_profile;

struct pp_rank {
    const struct pp_job *job;
    struct pp_comm *comm;
    struct pp_kernels kernels; /* the job's, or timed */
    struct pp_timed_stream timed;
    struct pp_parameters params;
    struct pp_worker worker;
    struct pp_exec train, forward; /* forward: evaluation and scoring */
    void *shown; /* outputs on a device pass through it, where somebody looks */
    struct pp_recorder recorder; /* of train, where the job asks for it */
    struct pp_device *device;
    struct pp_device *overlap; /* a second handle, or NULL: see engine.h */
    void *stream;              /* what kernels on device take */
    void *rope_cos, *rope_sin; /* on the device */
    double *squares;           /* (params.n) likewise */
    double *squares_here;
    double *losses;      /* (accumulate x n_microbatches) of one step */
    double *eval_losses; /* (n_eval) one for every microbatch */
    size_t n_eval;       /* microbatches of the passes over the eval data */
    double *mine, *all;  /* what the ranks tell each other after a step */
    size_t n_tensors;    /* of the whole model */
    int *peak_slots;     /* by rank */

    int64_t step;         /* optimizer steps done */
    int64_t microbatches; /* consumed */
};

/* Makes r->params and fills them; sets step and microbatches. Refuses a
 * checkpoint that the job cannot go on from. */
int pp_rank_make_params(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Trains from r->step to the job's last step. */
int pp_rank_train(struct pp_rank *r, enum pp_exit *status,
                  struct pp_err *err) PP_MUST_USE;

/* Mean negative log-likelihood of the eval data, on every rank. */
int pp_rank_evaluate(struct pp_rank *r, double *loss,
                     struct pp_err *err) PP_MUST_USE;

/* Hands the log-probabilities of every sequence of the data to the job. */
int pp_rank_score(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* fit_profile.c: from recorded times to coefficients. */

/* Of one unit, as doubles that ranks can exchange. */
struct pp_unit_fit {
    double seconds[PP_N_LAYER_TIMES][2]; /* per token, per pair */
    double n;     /* ranks (copies) that have measured it */
    double alike; /* 1: pp_least_deviation could not tell pairs from tokens */
};

/* Fits the rank's own units, of the kept steps behind `skip`; others are left
 * zeroed. fits has one entry for each unit of the model. */
int pp_fit_layers(const struct pp_rank *r, int skip, struct pp_unit_fit *fits,
                  struct pp_err *err) PP_MUST_USE;

/* Fills p's times of messages and of a step's other work from the record, of
 * the kept steps behind skip. */
int pp_fit_messages(const struct pp_rank *r, const struct pp_record *record,
                    int skip, struct pp_profile *p,
                    struct pp_err *err) PP_MUST_USE;
int pp_fit_step(const struct pp_rank *r, const struct pp_record *record,
                int skip, struct pp_profile *p, struct pp_err *err) PP_MUST_USE;

#endif
