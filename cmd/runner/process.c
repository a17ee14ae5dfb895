/* SPDX-License-Identifier: MIT */
/* process - one rank of a job whose ranks are processes: the checks
 * before the first step, the run, and the results that rank 0 collects. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "comm/comm.h"
#include "comm/mpi.h"
#include "comm/rendezvous.h"
#include "comm/sets.h"
#include "comm/tree.h"
#include "runner/runner.h"
#include "version.h"

/* Waits until every rank has called it. If some have an error, all fail with
 * that of the lowest rank, which prints it. */
static int agree(struct runner *p, struct pp_rendezvous *j, int rc)
{
    struct pp_err *err = &p->tool->err, failed = {0};
    struct pp_verdict v = {rc ? pp_rendezvous_rank(j) : -1,
                           rc ? *err : (struct pp_err){0}};
    p->tool->told = false;
    if (pp_rendezvous_judge(j, &v, &failed)) {
        if (!rc)
            *err = failed;
        return -1;
    }
    if (v.rank < 0)
        return 0;
    *err = v.err;
    p->tool->told = v.rank != pp_rendezvous_rank(j);
    return -1;
}

static int find_mpi(struct runner *p)
{
    const char *given = getenv("PPRUN_MPI");
    const char *module = given ? given : PP_MPI_MODULE;
    if (p->options.transport != RUNNER_MPI)
        return 0;
    if (!*module)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "--transport mpi: this pprun was built without MPI");
    return pp_mpi_open(module, &p->mpi, &p->tool->err);
}

/* Reads the manifest at rank 0. The other ranks discard their input: a launcher
 * may copy its input to every process, and stop if one does not read it. */
static int take_manifest(struct runner *p, const char **name)
{
    char rest[4096];
    if (p->rank != 0 && strcmp(*name, "-"))
        return 0;
    FILE *f = tool_open_input(p->tool, name);
    if (!f)
        return -1;
    if (p->rank != 0) {
        while (read(STDIN_FILENO, rest, sizeof rest) > 0)
            ;
        return 0;
    }
    int rc = pp_manifest_read_text(f, *name, &p->text, &p->text_bytes,
                                   &p->tool->err);
    tool_close_input(f);
    return rc;
}

static int check_size(struct runner *p, const struct runner_launch *l)
{
    const struct pp_mesh *m = &p->manifest.mesh;
    const struct pp_layout layout = pp_manifest_layout(&p->manifest);
    int n = pp_layout_ranks(&layout);
    if (n == l->place.size)
        return 0;
    if (layout.n_components > 1)
        return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                       "%s: '%d', but the components of the manifest have %d "
                       "ranks%s",
                       l->size_from ? l->size_from : "ranks", l->place.size, n,
                       l->launcher ? "" : "; start them with mpirun or srun");
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "%s: '%d', but the manifest's mesh has %d ranks (pp %d x "
                   "dp %d x tp %d x cp %d)%s",
                   l->size_from ? l->size_from : "ranks", l->place.size, n,
                   m->pp, m->dp, m->tp, m->cp,
                   l->launcher ? "" : "; start them with mpirun or srun");
}

/* Sends the name of rank 0's checkpoint to all ranks. */
static int send_resume(struct runner *p, struct pp_rendezvous *j)
{
    void *resume = p->rank == 0 ? p->resume : NULL;
    size_t n = resume ? strlen(resume) + 1 : 0;
    if (pp_rendezvous_broadcast(j, &resume, &n, &p->tool->err))
        return -1;
    if (p->rank != 0) {
        free(p->resume);
        p->resume = n ? resume : NULL;
        if (n == 0)
            free(resume);
    }
    p->job.resume = p->resume;
    return 0;
}

/* Prepares the job at rank 0, which sends the manifest and the checkpoint's
 * name to the other ranks. They prepare the job from these. */
static int prepare_job(struct runner *p, struct pp_rendezvous *j,
                       const char *name, const struct runner_launch *l)
{
    struct pp_err *err = &p->tool->err;
    void *text = p->text;
    int rc = 0;
    if (p->rank == 0)
        rc = runner_prepare(p, name) || check_size(p, l) ? -1 : 0;
    if (agree(p, j, rc))
        return -1;
    if (pp_rendezvous_broadcast(j, &text, &p->text_bytes, err) ||
        send_resume(p, j))
        return -1;
    if (p->rank != 0) {
        p->text = text;
        rc = runner_prepare(p, name);
    }
    free(p->text);
    p->text = NULL;
    return agree(p, j, rc);
}

/* --- the same files and options --- */

/* A thing that must be the same at all ranks. The digest is 0 if it is absent.
 */
struct seen {
    const char *what;
    uint64_t digest;
};

