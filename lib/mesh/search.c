/* SPDX-License-Identifier: MIT */
#include "mesh/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/vec.h"

const char *const pp_mesh_refusal_names[PP_N_MESH_REFUSALS] = {
    [PP_MESH_REFUSED_TP] = "tp",        [PP_MESH_REFUSED_CP] = "cp",
    [PP_MESH_REFUSED_EP] = "ep",        [PP_MESH_REFUSED_PP] = "pp",
    [PP_MESH_REFUSED_BATCH] = "batch",  [PP_MESH_REFUSED_TRAINER] = "trainer",
    [PP_MESH_REFUSED_MEMORY] = "memory"};

/* Sequences of a mesh go through it in microbatches of this size. At first it
 * has no order, and messages are free. */
struct mesh_candidate {
    struct pp_mesh mesh;
    int64_t micro_batch;
    bool ordered;
};

/* A candidate that is still to be bounded by kinds, or with one of its shapes
 * and a mode of recomputation: PP_N_RECOMPUTES for any modes of stages, UNKNOWN
 * if the paths of the shape are still to bound it in each. */
enum { UNKNOWN = -1 };
struct node {
    size_t candidate;
    struct pp_mesh_shape *shape; /* NULL: any */
    int mode;
    double bound, estimate;
    double longer; /* the factor of the estimate by what such plans took; 0:
                      none yet */
    bool stands;   /* without recomputation, for any modes too while it fits */
};

/* Plans of a kind on so many rows, with a mode: the least step of them over
 * its estimate. */
struct taken {
    const struct pp_kind *kind;
    int n_ranks, mode;
    double longer;
};

struct shape_link {
    struct pp_mesh_shape shape;
    struct shape_link *next;
};

struct mesh_search {
    const struct pp_mesh_problem *p;
    const struct pp_trainer *trainer;
    struct pp_mesh_found *found;
    struct pp_arena arena;      /* of the search alone */
    struct pp_machine unlinked; /* the machine with free messages */
    struct pp_mesh_classes classes;
    struct pp_mesh_unit *units; /* scratch, per class */
    size_t described;           /* the candidate whose units these are */
    struct {
        struct mesh_candidate *items;
        size_t n, capacity;
    } candidates;
    struct {
        struct node *items;
        size_t n, capacity;
    } nodes;
    struct pp_heap heap;
    size_t heap_capacity;
    struct {
        uint32_t *items; /* nodes */
        size_t n, capacity;
    } aside;
    struct shape_link *buckets[PP_MESH_BUCKETS];
    struct {
        struct taken *items;
        size_t n, capacity;
    } taken;
    double best;
    double longer;   /* the least that plans took, over their estimates */
    double resolved; /* least bound of what was planned */
    double nearest;  /* least need of what does not fit */
};

/* --- rows --- */

static bool same_mesh(const struct pp_mesh *a, const struct pp_mesh *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep &&
           a->pp == b->pp && a->dp == b->dp &&
           a->experts_over_tp == b->experts_over_tp;
}

/* Returns the row of a mesh, or NULL. */
static struct pp_split_row *row_of(const struct mesh_search *x,
                                   const struct pp_mesh *m)
{
    for (size_t i = 0; i < x->found->n_rows; i++)
        if (same_mesh(&x->found->rows[i].request.shard.mesh, m))
            return &x->found->rows[i];
    return NULL;
}

/* Adds a row, or puts it in the place of a longer one of its mesh. */
static void add_row(struct mesh_search *x, const struct pp_split_row *row)
{
    struct pp_mesh_found *f = x->found;
    struct pp_split_row *was = row_of(x, &row->request.shard.mesh);
    x->best = fmin(x->best, row->step);
    if (!was) {
        pp_array_reserve(&f->rows, &f->capacity, f->n_rows + 1,
                         sizeof *f->rows);
        f->rows[f->n_rows++] = *row;
    } else if (row->step < was->step) {
        *was = *row;
    }
    qsort(f->rows, f->n_rows, sizeof *f->rows, pp_split_row_compare);
}

/* Returns the step of the last row that is asked for: no longer one changes
 * anything. */
static double longest(const struct mesh_search *x)
{
    const struct pp_mesh_found *f = x->found;
    return f->n_rows < x->p->n_rows ? INFINITY : f->rows[x->p->n_rows - 1].step;
}

/* --- requests --- */

static bool same(double a, double b)
{
    return a <= b && a >= b;
}

static struct pp_split_request request_of(const struct mesh_search *x,
                                          const struct mesh_candidate *c)
{
    struct pp_split_request q = *x->p->request;
    q.shard.mesh = c->mesh;
    q.machine = c->ordered ? q.machine : &x->unlinked;
    q.n_ranks = c->mesh.pp;
    q.microbatch.tokens = c->micro_batch * q.microbatch.seq_len;
    q.n_microbatches = x->p->global_batch / (c->mesh.dp * c->micro_batch);
    return q;
}

