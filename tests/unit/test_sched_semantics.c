/* SPDX-License-Identifier: MIT */
/* Tests deadlocks under every semantics of sends and receives: three placements
 * of the messages of the same compute actions, the schedules of all kinds, and
 * the error texts. */
#include "sched_place.h"

#include <limits.h>

#include "schedule/check/check.h"

enum verdict {
    OK,
    DEADLOCK,
    WRONG
}; /* WRONG: a message is taken for another */

static enum verdict judge(const struct pp_schedule *s, const char *name)
{
    struct pp_err err = {0};
    if (!pp_check_deadlock(s, pp_semantics_find(name), 0, &err))
        return OK;
    return strstr(err.text, "deadlock") ? DEADLOCK : WRONG;
}

/* --- naive, by channel and lowered --- */

enum placement { NAIVE, BY_CHANNEL, LOWERED };

static const struct {
    const char *kind;
    int chunks;
    enum pp_placement on;
    int from_p; /* the smallest p that gives these verdicts */
    /* each: rendezvous, pair, rank, blocking */
    enum verdict naive[4], by_channel[4];
} table[] = {
    {"gpipe", 1, PP_PLACEMENT_LOOP, 2, {OK, OK, OK, OK}, {OK, OK, OK, OK}},
#define CROSSING                         \
    {                                    \
        OK, DEADLOCK, DEADLOCK, DEADLOCK \
    }
    {"1f1b", 1, PP_PLACEMENT_LOOP, 2, CROSSING, CROSSING},
    {"zb-h1", 1, PP_PLACEMENT_LOOP, 2, CROSSING, CROSSING},
    {"zb-h2", 1, PP_PLACEMENT_LOOP, 2, CROSSING, CROSSING},
    {"interleaved", 2, PP_PLACEMENT_LOOP, 2, CROSSING, CROSSING},
    {"looped-bfs",
     2,
     PP_PLACEMENT_LOOP,
     3,
     {OK, OK, DEADLOCK, DEADLOCK},
     {OK, OK, DEADLOCK, DEADLOCK}},
    {"looped-bfs", 2, PP_PLACEMENT_LOOP, 2, CROSSING, CROSSING},
#define SWAPPED                    \
    {                              \
        WRONG, WRONG, WRONG, WRONG \
    }
    {"zbv", 2, PP_PLACEMENT_V, 2, SWAPPED, CROSSING},
    {"dualpipev", 2, PP_PLACEMENT_V, 3, SWAPPED, CROSSING},
};

static void judge_placement(size_t row, int p, int m, enum placement how)
{
    static const char *const names[] = {"rendezvous", "pair", "rank",
                                        "blocking"};
    static const char *const hows[] = {"naive", "by channel", "lowered"};
    struct fixture f;
    chain(&f, p, table[row].chunks, table[row].on);
    bool good = !emit(&f, table[row].kind, m, 0);
    if (how == LOWERED)
        good = good && !pp_lower(&f.s, &f.err);
    else if (good)
        place(&f, how == BY_CHANNEL);
    good =
        good && !pp_check_order(&f.s, &f.err) && judge(&f.s, "buffered") == OK;
    const char *bad = "";
    for (int i = 0; i < 4 && good; i++) {
        enum verdict want = how == LOWERED ? OK
                            : how == NAIVE ? table[row].naive[i]
                                           : table[row].by_channel[i];
        if (judge(&f.s, names[i]) != want)
            bad = names[i];
    }
    ok(good && !*bad, "%s p=%d m=%d, %s", table[row].kind, p, m, hows[how]);
    if (*bad || f.err.code)
        printf("# %s %s\n", bad, f.err.text);
    drop(&f);
}

static void test_placements(void)
{
    static const int sizes[][2] = {{2, 4}, {4, 8}, {4, 16}, {8, 16}};
    for (size_t row = 0; row < sizeof table / sizeof *table; row++)
        for (size_t i = 0; i < 4; i++) {
            int p = sizes[i][0];
            bool only_two = row > 0 && table[row].kind == table[row - 1].kind;
            if (p < table[row].from_p || (only_two && p > 2))
                continue;
            for (enum placement how = NAIVE; how <= LOWERED; how++)
                judge_placement(row, p, sizes[i][1], how);
        }
}

