/* SPDX-License-Identifier: MIT */
#include "mesh/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/ir/deps.h"

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
 * for a split that does best against the paths so far, two for each price of
 * memory. What a unit on the mean stage keeps has that price, as a share of its
 * work: about what selective recomputation takes to save so much, and what full
 * recomputation takes. A path of a row leaves it for such parts of its work. */
enum { N_ROUNDS = 2 * PP_MESH_N_PATHS, N_PLAYS = 64 };
static const double prices[PP_MESH_N_PATHS] = {0, 0.1, 0.35};
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
    double *kept, *price;       /* per stage: blocks of a unit, and their price
                                 */
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
    p->kept = pp_arena_alloc(a, n, sizeof *p->kept);
    p->price = pp_arena_alloc(a, n, sizeof *p->price);
}

/* Keeps the mean of the paths played so far, whose least weight of a stage is
 * the largest yet. */
static void keep_mean(const struct pool *p, int plays, struct pp_mesh_path *x)
{
    size_t n = (size_t)p->shape->n_stages;
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

/* Finds a mean of paths that is long for every split, counting what it pays for
 * memory, and in share a split that is short for all paths: the two sides of a
 * game that multiplicative weights solve (Freund and Schapire, "Adaptive game
 * playing using multiplicative weights", 1999). Returns the least length. */
static double play(struct pool *p, struct pp_mesh_path *x)
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
            p->sum[s] += weight + p->price[s];
            least = fmin(least, p->sum[s]);
            largest = fmax(largest, weight);
        }
        if (least / i > best && (i == N_PLAYS || i % 16 == 0)) {
            best = least / i;
            keep_mean(p, i, x);
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
    return best;
}

static void add_paths(struct pp_mesh_shape *x, struct pp_arena *a,
                      struct pp_makespan *m)
{
    struct pool p = {.shape = x};
    size_t n = (size_t)x->n_stages;
    init_pool(&p, a);
    for (size_t s = 0; s < n; s++)
        p.share[s] = 1 / (double)n;
    double length = 0, mean = 0;
    for (size_t s = 0; s < n; s++) {
        p.kept[s] = x->kept[s][PP_SAVED_ACT_I] + x->kept[s][PP_SAVED_ACT_W];
        mean += p.kept[s] / (double)n;
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        bool priced = prices[round / 2] > 0;
        for (size_t s = 0; s < n; s++)
            p.price[s] = prices[round / 2] * length * p.kept[s] / mean;
        for (size_t s = 0; s < n; s++)
            for (int t = 0; t < PP_N_TIMES; t++)
                p.times.slice[s][t] = (double)n * p.share[s] * work_times[t];
        (void)pp_makespan(m, &p.times);
        for (int k = priced; k < N_PARTS; k += 1 + priced)
            pp_makespan_row_paths(m, &p.times, &p.counts, parts[k], add_path,
                                  &p);
        double least = play(&p, &x->path[round / 2]);
        length = priced ? length : least;
    }
}

/* Reports whether an action does half of a backward. A whole one has room for
 * one layer's gradients alone, which a bound need not count. */
static bool is_half(const struct pp_graph *g, struct pp_action a)
{
    return pp_consumes_gradient(g, a) != pp_ends_backward(g, a);
}

/* Counts what an action begins to keep, and what ends with it. */
static void begin(double kept[PP_N_SAVED_BLOCKS], const struct pp_graph *g,
                  struct pp_action a)
{
    kept[PP_SAVED_ACT_I] += a.op == PP_F;
    kept[PP_SAVED_ACT_W] += a.op == PP_F;
    kept[PP_SAVED_GRAD_W] += is_half(g, a) && pp_consumes_gradient(g, a);
}

static void end(double kept[PP_N_SAVED_BLOCKS], const struct pp_graph *g,
                struct pp_action a)
{
    kept[PP_SAVED_ACT_I] -= pp_consumes_gradient(g, a);
    kept[PP_SAVED_ACT_W] -= pp_ends_backward(g, a);
    kept[PP_SAVED_GRAD_W] -= is_half(g, a) && pp_ends_backward(g, a);
}

/* Returns the blocks that a row keeps of its stages. */
static double sum_kept(const struct pp_mesh_shape *x, int row,
                       double (*now)[PP_N_SAVED_BLOCKS])
{
    double sum = 0;
    for (int k = 0; k < x->n_stages; k++)
        for (int b = 0; b < PP_N_SAVED_BLOCKS && x->row[k] == row; b++)
            sum += now[k][b];
    return sum;
}

