/* SPDX-License-Identifier: MIT */
/* fit_profile - the coefficients of a profile, from recorded times.
 *
 * Each part of a unit is fitted to the tokens and the attended pairs of the
 * recorded microbatches. If the data cannot tell pairs from tokens, the two
 * share the time as they share the operations (model/cost.h). The time of a
 * part without attention depends on tokens alone.
 *
 * Units of an encoder are fitted to its own rows, the patches with class
 * tokens, and to the pairs of rows of an image. */
#include "run/train/rank.h"

#include <math.h>
#include <stdlib.h>

#include "model/cost.h"
#include "model/edge.h"
#include "model/profile.h"
#include "model/vision.h"
#include "run/train/record.h"
#include "schedule/simulate/sim.h"

/* Finds how tokens and pairs share the operations of a unit. */
static void find_share(const struct pp_model *m, struct pp_unit_id u,
                       enum pp_layer_time time, double share[2])
{
    const struct pp_shard all = pp_shard_whole(m);
    struct pp_flops f = pp_unit_fwd_flops(&all, u);
    bool head = u.kind == PP_UNIT_HEAD;
    const struct pp_cost c[2] = {
        pp_cost_of(f.per_token, 0, head ? PP_LOGITS_AGAIN : PP_LOGITS_KEPT),
        pp_cost_of(0, f.per_pair, PP_LOGITS_KEPT)};
    for (int k = 0; k < 2; k++)
        share[k] = time == PP_LAYER_TIME_FWD     ? c[k].forward
                   : time == PP_LAYER_TIME_INPUT ? c[k].input_grad
                                                 : c[k].weight_grad;
    if (pp_unit_is_vision(u)) /* operations are for all of an image */
        share[0] *=
            (double)pp_image_rows(pp_unit_encoder(m, u),
                                  all.images[u.component].patches, u.component);
    if (share[0] <= 0)
        share[0] = 1; /* a unit without products still moves data */
}

/* Returns the tokens and pairs that a layer works on; for an encoder whose
 * tensors ranks divide, as if each did the work of some of its rows. */
static struct pp_fit_point size_of(const struct pp_rank *rank,
                                   const struct pp_layer *l,
                                   const struct pp_part_size *s)
{
    size_t k = l->unit.component;
    if (pp_rows_of_tokens(l->rows))
        return (struct pp_fit_point){{s->tokens, s->pairs}, 0};
    double tp = (double)pp_layout_encoder_tp(&rank->env.layout, k);
    return (struct pp_fit_point){
        {(double)s->images[k].rows / tp, s->images[k].pairs / tp}, 0};
}

/* Collects the measurements of one part of a layer l of the rank, which has the
 * number `at` in the recorder. With pairs, the part depends on pairs too.
 * Returns how many there are. */
static size_t collect(const struct pp_rank *rank, int skip, size_t at,
                      const struct pp_layer *l, enum pp_layer_time time,
                      bool pairs, struct pp_fit_point *points)
{
    const struct pp_recorder *r = &rank->recorder;
    size_t n = 0, passes = (size_t)r->kept.n_passes;
    for (int k = skip; k < pp_recorder_n_kept(r); k++) {
        size_t part = (size_t)pp_recorder_place(r, k) * passes * r->parts;
        for (size_t i = part; i < part + passes * r->parts; i++) {
            double y = r->seconds[(i * r->n_layers + at) * PP_N_LAYER_TIMES +
                                  (size_t)time];
            struct pp_fit_point point = size_of(rank, l, &r->sizes[i]);
            point.x[1] = pairs ? point.x[1] : 0;
            point.y = y;
            if (y >= 0)
                points[n++] = point;
        }
    }
    return n;
}

static void fit_layer(const struct pp_rank *r, int skip, size_t at,
                      const struct pp_layer *l, struct pp_fit_point *points,
                      struct pp_unit_fit *fit)
{
    const struct pp_model *m = r->job->model;
    for (int time = 0; time < PP_N_LAYER_TIMES; time++) {
        double share[2], c[2];
        find_share(m, pp_model_unit(m, l->number), (enum pp_layer_time)time,
                   share);
        bool pairs = share[1] > 0;
        size_t n =
            collect(r, skip, at, l, (enum pp_layer_time)time, pairs, points);
        bool both = pp_least_deviation(points, n, share, c);
        fit->alike += pairs && !both;
        fit->seconds[time][0] += c[0];
        fit->seconds[time][1] += c[1];
    }
    fit->n++;
}

int pp_fit_layers(const struct pp_rank *r, int skip, struct pp_unit_fit *fits,
                  struct pp_err *err)
{
    const struct pp_recorder *rec = &r->recorder;
    const struct pp_graph *g = r->worker.graph;
    size_t n = (size_t)rec->kept.n_steps * (size_t)rec->kept.n_passes;
    struct pp_fit_point *points = calloc(n * rec->parts, sizeof *points);
    if (!points)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < g->n_stages; s++)
        for (size_t i = 0; i < r->worker.engine.stages[s].n_layers; i++) {
            const struct pp_layer *l = &r->worker.engine.stages[s].layers[i];
            fit_layer(r, skip, rec->first_layer[s] + i, l, points,
                      &fits[l->number]);
        }
    free(points);
    return 0;
}

/* --- messages --- */

/* Returns the bytes of a message of the k-th kept step: the rows of its slice
 * times the width, both of the edges that it crosses. */
