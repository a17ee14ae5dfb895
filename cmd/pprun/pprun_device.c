/* SPDX-License-Identifier: MIT */
/* What a run computes on and with: --device and --dtype. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "kernels.h"
#include "pprun.h"

#ifdef PP_HAVE_CUDA
#include "cuda_stream.h"
#include "device/device.h"

static int refuse_variable(struct pprun *p, const char *name, const char *why)
{
    const char *given = getenv(name);
    return given && !strcmp(given, "1")
               ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "%s is '1': %s; unset it", name, why)
               : 0;
}

/* Before CUDA starts: streams are mapped on so many queues, and with one, work
 * that must overlap waits for each other. */
static int prepare_cuda(struct pprun *p)
{
    const char *name = "CUDA_DEVICE_MAX_CONNECTIONS";
    if (refuse_variable(p, name, "messages would wait behind kernels"))
        return -1;
    if (p->options.transport == PPRUN_NCCL &&
        refuse_variable(p, "NCCL_COMM_BLOCKING",
                        "a rank that waits for a lost one could not be ended"))
        return -1;
    if (setenv(name, "32", 0) != 0)
        return pp_fail_errno(&p->tool->err, "%s", name);
    /* Loaded at its first use, a kernel may wait for all that is queued, and
     * what NCCL has queued may wait for another rank. */
    name = "CUDA_MODULE_LOADING";
    if (p->options.transport == PPRUN_NCCL && setenv(name, "EAGER", 0) != 0)
        return pp_fail_errno(&p->tool->err, "%s", name);
    return 0;
}

static int choose_cuda(struct pprun *p)
{
    if (p->options.dtype == PPRUN_FP64)
        return tool_usage(p->tool, "--dtype: fp64 is the CPU's alone");
    p->job.device = &pp_device_cuda;
    p->job.kernels = p->options.dtype == PPRUN_BF16 ? &pp_kernels_cuda_bf16
                                                    : &pp_kernels_cuda_f32;
    return prepare_cuda(p);
}
#else
static int choose_cuda(struct pprun *p)
{
    return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                   "--device cuda: this pprun was built without CUDA");
}
#endif

int pprun_choose_device(struct pprun *p)
{
    if (p->options.device == PPRUN_CUDA)
        return choose_cuda(p);
    if (p->options.dtype == PPRUN_BF16)
        return tool_usage(p->tool, "--dtype: bf16 needs --device cuda");
    p->job.device = &pp_device_cpu;
    p->job.kernels =
        p->options.dtype == PPRUN_FP64 ? &pp_kernels_f64 : &pp_kernels_f32;
    return 0;
}

/* Before the first product: OpenBLAS does not report what it lacks. */
static int check_room(struct pprun *p)
{
    size_t bytes;
    char text[32];
    bool alone = p->options.transport == PPRUN_THREADS;
    /* The thread of every rank here, and those that help them. */
    int n = alone ? p->job.schedule->graph->n_rows : 1;
    if (pp_blas_has_memory(n + p->options.blas_threads - 1, &bytes))
        return 0;
    pp_format_size(bytes, text);
    return pp_fail(&p->tool->err, PP_EXIT_SYSTEM,
                   "out of memory: matrix products need %s of address space",
                   text);
}

int pprun_check_device(struct pprun *p)
{
    const struct pp_job *j = &p->job;
    struct pp_err *err = &p->tool->err;
    if (j->device->check(j->schedule->graph->n_rows, err))
        return pp_fail_at(err, "--device %s: ", j->device->name);
    return check_room(p);
}
