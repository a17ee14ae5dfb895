/* SPDX-License-Identifier: MIT */
/* job - what the ranks of a job need, from its options and the schedule: their
 * meshes, their rows of data, and their memory. */
#include "run/execute/job.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "model/inventory.h"
#include "model/vision.h"
#include "run/objectives/objective.h"
#include "run/parameters/weights.h"
#include "run/parts/stage.h"
#include "schedule/memory/memory.h"

static const struct pp_device_ops *device_of(const struct pp_job *j)
{
    return j->device ? j->device : &pp_device_cpu;
}

bool pp_job_counts_routes(const struct pp_job *j)
{
    const struct pp_router_options *o = &j->settings.router;
    return pp_router_has_losses(o) || o->bias_rate > 0 ||
           j->mesh.expert_capacity > 0;
}

bool pp_job_trains(const struct pp_job *j)
{
    return j->optim.steps > 0 && !j->score;
}

bool pp_job_forwards(const struct pp_job *j)
{
    return j->eval || j->score || j->reference == PP_REFERENCE_BASE;
}

enum { MOST_SETS = 2 };

/* Lists the sets that passes of a kind go through, and returns their number. */
static size_t sets_of(const struct pp_job *j, enum pp_job_pass pass,
                      const struct pp_packed *at[MOST_SETS])
{
    size_t n = 0;
    if (pass == PP_PASS_TRAIN || j->score || j->reference == PP_REFERENCE_BASE)
        at[n++] = j->data;
    if (pass == PP_PASS_FORWARD && !j->score && j->eval)
        at[n++] = j->eval;
    return n;
}

size_t pp_job_longest(const struct pp_job *j, enum pp_job_pass pass)
{
    const struct pp_packed *set[MOST_SETS];
    size_t most = 0;
    for (size_t i = sets_of(j, pass, set); i-- > 0;)
        most = pp_most(most, set[i]->max_seqlen);
    return most;
}

size_t pp_job_room(const struct pp_job *j, enum pp_job_pass pass)
{
    const struct pp_packed *set[MOST_SETS];
    size_t most = 0;
    for (size_t i = sets_of(j, pass, set); i-- > 0;)
        most = pp_most(most, j->shapes == PP_MESSAGE_MAX
                                 ? set[i]->capacity
                                 : pp_packed_room(set[i], j->mesh.cp));
    return most;
}

enum pp_recompute pp_job_recompute(const struct pp_job *j, int stage)
{
    return j->recompute ? j->recompute[stage] : PP_RECOMPUTE_NONE;
}

static struct pp_precision types_of(const struct pp_job *j)
{
    return (struct pp_precision){.element_bytes = j->kernels->element_bytes,
                                 .accumulator_bytes =
                                     j->kernels->accumulator_bytes};
}

struct pp_layout pp_job_layout(const struct pp_job *j)
{
    struct pp_mesh x = j->mesh;
    if (j->components.n_components)
        return j->components;
    int *const sizes[] = {&x.dp, &x.tp, &x.cp, &x.ep};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = *sizes[i] ? *sizes[i] : 1;
    x.pp = j->schedule->graph->n_rows;
    return (struct pp_layout){.components = {{.mesh = x}}, .n_components = 1};
}

/* Returns the mesh of the component that plays a row. */
static struct pp_mesh row_mesh(const struct pp_job *j, int row)
{
    const struct pp_layout l = pp_job_layout(j);
    return l.components[pp_layout_component(&l, row)].mesh;
}

/* Returns the mesh of the ranks that hold a unit on a row. */
static struct pp_mesh unit_mesh(const struct pp_job *j, int row,
                                struct pp_unit_id u)
{
    const struct pp_layout l = pp_job_layout(j);
    return pp_layout_mesh(&l, row, pp_unit_is_vision(u));
}

/* Returns the bytes of the whole weights of a unit on a row, if its ranks
 * gather them. */
