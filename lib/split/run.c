/* SPDX-License-Identifier: MIT */
/* One schedule on one model: the order of the work, and the memory that a split
 * needs on each rank. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "model/layout.h"
#include "model/vision.h"
#include "split/plan.h"

/* Stages times microbatches that are simulated. For longer schedules only the
 * costs of ranks are compared. */
enum { MAX_CELLS = 1 << 20 };

/* --- the schedule --- */

/* Returns the kind that a placement is usually for. */
static const char *usual_kind(const struct pp_split_request *q)
{
    switch (q->placement) {
    case PP_PLACEMENT_BOTH_WAYS:
        return "dualpipe";
    case PP_PLACEMENT_V:
        return q->n_chunks == 1   ? "1f1b"
               : q->n_chunks == 2 ? "zbv"
               : q->n_chunks % 2  ? "gpipe"
                                  : "hanayo";
    case PP_PLACEMENT_LOOP:
        break;
    }
    return q->n_chunks == 1 ? "1f1b" : "interleaved";
}

/* Joins I and W of a stage to B, in the place of I. */
static void join_backward(struct pp_schedule *s, int stage)
{
    struct pp_row *row = &s->rows[s->graph->stages[stage].row];
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        struct pp_action a = row->actions[i];
        if (a.stage == stage && a.op == PP_W)
            continue;
        if (a.stage == stage && a.op == PP_I)
            a.op = PP_B;
        row->actions[n++] = a;
    }
    row->n = n;
}

static int emit_kind(const struct pp_split_run *run, int64_t n_microbatches,
                     struct pp_schedule *s, struct pp_err *err)
{
    struct pp_kind_options o = {.n_microbatches = (int)n_microbatches};
    pp_schedule_init(s, &run->graph, run->kind->name, (int)n_microbatches);
    if (pp_kind_emit(run->kind, s, &o, err))
        return -1;
    if (run->request->whole_head)
        join_backward(s, run->graph.n_stages - 1);
    return 0;
}

/* Emits the usual kind with the next number of microbatches that it can run. */
static int emit_usual(struct pp_split_run *run, struct pp_err *err)
{
    int64_t most = run->n_microbatches + 2 * run->request->n_ranks;
    for (int64_t m = run->n_microbatches;; m++) {
        struct pp_err refusal = {0};
        if (!emit_kind(run, m, &run->order, &refusal)) {
            run->n_microbatches = m;
            return 0;
        }
        pp_schedule_finish(&run->order);
        if (refusal.code != PP_EXIT_INPUT || m == most) {
            *err = refusal;
            return -1;
        }
    }
}

/* A stage that recomputes keys and values keeps none for later slices. */
static int check_slices(const struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_split_request *q = run->request;
    size_t n = q->stage_modes ? run->n_stages : 0;
    bool keys = !n && (q->recompute & PP_AGAIN_QKV);
    for (size_t s = 0; s < n; s++)
        keys |= q->stage_modes[s] & PP_AGAIN_QKV;
    if (run->kind->slices < 2 || !keys)
        return 0;
    return pp_fail_setting(err, PP_EXIT_INPUT, "recompute", "selective",
                           "%s divides sequences into %d slices, and a stage "
                           "that recomputes keys and values keeps none for "
                           "later ones",
                           run->kind->name, run->kind->slices);
}

