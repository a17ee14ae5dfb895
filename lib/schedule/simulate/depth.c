/* SPDX-License-Identifier: MIT */
/* The least depth that suffices. If only less fits, messages are placed anew by
 * their times, which posts receives earlier. */
#include "schedule/simulate/depth.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/numbering.h"

/* Makespans that differ by less are equal. */
static const double equal = 1 + 1e-9;

static int run_time(const struct pp_schedule *s, const struct pp_costs *costs,
                    double *makespan, struct pp_err *err)
{
    return pp_run_time(s, costs, s->channel_depth, false, makespan, err);
}

static void most_messages(const struct pp_schedule *s, int *most)
{
    const struct pp_graph *g = s->graph;
    struct pp_channels c;
    pp_channels_init(&c, g);
    int *n = pp_calloc(c.n + 1, sizeof *n);
    *most = 1;
    for (int r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < s->rows[r].n; i++) {
            struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_send(a.op))
                continue;
            int *sent = &n[pp_channel_of(&c, a, r, g->stages[a.peer].row)];
            if (++*sent > *most)
                *most = *sent;
        }
    free(n);
    pp_channels_finish(&c);
}

struct depth_choice {
    struct pp_schedule *s; /* its depth is the one that is tried */
    const struct pp_depth_options *options;
    double enough; /* a makespan that is as good as with unbounded channels */
};

/* Sets *yes if the depth of c->s passes. If one passes, each larger one does.
 */
typedef int (*depth_test)(const struct depth_choice *c, bool *yes,
                          struct pp_err *err);

/* Reports if the ranks reach their ends even if each receive waits in its
 * place. */
static int passes_check(const struct depth_choice *c, bool *yes,
                        struct pp_err *err)
{
    double makespan;
    struct pp_err why = {0};
    *yes = !pp_run_time(c->s, c->options->costs, c->s->channel_depth, true,
                        &makespan, &why);
    if (why.code != PP_EXIT_OK && why.code != PP_EXIT_NO)
        return pp_fail(err, why.code, "%s", why.text);
    return 0;
}

static int suffices(const struct depth_choice *c, bool *yes, struct pp_err *err)
{
    double makespan;
    if (run_time(c->s, c->options->costs, &makespan, err))
        return -1;
    *yes = makespan <= c->enough;
    return 0;
}

static int is_too_deep(const struct depth_choice *c, bool *yes,
                       struct pp_err *err)
{
    bool fits = true;
    if (c->options->fits && c->options->fits(c->options->ctx, c->s, &fits, err))
        return -1;
    *yes = !fits;
    return 0;
}

/* Gives c->s the least depth from `from` to `to` that passes; `to` does. */
static int least_depth(const struct depth_choice *c, depth_test test, int from,
                       int to, struct pp_err *err)
{
    for (int at = from; from < to; at = from + (to - from) / 2) {
        bool yes;
        c->s->channel_depth = at;
        if (test(c, &yes, err))
            return -1;
        if (yes)
            to = at;
        else
            from = at + 1;
    }
    c->s->channel_depth = to;
    return 0;
}

/* Lowers the depth of c->s to the largest that fits, but not below `least`. */
static int keep_to_memory(const struct depth_choice *c, int least, bool *fits,
                          struct pp_err *err)
{
    bool above;
    if (is_too_deep(c, &above, err))
        return -1;
    *fits = true;
    if (!above)
        return 0;
    if (least_depth(c, is_too_deep, least, c->s->channel_depth, err))
        return -1;
    *fits = c->s->channel_depth > least;
    c->s->channel_depth -= *fits;
    return 0;
}

/* Chooses for the messages as they are placed. */
static int choose(struct pp_schedule *s, const struct pp_depth_options *o,
                  struct pp_depth_found *found, struct pp_err *err)
{
    struct depth_choice c = {s, o, 0};
    bool above = false;
    int most, least;
    *found = (struct pp_depth_found){0};
    most_messages(s, &most);
    s->channel_depth = most;
    if (run_time(s, o->costs, &found->unbounded, err))
        return -1;
    c.enough = found->unbounded * equal;
    if (o->fixed >= 0) {
        s->channel_depth = o->fixed;
        if (is_too_deep(&c, &above, err))
            return -1;
        found->fits = !above;
    } else {
        if (least_depth(&c, passes_check, 1, most, err))
            return -1;
        least = s->channel_depth;
        if (least_depth(&c, suffices, least, most, err) ||
            keep_to_memory(&c, least, &found->fits, err))
            return -1;
    }
    return run_time(s, o->costs, &found->makespan, err);
}

static bool is_better(const struct pp_depth_found *a,
                      const struct pp_depth_found *b)
{
    if (a->fits != b->fits)
        return a->fits;
    return a->makespan * equal < b->makespan;
}

int pp_depth_choose(struct pp_schedule *s, const struct pp_depth_options *o,
                    struct pp_depth_found *found, struct pp_err *err)
{
    struct pp_schedule other = {0};
    struct pp_depth_found again;
    if (choose(s, o, found, err))
        return -1;
    if (!o->lowered ||
        (found->fits && found->makespan <= found->unbounded * equal))
        return 0;
    pp_schedule_copy(s, &other);
    int rc =
        pp_lower_again(&other, o->costs, err) || choose(&other, o, &again, err)
            ? -1
            : 0;
    if (!rc && is_better(&again, found)) {
        struct pp_schedule old = *s;
        *s = other;
        other = old;
        *found = again;
    }
    pp_schedule_finish(&other);
    return rc;
}
