/* SPDX-License-Identifier: MIT */
/* sharding - adds UNSHARD and RESHARD to rows whose ranks divide the weights.
 *
 * A stage is whole from the first action that needs it to the last. If too many
 * stages would be whole at once, the one goes whose next use is the latest:
 * this gathers fewest stages (Belady, "A Study of Replacement Algorithms for a
 * Virtual-Storage Computer", 1966). */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/ir/schedule.h"

enum { NEVER = -1 };

struct weights_of_row {
    struct pp_schedule *to;
    int row;
    const struct pp_row *from;
    int64_t *next; /* by place: that of the next use of the same stage */
    int64_t *use;  /* by stage: the place of its next use */
    bool *whole;   /* by stage */
    int n_whole;
};

/* Rows from a file may name stages that do not exist; the checker says so. */
static bool uses_weights(const struct pp_schedule *s, struct pp_action a)
{
    return pp_is_compute(a.op) && a.stage >= 0 && a.stage < s->graph->n_stages;
}

static void find_uses(struct weights_of_row *w)
{
    for (int s = 0; s < w->to->graph->n_stages; s++) {
        w->use[s] = NEVER;
        w->whole[s] = false;
    }
    w->n_whole = 0;
    for (size_t i = w->from->n; i-- > 0;) {
        struct pp_action a = w->from->actions[i];
        if (!uses_weights(w->to, a))
            continue;
        w->next[i] = w->use[a.stage];
        w->use[a.stage] = (int64_t)i;
    }
}

static void set_whole(struct weights_of_row *w, int stage, bool whole)
{
    struct pp_action a = {.stage = stage,
                          .microbatch = -1,
                          .peer = -1,
                          .op = whole ? PP_UNSHARD : PP_RESHARD};
    w->whole[stage] = whole;
    w->n_whole += whole ? 1 : -1;
    pp_schedule_add(w->to, w->row, a);
}

/* Gives up the stages that no later action uses. */
static void give_up_used(struct weights_of_row *w)
{
    for (int s = 0; s < w->to->graph->n_stages; s++)
        if (w->whole[s] && w->use[s] == NEVER)
            set_whole(w, s, false);
}

/* Returns the whole stage but `other` whose next use is the latest, or -1. */
static int find_latest(const struct weights_of_row *w, int other)
{
    int latest = -1;
    for (int s = 0; s < w->to->graph->n_stages; s++)
        if (w->whole[s] && s != other &&
            (latest < 0 || w->use[s] > w->use[latest]))
            latest = s;
    return latest;
}

/* Makes a stage whole. `other` is the stage of the same overlap pair, or the
 * same one; both are whole then, whatever the limit. */
static void need(struct weights_of_row *w, int stage, int other)
{
    int goes;
    if (w->whole[stage])
        return;
    while (w->n_whole >= w->to->graph->resident &&
           (goes = find_latest(w, other)) >= 0)
        set_whole(w, goes, false);
    set_whole(w, stage, true);
}

static void need_at(struct weights_of_row *w, size_t place)
{
    struct pp_action a = w->from->actions[place];
    int other = a.overlap && place + 1 < w->from->n &&
                        uses_weights(w->to, w->from->actions[place + 1])
                    ? w->from->actions[place + 1].stage
                    : a.stage;
    if (pp_is_second_of_pair(w->from, place))
        return;
    give_up_used(w);
    need(w, a.stage, other);
    need(w, other, a.stage);
}

static void add_row(struct weights_of_row *w)
{
    find_uses(w);
    for (size_t i = 0; i < w->from->n; i++) {
        struct pp_action a = w->from->actions[i];
        bool uses = uses_weights(w->to, a);
        if (uses)
            need_at(w, i);
        else if (!pp_has_stage(a.op))
            give_up_used(w);
        pp_schedule_add(w->to, w->row, a);
        if (uses)
            w->use[a.stage] = w->next[i];
    }
    give_up_used(w);
}

void pp_schedule_drop_sharding(struct pp_schedule *s)
{
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_row *row = &s->rows[r];
        size_t n = 0;
        for (size_t i = 0; i < row->n; i++)
            if (row->actions[i].op != PP_UNSHARD &&
                row->actions[i].op != PP_RESHARD)
                row->actions[n++] = row->actions[i];
        row->n = n;
    }
}

static size_t longest_row(const struct pp_schedule *s)
{
    size_t most = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        most = s->rows[r].n > most ? s->rows[r].n : most;
    return most;
}

void pp_lower_sharding(struct pp_schedule *s)
{
    const struct pp_graph *g = s->graph;
    struct pp_schedule woven = {0};
    if (!g->resident || pp_schedule_count(s, 1u << PP_UNSHARD) > 0)
        return;
    struct weights_of_row w = {
        .to = &woven,
        .next = pp_calloc(longest_row(s) + 1, sizeof *w.next),
        .use = pp_calloc((size_t)g->n_stages, sizeof *w.use),
        .whole = pp_calloc((size_t)g->n_stages, sizeof *w.whole)};
    pp_schedule_init(&woven, g, s->kind, s->n_microbatches);
    woven.channel_depth = s->channel_depth;
    for (w.row = 0; w.row < g->n_rows; w.row++) {
        w.from = &s->rows[w.row];
        add_row(&w);
    }
    struct pp_schedule old = *s;
    *s = woven;
    woven = old;
    pp_schedule_finish(&woven);
    free(w.next);
    free(w.use);
    free(w.whole);
}
