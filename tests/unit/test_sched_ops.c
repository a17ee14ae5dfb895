/* SPDX-License-Identifier: MIT */
/* The graph of operations against a plain search for longest paths, on random
 * graphs with and without cycles. */
#include "schedule/ir/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tap.h"

enum { MOST = 14, ROWS = 3, TRIALS = 3000 };

struct trial {
    uint64_t key, at;
    int n, row[MOST], order[MOST]; /* order: row by row */
    double time[MOST], late[ROWS];
    double lag[MOST][MOST]; /* from, to; negative: no edge */
};

static int roll(struct trial *t, int n)
{
    return (int)(pp_rng_bits(t->key, t->at++) % (uint64_t)n);
}

/* Edges mostly lead to larger numbers, and rows mostly follow the numbers. */
static void roll_trial(struct trial *t)
{
    t->n = 1 + roll(t, MOST);
    for (int a = 0; a < t->n; a++) {
        t->row[a] = roll(t, ROWS);
        t->time[a] = roll(t, 5);
        for (int b = 0; b < t->n; b++)
            t->lag[a][b] = roll(t, a < b ? 4 : 40) ? -1 : roll(t, 3);
    }
    for (int r = 0, k = 0; r < ROWS; r++) {
        int first = k;
        t->late[r] = roll(t, 4);
        for (int a = 0; a < t->n; a++)
            if (t->row[a] == r)
                t->order[k++] = a;
        if (k - first > 1 && roll(t, 3) == 0) {
            int at = first + roll(t, k - first - 1), swapped = t->order[at];
            t->order[at] = t->order[at + 1];
            t->order[at + 1] = swapped;
        }
    }
}

/* Returns the time from the end of a to the start of b that edges and rows ask
 * for, or -1. */
static double least(const struct trial *t, int a, int b)
{
    double lag = t->lag[a][b];
    for (int k = 0; k + 1 < t->n; k++)
        if (t->order[k] == a && t->order[k + 1] == b &&
            t->row[a] == t->row[b] && lag < 0)
            lag = 0;
    return lag;
}

/* Raises starts until nothing changes. Returns false if that never ends. */
static bool relax(const struct trial *t, double *start, double *tail)
{
    memset(start, 0, MOST * sizeof *start);
    for (int a = 0; a < t->n; a++)
        tail[a] = t->late[t->row[a]];
    bool changed = true, runs = true;
    for (int i = 0; changed && i <= t->n; i++) {
        changed = false;
        for (int a = 0; a < t->n; a++)
            for (int b = 0; b < t->n; b++) {
                double lag = least(t, a, b);
                if (lag < 0)
                    continue;
                changed |= start[a] + t->time[a] + lag > start[b] ||
                           lag + t->time[b] + tail[b] > tail[a];
                start[b] = fmax(start[b], start[a] + t->time[a] + lag);
                tail[a] = fmax(tail[a], lag + t->time[b] + tail[b]);
            }
    }
    /* A cycle without time has longest paths, too, but never runs. */
    bool done[MOST] = {false};
    for (int i = 0; i < t->n; i++)
        for (int b = 0; b < t->n; b++) {
            bool ready = true;
            for (int a = 0; a < t->n; a++)
                ready &= done[a] || least(t, a, b) < 0;
            done[b] |= ready;
        }
    for (int a = 0; a < t->n; a++)
        runs &= done[a];
    return runs;
}

static bool fill(const struct trial *t, struct pp_ops *o, struct pp_err *err)
{
    if (pp_ops_init(o, (size_t)t->n, ROWS, true, err))
        return false;
    for (int b = 0; b < t->n; b++) {
        pp_ops_add(o, t->row[b], t->time[b]);
        for (int a = 0; a < t->n; a++)
            if (t->lag[a][b] >= 0 && pp_ops_wait(o, a, t->lag[a][b], err))
                return false;
    }
    o->late = calloc(ROWS, sizeof *o->late);
    if (!o->late)
        return false;
    pp_ops_link(o, true);
    memcpy(o->late, t->late, sizeof t->late);
    return true;
}

/* Returns whether the paths are right. Counts the graphs with a cycle. */
static bool agrees(struct trial *t, int *cycles)
{
    struct pp_ops o = {0};
    struct pp_paths p = {0};
    struct pp_err err = {0};
    double start[MOST], tail[MOST];
    bool runs = relax(t, start, tail), good = false;
    int32_t order[MOST];
    for (int k = 0; k < t->n; k++)
        order[k] = t->order[k];
    if (fill(t, &o, &err) && (pp_paths_init(&p, &o), true)) {
        good = pp_paths_heads(&p, order) == runs;
        *cycles += !runs;
        if (good && runs) {
            double worst = -INFINITY;
            pp_paths_tails(&p);
            good = !memcmp(p.start, start, (size_t)t->n * sizeof *start) &&
                   !memcmp(p.tail, tail, (size_t)t->n * sizeof *tail);
            for (int a = 0; a < t->n; a++)
                worst = fmax(worst, start[a] + t->time[a] + tail[a]);
            for (int r = 0; r < ROWS; r++)
                worst = fmax(worst, o.late[r]);
            good &= worst == p.worst;
        }
    }
    pp_paths_finish(&p);
    pp_ops_finish(&o);
    return good;
}

int main(void)
{
    int wrong = 0, cycles = 0;
    for (int i = 0; i < TRIALS; i++) {
        struct trial t = {.key = pp_rng_key((uint64_t)i, "ops")};
        roll_trial(&t);
        if (!agrees(&t, &cycles) && wrong++ < 5)
            printf("# trial %d is wrong\n", i);
    }
    is_int(wrong, 0, "heads, tails and cycles of random graphs");
    ok(cycles > TRIALS / 10 && cycles < TRIALS * 9 / 10,
       "%d of them have a cycle", cycles);
    return done();
}