static size_t gathered_bytes(const struct pp_job *j, int row, size_t unit)
{
    const struct pp_precision types = types_of(j);
    struct pp_unit_id u = pp_model_unit(j->model, unit);
    const struct pp_mesh mesh = unit_mesh(j, row, u);
    return pp_gathered_bytes(&mesh, pp_mesh_held(&mesh, j->model, u), &types);
}

/* Returns the shard of a rank of the language model, with the images of the
 * largest microbatch of a pass. */
static struct pp_shard loaded_shard(const struct pp_job *j,
                                    enum pp_job_pass pass)
{
    const struct pp_layout l = pp_job_layout(j);
    const struct pp_packed *set[MOST_SETS];
    const size_t n_sets = sets_of(j, pass, set);
    struct pp_shard s = pp_shard_of(j->model, &pp_layout_language(&l)->mesh);
    for (size_t k = 0; k < pp_model_n_encoders(j->model); k++) {
        const struct pp_vision *v = &j->model->encoders[k];
        struct pp_image_load *load = &s.images[k];
        const enum pp_modality modality = pp_vision_modality(v);
        size_t most = 0;
        pp_layout_divide_images(&l, k, load);
        if (!v->fixed_size)
            load->patches = 0;
        for (size_t i = 0; i < n_sets; i++) {
            most = pp_most(most, set[i]->streams[modality].max_items);
            if (!v->fixed_size)
                load->patches = pp_most(
                    load->patches,
                    pp_items_most(set[i], modality, load->makers, load->lanes));
        }
        load->n_images = most;
        if (!v->fixed_size) { /* one image of all patches for each rank */
            load->n_images = most ? load->makers : 0;
            load->lanes = 1;
        }
        load->seq_len = pp_most(pp_job_room(j, pass), 1);
    }
    return s;
}

/* Reports whether a stage takes its input over a bridge: at most a feature for
 * each of its tokens. */
static bool takes_bridge(const struct pp_graph *g, const struct pp_layout *l,
                         int s)
{
    const struct pp_stage_node *n = &g->stages[s];
    return n->n_inputs > 0 &&
           pp_layout_component(l, n->row) !=
               pp_layout_component(l, g->stages[n->inputs[0]].row);
}

/* Returns the room for features that a stage holds, in its workspace. */
static size_t held_bytes(const struct pp_shard *shard,
                         const struct pp_unit_range *u,
                         const struct pp_backend *b, size_t rows)
{
    double rate = pp_stage_held_rate(shard, u->first, u->n);
    bool holds = false; /* data without images have a line too */
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++)
        holds |= pp_stage_holds(shard->model, u->first, u->n, k);
    return holds ? pp_line_bytes(
                       pp_bytes_of_rows(rate * (double)b->element_bytes, rows))
                 : 0;
}

/* Returns what a stage reads of several inputs. */
static enum pp_joint joint_of(const struct pp_job *j, int s)
{
    const struct pp_stage_node *n = &j->schedule->graph->stages[s];
    const struct pp_unit_range *u = &j->stages[n->n_inputs ? n->inputs[0] : s];
    const struct pp_edge in = pp_stage_edges(j->model, u->first, u->n).at[0];
    return in.statistics                 ? PP_JOINT_ROW
           : in.rows >= PP_ROWS_FEATURES ? PP_JOINT_PARTS
                                         : PP_JOINT_SUM;
}

