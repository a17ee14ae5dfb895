/* SPDX-License-Identifier: MIT */
/* The memory of each rank, in slots and in bytes, and the limit of --memory. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/num.h"
#include "ppsched.h"
#include "run/objectives/objective.h"

/* Writes the action at which a rank needs most memory: "'0F3' (action 5)". */
static void tell_place(const struct ppsched *p, int rank, size_t place,
                       char *text, size_t bytes)
{
    char action[PP_ACTION_TEXT];
    pp_action_format(p->schedule->rows[rank].actions[place], false, action);
    snprintf(text, bytes, "'%s' (action %zu)", action, place);
}

double ppsched_slots(const struct ppsched *p, int rank)
{
    size_t place;
    return pp_row_peak(p->schedule, rank, &place);
}

static int refuse_slots(struct ppsched *p, int rank, double slots)
{
    char kept[32], over[32], at[PP_ACTION_TEXT + 40];
    size_t place;
    pp_format_real(slots, kept);
    pp_format_real(slots - (double)p->options.slots, over);
    pp_row_peak(p->schedule, rank, &place);
    tell_place(p, rank, place, at, sizeof at);
    return pp_fail(&p->tool->err, PP_EXIT_NO,
                   "rank %d keeps %s slots alive, %s more than the limit of "
                   "'%" PRId64 "', first at %s",
                   rank, kept, over, p->options.slots, at);
}

/* Returns the state of a unit whose weights ranks divide, from the bytes of the
 * whole weights and of the state. A rank has the same part of the weights, of
 * both moments and of master weights. */
static struct pp_state_bytes divided_state(const struct pp_plan_unit *u,
                                           const struct pp_precision *types,
                                           size_t whole, size_t sum)
{
    size_t element = types->element_bytes, wide = types->accumulator_bytes;
    if (u->role != PP_ROLE_TRAINED)
        return (struct pp_state_bytes){.weights = sum};
    size_t gradients = whole / element * wide;
    gradients = gradients < sum ? gradients : sum;
    size_t part =
        (sum - gradients) / (element + (element < wide ? 3 : 2) * wide);
    return (struct pp_state_bytes){part * element, gradients,
                                   sum - gradients - part * element};
}

/* Returns the state of a unit with FSDP: a quarter of its part for weights, for
 * gradients and for each moment, all in fp32; and whole weights in bf16 with
 * whole gradients in fp32, or neither. */
static struct pp_state_bytes fsdp_state(size_t weights, size_t sum)
{
    size_t thrice = 3 * weights < sum ? 3 * weights : sum;
    size_t optimizer = 2 * (sum - thrice);
    optimizer = optimizer < sum - weights ? optimizer : sum - weights;
    return (struct pp_state_bytes){weights, sum - weights - optimizer,
                                   optimizer};
}

/* Returns the state of a unit that trains adapters alone: gradients, and an
 * owner's part of moments and master weights, which are as large each. */
static struct pp_state_bytes adapter_state(const struct pp_mesh *mesh,
                                           const struct pp_precision *types,
                                           size_t weights, size_t sum)
{
    double owners = (double)pp_mesh_owners(mesh);
    double states = types->element_bytes < types->accumulator_bytes ? 3 : 2;
    size_t held = pp_mesh_divides_weights(mesh)
                      ? pp_size_of((double)weights / owners)
                      : weights;
    held = held < sum ? held : sum;
    size_t gradients = pp_size_of((double)(sum - held) / (1 + states / owners));
    return (struct pp_state_bytes){held, gradients, sum - held - gradients};
}

/* Returns the state of a unit. If the manifest has only the sum, the weights
 * follow from the parameters, which is exact without tp and ep. */
static struct pp_state_bytes state_of(const struct ppsched *p,
                                      const struct pp_mesh *mesh,
                                      const struct pp_plan_unit *u)
{
    const struct pp_precision *types = p->costs.precision;
    struct pp_state_bytes s = pp_state_bytes(
        NULL, pp_held_whole(u->costs.params, u->role == PP_ROLE_TRAINED),
        types);
    if (!p->manifest.model.has_state)
        return s;
    size_t sum = pp_size_of(ceil(u->state_bytes));
    if (u->weight_bytes > 0)
        s.weights = pp_size_of(u->weight_bytes);
    if (u->frozen_flops > 0)
        return adapter_state(mesh, types, s.weights, sum);
    if (pp_mesh_divides_weights(mesh) && ppsched_trainer(p) == pp_trainers)
        return divided_state(u, types, s.weights, sum);
    s.weights = s.weights < sum ? s.weights : sum;
    if (pp_mesh_divides_weights(mesh))
        return fsdp_state(s.weights, sum);
    s.gradients = s.weights / types->element_bytes * pp_gradient_bytes(types);
    if (s.gradients > sum - s.weights)
        s.gradients = sum - s.weights;
    s.optimizer = sum - s.weights - s.gradients;
    return s;
}

