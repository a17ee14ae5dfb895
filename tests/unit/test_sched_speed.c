/* SPDX-License-Identifier: MIT */
/* A large plan, phase by phase: emit, lower, check, simulate, bound. The test
 * compares their results at a modest size. With --bench it prints each phase's
 * time at p = 64, m = 4096, c = 4 (scripts/bench-sched). */
#include "sched_fixture.h"

#include <limits.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "schedule/bound/bound.h"

/* Clock and processor time of this process, and its most memory. */
struct spent {
    double wall, cpu, mib;
};

static struct spent now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (struct spent){
        pp_clock(),
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
            1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec),
        (double)u.ru_maxrss / 1024};
}

struct phases {
    bool bench;
    struct spent start, last;
};

static void print_spent(const char *name, struct spent from)
{
    struct spent to = now();
    printf("  %-10s %7.3f s  %7.3f s of processor  %6.0f MiB\n", name,
           to.wall - from.wall, to.cpu - from.cpu, to.mib);
}

static void phase(struct phases *p, const char *name)
{
    if (p->bench)
        print_spent(name, p->last);
    p->last = now();
}

static bool plan(struct fixture *f, struct phases *t, const char *kind, int p,
                 int v, int m, struct pp_sim *sim, struct pp_bound *b)
{
    struct pp_literal_costs literal = {&f->graph, 1, 1, 1, 0, true};
    struct pp_costs costs = {.time = pp_literal_time, .ctx = &literal};
    t->start = t->last = now();
    chain(f, p, v, PP_PLACEMENT_LOOP);
    if (emit(f, kind, m, 0))
        return false;
    phase(t, "emit");
    if (pp_lower(&f->s, &f->err))
        return false;
    phase(t, "lower");
    if (pp_check(&f->s, &f->err))
        return false;
    phase(t, "check");
    if (pp_simulate(&f->s, &costs, INT_MAX, sim, &f->err))
        return false;
    phase(t, "simulate");
    if (pp_bound(&f->graph, m, !strncmp(kind, "zb", 2), &costs, NULL, b,
                 &f->err))
        return false;
    phase(t, "bound");
    return true;
}

int main(int argc, char **argv)
{
    struct phases t = {.bench = argc > 1 && !strcmp(argv[1], "--bench")};
    int p = t.bench ? 64 : 16, m = t.bench ? 4096 : 64;
    const char *kinds[] = {"interleaved", "zb-interleaved"};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        struct pp_sim sim = {0};
        struct pp_bound b = {0};
        if (t.bench)
            printf("%s, %d ranks, 4 chunks, %d microbatches\n", kinds[i], p, m);
        bool planned = plan(&f, &t, kinds[i], p, 4, m, &sim, &b);
        if (!planned)
            printf("# %s\n", f.err.text);
        size_t n = 0;
        for (int r = 0; planned && r < p; r++)
            n += f.s.rows[r].n;
        if (t.bench)
            print_spent("all", t.start);
        if (t.bench)
            printf("  %zu actions, %zu of them compute\n", n,
                   planned ? pp_schedule_count(&f.s, PP_COMPUTE_OPS) : 0);
        else
            ok(planned && sim.makespan >= b.makespan * (1 - 1e-12) &&
                   sim.makespan < 1.2 * b.makespan,
               "%s of %d ranks is near its bound", kinds[i], p);
        pp_sim_finish(&sim);
        drop(&f);
    }
    return t.bench ? 0 : done();
}
