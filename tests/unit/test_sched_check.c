/* SPDX-License-Identifier: MIT */
/* Tests the checker against schedules with one fault each, and deadlocks. */
#include "sched_fixture.h"

#define GOOD0 "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
#define GOOD1 "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"

/* Checks two ranks with two microbatches at the given depth. NULL says means
 * valid. */
static void check(const char *what, int depth, const char *row0,
                  const char *row1, const char *says)
{
    struct fixture f;
    const char *const text[] = {row0, row1};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    int rc = rows(&f, 2, text);
    if (rc)
        printf("# %s\n", f.err.text);
    f.s.channel_depth = depth;
    rc = rc ? -2 : pp_check(&f.s, &f.err);
    if (says)
        ok(rc == -1 && f.err.code == PP_EXIT_NO && strstr(f.err.text, says),
           "%s: '%s'", what, says);
    else
        ok(rc == 0, "%s is valid", what);
    if (rc == -1 && !(says && strstr(f.err.text, says)))
        printf("# got '%s'\n", f.err.text);
    drop(&f);
}

static void test_rows(void)
{
    check("the plain schedule", 1, GOOD0, GOOD1, NULL);
    check("a split backward", 1,
          "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0RECV_B1 0I1 0W0 0W1",
          "1RECV_F0 1F0 1I0 1SEND_B0 1RECV_F1 1F1 1I1 1SEND_B1 1W0 1W1", NULL);
    check("a pair", 1, GOOD0,
          "1RECV_F0 1F0 1RECV_F1 (1F1;1B0)OVERLAP_F_B 1SEND_B0 1B1 1SEND_B1",
          NULL);
    check("backward first", 1, GOOD0,
          "1RECV_F0 1B0 1F0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
          "rank 1, action 1: '1B0' comes before 1F0");
    check("forward before its message", 1, GOOD0,
          "1F0 1RECV_F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
          "rank 1, action 0: '1F0' comes before 1RECV_F0");
    check("backward before its message", 1,
          "0F0 0SEND_F0 0F1 0SEND_F1 0B0 0RECV_B0 0RECV_B1 0B1", GOOD1,
          "rank 0, action 4: '0B0' comes before 0RECV_B0");
    check("W before I", 1, GOOD0,
          "1RECV_F0 1F0 1W0 1I0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
          "'1W0' comes before 1I0");
    check("send before its forward", 1,
          "0SEND_F0 0F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", GOOD1,
          "rank 0, action 0: '0SEND_F0' comes before 0F0");
    check("a forward twice", 1, "0F0 0F0 " GOOD0, GOOD1,
          "rank 0, action 1: '0F0' appears a second time");
    check("a message twice", 1, GOOD0 " 0SEND_F0", GOOD1, "a second time");
    check("B beside I and W", 1, GOOD0 " 0I0 0W0", GOOD1, "B, or I and W");
    check("a forward missing", 1, GOOD0, "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1",
          "rank 1: '1F1' is missing");
    check("a backward missing", 1,
          "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1", GOOD1,
          "rank 0: '0B1' is missing");
    check("W missing", 1, GOOD0,
          "1RECV_F0 1F0 1I0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
          "rank 1: '1W0' is missing");
    check("an empty row", 1, GOOD0, "", "is missing");
    check("the wrong rank", 1, GOOD0 " 1F0", GOOD1, "another rank");
    check("a stage too far", 1, GOOD0 " 2F0", GOOD1, "does not exist");
    check("a microbatch too far", 1, GOOD0 " 0F2", GOOD1, "does not exist");
    check("no neighbour", 1, GOOD0 " 0RECV_F0", GOOD1, "no single neighbour");
    check("half a pair", 1, GOOD0,
          "1RECV_F0 (1F0;1F1)OVERLAP_F_B 1B0 1SEND_B0 1RECV_F1 1B1 1SEND_B1",
          "paired");
    check("a pair of one microbatch", 1, GOOD0,
          "1RECV_F0 (1F0;1B0)OVERLAP_F_B 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
          "rank 1, action 1: '1F0' is paired with its own backward");
    check("unsharded and resharded", 1, "0UNSHARD " GOOD0 " 0RESHARD", GOOD1,
          NULL);
    check("never resharded", 1, "0UNSHARD " GOOD0, GOOD1,
          "rank 0: '0RESHARD' is missing");
    check("never unsharded", 1, GOOD0 " 0RESHARD", GOOD1,
          "'0RESHARD' lacks UNSHARD before it");
    check("unsharded twice", 1, "0UNSHARD 0UNSHARD " GOOD0 " 0RESHARD", GOOD1,
          "rank 0, action 1: '0UNSHARD' appears a second time without RESHARD");
    check("resharded too early", 1, "0UNSHARD 0RESHARD " GOOD0, GOOD1,
          "rank 0, action 2: '0F0' comes after RESHARD of its stage");
    check("unsharded too late", 1, GOOD0 " 0UNSHARD 0RESHARD", GOOD1,
          "'0UNSHARD' comes after its stage was used");
    check("a reduction twice", 1, GOOD0 " 0REDUCE_GRAD 0REDUCE_GRAD", GOOD1,
          "'0REDUCE_GRAD' appears a second time");
    check("SYNC_TIED without tied stages", 1, GOOD0 " SYNC_TIED", GOOD1,
          "without a tied stage");
    check("a reduction", 1, GOOD0 " 0REDUCE_GRAD", GOOD1, NULL);
    check("a reduction too early", 1,
          "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0REDUCE_GRAD 0RECV_B1 0B1",
          GOOD1, "before the last backward");
}