static uint64_t of_command(char *const *argv)
{
    uint64_t hash = PP_FNV_START;
    for (int i = 1; argv[i]; i++)
        hash = pp_fnv(hash, argv[i], strlen(argv[i]) + 1);
    return hash;
}

static uint64_t of_packed(const struct pp_packed *p)
{
    return p ? pp_fnv(PP_FNV_START ^ p->checksum, &p->n_bins, sizeof p->n_bins)
             : 0;
}

/* Returns the inode number of a directory or file that all ranks must share. It
 * is the same on all machines that share the file system. */
static uint64_t of_file(const char *path)
{
    struct stat st;
    return !path                  ? 0
           : stat(path, &st) == 0 ? (uint64_t)st.st_ino + 1
                                  : UINT64_MAX;
}

/* Returns the size of a file. Ranks may have copies, so inodes may differ. */
static uint64_t of_weights(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    return (uint64_t)st.st_size;
}

/* Returns the hash of a part that has the checksum of the rest. */
static uint64_t of_routes(const struct pp_routes *r)
{
    return r->map ? pp_fnv(PP_FNV_START, r->map, 16) : 0;
}

static int check_same(struct runner *p, struct pp_rendezvous *j)
{
    const struct seen seen[] = {
        {"the command line", of_command(p->tool->argv)},
        {"the packed data", of_packed(p->job.data)},
        {"the data of --eval", of_packed(p->job.eval)},
        {"the weights", of_weights(p->job.weights_path)},
        {"the routing to replay", of_routes(&p->given)},
        {"the checkpoint to resume", of_file(p->job.resume)},
        {"the directory of --save", of_file(p->job.save)},
    };
    enum { N = sizeof seen / sizeof *seen };
    struct pp_err *err = &p->tool->err;
    int size = pp_rendezvous_size(j), rank = pp_rendezvous_rank(j), rc = 0;
    uint64_t mine[N], *all = calloc((size_t)size, sizeof mine);
    for (int i = 0; i < N; i++)
        mine[i] = seen[i].digest;
    if (!all)
        pp_rendezvous_abort(j, "out of memory");
    if (!all || pp_rendezvous_allgather(j, mine, all, sizeof mine, err))
        rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int i = 0; i < N && rc == 0; i++)
        if (mine[i] != all[i])
            rc = pp_fail(err, PP_EXIT_INPUT,
                         "rank %d on %s and rank 0 on %s differ in %s", rank,
                         pp_rendezvous_host(j, rank), pp_rendezvous_host(j, 0),
                         seen[i].what);
    free(all);
    return rc;
}

/* Reports whether a rank is on the machine of this one; ctx is the rendezvous.
 */
static bool is_here(void *ctx, int rank)
{
    struct pp_rendezvous *j = ctx;
    return !strcmp(pp_rendezvous_host(j, rank),
                   pp_rendezvous_host(j, pp_rendezvous_rank(j)));
}

/* Checks files, memory and device. Every rank computes the memory of all ranks,
 * and rank 0 prints it. */
static int check_ranks(struct runner *p, struct pp_rendezvous *j)
{
    if (agree(p, j, check_same(p, j)) ||
        agree(p, j, runner_check_memory(p, is_here, j)))
        return -1;
    /* A process on each machine reads the data: machines may have copies. */
    int rc = pp_rendezvous_local(j) == 0 ? runner_check_data(p) : 0;
    return agree(p, j, rc) || agree(p, j, runner_check_device(p)) ? -1 : 0;
}

/* Checks the checkpoint to resume from. If it is damaged, rank 0 chooses the
 * one before it, and all ranks check that. */
static int check_resume(struct runner *p, struct pp_rendezvous *j)
{
    while (agree(p, j, runner_check_resume(p))) {
        if (!p->options.fall_back || p->tool->err.code != PP_EXIT_INPUT)
            return runner_fall_back(p);
        int rc = p->rank == 0 ? runner_fall_back(p) : 0;
        if (p->rank != 0)
            p->tool->err = (struct pp_err){0};
        if (agree(p, j, rc) || send_resume(p, j))
            return -1;
    }
    return 0;
}

static int open_nccl(struct runner *p, struct pp_rendezvous *j,
                     struct pp_comm **comm)
{
    struct pp_err *err = &p->tool->err;
    struct pp_comm_sets sets;
    struct pp_nccl_options o = {.library = getenv("PPRUN_NCCL"),
                                .sets = &sets,
                                .sums = p->job.nccl_sums};
    if (pp_job_channel_capacity(&p->job, &o.capacity, err))
        return -1;
    pp_job_comm_sets(&p->job, &sets);
    int rc = pp_comm_nccl_open(j, &o, comm, err);
    pp_comm_sets_finish(&sets);
    return rc;
}

