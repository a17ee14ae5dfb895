/* SPDX-License-Identifier: MIT */
/* job - what all ranks of a run share. They only read it. */
#ifndef PP_RUN_EXECUTE_JOB_H
#define PP_RUN_EXECUTE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "data/packed/packed.h"
#include "data/tensors/safetensors.h"
#include "device/device.h"
#include "model/layout.h"
#include "model/rank_bytes.h"
#include "run/parts/layer.h"
#include "run/parameters/optim.h"
#include "run/parameters/parameters.h"
#include "run/settings/settings.h"
#include "schedule/ir/schedule.h"

struct pp_progress;
struct pp_routes;
struct pp_routes_output;

/* The number of rows of a message between stages. The index gives the rows that
 * count; they are the same in all three cases. */
enum pp_message_size {
    PP_MESSAGE_PLANNED,  /* rows that count: both ranks read the index */
    PP_MESSAGE_EXCHANGE, /* the same, but the receiver compares the size of
                           the message with the index */
    PP_MESSAGE_MAX       /* the capacity of the data, padded with zeros, like
                           Megatron-LM without variable_seq_lengths */
};

/* The reference of an objective: a column of the data, or the model without its
 * adapters, which is asked before the first step. */
enum pp_reference { PP_REFERENCE_DATA, PP_REFERENCE_BASE };

enum { PP_STOP_OTHER = -1 };

/* One optimizer step, the same on every rank. */
struct pp_step_report {
    int64_t step;
    double loss;      /* nats per scored token over the whole step; NAN if no
                         token is scored */
    double grad_norm; /* before clipping */
    double norms[PP_MAX_COMPONENTS]; /* the same of each named component */
    double lr;
    uint64_t tokens; /* without padding */
    double seconds;
    double bubble;   /* measured: 1 - compute / (ranks x longest rank); -1 on a
                        device with queues, whose work the host cannot see */
    double products; /* share of matrix products in compute; -1 if not timed */
    uint64_t waits;  /* how often the host of rank 0 waited for its device */
    bool has_val_loss;
    int stop; /* a stop was requested (see pp_job.stop): this is the run's last
                 step, and its checkpoint is complete; else 0 */
    /* If has_val_loss, the evaluation after the step; in the argument of
     * pp_job.evaluated nothing else but the step is valid. */
    double val_loss;           /* NAN if nothing is scored */
    double val_generator_loss; /* of a generator, likewise */
    /* Numbers of routers, over all layers (run/parts/experts/router_losses.h).
     * Losses are without coefficients, and valid if the job has them; the
     * others but for rounds if it counts routes. */
    double aux_loss, z_loss, expert_load, dropped, expert_rounds;
    double mtp_loss;       /* of multi-token prediction, without weight */
    double generator_loss; /* likewise; NAN if no token of it is scored */
    /* The metrics of the objective, of the step and of the evaluation; NULL
     * without an objective. */
    const double *metrics, *val_metrics;
    const uint64_t *metadata; /* by rank: hash of the packed sequences
                                 (metadata.h); NULL if not wanted */
    const uint64_t *digests;  /* of the bits of activations in this step, over
                                 all ranks (digest.h); NULL if not wanted */
    const int *peak_slots;    /* by rank; counted, not planned */
    uint64_t messages, message_bytes; /* between stages, of all ranks */
};

/* The state of a rank before each update, when the backward of the step is
 * complete, and after the last update. */
struct pp_inspection {
    int rank;
    int64_t updates;                    /* done so far */
    const struct pp_parameters *params; /* gradients complete, not clipped */
};

struct pp_record;

/* A token of the input. */
struct pp_token_place {
    uint32_t sequence, position;
};

/* Takes n tokens and their values. */
typedef void pp_take_scores_fn(void *ctx, const struct pp_token_place *at,
                               const double *values, size_t n);

struct pp_job {
    const struct pp_model *model;
    const struct pp_schedule *schedule; /* lowered; carries the graph */
    const struct pp_schedule *forward;  /* the same rows, forward only */
    const struct pp_unit_range *stages; /* by stage number. A stage with several
                                           inputs works on their sum */
    struct pp_mesh mesh; /* of the language model; an axis of size 0 has 1 rank;
                            pp is the number of the schedule's rows, whatever is
                            here */
    /* An encoder with a mesh and ranks of its own, and the language model, with
     * all sizes; n_components 0: one component, with `mesh`. */
    struct pp_layout components;
    /* The units of each component with a name, in model order, wherever they
     * are; n_named 0: none has one. */
    size_t named_units[PP_MAX_COMPONENTS];
    size_t n_named;
    const enum pp_recompute *recompute; /* by stage number; NULL: none. Not
                                           full if there are slices */
    const struct pp_kernels *kernels;
    const struct pp_device_ops
        *device;        /* device of the kernels; NULL: the CPU */
    bool time_products; /* CPU only */
    bool nccl_sums;     /* NCCL may add gradients, in an order of its own */
    int slot_limit;     /* 0: as planned */
    const char *offload_dir; /* of files that take offloaded activations; NULL:
                                memory of the host does */
    enum pp_message_size shapes;

