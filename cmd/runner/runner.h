/* SPDX-License-Identifier: MIT */
/* runner - the part of a program between its options and its ranks, which pprun
 * and ppscore share: from options and a manifest it makes a job, opens and
 * checks its inputs, and runs its ranks as threads or as processes. A program
 * adds its own steps by hooks. */
#ifndef PP_CMD_RUNNER_RUNNER_H
#define PP_CMD_RUNNER_RUNNER_H

#include <stdatomic.h>

#include "comm/rendezvous.h"
#include "data/routes.h"
#include "manifest/manifest.h"
#include "run/execute/job.h"
#include "run/execute/progress.h"
#include "run/objectives/objective.h"
#include "tool.h"

/* The words of --dtype: indices of pp_precisions. */
enum runner_dtype { RUNNER_FP32, RUNNER_FP64, RUNNER_BF16 };
/* The words of --device. */
enum runner_device { RUNNER_CPU, RUNNER_CUDA };
/* The words of --transport. */
enum runner_transport { RUNNER_THREADS, RUNNER_MPI, RUNNER_NCCL };

/* The options that both programs have, and that the checks of inputs need. */
struct runner_options {
    const char *data, *eval, *weights, *adapter, *resume; /* paths, or NULL */
    const char *record_routing, *replay_routing;
    int64_t seed;  /* --init; -1: not given */
    int dtype;     /* enum runner_dtype; -1: not given */
    int device;    /* enum runner_device */
    int transport; /* enum runner_transport */
    int shapes;    /* enum pp_message_size */
    int blas_threads;
    bool row_invariant;
    bool plan;           /* --print-memory */
    bool verify, shrink; /* of pprun alone */
    bool fall_back;
    size_t memory;       /* of a rank in bytes; 0: no limit */
    int slots;           /* of a rank; 0: no limit */
    double join_timeout; /* seconds; 0: not given */
    const char *secret_file;
    double stall_timeout; /* seconds; 0: never */
    bool stall_wait;
};
#define RUNNER_DEFAULTS                                                 \
    {                                                                   \
        .seed = -1, .dtype = -1, .blas_threads = 1, .stall_timeout = 30 \
    }

struct runner;

/* The steps that a program adds. They fail with p->tool->err filled. */
struct runner_hooks {
    /* Opens the output, before the manifest is read. */
    int (*output)(struct runner *p);
    /* The data is open and checked; data for evaluations is not. */
    int (*data)(struct runner *p);
    /* All inputs but checkpoint and weights are open. Finds the checkpoint. */
    int (*prepare)(struct runner *p);
    /* Opens outputs that may wait for a reader, on every rank. */
    int (*open)(struct runner *p);
    /* Installs signal handlers. If ranks are processes, this comes first. */
    void (*signals)(const struct runner *p);
    /* The ranks start now. */
    int (*begin)(struct runner *p);
    /* The ranks are done without a failure, at rank 0. */
    int (*end)(struct runner *p);
    /* The ranks are done, or failed. */
    int (*close)(struct runner *p);
};

/* A job and all that it borrows. A program's own struct begins with it, so that
 * it is what tool->base points to. */
struct runner {
    struct tool *tool;
    const struct runner_hooks *hooks;
    struct runner_options options;
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
    char *resume; /* the checkpoint, or NULL */

    /* Used if ranks are processes. */
    int rank, size;           /* of this process; 0 of 1 if ranks are threads */
    const struct pp_mpi *mpi; /* --transport mpi */
    char name[128];           /* this process in messages */
    struct pp_progress progress;
    atomic_bool others_stop; /* at rank 0: another rank was asked to stop */
    char *text;              /* manifest that rank 0 read */
    size_t text_bytes;

    struct pp_routes given;        /* --replay-routing */
    struct pp_routes_output taken; /* --record-routing */
};

/* --- options.c --- */

/* The last options of both programs. */
extern const struct tool_option runner_option_table[];

/* Fails if an option of a transport goes with another device or task. */
int runner_check_transport(const struct runner *p) PP_MUST_USE;

/* --- run.c --- */

/* Prepares the job of ranks that are threads, but for its memory. */
int runner_prepare_threads(struct runner *p, const char *manifest) PP_MUST_USE;

/* Does all from reading the manifest to the end of the run, whatever the ranks
 * are; with --print-memory it ends early. */
