/* SPDX-License-Identifier: MIT */
/* test_rendezvous - ranks as processes: how they join, exchange data and end.
 */
#include "free_port.h"
#include "tap.h"

#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous.h"

enum { MAX_RANKS = 7, BIG = 3 << 20 };

/* Statuses of a rank that cannot join and prints why, or leaves that to rank
 * 0. */
enum { REFUSED = 90, TOLD = 91 };

/* The program of a rank. Returns its exit status, 0 to 89. */
typedef int body_fn(struct pp_rendezvous *j, const char *say);

/* A job whose ranks run body, with the wait status and the output of each
 * rank. */
struct job {
    int size;
    const char *version[MAX_RANKS]; /* NULL: "1" */
    int says_size[MAX_RANKS];       /* 0: the true one */
    int says_rank[MAX_RANKS];       /* 0: the true one */
    int absent;                     /* this rank never starts; 0: none */
    int fails[MAX_RANKS]; /* exit status of a rank that cannot start */
    int late;             /* this rank starts a moment later */
    double seconds; /* longest wait of rank 0 for the others; 0: a minute */
    body_fn *body;
    int status[MAX_RANKS];
    char text[MAX_RANKS][480];
};

static int be_rank(const struct job *job, int rank, int port, int out)
{
    struct pp_rendezvous *j;
    struct pp_err err = {0}, failure = {0};
    bool told = false;
    if (job->fails[rank])
        pp_fail(&failure, (enum pp_exit)job->fails[rank], "no device");
    if (job->late && rank == job->late)
        usleep(300000);
    const struct pp_rendezvous_place place = {
        .rank = job->says_rank[rank] ? job->says_rank[rank] : rank,
        .size = job->says_size[rank] ? job->says_size[rank] : job->size,
        .local = -1,
        .address = "127.0.0.1",
        .port = port,
        .job = 7,
        .version = job->version[rank] ? job->version[rank] : "1",
        .seconds = rank == 0 && job->seconds > 0 ? job->seconds : 60,
        .failure = job->fails[rank] ? &failure : NULL,
        .told = &told};
    int rc = REFUSED;
    if (pp_rendezvous_open(&place, &j, &err) == 0) {
        rc = job->body(j, err.text);
        if (pp_rendezvous_aborted(j))
            pp_rendezvous_fail(j, &err);
        pp_rendezvous_close(j);
    }
    ssize_t n = write(out, err.text, strlen(err.text));
    (void)n;
    return rc == REFUSED && told ? TOLD : rc;
}

static void run(struct job *job)
{
    int port = free_port(), pipes[MAX_RANKS][2];
    pid_t pids[MAX_RANKS] = {0};
    fflush(stdout);
    for (int r = 0; r < job->size; r++) {
        if (job->absent && r == job->absent)
            continue;
        if (pipe(pipes[r]) != 0)
            abort();
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(be_rank(job, r, port, pipes[r][1]));
        close(pipes[r][1]);
    }
    for (int r = 0; r < job->size; r++) {
        if (!pids[r])
            continue;
        waitpid(pids[r], &job->status[r], 0);
        ssize_t n = read(pipes[r][0], job->text[r], sizeof job->text[r] - 1);
        job->text[r][n > 0 ? n : 0] = '\0';
        close(pipes[r][0]);
    }
}

static bool all_ended(const struct job *job, int status)
{
    bool all = true;
    for (int r = 0; r < job->size; r++)
        all &= (job->absent && r == job->absent) ||
               (WIFEXITED(job->status[r]) &&
                (WEXITSTATUS(job->status[r]) == status ||
                 (status == REFUSED && WEXITSTATUS(job->status[r]) == TOLD)));
    for (int r = 0; r < job->size && !all; r++)
        printf("# rank %d: status %x, %s\n", r, (unsigned)job->status[r],
               job->text[r]);
    return all;
}