static int set_schedule(struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_split_request *q = run->request;
    const char *name =
        q->search_order && !q->kind ? pp_split_best_kind(q) : q->kind;
    run->kind = pp_kind_find(name ? name : usual_kind(q));
    run->name = run->kind->name;
    run->kind_fits = name != NULL;
    const struct pp_trainer_order order = {
        .kind = q->search_order ? "auto" : run->name,
        .slices = run->kind->slices,
        .copies = q->placement == PP_PLACEMENT_BOTH_WAYS,
        .v = q->placement == PP_PLACEMENT_V};
    if (pp_trainer_check(pp_split_trainer(q), &q->shard.mesh, &run->backend,
                         &order, err) ||
        pp_split_graph(run, err) || check_slices(run, err))
        return -1;
    run->graph.slices.n = run->kind->slices ? run->kind->slices : 1;
    if (q->search_order && (run->graph.n_copies > 1 || run->graph.slices.n > 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "auto orders whole sequences on one copy of the "
                       "weights, not slices or copies");
    run->graph.resident = pp_split_trainer(q) == pp_trainers
                              ? pp_mesh_resident(&q->shard.mesh)
                              : 0;
    for (size_t k = 0; q->encoders && k < run->n_encoded; k++)
        if (!run->graph.resident)
            run->graph.resident = pp_mesh_resident(&q->encoders[k]);
    if ((int64_t)run->graph.n_stages * run->graph.slices.n >
        MAX_CELLS / run->n_microbatches) {
        if (q->kind || q->search_order || q->speeds || q->recompute_auto)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%d stages of %" PRId64
                           " microbatches are too many to simulate",
                           run->graph.n_stages, run->n_microbatches);
        run->shortest = false;
        return 0;
    }
    if (q->kind || q->search_order
            ? emit_kind(run, run->n_microbatches, &run->order, err)
            : emit_usual(run, err))
        return -1;
    run->simulated = true;
    run->halves = pp_schedule_count(&run->order, 1u << PP_I) > 0;
    return pp_makespan_init(&run->makespan, &run->order, err);
}

/* --- memory --- */

/* Returns the stage of what has the values of the embedding: the head, or the
 * first layer for multi-token prediction. Without bounds this is the last
 * stage.
 */
static int tied_stage(const struct pp_split_run *run, const size_t *bounds)
{
    const struct pp_model *m = run->request->shard.model;
    int s = (int)run->n_stages - 1;
    while (bounds && !m->tied && bounds[s] > run->n_units - 1 - m->n_mtp)
        s--;
    return s;
}

/* Returns the stage of the embedding. Without bounds this is the first one, or
 * that behind the encoders' own. */
static int embedding_stage(const struct pp_split_run *run, const size_t *bounds)
{
    const struct pp_model *m = run->request->shard.model;
    int s = (int)(run->n_stages - run->parts[run->n_encoded].n_stages);
    while (bounds && bounds[s + 1] <= pp_component_first(m, PP_LANGUAGE))
        s++;
    return s;
}

/* As pp_graph_adds, for stages whose units are in question. */
static bool adds_pairs(const struct pp_split_run *run, const size_t *bounds,
                       int rank)
{
    const struct pp_graph *g = &run->graph;
    const struct pp_model *m = run->request->shard.model;
    bool adds = g->n_copies > 1;
    if ((!m->tied && !m->n_mtp) || m->table ||
        pp_unit_role(m, (struct pp_unit_id){PP_UNIT_HEAD, 0, PP_LANGUAGE}) !=
            PP_ROLE_TRAINED)
        return adds;
    int first = embedding_stage(run, bounds), last = tied_stage(run, bounds);
    for (int n = (int)run->n_stages, s = 0; s + last < g->n_stages; s += n) {
        int embed = g->stages[s + first].row, head = g->stages[s + last].row;
        adds |= embed != head && (rank == embed || rank == head);
    }
    return adds;
}

static bool has_pairs(const struct pp_schedule *s, int rank)
{
    for (size_t i = 0; i < s->rows[rank].n; i++)
        if (s->rows[rank].actions[i].overlap)
            return true;
    return false;
}

/* Returns the bytes that another trainer holds for the units of a rank. Without
 * bounds it is what any rank with a layer has. */
static double fixed_bytes(const struct pp_split_run *run, const size_t *bounds,
                          int rank)
{
    const struct pp_split_request *q = run->request;
    double most = 0, least = INFINITY;
    for (int s = 0; bounds && s < run->graph.n_stages; s++) {
        const size_t *at = &bounds[pp_original(&run->graph, s)];
        if (run->graph.stages[s].row == rank)
            most =
                fmax(most, pp_split_trainer(q)->fixed(
                               &q->shard.mesh, q->shard.model, at[0], at[1]));
    }
    for (size_t i = 0; !bounds && i < run->n_units; i++)
        if (pp_unit_is_decoder(pp_model_unit(q->shard.model, i)))
            least = fmin(least, pp_split_trainer(q)->fixed(
                                    &q->shard.mesh, q->shard.model, i, i + 1));
    return bounds ? most : isfinite(least) ? least : 0;
}

