/* SPDX-License-Identifier: MIT */
/* launch - reads the rank of this process from the environment that srun,
 * mpirun, mpiexec or torchrun sets, and the secret of the job. */
#include "runner/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* --- the secret of a job: all ranks must find the same --- */

/* Shorter secrets could be guessed. */
#define LEAST_BYTES 16

/* Open MPI makes a random key for each job, for the networks that need one, and
 * gives it to its processes only. */
#define OPEN_MPI_KEY "OMPI_MCA_orte_precondition_transports"

/* Checks that only the owner can read a file. */
static int check_private(int fd, const char *name, struct pp_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pp_fail_errno(err, "%s", name);
    if (!S_ISREG(st.st_mode))
        return pp_fail(err, PP_EXIT_INPUT, "%s: is not a file", name);
    if (st.st_mode & 077)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: other users have access to this secret; use chmod "
                       "600",
                       name);
    return 0;
}

static int read_file(struct runner_launch *l, const char *name,
                     struct pp_err *err)
{
    ssize_t n = 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %s", name, strerror(errno));
    int rc = check_private(fd, name, err);
    if (rc == 0 && (n = read(fd, l->secret, sizeof l->secret)) < 0)
        rc = pp_fail_errno(err, "%s", name);
    close(fd);
    if (rc)
        return rc;
    if (n == (ssize_t)sizeof l->secret)
        return pp_fail(err, PP_EXIT_INPUT, "%s: a secret has at most %zu bytes",
                       name, sizeof l->secret - 1);
    while (n > 0 && (l->secret[n - 1] == '\n' || l->secret[n - 1] == '\r'))
        n--;
    l->place.secret_bytes = (size_t)n;
    return 0;
}

int runner_find_secret(struct runner_launch *l, const char *file,
                       struct pp_err *err)
{
    const char *from = file, *given = NULL;
    struct pp_rendezvous_place *p = &l->place;
    if (!file && (given = getenv("PPRUN_SECRET")))
        from = "PPRUN_SECRET";
    else if (!file && l->launcher && !strcmp(l->launcher, "mpirun") &&
             (given = getenv(OPEN_MPI_KEY)))
        from = OPEN_MPI_KEY;
    if (!from)
        return 0;
    if (file && read_file(l, file, err))
        return -1;
    if (given) {
        p->secret_bytes = strlen(given);
        if (p->secret_bytes >= sizeof l->secret)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: a secret has at most %zu bytes", from,
                           sizeof l->secret - 1);
        memcpy(l->secret, given, p->secret_bytes);
    }
    if (p->secret_bytes < LEAST_BYTES)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: a secret has at least %d bytes, not %zu", from,
                       LEAST_BYTES, p->secret_bytes);
    p->secret = l->secret;
    return 0;
}
