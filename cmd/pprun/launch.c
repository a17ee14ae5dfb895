/* SPDX-License-Identifier: MIT */
/* launch - --print-launch: the command that starts the ranks of a plan,
 * for each launcher. */
#include "pprun.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "version.h"

/* The ranks of a plan on nodes. If the plan does not say how many ranks a node
 * takes, nodes is 0. */
struct launch {
    const struct runner *runner;
    int ranks, nodes, on_node;
    bool gpus;
    const char *command; /* the arguments of the program, quoted */
};

static void print_slurm(FILE *f, const struct launch *l)
{
    if (l->nodes)
        fprintf(f, " --nodes=%d --ntasks-per-node=%d", l->nodes, l->on_node);
    fprintf(f, " --ntasks=%d", l->ranks);
    if (l->gpus && l->nodes)
        fprintf(f, " --gpus-per-node=%d", l->on_node);
    else if (l->gpus)
        fputs(" --gpus-per-task=1", f);
}

/* The scripts have the device and the transport. */
static void print_sbatch(FILE *f, const struct launch *l)
{
    fputs("sbatch", f);
    print_slurm(f, l);
    fprintf(f, " %s/train-%s.sbatch %s\n",
            access(PP_SCRIPTS, X_OK) == 0 ? PP_SCRIPTS : "scripts",
            l->gpus ? "gpus" : "cpus", l->command);
}

static void print_program(FILE *f, const struct launch *l)
{
    fprintf(f, " %s --transport %s %s\n", l->runner->tool->name,
            l->gpus ? "nccl" : "mpi", l->command);
}

static void print_srun(FILE *f, const struct launch *l)
{
    fputs(l->gpus ? "srun" : "srun --mpi=pmix", f);
    print_slurm(f, l);
    print_program(f, l);
}

static void print_mpirun(FILE *f, const struct launch *l)
{
    fprintf(f, "mpirun -n %d", l->ranks);
    if (l->nodes)
        fprintf(f, " --map-by ppr:%d:node", l->on_node);
    print_program(f, l);
}

/* torchrun starts the same number of ranks on each node. */
static void print_torchrun(FILE *f, const struct launch *l)
{
    if (l->nodes > 1)
        fprintf(f,
                "torchrun --nnodes=%d --node-rank=\"$NODE_RANK\" "
                "--master-addr=\"$MASTER_ADDR\" --nproc-per-node=%d",
                l->nodes, l->on_node);
    else
        fprintf(f, "torchrun --standalone --nproc-per-node=%d", l->ranks);
    fputs(" --no-python", f);
    print_program(f, l);
}

enum { SBATCH, SRUN, MPIRUN, TORCHRUN, N_LAUNCHERS };
const char *const pprun_launchers[] = {
    [SBATCH] = "sbatch",
    [SRUN] = "srun",
    [MPIRUN] = "mpirun",
    [TORCHRUN] = "torchrun",
    NULL,
};
static void (*const print_by[N_LAUNCHERS])(FILE *f, const struct launch *l) = {
    [SBATCH] = print_sbatch,
    [SRUN] = print_srun,
    [MPIRUN] = print_mpirun,
    [TORCHRUN] = print_torchrun,
};

/* Returns the command line without --print-launch, which may be shortened. The
 * caller frees it. */
static char *command_of(const struct tool *t)
{
    const char option[] = "--print-launch";
    size_t shortest = strlen("--print-l");
    int kept = 1;
    char *const *argv = t->argv;
    char **rest = pp_calloc((size_t)t->argc, sizeof *rest);
    for (int i = 1; i < t->argc; i++) {
        size_t given = strcspn(argv[i], "=");
        bool own = given >= shortest && !strncmp(argv[i], option, given);
        if (!own)
            rest[kept++] = argv[i];
        else if (!argv[i][given]) /* its value is an argument of its own */
            i++;
    }
    char *command = tool_command(kept, rest);
    free(rest);
    return command;
}

int pprun_print_launch(struct runner *p, const char *manifest)
{
    struct pp_err *err = &p->tool->err;
    const int how = pprun_of(p)->options.launch;
    if (!strcmp(manifest, "-"))
        return tool_usage(p->tool, "--print-launch: give the plan as a file, "
                                   "which every rank can read");
    if (runner_read_manifest(p, &manifest))
        return -1;
    const struct pp_manifest *m = &p->manifest;
    const struct pp_layout layout = pp_manifest_layout(m);
    struct launch l = {.runner = p,
                       .ranks = pp_layout_ranks(&layout),
                       .gpus = p->options.device == RUNNER_CUDA};
    if (m->has_machine && m->machine.n_levels > 1 &&
        m->machine.levels[0].size) {
        int64_t node = m->machine.levels[0].size;
        l.on_node = l.ranks < node ? l.ranks : (int)node;
        l.nodes = (l.ranks + l.on_node - 1) / l.on_node;
    }
    if (how == TORCHRUN && !l.gpus)
        return tool_usage(p->tool, "--print-launch torchrun needs --device "
                                   "cuda: MPI has a launcher of its own");
    if (how == TORCHRUN && l.nodes > 1 && l.ranks % l.on_node)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "%s: %d ranks do not fill nodes of %d, as torchrun needs", manifest,
            l.ranks, l.on_node);
    char *command = command_of(p->tool);
    l.command = command;
    /* --output is the file of the run that is not started. */
    print_by[how](stdout, &l);
    free(command);
    return 0;
}
