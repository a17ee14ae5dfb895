/* SPDX-License-Identifier: MIT */
/* Tests OFFLOAD and RELOAD: the rules of the checker, the memory of a rank and
 * of the host against a count by hand on random schedules, times that are easy
 * to follow, and the choice of copies and its bound against all choices.
 * test_sched_times compares all times with ticks. */
#include "sched_copies.h"
#include "schedule/bound/bound.h"
#include "schedule/offload/offload.h"

#define ROW1 "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"

/* Checks a first row against a good second one. NULL says means valid. */
static void check(const char *row0, const char *says)
{
    struct fixture f;
    const char *const text[] = {row0, ROW1};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    int rc = rows(&f, 2, text) ? -2 : pp_check(&f.s, &f.err);
    bool right = says ? rc == -1 && strstr(f.err.text, says) : rc == 0;
    ok(right, "%s", says ? says : row0);
    if (!right)
        printf("# '%s'\n", f.err.text);
    drop(&f);
}

static void test_rules(void)
{
    check("0F0 0SEND_F0 0F1 0SEND_F1 0OFFLOAD0 0RELOAD0 0RECV_B0 0B0 0RECV_B1 "
          "0B1",
          NULL);
    check("0F0 0OFFLOAD0 0SEND_F0 0F1 0OFFLOAD1 0SEND_F1 0RELOAD0 0RECV_B0 0B0 "
          "0RECV_B1 0RELOAD1 0I1 0W1",
          NULL);
    check("0F0 0SEND_F0 0F1 0SEND_F1 0RELOAD0 0RECV_B0 0B0 0RECV_B1 0B1",
          "action 4: '0RELOAD0' lacks OFFLOAD before it");
    check("0F0 0SEND_F0 0OFFLOAD0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
          "'0B0' comes before RELOAD of its activations");
    check("0F0 0SEND_F0 0OFFLOAD0 0F1 0SEND_F1 0RECV_B0 0B0 0RELOAD0 0RECV_B1 "
          "0B1",
          "'0B0' comes before RELOAD of its activations");
    check("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0RECV_B1 0B1 0OFFLOAD0 "
          "0RELOAD0 0W0",
          "'0OFFLOAD0' comes after the backward has begun");
    check("0OFFLOAD0 0F0 0SEND_F0 0F1 0SEND_F1 0RELOAD0 0RECV_B0 0B0 0RECV_B1 "
          "0B1",
          "'0OFFLOAD0' comes before 0F0");
    check("0F0 0SEND_F0 0OFFLOAD0 0OFFLOAD0 0F1 0SEND_F1 0RELOAD0 0RECV_B0 0B0 "
          "0RECV_B1 0B1",
          "'0OFFLOAD0' appears a second time");
    check("0F0 0SEND_F0 0OFFLOAD0 0F1 0SEND_F1 0RELOAD0 0RELOAD0 0RECV_B0 0B0 "
          "0RECV_B1 0B1",
          "'0RELOAD0' appears a second time");
    check("0F0 0SEND_F0 0OFFLOAD0 0RELOAD0 0OFFLOAD0 0RELOAD0 0F1 0SEND_F1 "
          "0RECV_B0 0B0 0RECV_B1 0B1",
          "'0OFFLOAD0' appears a second time");
    check("0F0 0SEND_F0 0OFFLOAD2 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
          "'0OFFLOAD2' names a microbatch that does not exist");
    check("0F0 0SEND_F0 1OFFLOAD0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
          "'1OFFLOAD0' names a stage of another rank");
    check("0F0 0SEND_F0 0OFFLOAD0.1 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
          "'0OFFLOAD0.1' names a slice that does not exist");
}

/* --- memory --- */

/* Reports if the cell of an action has activations on the device just before or
 * just after place i, by its row. */