/* Reports whether the trainer takes a mesh. */
static bool is_taken(const struct mesh_search *x, const struct pp_mesh *m)
{
    const struct pp_split_request *q = x->p->request;
    const struct pp_backend b = pp_backend_of(q->precision, !q->gpu);
    const struct pp_trainer_order any = {.kind = NULL};
    struct pp_err refusal = {0};
    return !pp_trainer_check(x->trainer, m, &b, &any, &refusal);
}

/* Reports whether stages of the trainer may have a mode of recomputation, or
 * any modes. */
static bool has_mode(const struct mesh_search *x, int mode)
{
    return mode == PP_N_RECOMPUTES
               ? x->trainer->modes
               : pp_trainer_recomputes(x->trainer, pp_recompute_levels[mode]);
}

static bool is_fixed(int64_t fixed, int64_t value)
{
    return fixed > 0 && fixed != value;
}

/* Sets the limit and the imbalance of rows of experts as the request has them,
 * or to the most that may come. */
static void set_expert_limit(const struct mesh_search *x, struct pp_mesh *m)
{
    const struct pp_split_request *q = x->p->request;
    double most = pp_mesh_most_expert_limit(m, q->shard.model);
    m->expert_limit = m->ep == 1 ? 0 : fmin(q->shard.mesh.expert_limit, most);
    m->expert_imbalance = m->ep == 1 ? 0 : q->shard.mesh.expert_imbalance;
}

/* --- shapes --- */

/* Finds the shape of a kind in the table, or makes it. */
static struct pp_mesh_shape *find_shape(struct mesh_search *x,
                                        const struct pp_mesh_shape *like)
{
    const int key[] = {like->placement, like->n_ranks, like->n_chunks,
                       like->n_microbatches};
    uint64_t h = pp_fnv(PP_FNV_START, key, sizeof key);
    h = pp_fnv(h, like->kind->name, strlen(like->kind->name));
    struct shape_link **at = &x->buckets[h % PP_MESH_BUCKETS];
    for (; *at; at = &(*at)->next) {
        struct pp_mesh_shape *s = &(*at)->shape;
        if (s->kind == like->kind && s->placement == like->placement &&
            s->n_ranks == like->n_ranks && s->n_chunks == like->n_chunks &&
            s->n_microbatches == like->n_microbatches)
            return s;
    }
    *at = pp_arena_alloc(&x->arena, 1, sizeof **at);
    (*at)->shape = *like;
    pp_mesh_shape_init(&(*at)->shape, &x->arena);
    return &(*at)->shape;
}

/* Sets how a kind is placed, in its next number of chunks after n_chunks.
 * Returns false if there is no more. */
static bool next_place(const struct mesh_search *x, struct pp_mesh_shape *s)
{
    const struct pp_kind *k = s->kind;
    int step = k->v ? 2 : 1;
    bool one = k->n_chunks <= 1, any = s->n_ranks > 1 && !one;
    size_t n_units = pp_model_n_units(x->p->request->shard.model);
    s->placement = k->v ? PP_PLACEMENT_V : PP_PLACEMENT_LOOP;
    s->n_chunks = s->n_chunks == 0 ? (one ? 1 : 2) : s->n_chunks + step;
    if (one ? s->n_chunks > 1 : !any)
        return false;
    return s->n_chunks <= PP_MESH_MOST_CHUNKS &&
           (size_t)s->n_chunks * (size_t)s->n_ranks <= n_units;
}

/* --- nodes --- */

static bool is_before(const void *ctx, uint32_t a, uint32_t b)
{
    const struct mesh_search *x = ctx;
    const struct node *p = &x->nodes.items[a], *q = &x->nodes.items[b];
    if (p->estimate < q->estimate || p->estimate > q->estimate)
        return p->estimate < q->estimate;
    return a < b;
}

static bool is_lower(const void *ctx, uint32_t a, uint32_t b)
{
    const struct mesh_search *x = ctx;
    const struct node *p = &x->nodes.items[a], *q = &x->nodes.items[b];
    if (p->bound < q->bound || p->bound > q->bound)
        return p->bound < q->bound;
    return a < b;
}

static void add_node(struct mesh_search *x, struct node n)
{
    PP_VEC_PUSH(&x->nodes, n);
    pp_array_reserve(&x->heap.items, &x->heap_capacity, x->nodes.n,
                     sizeof *x->heap.items);
    pp_heap_push(&x->heap, (uint32_t)(x->nodes.n - 1));
}