/* Returns the bytes of the tables of a rank. */
static double table_bytes(const struct pp_split_run *run, const size_t *bounds,
                          int r)
{
    const struct pp_split_request *q = run->request;
    const struct pp_model *m = q->shard.model;
    const struct pp_layout l = pp_split_layout(run);
    const struct pp_mesh *x = &l.components[pp_layout_component(&l, r)].mesh;
    if (pp_split_trainer(q) != pp_trainers)
        return fixed_bytes(run, bounds, r);
    if (m->table)
        return 0;
    struct pp_table_counts c = {
        .tokens = (size_t)q->microbatch.tokens,
        .positions = (size_t)q->microbatch.seq_len,
        .rotary = pp_model_rope_width(m),
        .n_tensors = run->n_tensors,
        .widened = run->widened,
        .n_params = run->n_elements,
        .n_owners = pp_mesh_most_owners(x),
        .n_losses = (size_t)(run->n_microbatches * q->shard.mesh.dp),
        .n_metrics =
            q->scores_rows ? PP_SCORING_METRICS * (size_t)q->shard.mesh.cp : 0,
        .n_ranks = (size_t)pp_layout_ranks(&l),
        .sums = pp_mesh_most_sums(x, adds_pairs(run, bounds, r) ? 2 : 1),
        .ahead = m->n_mtp > 0,
        .copies = run->graph.n_copies > 1,
        .divided = x->cp > 1,
        .overlap = !run->backend.is_host && has_pairs(&run->lowered, r)};
    for (size_t k = 0; k < pp_model_n_encoders(m); k++)
        pp_count_images(&c, &l, r, k, pp_vision_merge_any(&m->encoders[k]),
                        pp_vision_states(&m->encoders[k]),
                        pp_vision_features(&q->shard, k));
    return (double)pp_table_bytes(&c, &run->backend);
}

double pp_split_run_tables(const struct pp_split_run *run, const size_t *bounds,
                           int rank)
{
    const struct pp_split_request *q = run->request;
    const struct pp_model *m = q->shard.model;
    return m->n_mtp || (m->tied && pp_model_has_encoder(m)) ||
                   pp_split_trainer(q) != pp_trainers
               ? table_bytes(run, bounds, rank)
               : run->tables[rank];
}

static void init_memory(struct pp_split_run *run)
{
    pp_split_memory_init(&run->memory, &run->lowered,
                         (const double(*)[PP_N_UNIT_BYTES])run->bytes,
                         run->n_units, run->message_bytes);
}

/* Fills what only a simulated schedule needs. */
static int init_step(struct pp_split_run *run, struct pp_err *err)
{
    const struct pp_split_request *q = run->request;
    size_t n = run->n_units;
    run->limit =
        pp_arena_alloc(&run->arena, (size_t)q->n_ranks, sizeof *run->limit);
    double *messages = pp_arena_alloc(&run->arena, n, sizeof *messages);
    run->message_bytes =
        pp_arena_alloc(&run->arena, n, sizeof *run->message_bytes);
    run->tables =
        pp_arena_alloc(&run->arena, (size_t)q->n_ranks, sizeof *run->tables);
    for (size_t i = 0; i < n; i++)
        run->message_bytes[i] = pp_split_unit_output(run, i);
    pp_split_set_features(run, pp_split_rows(run));
    pp_split_set_messages(run, messages);
    for (size_t i = 0; i < n && !pp_split_trainer(q)->keeps_messages; i++)
        run->message_bytes[i] = 0;
    run->step =
        (struct pp_split_step){.makespan = &run->makespan,
                               .n_units = n,
                               .times = (const double(*)[PP_N_TIMES])run->times,
                               .messages = messages,
                               .speed = q->speeds,
                               .brief = q->brief,
                               .limit = run->limit};
    if (q->memory_bytes == 0 && !q->plan_buffers)
        return 0;
    if (emit_kind(run, run->n_microbatches, &run->lowered, err) ||
        pp_lower(&run->lowered, err))
        return -1;
    for (int r = 0; r < run->graph.n_rows; r++)
        run->tables[r] = table_bytes(run, NULL, r);
    init_memory(run);
    return 0;
}

