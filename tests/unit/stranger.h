/* SPDX-License-Identifier: MIT */
/* stranger - ranks as processes, and connections of other programs to them. */
#ifndef PP_TESTS_STRANGER_H
#define PP_TESTS_STRANGER_H

#include "free_port.h"
#include "tap.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/hello.h"

/* The exit status of a rank is that of its error, plus HEARD if rank 0 prints
 * it. */
enum { MAX_RANKS = 4, SILENT = 1000, HEARD = 64 };

static const char secret[] = "a secret of 32 bytes for a test.";

struct rank {
    pid_t pid;
    int out;
    int status;
    char text[600];
};

__attribute__((unused)) static struct pp_rendezvous_place
place_of(int rank, int size, int port)
{
    return (struct pp_rendezvous_place){.rank = rank,
                                        .size = size,
                                        .local = -1,
                                        .address = "127.0.0.1",
                                        .port = port,
                                        .job = 7,
                                        .secret = secret,
                                        .secret_bytes = sizeof secret,
                                        .version = "1",
                                        .seconds = 60};
}

static int be_rank(struct pp_rendezvous_place p, int out)
{
    struct pp_rendezvous *j;
    struct pp_err err = {0};
    bool told = false;
    int all[MAX_RANKS] = {0}, mine = 10 + p.rank, bad = 0;
    p.told = &told;
    if (pp_rendezvous_open(&p, &j, &err) == 0) {
        bad = pp_rendezvous_allgather(j, &mine, all, sizeof mine, &err);
        for (int r = 0; r < p.size; r++)
            bad |= all[r] != 10 + r;
        pp_rendezvous_close(j);
    }
    ssize_t n = write(out, err.text, strlen(err.text));
    (void)n;
    return err.code ? (int)err.code + told * HEARD : bad;
}

__attribute__((unused)) static struct rank
start_rank(struct pp_rendezvous_place p)
{
    struct rank r = {.pid = -1};
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    fflush(stdout);
    r.pid = fork();
    if (r.pid == 0)
        _exit(be_rank(p, ends[1]));
    close(ends[1]);
    r.out = ends[0];
    return r;
}

__attribute__((unused)) static void end_rank(struct rank *r)
{
    int status;
    waitpid(r->pid, &status, 0);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
    ssize_t n = read(r->out, r->text, sizeof r->text - 1);
    r->text[n > 0 ? n : 0] = '\0';
    close(r->out);
}

/* Tests how a rank ended. */
__attribute__((unused)) static void ends(struct rank *r, int status,
                                         const char *text, const char *what)
{
    end_rank(r);
    if (!ok(r->status == status && strstr(r->text, text), "%s", what))
        printf("# status %d, '%s'\n", r->status, r->text);
}

/* Aborts the test if nobody listens, because rank 0 has ended. */
__attribute__((unused)) static int dial(int port)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int tries = 0; tries < 4000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        if (fd < 0 || errno != ECONNREFUSED)
            break;
        close(fd);
        usleep(5000);
    }
    abort();
}

__attribute__((unused)) static void put(int fd, const void *data, size_t n)
{
    ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
    (void)sent;
}

__attribute__((unused)) static bool get(int fd, void *data, size_t n)
{
    return recv(fd, data, n, MSG_WAITALL) == (ssize_t)n;
}

/* Waits until the other side closes. */
__attribute__((unused)) static void drain(int fd)
{
    char rest[256];
    while (recv(fd, rest, sizeof rest, 0) > 0)
        ;
    close(fd);
}

/* Calls a rank that listens, with the key in g, and takes its answer. */
__attribute__((unused)) static int call_rank(int port, struct pp_greeting *g)
{
    int fd = dial(port);
    pp_greeting_call(g);
    put(fd, &g->call, sizeof g->call);
    if (!get(fd, &g->answer, sizeof g->answer))
        abort();
    return fd;
}

/* Calls rank 0 and takes its answer. */
__attribute__((unused)) static int
greet(int port, const struct pp_rendezvous_place *p, struct pp_greeting *g)
{
    struct pp_err err = {0};
    if (pp_greeting_init(g, p, &err))
        abort();
    return call_rank(port, g);
}

/* Makes the limit of open files the largest. */
__attribute__((unused)) static void raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The connections stay open until the test program ends. */
__attribute__((unused)) static void be_silent(int port)
{
    for (int i = 0; i < SILENT; i++)
        (void)dial(port);
}

#endif
