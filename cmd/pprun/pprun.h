/* SPDX-License-Identifier: MIT */
/* pprun - types and functions that the files of pprun share. */
#ifndef PP_CMD_PPRUN_H
#define PP_CMD_PPRUN_H

#include <stdatomic.h>

#include "comm/rendezvous.h"
#include "data/routes.h"
#include "manifest/manifest.h"
#include "run/execute/job.h"
#include "run/execute/progress.h"
#include "run/objectives/objective.h"
#include "tool.h"

/* The words of --dtype: indices of pp_precisions. */
enum pprun_dtype { PPRUN_FP32, PPRUN_FP64, PPRUN_BF16 };
/* The words of --save-dtype; from the third on, those of --dtype. */
enum pprun_save_dtype { PPRUN_SAVE_RUN, PPRUN_SAVE_MODEL, PPRUN_SAVE_FP32 };
/* The words of --device. */
enum pprun_device { PPRUN_CPU, PPRUN_CUDA };
/* The words of --last-batch: what a step does when the epoch ends in it. */
enum pprun_last_batch { PPRUN_LAST_WRAP, PPRUN_LAST_SHORT, PPRUN_LAST_DROP };
/* The words of --transport. */
enum pprun_transport { PPRUN_THREADS, PPRUN_MPI, PPRUN_NCCL };

/* The command line. */
struct pprun_options {
    const char *data, *eval, *weights, *resume, *logprobs, *cases;
    const char *trace, *profile, *svg; /* files, or NULL */
    const char *record_routing, *replay_routing;
    int trace_steps; /* number of last steps; 0: not given */
    double epochs;   /* 0: not given */
    int last_batch;  /* enum pprun_last_batch */
    int64_t seed;    /* --init; -1: not given */
    int dtype;       /* enum pprun_dtype; -1: not given */
    int save_dtype;  /* enum pprun_save_dtype */
    int device;      /* enum pprun_device */
    int transport;   /* enum pprun_transport */
    int shapes;      /* enum pp_message_size */
    int blas_threads;
    int top_k;               /* 0: none */
    int generate;            /* tokens; 0: none */
    int64_t sample, stop_id; /* or -1 */
    bool row_invariant;
    bool plan;
    bool verify, shrink, json;
    bool fall_back;
    bool memory_is_slots;
    size_t memory;       /* --memory: bytes or slots; 0: no limit */
    double join_timeout; /* seconds; 0: not given */
    const char *secret_file;
    double stall_timeout; /* seconds; 0: never */
    bool stall_abort;
};

/* The lines of a run at rank 0, see pprun_lines.c. */
struct pprun_lines {
    int fd;          /* valid if text is not NULL */
    char *text;      /* lines that the reader has not taken */
    size_t n;        /* bytes of text */
    double deadline; /* of the wait for the reader; 0: not yet */
    bool stop;       /* the run stops at the request of some rank */
    bool is_log;     /* lines go to a file that keeps those of earlier runs */
    bool is_new;     /* it did not exist, and has no line yet */
    atomic_bool failed; /* all ranks that are threads read it */
    struct pp_err err;  /* valid if failed */
};

/* The losses of a run so far, as a few columns. */
enum { PPRUN_CURVE = 16 };
struct pprun_curve {
    double sum[PPRUN_CURVE];
    int n;        /* columns */
    int64_t each; /* steps of a column */
    int64_t rest; /* steps that the last column lacks */
};

/* The steps so far, for the curves of --svg. */
enum {
    PPRUN_CURVE_STEP,
    PPRUN_CURVE_LOSS,
    PPRUN_CURVE_VAL,
    PPRUN_CURVE_NORM,
    PPRUN_CURVE_LR,
    PPRUN_CURVE_SPEED,
    PPRUN_N_CURVES
};
struct pprun_history {
    double *values[PPRUN_N_CURVES]; /* (n) each */
    size_t n, room;
    bool has_val, failed;
    double next; /* time of the next picture */
};

