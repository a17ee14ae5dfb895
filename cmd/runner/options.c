/* SPDX-License-Identifier: MIT */
/* options - the options that both programs have: of devices, transports and
 * memory. */
#include "runner/runner.h"

static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const dtypes[] = {"fp32", "fp64", "bf16", NULL};
static const char *const transports[] = {"threads", "mpi", "nccl", NULL};
static const char *const message_sizes[] = {
    [PP_MESSAGE_PLANNED] = "planned",
    [PP_MESSAGE_EXCHANGE] = "exchange",
    [PP_MESSAGE_MAX] = "max",
    NULL,
};

#define AT(member) TOOL_AT(struct runner, member)
const struct tool_option runner_option_table[] = {
    {.group = "Device"},
    {0, "device", "NAME", "cpu (default) or cuda", AT(options.device),
     .words = devices},
    {0, "dtype", "NAME", "fp32 (default on CPUs), fp64 or bf16",
     AT(options.dtype), .words = dtypes},
    {0, "blas-threads", "N", "CPU threads of each matrix product (1)",
     AT(options.blas_threads), 1, 64, .needs = "device=cpu"},
    {0, "row-invariant", NULL, "bits of a token do not depend on other rows",
     AT(options.row_invariant), .needs = "device=cpu",
     .excludes = "blas-threads"},
    {0, "transport", "NAME", "threads (default), mpi or nccl",
     AT(options.transport), .words = transports},
    {0, "join-timeout", "SECONDS",
     "mpi, nccl: longest wait for other ranks (300)", AT(options.join_timeout),
     1, 1e6, .needs = "transport=mpi|transport=nccl"},
    {0, "secret-file", "FILE", "mpi, nccl: what only the ranks know",
     AT(options.secret_file), .needs = "transport=mpi|transport=nccl"},
    {0, "stall-timeout", "SECS", "mpi, nccl: longest silence of a rank (30)",
     AT(options.stall_timeout), 0, 1e6,
     .needs = "transport=mpi|transport=nccl"},
    {0, "stall-wait", NULL, "mpi, nccl: wait for such a rank, and report it",
     AT(options.stall_wait), .needs = "transport=mpi|transport=nccl"},
    {0, "message-size", "HOW", "planned (default), exchange or max",
     AT(options.shapes), .words = message_sizes},

    {.group = "Memory"},
    {0, "memory", "SIZE", "limit of a rank, such as 80GiB", AT(options.memory)},
    {0, "max-in-flight", "N", "most microbatches in flight on a rank",
     AT(options.slots), 1, INT32_MAX, .excludes = "memory"},
    {0, "print-memory", NULL, "print what every rank would allocate, and stop",
     AT(options.plan)},

    {.group = "Output"},
    {0},
};

int runner_check_transport(const struct runner *p)
{
    const struct runner_options *o = &p->options;
    if (o->transport == RUNNER_NCCL && o->device != RUNNER_CUDA)
        return tool_usage(p->tool, "--transport nccl needs --device cuda");
    if (o->transport == RUNNER_MPI && o->device != RUNNER_CPU)
        return tool_usage(p->tool, "--transport mpi needs --device cpu");
    if (o->transport != RUNNER_THREADS && (o->verify || o->plan))
        return tool_usage(p->tool, "%s needs --transport threads, not %s",
                          o->verify ? "--verify" : "--print-memory",
                          transports[o->transport]);
    return 0;
}
