/* SPDX-License-Identifier: MIT */
/* packed_place - puts a packed directory in its place.
 *
 * Readers see the old directory or the new one, never a mixture: the two are
 * exchanged by one rename where the kernel and the file system can do that. */
#include "data/packed_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/packed_format.h"
#include "data/packed_write.h"

static char *join(const char *a, const char *between, const char *b)
{
    size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *s = malloc(n);
    if (s)
        snprintf(s, n, "%s%s%s", a, between, b);
    return s;
}

static bool is_packed_file(const char *name)
{
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        if (!strcmp(name, pp_packed_name(i)))
            return true;
    return false;
}

bool pp_packed_is(const char *dir)
{
    char magic[8];
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int f = openat(d, pp_packed_name(PP_PACKED_INDEX), O_RDONLY | O_CLOEXEC);
    bool good =
        f >= 0 && read(f, magic, 8) == 8 && !memcmp(magic, PP_PACKED_MAGIC, 8);
    if (f >= 0)
        close(f);
    if (d >= 0)
        close(d);
    return good;
}

/* The directory's files other than . and .. are counted in *n; the first that
 * is not of a packed directory is an error. */
static int look_inside(const char *dir, size_t *n, struct pp_err *err)
{
    const struct dirent *e;
    int rc = 0;
    DIR *d = opendir(dir);
    if (!d)
        return pp_fail(err, PP_EXIT_INPUT, "%s: %s", dir, strerror(errno));
    while (rc == 0 && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        ++*n;
        if (!is_packed_file(e->d_name))
            rc = pp_fail(err, PP_EXIT_INPUT,
                         "%s: holds '%s', so it is not a packed directory and "
                         "is left alone",
                         dir, e->d_name);
    }
    closedir(d);
    return rc;
}

int pp_packed_may_write(const char *dir, struct pp_err *err)
{
    struct stat st;
    size_t n = 0;
    if (!*dir)
        return pp_fail(err, PP_EXIT_INPUT, "'' is not a directory's name");
    if (lstat(dir, &st) != 0 && errno == ENOENT)
        return 0;
    if (!pp_file_is_dir(dir))
        return pp_fail(err, PP_EXIT_INPUT, "%s: exists and is not a directory",
                       dir);
    if (look_inside(dir, &n, err) != 0)
        return -1;
    if (n > 0 && !pp_packed_is(dir))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: exists and is not a packed directory", dir);
    return 0;
}

/* Removes the files a packed directory may hold, and the directory. Needs no
 * memory, for it clears away after everything else failed. */
static void remove_packed(const char *dir)
{
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < PP_PACKED_N_FILES; i++)
        unlinkat(d, pp_packed_name(i), 0);
    if (d >= 0)
        close(d);
    rmdir(dir);
}

static void free_place(struct pp_place *p)
{
    if (p->lock >= 0)
        close(p->lock);
    free(p->dir);
    free(p->tmp);
    *p = (struct pp_place){.lock = -1};
}

/* dir without trailing slashes, or what it links to. */
static char *resolve(const char *dir)
{
    char *s = realpath(dir, NULL);
    if (s)
        return s;
    s = strdup(dir);
    for (size_t n = s ? strlen(s) : 0; n > 1 && s[n - 1] == '/'; n--)
        s[n - 1] = '\0';
    return s;
}

/* Makes p->tmp and locks it, so that a second run on the same directory and
 * the remains of a dead one can be told apart. */
static int make_tmp(struct pp_place *p, struct pp_err *err)
{
    bool made = mkdir(p->tmp, 0777) == 0;
    if (!made && errno != EEXIST)
        return pp_fail_errno(err, "%s: cannot create", p->tmp);
    p->lock = open(p->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->lock < 0)
        return pp_fail_errno(err, "%s", p->tmp);
    if (flock(p->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: another run is writing it",
                       p->tmp);
    size_t n = 0;
    return made ? 0 : look_inside(p->tmp, &n, err);
}

int pp_place_open(struct pp_place *p, const char *dir, struct pp_err *err)
{
    *p = (struct pp_place){.lock = -1};
    if (pp_packed_may_write(dir, err) != 0)
        return -1;
    p->dir = resolve(dir);
    p->tmp = p->dir ? join(p->dir, ".tmp", "") : NULL;
    if (!p->tmp)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (make_tmp(p, err) == 0)
        return 0;
    free_place(p);
    return -1;
}

char *pp_place_path(const struct pp_place *p, const char *name)
{
    return join(p->tmp, "/", name);
}

/* Without an exchanging rename: aside, in place, and back when that fails. */
static int swap_by_steps(const struct pp_place *p, struct pp_err *err)
{
    char *old = join(p->dir, ".old", "");
    if (!old)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = 0;
    if (rename(p->dir, old) != 0)
        rc = pp_fail_errno(err, "%s: cannot rename", p->dir);
    else if (rename(p->tmp, p->dir) != 0) {
        rc = pp_fail_errno(err, "%s: cannot rename", p->tmp);
        if (rename(old, p->dir) != 0)
            pp_fail_at(err, "%s is now %s: ", p->dir, old);
    } else
        remove_packed(old);
    free(old);
    return rc;
}

static int put_in_place(const struct pp_place *p, struct pp_err *err)
{
    /* A plain rename replaces nothing, or an empty directory. */
    if (rename(p->tmp, p->dir) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return pp_fail_errno(err, "%s: cannot rename", p->tmp);
    if (renameat2(AT_FDCWD, p->tmp, AT_FDCWD, p->dir, RENAME_EXCHANGE) == 0) {
        remove_packed(p->tmp);
        return 0;
    }
    return swap_by_steps(p, err);
}

static int sync_parent(const char *dir, struct pp_err *err)
{
    char *parent = strdup(dir);
    if (!parent)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    int rc = pp_file_sync(slash ? parent : ".", err);
    free(parent);
    return rc;
}

int pp_place_commit(struct pp_place *p, struct pp_err *err)
{
    if (pp_file_sync(p->tmp, err) != 0 ||
        pp_packed_may_write(p->dir, err) != 0 || put_in_place(p, err) != 0) {
        pp_place_abort(p);
        return -1;
    }
    int rc = sync_parent(p->dir, err);
    free_place(p);
    return rc;
}

void pp_place_abort(struct pp_place *p)
{
    if (p->tmp)
        remove_packed(p->tmp);
    free_place(p);
}