/* Scores of --logprobs on rank 0: they come in the order of the bins, and are
 * in a file without a name until they are written in that of the input. */
struct pprun_scores {
    FILE *file; /* open during the run, or NULL */
    void *map;  /* of the file without a name */
    size_t bytes;
    size_t held;     /* of it in this process, at most */
    uint64_t *first; /* (inputs + 1) place of each sequence's values */
    double *values;
    /* The first value of the input that is not finite, if there is one. */
    bool has_bad;
    struct pp_token_place bad;
    double bad_value;
};

/* A token of --generate. */
struct pprun_drawn {
    int32_t id;
    double logprob;
};

/* A job and all that it borrows. */
struct pprun {
    struct tool *tool;
    struct pprun_options options;
    struct pp_job job;

    struct pp_manifest manifest;
    struct pp_model model, generator; /* generator: valid if model has it */
    struct pp_schedule forward;
    struct pp_unit_range *stages;
    enum pp_recompute *recompute; /* by stage */
    enum pp_role *roles;          /* by unit */
    struct pp_packed data, eval;
    struct pp_background_check *check; /* of their files, or NULL */
    struct pp_tensors *weights;
    char *resume, *config_text, *generator_config;
    int save_lock;   /* descriptor of the directory of --save, or 0 */
    int stream_lock; /* of that of --stream-weights */

    /* Used if ranks are processes. */
    int rank, size;           /* of this process; 0 of 1 if ranks are threads */
    const struct pp_mpi *mpi; /* --transport mpi */
    char name[128];           /* this process in messages */
    char **argv;              /* the command line */
    struct pp_progress progress;
    atomic_bool others_stop; /* at rank 0: another rank was asked to stop */
    bool unscored;           /* a step without a scored token was named */
    char *text;              /* manifest that rank 0 read */
    size_t text_bytes;

    FILE *trace, *profile;         /* open during the run, or NULL */
    struct pp_routes given;        /* --replay-routing */
    struct pp_routes_output taken; /* --record-routing */

    double start; /* time of the first step's begin */
    int64_t first_step, last_step;
    int stopped; /* why the run stopped early (pp_job.stop), or 0 */
    struct pprun_lines lines;
    struct pprun_curve curve;
    struct pprun_history history;
    struct pprun_scores scores;
    struct pp_packed extended; /* --generate: data with room behind it */
    struct pprun_drawn *drawn; /* (sequences, --generate), on rank 0 */
    uint32_t *n_drawn;         /* (sequences) */
};

extern const struct tool_option pprun_option_table[];

/* Fills p->options and the parts of p->job that options set. Refuses options
 * that would have no effect. */
int pprun_read_options(struct pprun *p, int argc, char **argv) PP_MUST_USE;

/* --- pprun_settings.c: --objective, --router and --loss --- */

int pprun_parse_settings(struct tool *t, const struct tool_option *o,
                         const char *arg) PP_MUST_USE;
/* List names for completion. */
void pprun_list_router(const char *words[]);
void pprun_list_loss(const char *words[]);

/* Completes the settings, and gives them to the job. */
int pprun_take_settings(struct pprun *p) PP_MUST_USE;

/* With -v, says which settings a run that trains has. */
void pprun_say_settings(const struct pprun *p);

/* Fills p->job from the options and the manifest, a file name or "-". Opens and
 * checks every file before a rank starts, except for weights and checkpoints
 * with --print-memory. */
int pprun_prepare(struct pprun *p, const char *manifest) PP_MUST_USE;
void pprun_finish(struct pprun *p);

/* Returns the table of CPU kernels that the options ask for, in fp64 or fp32.
 */
const struct pp_kernels *pprun_cpu_kernels(const struct pprun *p, bool fp64);

/* Opens the data and the evaluation data, and counts the steps of --epochs.
 * Needs the model and the schedule. */
int pprun_open_data(struct pprun *p) PP_MUST_USE;

