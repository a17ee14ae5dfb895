/* SPDX-License-Identifier: MIT */
/* hanayo - waves: the stages go there and back several times.
 *
 * A microbatch passes the ranks as a wave, down through one chunk and up
 * through the next, so that it turns without a message. As in interleaved, a
 * group of p microbatches or more passes the first wave, then the next;
 * backward takes the waves from the last. Liu et al., "Hanayo: Harnessing
 * Wave-like Pipeline Parallelism", SC 2023, gives the placement; the order is
 * ours:
 *
 * 1. A plan that repeats. A forward takes one unit of time and a backward two.
 *    Rank r's time is cells of three units, a forward and then a backward, each
 *    rank's shifted by one more unit. One microbatch takes the earliest cells
 *    through a wave and back, of even number on a rank for one of the two
 *    chunks and of odd number for the other; the next one does the same six
 *    units later, and so on through groups and waves. Hence nothing collides.
 * 2. The plan has gaps at its ends and says how much a rank keeps alive. Every
 *    rank now runs, whenever it is free, the first action of its plan whose
 *    inputs are there and that leaves the rest of its plan room; it looks no
 *    further than where the plan itself is full. The rest of the plan could
 *    always be run as it stands, so this never gets stuck. */
#include <stdlib.h>

#include "base/num.h"
#include "schedule/kinds/kinds.h"

enum { FORWARD_UNITS = 1, BACKWARD_UNITS = 2, CELL_UNITS = 3 };
enum { WAVE_UNITS = 2 * CELL_UNITS }; /* from one microbatch to the next */

struct work {
    int time; /* in the plan */
    int stage, microbatch;
    bool backward, done;
};

struct hanayo_row {
    struct work *work; /* by time */
    int first;         /* before it all are done */
    int alive, free_at;
};

struct waves {
    struct pp_schedule *s;
    int p, m, n_waves;
    int *start[2]; /* in one wave, forward and backward: by stage */
    int n_work;    /* of a rank */
    struct hanayo_row *rows;
    int *end[2]; /* by stage and microbatch: when it was done; 0: not yet */
    int limit;   /* slots of a rank */
    /* Ranks to look at now and in the next two units, twice or more where it
     * so happens. */
    int *wake[3], n_wake[3];
};

