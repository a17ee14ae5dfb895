/* SPDX-License-Identifier: MIT */
/* launch - reads the rank of this process from the environment that srun,
 * mpirun, mpiexec or torchrun sets. */
#include "runner/runner.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "version.h"

/* Default time that ranks wait for each other at the start. */
#define PATIENCE_S 300
/* Ports of rank 0 without MASTER_PORT. They are below the ephemeral ports. The
 * job's number selects one, so that two jobs on a machine rarely collide. */
#define FIRST_PORT 15000
#define N_PORTS 10000

/* Variables of each launcher. The first launcher whose rank and size are both
 * set is used, because mpirun in a Slurm job also sees Slurm's variables. */
static const struct launcher {
    const char *name, *rank, *size, *local, *on_one_machine;
    bool is_count; /* on_one_machine counts machines, not ranks */
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     false},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_STEP_NUM_NODES", true},
};

/* Variables that name a job; they are the same for all of its processes. */
static const char *const job_names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID",
                                        "PMIX_NAMESPACE", "PMI_JOBID",
                                        "TORCHELASTIC_RUN_ID"};

static int read_int(const char *name, int64_t min, int64_t max, int *to,
                    struct pp_err *err)
{
    int64_t n;
    if (pp_parse_int(getenv(name), name, min, max, &n, err))
        return -1;
    *to = (int)n;
    return 0;
}

/* Returns a hash of the variables that are set, or 0 if none is. */
static uint64_t job_number(void)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof job_names / sizeof *job_names; i++) {
        const char *s = getenv(job_names[i]);
        if (!s)
            continue;
        hash = pp_fnv(hash ? hash : PP_FNV_START, s, strlen(s));
        hash = pp_fnv(hash, "\xff", 1);
    }
    return hash;
}

/* Finds the first machine of a list such as "node[01-04,07]-ib,other". */
static void first_host(const char *list, char *to, size_t room)
{
    size_t n = strcspn(list, "[,");
    snprintf(to, room, "%.*s", (int)n, list);
    if (list[n] != '[')
        return;
    const char *number = list + n + 1;
    const char *end = strchr(number, ']');
    size_t used = strlen(to);
    snprintf(to + used, room - used, "%.*s%.*s", (int)strcspn(number, "-,]"),
             number, end ? (int)strcspn(end + 1, "[,") : 0, end ? end + 1 : "");
}

/* Returns whether the launcher says that all ranks are on this machine. */
static bool on_one_machine(const struct launcher *l, int size)
{
    const char *text = getenv(l->on_one_machine);
    struct pp_err ignored = {0};
    int64_t n = 0;
    if (!text || pp_parse_int(text, l->on_one_machine, 1, size, &n, &ignored))
        return false;
    return l->is_count ? n == 1 : n == size;
}

static int find_address(struct runner_launch *l, const struct launcher *by,
                        struct pp_err *err)
{
    const char *given = getenv("MASTER_ADDR");
    const char *list = getenv("SLURM_STEP_NODELIST");
    list = list ? list : getenv("SLURM_JOB_NODELIST");
    if (given)
        snprintf(l->address, sizeof l->address, "%s", given);
    else if (l->place.size == 1 || on_one_machine(by, l->place.size))
        snprintf(l->address, sizeof l->address, "127.0.0.1");
    else if (list)
        first_host(list, l->address, sizeof l->address);
    else
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s does not say where rank 0 is; set MASTER_ADDR to "
                       "its machine's name",
                       by->name);
    l->place.address = l->address;
    return 0;
}

/* Reads rank and size. They are -1 and 0 if unknown. */
static int read_rank(struct pp_rendezvous_place *p, const struct launcher *by,
                     struct pp_err *err)
{
    p->size = 0;
    p->rank = -1;
    if (read_int(by->size, 1, 1 << 20, &p->size, err) ||
        read_int(by->rank, 0, p->size - 1, &p->rank, err))
        return -1;
    return getenv(by->local) ? read_int(by->local, 0, 1 << 20, &p->local, err)
                             : 0;
}

int runner_launch_read(struct runner_launch *l, bool to_join,
                       struct pp_err *err)
{
    const struct launcher *by = NULL;
    *l = (struct runner_launch){.place = {.size = 1,
                                          .local = -1,
                                          .seconds = PATIENCE_S,
                                          .version = PP_VERSION,
                                          .job = job_number()}};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !by; i++)
        if (getenv(launchers[i].rank) && getenv(launchers[i].size))
            by = &launchers[i];
    if (!by)
        return 0;
    l->launcher = by->name;
    l->size_from = by->size;
    struct pp_rendezvous_place *p = &l->place;
    p->port = FIRST_PORT + (int)(p->job % N_PORTS);
    if (getenv("MASTER_PORT") &&
        read_int("MASTER_PORT", 1, 65535, &p->port, err))
        return -1;
    int rc = read_rank(p, by, err);
    /* A rank that cannot start also needs the address of rank 0. */
    return to_join && find_address(l, by, err) ? -1 : rc;
}
