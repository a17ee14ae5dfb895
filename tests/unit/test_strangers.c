/* SPDX-License-Identifier: MIT */
/* test_strangers - other programs at the port where ranks meet: silent, slow,
 * wrong or hostile, on either side. */
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

/* The two connections of a rank come from one process. */
static void test_two_processes(void)
{
    int port = free_port();
    struct pp_rendezvous_place p = place_of(0, 3, port);
    struct pp_greeting g;
    struct pp_hello h;
    p.seconds = 1;
    struct rank zero = start_rank(p);
    p = place_of(1, 3, port);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = greet(port, &p, &g);
        pp_hello_fill(&p, &h);
        pp_hello_random(h.process, sizeof h.process);
        h.is_monitor = i;
        pp_hello_prove(&g, &h);
        put(fds[i], &h, sizeof h);
    }
    ends(&zero, 2, "two processes are rank 1",
         "a process cannot take a connection of another");
    close(fds[0]);
    close(fds[1]);
}

static void test_other_secret(void)
{
    int port = free_port();
    struct pp_rendezvous_place p = place_of(0, 2, port);
    p.seconds = 0.5;
    struct rank zero = start_rank(p);
    p = place_of(1, 2, port);
    p.secret = NULL;
    p.seconds = 0.3;
    struct rank one = start_rank(p);
    ends(&one, 2, "is of another job, or has another secret",
         "a rank without the secret does not join");
    ends(&zero, 3, "for example rank 1; other programs connected, or ranks",
         "and rank 0 says that somebody tried");
}

/* --- strangers in the place of rank 0 --- */

enum fake { ACCEPTS, CLOSES, TALKS, LIES };

/* Lets a rank meet a program that is not rank 0. */
static void test_fake(enum fake fake, int status, const char *text,
                      const char *what)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&a, n) != 0 ||
        listen(listener, 16) != 0 ||
        getsockname(listener, (struct sockaddr *)&a, &n) != 0)
        abort();
    struct pp_rendezvous_place p = place_of(1, 2, ntohs(a.sin_port));
    p.seconds = 0.3;
    struct rank one = start_rank(p);
    pid_t pid = fake == ACCEPTS ? 0 : fork();
    if (fake != ACCEPTS && pid == 0)
        for (;;) {
            struct pp_answer answer = {.magic = "pp-join3"};
            int fd = accept(listener, NULL, NULL);
            if (fake == TALKS)
                put(fd,
                    "220 mail.example.org ESMTP and a long greeting which "
                    "has more bytes than an answer\r\n",
                    85);
            if (fake == LIES)
                put(fd, &answer, sizeof answer);
            close(fd);
        }
    ends(&one, status, text, what);
    if (pid) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close(listener);
}

/* Rank 0 stops when another rank has joined, before the last one does. */
static void test_stopped_rank_0(void)
{
    int port = free_port();
    struct pp_rendezvous_place p = place_of(0, 3, port);
    struct pp_greeting g;
    p.seconds = 1.5;
    struct rank zero = start_rank(p);
    p = place_of(1, 3, port);
    close(greet(port, &p, &g));
    p.seconds = 0.3;
    struct rank one = start_rank(p);
    usleep(150000);
    kill(zero.pid, SIGSTOP);
    ends(&one, 3, "it is stopped, or waits for other ranks",
         "a rank 0 that is stopped does not hold others for longer");
    kill(zero.pid, SIGCONT);
    ends(&zero, 3, "rank ", "and learns of it later");
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
    test_other_secret();
    test_fake(ACCEPTS, 3, "accepts connections but does not answer",
              "a program that says nothing is named");
    test_fake(CLOSES, 3, "another program than rank 0 has the port",
              "so is one that closes connections");
    test_fake(TALKS, 3, "another program than rank 0 has the port",
              "and one that says something else");
    test_fake(LIES, 2, "is of another job, or has another secret",
              "and one that does not know the secret");
    test_stopped_rank_0();
    return done();
}
