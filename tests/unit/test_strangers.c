/* SPDX-License-Identifier: MIT */
/* test_strangers - other programs at the port where ranks meet: silent, slow,
 * wrong or hostile, on either side; and ranks that end or wait in vain. */
#include "stranger.h"

/* A hello that would end the job if rank 0 believed it. */
static struct pp_hello fatal_hello(const struct pp_rendezvous_place *p)
{
    struct pp_hello h;
    pp_hello_fill(p, &h);
    h.rank = 1;
    h.failed = 99;
    snprintf(h.host, sizeof h.host, "\033]0;node\007");
    snprintf(h.why, sizeof h.why, "\033[2J\xff\xc2\x9b\xc3\xa4 forged");
    return h;
}

/* --- strangers at rank 0 --- */

/* Starts rank 0 of two, and rank 1 after the attack. Both must meet. */
static void test_attack(void (*attack)(int port), const char *what)
{
    int port = free_port();
    struct rank zero = start_rank(place_of(0, 2, port));
    attack(port);
    struct rank one = start_rank(place_of(1, 2, port));
    end_rank(&zero);
    end_rank(&one);
    if (!ok(zero.status == 0 && one.status == 0, "%s", what))
        printf("# %d '%s', %d '%s'\n", zero.status, zero.text, one.status,
               one.text);
}

static void drip(int port)
{
    struct pp_greeting g;
    struct pp_err err = {0};
    const struct pp_rendezvous_place p = place_of(1, 2, port);
    for (int i = 0; i < 20; i++) {
        int fd = dial(port);
        if (pp_greeting_init(&g, &p, &err))
            abort();
        pp_greeting_call(&g);
        for (int k = 0; k < 10; k++) {
            put(fd, (const char *)&g.call + k, 1);
            usleep(500);
        }
    }
}

