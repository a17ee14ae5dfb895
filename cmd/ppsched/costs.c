/* SPDX-License-Identifier: MIT */
/* The cost of each action and the sizes of buffers, from the stages of the
 * manifest and the sizes of the microbatches, or from --cost and --comm. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/num.h"
#include "cost/workloads.h"
#include "model/vision.h"
#include "ppsched.h"

/* Tokens of a microbatch if nothing gives its size. */
enum { DEFAULT_SEQ_LEN = 4096 };

static void set_literal(struct ppsched *p)
{
    static const double defaults[] = {1, 1, 1, 0};
    const double *cost = p->options.has_cost ? p->options.cost : defaults;
    struct ppsched_costs *c = &p->costs;
    c->literal = true;
    c->literals = (struct pp_literal_costs){.graph = &p->manifest.graph,
                                            .f = cost[0],
                                            .i = cost[1],
                                            .w = cost[2],
                                            .comm = cost[3],
                                            .textbook = true};
    c->costs.time = pp_literal_time;
    c->costs.ctx = &c->literals;
    c->costs.made = NULL;
}

/* Returns the size of all microbatches, which are alike without data. */
static struct pp_default_microbatch assumed_microbatch(const struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    if (p->options.seq_len)
        return pp_default_microbatch_of(p->options.seq_len);
    return m->has_microbatch ? m->microbatch
                             : pp_default_microbatch_of(DEFAULT_SEQ_LEN);
}

size_t ppsched_most_tokens(const struct ppsched *p)
{
    const struct pp_manifest *m = &p->manifest;
    return p->data       ? pp_packed_room(&p->packed, m->mesh.cp)
           : m->has_data ? m->data.max_tokens
                         : (size_t)assumed_microbatch(p).tokens;
}

void ppsched_measure(const struct ppsched *p, struct pp_step *x, int step,
                     int n)
{
    const struct pp_default_microbatch mb = assumed_microbatch(p);
    if (p->data)
        pp_step_measure(x, &p->packed, step, n);
    else
        pp_step_assume(x, &mb, n);
}

/* Fills the sizes of microbatches of the step, and the most tokens of any
 * step. */
static void measure_microbatches(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    int step = p->options.step ? p->options.step : 1;
    ppsched_measure(p, &c->step, step, p->schedule->n_microbatches);
    c->max_tokens = ppsched_most_tokens(p);
    c->max_seqlen = p->data ? p->packed.max_seqlen
                    : p->manifest.has_data
                        ? c->max_tokens
                        : (size_t)assumed_microbatch(p).seq_len;
}

/* --- the items of encoders: images, or clips of audio --- */

/* Returns whether the items of the data are known, not only the items that the
 * plan assumes. */
static bool knows_data(const struct ppsched *p)
{
    return (p->data || p->manifest.has_data) && p->costs.max_tokens > 0;
}

/* Returns the items of the largest microbatch of the data. */
static struct pp_image_load images_of_data(const struct ppsched *p,
                                           size_t encoder)
{
    struct pp_image_load v =
        pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    v.n_images = p->costs.data.items[encoder].n;
    v.seq_len = p->costs.max_tokens;
    if (p->costs.data.items[encoder].rows) { /* one of all rows on each rank */
        v.n_images = v.makers;
        v.lanes = 1;
    }
    return v;
}

/* Returns the rows of an item, as they are or as the plan assumes. */
static size_t rows_of(const struct ppsched *p, size_t encoder)
{
    size_t most = p->costs.data.items[encoder].rows;
    return most ? most : (size_t)p->manifest.microbatch.items[encoder].rows;
}

size_t ppsched_most_features(const struct ppsched *p, size_t encoder)
{
    bool known = knows_data(p);
    const struct pp_image_load v =
        known ? images_of_data(p, encoder)
              : pp_plan_images(pp_manifest_plan(&p->manifest), encoder);
    size_t rows = known ? rows_of(p, encoder)
                        : (size_t)p->manifest.microbatch.items[encoder].rows;
    bool more = encoder == 0 && p->manifest.model.class_feature;
    return pp_vision_rank_images(&v) *
           (rows / pp_plan_merge(pp_manifest_plan(&p->manifest), encoder) +
            more);
}

