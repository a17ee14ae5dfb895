/* SPDX-License-Identifier: MIT */
/* pprun - what the parts of the trainer's command share. */
#ifndef PP_CMD_PPRUN_H
#define PP_CMD_PPRUN_H

#include "comm/rendezvous.h"
#include "manifest/manifest.h"
#include "run/execute/job.h"
#include "tool.h"

/* The words of --dtype: indices of pp_precisions. */
enum pprun_dtype { PPRUN_FP32, PPRUN_FP64, PPRUN_BF16 };
/* The words of --device. */
enum pprun_device { PPRUN_CPU, PPRUN_CUDA };
/* The words of --transport. */
enum pprun_transport { PPRUN_THREADS, PPRUN_MPI, PPRUN_NCCL };

/* The command line. */
struct pprun_options {
    const char *data, *eval, *weights, *resume, *logprobs;
    const char *trace, *profile; /* files, or NULL */
    int trace_steps;             /* the last ones; 0: not given */
    int64_t seed;                /* --init; -1 when not given */
    int dtype;                   /* enum pprun_dtype */
    int device;                  /* enum pprun_device */
    int transport;               /* enum pprun_transport */
    int objective;               /* there is one so far */
    int shapes;                  /* enum pp_message_size */
    int blas_threads;
    bool plan;
    bool verify, shrink, json;
    bool memory_is_slots;
    size_t memory;       /* --memory: bytes or slots; 0: no limit */
    double join_timeout; /* seconds; 0: not given */
};

/* A job and everything it borrows. */
struct pprun {
    struct tool *tool;
    struct pprun_options options;
    struct pp_job job;

    struct pp_manifest manifest;
    struct pp_model model;
    struct pp_schedule forward;
    struct pp_unit_range *stages;
    enum pp_recompute *recompute; /* by stage */
    struct pp_packed data, eval;
    struct pp_tensors *weights;
    char *resume, *config_text, *tokenizer_source;
    int save_lock; /* descriptor of the directory of --save, or 0 */

    /* Where ranks are processes. */
    int rank;
    const struct pp_mpi *mpi; /* --transport mpi */
    char name[128];           /* of this one, for messages */
    char **argv;              /* the command line */
    char *text;               /* of the manifest, rank 0's */
    size_t text_bytes;

    struct tool_file trace, profile; /* open while the run goes on */

    double start; /* when the first step began */
    int64_t first_step;
    struct tool_file scores; /* --logprobs: open while the run goes on */
    double **logps;          /* by input sequence */
    uint32_t *logps_length;  /* by input sequence; 0: not in the data */
};

extern const struct tool_option pprun_option_table[];

/* Fills p->options, and what options say of p->job; refuses what would go
 * unheard. */
int pprun_read_options(struct pprun *p, int argc, char **argv) PP_MUST_USE;

/* Fills p->job from the options and the manifest named (or "-"): opens and
 * checks every file before a rank starts. With --plan neither weights nor
 * checkpoints are looked at. */
int pprun_prepare(struct pprun *p, const char *manifest) PP_MUST_USE;
void pprun_finish(struct pprun *p);

/* Sets the job's device and kernels. */
int pprun_choose_device(struct pprun *p) PP_MUST_USE;

/* Whether this machine has the device, and room for what computes on it, before
 * a rank starts. */
int pprun_check_device(struct pprun *p) PP_MUST_USE;

/* Refuses (PP_EXIT_NO) a plan above --memory. Says what every rank needs: with
 * -v as a table, with --plan as JSON on the output. */
int pprun_check_memory(struct pprun *p) PP_MUST_USE;

/* What a slot of the schedule keeps alive, in the plural. */
static inline const char *pprun_slots(const struct pp_graph *g)
{
    return g->n_slices > 1 ? "slices of microbatches" : "microbatches";
}

/* --verify: settings, model and data, before the plan is looked at; then the
 * runs and what they show. */
int pprun_verify_prepare(struct pprun *p) PP_MUST_USE;
int pprun_verify(struct pprun *p) PP_MUST_USE;

/* --trace and --profile: says what to record and, at rank 0, opens the files
 * before the run; writes them, called by rank 0; puts them in their places, or
 * removes them where the run has failed. */
int pprun_record_init(struct pprun *p) PP_MUST_USE;
int pprun_recorded(void *ctx, const struct pp_record *r,
                   struct pp_err *err) PP_MUST_USE;
int pprun_record_close(struct pprun *p);

/* Runs all ranks as threads of this process. */
int pprun_threads(struct pprun *p, enum pp_exit *status) PP_MUST_USE;

/* Runs this process's rank, as --transport mpi and nccl have it: joins the
 * others, does all from pprun_prepare to the end, and tells in p->tool->told
 * whether another rank speaks of a failure. */
int pprun_process(struct pprun *p, const char *manifest,
                  enum pp_exit *status) PP_MUST_USE;

/* Refuses to be one of several processes where it would be all ranks. */
int pprun_check_alone(struct pprun *p) PP_MUST_USE;

/* With --save a signal asks all ranks to stop; without, it ends the run as
 * usual, as there is nothing to come back to. */
void pprun_handle_signals(const struct pprun *p);
bool pprun_stop_requested(void *ctx);

/* The job's callbacks. */
int pprun_report(void *ctx, const struct pp_step_report *r,
                 struct pp_err *err) PP_MUST_USE;
int pprun_evaluated(void *ctx, double val_loss, struct pp_err *err) PP_MUST_USE;
void pprun_logps(void *ctx, size_t bin, const struct pp_microbatch *mb);

/* --logprobs: room and the file before the run, its lines after it. */
int pprun_logprobs_init(struct pprun *p) PP_MUST_USE;
int pprun_logprobs_write(struct pprun *p) PP_MUST_USE;

/* --- pprun_launch.c: the launcher --- */

struct pprun_launch {
    const char *launcher;  /* NULL: none */
    const char *size_from; /* the variable that gave the number of ranks */
    struct pp_rendezvous_place place;
    char address[256];
};

/* Reads the environment. What is there and cannot be is PP_EXIT_INPUT, and so
 * is an address that is not there where one is needed: to_join. Where place has
 * an address all the same, rank 0 can be told of it. */
int pprun_launch_read(struct pprun_launch *l, bool to_join,
                      struct pp_err *err) PP_MUST_USE;

#endif