static int open_mpi(struct runner *p, struct pp_rendezvous *j,
                    struct pp_comm **comm)
{
    struct pp_err *err = &p->tool->err;
    struct pp_comm_channel *channels = NULL;
    struct pp_mpi_options o = {.mpi = p->mpi};
    if (pp_job_channel_capacity(&p->job, &o.capacity, err)) {
        pp_rendezvous_abort(j, err->text); /* the others would wait in MPI */
        return -1;
    }
    pp_job_channels(&p->job, p->rank, &channels, &o.n_channels);
    o.channels = channels;
    int rc = pp_comm_mpi_open(j, &o, comm, err);
    free(channels);
    return rc;
}

static int run_job(struct runner *p, struct pp_rendezvous *j,
                   enum pp_exit *status)
{
    struct pp_err *err = &p->tool->err;
    struct pp_comm *comm = NULL;
    int rc = p->mpi ? open_mpi(p, j, &comm) : open_nccl(p, j, &comm);
    if (rc == 0)
        rc = p->hooks->begin(p);
    rc = agree(p, j, rc);
    if (rc == 0)
        rc = pp_rank_run(&p->job, comm, status, err);
    /* All ranks end with one status: srun returns the highest. */
    if (rc == 0)
        rc = agree(p, j, p->rank == 0 ? p->hooks->end(p) : 0);
    /* Rank 0 reads what the others wrote, so they close the file first. */
    if (p->rank != 0 && runner_routing_close(p))
        rc = -1;
    if (rc == 0 && p->options.record_routing)
        rc = agree(p, j, rc);
    if ((p->rank == 0 && runner_routing_close(p)) || p->hooks->close(p))
        rc = -1;
    if (comm)
        comm->ops->close(comm);
    return rc;
}

/* Replaces an error that the loss of another rank caused by this loss: a rank
 * goes on with messages that never arrived until it notices. */
static void take_cause(struct runner *p, struct pp_rendezvous *j)
{
    struct pp_err *err = &p->tool->err, why = {0};
    if (!pp_rendezvous_aborted(j))
        return;
    (void)pp_rendezvous_fail(j, &why);
    if (why.origin.known & PP_ORIGIN_LOST)
        *err = why;
}

/* Returns true if another rank prints this failure, or the watching thread, as
 * it does if a rank is lost. The rank that failed first prints it, and so does
 * rank 0 unless it is lost. An error with another rank as its origin only
 * repeats the reason of an abort. */
static bool is_told(struct runner *p, struct pp_rendezvous *j)
{
    const struct pp_err_origin *o = &p->tool->err.origin;
    bool from_other = o->known & PP_ORIGIN_RANK && o->rank != p->rank;
    bool rank_0_knows =
        o->known & PP_ORIGIN_AGREED || pp_rendezvous_lost(j) != 0;
    return o->known & PP_ORIGIN_LOST ||
           (from_other && p->rank != 0 && rank_0_knows);
}

/* Adds the rank that failed to an error that rank 0 took from it. */
static void name_rank(struct runner *p)
{
    struct pp_err *err = &p->tool->err;
    if (p->rank == 0 && err->origin.known & PP_ORIGIN_AGREED &&
        err->origin.rank > 0)
        pp_fail_at(err, "rank %d: ", err->origin.rank);
}

static void set_rank(struct runner *p, const struct runner_launch *l)
{
    char host[PP_RENDEZVOUS_HOST] = "";
    p->rank = l->place.rank;
    p->size = l->place.size;
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    snprintf(p->name, sizeof p->name, "%s[%d/%d %s]", p->tool->name, p->rank,
             l->place.size, host);
    p->tool->name = p->name;
    tool_catch_faults(p->name);
    if (p->rank == 0)
        return;
    p->tool->quiet = true; /* only rank 0 prints notes */
    p->tool->output = NULL;
}

/* Notes that programs on the network could join, if there is no secret. */
static void note_strangers(struct runner *p, const struct pp_rendezvous *j,
                           const struct runner_launch *l)
{
    bool is_alone = true;
    for (int r = 1; r < pp_rendezvous_size(j); r++)
        is_alone &= !strcmp(pp_rendezvous_host(j, r), pp_rendezvous_host(j, 0));
    if (p->rank == 0 && !is_alone && !l->place.secret)
        tool_say(p->tool, TOOL_NOTE,
                 "other programs on the network could join this run, which has "
                 "no secret; set PPRUN_SECRET on all machines");
}

/* Tells rank 0 that this rank cannot start, although its number may be unknown.
 */
