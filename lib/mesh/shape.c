/* SPDX-License-Identifier: MIT */
#include "mesh/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A schedule of more actions is not emitted: its work alone bounds it. */
enum { MAX_CELLS = 1 << 17 };

/* --- one shape --- */

/* The times of a unit of work, such as its paths are chosen for. */
static const double work_times[PP_N_TIMES] = {
    [PP_TIME_F] = 1, [PP_TIME_I] = 1.1, [PP_TIME_W] = 0.9, [PP_TIME_B] = 2};

static double weight_of(const double counts[PP_N_TIMES])
{
    double sum = 0;
    for (int t = 0; t < PP_N_TIMES; t++)
        sum += counts[t] * work_times[t];
    return sum;
}

/* Paths are taken in rounds: the first is for an even split, and each other one
 * for a split that does best against the paths so far. A path of a row leaves
 * it for such parts of its work. */
enum { N_ROUNDS = 2, N_PLAYS = 256 };
static const double parts[] = {0, 0.1, 0.25, 0.5};
enum { N_PARTS = sizeof parts / sizeof *parts };

struct pool {
    struct pp_mesh_shape *shape;
    struct pp_times counts, times;
    size_t n, most;
    double (*path)[PP_N_TIMES]; /* (n, stages) */
    double *weight;             /* (stages, most): weight_of path */
    double *length;             /* per path */
    double *messages;           /* per path */
    double *played;             /* per path */
    double *share, *sum, *mean; /* per stage: a split, and sums over plays */
};

static void add_path(void *ctx)
{
    struct pool *p = ctx;
    const struct pp_mesh_shape *x = p->shape;
    size_t n = (size_t)x->n_stages;
    if (p->n == p->most)
        return;
    for (size_t s = 0; s < n; s++) {
        memcpy(p->path[p->n * n + s], p->counts.slice[s], sizeof *p->path);
        p->weight[s * p->most + p->n] = weight_of(p->counts.slice[s]);
        if (s + 1 < n && x->row[s] != x->row[s + 1])
            p->messages[p->n] += p->counts.message[s];
    }
    p->n++;
}

static void init_pool(struct pool *p, struct pp_arena *a)
{
    size_t n = (size_t)p->shape->n_stages;
    p->most = (size_t)p->shape->n_ranks * N_PARTS * N_ROUNDS;
    p->counts.slice = pp_arena_alloc(a, n, sizeof *p->counts.slice);
    p->counts.message = pp_arena_alloc(a, n, sizeof *p->counts.message);
    p->times.slice = pp_arena_alloc(a, n, sizeof *p->times.slice);
    p->times.message = pp_arena_alloc(a, n, sizeof *p->times.message);
    p->path = pp_arena_alloc(a, p->most * n, sizeof *p->path);
    p->weight = pp_arena_alloc(a, p->most * n, sizeof *p->weight);
    p->length = pp_arena_alloc(a, p->most, sizeof *p->length);
    p->messages = pp_arena_alloc(a, p->most, sizeof *p->messages);
    p->played = pp_arena_alloc(a, p->most, sizeof *p->played);
    p->share = pp_arena_alloc(a, n, sizeof *p->share);
    p->sum = pp_arena_alloc(a, n, sizeof *p->sum);
    p->mean = pp_arena_alloc(a, n, sizeof *p->mean);
}

/* Keeps the mean of the paths played so far, whose least weight of a stage is
 * the largest yet. */
static void keep_mean(const struct pool *p, int plays)
{
    struct pp_mesh_shape *x = p->shape;
    size_t n = (size_t)x->n_stages;
    memset(x->weight, 0, n * sizeof *x->weight);
    x->messages = 0;
    for (size_t k = 0; k < p->n; k++) {
        double part = p->played[k] / plays;
        x->messages += part * p->messages[k];
        for (size_t s = 0; part > 0 && s < n; s++)
            for (int t = 0; t < PP_N_TIMES; t++)
                x->weight[s][t] += part * p->path[k * n + s][t];
    }
}

/* Finds a mean of paths that is long for every split, and in share a split that
 * is short for all of them: the two sides of a game that multiplicative weights
 * solve (Freund and Schapire, "Adaptive game playing using multiplicative
 * weights", 1999). */