/* Fills the sizes of a slice of a stage, whose mesh is *own's. */
static void set_sizes(const struct pp_job *j, const struct pp_shard *own, int s,
                      size_t rows, size_t copied, struct pp_stage_bytes *out)
{
    const struct pp_unit_range *u = &j->stages[s];
    const struct pp_graph *g = j->schedule->graph;
    const struct pp_layout l = pp_job_layout(j);
    struct pp_backend b = pp_kernels_backend(j->kernels, device_of(j)->is_host);
    *out = (struct pp_stage_bytes){.routed = own->mesh.expert_capacity > 0};
    for (size_t i = u->first; i < u->first + u->n; i++) {
        struct pp_unit_rates rates = pp_unit_rates(
            own, pp_model_unit(j->model, i), pp_job_recompute(j, s), &b);
        struct pp_unit_bytes bytes = pp_unit_bytes(&rates, rows, copied);
        pp_stage_bytes_add(out, bytes.act, bytes.grad_keys, bytes.states,
                           bytes.workspace);
        out->weights += gathered_bytes(j, g->stages[s].row, i);
        out->told += bytes.told;
    }
    out->output =
        pp_bytes_of_rows(pp_stage_edges_rate(own, u->first, u->n, &b), rows);
    out->workspace += held_bytes(own, u, &b, rows);
    out->joint = joint_of(j, s);
    if (takes_bridge(g, &l, s))
        out->input = pp_bytes_of_rows(
            (double)(j->model->hidden * b.element_bytes), rows);
}

struct pp_stage_bytes *pp_job_sizes(const struct pp_job *j,
                                    enum pp_job_pass pass, struct pp_err *err)
{
    const struct pp_graph *g = j->schedule->graph;
    struct pp_backend b = pp_kernels_backend(j->kernels, device_of(j)->is_host);
    size_t slices = (size_t)g->slices.n, room = pp_job_room(j, pass);
    size_t longest = slices > 1 ? pp_job_longest(j, pass) : 0;
    const struct pp_layout l = pp_job_layout(j);
    struct pp_stage_bytes *out =
        pp_try_calloc((size_t)g->n_stages * slices, sizeof *out, err);
    for (int i = 0; out && i < g->n_stages * g->slices.n; i++) {
        int s = i / g->slices.n, row = g->stages[s].row;
        struct pp_shard own = loaded_shard(j, pass);
        size_t tokens = pp_slice_room(
            &g->slices, room, pp_mesh_slice_grain(&own.mesh), i % g->slices.n);
        if (pp_layout_generates(&l, pp_layout_component(&l, row))) {
            own.mesh = row_mesh(j, row);
            tokens = pp_job_row_room(j, pass, row);
        }
        size_t rows = pp_rank_rows(&own.mesh, &b, tokens);
        set_sizes(j, &own, s, rows, pp_copied_keys(&own.mesh, rows, longest),
                  &out[i]);
    }
    return out;
}

size_t pp_job_microbatches(const struct pp_job *j)
{
    struct pp_layout l = pp_job_layout(j);
    return (size_t)j->schedule->n_microbatches *
           (size_t)pp_layout_language(&l)->mesh.dp;
}

bool pp_job_holds(const struct pp_job *j, int stage)
{
    return j->stages[stage].copy == pp_copy_number(j->schedule->graph, stage);
}

int pp_job_replicas(const struct pp_job *j, int row)
{
    const struct pp_mesh x = row_mesh(j, row);
    return pp_mesh_replicas(&x);
}

bool pp_job_overlaps(const struct pp_job *j, int row_number)
{
    const struct pp_row *row = &j->schedule->rows[row_number];
    const struct pp_layout l = pp_job_layout(j);
    if (!device_of(j)->streams || j->time_products || j->record.layers ||
        j->optim.steps == 0 || j->score || j->mesh.cp > 1 || j->mesh.tp > 1 ||
        row_mesh(j, row_number).tp > 1 ||
        pp_layout_language(&l)->mesh.encoder_tp > 0 || j->model->generator)
        return false;
    for (size_t i = 0; i < row->n; i++)
        if (row->actions[i].overlap)
            return true;
    return false;
}

/* Returns the microbatches of all passes of an evaluation, empty ones too. */
static size_t n_eval(const struct pp_job *j)
{
    size_t m = pp_job_microbatches(j);
    return j->eval ? ((size_t)j->eval->n_bins + m - 1) / m * m : 0;
}

size_t pp_job_score_width(const struct pp_job *j)
{
    return j->generate.n ? 3 : 1 + j->entropy + 2 * j->top_k;
}