/* The depth that naive placement needs on channels. */
static void test_depths(void)
{
    static const struct {
        const char *kind;
        int chunks, m, enough, short_of;
    } cases[] = {{"gpipe", 1, 8, 0, -1},      {"1f1b", 1, 8, 1, 0},
                 {"zbv", 2, 8, 1, 0},         {"dualpipev", 2, 8, 1, 0},
                 {"interleaved", 2, 8, 3, 0}, {"zb-interleaved", 2, 8, 6, 0},
                 {"looped-bfs", 2, 8, 9, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        bool v = cases[i].kind[0] == 'd' || !strcmp(cases[i].kind, "zbv");
        chain(&f, 4, cases[i].chunks, v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
        bool good = !emit(&f, cases[i].kind, cases[i].m, 0);
        place(&f, false);
        f.s.channel_depth = cases[i].enough;
        ok(good && !pp_check(&f.s, &f.err), "%s runs at depth %d",
           cases[i].kind, cases[i].enough);
        f.s.channel_depth = cases[i].short_of;
        if (cases[i].short_of >= 0)
            ok(pp_check(&f.s, &f.err) && strstr(f.err.text, "deadlock"),
               "  it deadlocks at depth %d", cases[i].short_of);
        drop(&f);
    }
}

/* --- all kinds --- */

/* Returns the number of sizes that a kind accepts. *bad counts those that
 * deadlock under any semantics. */
static int emit_all(const char *kind, int *bad)
{
    int n = 0;
    for (int p = 1; p <= 5; p++)
        for (int c = 1; c <= 3; c++)
            for (int v = 0; v < 2; v++)
                for (int m = 1; m <= 12; m += p > 3 ? 5 : 2) {
                    struct fixture f;
                    chain(&f, p, c, v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP);
                    if (!emit(&f, kind, m, 0) && !pp_lower(&f.s, &f.err)) {
                        n++;
                        bool good = !pp_check_order(&f.s, &f.err);
                        for (int i = 0; i < PP_N_SEMANTICS && good; i++)
                            good = judge(&f.s, pp_semantics[i].name) == OK;
                        *bad += !good;
                    }
                    drop(&f);
                }
    return n;
}

static void test_emitted(void)
{
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        int bad = 0, n = emit_all((*k)->name, &bad);
        if (n == 0)
            skip((*k)->name, "it does not take chains");
        else
            ok(bad == 0, "%s runs under all semantics, %d sizes", (*k)->name,
               n);
    }
}

/* --- error texts --- */

static const char *const crossing[] = {
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
    "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"};

static void test_words(void)
{
    static const struct {
        const char *name;
        int depth;
        const char *says;
    } cases[] = {
        {"buffered", 0, NULL},
        {"rendezvous", 0, NULL},
        {"pair", 1, NULL},
        {"pair", 0,
         "deadlock under 'pair': rank 0 waits in '0SEND_F1' for rank 1 to "
         "reach '1RECV_F1'; rank 1 waits in '1SEND_B0' for rank 0 to reach "
         "'0RECV_B0' (--depth 1 would do; needs 1 in flight on 1->0)"},
        {"rank", 0, "deadlock under 'rank': rank 0 waits in '0SEND_F1'"},
        {"blocking", 0, "deadlock under 'blocking': rank 0 waits in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        chain(&f, 2, 1, PP_PLACEMENT_LOOP);
        int rc = rows(&f, 2, crossing) || pp_check_order(&f.s, &f.err);
        if (!rc)
            rc = pp_check_deadlock(&f.s, pp_semantics_find(cases[i].name),
                                   cases[i].depth, &f.err);
        ok(cases[i].says ? rc == -1 && f.err.code == PP_EXIT_NO &&
                               strstr(f.err.text, cases[i].says)
                         : rc == 0,
           "%s at depth %d: %s", cases[i].name, cases[i].depth,
           cases[i].says ? cases[i].says : "ok");
        if (rc && !(cases[i].says && strstr(f.err.text, cases[i].says)))
            printf("# got '%s'\n", f.err.text);
        drop(&f);
    }
}

/* Compute actions wait for each other. Under all semantics the reported cycle
 * is theirs, not that of a message with its own other end. */
static void test_compute_cycle(void)
{
    static const char *const row0[] = {
        "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
        "0F0 0SEND_F0 0RECV_B0 (0F1;0B0)OVERLAP_F_B 0SEND_F1 0RECV_B1 0B1"};
    static const char *const waits[] = {"0B0", "0F1"};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < PP_N_SEMANTICS; i++) {
            int pair = k % 2, depth = k / 2;
            const char *const text[] = {
                row0[pair],
                "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"};
            const struct pp_semantics *m = &pp_semantics[i];
            bool ahead = m->buffered || !strcmp(m->name, "rendezvous");
            char want[160];
            struct fixture f;
            chain(&f, 2, 1, PP_PLACEMENT_LOOP);
            snprintf(want, sizeof want,
                     ": rank 0 waits in '%s' for '1SEND_B0' of rank 1; rank 1 "
                     "waits in '%s' for '0SEND_F1' of rank 0 (no depth",
                     ahead ? waits[pair] : "0RECV_B0",
                     ahead ? "1F1" : "1RECV_F1");
            bool good = !rows(&f, 2, text) && !pp_check_order(&f.s, &f.err) &&
                        pp_check_deadlock(&f.s, m, depth, &f.err);
            ok(good && strstr(f.err.text, want),
               "%s at depth %d: the cycle is that of %s", m->name, depth,
               waits[pair]);
            if (!strstr(f.err.text, want))
                printf("# %s\n", f.err.text);
            drop(&f);
        }
}

/* Rank 0 receives for its second stage before it sends the output of its first:
 * a cycle through all ranks, reported in one line. */
static void test_long_cycle(void)
{
    struct fixture f;
    chain(&f, 12, 2, PP_PLACEMENT_LOOP);
    bool good = !emit(&f, "gpipe", 1, 0) && !pp_lower(&f.s, &f.err);
    struct pp_action *row = f.s.rows[0].actions, send = row[1];
    good = good && send.op == PP_SEND_F && row[2].op == PP_RECV_F;
    row[1] = row[2];
    row[2] = send;
    good = good && !pp_check_order(&f.s, &f.err) && pp_check(&f.s, &f.err);
    ok(good &&
           strstr(f.err.text, "rank 0 waits in '12RECV_F0' for "
                              "'11SEND_F0' of rank 11; rank 11 waits") &&
           strstr(f.err.text, "; and 8 more (no depth would do)") &&
           strlen(f.err.text) < 400,
       "a long cycle is shortened");
    printf("# %s\n", f.err.text);
    drop(&f);
}

int main(void)
{
    test_placements();
    test_depths();
    test_emitted();
    test_words();
    test_compute_cycle();
    test_long_cycle();
    ok(!pp_semantics_find("nccl"), "an unknown name is not found");
    return done();
}
