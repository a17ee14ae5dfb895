/* SPDX-License-Identifier: MIT */
/* Whether all ranks see the same files and were given the same options. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "pprun.h"

/* What is compared. A digest of nothing is 0. */
struct seen {
    const char *what;
    uint64_t digest;
};

/* FNV-1a. */
static uint64_t digest(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}
#define BEGIN 14695981039346656037u

static uint64_t of_command(char *const *argv)
{
    uint64_t hash = BEGIN;
    for (int i = 1; argv[i]; i++)
        hash = digest(hash, argv[i], strlen(argv[i]) + 1);
    return hash;
}

static uint64_t of_packed(const struct pp_packed *p)
{
    return p ? digest(BEGIN ^ p->checksum, &p->n_bins, sizeof p->n_bins) : 0;
}

/* A directory or file that must be one and the same: its number in the file
 * system, which the machines that share it have in common. */
static uint64_t of_file(const char *path)
{
    struct stat st;
    return !path                  ? 0
           : stat(path, &st) == 0 ? (uint64_t)st.st_ino + 1
                                  : UINT64_MAX;
}

/* A file that may be a copy: as long as the other. */
static uint64_t of_weights(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    return (uint64_t)st.st_size;
}

int pprun_check_same(struct pprun *p, struct pp_rendezvous *j)
{
    const struct seen seen[] = {
        {"the command line", of_command(p->argv)},
        {"the packed data", of_packed(p->job.data)},
        {"the data of --eval", of_packed(p->job.eval)},
        {"the weights", of_weights(p->job.weights_path)},
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
                         "rank %d on %s sees other things than rank 0 on %s: "
                         "%s",
                         rank, pp_rendezvous_host(j, rank),
                         pp_rendezvous_host(j, 0), seen[i].what);
    free(all);
    return rc;
}
