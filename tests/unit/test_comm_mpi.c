/* SPDX-License-Identifier: MIT */
/* test_comm_mpi - tests the contract of comm.h between processes with MPI. This
 * program starts mpirun, which starts it again as every rank. */
#include "free_port.h"
#include "tap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "comm/mpi.h"
#include "comm/rendezvous.h"
#include "collective_contract.h"
#include "comm_contract.h"

/* Size of a block. It is small, to test messages of several blocks. */
#define MOST 1000

enum { MANY_GATHERS = 100, MANY_MESSAGES = 2000 };

/* Tests sizes of about one and several blocks. */
static void blocks_body(struct contract *t, struct pp_comm *c)
{
    static const size_t sizes[] = {MOST, MOST + 1, 3 * MOST, 5 * MOST - 1, 1};
    struct pp_err err = {0};
    unsigned char buf[5 * MOST];
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof buf; k++)
            buf[k] = c->rank == 0 ? (unsigned char)(k % 251 + i) : 0;
        if (c->rank == 0) {
            expect(t, !c->ops->send(c, 1, PP_DIRECTION_FORWARD, buf, sizes[i],
                                    &err));
            expect(t, !c->ops->send_wait(c, 1, PP_DIRECTION_FORWARD, 0, &err));
            continue;
        }
        expect(t, !c->ops->probe(c, 0, PP_DIRECTION_FORWARD, &bytes, &err));
        expect(t, bytes == sizes[i]);
        expect(t, !pp_comm_receive(c, 0, PP_DIRECTION_FORWARD, buf, sizes[i],
                                   &err));
        for (size_t k = 0; k < sizeof buf; k++)
            expect(t,
                   buf[k] == (k < sizes[i] ? (unsigned char)(k % 251 + i) : 0));
    }
}

/* One job of each depth runs all of them in this order, on the first size
 * ranks. */
static const struct program {
    contract_body *body;
    int size;
    const char *promise;
    int least_depth;
} programs[] = {
    {depth_body, 2, DEPTH_PROMISE, 0},
    {posted_body, 2, POSTED_PROMISE, 0},
    {room_body, 2, ROOM_PROMISE, 1},
    {directions_body, 2, DIRECTIONS_PROMISE, 1},
    {probe_body, 2, PROBE_PROMISE, 0},
    {sync_body, 2, SYNC_PROMISE, 0},
    {gather_body, 4, GATHER_PROMISE, 0},
    {collective_body, 4, COLLECTIVE_PROMISE, 0},
    {stress_body, 4, STRESS_PROMISE, 0},
    {blocks_body, 2, "messages of several blocks are whole", 0},
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs, LAST = N_PROGRAMS };

/* A job ends with one of these, because it aborts the job or needs its depth.
 */
static const struct program last_programs[] = {
    {mismatch_body, 3, "a message of another size fails everywhere", 0},
    {abort_body, 4, "an abort ends every call", 1},
    {wait_body, 2, WAIT_PROMISE, 2},
};

static const struct program *program(int i, int depth)
{
    return i < LAST ? &programs[i] : &last_programs[depth];
}

/* State that the processes share, in a file. */
struct shared {
    struct contract at[N_PROGRAMS + 1];
    atomic_int n_ended; /* ranks */
};

