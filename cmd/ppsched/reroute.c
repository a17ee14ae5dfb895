/* SPDX-License-Identifier: MIT */
/* --without-rank: the plan of a mesh that has lost ranks, whose work their
 * data-parallel peers take; and a table of what each loss costs. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "ppsched.h"
#include "schedule/check/check.h"
#include "schedule/reroute/reroute.h"

/* Refuses plans whose lanes cannot play lists of their own. */
static int check_plan(const struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    const struct {
        bool holds;
        const char *text;
    } refusals[] = {
        {m->graph.n_copies > 1, "the plan has copies of the weights already"},
        {m->mesh.dp < 2, "there are no data-parallel ranks to take its work"},
        {m->graph.slices.n > 1, "the plan has slices"},
        {m->n_components > 0, "the plan has components"},
        {m->mesh.cp > 1, "the plan has context-parallel ranks"},
        {m->mesh.ep > 1, "data-parallel ranks divide the experts"},
        {m->model.lora.there, "the plan has adapters"},
        {ppsched_trainer(p) != pp_trainers, "the plan is for another trainer"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].holds)
            return pp_fail(&p->tool->err, PP_EXIT_INPUT, "--without-rank: %s",
                           refusals[i].text);
    return pp_check_order(&m->schedule, &p->tool->err)
               ? pp_fail_at(&p->tool->err, "%s: ", p->name)
               : 0;
}

/* Marks the place of a rank: its row and its lane. All tensor-parallel ranks
 * there are lost with it. */
static int lose(const struct ppsched *p, int64_t rank, bool *lost)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    struct pp_place at;
    if (!pp_layout_find(&l, (int)rank, &at))
        return tool_usage(p->tool,
                          "--without-rank: '%d' is not one of the plan's %d "
                          "ranks",
                          (int)rank, pp_layout_ranks(&l));
    lost[at.row * p->manifest.mesh.dp + at.dp] = true;
    return 0;
}

/* Reads the ranks between commas. */
static int read_lost(const struct ppsched *p, bool *lost)
{
    for (const char *at = p->options.without;; at++) {
        char text[32];
        size_t n = strcspn(at, ",");
        int64_t rank;
        snprintf(text, sizeof text, "%.*s", n < 31 ? (int)n : 31, at);
        if (pp_parse_int(text, "--without-rank", 0, INT32_MAX, &rank,
                         &p->tool->err) ||
            lose(p, rank, lost))
            return -1;
        at += n;
        if (!*at)
            return 0;
    }
}

/* Returns the state of a unit if no rank divides it, from the elements that a
 * rank has. With tensor parallelism its weights tell them, in whole lines. */
static double whole_state(const struct ppsched *p, const struct pp_plan_unit *u)
{
    const struct pp_precision *types =
        pp_precision_find(p->manifest.model.dtype);
    types = types ? types : pp_precisions;
    uint64_t n =
        u->weight_bytes > 0
            ? (uint64_t)(u->weight_bytes / (double)types->element_bytes)
            : u->costs.params;
    bool trained = u->role == PP_ROLE_TRAINED;
    return (double)pp_state_sum(
        pp_state_bytes(NULL, pp_held_whole(n, trained), types));
}

/* Sets the stages of the routes, on a mesh without data-parallel ranks: its
 * pipeline ranks are all ranks that are left. */
static int set_stages(struct ppsched *p, struct pp_arena *a,
                      const struct pp_reroute *r)
{
    const struct pp_manifest *m = &p->manifest;
    size_t n = (size_t)r->graph.n_stages;
    struct pp_plan_model model = m->model;
    struct pp_mesh mesh = m->mesh;
    struct pp_plan_stage *stages = pp_arena_alloc(a, n, sizeof *stages);
    model.units = pp_arena_alloc(a, model.n_units, sizeof *model.units);
    for (size_t i = 0; i < model.n_units; i++) {
        model.units[i] = m->model.units[i];
        if (model.has_state)
            model.units[i].state_bytes = whole_state(p, &model.units[i]);
    }
    for (int s = 0; s < r->graph.n_stages; s++)
        stages[s] = m->stages[pp_original(&r->graph, s)];
    mesh.pp = r->graph.n_rows;
    mesh.dp = 1;
    mesh.divided_weights = false;
    mesh.resident = 0;
    return pp_manifest_set_stages(&p->manifest, m->has_model ? &model : NULL,
                                  &mesh, &r->graph, stages, &p->tool->err);
}

