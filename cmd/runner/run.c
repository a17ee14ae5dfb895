/* SPDX-License-Identifier: MIT */
/* run - the order of a run's steps, whatever its ranks are. */
#include <unistd.h>

#include "kernels.h"
#include "runner/runner.h"

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