/* Returns whether a rank has a unit. */
static bool has_unit(const struct ppsched *p, int rank, size_t unit)
{
    bool has = false;
    for (int s = 0; s < p->manifest.graph.n_stages; s++) {
        const struct pp_plan_stage *x = &p->manifest.stages[s];
        has |= p->manifest.graph.stages[s].row == rank &&
               x->first_unit <= unit && unit < x->first_unit + x->n_units;
    }
    return has;
}

static void add_state(const struct ppsched *p, int rank,
                      struct pp_rank_bytes *b)
{
    const struct pp_mesh mesh = ppsched_mesh(p, rank);
    const struct pp_plan_model *m = &p->manifest.model;
    /* A tied head, the last unit, reads the file of the embedding, the first.
     */
    bool shared = m->tied && has_unit(p, rank, 0);
    for (int s = 0; s < p->manifest.graph.n_stages; s++) {
        const struct pp_plan_stage *stage = &p->manifest.stages[s];
        if (p->manifest.graph.stages[s].row != rank ||
            pp_home(&p->manifest.graph, s) != s)
            continue;
        if (!p->manifest.has_model)
            pp_rank_add_state(
                b,
                pp_state_bytes(NULL, pp_held_whole(stage->costs.params, true),
                               p->costs.precision));
        for (size_t i = stage->first_unit;
             i < stage->first_unit + stage->n_units; i++) {
            pp_rank_add_state(b, state_of(p, &mesh, &m->units[i]));
            if (!shared || i + 1 < m->n_units)
                b->mapped += pp_size_of(m->units[i].mapped_bytes);
        }
    }
}

/* Returns what another trainer holds for the stages of a rank. */
static size_t fixed_bytes(const struct ppsched *p, int rank)
{
    double most = 0;
    for (int s = 0; s < p->manifest.graph.n_stages; s++)
        if (p->manifest.graph.stages[s].row == rank)
            most = fmax(most, p->manifest.stages[s].fixed_bytes);
    return pp_size_of(most);
}

/* Returns the bytes of the tables of a rank, if the manifest has what they
 * depend on. */
static size_t table_bytes(const struct ppsched *p, const struct pp_schedule *s,
                          int rank)
{
    if (ppsched_trainer(p) != pp_trainers)
        return fixed_bytes(p, rank);
    const struct ppsched_costs *c = &p->costs;
    const struct pp_row *row = &s->rows[rank];
    const struct pp_layout l = pp_manifest_layout(&p->manifest);
    const struct pp_mesh x = ppsched_mesh(p, rank);
    size_t params = 0;
    bool pairs = false;
    for (size_t i = 0; i < row->n; i++)
        pairs |= row->actions[i].overlap;
    for (size_t i = 0; i < p->manifest.model.n_units; i++)
        params += p->manifest.model.units[i].costs.params;
    if (p->manifest.model.ahead) /* its copy of the embedding */
        params +=
            p->manifest.model.units[p->manifest.model.n_units - 1].costs.params;
    struct pp_table_counts counts = {
        .tokens = c->max_tokens,
        .positions = c->max_seqlen,
        .rotary = p->manifest.model.rotary,
        .n_tensors = p->manifest.model.n_tensors,
        .widened = p->manifest.model.widened,
        .n_params = params,
        .n_owners = pp_mesh_most_owners(&x),
        .n_losses = (size_t)(s->n_microbatches * p->manifest.mesh.dp),
        .n_metrics = p->options.objective == PP_OBJECTIVE_SFT
                         ? 0
                         : PP_SCORING_METRICS * (size_t)p->manifest.mesh.cp,
        .n_ranks = (size_t)pp_layout_ranks(&l),
        .sums = pp_mesh_most_sums(&x, pp_graph_adds(&p->manifest.graph, rank)),
        .ahead = p->manifest.model.ahead,
        .copies = p->manifest.graph.n_copies > 1,
        .divided = x.cp > 1,
        .overlap = pairs && !c->backend.is_host};
    for (size_t e = 0; e < pp_plan_counted(pp_manifest_plan(&p->manifest)); e++)
        pp_count_images(&counts, &l, rank, e,
                        pp_plan_merge_any(pp_manifest_plan(&p->manifest), e),
                        pp_plan_states(pp_manifest_plan(&p->manifest), e),
                        ppsched_most_features(p, e));
    return counts.n_tensors ? pp_table_bytes(&counts, &c->backend) : 0;
}

