/* SPDX-License-Identifier: MIT */
/* test_parents - the connections between ranks and their parents in the tree:
 * strangers at a parent or in its place, children that do not connect, and a
 * parent at its limit of descriptors. One rank of four is the test itself. */
#include "stranger.h"

#include <string.h>

enum { SIZE = 4, PARENT = 2, CHILD = 3, SOON_MS = 3000 };

/* The test as a rank that has joined, or is about to. */
struct self {
    struct pp_rendezvous_place place;
    int data, monitor;
    struct pp_welcome welcome;
};

static int port_of(const union pp_address *a)
{
    return ntohs(a->v4.sin_port);
}

/* Calls rank 0 and says hello. */
static struct self join(int rank, int port, const union pp_address *listens)
{
    struct self s = {.place = place_of(rank, SIZE, port)};
    struct pp_greeting g;
    struct pp_hello h;
    pp_hello_fill(&s.place, &h);
    pp_hello_random(h.process, sizeof h.process);
    if (listens)
        h.listens = *listens;
    s.data = greet(port, &s.place, &g);
    pp_hello_prove(&g, &h);
    put(s.data, &h, sizeof h);
    h.is_monitor = true;
    s.monitor = greet(port, &s.place, &g);
    pp_hello_prove(&g, &h);
    put(s.monitor, &h, sizeof h);
    return s;
}

static void take_welcome(struct self *s)
{
    char hosts[SIZE][PP_RENDEZVOUS_HOST];
    if (!get(s->data, &s->welcome, sizeof s->welcome) || s->welcome.refused ||
        !get(s->data, hosts, sizeof hosts))
        abort();
}

/* Calls the parent and says hello. Returns whether it accepts: *fd. */
static bool reach_parent(const struct self *s,
                         const struct pp_rendezvous_place *as,
                         const unsigned char *session, int *fd)
{
    struct pp_greeting g;
    struct pp_hello h;
    struct pp_err err = {0};
    char byte;
    if (pp_greeting_init(&g, as, &err))
        abort();
    pp_greeting_of_parent(&g, session, PARENT);
    *fd = call_rank(port_of(&s->welcome.parent), &g);
    pp_hello_fill(as, &h);
    pp_hello_prove(&g, &h);
    put(*fd, &h, sizeof h);
    return get(*fd, &byte, 1);
}

/* Starts the ranks but one, which is the test. */
static void start_others(struct rank *ranks, int but, int port, double seconds)
{
    for (int r = 0; r < SIZE; r++) {
        struct pp_rendezvous_place p = place_of(r, SIZE, port);
        if (r == PARENT || r == CHILD)
            p.seconds = seconds;
        if (r != but)
            ranks[r] = start_rank(p);
    }
}

/* The child's part of the gather that ranks make (be_rank). */
static bool gather(int fd)
{
    struct {
        uint64_t bytes;
        int value[SIZE];
    } all, mine = {sizeof(int), {10 + CHILD}};
    put(fd, &mine, sizeof mine.bytes + sizeof(int));
    if (!get(fd, &all, sizeof all.bytes + sizeof all.value))
        return false;
    bool right = all.bytes == sizeof all.value;
    for (int r = 0; r < SIZE; r++)
        right &= all.value[r] == 10 + r;
    return right;
}

static void test_strangers(void)
{
    int port = free_port(), fd;
    struct rank ranks[SIZE];
    start_others(ranks, CHILD, port, 60);
    struct self s = join(CHILD, port, NULL);
    take_welcome(&s);
    struct pp_rendezvous_place as = s.place;
    as.secret = "another secret, just as long....";
    ok(!reach_parent(&s, &as, s.welcome.session, &fd),
       "a parent closes a connection with another secret");
    close(fd);
    const unsigned char none[PP_NONCE_BYTES] = {0};
    ok(!reach_parent(&s, &s.place, none, &fd), "and one of another session");
    close(fd);
    as = s.place;
    as.rank = 1;
    ok(!reach_parent(&s, &as, s.welcome.session, &fd),
       "and one of a rank that is not its child");
    close(fd);
    be_silent(port_of(&s.welcome.parent));
    ok(reach_parent(&s, &s.place, s.welcome.session, &fd),
       "a thousand silent ones do not keep its child out");
    ok(gather(fd), "the child gathers with the others");
    for (int r = 0; r < CHILD; r++)
        ends(&ranks[r], 0, "", "and so do they");
    close(fd);
    close(s.data);
    close(s.monitor);
}