/* Returns what to multiply the bytes of a unit by. Bytes of an encoder are for
 * the items that the plan assumed, but the data may have more or fewer. */
static double items_scale(const struct ppsched *p, size_t unit)
{
    size_t e = pp_plan_encoder_of(pp_manifest_plan(&p->manifest), unit);
    if (e == PP_MAX_ENCODERS || !knows_data(p))
        return 1;
    const struct pp_item_counts items = p->manifest.microbatch.items[e];
    if (!items.n)
        return 1;
    const struct pp_image_load plan = pp_plan_images(
                                   pp_manifest_plan(&p->manifest), e),
                               data = images_of_data(p, e);
    return pp_vision_rate(&data, rows_of(p, e)) /
           pp_vision_rate(&plan, (size_t)items.rows);
}

/* --- sizes --- */

/* Returns the bytes of a block of a unit for each row. */
static double unit_act_rate(const struct ppsched *p,
                            const struct pp_plan_stage *stage, size_t i,
                            int block)
{
    const struct pp_plan_unit *u = &p->manifest.model.units[i];
    return pp_plan_act_bytes(u, stage->recompute)[block] * items_scale(p, i);
}

/* Returns the bytes of a block of a stage for each row. */
static double act_rate(const struct ppsched *p, int s, int block)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    double sum = 0;
    if (!pp_plan_counted(pp_manifest_plan(&p->manifest)))
        return stage->costs.act_bytes[block];
    for (size_t i = 0; i < stage->n_units; i++)
        sum += unit_act_rate(p, stage, stage->first_unit + i, block);
    return sum;
}

/* Returns the same of the largest unit. A stage without a model is one unit. */
static double largest_act_rate(const struct ppsched *p, int s, int block)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    double most = 0;
    if (!p->manifest.has_model)
        return stage->costs.act_bytes[block];
    for (size_t i = 0; i < stage->n_units; i++)
        most =
            fmax(most, unit_act_rate(p, stage, stage->first_unit + i, block));
    return most;
}

/* Returns the bytes of a row that a stage passes on. */
static double out_rate(const struct ppsched *p, int s)
{
    const struct pp_plan plan = pp_manifest_plan(&p->manifest);
    struct pp_workload each = pp_workload_of(1, 0);
    for (size_t e = 0; e < pp_plan_encoders(plan); e++)
        each.of[e].tokens = items_scale(p, plan.components[e].first_unit);
    return pp_plan_passed(plan, s, each);
}

/* Returns the bytes of the features of the first of two encoders that a stage
 * holds while it computes the second, for its embedding. */
static size_t held_bytes(const struct ppsched *p, int s, size_t rows)
{
    const struct pp_manifest *m = &p->manifest;
    const struct pp_plan_stage *stage = &m->stages[s];
    const struct pp_component *c = m->components;
    if (pp_plan_encoders(pp_manifest_plan(m)) < PP_MAX_ENCODERS ||
        stage->first_unit >= c[1].first_unit ||
        stage->first_unit + stage->n_units <= c[2].first_unit)
        return 0;
    size_t unit = c[1].first_unit - 1;
    double rate = m->model.units[unit].costs.out_bytes * items_scale(p, unit);
    return pp_line_bytes(
        pp_bytes_of_rows(rate * pp_mesh_sharers(&m->mesh), rows));
}

/* The rows of a rank of a stage, and by how much a byte of a stage for each
 * token is more for each of these rows. */
struct stage_rows {
    size_t n;
    double scale;
};

/* Returns the rows of the generator. The manifest has its costs for tokens of
 * the language model, as if its ranks divided all of them equally. */
