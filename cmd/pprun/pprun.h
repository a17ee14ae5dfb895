/* SPDX-License-Identifier: MIT */
/* pprun - types and functions that the files of pprun share. */
#ifndef PP_CMD_PPRUN_H
#define PP_CMD_PPRUN_H

#include "runner/runner.h"

/* The words of --save-dtype; from the third on, the words of --dtype. */
enum pprun_save_dtype { PPRUN_SAVE_RUN, PPRUN_SAVE_MODEL, PPRUN_SAVE_FP32 };
/* The words of --last-batch: what a step does when the epoch ends in it. */
enum pprun_last_batch { PPRUN_LAST_WRAP, PPRUN_LAST_SHORT, PPRUN_LAST_DROP };
/* The options that pprun alone has. */
struct pprun_options {
    const char *merge, *cases, *trace, *profile, *svg; /* files, or NULL */
    int trace_steps; /* number of last steps; 0: not given */
    double epochs;   /* 0: not given */
    int last_batch;  /* enum pprun_last_batch */
    int save_dtype;  /* enum pprun_save_dtype */
    int launch;      /* of pprun_launchers; -1: not given */
    bool json;
};

/* The lines of a run at rank 0, see lines.c. */
struct pprun_lines {
    int fd;          /* valid if text is not NULL */
    char *text;      /* lines that the reader has not taken */
    size_t n;        /* bytes of text */
    double deadline; /* of the wait for the reader; 0: not yet */
    bool stop;       /* the run stops at the request of some rank */
    bool is_log;     /* lines go to a file that keeps lines of earlier runs */
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

struct pprun {
    struct runner runner;
    struct pprun_options options;
    char *config_text, *generator_config; /* of checkpoints */
    int save_lock;         /* descriptor of the directory of --save, or 0 */
    int stream_lock;       /* of that of --stream-weights */
    bool unscored;         /* a step without a scored token was named */
    FILE *trace, *profile; /* open during the run, or NULL */
    double start;          /* time of the first step's begin */
    int64_t first_step, last_step;
    int stopped; /* why the run stopped early (pp_job.stop), or 0 */
    struct pprun_lines lines;
    struct pprun_curve curve;
    struct pprun_history history;
};

/* Returns the program's own struct around a runner. */
static inline struct pprun *pprun_of(const struct runner *p)
{
    return (struct pprun *)(uintptr_t)p;
}

extern const struct tool_option pprun_option_table[];

/* Fills p->options and the parts of p->job that options set. Refuses options
 * that would have no effect. */
int pprun_read_options(struct runner *p, int argc, char **argv) PP_MUST_USE;

/* --- save.c --- */

/* Checks that the run can save, because it must not fail at its end. */
int pprun_prepare_save(struct runner *p) PP_MUST_USE;

/* Writes the model with its adapter (--merge). */
int pprun_merge(struct runner *p, const char *manifest) PP_MUST_USE;

/* Refuses to replace checkpoints if the user forgot --resume. */
int pprun_spare_checkpoints(struct runner *p) PP_MUST_USE;

/* --verify. prepare sets options, model and data before memory is planned;
 * verify makes the runs and prints the result. */
int pprun_verify_prepare(struct runner *p) PP_MUST_USE;
int pprun_verify(struct runner *p) PP_MUST_USE;

/* --trace and --profile. init says what to record, and opens the files at rank
 * 0 before the run. recorded, a callback at rank 0, writes them. close renames
 * them to their final names, or removes them if the run has failed. */
int pprun_record_init(struct runner *p) PP_MUST_USE;
int pprun_recorded(void *ctx, const struct pp_record *r,
                   struct pp_err *err) PP_MUST_USE;
int pprun_record_close(struct runner *p);

/* --- signals.c --- */

/* Installs signal handlers. With --save a signal asks all ranks to stop.
 * Without it a signal ends the run at once, because there is no checkpoint to
 * resume. */
void pprun_install_handlers(const struct runner *p);

/* Returns the number of the signal that came, or PP_STOP_OTHER if, with --save,
 * the output failed. ctx is the runner. */
int pprun_stop_requested(void *ctx);

/* Returns true once after each SIGUSR2. */
bool pprun_weights_asked(void *ctx);

/* Called when all is saved and an output is left whose reader may stall: from
 * now on a signal ends the run. If one came before, the reader has a few
 * seconds. */
void pprun_release_signals(void);
/* Returns true if a signal asked this process to stop. */
bool pprun_signalled(void);
/* Notes that a version of --stream-weights was not taken. */
void pprun_weights_missed(void *ctx, int64_t step, const char *why);

/* Opens the output. Step lines go to a file as they are made. open changes no
 * line; begin removes lines that the run will write again. */
int pprun_lines_open(struct runner *p) PP_MUST_USE;
int pprun_lines_begin(struct runner *p) PP_MUST_USE;

/* Prints a note unless standard error would block: it may be the pipe that
 * stalled. */
void pprun_lines_note(struct runner *p, const char *text);

/* Writes a line to the output and waits for its reader. After a stop request it
 * keeps the line instead of waiting; if the checkpoint is complete (stop), it
 * waits a short time. With --save a failed write does not fail the run before
 * pprun_lines_finish. Rank 0 alone calls it. */
int pprun_lines_write(struct runner *p, const char *line, size_t n, bool stop,
                      struct pp_err *err) PP_MUST_USE;
/* Writes the lines that were kept, after the run. Fails if the output failed
 * and no signal came. */
int pprun_lines_finish(struct runner *p) PP_MUST_USE;
void pprun_lines_free(struct runner *p);

/* Shows a step on the terminal of standard error. The line of the last step,
 * and of one with an evaluation, stays. */
void pprun_show_progress(struct runner *p, const struct pp_step_report *r);
/* Returns false if the terminal has the progress instead of JSON lines. */
bool pprun_lines_shown(const struct runner *p);

/* --svg, at rank 0. draw writes the picture; add takes a step and draws from
 * time to time. */
int pprun_curves_draw(struct runner *p, struct pp_err *err) PP_MUST_USE;
void pprun_curves_add(struct runner *p, const struct pp_step_report *r);
void pprun_curves_free(struct runner *p);

/* --print-metadata-hash: write a line for each rank; fail if the ranks of a
 * data-parallel lane differ. */
void pprun_write_metadata(const struct runner *p,
                          const struct pp_step_report *r, FILE *f);
int pprun_check_metadata(const struct runner *p, const struct pp_step_report *r,
                         struct pp_err *err) PP_MUST_USE;

/* The job's callbacks. */
int pprun_report(void *ctx, const struct pp_step_report *r,
                 struct pp_err *err) PP_MUST_USE;
int pprun_evaluated(void *ctx, const struct pp_step_report *r,
                    struct pp_err *err) PP_MUST_USE;

/* Prints the result of every case of --objective-cases. */
int pprun_objective_cases(struct runner *p) PP_MUST_USE;

/* --- launch.c: --print-launch --- */

extern const char *const pprun_launchers[];

/* Prints the command that starts the ranks of the plan. */
int pprun_print_launch(struct runner *p, const char *manifest) PP_MUST_USE;

#endif
