/* SPDX-License-Identifier: MIT */
/* ppsplit_seconds - --gpu, --flops and --link: the operations of a model as
 * seconds, tokens a second, and the use of a GPU's peak. */

#include <math.h>

#include "cost/step.h"
#include "model/gpu_figures.h"
#include "ppsplit.h"
#include "schedule/kinds/kind.h"

bool split_has_seconds(const struct split_job *j)
{
    return j->request.profile != NULL;
}

void split_choose_gpu(struct split_job *j)
{
    const struct pp_gpu *g = j->gpu ? pp_gpu_find(j->gpu) : NULL;
    if (!g)
        return;
    j->peak = pp_gpu_peak(g, j->precision->name);
    j->flops = j->flops > 0 ? j->flops : j->peak;
    j->link = j->link > 0 ? j->link : g->link;
    if (j->memory_bytes == 0)
        j->memory_bytes = (size_t)g->memory;
}

/* Returns the bytes that AdamW moves for a parameter: the gradient, the weight
 * or master weight and two moments, all but the gradient twice, and a narrow
 * weight. */
static double update_bytes(const struct pp_precision *p)
{
    double wide = (double)p->accumulator_bytes;
    bool narrow = p->element_bytes < p->accumulator_bytes;
    return 7 * wide + (narrow ? (double)p->element_bytes : 0);
}

/* Adds the time of a rank in the exchange of rows between expert-parallel
 * ranks, for each token: F takes inputs to the experts and outputs back, I
 * gradients and the weights of rows, W inputs of both products. It is that of
 * the rank with most rows. Latencies are not known. */
static void add_exchange(const struct split_job *j, struct pp_unit_id u,
                         struct pp_unit_seconds *s)
{
    const struct pp_moe *m = &j->model.moe;
    double ep = j->mesh.ep, away = (ep - 1) / ep;
    if (u.kind != PP_UNIT_LAYER || !pp_layer_set_has(&m->layers, u.layer) ||
        !(j->link > 0))
        return;
    double rows =
        (double)m->top_k * away / (double)pp_mesh_routers(&j->mesh) / j->link;
    double row = (double)(j->model.hidden * j->precision->element_bytes);
    s->fwd[0] += rows * 2 * row;
    s->input[0] +=
        rows * (2 * row + 2 * (double)j->precision->accumulator_bytes);
    s->weight[0] += rows * 2 * row;
}

int split_set_seconds(struct split_job *j)
{
    const struct pp_gpu *g = j->gpu ? pp_gpu_find(j->gpu) : NULL;
    double rate = j->flops * pp_mesh_sharers(&j->mesh);
    if (!(j->flops > 0))
        return 0;
    struct pp_unit_seconds *units =
        pp_arena_alloc(&j->arena, j->n_units, sizeof *units);
    if (!units)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < j->n_units; i++) {
        char fqn[PP_FQN_TEXT];
        struct pp_unit_id u = pp_model_unit(&j->model, i);
        const struct pp_flops f = pp_unit_fwd_flops(&j->model, u);
        double pairs = f.per_pair * split_seen(j, f);
        const struct pp_cost dense =
            pp_cost_of(f.per_token, 0, u.kind == PP_UNIT_HEAD);
        const struct pp_cost attended = pp_cost_of(0, pairs, false);
        pp_model_fqn(&j->model, u, fqn);
        units[i] = (struct pp_unit_seconds){
            .fqn = pp_arena_strdup(&j->arena, fqn),
            .fwd = {dense.forward / rate, attended.forward / rate},
            .input = {dense.input_grad / rate, attended.input_grad / rate},
            .weight = {dense.weight_grad / rate, attended.weight_grad / rate}};
        add_exchange(j, u, &units[i]);
        if (!units[i].fqn)
            return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    }
    j->profile = (struct pp_profile){
        .units = units,
        .n_units = j->n_units,
        .seconds_per_byte = j->link > 0 ? 1 / j->link : 0,
        .seconds_per_param = g ? update_bytes(j->precision) / g->bandwidth : 0};
    j->request.profile = &j->profile;
    return 0;
}