    const struct pp_packed *data; /* to train on, or to score */
    const struct pp_packed *eval; /* or NULL */

    /* The source of the weights: a checkpoint, tensors, or a seed. */
    const char *resume; /* path of a checkpoint, or NULL */
    bool new_data; /* data that are not the checkpoint's begin anew; its moments
                      and its step stay */
    const struct pp_tensors *weights;
    const char *weights_path; /* for messages */
    uint64_t seed;

    /* In the settings; NULL: the objective sft. */
    const struct pp_objective_options *objective;
    enum pp_reference reference;
    double temperature; /* divides logits, in every pass; 0: 1 */
    struct pp_settings
        settings; /* also settings of losses beside it, in training */
    /* In passes over data, the choice of experts to replay, and the file that
     * takes it; or NULL. */
    const struct pp_routes *given;
    const struct pp_routes_output *taken;

    struct pp_optim optim; /* optim.steps: total number of steps */
    int accumulate;
    int64_t eval_every, save_every; /* 0: only at the end */
    bool eval_at_start;             /* also before step 1 */
    bool save_background;           /* save while the next steps train */
    const char *save;               /* directory, or NULL */
    int keep;
    size_t shard_size; /* of a checkpoint's files; 0: PP_CKPT_SHARD_SIZE */
    size_t save_bytes; /* of an element of its weights; 0: as in the run */
    const char *config_text, *model_source;
    uint64_t base_checksum; /* of the weights, if the model has adapters beside
                               them; 0: they are random */
    const char *generator_config; /* config_text of a generator */
    const char *dump_grads;

    /* Versions of the weights for a sampler (run/checkpoint/stream.h). */
    struct {
        const char *path; /* or NULL */
        bool is_dir;      /* valid at rank 0; else a FIFO or a socket */
        int64_t every;    /* 0: only at the end */
        double timeout;   /* seconds that its reader may take for nothing */
    } stream;

    /* With score, the job scores every sequence of data and does not train.
     * Rank 0 calls scored for the tokens of all ranks, after each pass, with
     * (n, pp_job_score_width) values: of each the log-probability, then the
     * entropy if wanted, top_k ids and top_k logits. */
    bool score, entropy;
    size_t top_k;
    pp_take_scores_fn *scored;
    /* With n above 0, the job generates instead: the bins of data are sequences
     * of their own, which end in n tokens without a label. These are drawn, the
     * largest logit or samples, until `stop` is. scored gets each, at its
     * position, with 3 values: its id and log-probability are the last two. */
    struct {
        size_t n;
        bool samples;
        uint64_t seed;
        int32_t stop; /* or -1 */
    } generate;

    /* For the verification; each may be NULL. Every rank calls inspect before
     * every update and after the last one. It calls output after every forward
     * of a stage that has an output y: the rows of its edge, in host memory.
     * Ranks call at the same time. */
    int (*inspect)(void *ctx, const struct pp_inspection *i,
                   struct pp_err *err);
    void (*output)(void *ctx, int stage, size_t bin,
                   const struct pp_microbatch *mb, const void *y,
                   struct pp_edge edge);

    struct pp_progress *progress; /* of the only rank of this process, or NULL
                                   */

    /* Records the last n_steps steps (0: none), if wanted with the time of each
     * layer. Recording layers disables overlap on a device. */
    struct {
        int n_steps;
        bool layers;
    } record;

    bool metadata; /* reports have the hashes of the packed sequences */

    bool digests; /* reports have digests of activations. On the CPU, without
                     slices */

    /* Called by rank 0 alone; a failure ends the run. recorded is called once,
     * after the last step, if something is recorded. */
    int (*report)(void *ctx, const struct pp_step_report *r,
                  struct pp_err *err);
    int (*evaluated)(void *ctx, const struct pp_step_report *r,
                     struct pp_err *err);
    int (*recorded)(void *ctx, const struct pp_record *r, struct pp_err *err);
    /* Called by every rank between steps. Returns 0, or why to stop: the number
     * of a signal, or PP_STOP_OTHER. All stop if one does. */
    int (*stop)(void *ctx);
    /* Called by every rank in each step and, with `end`, at the end of a run
     * that was not stopped; may be NULL. Fails if a file that the job reads was
     * found damaged; with `end` it waits until all files are read. The job then
     * fails on every rank, before the update of the step. */
    int (*check_files)(void *ctx, bool end, struct pp_err *err);
    /* Called by every rank in each step; may be NULL. Returns whether someone
     * asked for the weights since the last call. Rank 0 calls missed if a
     * version was not taken. */
    bool (*stream_asked)(void *ctx);
    void (*stream_missed)(void *ctx, int64_t step, const char *why);
    void *ctx;
};

