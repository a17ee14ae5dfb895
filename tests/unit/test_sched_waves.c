/* SPDX-License-Identifier: MIT */
/* Tests the kinds that repeat a plan in a V: v-half and v-min against the
 * makespans and peaks of their authors' planner, hanayo against its closed
 * forms. */
#include "sched_fixture.h"

#include "schedule/memory/memory.h"

static int peak(const struct fixture *f)
{
    int most = 0;
    for (int r = 0; r < f->graph.n_rows; r++) {
        int slots = pp_row_slots(&f->s, r);
        most = slots > most ? slots : most;
    }
    return most;
}

/* The costs are of a whole rank. The published makespans have one decimal. */
static void test_authors(void)
{
    static const struct {
        int p, m;
        double cost[4], half, min;
    } cases[] = {
        {8, 24, {1, 1, 1, 0}, 80.5, 85.5},
        {8, 24, {10, 10, 8, 1}, 814, 1000},
        {8, 24, {18.522, 18.086, 9.337, .601}, 1328.8, 1658.8},
        {8, 24, {29.718, 29.444, 19.927, .527}, 2219.1, 2607.6},
        {16, 48, {11.347, 11.248, 8.132, .377}, 1773.1, 2085.1},
        {32, 96, {10.419, 10.207, 7.715, .408}, 3309.8, 3901.6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int min = 0; min < 2; min++) {
            const char *kind = min ? "v-min" : "v-half";
            int p = cases[i].p, m = cases[i].m;
            double cost[4], want = min ? cases[i].min : cases[i].half;
            struct fixture f;
            struct pp_sim sim = {0};
            for (int k = 0; k < 4; k++)
                cost[k] = cases[i].cost[k] / (k < 3 ? 2 : 1);
            chain(&f, p, 2, PP_PLACEMENT_V);
            ok(plan_kind(&f, kind, m, cost, &sim), "%s p=%d m=%d runs", kind, p,
               m);
            if (!ok(sim.makespan < want + .05,
                    "  as fast as its authors' planner"))
                printf("# got %.2f, expected %.1f\n", sim.makespan, want);
            pp_sim_finish(&sim);
            drop(&f);
        }
}

/* The peaks are (p + 2) div 2 and (p + 4) div 3 microbatches on a rank, never
 * more. */
static void test_peaks(void)
{
    for (int min = 0; min < 2; min++) {
        bool exact = true, within = true, canonical = true;
        for (int p = 1; p <= 13; p++)
            for (int m = 1; m <= 3 * p; m++) {
                struct fixture f;
                int limit = 2 * (min ? (p + 4) / 3 : (p + 2) / 2);
                chain(&f, p, 2, PP_PLACEMENT_V);
                within &= !emit(&f, min ? "v-min" : "v-half", m, 0) &&
                          peak(&f) <= limit;
                exact &= m < 3 * p || peak(&f) == limit;
                canonical &= pp_schedule_is_canonical(&f.s);
                drop(&f);
            }
        ok(within, "%s keeps within its memory", min ? "v-min" : "v-half");
        ok(exact, "  and uses it from 3p microbatches on");
        ok(canonical, "  and keeps weight gradients in order");
    }
}

/* With whole groups of p the bubble is the fill and drain of one chunk, (p - 1)
 * T / c. Two or more waves exceed it by at most p / 2 forwards of a chunk. The
 * memory is that of interleaved. */
static void test_waves(void)
{
    static const double unit[] = {1, 1, 1, 0};
    for (int p = 1; p <= 8; p++)
        for (int waves = 1; waves <= 4; waves++) {
            bool time = true, slots = true;
            int c = 2 * waves;
            for (int groups = 2; groups <= 4; groups++) {
                struct fixture f;
                struct pp_sim sim = {0};
                int m = groups * p;
                chain(&f, p, c, PP_PLACEMENT_V);
                time &= plan_kind(&f, "hanayo", m, unit, &sim);
                double bubble = sim.makespan - 3.0 * c * m - 3.0 * (p - 1);
                time &= bubble >= 0 && bubble <= (waves > 1 ? p / 2 : 0);
                slots &= peak(&f) == 2 * (p - 1) + (c - 1) * p + 1;
                pp_sim_finish(&sim);
                drop(&f);
            }
            ok(time, "hanayo p=%d c=%d has the bubble of one chunk", p, c);
            ok(slots, "  and the memory of interleaved");
        }
}

/* With partial groups it is never slower than 1f1b for m >= p, keeps no more
 * microbatches alive, and is complete for any m. */
static void test_uneven_groups(void)
{
    static const double unit[] = {1, 1, 1, 0};
    int worse = 0, fuller = 0, failed = 0, n = 0;
    for (int p = 2; p <= 7; p++)
        for (int waves = 1; waves <= 3; waves++)
            for (int m = 1; m <= 3 * p; m++) {
                struct fixture f;
                struct pp_sim sim = {0};
                int c = 2 * waves;
                chain(&f, p, c, PP_PLACEMENT_V);
                failed += !plan_kind(&f, "hanayo", m, unit, &sim);
                worse += m >= p && sim.makespan > 3.0 * c * (m + p - 1);
                fuller += peak(&f) > 2 * c * p;
                n++;
                pp_sim_finish(&sim);
                drop(&f);
            }
    ok(!failed, "hanayo runs on all of %d settings", n);
    ok(!worse, "  it is never slower than 1f1b");
    ok(!fuller, "  with fewer than 2p microbatches alive");
}

static void refuses(int c, enum pp_placement placement, const char *says)
{
    struct fixture f;
    chain(&f, 4, c, placement);
    ok(emit(&f, "hanayo", 8, 0) && f.err.code == PP_EXIT_INPUT &&
           strstr(f.err.text, says),
       "hanayo on %d chunks asks for %s", c, says);
    drop(&f);
}

int main(void)
{
    test_authors();
    test_peaks();
    test_waves();
    test_uneven_groups();
    refuses(1, PP_PLACEMENT_LOOP, "2 chunks per rank and placement v");
    refuses(3, PP_PLACEMENT_V, "4 chunks per rank and placement v");
    refuses(2, PP_PLACEMENT_LOOP, "placement v");
    return done();
}
