/* SPDX-License-Identifier: MIT */
/* test_stall - ranks as processes that are stopped for a while: who reports
 * them, and when nobody does. */
#include "free_port.h"
#include "tap.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/rendezvous.h"

enum { RANKS = 3, FAILED = 3 };
static const double patience = 1;

/* A job. Its ranks wait until `go` is closed, as if they computed, and then
 * meet once more. What they say goes to `said`, a line each. */
struct job {
    int port, go[2], said[2];
    bool abort, moves; /* moves: ranks are at another place in every beat */
    pid_t pids[RANKS];
};

/* One rank, in its process. */
struct self {
    int rank, out;
    int beats; /* so many times it has said where it is */
    bool moves;
};

static void say(void *ctx, const char *text)
{
    struct self *s = ctx;
    char line[600];
    int n = snprintf(line, sizeof line, "%d: %.580s\n", s->rank, text);
    ssize_t written = write(s->out, line, (size_t)n);
    (void)written;
}

static void describe(void *ctx, char *text, size_t room)
{
    struct self *s = ctx;
    s->beats++;
    snprintf(text, room, "place %d", s->moves ? s->beats : s->rank);
}

/* Rank 2 is asked to stop when the others have its first beats. */
static bool stopping(void *ctx)
{
    const struct self *s = ctx;
    return s->rank == 2 && s->beats >= 3;
}

static void stop(void *ctx)
{
    say(ctx, "stop");
}

static int be_rank(const struct job *job, int rank)
{
    struct self self = {rank, job->said[1], 0, job->moves};
    const struct pp_rendezvous_observer observer = {
        .seconds = patience,
        .abort = job->abort,
        .say = say,
        .describe = describe,
        .stopping = stopping,
        .stop = stop,
        .ctx = &self,
    };
    const struct pp_rendezvous_place place = {
        .rank = rank,
        .size = RANKS,
        .local = -1,
        .address = "127.0.0.1",
        .port = job->port,
        .version = "1",
        .seconds = 60,
        .observer = &observer,
    };
    struct pp_rendezvous *j;
    struct pp_err err = {0};
    char none, all[RANKS];
    if (pp_rendezvous_open(&place, &j, &err))
        return FAILED + 1;
    while (read(job->go[0], &none, 1) < 0)
        ;
    int rc = pp_rendezvous_allgather(j, &none, all, 1, &err) ? FAILED : 0;
    if (rc)
        say(&self, err.text);
    pp_rendezvous_close(j);
    return rc;
}

/* Starts the ranks, and returns when rank 0 knows that rank 2 was asked to
 * stop: then all are connected and have sent beats. */
static void start_as(struct job *job, bool abort_it, bool moves)
{
    char line[16];
    size_t n = 0;
    *job = (struct job){.port = free_port(), .abort = abort_it, .moves = moves};
    if (pipe(job->go) != 0 || pipe(job->said) != 0)
        abort();
    fflush(stdout);
    for (int r = 0; r < RANKS; r++) {
        job->pids[r] = fork();
        if (job->pids[r] == 0) {
            close(job->go[1]);
            _exit(be_rank(job, r));
        }
    }
    close(job->said[1]);
    while (n < sizeof line && read(job->said[0], line + n, 1) == 1 &&
           line[n] != '\n')
        n++;
    ok(n == 7 && !memcmp(line, "0: stop", 7),
       "rank 0 learns that another rank was asked to stop");
}

static void start(struct job *job, bool abort_it)
{
    start_as(job, abort_it, false);
}

/* Reads what the ranks say until it has the text, or to the end. */
static bool hears(struct job *job, char *heard, size_t room, const char *text)
{
    size_t n = strlen(heard);
    while (!text || !strstr(heard, text)) {
        ssize_t got = read(job->said[0], heard + n, room - n - 1);
        if (got <= 0)
            return false;
        n += (size_t)got;
        heard[n] = '\0';
    }
    return true;
}

/* Lets the ranks finish and returns whether all end with the status. */
static bool finish(struct job *job, int status, char *heard, size_t room)
{
    bool all = true;
    close(job->go[1]);
    (void)hears(job, heard, room, NULL);
    for (int r = 0; r < RANKS; r++) {
        int is;
        waitpid(job->pids[r], &is, 0);
        all &= WIFEXITED(is) && WEXITSTATUS(is) == status;
    }
    close(job->go[0]);
    close(job->said[0]);
    for (char *line = strtok(heard, "\n"); line; line = strtok(NULL, "\n"))
        printf("# %s\n", line);
    return all;
}

