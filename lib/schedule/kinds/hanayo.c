/* SPDX-License-Identifier: MIT */
/* hanayo - waves: the stages pass the ranks back and forth several times.
 *
 * A microbatch passes the ranks as a wave, down through one chunk and up
 * through the next, so that it turns without a message. As in interleaved, a
 * group of p or more microbatches passes the first wave, then the next; the
 * backward takes the waves from the last. The placement is that of Liu et al.,
 * "Hanayo: Harnessing Wave-like Pipeline Parallelism", SC 2023. The order is
 * our own and has two parts:
 *
 * 1. A plan that repeats. A forward takes one unit of time and a backward two.
 * A rank's time is divided into cells of three units, a forward and then a
 * backward; the cells of each rank are shifted by one more unit. One microbatch
 * takes the earliest cells through a wave and back, with even numbers for one
 * of a rank's two chunks and odd numbers for the other. The next microbatch
 * does the same six units later, and so on through groups and waves, so nothing
 * collides.
 *
 * 2. A run that closes the gaps. The plan has gaps at its ends and gives the
 * number of microbatches that a rank keeps alive. Whenever a rank is free, it
 * runs the first action of its plan whose inputs are there and that leaves room
 * for the rest of its plan. It looks no further than the first place where the
 * plan itself uses all slots. The rest of the plan can always run as it stands,
 * so a rank never gets stuck. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "schedule/kinds/kinds.h"

enum { FORWARD_UNITS = 1, BACKWARD_UNITS = 2, CELL_UNITS = 3 };
enum { WAVE_UNITS = 2 * CELL_UNITS }; /* steps between two microbatches */

struct work {
    int time; /* start in the plan */
    int stage, microbatch;
    bool backward, done;
};

struct hanayo_row {
    struct work *work; /* sorted by time */
    int first;         /* all work before it is done */
    int alive, free_at;
};

struct waves {
    struct pp_schedule *s;
    int p, m, n_waves;
    int *start[2]; /* forward and backward starts in one wave, by stage */
    int n_work;    /* per rank */
    struct hanayo_row *rows;
    int *end[2]; /* end by stage and microbatch; 0 if not done */
    int limit;   /* slots per rank */
    /* The rows to try now and in the next two units, with repeats. */
    int *wake[3], n_wake[3];
};

static int waves_init(struct waves *z, struct pp_arena *a, struct pp_err *err)
{
    const struct pp_graph *g = z->s->graph;
    size_t work = 2 * (size_t)g->n_stages / (size_t)z->p * (size_t)z->m;
    size_t cells = (size_t)g->n_stages * (size_t)z->m;
    if (cells > INT32_MAX / (4 * WAVE_UNITS))
        return pp_fail(err, PP_EXIT_INPUT, "%d microbatches are too many",
                       z->m);
    z->n_work = (int)work;
    z->rows = pp_arena_alloc(a, (size_t)z->p, sizeof *z->rows);
    for (int r = 0; r < z->p; r++)
        z->rows[r].work = pp_arena_alloc(a, work, sizeof *z->rows[r].work);
    for (int i = 0; i < 2; i++) {
        z->start[i] = pp_arena_alloc(a, 2 * (size_t)z->p, sizeof *z->start[i]);
        z->end[i] = pp_arena_alloc(a, cells, sizeof *z->end[i]);
    }
    /* A rank ends one action at a time, which wakes three ranks. */
    for (int i = 0; i < 3; i++)
        z->wake[i] = pp_arena_alloc(a, 3 * (size_t)z->p, sizeof *z->wake[i]);
    return 0;
}

/* --- the plan --- */

/* Returns the number of the row's cell that starts at time. */
static int cell_of(int row, int time, bool backward)
{
    int shift = (row + (backward ? FORWARD_UNITS : 0)) % CELL_UNITS;
    return (time - shift) / CELL_UNITS;
}

/* Returns when stage can start in one wave, given its input at time `from`. The
 * row's other stage uses cells of the other parity. */