static bool is_there(const struct pp_schedule *s, const struct pp_row *list,
                     struct pp_action a, size_t i, bool after)
{
    bool there = false;
    for (size_t k = 0; k < i + after; k++) {
        struct pp_action b = list->actions[k];
        if (b.stage != a.stage || b.microbatch != a.microbatch)
            continue;
        if (b.op == PP_F)
            there = s->graph->stages[b.stage].has_backward;
        if (b.op == PP_RELOAD)
            there = true;
        if (b.op == PP_OFFLOAD ||
            (pp_is_compute(b.op) && pp_ends_backward(s->graph, b)))
            there = false;
    }
    return there;
}

/* Returns the most activations on the device while an action runs. */
static size_t count_slots(const struct pp_schedule *s, int row)
{
    const struct pp_row *list = &s->rows[row];
    size_t most = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t n = 0;
        for (size_t k = 0; k < list->n; k++)
            n += list->actions[k].op == PP_F &&
                 (is_there(s, list, list->actions[k], i, false) ||
                  is_there(s, list, list->actions[k], i, true));
        most = n > most ? n : most;
    }
    return most;
}

/* Returns the most activations on the host: from a forward to the first
 * backward, included. */
static size_t count_host(const struct pp_schedule *s, int row)
{
    const struct pp_row *list = &s->rows[row];
    size_t most = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t n = 0;
        for (size_t k = 0; k < list->n; k++) {
            struct pp_action o = list->actions[k];
            bool begun = false, over = false;
            for (size_t j = 0; j <= i && o.op == PP_OFFLOAD; j++) {
                struct pp_action b = list->actions[j];
                if (b.stage != o.stage || b.microbatch != o.microbatch)
                    continue;
                begun |= b.op == PP_F;
                over |= pp_is_compute(b.op) && b.op != PP_F && j < i;
            }
            n += begun && !over;
        }
        most = n > most ? n : most;
    }
    return most;
}

enum { BYTES = 6400 };

/* Compares plans of activations that W needs, as of slots, with the count. */
static void compare_memory(struct fixture *f, int *checked, int *wrong)
{
    struct pp_stage_bytes sizes[MAX_STAGES] = {0};
    for (int s = 0; s < f->graph.n_stages; s++)
        sizes[s].act_w = BYTES;
    for (int r = 0; r < f->graph.n_rows; r++) {
        struct pp_memory m;
        bool overlap = false, trains = false;
        for (size_t i = 0; i < f->s.rows[r].n; i++) {
            overlap |= f->s.rows[r].actions[i].overlap;
            trains |= f->s.rows[r].actions[i].op == PP_B ||
                      f->s.rows[r].actions[i].op == PP_W;
        }
        if (overlap || !trains) /* both of a pair live at once */
            continue;
        if (pp_memory_plan(&f->s, r, sizes, &m, &f->err))
            abort();
        size_t slots = count_slots(&f->s, r);
        *wrong += m.peak_bytes != BYTES * slots ||
                  (size_t)m.peak_slots != slots ||
                  m.host_bytes != BYTES * count_host(&f->s, r);
        ++*checked;
        pp_memory_finish(&m);
    }
}

static void test_memory(void)
{
    struct dice d = {.key = pp_rng_key(5, "offload")};
    int checked = 0, wrong = 0;
    for (int i = 0; i < 200; i++) {
        struct fixture f;
        struct pp_err err = {0};
        random_schedule(&f, &d);
        if (!pp_check_order(&f.s, &err) && add_copies(&f, &d)) {
            if (pp_check_order(&f.s, &err)) {
                printf("# %s\n", err.text);
                wrong++;
            }
            compare_memory(&f, &checked, &wrong);
        }
        drop(&f);
    }
    ok(checked > 100, "%d rows with copies", checked);
    ok(wrong == 0, "slots, bytes and bytes of the host are those counted");
}

/* --- times --- */

/* Returns the makespan of two ranks whose actions take 1, 1, 1 and whose copies
 * take `copy`. */