int runner_run(struct runner *p, const char *manifest) PP_MUST_USE;

/* Ends the program like tool_finish. */
int runner_exit(struct tool *t);

/* Handles a signal, without interrupting calls. */
void runner_handle(int number, void (*handler)(int));

/* If ranks are processes and nothing is saved: a launcher sends SIGTERM to all
 * ranks when one is lost, and this one has time to say which. */
void runner_end_soon(void);

/* --- settings.c: --objective, --router and --loss --- */

int runner_parse_settings(struct tool *t, const struct tool_option *o,
                          const char *arg) PP_MUST_USE;
/* List names for completion. */
void runner_list_router(const char *words[]);
void runner_list_loss(const char *words[]);

/* Completes the settings, and gives them to the job. */
int runner_take_settings(struct runner *p) PP_MUST_USE;

/* With -v, says which settings a run that trains has. */
void runner_say_settings(const struct runner *p);

/* Fills p->job from the options and the manifest, a file name or "-". Opens and
 * checks every file before a rank starts, except for weights and checkpoints
 * with --print-memory. */
int runner_prepare(struct runner *p, const char *manifest) PP_MUST_USE;

/* Reads a manifest, and opens its model with its weights and no more. */
int runner_open_weights(struct runner *p, const char *manifest) PP_MUST_USE;

/* Reads and checks the manifest alone. "-" becomes "standard input". */
int runner_read_manifest(struct runner *p, const char **manifest) PP_MUST_USE;
void runner_finish(struct runner *p);

/* Returns the table of CPU kernels that the options ask for, in fp64 or fp32.
 */
const struct pp_kernels *runner_cpu_kernels(const struct runner *p, bool fp64);

/* Opens the data and the evaluation data, and counts the steps of --epochs.
 * Needs the model and the schedule. */
int runner_open_data(struct runner *p) PP_MUST_USE;

/* Checks that the open data is the data that the plan was made with, if any. */
int runner_match_data(const struct runner *p) PP_MUST_USE;

/* --- generator.c: a generator behind the language model --- */

/* Reads the model of the generator, if the plan has one, and puts it behind the
 * language model. Refuses what pprun does not do with it. */
int runner_read_generator(struct runner *p) PP_MUST_USE;

/* Gives the language model the generator's rows, if the ranks of both divide
 * rows alike: then nothing crosses a bridge. */
void runner_join_generator(struct pp_layout *l);

/* Checks that data have tokens for the generator. */
int runner_check_generator_data(const struct runner *p, const char *dir,
                                const struct pp_packed *data) PP_MUST_USE;

/* Adds the generator's weights to the weights of the run, which are at path:
 * from PATH/generator, or of the plan. */
int runner_open_generator(struct runner *p, const char *path) PP_MUST_USE;

/* Returns the columns that an objective finds with the data, as bits. */
unsigned runner_columns(const struct runner *p, const struct pp_packed *data);

/* Compares the files of the data with their checksums; if they are large and
 * the run does not verify, in the background. PP_EXIT_INPUT if one is
 * damaged. */
int runner_check_data(struct runner *p) PP_MUST_USE;
int runner_check_files(void *ctx, bool end, struct pp_err *err) PP_MUST_USE;

/* After a run that failed because of its input, waits for the background check,
 * and takes its error if a file is damaged. */
void runner_blame_data(struct runner *p);

/* --- resume.c --- */

/* Finds the checkpoint to resume from, at rank 0. */
int runner_find_resume(struct runner *p) PP_MUST_USE;

/* Compares this process's part of the checkpoint's files with their checksums.
 * PP_EXIT_INPUT if one is damaged. */
int runner_check_resume(struct runner *p) PP_MUST_USE;

/* After such a failure takes the checkpoint before it, with --fall-back; or
 * names it in the message, and fails. */
int runner_fall_back(struct runner *p) PP_MUST_USE;

/* Notes the settings of the checkpoint that this run changes. Sets the learning
 * rate if none is given: the checkpoint's rate, or the usual rate for given or
 * random weights. */
int runner_take_resumed(struct runner *p) PP_MUST_USE;

/* Compares this process's part of weights that pprun saved with their
 * checksums. */
int runner_check_weights(struct runner *p, const char *path) PP_MUST_USE;

/* Sets the job's device and kernels. */
int runner_choose_device(struct runner *p) PP_MUST_USE;