static struct stage_rows generated_rows(const struct ppsched *p, size_t tokens)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    const struct pp_mesh *g = &l.components[l.n_components - 1].mesh;
    size_t most = pp_layout_generated(&l, tokens, p->costs.max_seqlen);
    return (struct stage_rows){pp_rank_rows(g, &p->costs.backend, most),
                               (double)pp_mesh_sharers(g) * g->dp /
                                   p->manifest.mesh.dp};
}

/* Reports whether a stage is one of a generator on ranks of its own. */
static bool generates(const struct ppsched *p, int s)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    int row = p->manifest.graph.stages[s].row;
    return pp_layout_generates(&l, pp_layout_component(&l, row));
}

/* Returns the workspace of a stage: the largest of its units', with what they
 * recompute and what it holds. A stage without a model has one number. */
static size_t workspace_of(const struct ppsched *p, int s, struct stage_rows r,
                           size_t copied)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    size_t most = 0, rows = r.n;
    double n = r.scale;
    for (size_t i = 0; i < stage->n_units; i++) {
        const struct pp_plan_unit *u =
            &p->manifest.model.units[stage->first_unit + i];
        struct pp_workspace w = u->workspace;
        w.token *= items_scale(p, stage->first_unit + i) * n /
                   pp_mesh_sharers(&p->manifest.mesh);
        const struct pp_plan_mode *mode = pp_plan_mode(u, stage->recompute);
        if (mode)
            w.token += (double)pp_bytes_of_rows(mode->workspace_bytes * n, 1);
        size_t bytes = pp_workspace_bytes(&w, rows, copied);
        most = bytes > most ? bytes : most;
    }
    return p->manifest.has_model
               ? most + held_bytes(p, s, rows)
               : pp_bytes_of_rows(stage->workspace_bytes * n, rows);
}

/* Returns the bytes of the gradients of the keys and values of a stage. */
static size_t grad_keys_of(const struct ppsched *p, int s, size_t rows)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    size_t sum = 0;
    for (size_t i = 0; p->manifest.has_model && i < stage->n_units; i++)
        sum += p->manifest.model.units[stage->first_unit + i].workspace.keys *
               rows;
    return sum;
}

/* Returns the bytes that a stage passes from a slice to the next. */
static size_t states_of(const struct ppsched *p, int s)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    size_t sum = 0;
    for (size_t i = 0; p->manifest.has_model && i < stage->n_units; i++)
        sum += p->manifest.model.units[stage->first_unit + i].workspace.states;
    return sum;
}

/* Returns the bytes of the host that a microbatch in flight has of a stage. */
static size_t told_of(const struct ppsched *p, int s)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    size_t sum = 0;
    for (size_t i = 0; p->manifest.has_model && i < stage->n_units; i++)
        sum += p->manifest.model.units[stage->first_unit + i].workspace.told;
    return sum;
}

/* Returns the bytes of the whole weights of a stage, if ranks gather them. */
static size_t gathered_bytes(const struct ppsched *p, int s)
{
    const struct pp_plan_stage *stage = &p->manifest.stages[s];
    size_t sum = 0;
    const struct pp_mesh mesh =
        ppsched_mesh(p, p->manifest.graph.stages[s].row);
    if (!pp_mesh_divides_weights(&mesh) || ppsched_trainer(p) != pp_trainers)
        return 0;
    for (size_t i = 0; i < stage->n_units; i++)
        sum += pp_size_of(
            p->manifest.model.units[stage->first_unit + i].weight_bytes);
    return sum;
}

const struct pp_trainer *ppsched_trainer(const struct ppsched *p)
{
    return pp_trainer_find(p->manifest.model.trainer);
}

struct pp_mesh ppsched_mesh(const struct ppsched *p, int row)
{
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    return l.components[pp_layout_component(&l, row)].mesh;
}

/* Returns the bytes that a stage takes over a bridge. The embedding takes a
 * feature for each token: as wide as what its first unit puts out. */