/* Returns the quickest message between rows that follow each other. */
static double quickest_message(const struct pp_split_request *q, double bytes)
{
    const struct pp_layout l = {.components = {{.mesh = q->shard.mesh}},
                                .n_components = 1};
    double least = INFINITY;
    for (int r = 0; r < q->shard.mesh.pp && q->shard.mesh.pp > 1; r++) {
        struct pp_link x =
            pp_machine_rows(q->machine, &l, r, (r + 1) % q->shard.mesh.pp);
        least = fmin(least, x.seconds + x.per_byte * bytes);
    }
    return isinf(least) ? 0 : least;
}

static struct pp_mesh_bound bound_by_units(const struct mesh_search *x,
                                           const struct pp_split_request *q)
{
    return (struct pp_mesh_bound){
        .classes = &x->classes,
        .units = x->units,
        .limit =
            q->memory_bytes ? (double)q->memory_bytes * (1 + 1e-9) : INFINITY};
}

/* Returns what bounds a candidate, with its units. */
static struct pp_mesh_bound bound_of(struct mesh_search *x, size_t candidate)
{
    const struct pp_split_request q =
        request_of(x, &x->candidates.items[candidate]);
    if (x->described != candidate)
        pp_mesh_units(&x->classes, &q, x->units);
    x->described = candidate;
    struct pp_mesh_bound b = bound_by_units(x, &q);
    b.message = quickest_message(&q, x->units[x->classes.main].output);
    return b;
}

/* Bounds a shape of a candidate by its paths in each mode that may be better
 * than what was found. Any modes of stages are not tried if none probably do as
 * well without recomputation, whose node then has the bound of both. */
static void expand_shape(struct mesh_search *x, struct node of)
{
    int only = x->p->fixed.recompute;
    const struct pp_mesh_bound b = bound_of(x, of.candidate);
    struct pp_mesh_least any =
        pp_mesh_shape_least(of.shape, &b, PP_N_RECOMPUTES);
    if (any.bound >= longest(x))
        return;
    for (int mode = 0; mode <= PP_N_RECOMPUTES; mode++) {
        if ((only >= 0 && mode != only) || !has_mode(x, mode))
            continue;
        struct pp_mesh_least l = mode == PP_N_RECOMPUTES
                                     ? any
                                     : pp_mesh_shape_least(of.shape, &b, mode);
        bool enough = only < 0 && has_mode(x, PP_N_RECOMPUTES) && mode == 0 &&
                      l.estimate <= any.estimate * (1 + 1e-3);
        if (enough)
            l.bound = fmin(l.bound, any.bound);
        const struct node n = {of.candidate,
                               of.shape,
                               mode,
                               fmax(of.bound, l.bound),
                               fmax(of.estimate, l.estimate),
                               0,
                               enough};
        x->found->n_bounds++;
        if (isfinite(n.bound) && n.bound < longest(x))
            add_node(x, n);
        if (enough)
            return;
    }
}

/* Reports whether a kind is tried on a mesh: of a trainer with a list of kinds,
 * the kinds in it. */
static bool is_tried(const struct mesh_search *x, const struct pp_kind *k,
                     int pp)
{
    const char *const *name = x->trainer->kinds;
    const struct pp_mesh_fixed *f = &x->p->fixed;
    for (size_t i = 0; i < f->n_kinds; i++)
        if (k == f->kinds[i])
            return true;
    if (f->n_kinds)
        return false;
    while (name && *name && strcmp(*name, k->name))
        name++;
    return (!name || *name) && !k->slices && !k->copies &&
           (pp > 1 || !strcmp(k->name, "1f1b"));
}

/* Adds a shape of a candidate, bounded by its memory. */
static void add_shape(struct mesh_search *x, const struct node *of,
                      struct pp_mesh_shape *shape,
                      const struct pp_mesh_bound *b)
{
    int only = x->p->fixed.recompute;
    struct pp_mesh_least l =
        pp_mesh_shape_held(shape, b, only < 0 ? PP_N_RECOMPUTES : only);
    const struct node n = {of->candidate, shape, UNKNOWN,
                           fmax(of->bound, l.bound),
                           fmax(of->estimate, l.estimate)};
    if (isfinite(n.bound) && n.bound < longest(x))
        add_node(x, n);
}

/* Bounds a candidate by each kind. */
static void expand(struct mesh_search *x, struct node n)
{
    const struct pp_split_request q =
        request_of(x, &x->candidates.items[n.candidate]);
    const struct pp_mesh_bound b = bound_of(x, n.candidate);
    for (const struct pp_kind *const *k = pp_kinds; *k; k++) {
        struct pp_mesh_shape like = {.kind = *k,
                                     .n_ranks = q.shard.mesh.pp,
                                     .n_microbatches = (int)q.n_microbatches};
        while (is_tried(x, *k, q.shard.mesh.pp) && next_place(x, &like)) {
            if (is_fixed(x->p->fixed.chunks, like.n_chunks))
                continue;
            struct pp_mesh_shape *shape = find_shape(x, &like);
            if (shape->runs)
                add_shape(x, &n, shape, &b);
        }
    }
}

