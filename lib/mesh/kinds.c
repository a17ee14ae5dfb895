/* SPDX-License-Identifier: MIT */
#include "mesh/kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Orders are searched at a glance on every placement and number of chunks, from
 * the best row there, then for longer on the best of these, until the step is
 * NEAR the bound. */
enum { N_EFFORTS = 2, N_PLACES = 7 };
static const struct {
    size_t places;
    double seconds;
} efforts[N_EFFORTS] = {{N_PLACES, 0.1}, {3, 0.5}};
#define NEAR 1.003

/* B on the last stage is tried for a row this close to the best. */
#define CLOSE 1.02

/* A placement and a number of chunks. */
struct chunk_place {
    enum pp_placement placement;
    int n_chunks;
};
static const struct chunk_place places[N_PLACES] = {
    {PP_PLACEMENT_LOOP, 1}, {PP_PLACEMENT_LOOP, 2}, {PP_PLACEMENT_LOOP, 3},
    {PP_PLACEMENT_LOOP, 4}, {PP_PLACEMENT_V, 2},    {PP_PLACEMENT_V, 3},
    {PP_PLACEMENT_V, 4}};

struct kind_search {
    const struct pp_mesh_contest *c;
    struct pp_mesh_kinds *out;
    bool whole_saves; /* B of the last unit takes less than I and W */
};

/* --- one row --- */

static bool is_at(const struct pp_split_row *r, const struct chunk_place *p)
{
    return r->request.placement == p->placement &&
           r->request.n_chunks == p->n_chunks;
}

/* Returns the step of the best row; infinite if none fits. */
static double best_step(const struct kind_search *x)
{
    double least = INFINITY;
    for (size_t i = 0; i < x->out->n; i++)
        if (x->out->rows[i].fits)
            least = fmin(least, x->out->rows[i].step);
    return least;
}

/* Leaves the better of the last row and an earlier one of the same kind and the
 * same place. */
static void leave_better(struct pp_mesh_kinds *out)
{
    const struct pp_split_row *last = &out->rows[out->n - 1];
    const struct pp_split_request *q = &last->request;
    const struct chunk_place at = {q->placement, (int)q->n_chunks};
    for (size_t i = 0; i + 1 < out->n; i++) {
        struct pp_split_row *r = &out->rows[i];
        if (!is_at(r, &at) || r->request.search_order != q->search_order ||
            (!q->search_order && strcmp(r->request.kind, q->kind) != 0))
            continue;
        if (pp_split_row_compare(last, r) < 0)
            *r = *last;
        out->n--;
        return;
    }
}

/* Adds the row of a request, and keeps its plan if none is better. */
static struct pp_split_row add_row(struct kind_search *x,
                                   struct pp_split_request q)
{
    struct pp_mesh_kinds *out = x->out;
    struct pp_split_plan plan;
    pp_array_reserve(&out->rows, &out->capacity, out->n + 1, sizeof *out->rows);
    struct pp_split_row *row = &out->rows[out->n++];
    if (x->c->tell)
        x->c->tell(x->c->ctx, q.search_order ? NULL : pp_kind_find(q.kind),
                   (int)q.n_chunks);
    pp_split_row_plan(&q, &out->arena, row, &plan);
    /* A search that finds no order leaves the kind's. */
    bool found =
        !row->why && (!q.search_order || !strcmp(plan.run.name, "auto"));
    bool best = found;
    for (size_t i = 0; best && i + 1 < out->n; i++)
        best = pp_split_row_compare(row, &out->rows[i]) < 0;
    if (best) {
        out->request = q;
        pp_split_plan_finish(&out->plan);
        pp_split_plan_move(&plan, &out->plan);
        out->plan.run.request = &out->request;
    }
    pp_split_plan_finish(&plan);
    const struct pp_split_row added = *row;
    if (found)
        leave_better(out);
    else
        out->n--;
    return added;
}

/* --- named kinds --- */

/* Sets the placement that a kind is made for. Returns false if the caller wants
 * another one. */
static bool set_place(const struct pp_mesh_contest *c, const struct pp_kind *k,
                      struct pp_split_request *q)
{
    q->placement = k->copies ? PP_PLACEMENT_BOTH_WAYS
                   : k->v    ? PP_PLACEMENT_V
                             : PP_PLACEMENT_LOOP;
    /* A single chunk is the same in a loop and in a V. */
    return !c->has_placement || q->placement == c->request->placement ||
           (k->n_chunks <= 1 && !k->copies &&
            c->request->placement != PP_PLACEMENT_BOTH_WAYS);
}