static void play(struct pool *p)
{
    size_t n = (size_t)p->shape->n_stages;
    double best = 0;
    memset(p->played, 0, p->n * sizeof *p->played);
    memset(p->sum, 0, n * sizeof *p->sum);
    memset(p->mean, 0, n * sizeof *p->mean);
    for (size_t s = 0; s < n; s++)
        p->share[s] = 1 / (double)n;
    for (int i = 1; i <= N_PLAYS; i++) {
        size_t longest = 0;
        double least = INFINITY, largest = 0, all = 0;
        memset(p->length, 0, p->n * sizeof *p->length);
        for (size_t s = 0; s < n; s++) {
            const double *weight = &p->weight[s * p->most];
            double share = p->share[s];
            for (size_t k = 0; k < p->n; k++)
                p->length[k] += share * weight[k];
        }
        for (size_t k = 1; k < p->n; k++)
            longest = p->length[k] > p->length[longest] ? k : longest;
        p->played[longest]++;
        for (size_t s = 0; s < n; s++) {
            double weight = p->weight[s * p->most + longest];
            p->mean[s] += p->share[s] / N_PLAYS;
            p->sum[s] += weight;
            least = fmin(least, p->sum[s]);
            largest = fmax(largest, weight);
        }
        if (least / i > best && (i == N_PLAYS || i % 16 == 0)) {
            best = least / i;
            keep_mean(p, i);
        }
        double rate = sqrt(8 * log((double)n + 1) / i) / largest;
        for (size_t s = 0; s < n; s++) {
            p->share[s] = exp(rate * (least - p->sum[s]));
            all += p->share[s];
        }
        for (size_t s = 0; s < n; s++)
            p->share[s] /= all;
    }
    memcpy(p->share, p->mean, n * sizeof *p->share);
}

static void add_paths(struct pp_mesh_shape *x, struct pp_arena *a,
                      struct pp_makespan *m)
{
    struct pool p = {.shape = x};
    size_t n = (size_t)x->n_stages;
    init_pool(&p, a);
    for (size_t s = 0; s < n; s++)
        p.share[s] = 1 / (double)n;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (size_t s = 0; s < n; s++)
            for (int t = 0; t < PP_N_TIMES; t++)
                p.times.slice[s][t] = (double)n * p.share[s] * work_times[t];
        (void)pp_makespan(m, &p.times);
        for (int k = 0; k < N_PARTS; k++)
            pp_makespan_row_paths(m, &p.times, &p.counts, parts[k], add_path,
                                  &p);
        play(&p);
    }
}

/* Counts what an action begins and ends to keep. */
static void keep(double kept[PP_N_SAVED_BLOCKS], enum pp_op op)
{
    if (op == PP_F) {
        kept[PP_SAVED_ACT_I]++;
        kept[PP_SAVED_ACT_W]++;
    } else if (op == PP_I) {
        kept[PP_SAVED_ACT_I]--;
        kept[PP_SAVED_GRAD_W]++;
    } else if (op == PP_W) {
        kept[PP_SAVED_ACT_W]--;
        kept[PP_SAVED_GRAD_W]--;
    } else if (op == PP_B) {
        kept[PP_SAVED_ACT_I]--;
        kept[PP_SAVED_ACT_W]--;
    }
}

/* Finds what each row keeps after the forward that leaves it with most blocks.
 */
static void find_kept(struct pp_mesh_shape *x, const struct pp_schedule *s,
                      double (*now)[PP_N_SAVED_BLOCKS])
{
    for (int r = 0; r < x->n_ranks; r++) {
        double sum = 0, most = 0;
        for (int k = 0; k < x->n_stages; k++)
            if (x->row[k] == r)
                memset(now[k], 0, sizeof *now);
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_action *a = &s->rows[r].actions[i];
            keep(now[a->stage], (enum pp_op)a->op);
            sum += a->op == PP_F   ? 2
                   : a->op == PP_B ? -2
                   : a->op == PP_I ? -1
                   : a->op == PP_W ? -1
                                   : 0;
            if (a->op != PP_F || sum <= most)
                continue;
            most = sum;
            for (int k = 0; k < x->n_stages; k++)
                if (x->row[k] == r)
                    memcpy(x->kept[k], now[k], sizeof *now);
        }
    }
}