/* Returns the stages of a row that have a unit: 2 with two copies of it. */
static size_t stages_with(const struct pp_job *j, int row, size_t unit)
{
    const struct pp_graph *g = j->schedule->graph;
    size_t n = 0;
    for (int s = 0; s < g->n_stages; s++)
        n += g->stages[s].row == row && j->stages[s].first <= unit &&
             j->stages[s].first + j->stages[s].n > unit;
    return n;
}

/* Returns the rows that a rank of this row may score in a pass. */
static size_t n_scores(const struct pp_job *j, int row)
{
    const struct pp_mesh x = row_mesh(j, row);
    bool scores = j->score || j->reference == PP_REFERENCE_BASE;
    size_t n =
        scores && stages_with(j, row,
                              pp_component_first(j->model, PP_GENERATOR) - 1)
            ? (size_t)j->schedule->n_microbatches *
                  (pp_job_room(j, PP_PASS_FORWARD) / (size_t)x.cp + 1)
            : 0;
    return scores ? pp_most(n, PP_SCORES_PART) : 0;
}

/* Returns the positions for which every rank keeps a reference. */
static size_t n_references(const struct pp_job *j)
{
    size_t eval = j->eval ? (size_t)j->eval->n_positions : 0;
    return j->reference == PP_REFERENCE_BASE
               ? (size_t)j->data->n_positions + eval
               : 0;
}

/* Returns the most features that a rank of an encoder makes. */
static size_t most_features(const struct pp_job *j, size_t encoder)
{
    const bool used[] = {pp_job_trains(j), pp_job_forwards(j)};
    size_t most = 0;
    for (int pass = PP_PASS_TRAIN; pass <= PP_PASS_FORWARD; pass++) {
        if (!used[pass])
            continue;
        const struct pp_shard of = loaded_shard(j, (enum pp_job_pass)pass);
        most = pp_most(most, pp_vision_features(&of, encoder));
    }
    return most;
}

struct pp_table_counts pp_job_tables(const struct pp_job *j, int row)
{
    struct pp_layout l = pp_job_layout(j);
    const struct pp_mesh mesh = row_mesh(j, row);
    size_t cp = (size_t)pp_layout_language(&l)->mesh.cp;
    bool language = !j->model->generator || !pp_job_has_units(j, row, true) ||
                    pp_job_has_units(j, row, false);
    struct pp_table_counts c = {
        .rotary = language ? pp_model_rope_width(j->model) : 0,
        .n_tensors = pp_model_n_tensors(j->model),
        .n_params = pp_model_n_elements(j->model),
        .n_owners = pp_mesh_most_owners(&mesh),
        .n_losses = pp_job_microbatches(j) * (size_t)j->accumulate,
        .n_metrics = j->objective ? PP_MAX_METRICS * cp : 0,
        .n_eval = n_eval(j),
        .n_scores = n_scores(j, row),
        .score_width = pp_job_score_width(j),
        .n_references = n_references(j),
        .widened = pp_model_widened(j->model),
        .n_ranks = (size_t)pp_layout_ranks(&l),
        .sums =
            pp_mesh_most_sums(&mesh, pp_graph_adds(j->schedule->graph, row)),
        .ahead = j->model->n_mtp > 0,
        .copies = j->schedule->graph->n_copies > 1,
        .divided = mesh.cp > 1,
        .overlap = pp_job_overlaps(j, row),
    };
    const bool used[] = {pp_job_trains(j), pp_job_forwards(j)};
    for (int pass = PP_PASS_TRAIN; pass <= PP_PASS_FORWARD; pass++) {
        if (!used[pass])
            continue;
        if (language)
            c.tokens =
                pp_most(c.tokens, pp_job_room(j, (enum pp_job_pass)pass));
        c.positions =
            pp_most(c.positions, pp_job_longest(j, (enum pp_job_pass)pass));
    }
    if (j->model->generator)
        pp_job_count_generator(j, row, &c);
    for (size_t k = 0; language && k < pp_model_n_encoders(j->model); k++)
        pp_count_images(
            &c, &l, row, k, pp_vision_merge_any(&j->model->encoders[k]),
            pp_vision_states(&j->model->encoders[k]), most_features(j, k));
    return c;
}