static bool is_said_once(const char *heard, const char *text)
{
    const char *at = strstr(heard, text);
    return at && !strstr(at + 1, text);
}

static void test_stopped_rank(void)
{
    struct job job;
    char heard[4000] = "";
    start(&job, false);
    kill(job.pids[2], SIGSTOP);
    ok(hears(&job, heard, sizeof heard, "meanwhile"),
       "a rank that is stopped is reported");
    kill(job.pids[2], SIGCONT);
    ok(hears(&job, heard, sizeof heard, "answers again, after"),
       "so is its return");
    ok(strstr(heard, "0: rank 2 on ") &&
           is_said_once(heard, "has not answered for ") &&
           is_said_once(heard, " s; it was at place 2\n") &&
           is_said_once(heard, "0: meanwhile rank 0 is at place 0, "
                               "rank 1 is at place 1\n"),
       "once, with the places of the ranks");
    ok(!strstr(heard, "1: ") && !strstr(heard, "2: rank"),
       "only rank 0 reports it");
    ok(finish(&job, 0, heard, sizeof heard), "the job goes on");
}

/* The place of a stopped rank is as old as its last beat. */
static void test_moving_ranks(void)
{
    struct job job;
    char heard[4000] = "";
    start_as(&job, false, true);
    kill(job.pids[2], SIGSTOP);
    ok(hears(&job, heard, sizeof heard, "meanwhile"),
       "a rank that is stopped between two beats is reported");
    ok(is_said_once(heard, " when it last answered, and went on\n"),
       "as one that went on with the others");
    kill(job.pids[2], SIGCONT);
    ok(finish(&job, 0, heard, sizeof heard), "the job goes on");
}

static void test_stopped_rank_0(void)
{
    struct job job;
    char heard[4000] = "";
    start(&job, false);
    kill(job.pids[0], SIGSTOP);
    ok(hears(&job, heard, sizeof heard, "1: meanwhile rank 1 is at place 1\n"),
       "rank 1 reports that rank 0 is stopped");
    kill(job.pids[0], SIGCONT);
    ok(hears(&job, heard, sizeof heard, "answers again"), "and its return");
    ok(strstr(heard, "1: rank 0 on ") && !strstr(heard, "0: ") &&
           !strstr(heard, "2: "),
       "rank 0 does not count its own pause; rank 2 is on the same machine");
    ok(finish(&job, 0, heard, sizeof heard), "the job goes on");
}

static void test_suspended_job(void)
{
    struct job job;
    char heard[4000] = "";
    start(&job, false);
    for (int r = 0; r < RANKS; r++)
        kill(job.pids[r], SIGSTOP);
    usleep((useconds_t)(1.5e6 * patience));
    for (int r = 0; r < RANKS; r++)
        kill(job.pids[r], SIGCONT);
    /* The ranks "compute" for longer than a silent rank may be silent. */
    usleep((useconds_t)(1.5e6 * patience));
    close(job.go[1]);
    job.go[1] = -1;
    (void)hears(&job, heard, sizeof heard, NULL);
    ok(!*heard, "nobody reports a job that is suspended, or that computes");
    ok(finish(&job, 0, heard, sizeof heard), "the job goes on");
}

static void test_abort(void)
{
    struct job job;
    char heard[4000] = "";
    start(&job, true);
    kill(job.pids[1], SIGSTOP);
    ok(hears(&job, heard, sizeof heard, "0: meanwhile"),
       "a stopped rank is reported");
    close(job.go[1]);
    job.go[1] = -1;
    ok(hears(&job, heard, sizeof heard, "\n0: rank 1 on ") &&
           hears(&job, heard, sizeof heard, "\n2: rank 1 on "),
       "and ends the other ranks");
    kill(job.pids[1], SIGCONT);
    ok(hears(&job, heard, sizeof heard, "\n1: rank 1 on "),
       "and itself when it goes on");
    ok(finish(&job, FAILED, heard, sizeof heard), "all fail");
}

int main(void)
{
    test_stopped_rank();
    test_moving_ranks();
    test_stopped_rank_0();
    test_suspended_job();
    test_abort();
    return done();
}