static void test_channels(void)
{
    check("never sent", 1, "0F0 0SEND_F0 0F1 0RECV_B0 0B0 0RECV_B1 0B1", GOOD1,
          "rank 1, action 4: '1RECV_F1' is never sent");
    check("never received", 1, "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0B1",
          GOOD1, "'0B1' comes before 0RECV_B1");
    check("received in another order", 1, GOOD0,
          "1RECV_F1 1F1 1B1 1RECV_F0 1F0 1B0 1SEND_B0 1SEND_B1",
          "rank 1, action 0: '1RECV_F1' would receive the message of rank 0, "
          "action 1: '0SEND_F0'");
}

static void test_deadlock(void)
{
    /* At depth 0 the send of 0F1 waits for rank 1, which sends 1B0. */
    static const char row0[] =
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1";
    check(
        "at depth 0", 0, row0, GOOD1,
        "deadlock at channel depth 0: rank 0 waits in '0SEND_F1' for rank 1 "
        "to reach '1RECV_F1'; rank 1 waits in '1SEND_B0' for rank 0 to reach "
        "'0RECV_B0' (--depth 1 would do; needs 1 in flight on 1->0 backward)");
    check("at depth 1", 1, row0, GOOD1, NULL);
    check("two in flight", 1,
          "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
          "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1", NULL);
    check("no depth helps", 1,
          "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
          "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
          "(no depth would do)");
    check("the waits if no depth helps", 1,
          "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
          "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
          "rank 0 waits in '0RECV_B0' for '1SEND_B0' of rank 1; rank 1 waits "
          "in '1RECV_F1' for '0SEND_F1' of rank 0");
}

/* Rank 0 sends four forwards before it takes the first gradient; rank 1 sends a
 * gradient after each forward. */
static void test_depth_search(void)
{
    struct fixture f;
    static const char *const text[] = {
        "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 0SEND_F3 0RECV_B0 0B0 "
        "0RECV_B1 0B1 0RECV_B2 0B2 0RECV_B3 0B3",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 "
        "1SEND_B2 1RECV_F3 1F3 1B3 1SEND_B3"};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    ok(!rows(&f, 4, text) && pp_check(&f.s, &f.err) == -1 &&
           strstr(f.err.text, "(--depth 2 would do; needs 2 in flight on 1->0 "
                              "backward)"),
       "the smallest sufficient depth is named");
    f.err = (struct pp_err){0};
    f.s.channel_depth = 2;
    ok(!pp_check(&f.s, &f.err), "  it is sufficient");
    drop(&f);
}