static double time_of(const char *row0, const char *row1, double copy)
{
    struct fixture f;
    const char *const text[] = {row0, row1};
    struct pp_sim sim = {0};
    chain(&f, 2, 1, PP_PLACEMENT_LOOP);
    struct pp_literal_costs literal = {.graph = &f.graph,
                                       .f = 1,
                                       .i = 1,
                                       .w = 1,
                                       .copy = copy,
                                       .textbook = true};
    const struct pp_costs costs = {pp_literal_time, &literal};
    if (rows(&f, 2, text) || pp_check(&f.s, &f.err) ||
        pp_simulate(&f.s, &costs, 1, &sim, &f.err))
        printf("# %s\n", f.err.text);
    double makespan = sim.makespan;
    pp_sim_finish(&sim);
    drop(&f);
    return makespan;
}

static void test_times(void)
{
    /* Rank 0 runs 0F0 0F1 from 0 to 2, and gets its gradients at 4 and 7. */
    const char *gap = "0F0 0SEND_F0 0F1 0SEND_F1 0OFFLOAD0 0RELOAD0 0RECV_B0 "
                      "0B0 0RECV_B1 0B1";
    ok(time_of(gap, ROW1, 0) == 9, "copies without time take none");
    ok(time_of(gap, ROW1, 1) == 9, "copies of 1 fit into the gap");
    ok(time_of(gap, ROW1, 1.5) == 9, "copies that just fit");
    ok(time_of(gap, ROW1, 2) == 9.0 + 0, "0B0 from 5 to 7 delays nothing");
    ok(time_of(gap, ROW1, 3) == 11, "copies to 4 and 7, then two backwards");
    /* The second forward waits for the first copy. */
    ok(time_of("0F0 0SEND_F0 0OFFLOAD0 0F1 0SEND_F1 0RELOAD0 0RECV_B0 0B0 "
               "0RECV_B1 0B1",
               ROW1, 3) == 12,
       "an OFFLOAD keeps its rank until the copy has ended");
    /* Copies of one direction follow each other. */
    ok(time_of("0F0 0SEND_F0 0F1 0SEND_F1 0OFFLOAD0 0OFFLOAD1 0RELOAD0 "
               "0RELOAD1 0RECV_B0 0B0 0RECV_B1 0B1",
               ROW1, 2) == 11,
       "copies of one direction follow each other");
}

/* --- the choice of copies, against all choices --- */

/* Every way to put copies into the first row of a schedule within a limit. */
struct brute {
    struct pp_schedule *s;
    const struct pp_row *from;
    const struct pp_costs *costs;
    int limit, live, state[4]; /* by microbatch: 0 to come, 1 here, 2 away,
                                  3 back, 4 over */
    double least;
    int n;
};

static void try_all(struct brute *b, size_t at)
{
    struct pp_row *to = &b->s->rows[0];
    struct pp_err err = {0};
    if (at == b->from->n) {
        double end;
        if (pp_run_time(b->s, b->costs, b->s->channel_depth, false, &end, &err))
            abort();
        b->least = fmin(b->least, end);
        b->n++;
        return;
    }
    struct pp_action a = b->from->actions[at];
    int m = a.microbatch, opens = a.op == PP_F;
    bool compute = pp_is_compute(a.op);
    if (!compute || (opens ? b->live < b->limit : b->state[m] % 2 == 1)) {
        int before = b->state[m];
        to->actions[to->n++] = a;
        if (compute) {
            b->state[m] = opens ? 1 : 4;
            b->live += opens ? 1 : -1;
        }
        try_all(b, at + 1);
        if (compute) {
            b->state[m] = before;
            b->live -= opens ? 1 : -1;
        }
        to->n--;
    }
    /* Copies stand before compute actions. */
    for (int k = 0; k < b->s->n_microbatches && compute; k++) {
        bool out = b->state[k] == 1, in = b->state[k] == 2;
        if (!(out || in) || (in && b->live == b->limit))
            continue;
        to->actions[to->n++] =
            (struct pp_action){.stage = 0,
                               .microbatch = k,
                               .peer = -1,
                               .op = out ? PP_OFFLOAD : PP_RELOAD};
        b->state[k]++;
        b->live += out ? -1 : 1;
        try_all(b, at);
        b->live -= out ? -1 : 1;
        b->state[k]--;
        to->n--;
    }
}