static size_t taken_bytes(const struct ppsched *p, int s, size_t rows)
{
    const struct pp_manifest *m = &p->manifest;
    const struct pp_layout l = pp_manifest_layout(m);
    const struct pp_stage_node *n = &m->graph.stages[s];
    if (l.n_components == 1 || n->n_inputs == 0 ||
        pp_layout_component(&l, n->row) ==
            pp_layout_component(&l, m->graph.stages[n->inputs[0]].row))
        return 0;
    const struct pp_plan_unit *u = &m->model.units[m->stages[s].first_unit];
    double rate = generates(p, s) ? m->stages[n->inputs[0]].costs.out_bytes
                                  : u->costs.out_bytes;
    return pp_bytes_of_rows(rate * pp_mesh_sharers(&m->mesh), rows);
}

/* Returns what a stage reads of several inputs. */
static enum pp_joint joint_of(const struct ppsched *p, int s)
{
    const struct pp_manifest *m = &p->manifest;
    const struct pp_stage_node *n = &m->graph.stages[s];
    if (pp_plan_encoders(pp_manifest_plan(m)) == PP_MAX_ENCODERS)
        return PP_JOINT_PARTS;
    size_t first = n->n_inputs ? m->stages[n->inputs[0]].first_unit : 0;
    bool several = n->n_inputs > 1 && first < m->model.n_units;
    return several && pp_fqn_is_head_part(m->model.units[first].fqn)
               ? PP_JOINT_ROW
               : PP_JOINT_SUM;
}

/* Returns the sizes of a stage for a slice of so many tokens. */
static struct pp_stage_bytes sizes_of(const struct ppsched *p, int s,
                                      size_t tokens)
{
    const struct ppsched_costs *c = &p->costs;
    const struct pp_mesh *mesh = &p->manifest.mesh;
    const struct stage_rows own = {pp_rank_rows(mesh, &c->backend, tokens),
                                   pp_mesh_sharers(mesh)};
    const struct stage_rows r =
        generates(p, s) ? generated_rows(p, tokens) : own;
    size_t copied =
        pp_copied_keys(mesh, own.n, c->graph->slices.n > 1 ? c->max_seqlen : 0);
    double act[PP_N_SAVED_BLOCKS];
    for (int k = 0; k < PP_N_SAVED_BLOCKS; k++)
        act[k] = act_rate(p, s, k) * r.scale;
    return (struct pp_stage_bytes){
        .act_i = pp_bytes_of_rows(act[PP_SAVED_ACT_I], r.n),
        .act_w = pp_bytes_of_rows(act[PP_SAVED_ACT_W], r.n),
        .grad_w = pp_bytes_of_rows(act[PP_SAVED_GRAD_W], r.n),
        .grad_layer = pp_bytes_of_rows(
            largest_act_rate(p, s, PP_SAVED_GRAD_W) * r.scale, r.n),
        .grad_keys = grad_keys_of(p, s, r.n),
        .states = states_of(p, s),
        .told = told_of(p, s),
        .output = ppsched_trainer(p)->keeps_messages
                      ? pp_bytes_of_rows(out_rate(p, s) * r.scale, r.n)
                      : 0,
        .workspace = workspace_of(p, s, r, copied),
        .weights = gathered_bytes(p, s),
        .input = taken_bytes(p, s, r.n),
        .joint = joint_of(p, s)};
}

static void set_sizes(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    const struct pp_slices *slices = &c->graph->slices;
    size_t grain = pp_mesh_slice_grain(&p->manifest.mesh);
    for (int i = 0; i < c->graph->n_stages * slices->n; i++)
        c->sizes[i] = sizes_of(
            p, i / slices->n,
            pp_slice_room(slices, c->max_tokens, grain, i % slices->n));
}

/* --- --comm, --reduce, --unshard and --copy --- */

/* Returns the time of a message by --comm, of a reduction by --reduce, of a
 * gathering of weights by --unshard and of a copy by --copy or --copy-rate;
 * other actions keep their costs. */