/* --- pprun_generator.c: a generator behind the language model --- */

/* Reads the model of the generator, if the plan has one, and puts it behind the
 * language model. Refuses what pprun does not do with it. */
int pprun_read_generator(struct pprun *p) PP_MUST_USE;

/* Gives the language model the generator's rows, if the ranks of both divide
 * rows alike: then nothing crosses a bridge. */
void pprun_join_generator(struct pp_layout *l);

/* Checks that data have tokens for the generator. */
int pprun_check_generator_data(const struct pprun *p, const char *dir,
                               const struct pp_packed *data) PP_MUST_USE;

/* Adds the generator's weights to those of the run, which are at path: those in
 * PATH/generator, or of the plan. */
int pprun_open_generator(struct pprun *p, const char *path) PP_MUST_USE;

/* Makes the config.json of the generator in checkpoints. */
int pprun_generator_config(struct pprun *p, const char *dtype) PP_MUST_USE;

/* Refuses what pprun does not do with a model that has an encoder of images. */
int pprun_check_images(const struct pprun *p) PP_MUST_USE;

/* Returns the columns of the data, as bits. */
unsigned pprun_columns(const struct pp_packed *data);

/* Compares the files of the data with their checksums; if they are large and
 * the run does not verify, in the background. PP_EXIT_INPUT if one is
 * damaged. */
int pprun_check_data(struct pprun *p) PP_MUST_USE;
int pprun_check_files(void *ctx, bool end, struct pp_err *err) PP_MUST_USE;

/* After a run that failed because of its input, waits for the background check,
 * and takes its error if a file is damaged. */
void pprun_blame_data(struct pprun *p);

/* --- pprun_save.c --- */

/* Checks that the run can save, because it must not fail at its end. */
int pprun_prepare_save(struct pprun *p) PP_MUST_USE;

/* Refuses to replace checkpoints if the user forgot --resume. */
int pprun_spare_checkpoints(struct pprun *p) PP_MUST_USE;

/* --- pprun_resume.c --- */

/* Finds the checkpoint to resume from, at rank 0. */
int pprun_find_resume(struct pprun *p) PP_MUST_USE;

/* Compares this process's part of the checkpoint's files with their checksums.
 * PP_EXIT_INPUT if one is damaged. */
int pprun_check_resume(struct pprun *p) PP_MUST_USE;

/* After such a failure takes the checkpoint before it, with --fall-back; or
 * names it in the message, and fails. */
int pprun_fall_back(struct pprun *p) PP_MUST_USE;

/* Sets the learning rate if none is given: that of the checkpoint, or the usual
 * one for weights that are given, or for random ones. */
int pprun_choose_lr(struct pprun *p) PP_MUST_USE;

/* Compares this process's part of weights that pprun saved with their
 * checksums. */
int pprun_check_weights(struct pprun *p, const char *path) PP_MUST_USE;

/* Sets the job's device and kernels. */
int pprun_choose_device(struct pprun *p) PP_MUST_USE;

/* Takes the dtype of the plan if none is given: on a GPU the plan's, on a CPU
 * fp32. Chooses the kernels again. */
void pprun_choose_dtype(struct pprun *p);

/* Refuses a model of odd sizes in bf16, whose kernels take two at once. */
int pprun_check_sizes(const struct pprun *p,
                      const struct pp_model *m) PP_MUST_USE;

/* Checks that this machine has the device, and address space for matrix
 * products, before a rank starts. */
int pprun_check_device(struct pprun *p) PP_MUST_USE;

/* The memory of a rank of a row, and of this process for the ranks of the row,
 * beside what they allocate: of the host. channels: those to these ranks, and
 * what they are in the process; stacks: of their threads. Both 0 if ranks are
 * processes. */
struct pprun_row_memory {
    struct pp_rank_memory rank;
    int ranks;
    size_t channels, stacks;
};

