/* SPDX-License-Identifier: MIT */
/* rank - one rank of a job: its parameters, its worker and its rows. Private to
 * lib/run/train. */
#ifndef PP_RUN_TRAIN_RANK_H
#define PP_RUN_TRAIN_RANK_H

#include "run/execute/exec.h"
#include "run/execute/job.h"
#include "run/timing/timed_kernels.h"

struct pp_record;
struct pp_profile;
struct pp_saving;

/* A number on its way to rank 0. */
struct pp_entry {
    uint64_t index;
    double value;
};

struct pp_rank {
    const struct pp_job *job;
    struct pp_env env;
    struct pp_env beside; /* with a second device handle, for the forward of
                             overlap pairs (engine.h); or zeroed */
    struct pp_env others[2][PP_N_ROWS]; /* of env, and of beside */
    struct pp_kernels kernels;          /* the job's, or timed */
    struct pp_timed_stream timed;
    struct pp_model tower[PP_MAX_ENCODERS]; /* of the encoders */
    struct pp_parameters params;
    struct pp_worker worker;
    struct pp_exec train, forward; /* forward: evaluation and scoring */
    struct pp_rank_memory memory;  /* the plan */
    unsigned char *arena;          /* of both execs */
    struct pp_host_arena host;     /* of train */
    void *output_host; /* host memory for outputs on a device, if wanted */
    struct pp_recorder recorder; /* records train if the job asks for it */
    /* (pp_table_sums) on the device: losses of the microbatches of a step, the
     * loss of another head, sums of squares; and the host's copy. */
    double *losses, *other_loss, *squares;
    double *host_sums;           /* losses itself, if the device is the host */
    struct pp_metadata metadata; /* of train, if the job wants it */
    uint64_t *hashes;            /* (ranks) of it, or NULL */
    /* (1 + ranks, stages, PP_DIGEST_N): this rank's, then all ranks'; or
     * NULL. */
    uint64_t *digests;
    /* If ranks divide the optimizer's state: where the sums of squares of each
     * begin (owners + 1), and a place in each (owners); else NULL. */
    size_t *owned_at;
    struct pp_scoring scoring; /* of both execs, if the job has an objective */
    double *metrics; /* (accumulate x n_microbatches, cp, PP_MAX_METRICS) or
                        NULL: a rank that divides sequences has its own */
    double combined[PP_MAX_METRICS];       /* metrics of the last step */
    double eval_combined[PP_MAX_METRICS];  /* of the last evaluation */
    struct pp_router_losses router;        /* of the step */
    struct pp_ahead_loss ahead;            /* likewise */
    struct pp_generator_loss of_generator; /* likewise */
    struct pp_expert_loads *loads;         /* by layer with experts, if the job
                                              records layers; or NULL */
    double *load_values;                   /* of loads, then (experts) room */
    double *eval_losses;     /* (n_eval) one for each microbatch */
    bool eval_scored;        /* the last evaluation had a scored token */
    struct pp_scored scored; /* room for PP_SCORES_PART or more */
    float *reference;        /* (positions of the data, then of the eval data)
                                log-probabilities of scored tokens by the base */
    size_t n_eval;           /* microbatches of the passes over the eval data */
    /* Exchanged after a step: a sum of squares for every tensor of the model, a
     * loss and metrics for every microbatch, and numbers of ranks. */
    size_t n_of_model, n_numbers; /* without numbers of ranks, and all */
    double *mine, *sums;          /* (n_numbers) this rank's, and all ranks' */
    struct pp_entry *entries;     /* (n_numbers) */
    size_t n_tensors;             /* tensors of the whole model */
    int *peak_slots;              /* by rank */

    struct pp_saving *saving; /* a checkpoint that is written beside training,
                                 or NULL */
    int64_t step;             /* optimizer steps done */
    int64_t microbatches;     /* consumed */
};

/* Returns the number of data-parallel ranks of the language model. */
static inline int pp_rank_lanes(const struct pp_rank *r)
{
    return pp_layout_language(&r->env.layout)->mesh.dp;
}

