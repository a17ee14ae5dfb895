/* SPDX-License-Identifier: MIT */
/* pprun - what the parts of the trainer's command share. */
#ifndef PP_CMD_PPRUN_H
#define PP_CMD_PPRUN_H

#include "manifest/manifest.h"
#include "run/job.h"
#include "tool.h"

/* The words of --dtype: indices of pp_precisions. */
enum pprun_dtype { PPRUN_FP32, PPRUN_FP64, PPRUN_BF16 };
/* The words of --device. */
enum pprun_device { PPRUN_CPU, PPRUN_CUDA };

/* The command line. */
struct pprun_options {
    const char *data, *eval, *weights, *resume, *logprobs;
    int64_t seed;             /* --init; -1 when not given */
    int dtype;                /* enum pprun_dtype */
    int device;               /* enum pprun_device */
    int transport, objective; /* of each there is one so far */
    bool plan;
    bool memory_is_slots;
    size_t memory; /* --memory: bytes or slots; 0: no limit */
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
    struct pp_packed data, eval;
    struct pp_tensors *weights;
    char *resume, *config_text, *tokenizer_source;
    int save_lock; /* descriptor of the directory of --save, or 0 */

    double start; /* when the first step began */
    int64_t first_step;
    double **logps;         /* --logprobs: by input sequence */
    uint32_t *logps_length; /* by input sequence; 0: not in the data */
};

/* Fills p->job from the options and the manifest named (or "-"): opens and
 * checks every file before a rank starts. */
int pprun_prepare(struct pprun *p, const char *manifest) PP_MUST_USE;
void pprun_finish(struct pprun *p);

/* Sets the job's device and kernels. */
int pprun_choose_device(struct pprun *p) PP_MUST_USE;

/* Whether this machine has the device, before a rank starts. */
int pprun_check_device(struct pprun *p) PP_MUST_USE;

/* Refuses (PP_EXIT_NO) a plan above --memory. Says what every rank needs: with
 * -v as a table, with --plan as JSON on the output. */
int pprun_check_memory(struct pprun *p) PP_MUST_USE;

/* Runs all ranks as threads of this process. */
int pprun_threads(struct pprun *p, enum pp_exit *status) PP_MUST_USE;

/* The job's callbacks. */
int pprun_report(void *ctx, const struct pp_step_report *r,
                 struct pp_err *err) PP_MUST_USE;
int pprun_evaluated(void *ctx, double val_loss, struct pp_err *err) PP_MUST_USE;
void pprun_logps(void *ctx, size_t bin, const struct pp_microbatch *mb);

/* --logprobs: room before the run, the file after it. */
int pprun_logprobs_init(struct pprun *p) PP_MUST_USE;
int pprun_logprobs_write(struct pprun *p) PP_MUST_USE;

#endif