/* Keeps a point of a picture, one for each mesh that is bounded: its candidates
 * follow each other, and the one with the least bound stands for them. */
static void add_point(struct mesh_search *x, const struct pp_mesh_point *p)
{
    struct pp_mesh_found *f = x->found;
    struct pp_mesh_point *last =
        f->n_points ? &f->points[f->n_points - 1] : NULL;
    if (!x->p->points || !isfinite(p->step))
        return;
    if (last && !p->kind && same_mesh(&last->mesh, &p->mesh)) {
        if (p->fits >= last->fits &&
            (p->fits > last->fits || p->step < last->step))
            *last = *p;
        return;
    }
    pp_array_reserve(&f->points, &f->points_capacity, f->n_points + 1,
                     sizeof *f->points);
    f->points[f->n_points++] = *p;
}

/* Keeps the point of a candidate; one that does not fit has the step that it
 * would take. */
static void add_bound(struct mesh_search *x, const struct mesh_candidate *c,
                      int n_microbatches, struct pp_mesh_bound b, double step)
{
    struct pp_mesh_point p = {.mesh = c->mesh,
                              .micro_batch = c->micro_batch,
                              .step = step,
                              .need = pp_mesh_need(c->mesh.pp, &b),
                              .fits = isfinite(step)};
    b.limit = INFINITY;
    if (!p.fits)
        p.step = pp_mesh_least(c->mesh.pp, n_microbatches, &b).bound;
    add_point(x, &p);
}

/* Bounds a candidate. */
static struct pp_mesh_least least_of(struct mesh_search *x,
                                     const struct mesh_candidate *c)
{
    const struct pp_split_request q = request_of(x, c);
    pp_mesh_units(&x->classes, &q, x->units);
    x->described = SIZE_MAX;
    const struct pp_mesh_bound b = bound_by_units(x, &q);
    struct pp_mesh_least least =
        pp_mesh_least(c->mesh.pp, (int)q.n_microbatches, &b);
    if (x->p->points && !c->ordered)
        add_bound(x, c, (int)q.n_microbatches, b, least.bound);
    return least;
}

/* Adds a candidate if its bound is low enough. */
static void add_candidate(struct mesh_search *x, const struct mesh_candidate *c,
                          struct pp_mesh_least least)
{
    if (least.bound >= longest(x))
        return;
    PP_VEC_PUSH(&x->candidates, *c);
    add_node(x, (struct node){x->candidates.n - 1, NULL, 0, least.bound,
                              least.estimate});
}

/* --- plans --- */

/* Sets the profile of a row for its mesh. */
static void set_profile(struct mesh_search *x, struct pp_arena *a,
                        struct pp_split_request *q)
{
    size_t n = pp_model_n_units(q->shard.model);
    struct pp_profile *profile = pp_arena_alloc(a, 1, sizeof *profile);
    *profile = (struct pp_profile){
        .units = pp_arena_alloc(a, n, sizeof *profile->units), .n_units = n};
    pp_mesh_profile(&x->classes, q, profile);
    q->profile = profile;
}

/* Plans a request into a row. */
static void plan_row(struct pp_split_request *q, struct pp_arena *a,
                     struct pp_split_row *row)
{
    struct pp_split_plan plan;
    pp_split_row_plan(q, a, row, &plan);
    pp_split_plan_finish(&plan);
}

/* Estimates may be too short by SHORT, and differ by EQUAL from equal ones. */
#define SHORT 1.01
#define EQUAL 1.001

/* Returns what plans like a node's took, or NULL. */
static struct taken *taken_by(const struct mesh_search *x, const struct node *n)
{
    for (size_t i = 0; i < x->taken.n; i++) {
        struct taken *t = &x->taken.items[i];
        if (t->kind == n->shape->kind && t->n_ranks == n->shape->n_ranks &&
            t->mode == n->mode)
            return t;
    }
    return NULL;
}

/* Learns from the step of a node's plan, which is infinite if it does not fit.
 */
static void learn(struct mesh_search *x, const struct node *n, double step)
{
    struct taken *t = taken_by(x, n);
    double estimate = n->estimate / (n->longer > 0 ? n->longer : 1);
    double longer = fmin(step / estimate, 2);
    const struct taken first = {n->shape->kind, n->shape->n_ranks, n->mode,
                                longer};
    x->longer = fmin(x->longer, step / estimate);
    if (t)
        t->longer = fmin(t->longer, longer);
    else
        PP_VEC_PUSH(&x->taken, first);
}

/* Postpones a shape if plans like it took longer than was estimated, so that
 * others get their turn. Returns true if it did. */
static bool postpone(struct mesh_search *x, uint32_t at)
{
    struct node *n = &x->nodes.items[at];
    const struct taken *t = n->longer > 0 ? NULL : taken_by(x, n);
    if (!t || t->longer <= 1)
        return false;
    n->longer = t->longer;
    n->estimate *= n->longer;
    pp_heap_push(&x->heap, at);
    return true;
}