/* Returns the number of this one; 0 if it has no tokens (env.h). */
static inline size_t pp_rank_lane(const struct pp_rank *r)
{
    return pp_env_has_tokens(&r->env) ? (size_t)r->env.place.dp : 0;
}

/* Returns the means to exchange elements in a group of this rank's. */
struct pp_collective pp_rank_collective(const struct pp_env *env,
                                        enum pp_group_kind kind);

/* Fill the other envs, from env, with the room for the inputs of encoders; and
 * the other envs of beside, from the ones of env, which is complete. */
int pp_rank_make_others(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;
void pp_rank_others_beside(struct pp_rank *r);

/* Finds the words of this rank: the rows of its embedding and head. */
void pp_rank_find_words(struct pp_env *env, const struct pp_model *whole);

/* Makes r->params and fills them; sets step and microbatches. Fails if the job
 * cannot continue from the checkpoint. */
int pp_rank_make_params(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

enum pp_save_manner {
    PP_SAVE_NOW,
    PP_SAVE_IN_HASTE, /* looks at the weights, and not at their loss */
    PP_SAVE_BESIDE    /* while the next steps train; the first of them has the
                         loss */
};

/* Collective. Writes a checkpoint if training can continue from it, or begins
 * to. Completes the one before it first. */
int pp_rank_save(struct pp_rank *r, enum pp_save_manner how,
                 struct pp_err *err) PP_MUST_USE;

/* Collective. Takes r->saving to its next phase, after a step that has shown
 * that the weights have a finite loss and gradient. */
int pp_rank_advance_save(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Collective. Saves what the run has resumed, if it is not in the directory of
 * checkpoints. */
int pp_rank_save_resumed(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Collective. Gives the weights to the sampler of the job. */
int pp_rank_stream(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Trains from r->step to the job's last step. */
int pp_rank_train(struct pp_rank *r, enum pp_exit *status,
                  struct pp_err *err) PP_MUST_USE;

/* Return the number of microbatches of a step, and of all their metrics. */
size_t pp_rank_n_losses(const struct pp_rank *r);
size_t pp_rank_n_metrics(const struct pp_rank *r);

/* Set the first n losses on the device to 0, and copy the first n losses and
 * sums of squares to host_sums. */
int pp_rank_clear_losses(struct pp_rank *r, size_t n,
                         struct pp_err *err) PP_MUST_USE;
int pp_rank_read_sums(struct pp_rank *r, size_t n,
                      struct pp_err *err) PP_MUST_USE;

enum pp_own_flags {
    PP_OWN_DAMAGE = 1, /* it has seen a damaged file (pp_job.check_files) */
    PP_OWN_STREAM = 2, /* a request for the weights (pp_job.stream_asked) */
    PP_OWN_SAVING = 4  /* it works on a phase of r->saving */
};

/* A rank tells these of a step that it has played. */
struct pp_own_numbers {
    double compute_seconds, seconds, product_seconds;
    int stop;       /* see pp_job.stop */
    unsigned flags; /* enum pp_own_flags */
    int peak_slots;
    uint64_t messages, message_bytes;
};

/* Collective. Fills r->sums with the sums of n numbers over the ranks, in their
 * order; n is at most n_numbers. */
int pp_rank_add_up(struct pp_rank *r, const double *own, size_t n,
                   struct pp_err *err) PP_MUST_USE;

/* Collective. Exchanges what pp_rank_report needs. */
int pp_rank_exchange(struct pp_rank *r, const struct pp_own_numbers *own,
                     struct pp_err *err) PP_MUST_USE;

/* Fills the report of a step, the same on every rank: tensors add up in model
 * order and losses in microbatch order, so that the sums do not depend on the
 * split. Adds the flags of all ranks. Returns why a rank was asked to stop, or
 * 0. */
int pp_rank_report(struct pp_rank *r, struct pp_step_report *rep,
                   unsigned *flags);

/* Counts the scored and the real tokens of the next n microbatches. */
void pp_rank_count(const struct pp_rank *r, size_t n, uint64_t *scored,
                   uint64_t *tokens);

/* Counts the next n microbatches for the objective. */
struct pp_objective_counts pp_rank_count_objective(const struct pp_rank *r,
                                                   size_t n);

/* Computes the loss of the eval data, that of a generator and the metrics of
 * the objective, on every rank, and fills their members of the report. A loss
 * is NAN if no token is scored. */
int pp_rank_evaluate(struct pp_rank *r, struct pp_step_report *rep,
                     struct pp_err *err) PP_MUST_USE;

/* Evaluates before training or without it, and calls the job's evaluated. */
int pp_rank_evaluate_alone(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Combines metrics (n, PP_MAX_METRICS) of the ranks that divide microbatches,
 * in the order of the microbatches, with what combined has of earlier ones. */
void pp_rank_combine(const struct pp_rank *r, const double *metrics, size_t n,
                     double *combined);
/* Sets combined to the metrics of no microbatch. */
void pp_rank_combine_none(const struct pp_rank *r, double *combined);

/* Calls the job's inspect with whole gradients and weights, if it has one.
 * Collective then. */
int pp_rank_inspect(const struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Fails on every rank if a rank finds a file damaged; with `end` each waits
 * until its files are read. Collective if the job checks files. */
int pp_rank_check_files(struct pp_rank *r, bool end,
                        struct pp_err *err) PP_MUST_USE;

/* Collective. Fills the reference for the steps that are left, and for the eval
 * data. */
int pp_rank_refer(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Notes the scores of a microbatch; ctx is the rank (struct pp_pass). */
void pp_rank_note_scores(void *ctx, size_t bin,
                         const struct pp_host_microbatch *host);
/* Collective. Hands the scores that all ranks have noted to rank 0's
 * function. */
int pp_rank_hand_over(struct pp_rank *r, pp_take_scores_fn *take, void *ctx,
                      struct pp_err *err) PP_MUST_USE;

/* Draws a token for every labelled row of p, one in each bin; draw is the
 * number of tokens that a bin has drawn before. */
int pp_rank_draw(struct pp_rank *r, const struct pp_packed *p,
                 const struct pp_sampler *s, uint64_t draw,
                 pp_take_scores_fn *take, void *ctx,
                 struct pp_err *err) PP_MUST_USE;

/* Continues every sequence of the data (struct pp_job). */
int pp_rank_generate(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* Hands the log-probabilities of every sequence of the data to the job. */
int pp_rank_score(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;

/* The fit of one unit, as doubles that ranks can exchange. */
struct pp_unit_fit {
    double seconds[PP_N_LAYER_TIMES][2]; /* per token, per pair */
    double n;                            /* ranks (copies) that measured it */
    double alike; /* 1: the fit could not tell pairs from tokens */
};

/* Fits the units of this rank to the kept steps after the first `skip`. fits
 * has one entry for each unit of the model; it leaves the others unchanged. */
int pp_fit_layers(const struct pp_rank *r, int skip, struct pp_unit_fit *fits,
                  struct pp_err *err) PP_MUST_USE;

/* Fit the times of messages and of the work outside the schedule, to the kept
 * steps after the first `skip`. */
int pp_fit_messages(const struct pp_rank *r, const struct pp_record *record,
                    int skip, struct pp_profile *p,
                    struct pp_err *err) PP_MUST_USE;
int pp_fit_step(const struct pp_rank *r, const struct pp_record *record,
                int skip, struct pp_profile *p, struct pp_err *err) PP_MUST_USE;

/* Collective. Fits the time of copies between ranks and their host. */
int pp_fit_copies(struct pp_rank *r, const struct pp_record *record, int skip,
                  struct pp_profile *p, struct pp_err *err) PP_MUST_USE;

/* Makes the loads of experts, if the job wants a profile (loads.c). Gathers the
 * loads of all ranks, in the memory of the record. */
int pp_rank_make_loads(struct pp_rank *r, struct pp_err *err) PP_MUST_USE;
int pp_rank_gather_loads(struct pp_rank *r, struct pp_record *record,
                         struct pp_err *err) PP_MUST_USE;
/* Returns the room behind the values of loads; NULL without. */
double *pp_rank_load_room(const struct pp_rank *r);
/* Gathers n doubles of every rank into a new array. */
double *pp_rank_gather(struct pp_rank *r, const double *mine, size_t n,
                       struct pp_err *err);

#endif