/* Reports whether training counts what routers choose. */
bool pp_job_counts_routes(const struct pp_job *j);

/* Returns the number of values of a scored token. */
size_t pp_job_score_width(const struct pp_job *j);

/* The passes through the data, which differ in their largest microbatch. */
enum pp_job_pass { PP_PASS_TRAIN, PP_PASS_FORWARD };

/* Returns the tokens of the longest sequence of the sets of a pass. */
size_t pp_job_longest(const struct pp_job *j, enum pp_job_pass pass);

/* Returns what the backward of a stage computes again. */
enum pp_recompute pp_job_recompute(const struct pp_job *j, int stage);

/* Returns whether the job trains, and whether it makes forward passes, to
 * evaluate, to score or for a reference. */
bool pp_job_trains(const struct pp_job *j);
bool pp_job_forwards(const struct pp_job *j);

/* Returns the tokens of the largest microbatch of a pass. */
size_t pp_job_room(const struct pp_job *j, enum pp_job_pass pass);

/* Returns the same of a microbatch of the component that plays a row: a
 * generator on ranks of its own may have the tokens of several. */
size_t pp_job_row_room(const struct pp_job *j, enum pp_job_pass pass, int row);

/* Reports whether a row has units of the generator, or others. */
bool pp_job_has_units(const struct pp_job *j, int row, bool generator);

/* Completes the counts of a rank of a row with the counts of a generator. */
void pp_job_count_generator(const struct pp_job *j, int row,
                            struct pp_table_counts *c);

/* Returns the bytes of the buffers of every slice of every stage for the
 * largest microbatch of a pass, as the memory plan takes them, malloc'ed; or
 * NULL. */
struct pp_stage_bytes;
struct pp_stage_bytes *pp_job_sizes(const struct pp_job *j,
                                    enum pp_job_pass pass, struct pp_err *err);

/* Returns the places of the job's ranks; the rows of all components are the
 * rows of the schedule. */
struct pp_layout pp_job_layout(const struct pp_job *j);

/* Returns the microbatches of one pass of all data-parallel ranks of the
 * language model. Microbatch k goes to rank k mod dp. */
size_t pp_job_microbatches(const struct pp_job *j);

/* Reports whether a stage has weights of its own. Else its rank has another
 * copy of them, which both use. */
bool pp_job_holds(const struct pp_job *j, int stage);

/* Returns the ranks of a row that hold the same weights and divide the tokens
 * or the images of a step. */
int pp_job_replicas(const struct pp_job *j, int row);

/* Returns what the tables of a rank of this row depend on. */
struct pp_table_counts pp_job_tables(const struct pp_job *j, int row);

/* The memory that a rank allocates, in bytes: on a GPU its device's, without
 * that of the device's libraries. */
struct pp_rank_memory {
    struct pp_rank_bytes bytes;
    size_t host; /* beside them, in memory of the host */
    int slots;
};

/* Plans the memory of a rank of this row. Training and forward passes share one
 * arena. */
int pp_job_memory(const struct pp_job *j, int row, struct pp_rank_memory *m,
                  struct pp_err *err) PP_MUST_USE;

/* Reports whether a rank of this row opens a second handle, for the forward
 * of overlap pairs: the device must run it beside the backward, and nothing may
 * be timed that needs one queue (products, layers). Context-parallel and
 * tensor-parallel ranks have one queue, because both actions of a pair would
 * exchange rows; and so has every rank of a model with a generator. */
bool pp_job_overlaps(const struct pp_job *j, int row);

/* Sets *most to the most receives of a channel of s that are posted and whose
 * messages are not yet used; at least 1. */
int pp_job_receives(const struct pp_schedule *s, int *most,
                    struct pp_err *err) PP_MUST_USE;

/* Sets *room to the room that the job needs in each channel. */
int pp_job_channel_capacity(const struct pp_job *j,
                            struct pp_comm_capacity *capacity,
                            struct pp_err *err) PP_MUST_USE;

/* Lists the channels that the job uses: for the schedule's messages, of
 * the gradients of weights that two ranks hold, within groups, and of
 * PP_DIRECTION_HOST. only: a rank, to list channels that it sends or receives
 * in; or -1. *at is malloc'ed, and not NULL. */
void pp_job_channels(const struct pp_job *j, int only,
                     struct pp_comm_channel **at, size_t *n);

/* Lists the sets of ranks that exchange these messages, except messages of
 * PP_DIRECTION_HOST, in the order in which they connect (comm/sets.h). The
 * caller finishes the list. */
struct pp_comm_sets;
void pp_job_comm_sets(const struct pp_job *j, struct pp_comm_sets *sets);

/* Runs one rank of the job to its end. *status is PP_EXIT_OK or
 * PP_EXIT_STOPPED. On failure it aborts all other ranks. */
int pp_rank_run(const struct pp_job *j, struct pp_comm *comm,
                enum pp_exit *status, struct pp_err *err) PP_MUST_USE;

#endif
