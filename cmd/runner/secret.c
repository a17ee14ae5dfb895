/* SPDX-License-Identifier: MIT */
/* secret - the secret of a job, from a file, the environment or the
 * launcher. All ranks must find the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/runner.h"

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