/* Adds the rows of a kind, for each number of chunks. */
static void add_kind(struct kind_search *x, const struct pp_kind *kind)
{
    const struct pp_mesh_contest *c = x->c;
    struct pp_split_request q = *c->request;
    struct pp_split_row refused = {.why = NULL};
    int first = kind->n_chunks > 1 ? 2 : 1;
    int last = kind->n_chunks > 1 ? PP_MESH_KIND_CHUNKS : 1;
    size_t n = x->out->n;
    if (!set_place(c, kind, &q))
        return;
    q.kind = kind->name;
    q.search_order = false;
    q.shortest = true;
    q.plan_buffers = true;
    for (int chunks = first; chunks <= last; chunks++) {
        if (c->has_chunks && chunks != c->request->n_chunks)
            continue;
        q.n_chunks = chunks;
        q.whole_head = false;
        const struct pp_split_row row = add_row(x, q);
        /* The kind's own number of chunks says best what is wrong. */
        if (row.why && (!refused.why || chunks <= kind->n_chunks))
            refused = row;
        q.whole_head =
            row.halves && x->whole_saves && row.step <= CLOSE * best_step(x);
        if (q.whole_head)
            add_row(x, q);
    }
    if (x->out->n == n && refused.why)
        x->out->rows[x->out->n++] = refused;
}

/* --- orders --- */

/* Returns the best row that fits at a place, or NULL. */
static const struct pp_split_row *best_at(const struct kind_search *x,
                                          const struct chunk_place *p)
{
    const struct pp_split_row *best = NULL;
    for (size_t i = 0; i < x->out->n; i++) {
        const struct pp_split_row *r = &x->out->rows[i];
        if (r->fits && is_at(r, p) &&
            (!best || pp_split_row_compare(r, best) < 0))
            best = r;
    }
    return best;
}

/* Sorts places by their best rows; places without one are last. */
static void sort_places(const struct kind_search *x, struct chunk_place *sorted)
{
    double steps[N_PLACES];
    for (size_t i = 0; i < N_PLACES; i++) {
        const struct pp_split_row *r = best_at(x, &places[i]);
        double step = r ? r->step : INFINITY;
        size_t k = i;
        for (; k > 0 && steps[k - 1] > step; k--) {
            steps[k] = steps[k - 1];
            sorted[k] = sorted[k - 1];
        }
        steps[k] = step;
        sorted[k] = places[i];
    }
}

/* Searches an order at a place, from the best row there, for so many seconds.
 */
static void add_order(struct kind_search *x, const struct chunk_place *p,
                      double seconds)
{
    const struct pp_mesh_contest *c = x->c;
    const struct pp_split_row *r = best_at(x, p);
    struct pp_split_request q = r ? r->request : *c->request;
    bool modes = c->request->stage_modes || c->request->recompute_auto;
    if ((c->has_chunks && p->n_chunks != c->request->n_chunks) ||
        (c->has_placement && p->n_chunks > 1 &&
         p->placement != c->request->placement) ||
        p->n_chunks * q.n_ranks > (int64_t)pp_model_n_units(q.shard.model))
        return;
    q.search_order = true;
    q.seconds = seconds;
    q.shortest = true;
    q.plan_buffers = true;
    q.placement = p->placement;
    q.n_chunks = p->n_chunks;
    q.whole_head = false;
    if (!r)
        q.kind = NULL;
    else if (!modes && !c->request->bounds) { /* modes are chosen for a split */
        q.start = q.bounds;
        q.bounds = NULL;
    }
    add_row(x, q);
}

static void add_orders(struct kind_search *x)
{
    struct chunk_place sorted[N_PLACES];
    for (size_t e = 0; e < N_EFFORTS; e++) {
        sort_places(x, sorted);
        for (size_t i = 0; i < efforts[e].places; i++)
            if (best_step(x) > x->out->bound.step * NEAR)
                add_order(x, &sorted[i], efforts[e].seconds);
    }
}

/* Finds the bound, without recomputation if stages may choose it. */
static int find_bound(struct kind_search *x, struct pp_err *err)
{
    struct pp_split_request q = *x->c->request;
    struct pp_split_run run;
    q.stage_modes = NULL;
    q.recompute_auto = false;
    q.kind = "gpipe";
    q.placement = PP_PLACEMENT_LOOP;
    q.n_chunks = 1;
    q.memory_bytes = 0;
    int rc = pp_split_run_init(&run, &q, err);
    if (!rc) {
        x->out->bound = pp_split_run_least(&run);
        const double *head = run.times[run.n_units - 1];
        double halves = head[PP_TIME_I] + head[PP_TIME_W];
        x->whole_saves = head[PP_TIME_B] < halves * (1 - 1e-9);
    }
    pp_split_run_finish(&run);
    return rc;
}

int pp_mesh_compare(const struct pp_mesh_contest *c, struct pp_mesh_kinds *out,
                    struct pp_err *err)
{
    struct kind_search x = {.c = c, .out = out};
    *out = (struct pp_mesh_kinds){.n = 0};
    if (c->orders &&
        (pp_split_check_meshes(c->request, err) || find_bound(&x, err)))
        return -1;
    for (const struct pp_kind *const *k = c->kinds; *k; k++)
        add_kind(&x, *k);
    if (c->orders)
        add_orders(&x);
    qsort(out->rows, out->n, sizeof *out->rows, pp_split_row_compare);
    return 0;
}

void pp_mesh_kinds_finish(struct pp_mesh_kinds *x)
{
    pp_split_plan_finish(&x->plan);
    free(x->rows);
    pp_arena_finish(&x->arena);
    *x = (struct pp_mesh_kinds){.n = 0};
}