int pp_split_run_init(struct pp_split_run *run,
                      const struct pp_split_request *q, struct pp_err *err)
{
    *run =
        (struct pp_split_run){.request = q,
                              .n_units = pp_model_n_units(q->shard.model),
                              .n_microbatches = q->n_microbatches,
                              .memory_bytes = q->memory_bytes,
                              .n_tensors = pp_model_n_tensors(q->shard.model),
                              .widened = pp_model_widened(q->shard.model),
                              .n_elements = pp_model_n_elements(q->shard.model),
                              .backend = pp_backend_of(q->precision, !q->gpu),
                              .shortest = q->shortest && !q->bounds};
    if (set_schedule(run, err))
        return -1;
    pp_split_units_init(run);
    return run->simulated ? init_step(run, err) : 0;
}

void pp_split_run_finish(struct pp_split_run *run)
{
    pp_split_memory_finish(&run->memory);
    pp_makespan_finish(&run->makespan);
    pp_schedule_finish(&run->order);
    pp_schedule_finish(&run->lowered);
    pp_arena_finish(&run->arena);
}

void pp_split_run_set_modes(struct pp_split_run *run,
                            const enum pp_recompute *modes)
{
    for (size_t i = 0; i < run->n_units; i++)
        if (run->modes[i] != modes[i])
            pp_split_unit_set_mode(run, i, modes[i]);
    if (run->memory.before)
        pp_split_memory_set(&run->memory,
                            (const double(*)[PP_N_UNIT_BYTES])run->bytes);
}

void pp_split_run_take(struct pp_split_run *run, struct pp_schedule *s,
                       struct pp_makespan *makespan)
{
    pp_split_memory_finish(&run->memory);
    pp_makespan_finish(&run->makespan);
    pp_schedule_finish(&run->order);
    pp_schedule_finish(&run->lowered);
    run->makespan = *makespan;
    run->order = (struct pp_schedule){0};
    run->lowered = *s;
    *s = (struct pp_schedule){0};
    *makespan = (struct pp_makespan){0};
    if (run->request->memory_bytes || run->request->plan_buffers)
        init_memory(run);
}

static bool is_frozen(const struct pp_split_run *run, size_t from, size_t to)
{
    const struct pp_model *m = run->request->shard.model;
    bool frozen = from < to;
    for (size_t i = from; i < to && frozen; i++)
        frozen = pp_unit_role(m, pp_model_unit(m, i)) != PP_ROLE_TRAINED;
    return frozen;
}

int pp_split_run_freeze(struct pp_split_run *run, const size_t *bounds,
                        struct pp_err *err)
{
    struct pp_graph *g = &run->graph;
    struct pp_schedule s = {0};
    struct pp_makespan makespan = {0};
    if (!run->request->shard.model->roles)
        return 0;
    bool any = false;
    for (int k = 0; k < g->n_stages; k++) {
        int o = pp_original(g, k);
        g->stages[k].frozen = is_frozen(run, bounds[o], bounds[o + 1]);
        any |= g->stages[k].frozen;
    }
    if (!any)
        return 0;
    if (pp_graph_connect(&run->arena, g, err))
        return -1;
    if (!run->simulated)
        return 0;
    pp_schedule_copy(run->order.rows ? &run->order : &run->lowered, &s);
    pp_schedule_trim(&s);
    pp_schedule_drop_sharding(&s);
    if (pp_lower_again(&s, NULL, err) || pp_makespan_init(&makespan, &s, err)) {
        pp_schedule_finish(&s);
        return -1;
    }
    pp_split_run_take(run, &s, &makespan);
    pp_split_units_order(run, &run->lowered);
    run->found.proved = false;
    run->found.makespan = pp_split_step_time(&run->step, bounds);
    /* The bound of a kind holds for lists in which these stages wait for
     * gradients, that of all orders for any. */
    run->found.bound = run->request->search_order
                           ? fmin(run->found.bound, run->found.makespan)
                           : 0;
    return 0;
}