/* Reports whether a plan of a node is likely to be no longer than a step. It
 * may be estimated as much too long as every plan so far was, or too short by a
 * little. */
static bool is_promising(const struct mesh_search *x, const struct node *n,
                         double step)
{
    bool learnt = n->longer > 0 || isinf(x->longer);
    return n->estimate * (learnt ? 1 : fmin(x->longer, SHORT)) < step * EQUAL;
}

/* Keeps a plan that does not fit if it needs less than all others. */
static void keep_nearest(struct mesh_search *x, const struct pp_split_row *row)
{
    if (row->fits || !isfinite(row->step) || row->need >= x->nearest)
        return;
    x->nearest = row->need;
    x->found->nearest = *row;
}

/* Adds the modes that a node stood for, which does not fit: bounds do not count
 * all memory. */
static void add_modes(struct mesh_search *x, struct node n)
{
    for (n.mode = 0; n.mode <= PP_N_RECOMPUTES; n.mode++) {
        struct node of_mode = n;
        of_mode.stands = false;
        if (n.mode != 0 && has_mode(x, n.mode))
            add_node(x, of_mode);
    }
}

/* Plans a shape of a candidate exactly. */
static void plan_node(struct mesh_search *x, const struct node *n)
{
    const struct mesh_candidate *c = &x->candidates.items[n->candidate];
    struct pp_split_request q = request_of(x, c);
    struct pp_split_row row;
    q.kind = n->shape->kind->name;
    q.placement = n->shape->placement;
    q.n_chunks = n->shape->n_chunks;
    q.shortest = true;
    q.brief = true;
    q.plan_buffers = true;
    q.recompute_auto = n->mode == PP_N_RECOMPUTES;
    q.recompute = pp_recompute_levels[q.recompute_auto ? 0 : n->mode];
    set_profile(x, &x->found->arena, &q);
    plan_row(&q, &x->found->arena, &row);
    x->found->n_plans++;
    double least = fmax(n->bound, row.least);
    const struct pp_mesh_point point = {.mesh = c->mesh,
                                        .micro_batch = c->micro_batch,
                                        .kind = row.request.kind,
                                        .step = row.step,
                                        .need = row.need,
                                        .fits = row.fits};
    add_point(x, &point);
    learn(x, n, row.fits ? row.step : INFINITY);
    row.least = least;
    if (row.fits) {
        x->resolved = fmin(x->resolved, least);
        add_row(x, &row);
    } else {
        keep_nearest(x, &row);
        if (n->stands)
            add_modes(x, *n);
    }
}

/* --- the obvious plan --- */

/* Divides the layers evenly; the first units and the last ones are at the ends.
 */
static const size_t *even_bounds(const struct pp_model *m, size_t pp,
                                 struct pp_arena *a)
{
    size_t *counts = pp_arena_alloc(a, pp, sizeof *counts);
    size_t *bounds = pp_arena_alloc(a, pp + 1, sizeof *bounds);
    for (size_t s = 0; s < pp; s++)
        counts[s] = m->n_layers * (s + 1) / pp - m->n_layers * s / pp;
    pp_split_layer_bounds(m, counts, pp, bounds);
    return bounds;
}

/* Plans 1f1b on an even split with a mode. */
static void plan_evenly(struct mesh_search *x, const struct mesh_candidate *c,
                        int mode, struct pp_split_row *row)
{
    struct pp_arena *a = &x->found->arena;
    struct pp_split_request q = request_of(x, c);
    q.kind = "1f1b";
    q.n_chunks = 1;
    q.plan_buffers = true;
    q.recompute = pp_recompute_levels[mode];
    set_profile(x, a, &q);
    q.bounds = even_bounds(q.shard.model, (size_t)c->mesh.pp, a);
    plan_row(&q, a, row);
}

/* Returns the most ranks up to `most` that divide n and that the check allows
 * as the value that is set. */
static int most_ranks(const struct mesh_search *x, struct pp_mesh *m,
                      int *value, int most, int n)
{
    const struct pp_split_request *q = x->p->request;
    for (*value = most; *value > 1; --*value) {
        struct pp_err none = {0};
        if (n % *value == 0 &&
            !pp_mesh_check(m, q->shard.model, (size_t)q->microbatch.seq_len,
                           &none))
            break;
    }
    return *value;
}

/* Plans what one would try first: tensor-parallel ranks as many as a node has,
 * the fewest pipeline ranks with which it fits, and one sequence at a time. */
