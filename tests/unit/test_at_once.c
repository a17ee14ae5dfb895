/* SPDX-License-Identifier: MIT */
/* test_at_once - forwards that their backward follows at once: what the kinds
 * have of them, and that the sums of gradients keep their order. */
#include "schedule/ir/at_once.h"

#include <string.h>

#include "sched_fixture.h"
#include "schedule/ir/deps.h"

enum { MOST = 4000 };

/* Counts the forwards of a stage, and those that have it. */
static int count(const struct pp_schedule *s, int stage, int *n)
{
    enum pp_at_once is[MOST];
    int row = s->graph->stages[stage].row, once = 0;
    pp_at_once(s, row, is);
    *n = 0;
    for (size_t i = 0; i < s->rows[row].n; i++) {
        struct pp_action a = s->rows[row].actions[i];
        *n += a.op == PP_F && a.stage == stage;
        once += a.op == PP_F && a.stage == stage && is[i] > PP_AT_ONCE_NONE;
    }
    return once;
}

/* The forwards that add to the gradients. */
enum who { NONE, ALL, ODD_OF_EACH, EVEN_OF_EACH, N_WHO };

static bool is_early(enum who who, enum pp_at_once is, struct pp_action a)
{
    if (who == ALL)
        return is > PP_AT_ONCE_NONE;
    bool odd = (a.microbatch + a.slice) % 2;
    return who != NONE && is == PP_AT_ONCE_EACH && odd == (who == ODD_OF_EACH);
}

/* Lists the microbatches of a stage in the order of its sums. */
static size_t sums(const struct pp_schedule *s, int row, int stage,
                   const enum pp_at_once *is, enum who who,
                   struct pp_action *at)
{
    const struct pp_row *list = &s->rows[row];
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        bool adds = is_early(who, is[i], a) ? a.op == PP_F
                                            : pp_adds_gradients(s->graph, a);
        if (a.stage == stage && adds)
            at[n++] = a;
    }
    return n;
}

static bool in_order(const struct pp_schedule *s, int stage)
{
    static struct pp_action before[MOST], after[MOST];
    enum pp_at_once is[MOST];
    int row = s->graph->stages[stage].row;
    bool same = true;
    pp_at_once(s, row, is);
    size_t a = sums(s, row, stage, is, NONE, before);
    for (enum who who = ALL; who < N_WHO; who++) {
        same &= a == sums(s, row, stage, is, who, after);
        for (size_t i = 0; same && i < a; i++)
            same = before[i].microbatch == after[i].microbatch &&
                   before[i].slice == after[i].slice;
    }
    return same;
}

/* Tests every stage of a kind, and the number of forwards of the last one. */
static void kind(const char *name, int p, int c, enum pp_placement placement,
                 int m, int slices, int want)
{
    struct fixture f;
    struct pp_kind_options o = {m, 0};
    bool same = true;
    int n, last;
    chain(&f, p, c, placement);
    f.graph.slices.n = slices;
    const struct pp_kind *k = pp_kind_find(name);
    pp_schedule_init(&f.s, &f.graph, k->name, m);
    if (pp_kind_emit(k, &f.s, &o, &f.err) || pp_lower(&f.s, &f.err))
        abort();
    for (int stage = 0; stage < f.graph.n_stages; stage++)
        same &= in_order(&f.s, stage);
    last = count(&f.s, p * c - 1, &n);
    if (!ok(same && n == m * slices && last == want,
            "%s, %d of %d: the sums keep their order", name, want, m * slices))
        printf("# %d of %d\n", last, n);
    drop(&f);
}

/* Tests rows of one stage: marks has a letter for each action, x for all, and o
 * for each. */
static void row(const char *text, const char *marks, const char *what)
{
    struct fixture f;
    enum pp_at_once is[MOST];
    char got[MOST] = "";
    chain(&f, 1, 1, PP_PLACEMENT_LOOP);
    if (rows(&f, 3, &text))
        abort();
    pp_at_once(&f.s, 0, is);
    for (size_t i = 0; i < f.s.rows[0].n; i++)
        got[i] = "-xo"[is[i]];
    got[f.s.rows[0].n] = 0;
    if (!ok(!strcmp(got, marks), "%s", what))
        printf("# %s\n", got);
    drop(&f);
}

int main(void)
{
    kind("1f1b", 4, 1, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("gpipe", 4, 1, PP_PLACEMENT_LOOP, 8, 1, 0);
    kind("gpipe", 4, 1, PP_PLACEMENT_LOOP, 1, 1, 1);
    kind("eager-1f1b", 4, 1, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("looped-bfs", 4, 2, PP_PLACEMENT_LOOP, 8, 1, 1);
    kind("interleaved", 4, 2, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("hanayo", 4, 2, PP_PLACEMENT_V, 8, 1, 8);
    kind("zb-h1", 4, 1, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("zb-h2", 4, 1, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("zb-interleaved", 4, 2, PP_PLACEMENT_LOOP, 8, 1, 8);
    kind("zbv", 4, 2, PP_PLACEMENT_V, 8, 1, 8);
    kind("seq1f1b", 4, 1, PP_PLACEMENT_LOOP, 8, 2, 8);
    row("0F0 0B0 0F1 0B1", "oooo", "B follows at once");
    row("0F0 0I0 0W0 0F1 0I1 0W1", "oooooo", "I and W follow at once");
    row("0F0 0I0 0F1 0I1 0W0 0W1", "ooxxox", "W comes later, in order");
    row("0F0 0I0 0F1 0I1 0W1 0W0", "--ooo-", "W of the second one first");
    row("0F0 0F1 0B1 0B0", "-oo-", "the last forward");
    row("0F0 0F1 0I1 0B0 0W1", "-----", "a sum comes before W");
    row("0F0 0F1 0B0 0B1", "----", "no backward follows at once");
    return done();
}