static double given_time(const void *ctx, struct pp_action a)
{
    const struct ppsched_given *m = ctx;
    int boundary = a.stage < a.peer ? a.stage : a.peer;
    bool sends = pp_is_send(a.op);
    const double *time = sends                    ? m->time[PPSCHED_COMM]
                         : a.op == PP_REDUCE_GRAD ? m->time[PPSCHED_REDUCE]
                         : a.op == PP_UNSHARD     ? m->time[PPSCHED_UNSHARD]
                         : pp_is_copy(a.op)       ? m->time[PPSCHED_COPY]
                                                  : NULL;
    return !time   ? m->inner.time(m->inner.ctx, a)
           : sends ? pp_slice_share(m->slices, a.slice, time[boundary])
                   : time[a.stage];
}

/* Reads the numbers between commas: one for all, or one for each of n. */
static int read_times(struct ppsched *p, enum ppsched_time what, size_t n)
{
    static const char *const names[] = {"--comm", "--reduce", "--unshard",
                                        "--copy"};
    const char *text = p->options.time[what];
    struct tool *t = p->tool;
    size_t given;
    if (!text)
        return 0;
    double *time = p->costs.given.time[what] = pp_calloc(n, sizeof *time);
    if (pp_parse_reals(text, names[what], 0, 1e300, time, n, &given, &t->err))
        return -1;
    if (given != 1 && given != n)
        return tool_usage(
            t, "%s: '%s' must be one time, or %zu: one for each %s",
            names[what], text, n,
            what == PPSCHED_COMM ? "boundary between stages" : "stage");
    for (size_t i = given; i < n; i++)
        time[i] = time[0];
    return 0;
}

/* Returns the seconds of a byte by --copy-rate or by the profile, or 0. */
static double copy_seconds(const struct ppsched *p)
{
    const struct pp_profile *profile = p->costs.step.costs.plan.profile;
    if (p->options.copy_rate)
        return 1 / (double)p->options.copy_rate;
    bool measured = profile && !p->costs.literal && p->costs.sized;
    return measured ? profile->copy_seconds_per_byte : 0;
}

/* Fills the times of copies. */
static int set_copies(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    size_t n = (size_t)c->graph->n_stages;
    if (c->literal || !c->step.costs.plan.profile || !c->sized)
        return tool_usage(p->tool, "--copy-rate: the stages have no seconds; "
                                   "give the time of a copy with --copy");
    double *copy = c->given.time[PPSCHED_COPY] = pp_calloc(n, sizeof *copy);
    for (size_t s = 0; s < n; s++) {
        const struct pp_stage_bytes *b =
            pp_slice_bytes(c->graph, c->sizes, (int)s, 0);
        copy[s] = (double)(b->act_i + b->act_w) * copy_seconds(p);
    }
    return 0;
}

static int init_given(struct ppsched *p)
{
    const struct ppsched_options *o = &p->options;
    struct ppsched_given *m = &p->costs.given;
    size_t stages = (size_t)p->manifest.graph.n_stages;
    /* A single stage has no boundary, but its one number is checked too. */
    if (read_times(p, PPSCHED_COMM, stages > 1 ? stages - 1 : 1) ||
        read_times(p, PPSCHED_REDUCE, stages) ||
        read_times(p, PPSCHED_UNSHARD, stages) ||
        read_times(p, PPSCHED_COPY, stages) ||
        (!o->time[PPSCHED_COPY] && copy_seconds(p) > 0 && set_copies(p)))
        return -1;
    for (size_t s = 0; o->time[PPSCHED_REDUCE] && s < stages; s++)
        p->costs.step.made[s].longer = 0;
    m->slices = &p->manifest.graph.slices;
    m->inner = p->costs.costs;
    p->costs.costs.time = given_time;
    p->costs.costs.ctx = m;
    return 0;
}

