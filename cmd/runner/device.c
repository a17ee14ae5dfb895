/* SPDX-License-Identifier: MIT */
/* device - the device and kernels of a run. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "kernels.h"
#include "model/precision.h"
#include "runner/runner.h"

#ifdef PP_HAVE_CUDA
#include "cuda_stream.h"
#include "device/device.h"

static int refuse_variable(struct runner *p, const char *name, const char *why)
{
    const char *given = getenv(name);
    return given && !strcmp(given, "1")
               ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "%s is '1': %s; unset it", name, why)
               : 0;
}

/* Sets variables before CUDA starts. Streams share this number of hardware
 * queues; with one queue, work that must overlap would wait. */
static int prepare_cuda(struct runner *p)
{
    const char *name = "CUDA_DEVICE_MAX_CONNECTIONS";
    if (refuse_variable(p, name, "messages would wait behind kernels"))
        return -1;
    if (p->options.transport == RUNNER_NCCL &&
        refuse_variable(
            p, "NCCL_COMM_BLOCKING",
            "a rank that waits for a lost rank could not be stopped"))
        return -1;
    if (setenv(name, "32", 0) != 0)
        return pp_fail_errno(&p->tool->err, "%s", name);
    /* A kernel that is loaded at its first use may wait for all queued work,
     * and NCCL's queued work may wait for another rank. */
    name = "CUDA_MODULE_LOADING";
    if (p->options.transport == RUNNER_NCCL && setenv(name, "EAGER", 0) != 0)
        return pp_fail_errno(&p->tool->err, "%s", name);
    return 0;
}

static void choose_cuda_kernels(struct runner *p)
{
    p->job.kernels = p->options.dtype == RUNNER_BF16 ? &pp_kernels_cuda_bf16
                                                     : &pp_kernels_cuda_f32;
}

static int choose_cuda(struct runner *p)
{
    if (p->options.dtype == RUNNER_FP64)
        return tool_usage(p->tool, "--dtype fp64 needs --device cpu");
    p->job.device = &pp_device_cuda;
    choose_cuda_kernels(p);
    return prepare_cuda(p);
}
#else
static void choose_cuda_kernels(struct runner *p)
{
    (void)p;
}

static int choose_cuda(struct runner *p)
{
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "--device cuda: this pprun was built without CUDA");
}
#endif

const struct pp_kernels *runner_cpu_kernels(const struct runner *p, bool fp64)
{
    static const struct pp_kernels *const tables[2][2] = {
        {&pp_kernels_f32, &pp_kernels_f64},
        {&pp_kernels_rows_f32, &pp_kernels_rows_f64}};
    return tables[p->options.row_invariant][fp64];
}

int runner_choose_device(struct runner *p)
{
    if (p->options.device == RUNNER_CUDA)
        return choose_cuda(p);
    if (p->options.dtype == RUNNER_BF16)
        return tool_usage(p->tool, "--dtype bf16 needs --device cuda");
    p->job.device = &pp_device_cpu;
    p->job.kernels = runner_cpu_kernels(p, p->options.dtype == RUNNER_FP64);
    return 0;
}

void runner_choose_dtype(struct runner *p)
{
    const struct pp_precision *planned =
        pp_precision_find(p->manifest.model.dtype);
    bool on_cpu = p->options.device == RUNNER_CPU;
    if (p->options.dtype >= 0)
        return;
    p->options.dtype = RUNNER_FP32;
    if (!planned || planned == &pp_precisions[RUNNER_FP32])
        return;
    if (!on_cpu && !p->options.verify &&
        planned == &pp_precisions[RUNNER_BF16]) {
        p->options.dtype = RUNNER_BF16;
        choose_cuda_kernels(p);
        return;
    }
    tool_say(p->tool, TOOL_NOTE, "the plan is for %s, but %s runs in fp32",
             planned->name,
             p->options.verify ? "--verify"
             : on_cpu          ? "a CPU"
                               : "a GPU");
}

/* Checks the memory for matrix products, because OpenBLAS does not report that
 * it has none. */
static int check_room(struct runner *p)
{
    size_t bytes;
    char text[32];
    bool alone = p->options.transport == RUNNER_THREADS;
    /* One thread for each rank here, and the helper threads. */
    const struct pp_layout layout = pp_job_layout(&p->job);
    int n = alone ? pp_layout_ranks(&layout) : 1;
    if (pp_blas_has_memory(n + p->options.blas_threads - 1, &bytes))
        return 0;
    pp_format_size(bytes, text);
    return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                   "out of memory: matrix products need %s of address space",
                   text);
}

int runner_check_device(struct runner *p)
{
    const struct pp_job *j = &p->job;
    struct pp_err *err = &p->tool->err;
    const struct pp_layout layout = pp_job_layout(j);
    if (j->device->check(pp_layout_ranks(&layout), err))
        return pp_fail_at(err, "--device %s: ", j->device->name);
    return check_room(p);
}

int runner_check_sizes(const struct runner *p, const struct pp_model *m)
{
    if (p->options.dtype != RUNNER_BF16 ||
        (m->hidden % 2 == 0 && m->intermediate % 2 == 0))
        return 0;
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "--dtype bf16 needs even sizes; hidden_size is %zu and "
                   "intermediate_size %zu",
                   m->hidden, m->intermediate);
}