/* Returns the operations of a step that a model needs: three times those of its
 * forward, without what is computed again. */
static double useful_flops(const struct split_job *j)
{
    const struct pp_default_microbatch_part all =
        pp_default_microbatch_slice(&j->request.microbatch, 0, 1);
    struct pp_model whole = j->model;
    double sum = 0;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        whole.encoders[i].sharers = 1; /* the images of all ranks */
        whole.encoders[i].makers = 0;
        whole.encoders[i].tp = 1;
    }
    whole.moe.skew = NULL;
    for (size_t i = 0; i < j->n_units; i++) {
        const struct pp_flops f =
            pp_unit_fwd_flops(&whole, pp_model_unit(&whole, i));
        sum += f.per_token * all.tokens +
               f.per_pair * split_seen(j, f) * all.pairs;
    }
    return 3 * sum;
}

int64_t split_encoder_group(const struct split_job *j, size_t encoder)
{
    const struct pp_mesh *x = &j->encoders[encoder];
    return (int64_t)x->dp * pp_mesh_sharers(x);
}

int64_t split_n_ranks(const struct split_job *j)
{
    int64_t of_row = (int64_t)j->mesh.dp * pp_mesh_sharers(&j->mesh);
    int64_t n = 0, rows = j->n_ranks;
    for (size_t i = 0; i < PP_MAX_ENCODERS; i++) {
        n += j->encoders[i].pp * split_encoder_group(j, i);
        rows -= j->encoders[i].pp;
    }
    return n + rows * of_row;
}

/* Makes the schedule of a plan on the graph of its manifest, as ppsched does: a
 * kind begins anew, as it also reduces gradients there. */
static int make_schedule(const struct pp_split_run *run, struct pp_manifest *m,
                         struct pp_schedule *s, struct pp_err *err)
{
    const struct pp_kind_options o = {.n_microbatches =
                                          (int)run->n_microbatches};
    m->graph.n_slices = run->graph.n_slices;
    if (!run->request->search_order)
        return pp_schedule_init(s, &m->graph, run->kind->name, o.n_microbatches,
                                err) ||
                       pp_kind_emit(run->kind, s, &o, err) || pp_lower(s, err)
                   ? -1
                   : 0;
    if (pp_schedule_copy(run->order.rows ? &run->order : &run->lowered, s, err))
        return -1;
    s->graph = &m->graph;
    return pp_lower_again(s, NULL, err);
}

int split_step_seconds(const struct split_job *j,
                       const struct pp_split_plan *plan, double *seconds,
                       struct pp_err *err)
{
    struct pp_arena a = {0};
    struct pp_manifest m;
    struct pp_schedule s = {0};
    *seconds = INFINITY;
    if (!plan->run.simulated)
        return 0;
    if (pp_manifest_init(&m, err))
        return -1;
    int rc = split_fill_manifest(j, plan, &a, &m, err);
    if (rc == 0 && !m.has_schedule)
        rc = make_schedule(&plan->run, &m, &s, err);
    if (rc == 0)
        rc = pp_step_seconds(pp_manifest_plan(&m),
                             m.has_schedule ? &m.schedule : &s, seconds, err);
    pp_schedule_finish(&s);
    pp_manifest_finish(&m);
    pp_arena_finish(&a);
    return rc;
}

struct split_speed split_speed_of(const struct split_job *j, double step,
                                  int64_t n_microbatches)
{
    double n = (double)n_microbatches;
    double ranks = (double)split_n_ranks(j) / j->mesh.dp;
    return (struct split_speed){
        .tokens = n * (double)j->tokens * j->mesh.dp / step,
        .mfu =
            j->peak > 0 ? n * useful_flops(j) / (step * ranks * j->peak) : 0};
}
