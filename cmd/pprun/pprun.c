/* SPDX-License-Identifier: MIT */
/* pprun - main(), signals, and the order of a run's steps. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "kernels.h"
#include "pprun.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/ckpt_files.h"
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
    struct pprun *p = ctx;
    double signal = stop_signal;
    if (signal != 0)
        return signal < 0 ? -(int)signal : SIGINT;
    return p->lines.failed ? PP_STOP_OTHER : 0;
}

/* mpirun sends SIGTERM to all ranks when one is lost. One second is enough to
 * print which rank was lost. */
static void end_soon(int number)
{
    (void)number;
    alarm(1);
}

static void end_now(int number)
{
    (void)number;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}

/* Prints from a signal handler, if standard error takes it. */
static void tell(const char *text)
{
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1 && write(STDERR_FILENO, text, strlen(text)) < 0)
        alarm(0); /* there is no one to tell */
}

/* Ends a run that has nothing to save. */
static void end_unsaved(int number)
{
    tell("pprun: stopped by a signal; without --save nothing is kept\n");
    signal(number, SIG_DFL);
    raise(number);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void pprun_ignore_signals(void)
{
    alarm(0);
    signal(SIGTERM, SIG_IGN);
}

/* Installs signal handlers. With --save a signal asks all ranks to stop.
 * Without it a signal ends the run at once, because there is no checkpoint to
 * resume. */
static void install_handlers(const struct pprun *p)
{
    if (p->job.stream.path) {
        handle(SIGUSR2, ask_weights);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    }
    if (p->job.save) {
        handle(SIGTERM, take_signal);
        handle(SIGUSR1, take_signal);
        struct sigaction at_start;
        if (sigaction(SIGINT, NULL, &at_start) == 0 &&
            at_start.sa_handler != SIG_IGN)
            handle(SIGINT, take_interrupt);
        signal(SIGPIPE, SIG_IGN); /* a write fails instead */
    } else if (p->options.transport != PPRUN_THREADS) {
        handle(SIGALRM, end_now);
        handle(SIGTERM, end_soon);
    } else if (p->job.optim.steps > 0) {
        handle(SIGTERM, end_unsaved);
        handle(SIGUSR1, end_unsaved);
    }
}

static void end_stopped(int number)
{
    (void)number;
    tell("pprun: stopped by a signal; the trace or profile is lost: nothing "
         "reads it\n");
    _exit(PP_EXIT_STOPPED);
}

void pprun_release_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; !pprun_signalled() && i < 3; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            handle(numbers[i], SIG_DFL);
    }
    if (pprun_signalled()) {
        handle(SIGALRM, end_stopped);
        alarm(READER_SECONDS);
    }
}

/* --- the run --- */

static int run_process(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    install_handlers(p);
    if (pprun_process(p, manifest, &status))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

/* Prepares the job of all ranks, and prints their memory. */
static int prepare_threads(struct pprun *p, const char *manifest)
{
    if (pprun_check_alone(p) || pprun_lines_open(p) || pprun_choose_device(p) ||
        pprun_prepare(p, manifest))
        return -1;
    while (pprun_check_resume(p))
        if (pprun_fall_back(p))
            return -1;
    if (pprun_choose_lr(p) || (!p->options.plan && pprun_check_data(p)) ||
        (p->options.verify && pprun_verify_prepare(p)))
        return -1;
    return pprun_check_memory(p, NULL, NULL);
}

static int run_threads(struct pprun *p)
{
    enum pp_exit status = PP_EXIT_OK;
    /* A FIFO waits for its reader, and a signal ends that. */
    if (pprun_generate_open(p) || pprun_scores_open(p) ||
        pprun_routing_create(p) || pprun_record_init(p))
        return -1;
    install_handlers(p);
    tool_progress(p->tool, p->job.optim.steps ? "the first step ..."
                                              : "going through the data ...");
    if (pprun_lines_begin(p))
        return -1;
    int rc = pprun_threads(p, &status);
    if (rc)
        pprun_blame_data(p);
    if (rc == 0 && p->job.save)
        rc = pprun_lines_finish(p);
    if (pprun_routing_close(p) || pprun_record_close(p) || rc)
        return -1;
    if (pprun_generate_write(p) || pprun_scores_write(p))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

static int run_command(struct pprun *p, const char *manifest)
{
    pp_blas_set_threads(p->options.blas_threads);
    if (p->options.transport != PPRUN_THREADS)
        return run_process(p, manifest);
    if (prepare_threads(p, manifest))
        return -1;
    if (p->options.plan)
        return 0;
    if (pprun_check_device(p))
        return -1;
    return p->options.verify ? pprun_verify(p) : run_threads(p);
}

/* Notes when a resumed run had no steps left, and where it saved what it
 * resumed. */
static void say_nothing_left(struct pprun *p)
{
    int64_t steps = p->job.optim.steps;
    struct pp_ckpt_state s;
    struct pp_err ignored = {0};
    char saved[PP_PATH_TEXT] = "";
    if (!p->resume || steps == 0 || p->start != 0 || p->rank != 0 ||
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
static void say_stopped(struct pprun *p)
{
    char text[256];
    if (p->rank != 0 || p->stopped <= 0 || p->tool->status != PP_EXIT_STOPPED)
        return;
    snprintf(text, sizeof text,
             "stopped by SIG%s after step %" PRId64 "; checkpoint "
             "%s/" PP_CKPT_NAME,
             sigabbrev_np(p->stopped), p->last_step, p->job.save, p->last_step);
    pprun_lines_note(p, text);
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pprun",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Trains the model of a stage manifest over its pipeline.",
        .options = pprun_option_table,
        .everyday = "data weights init objective steps epochs lr lr-schedule "
                    "warmup weight-decay clip device dtype transport memory "
                    "print-memory save save-every resume eval logprobs "
                    "generate verify profile svg output verbose help",
        .facts = PP_RUN_FACTS,
    };
    struct pprun p = {
        .tool = &t,
        .options = {.seed = -1,
                    .sample = -1,
                    .stop_id = -1,
                    .dtype = -1,
                    .blas_threads = 1,
                    .stall_timeout = 30},
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
                .check_files = pprun_check_files},
    };
    const char *manifest;
    p.job.ctx = &p;
    pp_settings_init(&p.job.settings);
    p.argv = argv;
    if (pprun_read_options(&p, argc, argv))
        return tool_finish(&t);
    if (p.options.cases) {
        if (pprun_objective_cases(&p))
            return tool_finish(&t);
    } else if (tool_input(&t, argc, argv, &manifest) == 0 &&
               run_command(&p, manifest) == 0) {
        say_nothing_left(&p);
        say_stopped(&p);
    }
    pprun_finish(&p);
    size_t bytes;
    int status = tool_finish(&t);
    /* OpenBLAS's exit handler waits for its threads, which do not end while
     * they cannot get memory. */
    if (!pp_blas_has_memory(1, &bytes))
        _exit(status);
    return status;
}