/* Tests all calls of a job that succeeds. */
static int talk(struct pp_rendezvous *j, const char *say)
{
    struct pp_err err = {0};
    int rank = pp_rendezvous_rank(j), size = pp_rendezvous_size(j), bad = 0;
    uint64_t mine = 100 + (uint64_t)rank, all[MAX_RANKS];
    (void)say;
    for (int i = 0; i < 50; i++) {
        if (pp_rendezvous_allgather(j, &mine, all, sizeof mine, &err))
            return 1;
        for (int r = 0; r < size; r++)
            bad += all[r] != 100 + (uint64_t)r;
    }
    void *text = rank == 0 ? strdup("plan") : NULL;
    size_t n = rank == 0 ? 4 : 0;
    if (pp_rendezvous_broadcast(j, &text, &n, &err) || n != 4 ||
        memcmp(text, "plan", 4))
        return 2;
    free(text);
    /* More than the sockets' buffers hold, from every rank at once. */
    unsigned char *big = malloc(BIG);
    for (int r = 1; r < size; r++) {
        if (rank == r) {
            memset(big, r, BIG);
            if (pp_rendezvous_send(j, 0, big, BIG, &err))
                return 3;
        }
        if (rank == 0) {
            if (pp_rendezvous_recv(j, r, big, BIG, &err))
                return 4;
            bad += big[0] != r || big[BIG - 1] != r;
        }
    }
    free(big);
    bad += pp_rendezvous_local(j) != rank || !*pp_rendezvous_host(j, size - 1);
    return bad ? 5 : 0;
}

/* Works until another rank ends. */
static int work(struct pp_rendezvous *j)
{
    struct pp_err err = {0};
    uint64_t mine = 0, all[MAX_RANKS];
    while (pp_rendezvous_allgather(j, &mine, all, sizeof mine, &err) == 0)
        ;
    return 3;
}

static int four_dies(struct pp_rendezvous *j, const char *say)
{
    (void)say;
    if (pp_rendezvous_rank(j) == 4)
        raise(SIGKILL);
    return work(j);
}

static int zero_dies(struct pp_rendezvous *j, const char *say)
{
    (void)say;
    if (pp_rendezvous_rank(j) == 0)
        raise(SIGKILL);
    return work(j);
}

static int one_gives_up(struct pp_rendezvous *j, const char *say)
{
    (void)say;
    if (pp_rendezvous_rank(j) == 1) {
        pp_rendezvous_abort(j, "no more");
        pp_rendezvous_abort(j, "and then this");
        return 3;
    }
    return work(j);
}

static int failing_look(void *ctx, struct pp_err *err)
{
    (void)ctx;
    return pp_fail(err, PP_EXIT_SYSTEM, "looks bad");
}

static void note_abort(void *ctx)
{
    *(volatile int *)ctx += 1;
}

static int one_sees(struct pp_rendezvous *j, const char *say)
{
    (void)say;
    static volatile int told;
    const struct pp_rendezvous_watcher w = {
        pp_rendezvous_rank(j) == 1 ? failing_look : NULL, note_abort,
        (void *)&told};
    pp_rendezvous_watch(j, &w);
    int rc = work(j);
    while (!told)
        usleep(1000);
    pp_rendezvous_watch(j, NULL);
    return told == 1 ? rc : 4;
}

static int other_size(struct pp_rendezvous *j, const char *say)
{
    struct pp_err err = {0};
    (void)say;
    uint64_t mine[2] = {0}, all[2 * MAX_RANKS];
    size_t bytes = pp_rendezvous_rank(j) == 1 ? sizeof mine : sizeof *mine;
    return pp_rendezvous_allgather(j, mine, all, bytes, &err) ? 3 : 0;
}

/* All ranks end. One that has not begun its body leaves the reason to rank 0
 * or, if a rank is lost, to its observer. */
