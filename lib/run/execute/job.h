/* SPDX-License-Identifier: MIT */
/* job - everything that all ranks of a run agree on, read-only to them. */
#ifndef PP_RUN_EXECUTE_JOB_H
#define PP_RUN_EXECUTE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "comm/comm.h"
#include "data/packed.h"
#include "data/safetensors.h"
#include "device/device.h"
#include "run/parts/layer.h"
#include "run/parameters/optim.h"
#include "run/parameters/parameters.h"
#include "schedule/ir/schedule.h"

/* The rows of a message between stages. The rows that count are the same in all
 * of them: those of the index. */
enum pp_message_size {
    PP_MESSAGE_PLANNED,  /* the microbatch's: both ranks read the index */
    PP_MESSAGE_EXCHANGE, /* the same; the receiver learns it from the message,
                           and holds it against the index */
    PP_MESSAGE_MAX       /* the data's capacity, the rows behind being 0, as
                           Megatron-LM without variable_seq_lengths */
};

/* One optimizer step, the same on every rank. */
struct pp_step_report {
    int64_t step;
    double loss;      /* nats per scored token over the whole step; NAN where
                         none is scored */
    double grad_norm; /* before clipping */
    double lr;
    uint64_t tokens; /* real ones, padding not counted */
    double seconds;
    double bubble;   /* measured: 1 - compute / (ranks x longest rank); -1 on a
                        device whose work is queued: the host cannot see it */
    double products; /* share of compute in matrix products; -1: not timed */
    bool has_val_loss;
    double val_loss;                  /* NAN where nothing is scored */
    const int *peak_slots;            /* counted, by rank */
    uint64_t messages, message_bytes; /* between stages, all ranks' */
};

/* What a rank holds between the end of a step's backward and its update, and
 * once more after the last update. */
struct pp_inspection {
    int rank;
    int64_t updates;                    /* made so far */
    const struct pp_parameters *params; /* gradients complete, not clipped */
};

struct pp_record;

struct pp_job {
    const struct pp_model *model;
    const struct pp_schedule *schedule; /* lowered; carries the graph */
    const struct pp_schedule *forward;  /* the same list, forward only */
    const struct pp_unit_range *stages; /* by stage number */
    const enum pp_recompute *recompute; /* by stage number; NULL: none. A
                                           schedule of slices has no full */
    const struct pp_kernels *kernels;
    const struct pp_device_ops *device; /* the kernels'; NULL: the CPU */
    bool time_products;                 /* on the CPU */
    int slot_limit;                     /* 0: as planned */
    enum pp_message_size shapes;        /* of messages between stages */

    const struct pp_packed *data; /* training, or what is to be scored */
    const struct pp_packed *eval; /* or NULL */

    /* Where weights come from: a checkpoint to resume, tensors, or a seed. */
    const char *resume; /* path of a checkpoint, or NULL */
    const struct pp_tensors *weights;
    const char *weights_path; /* of weights, for messages */
    uint64_t seed;

    struct pp_optim optim; /* optim.steps: total number of steps */
    int accumulate;
    int64_t eval_every, save_every; /* 0: only at the end */
    const char *save;               /* directory, or NULL */
    int keep;
    const char *config_text, *tokenizer_source;
    const char *dump_grads;

    /* Scores every sequence of data instead of training, and hands each
     * microbatch's log-probabilities to logps, on the rank with the head. */
    bool score;
    void (*logps)(void *ctx, size_t bin, const struct pp_microbatch *mb);

    /* For --verify; each may be NULL. inspect is called by every rank before
     * every update and after the last one; output after every forward of a
     * stage that has an output y, (mb->tokens, width) in the host's memory.
     * Ranks call at the same time. */
    int (*inspect)(void *ctx, const struct pp_inspection *i,
                   struct pp_err *err);
    void (*output)(void *ctx, int stage, size_t bin,
                   const struct pp_microbatch *mb, const void *y, size_t width);

    /* What is to be recorded: the latest n_steps steps (0: nothing), with the
     * layers of each stage or without; see recorded. With them nothing runs
     * beside anything else on a device. */
    struct {
        int n_steps;
        bool layers;
    } record;

    /* Called by rank 0 alone; a failure ends the run. recorded comes once,
     * after the last step, where something is recorded. */
    int (*report)(void *ctx, const struct pp_step_report *r,
                  struct pp_err *err);
    int (*evaluated)(void *ctx, double val_loss, struct pp_err *err);
    int (*recorded)(void *ctx, const struct pp_record *r, struct pp_err *err);
    /* Called by every rank between steps; any true stops all. */
    bool (*stop)(void *ctx);
    void *ctx;
    struct pp_log log; /* rank 0's notes */
};

/* What a stage makes again in its backward. */
enum pp_recompute pp_job_recompute(const struct pp_job *j, int stage);

/* Bytes of every stage's buffers at the largest microbatch of the job, as the
 * memory plan takes them: out has one entry per stage. */
struct pp_stage_bytes;
void pp_job_sizes(const struct pp_job *j, struct pp_stage_bytes *out);

/* Bytes of the rank's device that are neither parameters nor planned: what its
 * handles take, room of the kernels, tables; all but a double for every tensor,
 * and what the device's own libraries take. */
size_t pp_job_workspace(const struct pp_job *j, int rank);

struct pp_engine_room;

/* The largest microbatch of training and evaluation. */
void pp_job_room(const struct pp_job *j, struct pp_engine_room *room);

/* Whether the rank has a second handle of its device, for the forward of
 * overlap pairs: where the device can run it beside the backward. Products and
 * layers are clocked one after the other. */
bool pp_job_overlaps(const struct pp_job *j, int rank);

/* The channels of all ranks, of the schedule's messages and of gradients of
 * what is there twice, each once, in an order in which neighbours can connect
 * two by two at the same time. *at is malloc'ed. */
int pp_job_channels(const struct pp_schedule *s, struct pp_comm_channel **at,
                    size_t *n, struct pp_err *err) PP_MUST_USE;

/* Runs one rank of the job to its end. The status is PP_EXIT_OK or
 * PP_EXIT_STOPPED; on failure every other rank is told. */
int pp_rank_run(const struct pp_job *j, struct pp_comm *comm,
                enum pp_exit *status, struct pp_err *err) PP_MUST_USE;

#endif