void pp_mesh_shape_init(struct pp_mesh_shape *x, struct pp_arena *a)
{
    const struct pp_kind_options o = {.n_microbatches = x->n_microbatches};
    size_t n = (size_t)x->n_ranks * (size_t)x->n_chunks;
    struct pp_err refusal = {0};
    struct pp_arena scratch = {0};
    struct pp_graph g;
    struct pp_schedule s = {0};
    struct pp_makespan m = {0};
    x->n_stages = (int)n;
    x->weight = pp_arena_alloc(a, n, sizeof *x->weight);
    x->kept = pp_arena_alloc(a, n, sizeof *x->kept);
    x->row = pp_arena_alloc(a, n, sizeof *x->row);
    x->runs = n * (size_t)x->n_microbatches <= MAX_CELLS &&
              !pp_graph_chain(&scratch, x->n_ranks, x->n_chunks, x->placement,
                              &g, &refusal);
    if (x->runs) {
        pp_schedule_init(&s, &g, x->kind->name, x->n_microbatches);
        x->runs = !pp_kind_emit(x->kind, &s, &o, &refusal) &&
                  !pp_makespan_init(&m, &s, &refusal);
    }
    if (x->runs) {
        for (int k = 0; k < x->n_stages; k++)
            x->row[k] = g.stages[k].row;
        find_kept(x, &s, pp_arena_alloc(&scratch, n, sizeof *x->kept));
        add_paths(x, &scratch, &m);
    }
    pp_makespan_finish(&m);
    pp_schedule_finish(&s);
    pp_arena_finish(&scratch);
}

/* --- memory and work --- */

static double work_of(const struct pp_mesh_unit *u, int mode, int m)
{
    const double *t = u->time[mode];
    double halves = t[PP_TIME_I] + t[PP_TIME_W];
    return m * (t[PP_TIME_F] + fmin(t[PP_TIME_B], halves)) + u->step;
}

static double bytes_of(const struct pp_mesh_unit *u, int mode,
                       const double kept[PP_N_SAVED_BLOCKS])
{
    double bytes = u->state, any = 0;
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++) {
        bytes += kept[k] * u->act[mode][k];
        any += kept[k];
    }
    return bytes + (any > 0 ? u->whole : 0);
}

/* How a rank may hold a layer of the main class: seconds of a step, and bytes.
 */
struct way {
    double time, bytes;
};

/* A rank, or several alike, less what it holds for certain. */
struct rank {
    int n;
    double seconds, bytes;
    bool mixes; /* its stages may have different modes */
    struct way ways[PP_N_RECOMPUTES];
    int n_ways;
};

/* The division of the units over ranks. */
struct layer_division {
    const struct pp_mesh_bound *b;
    struct rank *ranks;
    int n_ranks, m, first_mode, last_mode;
    bool ends;     /* the first and the last unit are held for certain */
    bool whole;    /* ranks hold whole layers */
    double others; /* layers of the main class that the other units count as */
    double workspace[PP_N_RECOMPUTES]; /* by way: bytes of a rank with layers */
};

/* Returns how many layers a rank can hold in one mode. */
static double room_of(const struct layer_division *d, const struct rank *r,
                      int way, double seconds)
{
    double bytes = r->bytes - d->workspace[way];
    return fmin(seconds / r->ways[way].time, bytes / r->ways[way].bytes);
}

/* Returns the most layers, of which some are held in way a and others in b. */
static double mixed_room(const struct layer_division *d, const struct rank *r,
                         int a, int b, double seconds)
{
    const struct way *x = &r->ways[a], *y = &r->ways[b];
    double det = x->time * y->bytes - y->time * x->bytes;
    double bytes = r->bytes - fmin(d->workspace[a], d->workspace[b]);
    double n = (seconds * y->bytes - bytes * y->time) / det;
    double k = (bytes * x->time - seconds * x->bytes) / det;
    return fabs(det) > 0 && n >= 0 && k >= 0 ? n + k : 0;
}

/* Returns true if the ranks cannot hold the layers in a step. */
static bool is_short(const struct layer_division *d, double step)
{
    double all = 0;
    for (int i = 0; i < d->n_ranks; i++) {
        const struct rank *r = &d->ranks[i];
        double seconds = step - r->seconds, most = 0;
        if (seconds < 0 || r->bytes < 0)
            return true;
        for (int a = 0; a < r->n_ways; a++) {
            most = fmax(most, room_of(d, r, a, seconds));
            for (int k = 0; r->mixes && k < a; k++)
                most = fmax(most, mixed_room(d, r, a, k, seconds));
        }
        all += r->n * (d->whole ? floor(most * (1 + 1e-9)) : most);
    }
    const struct pp_mesh_class *c = &d->b->classes->all[d->b->classes->main];
    return all < ((double)c->count + d->others) * (1 - 1e-9);
}