static void say_garbage(int port)
{
    static unsigned char big[1 << 16];
    struct {
        char magic[8];
        char rest[600];
    } old = {"pp-join1", {0}};
    int fd = dial(port);
    put(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", 48);
    drain(fd);
    memset(big, 0xff, sizeof big);
    put(fd = dial(port), big, sizeof big);
    drain(fd);
    put(fd = dial(port), &old, sizeof old);
    drain(fd);
}

static void forge(int port)
{
    struct pp_rendezvous_place p = place_of(1, 2, port);
    const struct pp_hello base = fatal_hello(&p);
    struct pp_hello h = base;
    struct pp_greeting g;
    /* Without the secret, with another one, and for another job. */
    for (int i = 0; i < 3; i++) {
        p.secret = i == 1 ? "another secret, just as long...." : secret;
        p.secret_bytes = i ? sizeof secret : 0;
        p.job = i == 2 ? 8 : 7;
        int fd = greet(port, &p, &g);
        pp_hello_prove(&g, &h);
        put(fd, &h, sizeof h);
        drain(fd);
    }
    /* With rank 0's own proof. */
    p = place_of(1, 2, port);
    int fd = greet(port, &p, &g);
    memcpy(h.proof, g.answer.proof, sizeof h.proof);
    put(fd, &h, sizeof h);
    drain(fd);
    /* With the proof of another hello in this connection. */
    h = base;
    h.failed = 0;
    fd = greet(port, &p, &g);
    pp_hello_prove(&g, &h);
    h.failed = 2;
    put(fd, &h, sizeof h);
    drain(fd);
}

/* Repeats both messages of an earlier connection. */
static void replay(int port)
{
    const struct pp_rendezvous_place p = place_of(1, 2, port);
    struct pp_hello h = fatal_hello(&p);
    struct pp_greeting g;
    close(greet(port, &p, &g));
    pp_hello_prove(&g, &h);
    int fd = dial(port);
    put(fd, &g.call, sizeof g.call);
    put(fd, &h, sizeof h);
    drain(fd);
}

/* --- a rank of the job that errs --- */

/* A hello that has the proof is believed, so this shows that the forged ones
 * would do harm. */
static void test_clean(void)
{
    int port = free_port();
    struct rank zero = start_rank(place_of(0, 2, port));
    const struct pp_rendezvous_place p = place_of(1, 2, port);
    struct pp_hello h = fatal_hello(&p);
    struct pp_greeting g;
    int fd = greet(port, &p, &g);
    pp_hello_prove(&g, &h);
    put(fd, &h, sizeof h);
    ends(&zero, 3, "rank 1 on ?]0;node? cannot start: ?[2J???\xc3\xa4 forged",
         "text of a rank is escaped, and its status is a documented one");
    close(fd);
}

/* Makes a connection of a rank that is the process h->process. */
static int join(struct pp_rendezvous_place p, bool is_monitor,
                const struct pp_hello *h)
{
    struct pp_greeting g;
    int fd = greet(p.port, &p, &g);
    struct pp_hello own;
    pp_hello_fill(&p, &own);
    own.is_monitor = is_monitor;
    memcpy(own.process, h->process, sizeof own.process);
    pp_hello_prove(&g, &own);
    put(fd, &own, sizeof own);
    return fd;
}

/* The two connections of a rank come from one process. Rank 0 waits no longer
 * for others because rank 2 is there. */
static void test_two_processes(void)
{
    struct pp_hello h = {.process = {1}};
    int port = free_port(), fds[3];
    struct rank zero = start_rank(place_of(0, 3, port));
    fds[2] = join(place_of(2, 3, port), false, &h);
    for (int i = 0; i < 2; i++) {
        h.process[0]++;
        fds[i] = join(place_of(1, 3, port), i, &h);
    }
    ends(&zero, 2, "two processes are rank 1",
         "a process cannot take a connection of another");
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

/* A rank ends while it waits for the others. Here it is the test, which closes
 * its connections. */
static void test_lost_rank(void)
{
    struct pp_hello h = {.process = {1}};
    int port = free_port();
    struct rank zero = start_rank(place_of(0, 4, port));
    struct rank two = start_rank(place_of(2, 4, port));
    const struct pp_rendezvous_place p = place_of(1, 4, port);
    int data = join(p, false, &h), monitor = join(p, true, &h);
    shutdown(data, SHUT_WR);
    drain(data); /* until rank 0 has seen it */
    struct rank three = start_rank(place_of(3, 4, port));
    ends(&zero, 3, "is lost: its connection has ended",
         "rank 0 says which rank has ended");
    ends(&two, 3 + HEARD, "rank 1 on ", "a rank that waits learns of it");
    ends(&three, 3 + HEARD, "rank 1 on ", "and a late one");
    close(monitor);
}

/* --- ranks that wait in vain --- */

/* They do so at the same time. In these seconds they also have to begin, and on
 * a busy machine that takes a while. */
static const double limit = 3;

static struct rank start_limited(struct pp_rendezvous_place p)
{
    p.seconds = limit;
    return start_rank(p);
}

/* Strangers in the place of rank 0. */
enum kind { ACCEPTS, CLOSES, TALKS, LIES, LIES_ONCE, N_KINDS };

static const struct {
    int status;
    const char *text, *what;
} fakes[N_KINDS] = {
    [ACCEPTS] = {3, "accepts connections but does not answer",
                 "a program that says nothing is named"},
    [CLOSES] = {3, "another program than rank 0 has the port",
                "so is one that closes connections"},
    [TALKS] = {3, "another program than rank 0 has the port",
               "and one that says something else"},
    [LIES] = {2, "is of another job, or has another secret",
              "and one that does not know the secret"},
    [LIES_ONCE] = {2, "is of another job, or has another secret",
                   "also if it says nothing later"},
};

/* A program that is not rank 0, and a rank that meets it. */
struct fake {
    int listener;
    pid_t pid;
    struct rank one;
};

static void be_fake(enum kind kind, int listener)
{
    static const char greeting[] =
        "220 mail.example.org ESMTP and a long greeting which has more bytes "
        "than an answer\r\n";
    const struct pp_answer answer = {.magic = "pp-join3"};
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (kind == TALKS)
            put(fd, greeting, sizeof greeting - 1);
        if (kind == LIES || kind == LIES_ONCE)
            put(fd, &answer, sizeof answer);
        close(fd);
        if (kind == LIES_ONCE)
            pause();
    }
}

static struct fake start_fake(enum kind kind)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    struct fake f = {.listener = socket(AF_INET, SOCK_STREAM, 0)};
    if (bind(f.listener, (struct sockaddr *)&a, n) != 0 ||
        listen(f.listener, 16) != 0 ||
        getsockname(f.listener, (struct sockaddr *)&a, &n) != 0)
        abort();
    f.pid = kind == ACCEPTS ? 0 : fork();
    if (kind != ACCEPTS && f.pid == 0)
        be_fake(kind, f.listener);
    f.one = start_limited(place_of(1, 2, ntohs(a.sin_port)));
    return f;
}