/* Returns all memory of a rank whose arena is m. */
static struct pp_rank_bytes rank_bytes(const struct ppsched *p,
                                       const struct pp_schedule *s, int rank,
                                       const struct pp_memory *m)
{
    struct pp_rank_bytes b = {{0}};
    add_state(p, rank, &b);
    pp_rank_set_arena(&b, m->arena_bytes, m->message_bytes, m->workspace_bytes);
    b.part[PP_MEMORY_TABLES] = table_bytes(p, s, rank);
    return b;
}

static int refuse_bytes(struct ppsched *p, int rank, const struct pp_memory *m)
{
    char text[6][32], at[PP_ACTION_TEXT + 40];
    const struct pp_rank_bytes b = rank_bytes(p, p->schedule, rank, m);
    const size_t bytes[] = {
        pp_rank_total(&b),        pp_rank_total(&b) - p->options.memory,
        pp_rank_arena(&b),        pp_rank_state(&b),
        b.part[PP_MEMORY_TABLES], p->options.memory};
    for (int i = 0; i < 6; i++)
        pp_format_size(bytes[i], text[i]);
    tell_place(p, rank, m->peak_place, at, sizeof at);
    return pp_fail(&p->tool->err, PP_EXIT_NO,
                   "rank %d needs %s, %s more than the limit of %s: %s of "
                   "activations, messages and workspace, most at %s, %s of "
                   "weights, gradients and optimizer, %s of tables",
                   rank, text[0], text[1], text[5], text[2], at, text[3],
                   text[4]);
}

size_t ppsched_fixed_bytes(const struct ppsched *p, const struct pp_schedule *s,
                           int rank)
{
    const struct pp_memory none = {0};
    const struct pp_rank_bytes b = rank_bytes(p, s, rank, &none);
    return pp_rank_total(&b);
}

double ppsched_activation_limit(const struct ppsched *p, int rank)
{
    size_t workspace = 0;
    const struct pp_graph *g = &p->manifest.graph;
    for (int i = 0; i < g->n_stages * g->slices.n; i++)
        if (g->stages[i / g->slices.n].row == rank &&
            p->costs.sizes[i].workspace > workspace)
            workspace = p->costs.sizes[i].workspace;
    return (double)p->options.memory -
           (double)ppsched_fixed_bytes(p, p->schedule, rank) -
           (double)workspace;
}

static int check_rank(struct ppsched *p, int rank, const struct pp_memory *m)
{
    const struct ppsched_options *o = &p->options;
    double slots = ppsched_slots(p, rank);
    if (o->slots && slots > (double)o->slots)
        return refuse_slots(p, rank, slots);
    return o->memory &&
                   m->arena_bytes + ppsched_fixed_bytes(p, p->schedule, rank) >
                       o->memory
               ? refuse_bytes(p, rank, m)
               : 0;
}

int ppsched_fits(void *ctx, const struct pp_schedule *s, bool *yes,
                 struct pp_err *err)
{
    const struct ppsched *p = ctx;
    const struct ppsched_options *o = &p->options;
    bool limited = o->memory && p->costs.sized;
    *yes = true;
    for (int r = 0; r < s->graph->n_rows && limited && *yes; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, p->costs.sizes, &m, err))
            return -1;
        *yes = m.arena_bytes + ppsched_fixed_bytes(p, s, r) <= o->memory;
        pp_memory_finish(&m);
    }
    return 0;
}

int ppsched_memory(struct ppsched *p, struct ppsched_bytes *out)
{
    const struct ppsched_options *o = &p->options;
    bool bytes = p->costs.sized && (out || o->memory);
    for (int r = 0; r < p->manifest.graph.n_rows; r++) {
        struct pp_memory m = {0};
        if (bytes &&
            pp_memory_plan(p->schedule, r, p->costs.sizes, &m, &p->tool->err))
            return -1;
        if (out)
            out[r] =
                (struct ppsched_bytes){.peak = m.peak_bytes,
                                       .host = m.host_bytes,
                                       .all = rank_bytes(p, p->schedule, r, &m),
                                       .peak_place = m.peak_place};
        int rc = check_rank(p, r, &m);
        pp_memory_finish(&m);
        if (rc)
            return -1;
    }
    return 0;
}