/* Fills p->costs from the options, the manifest and the packed data. */
static int init(struct ppsched *p)
{
    struct ppsched_costs *c = &p->costs;
    c->graph = &p->manifest.graph;
    c->stages = p->manifest.stages;
    pp_step_init(&c->step, pp_manifest_plan(&p->manifest),
                 p->schedule->n_microbatches);
    c->sizes = pp_calloc((size_t)(c->graph->n_stages * c->graph->slices.n),
                         sizeof *c->sizes);
    for (int s = 0; s < c->graph->n_stages; s++)
        c->sized |= c->stages[s].costs.out_bytes > 0 ||
                    c->stages[s].costs.act_bytes[PP_SAVED_ACT_W] > 0;
    c->precision = pp_precision_find(p->manifest.model.dtype);
    if (!c->precision)
        c->precision = &pp_precisions[0];
    c->backend = pp_backend_of(c->precision, !p->manifest.model.gpu);
    measure_microbatches(p);
    c->data = p->data ? pp_plan_data_of(pp_manifest_plan(&p->manifest),
                                        &p->packed, p->data)
                      : p->manifest.data;
    set_sizes(p);
    c->costs = pp_step_costs(&c->step);
    if (!pp_stage_costs_known(&c->step.costs) || p->options.has_cost)
        set_literal(p);
    c->costs.pair_saving = 1 - p->options.pair_cost;
    const struct ppsched_options *o = &p->options;
    if (o->memory && !c->sized)
        return tool_usage(p->tool, "--memory: the stages have no sizes; give "
                                   "the limit in slots, with --max-in-flight");
    bool given = copy_seconds(p) > 0;
    for (int i = 0; i < PPSCHED_N_TIMES; i++)
        given |= o->time[i] != NULL;
    return given ? init_given(p) : 0;
}

static int check_ranks(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    const struct pp_manifest *m = &p->manifest;
    if (pp_packed_check_mesh(&p->packed, m->mesh.cp, err))
        return pp_fail_at(err, "%s: ", p->data);
    return p->packed.cp && m->mesh.cp > 1 && m->graph.slices.n > 1
               ? pp_fail(err, PP_EXIT_INPUT,
                         "%s: sequences with ranks of their own are not "
                         "divided into slices; pack with pppack --cp-sizes "
                         "fixed",
                         p->data)
               : 0;
}

/* Fails if the data have images and audio, and the plan not an encoder for
 * each. */
static int check_streams(struct ppsched *p)
{
    const struct pp_packed_stream *s = p->packed.streams;
    if (!pp_stream_exists(&s[PP_MODALITY_IMAGES]) ||
        !pp_stream_exists(&s[PP_MODALITY_AUDIO]) ||
        pp_plan_encoders(pp_manifest_plan(&p->manifest)) == PP_MAX_ENCODERS)
        return 0;
    return pp_fail(&p->tool->err, PP_EXIT_INPUT,
                   "%s: has images and audio, but the plan does not have an "
                   "encoder for each",
                   p->data);
}

int ppsched_open_data(struct ppsched *p)
{
    struct pp_err *err = &p->tool->err;
    if (p->packed.n_bins)
        return 0;
    if (p->data && (pp_packed_open(p->data, &p->packed, err) ||
                    check_ranks(p) || check_streams(p)))
        return -1;
    if (p->data && p->packed.n_bins == 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: has no microbatches", p->data);
    return 0;
}

void ppsched_order_costs(struct ppsched *p)
{
    bool ordered = false;
    for (int r = 0; p->schedule->rows && r < p->schedule->graph->n_rows; r++)
        ordered |= p->schedule->rows[r].n > 0;
    if (!p->costs.literal)
        pp_step_order(&p->costs.step, ordered ? p->schedule : NULL);
}

int ppsched_open_costs(struct ppsched *p)
{
    if (!p->costs.graph && (ppsched_open_data(p) || init(p)))
        return -1;
    ppsched_order_costs(p);
    return 0;
}

void ppsched_costs_finish(struct ppsched_costs *c)
{
    free(c->sizes);
    for (int i = 0; i < PPSCHED_N_TIMES; i++)
        free(c->given.time[i]);
    pp_step_finish(&c->step);
}