static int waves_init(struct waves *z, struct pp_arena *a, struct pp_err *err)
{
    const struct pp_graph *g = z->s->graph;
    size_t work = 2 * (size_t)g->n_stages / (size_t)z->p, cells;
    if (pp_mul(work, (size_t)z->m, &work, err) ||
        pp_mul((size_t)g->n_stages, (size_t)z->m, &cells, err))
        return -1;
    if (cells > INT32_MAX / (4 * WAVE_UNITS))
        return pp_fail(err, PP_EXIT_INPUT, "-m '%d' is too large", z->m);
    z->n_work = (int)work;
    bool ok = (z->rows = pp_arena_alloc(a, (size_t)z->p, sizeof *z->rows));
    for (int r = 0; ok && r < z->p; r++)
        ok = (z->rows[r].work =
                  pp_arena_alloc(a, work, sizeof *z->rows[r].work));
    for (int i = 0; ok && i < 2; i++)
        ok = (z->start[i] =
                  pp_arena_alloc(a, 2 * (size_t)z->p, sizeof *z->start[i])) &&
             (z->end[i] = pp_arena_alloc(a, cells, sizeof *z->end[i]));
    /* A rank ends one action at a time and wakes three ranks by it. */
    for (int i = 0; ok && i < 3; i++)
        ok = (z->wake[i] =
                  pp_arena_alloc(a, 3 * (size_t)z->p, sizeof *z->wake[i]));
    return ok ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

/* --- the plan --- */

/* The number of the cell of three units that begins in time's, counted on the
 * rank. */
static int cell_of(int row, int time, bool backward)
{
    int shift = (row + (backward ? FORWARD_UNITS : 0)) % CELL_UNITS;
    return (time - shift) / CELL_UNITS;
}

/* When stage can begin in one wave, its input being there at `from`. The rank's
 * other stage keeps to cells of the other parity. */
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

/* Microbatch i of a group of which the first wave begins at step `from`; a wave
 * takes a group `stride` steps, and no group more than `most`. */
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

/* As many groups of at least p as there can be, of sizes as equal as can be. */
static int plan_groups(struct waves *z, struct pp_err *err)
{
    int rounds = z->m / z->p > 1 ? z->m / z->p : 1;
    int most = (z->m + rounds - 1) / rounds, from = 0, k = 0;
    int *n = calloc((size_t)z->p, sizeof *n);
    if (!n)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
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
    return 0;
}

/* The most that any rank keeps when it runs its plan as it stands. */
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

/* Whether what w takes in is there. */
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

/* The work that rank l can begin, or NULL. What is drawn forward adds to what
 * is alive until its place in the plan, so that it must not pass a place where
 * that is as much as can be. */
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

static int begin_work(struct waves *z, int row, int now, struct pp_err *err)
{
    struct hanayo_row *l = &z->rows[row];
    struct work *w = l->free_at <= now ? choose_work(z, l, now) : NULL;
    if (!w)
        return 0;
    w->done = true;
    l->alive += w->backward ? -1 : 1;
    l->free_at = now + (w->backward ? BACKWARD_UNITS : FORWARD_UNITS);
    *end_of_work(z, w->backward, w->stage, w->microbatch) = l->free_at;
    wake_neighbours(z, row, l->free_at);
    return pp_emit(z->s, w->backward ? PP_B : PP_F, w->stage, w->microbatch,
                   err);
}

static int run_waves(struct waves *z, struct pp_err *err)
{
    for (int r = 0; r < z->p; r++)
        z->wake[0][z->n_wake[0]++] = r;
    for (int now = 0; z->n_wake[0] + z->n_wake[1] + z->n_wake[2] > 0; now++) {
        int n = z->n_wake[now % 3];
        for (int i = 0; i < n; i++)
            if (begin_work(z, z->wake[now % 3][i], now, err))
                return -1;
        z->n_wake[now % 3] = 0;
    }
    return 0;
}

static int emit_hanayo(struct pp_schedule *s, const struct pp_kind_options *o,
                       struct pp_err *err)
{
    int p = s->graph->n_rows, c = s->graph->n_stages / p;
    struct waves z = {.s = s, .p = p, .m = o->n_microbatches, .n_waves = c / 2};
    struct pp_arena arena = {0};
    if (pp_chain_only(s, err))
        return -1;
    if (!pp_graph_is(s->graph, PP_PLACEMENT_V) || c % 2 != 0 ||
        c * p != s->graph->n_stages)
        return pp_fail(err, PP_EXIT_INPUT,
                       "hanayo needs a chain of an even number of stages on "
                       "each rank, there and back: split with 'ppsplit -p %d "
                       "-c %d --placement v'",
                       p, c + (c % 2 ? 1 : 2));
    int rc = waves_init(&z, &arena, err);
    if (!rc) {
        plan_wave(&z);
        rc = plan_groups(&z, err);
    }
    if (!rc) {
        z.limit = plan_limit(&z);
        rc = run_waves(&z, err);
    }
    pp_arena_finish(&arena);
    return rc;
}

const struct pp_kind pp_kind_hanayo = {
    .name = "hanayo",
    .summary = "waves there and back; the bubble shrinks by c, turns are free",
    .constraint = "V placement of an even number of chunks (ppsplit -c 4 "
                  "--placement v), any -m",
    .paper = "Liu et al., Hanayo: Wave-like Pipeline Parallelism, SC 2023",
    .emit = emit_hanayo,
    .n_chunks = 4,
    .v = true,
};