/* Computes the memory of every rank and refuses (PP_EXIT_NO) a plan above
 * --memory. Prints it with -v as a table, with --print-memory as JSON on the
 * output. Notes how much more it is than planned, if the data are larger.
 * Refuses a run (PP_EXIT_SYSTEM) if this machine does not have the
 * memory of its ranks: rank r is on it if here(ctx, r); NULL: all are. */
int pprun_check_memory(struct pprun *p, bool (*here)(void *ctx, int rank),
                       void *ctx) PP_MUST_USE;

/* Returns the name of what the schedule's slots hold, in the plural. */
static inline const char *pprun_slots(const struct pp_graph *g)
{
    return g->n_slices > 1 ? "slices of microbatches" : "microbatches";
}

/* --verify. prepare sets options, model and data before memory is planned;
 * verify makes the runs and prints the result. */
int pprun_verify_prepare(struct pprun *p) PP_MUST_USE;
int pprun_verify(struct pprun *p) PP_MUST_USE;

/* --trace and --profile. init says what to record, and opens the files at rank
 * 0 before the run. recorded, a callback at rank 0, writes them. close renames
 * them to their final names, or removes them if the run has failed. */
int pprun_record_init(struct pprun *p) PP_MUST_USE;
int pprun_recorded(void *ctx, const struct pp_record *r,
                   struct pp_err *err) PP_MUST_USE;
int pprun_record_close(struct pprun *p);

/* --replay-routing and --record-routing (pprun_routing.c). open reads the file
 * to replay, in every process. create makes the file to record, at rank 0, and
 * join opens it in other processes, by the name that rank 0 gives it. close
 * puts it in its place, or removes it if the run has failed; other processes
 * must have left it. */
int pprun_routing_open(struct pprun *p) PP_MUST_USE;
int pprun_routing_create(struct pprun *p) PP_MUST_USE;
int pprun_routing_join(struct pprun *p, struct pp_rendezvous *j) PP_MUST_USE;
int pprun_routing_close(struct pprun *p);

/* Plans what pprun_threads allocates, and fills rows (rows of the schedule). */
int pprun_threads_memory(struct pprun *p,
                         struct pprun_row_memory *rows) PP_MUST_USE;

/* Runs all ranks as threads of this process. */
int pprun_threads(struct pprun *p, enum pp_exit *status) PP_MUST_USE;

/* Runs the rank of this process (--transport mpi or nccl): joins the others and
 * does all from pprun_prepare to the end. Sets p->tool->told if another rank
 * prints the error. */
int pprun_process(struct pprun *p, const char *manifest,
                  enum pp_exit *status) PP_MUST_USE;

/* Returns the observer of the other processes (pprun_watch.c). ctx is p. */
struct pp_rendezvous_observer pprun_observer(struct pprun *p);

/* Refuses --transport threads in one of several processes of a job. */
int pprun_check_alone(struct pprun *p) PP_MUST_USE;

/* Called when all is saved and an output is left whose reader may stall: from
 * now on a signal ends the run. If one came before, the reader has a few
 * seconds. */
void pprun_release_signals(void);
/* Returns true if a signal asked this process to stop. */
bool pprun_signalled(void);
/* Notes that a version of --stream-weights was not taken. */
void pprun_weights_missed(void *ctx, int64_t step, const char *why);

/* Opens the output. Step lines go to a file as they are made. open changes no
 * line; begin removes those that the run will write again. */
int pprun_lines_open(struct pprun *p) PP_MUST_USE;
int pprun_lines_begin(struct pprun *p) PP_MUST_USE;

/* Prints a note unless standard error would block: it may be the pipe that
 * stalled. */
void pprun_lines_note(struct pprun *p, const char *text);

/* Writes a line to the output and waits for its reader. After a stop request it
 * keeps the line instead of waiting; if the checkpoint is complete (stop), it
 * waits a short time. With --save a failed write does not fail the run before
 * pprun_lines_finish. Rank 0 alone calls it. */