static void plan_obvious(struct mesh_search *x)
{
    const struct pp_mesh_problem *p = x->p;
    const struct pp_model *model = p->request->shard.model;
    struct mesh_candidate c = {p->request->shard.mesh, 1, true};
    struct pp_mesh *m = &c.mesh;
    *m = (struct pp_mesh){1,
                          1,
                          1,
                          1,
                          1,
                          .divided_weights = !(x->trainer->zero >> 1 & 1),
                          .cp_exchange = m->cp_exchange};
    m->tp = most_ranks(x, m, &m->tp,
                       p->node < p->n_ranks ? p->node : p->n_ranks, p->n_ranks);
    for (m->pp = 1; m->pp <= p->n_ranks / m->tp; m->pp++) {
        m->dp = p->n_ranks / m->tp / m->pp;
        m->ep = 1;
        m->expert_limit = m->expert_imbalance = 0;
        if (p->n_ranks / m->tp % m->pp || p->global_batch % m->dp ||
            (size_t)m->pp > model->n_layers)
            continue;
        if (model->moe.n_experts && x->trainer->experts)
            (void)most_ranks(x, m, &m->ep, p->node < m->dp ? p->node : m->dp,
                             m->dp);
        set_expert_limit(x, m);
        for (int mode = 0; mode < PP_N_RECOMPUTES; mode++) {
            if (!has_mode(x, mode))
                continue;
            plan_evenly(x, &c, mode, &x->found->obvious);
            if (x->found->obvious.fits)
                return;
            keep_nearest(x, &x->found->obvious);
        }
    }
}

/* --- the space --- */

/* Returns the reason for an error of pp_mesh_check. */
static enum pp_mesh_refusal reason_of(const struct pp_err *err)
{
    const char *setting = err->setting ? err->setting : "";
    return !strcmp(setting, "tp")   ? PP_MESH_REFUSED_TP
           : !strcmp(setting, "ep") ? PP_MESH_REFUSED_EP
                                    : PP_MESH_REFUSED_CP;
}

/* Adds a mesh with each division of weights and each size of microbatches,
 * until one needs too much memory. Returns why none was added, or
 * PP_N_MESH_REFUSALS. */
static enum pp_mesh_refusal add_microbatches(struct mesh_search *x,
                                             struct pp_mesh mesh)
{
    const struct pp_mesh_fixed *f = &x->p->fixed;
    int64_t each = x->p->global_batch / mesh.dp;
    enum pp_mesh_refusal why = PP_MESH_REFUSED_TRAINER;
    for (int zero = 1; zero <= 3; zero += 2) {
        int as = f->zero < 0 ? zero : f->zero;
        if (zero == 3 && (f->zero >= 0 || mesh.dp * mesh.cp == 1))
            break;
        mesh.whole_state = as == 0;
        mesh.divided_weights = as == 3;
        bool fit = is_taken(x, &mesh);
        if (fit && why == PP_MESH_REFUSED_TRAINER)
            why = PP_MESH_REFUSED_MEMORY;
        for (int64_t b = 1; b <= each && fit; b++) {
            if (each % b || is_fixed(f->micro_batch, b))
                continue;
            const struct mesh_candidate c = {mesh, b, false};
            struct pp_mesh_least least = least_of(x, &c);
            add_candidate(x, &c, least);
            fit = isfinite(least.bound);
            why = fit ? PP_N_MESH_REFUSALS : why;
        }
    }
    return why;
}

/* Adds a mesh. */
static void add_mesh(struct mesh_search *x, const struct pp_mesh *mesh)
{
    const struct pp_mesh_problem *p = x->p;
    struct pp_err refusal = {0};
    x->found->n_meshes++;
    enum pp_mesh_refusal why = PP_N_MESH_REFUSALS;
    if (pp_mesh_check(mesh, p->request->shard.model,
                      (size_t)p->request->microbatch.seq_len, &refusal))
        why = reason_of(&refusal);
    else if ((size_t)mesh->pp > pp_model_n_units(p->request->shard.model) ||
             mesh->pp > PP_MESH_MOST_ROWS)
        why = PP_MESH_REFUSED_PP;
    else if (p->global_batch % mesh->dp)
        why = PP_MESH_REFUSED_BATCH;
    else
        why = add_microbatches(x, *mesh);
    if (why < PP_N_MESH_REFUSALS)
        x->found->n_refused[why]++;
    if (p->progress && x->found->n_meshes % 64 == 0)
        x->found->stopped |=
            p->progress(p->ctx, x->found->n_meshes, 0, x->best);
}