/* Returns the microbatches that the fullest rank keeps alive. */
static double most_slots(const struct pp_schedule *s)
{
    int most = 0;
    for (int r = 0; r < s->graph->n_rows; r++)
        most = pp_row_slots(s, r) > most ? pp_row_slots(s, r) : most;
    return most;
}

/* Plans without the lost ranks. */
static int reroute(struct ppsched *p, const bool *lost)
{
    struct pp_arena arena = {0};
    struct pp_reroute r;
    const struct pp_manifest *m = &p->manifest;
    p->most_slots = most_slots(&m->schedule);
    int rc = pp_reroute(&arena, &m->graph, m->mesh.dp,
                        m->schedule.n_microbatches, lost, &r, &p->tool->err) ||
             set_stages(p, &arena, &r);
    if (!rc) {
        p->options.n_microbatches = r.n_microbatches;
        p->copy = r.copy;
        p->schedule = &p->built;
        pp_schedule_init(&p->built, &p->manifest.graph, "auto",
                         r.n_microbatches);
        rc = ppsched_open_costs(p) || ppsched_auto(p);
        p->copy = NULL;
    }
    pp_arena_finish(&arena);
    return rc ? -1 : 0;
}

static bool *no_rank_lost(const struct ppsched *p)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    return pp_calloc((size_t)x->pp * (size_t)x->dp, sizeof(bool));
}

int ppsched_reroute(struct ppsched *p)
{
    if (check_plan(p))
        return -1;
    bool *lost = no_rank_lost(p);
    int rc = read_lost(p, lost) || reroute(p, lost);
    free(lost);
    return rc ? -1 : 0;
}

/* --- each --- */

/* A plan without a rank, or the whole one. */
struct loss {
    double step, bound; /* of the makespan */
    double slots;       /* of the fullest rank */
    size_t bytes;       /* of the fullest rank, if the stages have sizes */
    bool fits;
};

/* Fills x from a schedule that was proved. */
static int measure(struct ppsched *p, struct loss *x)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_schedule *s = p->schedule;
    int n = s->graph->n_rows;
    struct ppsched_bytes *bytes = pp_calloc((size_t)n, sizeof *bytes);
    struct pp_sim sim = {0};
    struct pp_bound bound;
    int rc = ppsched_memory(p, bytes) ||
             pp_simulate(s, &p->costs.costs, s->channel_depth, &sim, err) ||
             ppsched_bound(p, sim.makespan, &bound);
    if (!rc)
        *x = (struct loss){sim.makespan, bound.makespan, most_slots(s),
                           .fits = true};
    for (int r = 0; r < n && !rc && p->costs.sized; r++) {
        size_t all = pp_rank_total(&bytes[r].all);
        x->bytes = all > x->bytes ? all : x->bytes;
    }
    pp_sim_finish(&sim);
    free(bytes);
    return rc ? -1 : 0;
}

/* Makes run a copy of p with a manifest of its own, whose text is given. */
static int copy_run(const struct ppsched *p, const char *text, size_t n,
                    struct ppsched *run)
{
    *run = (struct ppsched){.tool = p->tool,
                            .options = p->options,
                            .name = p->name,
                            .data = p->data};
    return pp_manifest_parse(text, n, p->name, &run->manifest, &p->tool->err);
}

static void finish_run(struct ppsched *run)
{
    ppsched_costs_finish(&run->costs);
    pp_schedule_finish(&run->built);
    pp_packed_finish(&run->packed);
    pp_manifest_finish(&run->manifest);
}

/* Measures the plan without the rank of a row and lane; row -1: all of it. */
static int try_without(const struct ppsched *p, const char *text, size_t n,
                       int row, int lane, struct loss *x)
{
    struct ppsched run;
    if (copy_run(p, text, n, &run))
        return -1;
    bool *lost = no_rank_lost(&run);
    if (row >= 0)
        lost[row * run.manifest.mesh.dp + lane] = true;
    else
        run.schedule = &run.manifest.schedule;
    int rc = (row >= 0 && reroute(&run, lost)) || ppsched_prove(&run) ||
             ppsched_open_costs(&run) || measure(&run, x);
    free(lost);
    finish_run(&run);
    /* A rank without which nothing fits is an answer. */
    if (rc && row >= 0 && p->tool->err.code == PP_EXIT_NO) {
        p->tool->err = (struct pp_err){0};
        *x = (struct loss){0};
        return 0;
    }
    return rc ? -1 : 0;
}