/* Finds what each row keeps during the action when it keeps most blocks. */
static void find_kept(struct pp_mesh_shape *x, const struct pp_schedule *s,
                      double (*now)[PP_N_SAVED_BLOCKS])
{
    x->pairs = true;
    for (int r = 0; r < x->n_ranks; r++) {
        double most = 0;
        bool pairs = false;
        for (size_t i = 0; i < s->rows[r].n; i++) {
            const struct pp_action a = s->rows[r].actions[i];
            if (!pp_is_compute(a.op))
                continue;
            begin(now[a.stage], s->graph, a);
            double sum = sum_kept(x, r, now);
            for (int k = 0; k < x->n_stages && sum > most; k++)
                if (x->row[k] == r)
                    memcpy(x->kept[k], now[k], sizeof *now);
            most = fmax(most, sum);
            end(now[a.stage], s->graph, a);
            pairs |= a.overlap;
        }
        x->pairs &= pairs;
    }
}

/* Emits the schedule of a shape on a graph in memory of the arena. Returns
 * false if the kind refuses its numbers. */
static bool emit(const struct pp_mesh_shape *x, struct pp_arena *a,
                 struct pp_graph *g, struct pp_schedule *s)
{
    const struct pp_kind_options o = {.n_microbatches = x->n_microbatches};
    struct pp_err refusal = {0};
    if (pp_graph_chain(a, x->n_ranks, x->n_chunks, x->placement, g, &refusal))
        return false;
    pp_schedule_init(s, g, x->kind->name, x->n_microbatches);
    return !pp_kind_emit(x->kind, s, &o, &refusal);
}

void pp_mesh_shape_init(struct pp_mesh_shape *x, struct pp_arena *a)
{
    size_t n = (size_t)x->n_ranks * (size_t)x->n_chunks;
    struct pp_arena scratch = {0};
    struct pp_graph g;
    struct pp_schedule s = {0};
    x->arena = a;
    x->n_stages = (int)n;
    x->kept = pp_arena_alloc(a, n, sizeof *x->kept);
    x->row = pp_arena_alloc(a, n, sizeof *x->row);
    x->runs =
        n * (size_t)x->n_microbatches <= MAX_CELLS && emit(x, &scratch, &g, &s);
    for (int k = 0; x->runs && k < x->n_stages; k++)
        x->row[k] = g.stages[k].row;
    if (x->runs)
        find_kept(x, &s, pp_arena_alloc(&scratch, n, sizeof *x->kept));
    pp_schedule_finish(&s);
    pp_arena_finish(&scratch);
}

/* Finds the paths of a shape: most shapes are never asked for them, as no mesh
 * has the memory. */
static void find_paths(struct pp_mesh_shape *x)
{
    struct pp_err refusal = {0};
    struct pp_arena scratch = {0};
    struct pp_graph g;
    struct pp_schedule s = {0};
    struct pp_makespan m = {0};
    for (int k = 0; k < PP_MESH_N_PATHS; k++)
        x->path[k].weight = pp_arena_alloc(x->arena, (size_t)x->n_stages,
                                           sizeof *x->path[k].weight);
    if (emit(x, &scratch, &g, &s) && !pp_makespan_init(&m, &s, &refusal))
        add_paths(x, &scratch, &m);
    pp_makespan_finish(&m);
    pp_schedule_finish(&s);
    pp_arena_finish(&scratch);
}

/* --- memory and work --- */

/* Sets of modes, and prices of a set. */
enum {
    N_SETS = (1 << PP_N_RECOMPUTES) - 1,
    N_PRICES = 2 + PP_N_RECOMPUTES * (PP_N_RECOMPUTES - 1) / 2
};

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

/* A bound of the layers of a rank: `at` and so many more for each second. */
struct line {
    double at, rate;
};

/* A rank, or several alike, less what it holds for certain. */
struct rank {
    int n, n_stages;
    double seconds, bytes, workspace;
    bool mixes; /* its stages may have different modes */
    int stage[PP_MESH_MOST_CHUNKS];
    /* By stage: bytes of a layer of the main class in a mode, and whether it
     * has one for certain. */
    double held[PP_MESH_MOST_CHUNKS][PP_N_RECOMPUTES];
    bool must[PP_MESH_MOST_CHUNKS];
    /* Lines of the sets of modes that its layers may have, and their ends. */
    struct line lines[N_SETS * N_PRICES];
    int end[N_SETS], n_sets;
};