static double message_bytes(const struct pp_rank *r, int k, int pass,
                            struct pp_action a)
{
    const struct pp_edges *x =
        &r->worker.engine.passed[a.op == PP_SEND_F ? a.stage : a.peer];
    const struct pp_recorder *rec = &r->recorder;
    size_t slices = (size_t)rec->schedule->graph->slices.n;
    size_t at = (size_t)pp_recorder_place(rec, k) * (size_t)rec->kept.n_passes +
                (size_t)pass;
    size_t part = (size_t)a.microbatch * slices + (size_t)a.slice;
    const struct pp_part_size *size = &rec->sizes[at * rec->parts + part];
    double elements = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct pp_edge e = x->at[i];
        double rows = size->tokens;
        if (!pp_rows_of_tokens(e.rows))
            rows = (double)(e.rows < PP_ROWS_FEATURES
                                ? size->images[pp_rows_component(e.rows)].rows
                                : size->images[pp_rows_component(e.rows)]
                                      .features);
        elements += rows * (double)e.width;
    }
    return elements * (double)r->kernels.element_bytes;
}

/* Collects the messages of a pass whose receiver was waiting for them: the time
 * from the start of the send to the arrival. The arrival of the other messages
 * is unknown, as they came before the receiver asked. Adds to *n. */
static int collect_pass(const struct pp_rank *r, const struct pp_record *record,
                        int k, int pass, struct pp_fit_point *points, size_t *n,
                        struct pp_err *err)
{
    struct pp_sim sim = {0};
    struct pp_messages messages = {0};
    int rc = pp_record_view(record, k, pass, 0, &sim, err);
    if (!rc)
        pp_messages_find(record->schedule, sim.rows, NULL, 0, &messages);
    for (size_t i = 0; i < messages.n && !rc; i++) {
        const struct pp_message *m = &messages.at[i];
        double bytes = message_bytes(r, k, pass, m->action);
        if (bytes > 0 && sim.rows[m->to].spans[m->recv].start <= m->leaves)
            /* The clocks of two machines may differ by more than the time. */
            points[(*n)++] = (struct pp_fit_point){
                {bytes, 1}, fmax(m->arrives - m->leaves, 0)};
    }
    pp_messages_finish(&messages);
    pp_sim_finish(&sim);
    return rc;
}

int pp_fit_messages(const struct pp_rank *r, const struct pp_record *record,
                    int skip, struct pp_profile *p, struct pp_err *err)
{
    /* Messages of one size do not tell latency from bandwidth. */
    static const double share[] = {1, 0};
    size_t passes = (size_t)record->n_steps * (size_t)record->n_passes, n = 0;
    struct pp_fit_point *points =
        calloc(passes * pp_schedule_count(record->schedule, PP_SEND_OPS) + 1,
               sizeof *points);
    int rc = points ? 0 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int k = skip; k < record->n_steps && !rc; k++)
        for (int pass = 0; pass < record->n_passes && !rc; pass++)
            rc = collect_pass(r, record, k, pass, points, &n, err);
    double c[2] = {0};
    if (!rc)
        pp_least_deviation(points, n, share, c);
    p->seconds_per_byte = c[0];
    p->latency = c[1];
    free(points);
    return rc;
}

/* --- the time outside the schedule --- */

/* Returns the time that a rank needs in a step before its schedule starts and
 * after the schedule of the last rank has ended. */
static double time_outside(const struct pp_record *record, int rank, int k)
{
    const double *mine = pp_record_marks(record, rank, k);
    double last = 0;
    for (int q = 0; q < record->schedule->graph->n_rows; q++)
        last = fmax(last, pp_record_marks(record, q, k)[PP_MARK_PLAYED]);
    return mine[PP_MARK_ZEROED] - mine[PP_MARK_START] + mine[PP_MARK_UPDATED] -
           last;
}

/* Returns the parameters that a rank of a row updates. */
static double updated_params(const struct pp_rank *r, int row)
{
    const struct pp_graph *g = r->worker.graph;
    const struct pp_model *m = r->job->model;
    double sum = 0;
    for (int s = 0; s < g->n_stages; s++)
        for (size_t i = 0; g->stages[s].row == row && i < r->job->stages[s].n;
             i++) {
            const struct pp_unit_id u =
                pp_model_unit(m, r->job->stages[s].first + i);
            const struct pp_mesh x =
                pp_layout_mesh(&r->env.layout, row, pp_unit_is_vision(u));
            sum += pp_mesh_own(&x, pp_mesh_held(&x, m, u).trained);
        }
    return sum;
}

int pp_fit_step(const struct pp_rank *r, const struct pp_record *record,
                int skip, struct pp_profile *p, struct pp_err *err)
{
    static const double share[] = {1, 0};
    const struct pp_graph *g = record->schedule->graph;
    size_t n = 0;
    double c[2];
    struct pp_fit_point *points =
        calloc((size_t)(record->n_steps * g->n_rows), sizeof *points);
    if (!points)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int rank = 0; rank < g->n_rows; rank++) {
        double params = updated_params(r, rank);
        for (int k = skip; k < record->n_steps; k++)
            points[n++] = (struct pp_fit_point){{params, 0},
                                                time_outside(record, rank, k)};
    }
    pp_least_deviation(points, n, share, c);
    p->seconds_per_param = c[0];
    free(points);
    return 0;
}