static void test_end(body_fn *body, const char *what, const char *text,
                     int killed)
{
    struct job job = {.size = MAX_RANKS, .body = body};
    bool ended = true, named = true;
    run(&job);
    for (int r = 0; r < job.size; r++) {
        if (r == killed)
            continue;
        ended &= WIFEXITED(job.status[r]) &&
                 (WEXITSTATUS(job.status[r]) == 3 ||
                  (r > 0 && WEXITSTATUS(job.status[r]) == TOLD));
        named &= strstr(job.text[r], text) != NULL;
        printf("# rank %d: status %x, %s\n", r, (unsigned)job.status[r],
               job.text[r]);
    }
    ok(ended, "%s: all end", what);
    ok(named, "%s: all know why", what);
}

static void test_refusal(struct job job, const char *what, int first,
                         const char *text)
{
    job.body = talk;
    run(&job);
    ok(all_ended(&job, REFUSED), "%s is refused", what);
    if (!ok(strstr(job.text[first], text) && strstr(job.text[0], text),
            "and both sides know"))
        printf("# '%s', '%s'\n", job.text[0], job.text[first]);
}

/* Tests ranks that cannot start. All must end well before the time-out of a
 * minute. */
static void test_failure(struct job job, const char *what, const char *text)
{
    double start = pp_clock();
    bool named = true;
    job.body = talk;
    run(&job);
    double took = pp_clock() - start;
    for (int r = 0; r < job.size; r++) {
        if (r == job.absent && r)
            continue;
        named &= strstr(job.text[r], job.fails[r] ? "no device" : text) != NULL;
        /* Rank 0 and the rank that failed print the reason. */
        named &= WEXITSTATUS(job.status[r]) ==
                 (r == 0 || job.fails[r] ? REFUSED : TOLD);
        printf("# rank %d: status %x, %s\n", r, (unsigned)job.status[r],
               job.text[r]);
    }
    ok(took < 20, "%s: all end soon (%.1f s)", what, took);
    ok(named, "%s: all know why", what);
}

static void test_failures(void)
{
    test_failure((struct job){.size = 4, .fails = {0, 0, 3}},
                 "a rank that cannot start", "cannot start: no device");
    test_failure((struct job){.size = 4, .fails = {0, 3}, .late = 3},
                 "and another that is late", "cannot start: no device");
    test_failure((struct job){.size = 4, .fails = {0, 3}, .absent = 3},
                 "and another that never comes", "cannot start: no device");
    test_failure((struct job){.size = 4, .fails = {2}, .late = 2},
                 "rank 0 that cannot start", "rank 0 on ");
    test_failure((struct job){.size = 3, .fails = {3, 3, 3}},
                 "nobody who can start", "no device");
    struct job alone = {.size = 1, .fails = {3}, .body = talk};
    run(&alone);
    ok(all_ended(&alone, REFUSED) && !strcmp(alone.text[0], "no device"),
       "one rank that cannot start");
}

int main(void)
{
    struct job job = {.size = MAX_RANKS, .body = talk};
    run(&job);
    ok(all_ended(&job, 0), "seven ranks meet and talk");
    job = (struct job){.size = 1, .body = talk};
    run(&job);
    ok(all_ended(&job, 0), "a job of one rank");
    test_end(four_dies, "a killed rank inside the tree", "rank 4 on ", 4);
    test_end(zero_dies, "a killed rank 0", "rank 0 on ", 0);
    test_end(one_gives_up, "an abort", "rank 1: no more", -1);
    test_end(one_sees, "a watcher's failure", "rank 1: looks bad", -1);
    test_end(other_size, "sizes that differ",
             "rank 0: message from rank 1 has 16 bytes, expected 8", -1);
    test_refusal((struct job){.size = 2, .version = {NULL, "2"}},
                 "another version", 1, "is version '2', not '1'");
    test_refusal((struct job){.size = 2, .says_size = {0, 3}}, "another size",
                 1, "expects 3 ranks, but rank 0 expects 2");
    test_refusal((struct job){.size = 3, .says_rank = {0, 0, 1}},
                 "a rank that is there twice", 1, "two processes are rank 1");
    test_refusal((struct job){.size = 3, .absent = 2, .seconds = 3},
                 "a rank that is missing", 1,
                 "1 of 3 ranks did not join in time, for example rank 2");
    test_failures();
    return done();
}