static int place_stage(const struct waves *z, int stage, bool backward,
                       int from)
{
    int row = pp_placement_row(PP_PLACEMENT_V, z->p, stage);
    int other = 2 * z->p - 1 - stage;
    bool second = (other < stage) != backward;
    int shift = (row + (backward ? FORWARD_UNITS : 0)) % CELL_UNITS;
    int time = from + (CELL_UNITS + shift - from % CELL_UNITS) % CELL_UNITS;
    if (second && (cell_of(row, time, backward) -
                   cell_of(row, z->start[backward][other], backward)) %
                          2 ==
                      0)
        time += CELL_UNITS;
    return time;
}

static void plan_wave(struct waves *z)
{
    int last = 2 * z->p - 1, time = 0;
    for (int stage = 0; stage <= last; stage++) {
        time = place_stage(z, stage, false, time);
        z->start[0][stage] = time;
        time += FORWARD_UNITS;
    }
    for (int stage = last; stage >= 0; stage--) {
        time = place_stage(z, stage, true, time);
        z->start[1][stage] = time;
        time += BACKWARD_UNITS;
    }
}

static int compare_work(const void *pa, const void *pb)
{
    const struct work *a = pa, *b = pb;
    return (a->time > b->time) - (a->time < b->time);
}

/* Plans microbatch i of a group whose first wave starts at step `from`. A wave
 * takes `stride` steps for this group, and at most `most` for any group. */
static void plan_microbatch(struct waves *z, int *n, int microbatch, int from,
                            int i, int stride, int most)
{
    int c = 2 * z->p;
    for (int stage = 0; stage < z->s->graph->n_stages; stage++) {
        int wave = stage / c, mirror = z->n_waves - 1 - wave;
        int row = z->s->graph->stages[stage].row;
        int forward = from + wave * stride + i;
        int backward = from + mirror * stride + i + (z->n_waves - 1) * most;
        z->rows[row].work[n[row]++] =
            (struct work){.time = z->start[0][stage % c] + WAVE_UNITS * forward,
                          .stage = stage,
                          .microbatch = microbatch};
        z->rows[row].work[n[row]++] = (struct work){
            .time = z->start[1][stage % c] + WAVE_UNITS * backward,
            .stage = stage,
            .microbatch = microbatch,
            .backward = true};
    }
}

/* Plans as many groups of at least p microbatches as possible, of sizes as
 * equal as possible. */
static void plan_groups(struct waves *z)
{
    int rounds = z->m / z->p > 1 ? z->m / z->p : 1;
    int most = (z->m + rounds - 1) / rounds, from = 0, k = 0;
    int *n = pp_calloc((size_t)z->p, sizeof *n);
    most = most > z->p ? most : z->p;
    for (int round = 0; round < rounds; round++) {
        int size = z->m / rounds + (round < z->m % rounds);
        int stride = size > z->p ? size : z->p;
        for (int i = 0; i < size; i++)
            plan_microbatch(z, n, k++, from, i, stride, most);
        from += stride * z->n_waves;
    }
    free(n);
    for (int r = 0; r < z->p; r++)
        qsort(z->rows[r].work, (size_t)z->n_work, sizeof *z->rows[r].work,
              compare_work);
}

/* Returns the most microbatches that a rank keeps alive under the plan as it
 * stands. */
static int plan_limit(const struct waves *z)
{
    int limit = 0;
    for (int r = 0; r < z->p; r++)
        for (int i = 0, alive = 0; i < z->n_work; i++) {
            alive += z->rows[r].work[i].backward ? -1 : 1;
            limit = alive > limit ? alive : limit;
        }
    return limit;
}

/* --- the run --- */

static int *end_of_work(const struct waves *z, bool backward, int stage, int m)
{
    return &z->end[backward][(size_t)stage * (size_t)z->m + (size_t)m];
}