/* Takes the dtype of the plan if none is given: on a GPU the plan's, on a CPU
 * fp32. Chooses the kernels again. */
void runner_choose_dtype(struct runner *p);

/* Refuses a model of odd sizes in bf16, whose kernels take two at once. */
int runner_check_sizes(const struct runner *p,
                       const struct pp_model *m) PP_MUST_USE;

/* Checks that this machine has the device, and address space for matrix
 * products, before a rank starts. */
int runner_check_device(struct runner *p) PP_MUST_USE;

/* The memory of a rank of a row, and of this process for the ranks of the row,
 * beside what they allocate: of the host. channels: channels to these ranks,
 * and what they are in the process; stacks: of their threads. Both 0 if ranks
 * are processes. */
struct runner_row_memory {
    struct pp_rank_memory rank;
    int ranks;
    size_t channels, stacks, connections; /* of NCCL: of a rank, at most */
};

/* Computes the memory of every rank and refuses (PP_EXIT_NO) a plan above
 * --memory. Prints it with -v as a table, with --print-memory as JSON on the
 * output. Notes how much more it is than planned, if the data are larger.
 * Refuses a run (PP_EXIT_SYSTEM) if this machine does not have the
 * memory of its ranks: rank r is on it if here(ctx, r); NULL: all are. */
int runner_check_memory(struct runner *p, bool (*here)(void *ctx, int rank),
                        void *ctx) PP_MUST_USE;

/* Returns the name of what the schedule's slots hold, in the plural. */
static inline const char *runner_slots(const struct pp_graph *g)
{
    return g->slices.n > 1 ? "slices of microbatches" : "microbatches";
}

/* --replay-routing and --record-routing (routing.c). open reads the file
 * to replay, in every process. create makes the file to record, at rank 0, and
 * join opens it in other processes, by the name that rank 0 gives it. close
 * puts it in its place, or removes it if the run has failed; other processes
 * must have left it. */
int runner_routing_open(struct runner *p) PP_MUST_USE;
int runner_routing_create(struct runner *p) PP_MUST_USE;
int runner_routing_join(struct runner *p, struct pp_rendezvous *j) PP_MUST_USE;
int runner_routing_close(struct runner *p);

/* Plans what runner_threads allocates, and fills rows (rows of the schedule).
 */
int runner_threads_memory(struct runner *p,
                          struct runner_row_memory *rows) PP_MUST_USE;

/* Runs all ranks as threads of this process. */
int runner_threads(struct runner *p, enum pp_exit *status) PP_MUST_USE;

/* Runs the rank of this process (--transport mpi or nccl): joins the others and
 * does all from runner_prepare to the end. Sets p->tool->told if another rank
 * prints the error. */
int runner_process(struct runner *p, const char *manifest,
                   enum pp_exit *status) PP_MUST_USE;

/* Refuses --transport threads in one of several processes of a job. */
int runner_check_alone(struct runner *p) PP_MUST_USE;

/* After a failure of the job, ends this process with status 3 and a message if
 * it has not ended 20 seconds later, whatever it waits for. Until then it may
 * end with its own exit status, although its launcher sends SIGTERM. name is
 * the program's in messages. Only the first call counts. */
void runner_must_end(const char *name, const char *why);

/* Prints from a signal handler, if standard error takes it. */
void runner_tell(const char *text);

/* --- metrics.c --- */

struct pp_json_writer;

/* Writes the metrics of an objective that the data's columns allow, as members
 * of the open object. */
void runner_write_metrics(struct pp_json_writer *w,
                          const struct pp_objective *o, unsigned columns,
                          const char *prefix, const double *metrics);

/* Writes the metrics of an evaluation, if there are any. */
void runner_write_val_metrics(const struct runner *p,
                              const struct pp_step_report *r,
                              struct pp_json_writer *w);

/* Writes a line with the results of an evaluation. */
void runner_write_evaluation(const struct runner *p,
                             const struct pp_step_report *r, FILE *f);

/* --- launch.c: the variables of launchers --- */

struct runner_launch {
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
int runner_launch_read(struct runner_launch *l, bool to_join,
                       struct pp_err *err) PP_MUST_USE;

/* Sets the secret of the job, if there is one: of the file, unless that is
 * NULL, of the environment or of the launcher. */
int runner_find_secret(struct runner_launch *l, const char *file,
                       struct pp_err *err) PP_MUST_USE;

#endif