static struct shared *map(const char *path)
{
    int fd = open(path, O_RDWR);
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                   MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* --- a rank --- */

static int open_rank(int port, int depth, struct pp_rendezvous **join,
                     struct pp_comm **comm, struct pp_err *err)
{
    const struct pp_rendezvous_place place = {
        .rank = atoi(getenv("OMPI_COMM_WORLD_RANK")),
        .size = MAX_RANKS,
        .local = -1,
        .address = "127.0.0.1",
        .port = port,
        .version = "1",
        .seconds = 30};
    struct pp_mpi_options o = {.capacity = {depth, ROOM}, .most = MOST};
    char module[4096];
    snprintf(module, sizeof module, "%s/cmd/pprun-mpi.so", getenv("BUILDDIR"));
    return pp_mpi_open(module, &o.mpi, err) ||
                   pp_rendezvous_open(&place, join, err) ||
                   pp_comm_mpi_open(*join, &o, comm, err)
               ? -1
               : 0;
}

static int be_rank(const char *path, int port, int depth)
{
    struct shared *s = map(path);
    struct pp_rendezvous *join = NULL;
    struct pp_comm *c = NULL;
    struct pp_err err = {0};
    char unsent;
    alarm(30);
    if (!s || open_rank(port, depth, &join, &c, &err)) {
        fprintf(stderr, "test_comm_mpi: %s\n", err.text);
        return 1;
    }
    for (int i = 0; i <= LAST; i++) {
        const struct program *p = program(i, depth);
        if (c->rank < p->size && depth >= p->least_depth)
            p->body(&s->at[i], c);
        if (i < LAST && c->ops->barrier(c, &err))
            return 1;
    }
    /* Closing drops a receive without a message. */
    if (depth == 2 && c->ops->recv(c, (c->rank + 1) % MAX_RANKS,
                                   PP_DIRECTION_SYNC, &unsent, 1, &err))
        return 1;
    c->ops->close(c);
    pp_rendezvous_close(join);
    s->n_ended++;
    return 0;
}

/* --- the test --- */

static void run_mpirun(const char *self, const char *path, int depth)
{
    char text[2][16], ranks[16];
    snprintf(text[0], sizeof text[0], "%d", free_port());
    snprintf(text[1], sizeof text[1], "%d", depth);
    snprintf(ranks, sizeof ranks, "%d", MAX_RANKS);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI itself leaks memory */
    /* mpirun does not always notice that an aborted job has ended. */
    if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        execlp("timeout", "timeout", "-s", "KILL", "60", "mpirun",
               "--allow-run-as-root", "--oversubscribe", "-n", ranks, self,
               path, text[0], text[1], NULL);
    _exit(127);
}

/* After one rank of an aborted job has ended, mpirun kills the others, perhaps
 * before they know why. */
static void report_abort(const struct contract *last, int n_ranks,
                         const char *why)
{
    int n_heard = 0;
    for (int r = 0; r < n_ranks; r++) {
        bool heard = last->text[r][0] != '\0';
        n_heard += heard;
        is_str(heard ? last->text[r] : why, why,
               "with the first message and its rank");
    }
    ok(n_heard > 0, "at least one rank knows why");
}

static void report(struct shared *s, int depth, int status)
{
    for (int i = 0; i <= LAST; i++) {
        const struct program *p = program(i, depth);
        if (depth >= p->least_depth)
            is_int(s->at[i].bad, 0, p->promise);
    }
    if (depth < 2) {
        report_abort(&s->at[LAST], last_programs[depth].size,
                     depth == 0 ? MISMATCH_TEXT : ABORT_TEXT);
        return;
    }
    is_int(s->n_ended, MAX_RANKS, "all ranks end");
    is_int(status, 0, "mpirun succeeds");
}

static bool run_job(const char *self, int depth)
{
    char path[] = "/tmp/test_comm_mpi.XXXXXX";
    int fd = mkstemp(path), status;
    struct shared *s =
        fd >= 0 && ftruncate(fd, sizeof *s) == 0 ? map(path) : NULL;
    if (!s)
        return ok(false, "create a shared file");
    close(fd);
    for (int i = 0; i <= LAST; i++) {
        struct contract *t = &s->at[i];
        t->size = program(i, depth)->size;
        t->depth = depth;
        t->n_gathers = MANY_GATHERS;
        t->n_messages = MANY_MESSAGES;
    }
    pid_t pid = fork();
    if (pid == 0)
        run_mpirun(self, path, depth);
    waitpid(pid, &status, 0);
    unlink(path);
    bool there = !WIFEXITED(status) || WEXITSTATUS(status) != 127;
    if (there)
        report(s, depth, status);
    munmap(s, sizeof *s);
    return there;
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return be_rank(argv[1], atoi(argv[2]), atoi(argv[3]));
    for (int depth = 0; depth <= 2; depth++)
        if (!run_job(argv[0], depth)) {
            skip("messages through MPI", "there is no mpirun");
            break;
        }
    return done();
}