/* Returns true if the input of w is there. */
static bool is_work_ready(const struct waves *z, const struct work *w, int now)
{
    int last = z->s->graph->n_stages - 1, end;
    if (!w->backward && w->stage == 0)
        return true;
    if (w->backward && w->stage == last)
        end = *end_of_work(z, false, last, w->microbatch);
    else
        end = *end_of_work(z, w->backward, w->stage + (w->backward ? 1 : -1),
                           w->microbatch);
    return end > 0 && end <= now;
}

/* Returns the work that rank l can start, or NULL. Work that starts early stays
 * alive until its place in the plan, so it must not pass a place that uses all
 * slots. */
static struct work *choose_work(const struct waves *z, struct hanayo_row *l,
                                int now)
{
    while (l->first < z->n_work && l->work[l->first].done)
        l->first++;
    int alive = l->alive, most = alive;
    for (int i = l->first; i < z->n_work; i++) {
        struct work *w = &l->work[i];
        if (w->done)
            continue;
        if ((w->backward || most < z->limit) && is_work_ready(z, w, now))
            return w;
        if (most == z->limit)
            return NULL;
        alive += w->backward ? -1 : 1;
        most = alive > most ? alive : most;
    }
    return NULL;
}

static void wake_neighbours(struct waves *z, int row, int time)
{
    int *n = &z->n_wake[time % 3];
    for (int r = row - 1; r <= row + 1; r++)
        if (r >= 0 && r < z->p)
            z->wake[time % 3][(*n)++] = r;
}

static void begin_work(struct waves *z, int row, int now)
{
    struct hanayo_row *l = &z->rows[row];
    struct work *w = l->free_at <= now ? choose_work(z, l, now) : NULL;
    if (!w)
        return;
    w->done = true;
    l->alive += w->backward ? -1 : 1;
    l->free_at = now + (w->backward ? BACKWARD_UNITS : FORWARD_UNITS);
    *end_of_work(z, w->backward, w->stage, w->microbatch) = l->free_at;
    wake_neighbours(z, row, l->free_at);
    pp_emit(z->s, w->backward ? PP_B : PP_F, w->stage, w->microbatch);
}

static void run_waves(struct waves *z)
{
    for (int r = 0; r < z->p; r++)
        z->wake[0][z->n_wake[0]++] = r;
    for (int now = 0; z->n_wake[0] + z->n_wake[1] + z->n_wake[2] > 0; now++) {
        int n = z->n_wake[now % 3];
        for (int i = 0; i < n; i++)
            begin_work(z, z->wake[now % 3][i], now);
        z->n_wake[now % 3] = 0;
    }
}

static int emit_hanayo(struct pp_schedule *s, const struct pp_kind_options *o,
                       struct pp_err *err)
{
    int p = s->graph->n_rows, c = s->graph->n_stages / p;
    struct waves z = {.s = s, .p = p, .m = o->n_microbatches, .n_waves = c / 2};
    struct pp_arena arena = {0};
    if (!pp_graph_is(s->graph, PP_PLACEMENT_V) || c % 2 != 0 ||
        c * p != s->graph->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "hanayo needs a chain of an even number of stages on "
                       "each rank, placed in a V: use %d chunks per rank and "
                       "placement v",
                       c + (c % 2 ? 1 : 2));
    int rc = waves_init(&z, &arena, err);
    if (!rc) {
        plan_wave(&z);
        plan_groups(&z);
    }
    if (!rc) {
        z.limit = plan_limit(&z);
        run_waves(&z);
    }
    pp_arena_finish(&arena);
    return rc;
}

const struct pp_kind pp_kind_hanayo = {
    .name = "hanayo",
    .summary = "waves down and up; the bubble shrinks by c, turns are free",
    .constraint = "placement v, an even number of chunks",
    .paper = "Liu et al., Hanayo: Wave-like Pipeline Parallelism, SC 2023",
    .emit = emit_hanayo,
    .chain = true,
    .n_chunks = 4,
    .v = true,
};
