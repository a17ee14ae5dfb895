/* SPDX-License-Identifier: MIT */
/* run - the order of a run's steps, whatever its ranks are, and signals if they
 * are processes. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels.h"
#include "runner/runner.h"

/* --- signals --- */

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

void runner_handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void runner_end_soon(void)
{
    runner_handle(SIGALRM, end_now);
    runner_handle(SIGTERM, end_soon);
}

void runner_tell(const char *text)
{
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1 && write(STDERR_FILENO, text, strlen(text)) < 0)
        alarm(0); /* there is no one to tell */
}

/* end_by_force prints it. It is global because a signal handler reads it. */
static struct {
    atomic_flag ends;
    char text[768];
} forced = {.ends = ATOMIC_FLAG_INIT};

static void end_by_force(int number)
{
    (void)number;
    runner_tell(forced.text);
    _exit(PP_EXIT_SYSTEM);
}

void runner_must_end(const char *name, const char *why)
{
    enum { SECONDS = 20 };
    signal(SIGTERM, SIG_IGN);
    if (atomic_flag_test_and_set(&forced.ends))
        return;
    snprintf(forced.text, sizeof forced.text,
             "%s: ended by force, because something did not end within %d s "
             "after: %s\n",
             name, SECONDS, why);
    runner_handle(SIGALRM, end_by_force);
    alarm(SECONDS);
}

/* --- the run --- */

static int run_process(struct runner *p, const char *manifest)
{
    enum pp_exit status = PP_EXIT_OK;
    p->hooks->signals(p);
    if (runner_process(p, manifest, &status))
        return -1;
    p->tool->status = (int)status;
    return 0;
}

int runner_prepare_threads(struct runner *p, const char *manifest)
{
    if (runner_check_alone(p) || p->hooks->output(p) ||
        runner_choose_device(p) || runner_prepare(p, manifest))
        return -1;
    while (runner_check_resume(p))
        if (runner_fall_back(p))
            return -1;
    return runner_take_resumed(p) || (!p->options.plan && runner_check_data(p))
               ? -1
               : 0;
}

static int run_threads(struct runner *p)
{
    enum pp_exit status = PP_EXIT_OK;
    /* A FIFO waits for its reader, and a signal ends that. */
    if (p->hooks->open(p) || runner_routing_create(p))
        return -1;
    p->hooks->signals(p);
    tool_progress(p->tool, p->job.optim.steps ? "the first step ..."
                                              : "going through the data ...");
    if (p->hooks->begin(p))
        return -1;
    int rc = runner_threads(p, &status);
    if (rc)
        runner_blame_data(p);
    if (rc == 0)
        rc = p->hooks->end(p);
    if (runner_routing_close(p) || p->hooks->close(p) || rc)
        return -1;
    p->tool->status = (int)status;
    return 0;
}

int runner_run(struct runner *p, const char *manifest)
{
    pp_blas_set_threads(p->options.blas_threads);
    if (p->options.transport != RUNNER_THREADS)
        return run_process(p, manifest);
    if (runner_prepare_threads(p, manifest) ||
        runner_check_memory(p, NULL, NULL))
        return -1;
    if (p->options.plan)
        return 0;
    return runner_check_device(p) || run_threads(p) ? -1 : 0;
}

int runner_exit(struct tool *t)
{
    size_t bytes;
    int status = tool_finish(t);
    /* OpenBLAS's exit handler waits for its threads, which do not end while
     * they cannot get memory. */
    if (!pp_blas_has_memory(1, &bytes))
        _exit(status);
    return status;
}