/* Adds the meshes of tp x cp x pp x dp ranks, with any groups of experts. */
static void add_groups(struct mesh_search *x, struct pp_mesh mesh)
{
    const struct pp_mesh_fixed *f = &x->p->fixed;
    const struct pp_moe *e = &x->p->request->shard.model->moe;
    size_t experts = e->n_experts ? e->n_experts : 1;
    for (int over = 0; over <= (experts > 1 && mesh.tp > 1); over++) {
        mesh.experts_over_tp = over;
        if (f->experts_over_tp >= 0 && f->experts_over_tp != over)
            continue;
        size_t ranks = pp_mesh_expert_ranks(&mesh);
        for (mesh.ep = 1;
             (size_t)mesh.ep <= ranks && (size_t)mesh.ep <= experts;
             mesh.ep++) {
            if (ranks % (size_t)mesh.ep || experts % (size_t)mesh.ep ||
                is_fixed(f->ep, mesh.ep))
                continue;
            set_expert_limit(x, &mesh);
            add_mesh(x, &mesh);
        }
    }
}

static void add_meshes(struct mesh_search *x)
{
    const struct pp_mesh_fixed *f = &x->p->fixed;
    struct pp_mesh m = x->p->request->shard.mesh;
    int n = x->p->n_ranks;
    for (m.tp = 1; m.tp <= n; m.tp++)
        for (m.cp = 1; n % m.tp == 0 && m.cp <= n / m.tp; m.cp++)
            for (m.pp = 1; n / m.tp % m.cp == 0 && m.pp <= n / m.tp / m.cp;
                 m.pp++) {
                if (n / m.tp / m.cp % m.pp || x->found->stopped)
                    continue;
                m.dp = n / m.tp / m.cp / m.pp;
                if (is_fixed(f->tp, m.tp) || is_fixed(f->cp, m.cp) ||
                    is_fixed(f->pp, m.pp) || is_fixed(f->dp, m.dp))
                    continue;
                add_groups(x, m);
            }
}

/* --- orders --- */

/* Returns by how many ranks the ends of a message between rows differ. */
static int message_stride(const struct pp_mesh *m)
{
    const int size[PP_N_AXES] = {[PP_AXIS_TP] = m->tp,
                                 [PP_AXIS_CP] = m->cp,
                                 [PP_AXIS_DP] = m->dp,
                                 [PP_AXIS_PP] = m->pp};
    enum pp_axis axes[PP_N_AXES];
    int stride = 1;
    pp_mesh_axes(m, axes);
    for (int i = 0; axes[i] != PP_AXIS_PP; i++)
        stride *= size[axes[i]];
    return stride;
}

/* Reports whether two strides cross the same levels from every rank. */
static bool same_levels(const struct pp_machine *m, int a, int b)
{
    bool same = true;
    for (size_t k = 0; k < m->n_levels; k++)
        same &= m->levels[k].size == 0 ||
                (a >= m->levels[k].size && b >= m->levels[k].size);
    return same || a == b;
}

/* Reports whether an order differs from the orders before it on the axes of the
 * mesh. */
static bool is_new_order(struct pp_mesh m)
{
    const int size[PP_N_AXES] = {[PP_AXIS_TP] = m.tp,
                                 [PP_AXIS_CP] = m.cp,
                                 [PP_AXIS_DP] = m.dp,
                                 [PP_AXIS_PP] = m.pp};
    enum pp_axis axes[PP_N_AXES], other[PP_N_AXES];
    pp_mesh_axes(&m, axes);
    for (int before = m.order - 1; before >= 0; before--) {
        int i = 0, k = 0;
        m.order = before;
        pp_mesh_axes(&m, other);
        for (;; i++, k++) {
            while (i < PP_N_AXES && size[axes[i]] == 1)
                i++;
            while (k < PP_N_AXES && size[other[k]] == 1)
                k++;
            if (i == PP_N_AXES || axes[i] != other[k])
                break;
        }
        if (i == PP_N_AXES)
            return false;
    }
    return true;
}

enum { N_TP_FIRST = 6 }; /* orders with tp fastest are the first */

/* Adds the orders of a candidate that take other times than the orders before.
 */
static void expand_orders(struct mesh_search *x, struct mesh_candidate c)
{
    int first = x->p->fixed.order < 0 ? 0 : x->p->fixed.order;
    int last = x->p->fixed.order < 0 ? N_TP_FIRST - 1 : x->p->fixed.order;
    size_t start = x->candidates.n;
    c.ordered = true;
    for (c.mesh.order = first; c.mesh.order <= last; c.mesh.order++) {
        if ((first < last && !is_new_order(c.mesh)) || !is_taken(x, &c.mesh))
            continue;
        struct pp_mesh_least least = least_of(x, &c);
        bool known = false;
        for (size_t i = start, n = x->candidates.n; i < n; i++) {
            const struct node *was = &x->nodes.items[x->nodes.n - (n - i)];
            known |= same(least.bound, was->bound) &&
                     same_levels(x->p->request->machine,
                                 message_stride(&x->candidates.items[i].mesh),
                                 message_stride(&c.mesh));
        }
        if (!known)
            add_candidate(x, &c, least);
    }
}

/* --- the search --- */

/* Reports whether a node has the bound of one mode. */
static bool is_closed(const struct node *n)
{
    return n->shape && n->mode != UNKNOWN;
}