/* Returns the first rank at a place. */
static int rank_at(const struct ppsched *p, int row, int lane)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    const struct pp_place at = {.row = row, .dp = lane};
    return pp_layout_rank(&l, &at);
}

static void print_table(const struct ppsched *p, const struct loss *whole,
                        const struct loss *losses, FILE *f)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    char text[32];
    fprintf(f, "%6s %5s %5s %12s %8s %8s %7s %10s\n", "rank", "row", "lane",
            "step", "x whole", "x bound", "slots", "bytes");
    for (int i = -1; i < x->pp * x->dp; i++) {
        const struct loss *l = i < 0 ? whole : &losses[i];
        int row = i / x->dp, lane = i % x->dp;
        if (i < 0)
            fprintf(f, "%6s %5s %5s", "none", "-", "-");
        else
            fprintf(f, "%6d %5d %5d", rank_at(p, row, lane), row, lane);
        if (!l->fits) {
            fprintf(f, " %12s\n", "does not fit");
            continue;
        }
        pp_format_size(l->bytes, text);
        fprintf(f, " %12.6g %8.4f %8.4f %7g %10s\n", l->step,
                l->step / whole->step, l->step / l->bound, l->slots,
                l->bytes ? text : "-");
    }
}

static void print_loss(struct pp_json_writer *w, const struct loss *l,
                       const struct loss *whole)
{
    pp_json_bool(w, "fits", l->fits);
    if (l->fits) {
        pp_json_real(w, "makespan", l->step);
        pp_json_real(w, "slowdown", l->step / whole->step);
        pp_json_real(w, "lower_bound", l->bound);
        pp_json_real(w, "gap", l->step / l->bound - 1);
        pp_json_real(w, "peak", l->slots);
        if (l->bytes)
            pp_json_uint(w, "rank_bytes", l->bytes);
    }
}

static void print_json(const struct ppsched *p, const struct loss *whole,
                       const struct loss *losses, FILE *f)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    struct pp_json_writer w = pp_json_lines(f);
    pp_json_object(&w, "whole", PP_JSON_INLINE);
    print_loss(&w, whole, whole);
    pp_json_end(&w);
    pp_json_array(&w, "without", PP_JSON_HUGGED);
    for (int i = 0; i < x->pp * x->dp; i++) {
        int row = i / x->dp, lane = i % x->dp;
        pp_json_object(&w, NULL, PP_JSON_INLINE);
        pp_json_int(&w, "rank", rank_at(p, row, lane));
        pp_json_int(&w, "row", row);
        pp_json_int(&w, "lane", lane);
        print_loss(&w, &losses[i], whole);
        pp_json_end(&w);
    }
    pp_json_end(&w);
    pp_json_finish(&w);
}

/* Without data all microbatches are alike, and so are the ranks of a row: one
 * of them stands for all. */
static int try_each(const struct ppsched *p, const char *text, size_t n,
                    struct loss *whole, struct loss *losses)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    if (try_without(p, text, n, -1, 0, whole))
        return -1;
    for (int i = 0; i < x->pp * x->dp; i++) {
        if (i % x->dp > 0 && !p->data)
            losses[i] = losses[i - 1];
        else if (try_without(p, text, n, i / x->dp, i % x->dp, &losses[i]))
            return -1;
    }
    return 0;
}

int ppsched_each(struct ppsched *p, FILE *f)
{
    const struct pp_mesh *x = &p->manifest.mesh;
    struct loss whole, *losses;
    char *text = NULL;
    size_t n = 0;
    if (check_plan(p))
        return -1;
    FILE *memory = open_memstream(&text, &n);
    if (!memory)
        return pp_fail_errno(&p->tool->err, "the manifest");
    pp_manifest_write(&p->manifest, memory);
    if (fclose(memory)) {
        free(text);
        return pp_fail_errno(&p->tool->err, "the manifest");
    }
    losses = pp_calloc((size_t)x->pp * (size_t)x->dp, sizeof *losses);
    int rc = try_each(p, text, n, &whole, losses);
    if (!rc && p->options.json)
        print_json(p, &whole, losses, f);
    else if (!rc)
        print_table(p, &whole, losses, f);
    free(losses);
    free(text);
    return rc;
}
