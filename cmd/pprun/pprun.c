/* SPDX-License-Identifier: MIT */
/* pprun - main(), signals, and the order of a run's steps. */
#include <inttypes.h>
#include <signal.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "kernels.h"
#include "pprun.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"
#include "version.h"

/* --- signals --- */

/* After a stop request, the time of a reader of a trace or a profile. */
enum { READER_SECONDS = 5 };

/* The time of the first SIGINT, minus the number of SIGTERM or SIGUSR1, 0
 * without a request to stop. It is global because a signal handler sets it.
 * Polling for blocked signals would need no handler, but BLAS starts threads
 * before main, and these threads do not block the signals. */
static _Atomic double stop_signal;

/* SIGUSR2 came: the sampler asks for the weights. */
static atomic_bool weights_signal;

static void ask_weights(int number)
{
    (void)number;
    weights_signal = true;
}

/* Returns true once after each SIGUSR2. */
static bool weights_asked(void *ctx)
{
    (void)ctx;
    return atomic_exchange(&weights_signal, false);
}

static void take_signal(int number)
{
    double none = 0;
    atomic_compare_exchange_strong(&stop_signal, &none, -number);
}

/* A second SIGINT ends the run at once, but not within a second: a launcher may
 * repeat the signal that the terminal sent. */
static void take_interrupt(int number)
{
    double now = pp_clock(), first = stop_signal;
    if (first <= 0) {
        stop_signal = now;
    } else if (now - first > 1) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

bool pprun_signalled(void)
{
    return stop_signal != 0;
}

/* Returns the number of the signal that came, or PP_STOP_OTHER if, with --save,
 * the output failed. */
static int stop_requested(void *ctx)
{
    struct runner *p = ctx;
    double signal = stop_signal;
    if (signal != 0)
        return signal < 0 ? -(int)signal : SIGINT;
    return pprun_of(p)->lines.failed ? PP_STOP_OTHER : 0;
}

/* Ends a run that has nothing to save. */
static void end_unsaved(int number)
{
    runner_tell("pprun: stopped by a signal; without --save nothing is kept\n");
    signal(number, SIG_DFL);
    raise(number);
}

/* Installs signal handlers. With --save a signal asks all ranks to stop.
 * Without it a signal ends the run at once, because there is no checkpoint to
 * resume. */
static void install_handlers(const struct runner *p)
{
    if (p->job.stream.path) {
        runner_handle(SIGUSR2, ask_weights);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    }
    if (p->job.save) {
        runner_handle(SIGTERM, take_signal);
        runner_handle(SIGUSR1, take_signal);
        struct sigaction at_start;
        if (sigaction(SIGINT, NULL, &at_start) == 0 &&
            at_start.sa_handler != SIG_IGN)
            runner_handle(SIGINT, take_interrupt);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    } else if (p->options.transport != RUNNER_THREADS) {
        runner_end_soon();
    } else if (p->job.optim.steps > 0) {
        runner_handle(SIGTERM, end_unsaved);
        runner_handle(SIGUSR1, end_unsaved);
    }
}

static void end_stopped(int number)
{
    (void)number;
    runner_tell(
        "pprun: stopped by a signal; the trace or profile is lost: nothing "
        "reads it\n");
    _exit(PP_EXIT_STOPPED);
}

void pprun_release_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; !pprun_signalled() && i < 3; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            runner_handle(numbers[i], SIG_DFL);
    }
    if (pprun_signalled()) {
        runner_handle(SIGALRM, end_stopped);
        alarm(READER_SECONDS);
    }
}

/* --- the run --- */

/* Sets the microbatches of an epoch, so that it ends with a step if
 * --last-batch says so, and the steps of --epochs. */
static int count_steps(struct runner *p)
{
    const struct pprun_options *o = &pprun_of(p)->options;
    uint64_t each = (uint64_t)p->manifest.schedule.n_microbatches *
                    (uint64_t)p->manifest.mesh.dp * (uint64_t)p->job.accumulate;
    uint64_t whole = p->data.n_bins / each, rest = p->data.n_bins % each;
    if (runner_match_data(p))
        return -1;
    if (o->last_batch == PPRUN_LAST_DROP && whole == 0)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "--last-batch drop leaves nothing: the data has %zu "
                       "bins, and a step takes %" PRIu64,
                       p->data.n_bins, each);
    if (o->last_batch == PPRUN_LAST_DROP)
        p->data.epoch.length = whole * each;
    if (o->last_batch == PPRUN_LAST_SHORT)
        p->data.epoch.length = (whole + (rest > 0)) * each;
    if (o->epochs > 0)
        p->job.optim.steps = (int64_t)ceil(
            o->epochs * (double)pp_packed_epoch(&p->data) / (double)each);
    return 0;
}