/* Replaces a node by nodes with closer bounds. */
static void open_node(struct mesh_search *x, struct node n)
{
    const struct mesh_candidate c = x->candidates.items[n.candidate];
    if (n.shape)
        expand_shape(x, n);
    else if (c.ordered)
        expand(x, n);
    else
        expand_orders(x, c);
}

/* A row is poor if another plan of its mesh is estimated to be shorter by this
 * share: it stands in the table for all of them. */
#define POOR 0.1

/* Reports whether a node may give the best row. The first visit asks for an
 * estimate below that row, or for a mesh that has no row or a poor one. */
static bool is_wanted(const struct mesh_search *x, const struct node *n,
                      bool again)
{
    const struct pp_split_row *row =
        row_of(x, &x->candidates.items[n->candidate].mesh);
    return (x->p->promising && !again ? is_promising(x, n, x->best)
                                      : n->bound < x->best) ||
           (!again && (!row || n->estimate < row->step * (1 - POOR)));
}

enum { SOME = 8 }; /* estimates of few plans say little */

/* Visits nodes by their estimates, and puts aside what is not wanted. */
static void visit(struct mesh_search *x, bool again)
{
    const struct pp_mesh_problem *p = x->p;
    size_t most = again && p->promising ? SOME : p->n_plans;
    while (x->heap.n > 0 && !x->found->stopped && x->found->n_plans < most) {
        uint32_t at = pp_heap_pop(&x->heap);
        const struct node n = x->nodes.items[at];
        bool closed = is_closed(&n);
        if (n.bound >= longest(x) || (closed && postpone(x, at)))
            continue;
        if (p->promising && !again && closed &&
            !is_promising(x, &n, longest(x))) {
            pp_heap_push(&x->heap, at);
            return;
        }
        if (!is_wanted(x, &n, again))
            PP_VEC_PUSH(&x->aside, at);
        else if (closed)
            plan_node(x, &n);
        else
            open_node(x, n);
        if (p->progress)
            x->found->stopped |= p->progress(p->ctx, x->found->n_meshes,
                                             x->found->n_plans, x->best);
    }
}

/* Visits the most promising nodes, and then others that may give the best row:
 * until there are SOME plans, if only promising ones are asked for. */
static void visit_twice(struct mesh_search *x)
{
    for (int again = 0; again <= 1; again++) {
        visit(x, again);
        while (x->aside.n > 0)
            pp_heap_push(&x->heap, x->aside.items[--x->aside.n]);
    }
}

/* Sets the bound: the least of what was planned and what was not. What has the
 * least bound is bounded closer until its paths are. */
static void set_bound(struct mesh_search *x)
{
    size_t n = x->heap.n;
    x->found->bound = fmin(x->best, x->resolved);
    x->heap.before = is_lower;
    for (x->heap.n = 0; x->heap.n < n;)
        pp_heap_push(&x->heap, x->heap.items[x->heap.n]);
    while (x->heap.n > 0) {
        const struct node of = x->nodes.items[pp_heap_pop(&x->heap)];
        if (is_closed(&of) || x->found->stopped ||
            of.bound >= x->found->bound) {
            x->found->bound = fmin(x->found->bound, of.bound);
            break;
        }
        open_node(x, of);
    }
    if (isinf(x->found->bound))
        x->found->bound = 0;
}

void pp_mesh_search(const struct pp_mesh_problem *p,
                    struct pp_mesh_found *found)
{
    struct mesh_search x = {.p = p,
                            .trainer = pp_split_trainer(p->request),
                            .found = found,
                            .best = INFINITY,
                            .longer = INFINITY,
                            .resolved = INFINITY,
                            .nearest = INFINITY,
                            .described = SIZE_MAX};
    struct pp_split_request one = *p->request;
    one.shard.mesh = (struct pp_mesh){1, 1, 1, 1, 1};
    one.microbatch.tokens = one.microbatch.seq_len;
    x.unlinked = *p->request->machine;
    x.unlinked.n_levels = 0;
    x.heap.before = is_before;
    x.heap.ctx = &x;
    *found = (struct pp_mesh_found){0};
    pp_mesh_classes_init(&x.classes, &found->arena, &one);
    x.units = pp_arena_alloc(&x.arena, x.classes.n, sizeof *x.units);
    add_meshes(&x);
    visit_twice(&x);
    plan_obvious(&x);
    set_bound(&x);
    free(x.candidates.items);
    free(x.nodes.items);
    free(x.heap.items);
    free(x.aside.items);
    free(x.taken.items);
    pp_arena_finish(&x.arena);
}

void pp_mesh_found_finish(struct pp_mesh_found *found)
{
    free(found->rows);
    free(found->points);
    pp_arena_finish(&found->arena);
    *found = (struct pp_mesh_found){0};
}
