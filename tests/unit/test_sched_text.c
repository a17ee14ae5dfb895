/* SPDX-License-Identifier: MIT */
/* Tests the text of actions and rows, stage graphs, canonical order, merging
 * and forward-only schedules. */
#include "sched_fixture.h"

static void test_round_trip(void)
{
    static const char *const good[] = {"1F0",
                                       "2I1",
                                       "0W3",
                                       "0B3",
                                       "1UNSHARD",
                                       "3RESHARD",
                                       "2SEND_B2",
                                       "1RECV_F0",
                                       "2F0.1",
                                       "2RECV_F0<1",
                                       "1SEND_F0>2",
                                       "SYNC_TIED",
                                       "12SEND_B34.5>6",
                                       "0REDUCE_GRAD",
                                       "2147483647B2147483647"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct pp_action a;
        struct pp_err err = {0};
        char text[PP_ACTION_TEXT];
        int rc = pp_action_parse(good[i], strlen(good[i]), &a, &err);
        pp_action_format(a, a.peer >= 0, text);
        ok(!rc && !strcmp(text, good[i]), "%s reads and writes", good[i]);
    }
}

static void test_malformed(void)
{
    static const char *const bad[] = {
        "",
        "0F0x",
        "0F1 1F9",
        "0F",
        "2BW0",
        "0REDUCE_GRAD5",
        "00F1",
        "0F01",
        "0f1",
        "-1F0",
        "F0",
        "0R1",
        "0SYNC_TIED",
        "SYNC_TIED0",
        "0F0.0",
        "0F0.",
        "0F0<1",
        "0SEND_F0<1",
        "0RECV_F0>1",
        "0SEND_F0>",
        "2147483648F0",
        "0F99999999999999999999",
        "0F0.40000",
        "(0F0;1B0)",
        "0UNSHARD.1",
        "0SEND_F00000000000000000000000000000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pp_action a;
        struct pp_err err = {0};
        ok(pp_action_parse(bad[i], strlen(bad[i]), &a, &err) == -1 &&
               err.code == PP_EXIT_INPUT && strchr(err.text, '\''),
           "'%s' is refused and quoted", bad[i]);
    }
}

static void test_rows(void)
{
    static const char text[] =
        "0F0 (0F1;0B0)OVERLAP_F_B 0SEND_F0 0RECV_B0 0REDUCE_GRAD SYNC_TIED";
    struct fixture f;
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    const char *const both[] = {text, ""};
    ok(!rows(&f, 2, both), "a row with a pair is read");
    is_int((long long)f.s.rows[0].n, 7, "a pair is two actions");
    ok(f.s.rows[0].actions[1].overlap && !f.s.rows[0].actions[2].overlap,
       "  the first action is marked");
    is_int(f.s.rows[0].actions[3].peer, 1, "the only possible peer is filled");
    char *again = pp_schedule_format_row(&f.s, 0);
    is_str(again, text, "  it is written the same");
    free(again);
    drop(&f);

    static const struct {
        const char *text, *says;
    } bad[] = {{"0F0 0F1 0FX", "action 2: '0FX'"},
               {"0F0  0F1", "action 1: ''"},
               {"0F0 ", "action 1: ''"},
               {"(0F0;0B0)OVERLAP", "action 0: '(0F0;0B0)OVERLAP'"},
               {"(0F0)OVERLAP_F_B", "action 0:"},
               {"(0F0;)OVERLAP_F_B", "action 0: ''"},
               {"(;", "action 0:"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const r[] = {bad[i].text, ""};
        chain(&f, 2, 1, PP_PLACEMENT_LOOP);
        ok(rows(&f, 2, r) && f.err.code == PP_EXIT_INPUT &&
               strstr(f.err.text, bad[i].says),
           "'%s' says %s", bad[i].text, bad[i].says);
        drop(&f);
    }
}

static void test_placement(void)
{
    static const int loop[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    static const int v[] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
    bool same = true;
    for (int s = 0; s < 9; s++)
        same &= pp_placement_row(PP_PLACEMENT_LOOP, 3, s) == loop[s] &&
                pp_placement_row(PP_PLACEMENT_V, 3, s) == v[s];
    ok(same, "loop and V placement");
    struct fixture f;
    chain(&f, 3, 2, PP_PLACEMENT_V);
    ok(pp_graph_is(&f.graph, PP_PLACEMENT_V) &&
           !pp_graph_is(&f.graph, PP_PLACEMENT_LOOP),
       "a graph knows its placement");
    ok(!f.graph.stages[0].input_grad && f.graph.stages[1].input_grad,
       "only the source has no input gradient");
    drop(&f);
}

static void test_graph_errors(void)
{
    static const int self[] = {1}, twice[] = {0, 0}, down[] = {1, 0};
    static const struct {
        int rank, n;
        const int *inputs;
    } bad[] = {
        {2, 0, NULL}, {-1, 0, NULL}, {0, 1, self}, {0, 2, twice}, {0, 2, down}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fixture f = {0};
        struct pp_stage_node n[] = {{.row = 0},
                                    {.row = bad[i].rank,
                                     .n_inputs = bad[i].n,
                                     .inputs = bad[i].inputs}};
        f.graph = (struct pp_graph){.n_rows = 2, .n_stages = 2, .stages = n};
        ok(pp_graph_connect(&f.arena, &f.graph, &f.err) == -1 &&
               f.err.code == PP_EXIT_INPUT,
           "a bad graph is refused: %s", f.err.text);
        pp_arena_finish(&f.arena);
    }
}

static void test_canonical(void)
{
    static const struct {
        const char *row;
        bool canonical;
    } cases[] = {{"0F0 0F1 0B0 0B1", true},
                 {"0F0 0F1 0B1 0B0", false},
                 {"0F0 0I0 0F1 0I1 0W0 0W1", true},
                 {"0F0 0I0 0F1 0I1 0W1 0W0", false},
                 {"0F0 0F0.1 0B0.1 0B0 0F1 0F1.1 0B1.1 0B1", true},
                 {"0F0 0F0.1 0B0 0B0.1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        chain(&f, 1, 1, PP_PLACEMENT_LOOP);
        ok(!rows(&f, 2, &cases[i].row) &&
               pp_schedule_is_canonical(&f.s) == cases[i].canonical,
           "%s is %scanonical", cases[i].row, cases[i].canonical ? "" : "not ");
        drop(&f);
    }
}

static void test_forward_only(void)
{
    struct fixture f;
    struct pp_schedule forward;
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    f.graph.tied[0] = 0;
    f.graph.tied[1] = 1;
    ok(!emit(&f, "1f1b", 2, 0) && !pp_lower(&f.s, &f.err) &&
           (pp_schedule_forward_only(&f.s, &forward), true),
       "the forward-only schedule is made");
    char *row = pp_schedule_format_row(&forward, 0);
    is_str(row, "0F0 0SEND_F0 0F1 0SEND_F1", "  the row of the first rank");
    free(row);
    row = pp_schedule_format_row(&forward, 1);
    is_str(row, "1RECV_F0 1F0 1RECV_F1 1F1", "  the row of the last rank");
    free(row);
    pp_schedule_finish(&forward);
    drop(&f);
}

int main(void)
{
    test_round_trip();
    test_malformed();
    test_rows();
    test_placement();
    test_graph_errors();
    test_canonical();
    test_forward_only();
    return done();
}