/* Directories of checkpoints are locked before one is looked for. */
static int prepare(struct runner *p)
{
    return pprun_prepare_save(p) || runner_find_resume(p) ||
                   pprun_spare_checkpoints(p)
               ? -1
               : 0;
}

/* Ends the output of a run that saved what it did. */
static int end(struct runner *p)
{
    return p->job.save ? pprun_lines_finish(p) : 0;
}

static const struct runner_hooks hooks = {
    .output = pprun_lines_open,
    .data = count_steps,
    .prepare = prepare,
    .open = pprun_record_init,
    .signals = install_handlers,
    .begin = pprun_lines_begin,
    .end = end,
    .close = pprun_record_close,
};

static int verify(struct runner *p, const char *manifest)
{
    pp_blas_set_threads(p->options.blas_threads);
    if (runner_prepare_threads(p, manifest) || pprun_verify_prepare(p) ||
        runner_check_memory(p, NULL, NULL) || runner_check_device(p))
        return -1;
    return pprun_verify(p);
}

static int run_command(struct runner *p, const char *manifest)
{
    if (pprun_of(p)->options.launch >= 0)
        return pprun_print_launch(p, manifest);
    if (pprun_of(p)->options.merge)
        return pprun_merge(p, manifest);
    return p->options.verify ? verify(p, manifest) : runner_run(p, manifest);
}

/* Notes when a resumed run had no steps left, and where it saved what it
 * resumed. */
static void say_nothing_left(struct runner *p)
{
    int64_t steps = p->job.optim.steps;
    struct pp_ckpt_state s;
    struct pp_err ignored = {0};
    char saved[PP_PATH_TEXT] = "";
    if (!p->resume || steps == 0 || pprun_of(p)->start != 0 || p->rank != 0 ||
        p->tool->status != PP_EXIT_OK)
        return;
    if (p->job.save && pp_ckpt_state_read(p->resume, &s, &ignored) == 0 &&
        pp_path(saved, &ignored, "%s/" PP_CKPT_NAME, p->job.save, s.step))
        saved[0] = '\0';
    bool elsewhere = saved[0] && strcmp(saved, p->resume) != 0;
    tool_say(p->tool, TOOL_NOTE,
             "nothing left to do: %s has all of --steps '%" PRId64 "'%s%s",
             p->resume, steps, elsewhere ? "; it is saved as " : "",
             elsewhere ? saved : "");
}

/* Notes which signal stopped the run, and where it continues. */
static void say_stopped(struct runner *p)
{
    char text[256];
    if (p->rank != 0 || pprun_of(p)->stopped <= 0 ||
        p->tool->status != PP_EXIT_STOPPED)
        return;
    snprintf(text, sizeof text,
             "stopped by SIG%s after step %" PRId64 "; checkpoint "
             "%s/" PP_CKPT_NAME,
             sigabbrev_np(pprun_of(p)->stopped), pprun_of(p)->last_step,
             p->job.save, pprun_of(p)->last_step);
    pprun_lines_note(p, text);
}

static void finish(struct pprun *own)
{
    if (own->save_lock > 0)
        close(own->save_lock);
    if (own->stream_lock > 0)
        close(own->stream_lock);
    pprun_lines_free(&own->runner);
    pprun_curves_free(&own->runner);
    free(own->config_text);
    free(own->generator_config);
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pprun",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Trains the model of a stage manifest over its pipeline.",
        .options = pprun_option_table,
        .shared = runner_option_table,
        .everyday = "data weights init objective steps epochs lr lr-schedule "
                    "warmup weight-decay clip device dtype transport memory "
                    "print-memory save save-every resume eval "
                    "verify profile svg output verbose help",
        .facts = PP_RUN_FACTS,
    };
    struct pprun own = {
        .options = {.launch = -1},
        .runner = {.tool = &t,
                   .hooks = &hooks,
                   .options = RUNNER_DEFAULTS,
                   .size = 1,
                   .job = {.accumulate = 1,
                           .optim = {.lr = -1,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .clip = 1},
                           .report = pprun_report,
                           .stream = {.timeout = 10},
                           .stream_asked = weights_asked,
                           .stream_missed = pprun_weights_missed,
                           .evaluated = pprun_evaluated,
                           .recorded = pprun_recorded,
                           .stop = stop_requested,
                           .check_files = runner_check_files}},
    };
    struct runner *p = &own.runner;
    const char *manifest;
    p->job.ctx = p;
    pp_settings_init(&p->job.settings);
    if (pprun_read_options(p, argc, argv))
        return tool_finish(&t);
    p->job.record.layers = own.options.profile != NULL;
    if (own.options.cases) {
        if (pprun_objective_cases(p))
            return tool_finish(&t);
    } else if (tool_input(&t, &manifest) == 0 &&
               run_command(p, manifest) == 0) {
        say_nothing_left(p);
        say_stopped(p);
    }
    runner_finish(p);
    finish(&own);
    return runner_exit(&t);
}