/* Returns the least makespan of all choices. */
static double brute_force(const struct pp_schedule *s,
                          const struct pp_costs *costs, int limit)
{
    struct pp_schedule copy;
    struct pp_action none = {.op = PP_W};
    pp_schedule_copy(s, &copy);
    for (int i = 0; i < 8; i++)
        pp_schedule_add(&copy, 0, none);
    copy.rows[0].n = 0;
    struct brute b = {&copy, &s->rows[0], costs, .limit = limit,
                      .least = INFINITY};
    try_all(&b, 0);
    pp_schedule_finish(&copy);
    return b.least;
}

static double chosen(const struct pp_schedule *s, const struct pp_costs *costs,
                     int limit, const struct pp_bound *bound)
{
    const double load[2] = {1, 1}, room[2] = {limit, 8};
    const struct pp_offload_options o = {costs, load, room};
    struct pp_schedule copy;
    struct pp_err err = {0};
    double end = INFINITY;
    pp_schedule_copy(s, &copy);
    if (pp_offload(&copy, &o, &err) == 0 &&
        (pp_check(&copy, &err) ||
         pp_run_time(&copy, costs, copy.channel_depth, false, &end, &err) ||
         pp_row_slots(&copy, 0) > limit || end < bound->makespan - 1e-9)) {
        printf("# %s\n", err.text);
        end = -1;
    }
    pp_schedule_finish(&copy);
    return end;
}

static void test_choice(void)
{
    int n = 0, best = 0, below = 0, unfit = 0, unbound = 0;
    double worst = 1;
    for (int p = 1; p <= 2; p++)
        for (int m = 2; m <= 4; m++)
            for (int limit = 1; limit < m; limit++)
                for (int copy = 0; copy <= 4; copy++) {
                    struct fixture f;
                    chain(&f, p, 1, PP_PLACEMENT_LOOP);
                    struct pp_literal_costs literal = {.graph = &f.graph,
                                                       .f = 2,
                                                       .i = 2,
                                                       .w = 2,
                                                       .copy = copy,
                                                       .textbook = true};
                    const struct pp_costs costs = {pp_literal_time, &literal};
                    const double limits[2] = {limit, 8}, time[2] = {copy, copy};
                    const struct pp_load load[2] = {{.f_to_w = 1},
                                                    {.f_to_w = 1}};
                    const struct pp_memory_limit room = {limits, load, time};
                    struct pp_bound bound;
                    if (emit(&f, "gpipe", m, 0) || pp_lower(&f.s, &f.err) ||
                        pp_bound(&f.graph, m, false, &costs, &room, &bound,
                                 &f.err))
                        abort();
                    double all = brute_force(&f.s, &costs, limit);
                    double one = chosen(&f.s, &costs, limit, &bound);
                    n++;
                    best += one == all;
                    below += one < all;
                    unfit += one == INFINITY && all < INFINITY;
                    unbound += bound.makespan > all + 1e-9;
                    if (one < INFINITY && all < INFINITY)
                        worst = fmax(worst, one / all);
                    drop(&f);
                }
    printf("# %d of %d are the best, the worst is %.3f times it\n", best, n,
           worst);
    ok(below == 0, "no choice is better than the best of all");
    ok(unbound == 0, "no bound is above the best of all");
    ok(unfit == 0, "where any choice fits, one is found");
    ok(best >= n * 2 / 3 && worst < 1.15, "most choices are the best");
}

int main(void)
{
    test_rules();
    test_memory();
    test_times();
    test_choice();
    return done();
}