/* Returns the bytes of files that a unit of a row reads in place. If the row
 * has the embedding, a tied head has none of its own. */
static size_t mapped_bytes(const struct pp_job *j, int row, size_t unit)
{
    const struct pp_unit_id u = pp_model_unit(j->model, unit);
    bool shared = u.kind == PP_UNIT_HEAD && j->model->tied &&
                  stages_with(j, row, pp_model_n_first(j->model) - 1);
    return j->model->maps && !shared
               ? pp_stored_mapped(j->weights, j->model, u,
                                  (size_t)row_mesh(j, row).tp)
               : 0;
}

/* Adds the state of a stage. Forward passes alone keep weights only. */
static void add_state(const struct pp_job *j, int stage,
                      struct pp_rank_memory *m)
{
    const struct pp_precision types = types_of(j);
    bool adamw = j->optim.optimizer == PP_ADAMW_OPTIMIZER;
    const struct pp_unit_range *u = &j->stages[stage];
    int row = j->schedule->graph->stages[stage].row;
    for (size_t i = u->first; i < u->first + u->n; i++) {
        m->bytes.mapped += mapped_bytes(j, row, i);
        struct pp_unit_id unit = pp_model_unit(j->model, i);
        const struct pp_mesh mesh = unit_mesh(j, row, unit);
        struct pp_held held = pp_mesh_held(&mesh, j->model, unit);
        struct pp_state_bytes s = pp_state_bytes(&mesh, held, &types);
        if (!adamw) /* it keeps master weights alone, if any */
            s.optimizer = types.element_bytes < types.accumulator_bytes
                              ? s.optimizer / 3
                              : 0;
        if (!pp_job_trains(j))
            s.gradients = s.optimizer = 0;
        pp_rank_add_state(&m->bytes, s);
    }
}

/* Plans the arena of a pass, and keeps the larger one. */
static int plan_pass(const struct pp_job *j, enum pp_job_pass pass, int row,
                     struct pp_rank_memory *m, struct pp_err *err)
{
    const struct pp_schedule *s =
        pass == PP_PASS_TRAIN ? j->schedule : j->forward;
    struct pp_stage_bytes *sizes = pp_job_sizes(j, pass, err);
    struct pp_memory plan = {0};
    if (!sizes)
        return -1;
    int rc = pp_memory_plan(s, row, sizes, &plan, err);
    if (plan.arena_bytes > pp_rank_arena(&m->bytes))
        pp_rank_set_arena(&m->bytes, plan.arena_bytes, plan.message_bytes,
                          plan.workspace_bytes);
    m->slots = m->slots ? m->slots : plan.peak_slots;
    m->host = plan.host_bytes > m->host ? plan.host_bytes : m->host;
    pp_memory_finish(&plan);
    free(sizes);
    return rc;
}

int pp_job_memory(const struct pp_job *j, int row, struct pp_rank_memory *m,
                  struct pp_err *err)
{
    const struct pp_graph *g = j->schedule->graph;
    struct pp_backend b = pp_kernels_backend(j->kernels, device_of(j)->is_host);
    struct pp_table_counts counts = pp_job_tables(j, row);
    *m = (struct pp_rank_memory){.slots = 0};
    m->bytes.part[PP_MEMORY_TABLES] = pp_table_bytes(&counts, &b);
    for (int s = 0; s < g->n_stages; s++)
        if (g->stages[s].row == row && pp_job_holds(j, s))
            add_state(j, s, m);
    return (pp_job_trains(j) && plan_pass(j, PP_PASS_TRAIN, row, m, err)) ||
                   (pp_job_forwards(j) &&
                    plan_pass(j, PP_PASS_FORWARD, row, m, err))
               ? -1
               : 0;
}