static void kill_and_wait(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void end_fake(enum kind kind, struct fake *f)
{
    ends(&f->one, fakes[kind].status, fakes[kind].text, fakes[kind].what);
    if (f->pid)
        kill_and_wait(f->pid);
    close(f->listener);
}

/* Another rank 0 meets the test, which does not know its secret. */
static void start_others_secret(struct rank ranks[3])
{
    int port = free_port();
    struct pp_rendezvous_place other = place_of(1, 2, port);
    struct pp_greeting g;
    struct pp_hello h;
    other.secret = NULL;
    ranks[0] = start_rank(place_of(0, 2, port));
    ranks[1] = start_limited(other);
    other.port = free_port();
    ranks[2] = start_limited(place_of(0, 2, other.port));
    int fd = greet(other.port, &other, &g);
    pp_hello_fill(&other, &h);
    pp_hello_prove(&g, &h);
    put(fd, &h, sizeof h);
    drain(fd);
}

static void end_others_secret(struct rank ranks[3])
{
    ends(&ranks[1], 2, "is of another job, or has another secret",
         "a rank without the secret does not join");
    kill_and_wait(ranks[0].pid);
    close(ranks[0].out);
    ends(&ranks[2], 3, "for example rank 1; other programs connected, or ranks",
         "and rank 0 says that somebody tried");
}

/* Rank 0 stops when rank 1 has joined, before rank 2 has both connections. */
static void test_waits(void)
{
    struct pp_hello h = {.process = {1}};
    struct rank secrets[3];
    struct fake f[N_KINDS];
    int port = free_port();
    struct rank zero = start_rank(place_of(0, 3, port));
    struct rank one = start_limited(place_of(1, 3, port));
    int two = join(place_of(2, 3, port), false, &h);
    for (enum kind k = 0; k < N_KINDS; k++)
        f[k] = start_fake(k);
    start_others_secret(secrets);
    usleep((useconds_t)(0.7e6 * limit));
    kill(zero.pid, SIGSTOP);
    for (enum kind k = 0; k < N_KINDS; k++)
        end_fake(k, &f[k]);
    end_others_secret(secrets);
    ends(&one, 3, "it is stopped, or waits for other ranks",
         "a rank 0 that is stopped does not hold others for longer");
    kill(zero.pid, SIGCONT);
    ends(&zero, 3, "rank 1 on ", "and learns of it later");
    close(two);
}

int main(void)
{
    raise_limit();
    test_attack(say_garbage, "garbage is ignored");
    test_attack(forge, "so are forged hellos");
    test_attack(replay, "and those of an earlier connection");
    test_attack(drip, "slow connections delay nobody");
    double start = pp_clock();
    test_attack(be_silent, "nor do a thousand silent ones");
    printf("# %.3f s\n", pp_clock() - start);
    test_clean();
    test_two_processes();
    test_lost_rank();
    test_waits();
    return done();
}