/* A child that has joined connects to its parent with another secret only. */
static void test_absent_child(void)
{
    int port = free_port(), fd;
    struct rank ranks[SIZE];
    start_others(ranks, CHILD, port, SOON_MS / 1000.0);
    struct self s = join(CHILD, port, NULL);
    take_welcome(&s);
    struct pp_rendezvous_place as = s.place;
    as.secret = NULL;
    (void)reach_parent(&s, &as, s.welcome.session, &fd);
    drain(s.monitor);
    ends(&ranks[PARENT], 3, "rank 2: rank 3 on ",
         "a parent fails whose child does not connect");
    ends(&ranks[0], 3, "has not connected to rank 2 on ",
         "and rank 0 names both");
    end_rank(&ranks[1]);
    close(fd);
    close(s.data);
}

/* Answers calls as rank 0 would. */
static void lie(int listener, int port)
{
    const struct pp_rendezvous_place p = place_of(0, SIZE, port);
    struct pp_err err = {0};
    for (;;) {
        struct pp_greeting g;
        int fd = accept(listener, NULL, NULL);
        if (pp_greeting_init(&g, &p, &err) ||
            !get(fd, &g.call, sizeof g.call) || !pp_greeting_answer(&g))
            abort();
        put(fd, &g.answer, sizeof g.answer);
        close(fd);
    }
}

/* The test is the parent. Nobody listens in its place, or a program does that
 * knows the secret. */
static void test_absent_parent(bool lies, const char *text, const char *what)
{
    union pp_address at = {
        .v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    socklen_t n = sizeof at.v4;
    int port = free_port(), listener = socket(AF_INET, SOCK_STREAM, 0);
    struct rank ranks[SIZE];
    if (bind(listener, &at.any, n) != 0 ||
        getsockname(listener, &at.any, &n) != 0 ||
        (lies && listen(listener, 16) != 0))
        abort();
    pid_t pid = lies ? fork() : 0;
    if (lies && pid == 0)
        lie(listener, port);
    start_others(ranks, PARENT, port, SOON_MS / 1000.0);
    struct self s = join(PARENT, port, &at);
    take_welcome(&s);
    drain(s.monitor);
    ends(&ranks[CHILD], 3, text, what);
    ends(&ranks[0], 3, text, "and rank 0 says why");
    end_rank(&ranks[1]);
    if (pid) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close(listener);
    close(s.data);
}

/* Lets this process, and those that it starts, open n descriptors more. */
static void allow_descriptors(int n)
{
    int fds[16];
    struct rlimit limit;
    for (int k = 0; k < n; k++)
        fds[k] = dup(STDOUT_FILENO);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)fds[n - 1] + 1;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int k = 0; k < n; k++)
        close(fds[k]);
}

/* A parent that may open as many descriptors as its own connections need, and
 * so many for its child. */
static void test_descriptors(int for_child)
{
    enum { OWN = 5, PIPE = 2 };
    int port = free_port();
    struct rank ranks[SIZE];
    start_others(ranks, PARENT, port, 60);
    allow_descriptors(PIPE + OWN + for_child);
    ranks[PARENT] = start_rank(place_of(PARENT, SIZE, port));
    raise_limit();
    if (for_child) {
        for (int r = 0; r < SIZE; r++)
            ends(&ranks[r], 0, "", "a parent uses its last descriptor");
        return;
    }
    ends(&ranks[PARENT], 3, "rank 2: cannot accept another rank: ",
         "a parent fails that has no descriptor for its child");
    ends(&ranks[0], 3, "rank 2: cannot accept", "and rank 0 says why");
    end_rank(&ranks[1]);
    end_rank(&ranks[CHILD]);
}

/* Ranks of the other family. */
static void test_v6(void)
{
    int port = free_port(), fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct rank ranks[SIZE];
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        skip("ranks of IPv6", "this machine has none");
        return;
    }
    close(fd);
    for (int r = 0; r < SIZE; r++) {
        struct pp_rendezvous_place p = place_of(r, SIZE, port);
        p.address = "::1";
        ranks[r] = start_rank(p);
    }
    for (int r = 0; r < SIZE; r++)
        ends(&ranks[r], 0, "", "a rank with IPv6");
}

int main(void)
{
    raise_limit();
    test_strangers();
    test_absent_child();
    test_absent_parent(false, "rank 3: rank 2 on ",
                       "a rank fails whose parent does not listen");
    test_absent_parent(true, "is of another job, or has another secret",
                       "and one that knows the secret, but not the session");
    test_descriptors(0);
    test_descriptors(1);
    test_v6();
    return done();
}
