/* SPDX-License-Identifier: MIT */
/* file_check - the list of files and the thread. The thread needs no lock: it
 * alone writes its error, and others read that after they have joined it or
 * have seen that it failed. */
#include "data/file_check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/thread.h"

int pp_file_checks_add(struct pp_file_checks *c, const char *dir,
                       const char *name, const void *data, size_t bytes,
                       uint64_t checksum, struct pp_err *err)
{
    size_t n = (dir ? strlen(dir) + 1 : 0) + strlen(name) + 1;
    if (pp_try_array_reserve(&c->at, &c->capacity, c->n + 1, sizeof *c->at,
                             err))
        return -1;
    char *path = malloc(n);
    if (!path)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    snprintf(path, n, "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    c->at[c->n++] = (struct pp_file_check){path, data, bytes, checksum};
    return 0;
}

size_t pp_file_checks_bytes(const struct pp_file_checks *c)
{
    size_t bytes = 0;
    for (size_t i = 0; i < c->n; i++)
        bytes += c->at[i].bytes;
    return bytes;
}

/* Reads all files, or until stop returns true. */
static int check_files(const struct pp_file_checks *c, bool (*stop)(void *),
                       void *ctx, struct pp_err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct pp_file_check *f = &c->at[i];
        uint64_t value;
        if (pp_checksum_map(f->data, f->bytes, stop, ctx, &value, err))
            return pp_fail_at(err, "%s: ", f->path);
        if (stop && stop(ctx))
            return 0;
        if (value != f->checksum)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: wrong checksum: the file is damaged", f->path);
    }
    return 0;
}

int pp_file_check_path(const char *path, uint64_t checksum, struct pp_err *err)
{
    struct pp_file_check f = {.path = (char *)(uintptr_t)path,
                              .checksum = checksum};
    if (pp_file_map(path, &f.data, &f.bytes, err))
        return -1;
    int rc = check_files(&(struct pp_file_checks){&f, 1, 1}, NULL, NULL, err);
    pp_file_unmap(f.data, f.bytes);
    return rc;
}

int pp_file_checks_run(const struct pp_file_checks *c, struct pp_err *err)
{
    return check_files(c, NULL, NULL, err);
}

void pp_file_checks_finish(struct pp_file_checks *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].path);
    free(c->at);
    *c = (struct pp_file_checks){0};
}

struct pp_background_check {
    struct pp_file_checks files;
    pthread_t thread;
    pthread_mutex_t lock; /* of joined */
    bool joined;
    bool hurried; /* the thread's own */
    struct pp_err err;
    atomic_bool failed; /* err is filled */
    atomic_bool hurry, stop;
};

static void set_policy(int policy)
{
    const struct sched_param none = {0};
    /* If the system refuses, the thread competes with the others. */
    (void)pthread_setschedparam(pthread_self(), policy, &none);
}

static bool is_stopped(void *ctx)
{
    struct pp_background_check *b = ctx;
    if (b->hurry && !b->hurried) {
        set_policy(SCHED_OTHER);
        b->hurried = true;
    }
    return b->stop;
}

static void *check_in_background(void *ctx)
{
    struct pp_background_check *b = ctx;
    set_policy(SCHED_IDLE);
    if (check_files(&b->files, is_stopped, b, &b->err))
        b->failed = true;
    return NULL;
}

int pp_background_check_start(struct pp_file_checks *c,
                              struct pp_background_check **out,
                              struct pp_err *err)
{
    struct pp_background_check *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        pp_file_checks_finish(c);
        return -1;
    }
    b->files = *c;
    pthread_mutex_init(&b->lock, NULL);
    *c = (struct pp_file_checks){0};
    if (pp_thread_start(&b->thread, check_in_background, b, err)) {
        b->joined = true;
        pp_background_check_destroy(b);
        return -1;
    }
    *out = b;
    return 0;
}

bool pp_background_check_failed(const struct pp_background_check *b)
{
    return b->failed;
}

static void join(struct pp_background_check *b)
{
    pthread_mutex_lock(&b->lock);
    if (!b->joined)
        pthread_join(b->thread, NULL);
    b->joined = true;
    pthread_mutex_unlock(&b->lock);
}

int pp_background_check_wait(struct pp_background_check *b, struct pp_err *err)
{
    b->hurry = true;
    join(b);
    return b->failed ? pp_fail(err, b->err.code, "%s", b->err.text) : 0;
}

void pp_background_check_destroy(struct pp_background_check *b)
{
    if (!b)
        return;
    b->hurry = b->stop = true;
    join(b);
    pthread_mutex_destroy(&b->lock);
    pp_file_checks_finish(&b->files);
    free(b);
}