/* The division of the units over ranks. */
struct layer_division {
    const struct pp_mesh_bound *b;
    struct rank *ranks;
    int n_ranks, m, first_mode, last_mode;
    int workspaces; /* of a rank */
    bool whole;     /* ranks hold whole layers */
    double others;  /* layers of the main class that the other units count as */
    /* By mode, of a rank with layers: seconds of a layer in a step, and bytes
     * of a workspace. */
    double time[PP_N_RECOMPUTES], workspace[PP_N_RECOMPUTES];
    double fixed; /* bytes of a rank with layers, whatever it computes */
};

/* Returns the bytes that a rank has for layers in a set of modes. */
static double bytes_for(const struct layer_division *d, const struct rank *r,
                        unsigned modes)
{
    double workspace = r->workspace;
    for (int m = 0; m < PP_N_RECOMPUTES; m++)
        if (modes >> m & 1)
            workspace = fmax(workspace, d->workspace[m]);
    return r->bytes - d->workspaces * workspace - d->fixed;
}

/* Adds a line: at any prices of bytes and seconds, the layers that stages have
 * for certain cost what the cheapest mode does, and what is left buys others on
 * the cheapest stage (weak duality of linear programs). */
static void add_line(const struct layer_division *d, struct rank *r,
                     unsigned modes, double byte, double second, int *n)
{
    double left = byte * bytes_for(d, r, modes), certain = 0,
           cheapest = INFINITY;
    for (int k = 0; k < r->n_stages; k++) {
        double cost = INFINITY;
        for (int m = 0; m < PP_N_RECOMPUTES; m++)
            if (modes >> m & 1)
                cost = fmin(cost, byte * r->held[k][m] + second * d->time[m]);
        cheapest = fmin(cheapest, cost);
        left -= r->must[k] ? cost : 0;
        certain += r->must[k];
    }
    if (cheapest > 0)
        r->lines[(*n)++] =
            (struct line){certain + left / cheapest, second / cheapest};
}

/* Adds the lines of a set of modes, at prices where two modes cost the same:
 * other ones bound no better. */
static void add_set(const struct layer_division *d, struct rank *r,
                    unsigned modes)
{
    int n = r->n_sets ? r->end[r->n_sets - 1] : 0;
    double least[PP_N_RECOMPUTES];
    for (int m = 0; m < PP_N_RECOMPUTES; m++) {
        least[m] = INFINITY;
        for (int k = 0; k < r->n_stages; k++)
            least[m] = fmin(least[m], r->held[k][m]);
    }
    add_line(d, r, modes, 1, 0, &n);
    add_line(d, r, modes, 0, 1, &n);
    for (int a = 0; a < PP_N_RECOMPUTES; a++)
        for (int b = a + 1; b < PP_N_RECOMPUTES; b++)
            if ((modes >> a & 1) && (modes >> b & 1) &&
                d->time[b] > d->time[a] && least[a] > least[b])
                add_line(d, r, modes, d->time[b] - d->time[a],
                         least[a] - least[b], &n);
    r->end[r->n_sets++] = n;
}

/* Adds the lines of every set of modes that a rank may use all of. */
static void add_sets(const struct layer_division *d, struct rank *r)
{
    unsigned all = (2u << d->last_mode) - (1u << d->first_mode);
    r->n_sets = 0;
    for (unsigned modes = 1; modes <= all; modes++)
        if (!(modes & ~all) && (r->mixes || !(modes & (modes - 1))))
            add_set(d, r, modes);
}

/* Returns the most layers of a rank in so many seconds; negative if it cannot
 * even have the layers that are there for certain. */
static double room_of(const struct rank *r, double seconds)
{
    double most = -1, certain = 0;
    for (int k = 0; k < r->n_stages; k++)
        certain += r->must[k];
    for (int set = 0, i = 0; set < r->n_sets; set++) {
        double least = INFINITY;
        for (; i < r->end[set]; i++)
            least = fmin(least, r->lines[i].at + r->lines[i].rate * seconds);
        if (least >= certain * (1 - 1e-9))
            most = fmax(most, least);
    }
    return most < 0 && certain < 1 ? 0 : most;
}

