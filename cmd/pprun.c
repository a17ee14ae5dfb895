/* SPDX-License-Identifier: MIT */
/* pprun - trains: the course of a run. */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/num.h"
#include "blas_threads.h"
#include "pprun.h"
#include "version.h"

/* Set by the first SIGTERM or SIGUSR1. The only variable of its kind: blocking
 * the signals and looking for pending ones would need none, but BLAS starts
 * threads of its own before main, which block nothing. */
static atomic_int stop_signal;

static void take_signal(int signal)
{
    stop_signal = signal;
}

static bool stop_requested(void *ctx)
{
    (void)ctx;
    return stop_signal != 0;
}

static void handle_signals(void)
{
    struct sigaction action = {.sa_handler = take_signal,
                               .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

/* Before the first product: OpenBLAS does not report what it lacks. */
static int check_room(struct pprun *p)
{
    size_t bytes;
    char text[32];
    /* Every rank's thread, and those that help them. */
    int n = p->job.schedule->graph->n_ranks + p->options.blas_threads - 1;
    if (pp_cpu_blas_has_room(n, &bytes))
        return 0;
    pp_format_size(bytes, text);
    return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                   "out of memory: matrix products need %s of address space",
                   text);
}

static int run_process(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    if (p->job.save)
        handle_signals();
    if (pprun_process(p, manifest, &status))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

static int run(struct pprun *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    pp_cpu_blas_threads(p->options.blas_threads);
    if (p->options.transport == PPRUN_NCCL)
        return run_process(p, manifest);
    if (pprun_check_alone(p) || !tool_output(p->tool) ||
        pprun_choose_device(p) || pprun_prepare(p, manifest))
        return -1;
    if (p->options.verify && pprun_verify_prepare(p))
        return -1;
    if (pprun_check_memory(p))
        return -1;
    if (p->options.plan)
        return 0;
    if (pprun_check_device(p))
        return -1;
    if (p->options.verify)
        return check_room(p) ? -1 : pprun_verify(p);
    /* Without --save a signal ends the run as usual: there is nothing to
     * come back to. */
    if (p->job.save)
        handle_signals();
    if (p->options.logprobs && pprun_logprobs_init(p))
        return -1;
    tool_progress(p->tool, p->job.optim.steps ? "the first step ..."
                                              : "going through the data ...");
    if (check_room(p) || pprun_record_init(p))
        return -1;
    int rc = pprun_threads(p, &status);
    if (pprun_record_close(p) || rc)
        return -1;
    if (p->options.logprobs && pprun_logprobs_write(p))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

/* Of a run that ended well: whether it had a step to make. */
static void say_nothing_left(struct pprun *p)
{
    int64_t steps = p->job.optim.steps;
    if (p->resume && steps > 0 && p->start == 0 && p->rank == 0 &&
        p->tool->status == PP_EXIT_OK)
        tool_say(p->tool, PP_LOG_NOTE,
                 "nothing left to do: %s has all of --steps '%" PRId64 "'",
                 p->resume, steps);
}

int main(int argc, char **argv)
{
    struct tool t = {
        .name = "pprun",
        .synopsis = "[options] [MANIFEST]",
        .summary = "Trains the model of a stage manifest over its pipeline.",
        .options = pprun_option_table,
        .facts = PP_RUN_FACTS,
    };
    struct pprun p = {
        .tool = &t,
        .options = {.seed = -1, .blas_threads = 1},
        .job = {.accumulate = 1,
                .optim = {.lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .clip = 1},
                .report = pprun_report,
                .evaluated = pprun_evaluated,
                .recorded = pprun_recorded,
                .stop = stop_requested},
    };
    const char *manifest;
    p.job.ctx = &p;
    p.argv = argv;
    if (pprun_read_options(&p, argc, argv))
        return tool_finish(&t);
    if (tool_input(&t, argc, argv, &manifest) == 0 && run(&p, manifest) == 0)
        say_nothing_left(&p);
    pprun_finish(&p);
    size_t bytes;
    int status = tool_finish(&t);
    /* OpenBLAS's exit handler waits for its threads, which do not end while
     * they are refused memory. */
    if (!pp_cpu_blas_has_room(1, &bytes))
        _exit(status);
    return status;
}