static int decline(const struct runner *p, struct runner_launch *l,
                   const struct pp_err *err)
{
    struct pp_err ignored = {0};
    l->place.failure = err;
    if (l->place.address &&
        runner_find_secret(l, p->options.secret_file, &ignored) == 0)
        pp_rendezvous_decline(&l->place);
    return -1;
}

/* Opens the outputs that rank 0 writes, and the file of all ranks. */
static int open_outputs(struct runner *p, struct pp_rendezvous *j)
{
    int rc = p->hooks->open(p) || (p->rank == 0 && runner_routing_create(p))
                 ? -1
                 : 0;
    return agree(p, j, rc) || agree(p, j, runner_routing_join(p, j)) ? -1 : 0;
}

/* Runs the job with the other processes, which have joined. */
static int run_joined(struct runner *p, struct pp_rendezvous *j,
                      const char *manifest, struct runner_launch *l,
                      enum pp_exit *status)
{
    return agree(p, j, find_mpi(p)) || prepare_job(p, j, manifest, l) ||
                   check_ranks(p, j) || check_resume(p, j) ||
                   agree(p, j, runner_take_resumed(p)) || open_outputs(p, j) ||
                   run_job(p, j, status)
               ? -1
               : 0;
}

/* --- callbacks of the thread that watches the other processes --- */

/* Prints a line at once, if standard error takes it: the thread must not wait
 * for a reader. The progress line belongs to another thread, so a terminal's
 * line is erased in any case. */
static void say(void *ctx, const char *text)
{
    const struct runner *p = ctx;
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&at, 1, 0) == 1)
        fprintf(stderr, "%s%s: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
                p->tool->name, text);
}

static void describe(void *ctx, char *text, size_t room)
{
    struct runner *p = ctx;
    pp_progress_format(&p->progress, &p->job, p->rank, text, room);
}

static bool stopping(void *ctx)
{
    const struct runner *p = ctx;
    return p->job.stop(p->job.ctx) != 0;
}

static void stop(void *ctx)
{
    struct runner *p = ctx;
    p->others_stop = true;
}

/* Says at once which rank is lost: what follows may not return. */
static void aborted(void *ctx, const struct pp_err *why)
{
    const struct runner *p = ctx;
    if (why->origin.known & PP_ORIGIN_LOST)
        say(ctx, why->text);
    runner_must_end(p->name, why->text);
}

static struct pp_rendezvous_observer observer_of(struct runner *p)
{
    return (struct pp_rendezvous_observer){
        .seconds = p->options.stall_timeout,
        .abort = !p->options.stall_wait,
        .say = say,
        .describe = describe,
        .stopping = p->job.save ? stopping : NULL,
        .stop = stop,
        .aborted = aborted,
        .ctx = p,
    };
}

/* --- the process --- */

int runner_process(struct runner *p, const char *manifest, enum pp_exit *status)
{
    struct runner_launch l;
    struct pp_rendezvous *j = NULL;
    struct pp_err *err = &p->tool->err;
    int rc = runner_launch_read(&l, true, err);
    if (p->options.join_timeout > 0)
        l.place.seconds = p->options.join_timeout;
    if (rc)
        return decline(p, &l, err);
    set_rank(p, &l);
    rc = runner_find_secret(&l, p->options.secret_file, err) ||
                 runner_choose_device(p) || p->hooks->output(p) ||
                 take_manifest(p, &manifest)
             ? -1
             : 0;
    struct pp_err failure = *err; /* sent to the others when joining */
    l.place.failure = rc ? &failure : NULL;
    l.place.told = &p->tool->told;
    const struct pp_rendezvous_observer observer = observer_of(p);
    l.place.observer = &observer;
    p->job.progress = &p->progress;
    if (pp_rendezvous_open(&l.place, &j, err))
        return -1;
    note_strangers(p, j, &l);
    rc = run_joined(p, j, manifest, &l, status);
    if (rc) {
        take_cause(p, j);
        p->tool->told |= is_told(p, j);
        /* Print now: a launcher may soon kill this rank. */
        name_rank(p);
        runner_must_end(p->name, p->tool->err.text);
        tool_tell(p->tool);
    }
    pp_rendezvous_close(j);
    return rc;
}

int runner_check_alone(struct runner *p)
{
    struct runner_launch l;
    if (runner_launch_read(&l, false, &p->tool->err))
        return -1;
    if (l.place.size == 1)
        return 0;
    return tool_usage(p->tool,
                      "--transport threads runs all ranks in one process, but "
                      "%s started %s '%d'; start one process, or give "
                      "--transport %s",
                      l.launcher, l.size_from, l.place.size,
                      p->options.device == RUNNER_CUDA ? "nccl" : "mpi");
}