static void test_tied(void)
{
    struct fixture f;
    static const char *const good[] = {GOOD0 " SYNC_TIED", GOOD1 " SYNC_TIED"};
    static const char *const lacking[] = {GOOD0 " SYNC_TIED", GOOD1};
    static const char *const twice[] = {GOOD0 " SYNC_TIED SYNC_TIED", GOOD1};
    static const char *const early[] = {
        GOOD0, "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 SYNC_TIED 1B1 1SEND_B1"};
    static const struct {
        const char *const *rows;
        const char *says;
    } cases[] = {{good, NULL},
                 {lacking, "rank 1: 'SYNC_TIED' is missing"},
                 {twice, "'SYNC_TIED' appears a second time"},
                 {early, "before the last backward of a tied stage"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chain(&f, 2, 1, PP_PLACEMENT_LOOP);
        f.graph.tied[0] = 0;
        f.graph.tied[1] = 1;
        int rc = rows(&f, 2, cases[i].rows) ? -2 : pp_check(&f.s, &f.err);
        ok(cases[i].says ? rc == -1 && strstr(f.err.text, cases[i].says)
                         : rc == 0,
           "tied: %s", cases[i].says ? cases[i].says : "valid");
        drop(&f);
    }
    chain(&f, 4, 2, PP_PLACEMENT_V);
    f.graph.tied[0] = 0;
    f.graph.tied[1] = 7;
    ok(!emit(&f, "gpipe", 3, 0) && !pp_lower(&f.s, &f.err) &&
           !pp_check(&f.s, &f.err),
       "tied stages on one rank");
    is_int(f.s.rows[0].actions[f.s.rows[0].n - 1].op, PP_SYNC_TIED,
           "  SYNC_TIED is last");
    ok(f.s.rows[0].actions[f.s.rows[0].n - 2].op != PP_SYNC_TIED,
       "  it appears once");
    drop(&f);
}

/* A large claimed number of microbatches must not cost memory in proportion. */
static void test_absurd(void)
{
    struct fixture f;
    static const char *const text[] = {GOOD0, GOOD1};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    ok(!rows(&f, 1 << 24, text) && pp_check(&f.s, &f.err) == -1 &&
           strstr(f.err.text, "rank 0: '0F2' is missing"),
       "the first missing of very many is named");
    drop(&f);
}

static void test_stuck(void)
{
    struct fixture f;
    static const char *const text[] = {"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    ok(!rows(&f, 2, text) && pp_lower(&f.s, &f.err) == -1 &&
           f.err.code == PP_EXIT_NO &&
           strstr(f.err.text, "rank 0 waits in '0B0', rank 1 waits in '1F1'"),
       "lowering names where each rank is stuck");
    drop(&f);
}

/* Checks rows before lowering. */
static void test_computes(void)
{
    static const struct {
        const char *row, *says;
    } cases[] = {
        {"0F0 0F1 0B0 0B1", NULL},
        {"0F0 0F1 0B0 0B1 0B1", "action 4: '0B1' appears a second time"},
        {"0F0 0F1 0B0", "'0B1' is missing"},
        {"0F0 0B0 0B1 0F1", "action 2: '0B1' comes before 0F1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        const char *const text[] = {cases[i].row, "1F0 1B0 1F1 1B1"};
        chain(&f, 2, 1, PP_PLACEMENT_LOOP);
        int rc = rows(&f, 2, text) ? -2 : pp_check_rows(&f.s, false, &f.err);
        ok(cases[i].says ? rc == -1 && strstr(f.err.text, cases[i].says)
                         : rc == 0,
           "before lowering: %s", cases[i].says ? cases[i].says : "valid");
        drop(&f);
    }
}

/* Actions that are neither compute nor message keep their place. */
static void test_kept(void)
{
    struct fixture f;
    static const char *const text[] = {
        "0UNSHARD 0F0 0RESHARD 0UNSHARD 0B0 0REDUCE_GRAD 0RESHARD",
        "1F0 1B0 1REDUCE_GRAD"};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    f.graph.tied[0] = 0;
    f.graph.tied[1] = 1;
    ok(!rows(&f, 1, text) && pp_unreduced_stage(&f.s) == -1 &&
           !pp_lower(&f.s, &f.err) && !pp_check(&f.s, &f.err),
       "rows with reductions are lowered");
    char *row = pp_schedule_format_row(&f.s, 0);
    is_str(row,
           "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0RESHARD 0UNSHARD 0B0 0REDUCE_GRAD "
           "0RESHARD SYNC_TIED",
           "  the reductions keep their place");
    free(row);
    f.s.rows[1].actions[f.s.rows[1].n - 2].op = PP_B;
    is_int(pp_unreduced_stage(&f.s), 1, "a stage without reduction is found");
    drop(&f);
}

int main(void)
{
    test_rows();
    test_channels();
    test_deadlock();
    test_depth_search();
    test_tied();
    test_absurd();
    test_stuck();
    test_computes();
    test_kept();
    return done();
}