/* Returns true if the ranks cannot hold the layers in a step. */
static bool is_short(const struct layer_division *d, double step)
{
    double all = 0;
    for (int i = 0; i < d->n_ranks; i++) {
        const struct rank *r = &d->ranks[i];
        double seconds = step - r->seconds, most = room_of(r, seconds);
        if (seconds < 0 || r->bytes < 0 || most < 0)
            return true;
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

/* Adds a stage to a rank that keeps so many blocks of its layers. */
static void add_stage(const struct layer_division *d, struct rank *r, int stage,
                      const double kept[PP_N_SAVED_BLOCKS])
{
    const struct pp_mesh_unit *u = &d->b->units[d->b->classes->main];
    r->stage[r->n_stages] = stage;
    for (int mode = d->first_mode; mode <= d->last_mode; mode++)
        r->held[r->n_stages][mode] = bytes_of(u, mode, kept);
    r->n_stages++;
}

/* Sets the times and the workspaces of layers of the main class. */
static void set_modes(struct layer_division *d)
{
    const struct pp_mesh_unit *u = &d->b->units[d->b->classes->main];
    for (int mode = d->first_mode; mode <= d->last_mode; mode++) {
        d->time[mode] = work_of(u, mode, d->m);
        d->fixed = u->fixed;
        d->workspace[mode] = u->workspace[mode];
    }
}

/* Takes a unit that is on a rank for certain. */
static void take(const struct layer_division *d, struct rank *r, size_t class,
                 const double kept[PP_N_SAVED_BLOCKS])
{
    const struct pp_mesh_unit *u = &d->b->units[class];
    r->seconds += work_of(u, 0, d->m);
    r->bytes -= bytes_of(u, 0, kept);
    r->workspace = fmax(r->workspace, u->workspace[0]);
}

/* Sums over all units in a mode. */
struct class_sums {
    double work, step, update, backward, beside;
};

static struct class_sums sums_of(const struct pp_mesh_bound *b, int mode, int m)
{
    const struct pp_mesh_classes *c = b->classes;
    struct class_sums s = {0};
    for (size_t k = 0; k < c->n; k++) {
        const struct pp_mesh_unit *u = &b->units[k];
        double n = (double)c->all[k].count + (k == c->first) + (k == c->last);
        s.work += n * work_of(u, mode, m);
        s.step += n * u->step;
        s.beside += n * u->beside;
        s.backward += n * u->time[mode][PP_TIME_B];
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
            d->workspace[mode] = fmin(d->workspace[mode], x->workspace[mode]);
            d->fixed = fmin(d->fixed, x->fixed);
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
    const struct class_sums s = sums_of(b, 0, n_microbatches);
    struct rank all = {.n = n_ranks, .bytes = b->limit, .mixes = true};
    struct layer_division d = {.b = b,
                               .ranks = &all,
                               .n_ranks = 1,
                               .m = n_microbatches,
                               .last_mode = PP_N_RECOMPUTES - 1,
                               .workspaces = 1};
    set_modes(&d);
    add_stage(&d, &all, 0, one);
    add_others(&d);
    add_sets(&d, &all);
    double least =
        least_step(&d, s.work / n_ranks * (1 - 1e-9)) + s.update / n_ranks;
    return (struct pp_mesh_least){least, least};
}

double pp_mesh_need(int n_ranks, const struct pp_mesh_bound *b)
{
    static const double one[PP_N_SAVED_BLOCKS] = {
        [PP_SAVED_ACT_I] = 1, [PP_SAVED_ACT_W] = 1};
    const struct pp_mesh_classes *c = b->classes;
    const struct pp_mesh_unit *main = &b->units[c->main];
    double sum = 0;
    for (size_t k = 0; k < c->n; k++)
        sum += ((double)c->all[k].count + (k == c->first) + (k == c->last)) *
               bytes_of(&b->units[k], PP_RECOMPUTE_NONE, one);
    return sum / n_ranks + main->workspace[PP_RECOMPUTE_NONE] + main->fixed;
}

/* --- a shape on a mesh --- */

/* Returns the length that the paths have of a unit on a stage, in the mean. */
static double length_of(const struct pp_mesh_path *x, int stage,
                        const double times[PP_N_TIMES])
{
    double length = 0;
    for (int t = 0; t < PP_N_TIMES; t++)
        length += x->weight[stage][t] * times[t];
    return length;
}

/* Returns the least that the paths have of a unit on any stage. */
static double least_length(const struct pp_mesh_path *x, int n_stages,
                           const double times[PP_N_TIMES])
{
    double least = INFINITY;
    for (int s = 0; s < n_stages; s++)
        least = fmin(least, length_of(x, s, times));
    return least;
}

/* Returns the length that the paths have at least in the mean. */
static double path_of(const struct pp_mesh_shape *shape,
                      const struct pp_mesh_path *x,
                      const struct pp_mesh_bound *b, int mode)
{
    const struct pp_mesh_classes *c = b->classes;
    double sum =
        x->messages * b->message +
        length_of(x, 0, b->units[c->first].time[mode]) +
        length_of(x, shape->n_stages - 1, b->units[c->last].time[mode]);
    for (size_t k = 0; k < c->n; k++)
        sum += (double)c->all[k].count *
               least_length(x, shape->n_stages, b->units[k].time[mode]);
    return sum;
}

/* Sets the ranks of a shape, less what they hold for certain, and with all of
 * their stages as one in the mean if `mean`. */
static void set_ranks(const struct pp_mesh_shape *x, struct layer_division *d,
                      bool mean)
{
    const struct pp_mesh_classes *c = d->b->classes;
    int last = x->n_stages - 1;
    double kept[PP_MESH_MOST_ROWS][PP_N_SAVED_BLOCKS];
    for (int r = 0; r < x->n_ranks; r++)
        d->ranks[r] = (struct rank){
            .n = 1, .bytes = d->b->limit, .mixes = x->n_chunks > 1};
    if (mean)
        memset(kept, 0, (size_t)x->n_ranks * sizeof *kept);
    for (int s = 0; s < x->n_stages; s++) {
        struct rank *r = &d->ranks[x->row[s]];
        r->must[r->n_stages] =
            !mean && s >= (int)c->before && s + (int)c->after < x->n_stages;
        if (!mean)
            add_stage(d, r, s, x->kept[s]);
        for (int k = 0; mean && k < PP_N_SAVED_BLOCKS; k++)
            kept[x->row[s]][k] += x->kept[s][k] / x->n_chunks;
    }
    for (int r = 0; mean && r < x->n_ranks; r++) {
        d->ranks[r].mixes = true;
        add_stage(d, &d->ranks[r], 0, kept[r]);
    }
    take(d, &d->ranks[x->row[0]], c->first, x->kept[0]);
    take(d, &d->ranks[x->row[last]], c->last, x->kept[last]);
}

/* Returns the least step from low on in which the ranks hold all units. */
static double held_step(struct layer_division *d, double low)
{
    d->others = 0;
    d->whole = true;
    set_modes(d);
    for (int r = 0; r < d->n_ranks; r++)
        add_sets(d, &d->ranks[r]);
    double whole = least_step(d, low);
    add_others(d);
    if (d->others <= 0 || isinf(whole))
        return whole;
    d->whole = false;
    for (int r = 0; r < d->n_ranks; r++)
        add_sets(d, &d->ranks[r]);
    return fmax(whole, least_step(d, whole));
}

/* The layers of the main class on the paths: how much longer the paths are for
 * one on a stage of a rank in a mode than for one that is nowhere shorter. */
struct detour {
    const struct layer_division *d;
    double more[PP_MESH_MOST_ROWS][PP_MESH_MOST_CHUNKS][PP_N_RECOMPUTES];
};

/* Returns a lower bound of how much longer the paths are in all, at a price of
 * a layer: on each rank bytes have the least price at which no stage has a
 * layer for less (weak duality again). */
static double detour_at(const struct detour *x, double layer)
{
    const struct layer_division *d = x->d;
    double sum = layer * (double)d->b->classes->all[d->b->classes->main].count;
    for (int i = 0; i < d->n_ranks; i++) {
        const struct rank *r = &d->ranks[i];
        double byte = 0, bytes = 0;
        for (int m = d->first_mode; m <= d->last_mode; m++)
            bytes = fmax(bytes, bytes_for(d, r, 1u << m));
        for (int k = 0; k < r->n_stages; k++)
            for (int m = d->first_mode; m <= d->last_mode; m++)
                byte = fmax(byte, (layer - x->more[i][k][m]) / r->held[k][m]);
        for (int k = 0; k < r->n_stages; k++) {
            double least = INFINITY;
            for (int m = d->first_mode; m <= d->last_mode; m++)
                least = fmin(least, x->more[i][k][m] + byte * r->held[k][m]);
            sum += r->must[k] ? least - layer : 0;
        }
        sum -= byte * bytes;
    }
    return sum;
}

/* Returns by how much paths are longer at least because of where layers are and
 * what they compute again: the best of all prices, which is concave. */
static double detour(const struct pp_mesh_shape *shape,
                     const struct pp_mesh_path *p,
                     const struct layer_division *d)
{
    static const double golden = 0.6180339887498949;
    const struct pp_mesh_unit *u = &d->b->units[d->b->classes->main];
    double least = least_length(p, shape->n_stages, u->time[d->first_mode]),
           low = 0, high = 0;
    struct detour x = {.d = d};
    for (int i = 0; i < d->n_ranks; i++)
        for (int k = 0; k < d->ranks[i].n_stages; k++)
            for (int m = d->first_mode; m <= d->last_mode; m++) {
                x.more[i][k][m] =
                    length_of(p, d->ranks[i].stage[k], u->time[m]) - least;
                high = fmax(high, 4 * x.more[i][k][m]);
            }
    double a = high - golden * high, b = golden * high, at_a = detour_at(&x, a),
           at_b = detour_at(&x, b), best = 0;
    for (int i = 0; i < 16; i++) {
        best = fmax(best, fmax(at_a, at_b));
        if (at_a < at_b) {
            low = a;
            a = b;
            at_a = at_b;
            b = low + golden * (high - low);
            at_b = detour_at(&x, b);
        } else {
            high = b;
            b = a;
            at_b = at_a;
            a = high - golden * (high - low);
            at_a = detour_at(&x, a);
        }
    }
    return best;
}

/* Starts the division of units over the ranks of a shape. */
static struct layer_division divide(const struct pp_mesh_shape *x,
                                    const struct pp_mesh_bound *b, int mode,
                                    struct rank *ranks)
{
    bool any = mode == PP_N_RECOMPUTES;
    return (struct layer_division){.b = b,
                                   .ranks = ranks,
                                   .n_ranks = x->n_ranks,
                                   .m = x->n_microbatches,
                                   .first_mode = any ? 0 : mode,
                                   .last_mode =
                                       any ? PP_N_RECOMPUTES - 1 : mode,
                                   .workspaces = x->pairs ? 2 : 1};
}

/* Returns the mean work of a rank. */
static double mean_work(const struct pp_mesh_shape *x,
                        const struct class_sums *s)
{
    return s->work / x->n_ranks * (1 - 1e-9);
}

/* Returns the seconds of collectives that are estimated to be in a step: the
 * backward of a microbatch hides as much as it takes, but not the first layer
 * and what is before it. */
static double collectives(const struct pp_mesh_shape *x,
                          const struct pp_mesh_bound *b,
                          const struct class_sums *s)
{
    return s->step / x->n_ranks + fmax((s->beside - s->backward) / x->n_ranks,
                                       b->units[b->classes->first].beside +
                                           b->units[b->classes->main].beside);
}

struct pp_mesh_least pp_mesh_shape_held(const struct pp_mesh_shape *x,
                                        const struct pp_mesh_bound *b, int mode)
{
    struct rank ranks[PP_MESH_MOST_ROWS];
    struct layer_division d = divide(x, b, mode, ranks);
    const struct class_sums s = sums_of(b, d.first_mode, d.m);
    set_ranks(x, &d, false);
    double bound = held_step(&d, mean_work(x, &s)) + s.update / x->n_ranks;
    return (struct pp_mesh_least){bound, bound + collectives(x, b, &s)};
}

struct pp_mesh_least pp_mesh_shape_least(struct pp_mesh_shape *x,
                                         const struct pp_mesh_bound *b,
                                         int mode)
{
    struct rank ranks[PP_MESH_MOST_ROWS];
    struct layer_division d = divide(x, b, mode, ranks);
    const struct class_sums s = sums_of(b, d.first_mode, d.m);
    double update = s.update / x->n_ranks, mean = mean_work(x, &s);
    set_ranks(x, &d, false);
    double held = held_step(&d, mean);
    if (isinf(held))
        return (struct pp_mesh_least){INFINITY, INFINITY};
    if (!x->path[0].weight)
        find_paths(x);
    set_modes(&d);
    double path = 0;
    for (int k = 0; k < PP_MESH_N_PATHS; k++)
        path = fmax(path, path_of(x, &x->path[k], b, d.first_mode) +
                              detour(x, &x->path[k], &d));
    set_ranks(x, &d, true);
    double likely = held_step(&d, mean);
    likely = isinf(likely) ? 2 * held : likely;
    double bound = fmax(path, held) + update;
    return (struct pp_mesh_least){
        bound, fmax(bound, fmax(path, likely / mean * path) +
                               collectives(x, b, &s) + update)};
}