int pprun_lines_write(struct pprun *p, const char *line, size_t n, bool stop,
                      struct pp_err *err) PP_MUST_USE;
/* Writes the lines that were kept, after the run. Fails if the output failed
 * and no signal came. */
int pprun_lines_finish(struct pprun *p) PP_MUST_USE;
void pprun_lines_free(struct pprun *p);
const char *pprun_output_name(const struct pprun *p);

/* Lets a rank that has printed its error end with its own exit status, although
 * its launcher sends SIGTERM. */
void pprun_ignore_signals(void);

/* Shows a step on the terminal of standard error. The line of the last step,
 * and of one with an evaluation, stays. */
void pprun_show_progress(struct pprun *p, const struct pp_step_report *r);
/* Returns false if the terminal has the progress instead of JSON lines. */
bool pprun_lines_shown(const struct pprun *p);

/* --svg, at rank 0. draw writes the picture; add takes a step and draws from
 * time to time. */
int pprun_curves_draw(struct pprun *p, struct pp_err *err) PP_MUST_USE;
void pprun_curves_add(struct pprun *p, const struct pp_step_report *r);
void pprun_curves_free(struct pprun *p);

/* --print-metadata-hash: write a line for each rank; fail if the ranks of a
 * data-parallel lane differ. */
void pprun_write_metadata(const struct pprun *p, const struct pp_step_report *r,
                          FILE *f);
int pprun_check_metadata(const struct pprun *p, const struct pp_step_report *r,
                         struct pp_err *err) PP_MUST_USE;

/* The job's callbacks. */
int pprun_report(void *ctx, const struct pp_step_report *r,
                 struct pp_err *err) PP_MUST_USE;
int pprun_evaluated(void *ctx, const struct pp_step_report *r,
                    struct pp_err *err) PP_MUST_USE;
void pprun_scored(void *ctx, const struct pp_token_place *at,
                  const double *values, size_t n);

/* --logprobs. open makes the files before the run, on rank 0; write writes the
 * lines after it. Without the option both do nothing. */
int pprun_scores_open(struct pprun *p) PP_MUST_USE;
int pprun_scores_write(struct pprun *p) PP_MUST_USE;
void pprun_scores_close(struct pprun *p);

/* --generate. prepare changes the job; open makes room for the tokens before
 * the run, on rank 0, and write writes the lines after it. Without the option
 * these two do nothing. */
int pprun_generate_prepare(struct pprun *p) PP_MUST_USE;
int pprun_generate_open(struct pprun *p) PP_MUST_USE;
int pprun_generate_write(struct pprun *p) PP_MUST_USE;

/* Prints the result of every case of --objective-cases. */
int pprun_objective_cases(struct pprun *p) PP_MUST_USE;

/* Writes the metrics of an objective that the data's columns allow, as members
 * of the open object. */
struct pp_json_writer;
void pprun_write_metrics(struct pp_json_writer *w, const struct pp_objective *o,
                         unsigned columns, const char *prefix,
                         const double *metrics);

/* --- pprun_launch.c: the variables of launchers --- */

struct pprun_launch {
    const char *launcher;  /* NULL: none */
    const char *size_from; /* the variable that gave the number of ranks */
    struct pp_rendezvous_place place;
    char address[256];
    char secret[1024]; /* place.secret, if there is one */
};

/* Reads the environment of torchrun, Open MPI, PMI or Slurm. Fails with
 * PP_EXIT_INPUT if a value is invalid, or if to_join and the address of rank 0
 * is missing. If l->place.address is set after a failure, the caller can still
 * tell rank 0. */
int pprun_launch_read(struct pprun_launch *l, bool to_join,
                      struct pp_err *err) PP_MUST_USE;

/* Sets the secret of the job, if there is one (pprun_secret.c). file may be
 * NULL. */
int pprun_find_secret(struct pprun_launch *l, const char *file,
                      struct pp_err *err) PP_MUST_USE;

#endif
