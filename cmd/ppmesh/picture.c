/* SPDX-License-Identifier: MIT */
/* picture - --svg: step against memory of all meshes. Meshes that were
 * only bounded are rings, and plans are points; a line joins the plans than
 * which no other is both shorter and smaller. */
#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "draw/chart.h"
#include "ppmesh.h"

/* Meshes further from the first row and from the limit are left out: they would
 * press all others into a corner. */
#define FAR 2

/* The series of the picture. The front is its first points. */
enum { FRONT, BOUND, UNFIT, PLAN, BEST, N_SERIES };

static int series_of(const struct mesh_job *j, const struct pp_mesh_point *p)
{
    const struct pp_mesh_found *x = &j->found;
    return !p->fits                                  ? UNFIT
           : !p->kind                                ? BOUND
           : x->n_rows && p->step <= x->rows[0].step ? BEST
                                                     : PLAN;
}

static void add_point(struct mesh_job *j, const struct pp_mesh_point *p,
                      struct pp_series *s, double *x, double *y,
                      const char **labels, const char **notes)
{
    const struct pp_split_row row = {
        .request = {.shard.mesh = p->mesh,
                    .n_chunks = 1,
                    .microbatch = {.tokens = p->micro_batch, .seq_len = 1}}};
    char mesh[MESH_TEXT], need[32], text[120 + MESH_TEXT];
    mesh_format(&row, mesh);
    pp_format_size(pp_size_of(p->need), need);
    snprintf(text, sizeof text, "%s, %s: %s %.4g s, %s", mesh,
             p->kind ? p->kind : "not planned", p->kind ? "step" : "at least",
             p->step, need);
    x[s->n] = p->step;
    y[s->n] = p->need;
    labels[s->n] = p->kind ? pp_arena_strdup(&j->split.arena, mesh) : "";
    notes[s->n++] = pp_arena_strdup(&j->split.arena, text);
}

static int by_step(const void *a, const void *b)
{
    const struct pp_mesh_point *x = *(struct pp_mesh_point *const *)a,
                               *y = *(struct pp_mesh_point *const *)b;
    return x->step < y->step ? -1 : x->step > y->step;
}

/* Adds the plans that fit than which no other is both shorter and smaller. */
static void add_front(struct mesh_job *j, struct pp_series *s, double *x,
                      double *y)
{
    const struct pp_mesh_found *f = &j->found;
    const struct pp_mesh_point **plans =
        pp_arena_alloc(&j->split.arena, f->n_points + 1, sizeof *plans);
    size_t n = 0;
    for (size_t i = 0; i < f->n_points; i++)
        if (f->points[i].kind && f->points[i].fits)
            plans[n++] = &f->points[i];
    qsort(plans, n, sizeof *plans, by_step);
    for (size_t i = 0; i < n; i++)
        if (s->n == 0 || plans[i]->need < y[s->n - 1]) {
            x[s->n] = plans[i]->step;
            y[s->n++] = plans[i]->need;
        }
}

/* Fills the series; one without a point has no name in the legend. Returns how
 * many meshes are left out. */
static size_t fill_series(struct mesh_job *j, struct pp_series series[N_SERIES])
{
    static const struct {
        const char *name;
        int color;
        bool hollow;
    } looks[N_SERIES] = {
        [FRONT] = {"no other plan is shorter and smaller", 0, 0},
        [BOUND] = {"bound of a mesh", 5, true},
        [UNFIT] = {"does not fit", 6, true},
        [PLAN] = {"plan", 0, false},
        [BEST] = {"shortest step", 4, false}};
    struct pp_mesh_found *f = &j->found;
    double most_step = f->n_rows ? FAR * f->rows[0].step : INFINITY,
           most_need = FAR * (double)j->split.memory_bytes;
    size_t left_out = 0;
    for (int k = 0; k < N_SERIES; k++) {
        struct pp_arena *a = &j->split.arena;
        double *x = pp_arena_alloc(a, f->n_points + 1, sizeof *x);
        double *y = pp_arena_alloc(a, f->n_points + 1, sizeof *y);
        const char **labels =
            pp_arena_alloc(a, f->n_points + 1, sizeof *labels);
        const char **notes = pp_arena_alloc(a, f->n_points + 1, sizeof *notes);
        series[k] = (struct pp_series){.mark = k == FRONT ? PP_CHART_LINE
                                                          : PP_CHART_POINTS,
                                       .color = looks[k].color,
                                       .hollow = looks[k].hollow,
                                       .x = x,
                                       .y = y,
                                       .labels = k == FRONT ? NULL : labels,
                                       .notes = k == FRONT ? NULL : notes};
        if (k == FRONT)
            add_front(j, &series[k], x, y);
        for (size_t i = 0; i < f->n_points; i++) {
            const struct pp_mesh_point *p = &f->points[i];
            bool near = p->step <= most_step && p->need <= most_need;
            left_out += k == FRONT && !near;
            if (near && series_of(j, p) == k)
                add_point(j, p, &series[k], x, y, labels, notes);
        }
        series[k].name = series[k].n > 0 ? looks[k].name : NULL;
    }
    return left_out;
}

int mesh_draw(struct mesh_job *j)
{
    struct pp_series series[N_SERIES];
    char title[160], label[120];
    size_t left_out = fill_series(j, series);
    snprintf(label, sizeof label, "step (s)");
    if (left_out)
        snprintf(
            label, sizeof label,
            "step (s); %zu more meshes are beyond %d times the shortest step "
            "or the limit",
            left_out, FAR);
    snprintf(title, sizeof title, "%zu meshes of %lld ranks, %zu plans",
             j->found.n_meshes, (long long)j->gpus, j->found.n_plans);
    const struct pp_chart chart = {.x_label = label,
                                   .y_label = "memory of a rank: plans, the "
                                              "fullest; bounds, the mean",
                                   .series = series,
                                   .n_series = N_SERIES,
                                   .from_zero = true,
                                   .bytes = true,
                                   .height = 420,
                                   .limit = (double)j->split.memory_bytes,
                                   .limit_label = "--memory"};
    FILE *f = tool_open(&j->split.t, j->svg);
    if (!f)
        return -1;
    pp_charts(f, title, &chart, 1, 1);
    return tool_close(&j->split.t, f);
}