/* --- ranks --- */

void pp_split_run_sizes(const struct pp_split_run *run, const size_t *bounds,
                        struct pp_stage_bytes *sizes)
{
    int slices = run->graph.slices.n;
    for (int s = 0; s < run->graph.n_stages; s++) {
        int o = pp_original(&run->graph, s);
        struct pp_stage_bytes *x = &sizes[s * slices];
        *x = (struct pp_stage_bytes){0};
        if (bounds[o + 1] > 0 && bounds[o + 1] < run->n_units)
            x->output = pp_size_of(run->message_bytes[bounds[o + 1] - 1]);
        pp_split_features(run, bounds, o, x);
        if (run->request->shard.model->head_stages &&
            bounds[o] + 1 == run->n_units) /* the loss */
            x->joint = PP_JOINT_ROW;
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++) {
            const double *b = run->bytes[i];
            const size_t act[] = {pp_size_of(b[PP_UNIT_ACT_I]),
                                  pp_size_of(b[PP_UNIT_ACT_W]),
                                  pp_size_of(b[PP_UNIT_GRAD_W])};
            pp_stage_bytes_add(x, act, pp_size_of(b[PP_UNIT_GRAD_KEYS]),
                               pp_size_of(b[PP_UNIT_STATES]),
                               pp_size_of(b[PP_UNIT_WORKSPACE]));
            x->weights += pp_size_of(b[PP_UNIT_WHOLE]);
        }
        x->workspace += pp_split_held(run, bounds[o], bounds[o + 1]);
        for (int q = 1; q < slices; q++)
            x[q] = *x;
    }
}

int pp_split_run_buffers(const struct pp_split_run *run, const size_t *bounds,
                         int rank, struct pp_memory *m, struct pp_err *err)
{
    struct pp_stage_bytes *sizes = pp_calloc(
        (size_t)(run->graph.n_stages * run->graph.slices.n), sizeof *sizes);
    pp_split_run_sizes(run, bounds, sizes);
    int rc = pp_memory_plan(&run->lowered, rank, sizes, m, err);
    free(sizes);
    return rc;
}

/* Returns the bytes of weights, gradients and optimizer state on a rank. */
static double trained_bytes(const struct pp_split_run *run,
                            const size_t *bounds, int rank)
{
    double trained = 0;
    /* A plan adds up stages first too, so that both round alike. */
    for (int s = 0; s < run->graph.n_stages; s++) {
        int o = pp_original(&run->graph, s);
        double sum = 0;
        for (size_t i = bounds[o]; i < bounds[o + 1]; i++)
            sum += run->bytes[i][PP_UNIT_TRAINED];
        if (run->graph.stages[s].row == rank)
            trained += sum;
    }
    return trained;
}

double pp_split_run_need(const struct pp_split_run *run, const size_t *bounds,
                         int rank)
{
    struct pp_memory m;
    struct pp_err too_large = {0};
    if (pp_split_run_buffers(run, bounds, rank, &m, &too_large))
        return INFINITY;
    double bytes = trained_bytes(run, bounds, rank) + (double)m.arena_bytes;
    pp_memory_finish(&m);
    return bytes;
}

bool pp_split_run_fits(const struct pp_split_run *run, const size_t *bounds,
                       int rank)
{
    double limit =
        (double)run->memory_bytes - pp_split_run_tables(run, bounds, rank);
    return !pp_split_memory_over(
               pp_split_memory_held(&run->memory, bounds, rank), limit) &&
           pp_split_run_need(run, bounds, rank) <= limit;
}