/* Returns a step below which the layers do not fit on the ranks, from low on;
 * infinite if they never do. */
static double least_step(const struct layer_division *d, double low)
{
    double high = low;
    for (int i = 0; is_short(d, high); i++) {
        if (i == 10)
            return INFINITY;
        low = high;
        high *= 1.5;
    }
    while (high > low * 1.0005) {
        double middle = (low + high) / 2;
        if (is_short(d, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Adds how a rank holds layers whose blocks are kept so. */
static void add_ways(const struct layer_division *d, struct rank *r,
                     const double kept[PP_N_SAVED_BLOCKS])
{
    const struct pp_mesh_unit *u = &d->b->units[d->b->classes->main];
    r->n_ways = 0;
    for (int mode = d->first_mode; mode <= d->last_mode; mode++)
        r->ways[r->n_ways++] =
            (struct way){work_of(u, mode, d->m), bytes_of(u, mode, kept)};
}

static void set_workspace(struct layer_division *d)
{
    const struct pp_mesh_unit *u = &d->b->units[d->b->classes->main];
    for (int mode = d->first_mode; mode <= d->last_mode; mode++)
        d->workspace[mode - d->first_mode] = u->workspace[mode];
}

/* Takes a unit that is on a rank for certain. */
static void take(const struct layer_division *d, struct rank *r, size_t class,
                 const double kept[PP_N_SAVED_BLOCKS])
{
    const struct pp_mesh_unit *u = &d->b->units[class];
    r->seconds += work_of(u, PP_RECOMPUTE_NONE, d->m);
    r->bytes -= bytes_of(u, PP_RECOMPUTE_NONE, kept);
}

/* Sums over all units in a mode. */
struct class_sums {
    double work, step, update;
};

static struct class_sums sums_of(const struct pp_mesh_bound *b, int mode, int m)
{
    const struct pp_mesh_classes *c = b->classes;
    struct class_sums s = {0, 0, 0};
    for (size_t k = 0; k < c->n; k++) {
        const struct pp_mesh_unit *u = &b->units[k];
        double n = (double)c->all[k].count + (k == c->first) + (k == c->last);
        s.work += n * work_of(u, mode, m);
        s.step += n * u->step;
        s.update += n * u->update;
    }
    return s;
}

/* Counts the other layers as so many of the main class: each as what it needs
 * least of, time or memory, in comparison. A rank may have them alone. */
static void add_others(struct layer_division *d)
{
    static const double none[PP_N_SAVED_BLOCKS] = {0};
    const struct pp_mesh_classes *c = d->b->classes;
    const struct pp_mesh_unit *u = &d->b->units[c->main];
    double n = 0;
    for (size_t k = 0; k < c->n; k++) {
        const struct pp_mesh_unit *x = &d->b->units[k];
        double least = 1;
        if (k == c->main || !c->all[k].layer)
            continue;
        for (int mode = d->first_mode; mode <= d->last_mode; mode++) {
            least =
                fmin(least, work_of(x, mode, d->m) / work_of(u, mode, d->m));
            least =
                fmin(least, bytes_of(x, mode, none) / bytes_of(u, mode, none));
            d->workspace[mode - d->first_mode] =
                fmin(d->workspace[mode - d->first_mode], x->workspace[mode]);
            for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
                if (u->act[mode][b] > 0)
                    least = fmin(least, x->act[mode][b] / u->act[mode][b]);
        }
        n += least * (double)c->all[k].count;
    }
    d->others = n;
}

struct pp_mesh_least pp_mesh_least(int n_ranks, int n_microbatches,
                                   const struct pp_mesh_bound *b)
{
    static const double one[PP_N_SAVED_BLOCKS] = {
        [PP_SAVED_ACT_I] = 1, [PP_SAVED_ACT_W] = 1};
    const struct class_sums s = sums_of(b, PP_RECOMPUTE_NONE, n_microbatches);
    struct rank all = {.n = n_ranks, .bytes = b->limit, .mixes = true};
    struct layer_division d = {.b = b,
                               .ranks = &all,
                               .n_ranks = 1,
                               .m = n_microbatches,
                               .last_mode = PP_N_RECOMPUTES - 1};
    add_ways(&d, &all, one);
    set_workspace(&d);
    add_others(&d);
    double least =
        least_step(&d, s.work / n_ranks * (1 - 1e-9)) + s.update / n_ranks;
    return (struct pp_mesh_least){least, least};
}

/* --- a shape on a mesh --- */

/* Returns the length that the paths have at least in the mean. */
static double path_of(const struct pp_mesh_shape *x,
                      const struct pp_mesh_bound *b, int mode)
{
    const struct pp_mesh_classes *c = b->classes;
    double sum = x->messages * b->message;
    for (size_t k = 0; k < c->n; k++) {
        const double *t = b->units[k].time[mode];
        double least = INFINITY;
        for (int s = 0; s < x->n_stages; s++) {
            double length = 0;
            for (int i = 0; i < PP_N_TIMES; i++)
                length += x->weight[s][i] * t[i];
            least = fmin(least, length);
            sum += s == 0 && k == c->first ? length : 0;
            sum += s == x->n_stages - 1 && k == c->last ? length : 0;
        }
        sum += (double)c->all[k].count * least;
    }
    return sum;
}

/* Sets what a rank keeps: of the stage that keeps least, or in the mean. */
static void find_rank_kept(const struct pp_mesh_shape *x, int rank, bool mean,
                           double kept[PP_N_SAVED_BLOCKS])
{
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++) {
        kept[k] = mean ? 0 : INFINITY;
        for (int s = 0; s < x->n_stages; s++)
            if (x->row[s] == rank)
                kept[k] = mean ? kept[k] + x->kept[s][k] / x->n_chunks
                               : fmin(kept[k], x->kept[s][k]);
    }
}

/* Returns the least step in which ranks hold all units. */
static double held_step(const struct pp_mesh_shape *x, struct layer_division *d,
                        bool mean, double low)
{
    const struct pp_mesh_classes *c = d->b->classes;
    int last = x->n_stages - 1;
    for (int r = 0; r < x->n_ranks; r++) {
        double kept[PP_N_SAVED_BLOCKS];
        d->ranks[r] = (struct rank){
            .n = 1, .bytes = d->b->limit, .mixes = x->n_chunks > 1 || mean};
        find_rank_kept(x, r, mean, kept);
        add_ways(d, &d->ranks[r], kept);
    }
    take(d, &d->ranks[x->row[0]], c->first, x->kept[0]);
    take(d, &d->ranks[x->row[last]], c->last, x->kept[last]);
    d->others = 0;
    d->whole = true;
    set_workspace(d);
    double whole = least_step(d, low);
    add_others(d);
    d->whole = false;
    return d->others > 0 && isfinite(whole) ? fmax(whole, least_step(d, whole))
                                            : whole;
}

struct pp_mesh_least pp_mesh_shape_least(const struct pp_mesh_shape *x,
                                         const struct pp_mesh_bound *b,
                                         enum pp_recompute mode)
{
    bool any = mode == PP_N_RECOMPUTES;
    struct rank ranks[PP_MESH_MOST_ROWS];
    struct layer_division d = {.b = b,
                               .ranks = ranks,
                               .n_ranks = x->n_ranks,
                               .m = x->n_microbatches,
                               .first_mode = any ? 0 : (int)mode,
                               .last_mode =
                                   any ? PP_N_RECOMPUTES - 1 : (int)mode};
    const struct class_sums s = sums_of(b, d.first_mode, d.m);
    double update = s.update / x->n_ranks, step = s.step / x->n_ranks;
    double mean = s.work / x->n_ranks * (1 - 1e-9);
    double path = path_of(x, b, d.first_mode);
    double held = held_step(x, &d, false, mean);
    if (isinf(held))
        return (struct pp_mesh_least){INFINITY, INFINITY};
    double likely = held_step(x, &d, true, mean);
    likely = isinf(likely) ? 2 * held : likely;
    double bound = fmax(path, held) + update;
    return (struct pp_mesh_least){
        bound, fmax(bound, fmax(path, likely / mean * path) + step + update)};
}
