/* SPDX-License-Identifier: MIT */
#include "manifest/stage_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/cost.h"
#include "model/layout.h"
#include "model/parts.h"
#include "model/precision.h"

/* Recomputed operations take the same share of the forward's time as of its
 * operations. */
static double recompute_time(const struct pp_manifest_unit *u,
                             enum pp_recompute r,
                             const struct pp_unit_seconds *t, int k)
{
    double all = u->fwd_flops[k];
    return all > 0 ? t->fwd[k] * u->modes[r].recompute_flops[k] / all : 0;
}

static void add_seconds(struct pp_unit_seconds *to,
                        const struct pp_unit_seconds *t,
                        const struct pp_manifest_unit *u, enum pp_recompute r)
{
    for (int k = 0; k < 2; k++) {
        to->fwd[k] += t->fwd[k];
        if (u->role != PP_ROLE_FORWARD)
            to->input[k] += t->input[k] + recompute_time(u, r, t, k);
        if (u->role == PP_ROLE_TRAINED)
            to->weight[k] += t->weight[k];
    }
}

/* Returns the parameters of a unit that a rank gets from others if the ranks
 * that hold them divide them. dp cp ranks hold the dense ones, 1 / ep of these
 * the experts, or of all ranks if none is divided. The bytes of a rank's
 * weights tell how many experts it has, unless these are divided like dense
 * weights. */
static double moved_params(const struct pp_mesh *x,
                           const struct pp_manifest_unit *u,
                           const struct pp_precision *types)
{
    double n = x->dp * x->cp, of_experts = (double)pp_mesh_expert_ranks(x);
    double ratio = x->ep * n / of_experts, experts = 0;
    double all = (double)u->params / x->tp;
    if (ratio != 1 && u->weight_bytes > 0)
        experts =
            fmax(0, (all - u->weight_bytes / (double)types->element_bytes) /
                        (ratio - 1));
    return (n - 1) / n * (all - ratio * experts) +
           (of_experts - x->ep) / of_experts * experts;
}

/* Adds a unit of the model to its stage. A sum also moves its parts back,
 * unless each rank keeps its part alone (ZeRO-1). */
static void add_moved(struct pp_stage_costs *c, int stage,
                      const struct pp_manifest *m, size_t unit)
{
    const struct pp_manifest_unit *u = &m->model.units[unit];
    const struct pp_precision *types =
        m->model.dtype ? pp_precision_find(m->model.dtype) : NULL;
    types = types ? types : pp_precisions;
    const struct pp_layout l = pp_manifest_layout(m);
    const struct pp_mesh x =
        pp_layout_mesh(&l, m->graph.stages[stage].row, unit < c->language);
    double params = moved_params(&x, u, types);
    c->moved[stage].gathered += params * (double)types->element_bytes;
    if (u->role == PP_ROLE_TRAINED)
        c->moved[stage].reduced += (m->mesh.whole_state ? 2 : 1) * params *
                                   (double)types->accumulator_bytes;
}

/* Finds the bridges of encoders with ranks of their own: the last stage of
 * each. */
static void find_bridges(struct pp_stage_costs *c, const struct pp_manifest *m)
{
    const struct pp_layout l = pp_manifest_layout(m);
    for (int s = 0; s < m->graph.n_stages; s++) {
        int row = m->graph.stages[s].row, of = pp_layout_component(&l, row);
        const struct pp_layout_component *e = &l.components[of];
        bool last = row == e->first_row + e->mesh.pp - 1;
        c->busier_end[s] = last ? pp_layout_busier_end(&l, of) : 1;
    }
}

/* Returns the encoder that has a unit and whose items are counted, or
 * PP_MAX_ENCODERS. */
static size_t encoder_of(const struct pp_stage_costs *c, size_t unit)
{
    size_t e = 0;
    while (e < PP_MAX_ENCODERS && unit >= c->encoder_end[e])
        e++;
    return e;
}

static struct pp_unit_seconds *alloc_seconds(int n)
{
    return calloc((size_t)n, sizeof(struct pp_unit_seconds));
}

static int alloc_profile(struct pp_stage_costs *c, struct pp_err *err)
{
    int n = c->graph->n_stages;
    bool whole = true;
    c->heads = alloc_seconds(n);
    c->others = alloc_seconds(n);
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++) {
        c->items[e] = alloc_seconds(n);
        whole &= c->items[e] != NULL;
    }
    c->moved = calloc((size_t)n, sizeof *c->moved);
    c->busier_end = calloc((size_t)n, sizeof *c->busier_end);
    return whole && c->heads && c->others && c->moved && c->busier_end
               ? 0
               : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
}

static int sum_profile(struct pp_stage_costs *c, const struct pp_manifest *m,
                       struct pp_err *err)
{
    c->profile = &m->profile;
    if (alloc_profile(c, err))
        return -1;
    find_bridges(c, m);
    for (int s = 0; s < m->graph.n_stages; s++)
        for (size_t i = 0; i < m->stages[s].n_units; i++) {
            const struct pp_manifest_stage *stage = &m->stages[s];
            size_t unit = stage->first_unit + i, e = encoder_of(c, unit);
            const struct pp_manifest_unit *u = &m->model.units[unit];
            add_seconds(pp_fqn_is_head(u->fqn) ? &c->heads[s]
                        : e < PP_MAX_ENCODERS  ? &c->items[e][s]
                                               : &c->others[s],
                        &m->profile.units[unit], u, stage->recompute);
            add_moved(c, s, m, unit);
        }
    return 0;
}

int pp_stage_costs_init(struct pp_stage_costs *c, const struct pp_manifest *m,
                        struct pp_err *err)
{
    *c = (struct pp_stage_costs){.graph = &m->graph, .stages = m->stages};
    c->head_flops = calloc((size_t)m->graph.n_stages, sizeof *c->head_flops);
    if (!c->head_flops)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (int s = 0; s < m->graph.n_stages; s++)
        for (size_t i = 0; i < m->stages[s].n_units; i++) {
            const struct pp_manifest_unit *u =
                &m->model.units[m->stages[s].first_unit + i];
            if (pp_fqn_is_head(u->fqn))
                c->head_flops[s] = u->fwd_flops[0];
        }
    c->units = m->model.units;
    c->has_frozen = m->model.has_frozen;
    if (m->n_components)
        c->language = m->components[pp_plan_language(m)].first_unit;
    for (size_t e = 0; e < pp_plan_counted(m); e++)
        c->encoder_end[e] =
            m->components[e].first_unit + m->components[e].n_units;
    return m->has_profile ? sum_profile(c, m, err) : 0;
}

bool pp_stage_costs_known(const struct pp_stage_costs *c)
{
    bool known = c->profile != NULL;
    for (int s = 0; s < c->graph->n_stages; s++)
        known |= c->stages[s].fwd_flops[0] > 0 || c->stages[s].fwd_flops[1] > 0;
    return known;
}

/* Returns the sum over the units of a stage, each in its role. */
static struct pp_cost units_flops(const struct pp_stage_costs *c, int stage,
                                  struct pp_workload l)
{
    const struct pp_manifest_stage *s = &c->stages[stage];
    struct pp_cost sum = {0, 0, 0, 0};
    for (size_t i = s->first_unit; i < s->first_unit + s->n_units; i++) {
        const struct pp_manifest_unit *u = &c->units[i];
        const double *again = u->modes[s->recompute].recompute_flops;
        size_t e = encoder_of(c, i);
        double tokens = e < PP_MAX_ENCODERS ? l.items[e].tokens : l.tokens;
        double pairs = e < PP_MAX_ENCODERS ? l.items[e].pairs : l.pairs;
        struct pp_cost x =
            pp_cost_of(tokens * u->fwd_flops[0], pairs * u->fwd_flops[1],
                       pp_fqn_is_head(u->fqn));
        x = pp_cost_recompute(x, tokens * again[0], pairs * again[1]);
        sum = pp_cost_sum(sum, pp_cost_in_role(x, u->role));
    }
    return sum;
}

/* Reports whether all units take the same tokens and pairs. */
static bool is_even(const struct pp_workload *l)
{
    bool even = true;
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++)
        even &= !(l->items[e].tokens < l->tokens) &&
                !(l->items[e].tokens > l->tokens) &&
                !(l->items[e].pairs < l->pairs) &&
                !(l->items[e].pairs > l->pairs);
    return even;
}

static struct pp_cost stage_flops(const struct pp_stage_costs *c, int stage,
                                  struct pp_workload l)
{
    double tokens = l.tokens, pairs = l.pairs;
    if (c->has_frozen || !is_even(&l))
        return units_flops(c, stage, l);
    const double *flops = c->stages[stage].fwd_flops;
    double head = c->head_flops[stage];
    struct pp_cost h = pp_cost_of(tokens * head, 0, true);
    struct pp_cost rest =
        pp_cost_of(tokens * (flops[0] - head), flops[1] * pairs, false);
    const double *again = c->stages[stage].recompute_flops;
    rest = pp_cost_recompute(rest, tokens * again[0], pairs * again[1]);
    return pp_cost_sum(rest, h);
}

static struct pp_cost seconds_of(const struct pp_unit_seconds *s, double tokens,
                                 double pairs, bool recomputes)
{
    return pp_cost_measured(s->fwd[0] * tokens + s->fwd[1] * pairs,
                            s->input[0] * tokens + s->input[1] * pairs,
                            s->weight[0] * tokens + s->weight[1] * pairs,
                            recomputes);
}

static struct pp_cost stage_seconds(const struct pp_stage_costs *c, int stage,
                                    struct pp_workload l)
{
    struct pp_cost sum =
        pp_cost_sum(seconds_of(&c->heads[stage], l.tokens, l.pairs, true),
                    seconds_of(&c->others[stage], l.tokens, l.pairs, false));
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++)
        sum =
            pp_cost_sum(sum, seconds_of(&c->items[e][stage], l.items[e].tokens,
                                        l.items[e].pairs, false));
    return sum;
}

/* Returns the bytes that a stage passes on. One that ends with the last of the
 * encoders also has the features of the others that end in it. */
static double passed_bytes(const struct pp_stage_costs *c, int stage,
                           struct pp_workload l)
{
    const struct pp_manifest_stage *s = &c->stages[stage];
    size_t end = s->first_unit + s->n_units;
    size_t last = end > 0 ? encoder_of(c, end - 1) : PP_MAX_ENCODERS;
    if (last == PP_MAX_ENCODERS)
        return s->out_bytes * l.tokens;
    double bytes = s->out_bytes * l.items[last].tokens;
    for (size_t e = 0; e < last; e++)
        if (c->encoder_end[e] > s->first_unit)
            bytes +=
                c->units[c->encoder_end[e] - 1].out_bytes * l.items[e].tokens;
    return bytes;
}

/* In both directions a message is as wide as the lower stage's output. */
static double message_time(const struct pp_stage_costs *c, struct pp_action a,
                           struct pp_workload l)
{
    int lower = a.op == PP_SEND_F ? a.stage : a.peer;
    double bytes = passed_bytes(c, lower, l) * c->busier_end[lower];
    return c->profile->latency + c->profile->seconds_per_byte * bytes;
}

static double collective_time(const struct pp_stage_costs *c,
                              struct pp_action a)
{
    double bytes = a.op == PP_UNSHARD ? c->moved[a.stage].gathered
                                      : c->moved[a.stage].reduced;
    bool moves = a.op == PP_UNSHARD ? c->graph->resident : c->graph->replicas;
    return moves && bytes > 0
               ? c->profile->latency + c->profile->seconds_per_byte * bytes
               : 0;
}

double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     struct pp_workload l)
{
    if (pp_is_send(a.op) && c->profile)
        return message_time(c, a, l);
    if (pp_is_collective(a.op) && c->profile)
        return collective_time(c, a);
    if (!pp_is_compute(a.op))
        return 0;
    struct pp_cost all =
        c->profile ? stage_seconds(c, a.stage, l) : stage_flops(c, a.stage, l);
    bool source = !c->graph->stages[a.stage].input_grad;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return all.forward;
    case PP_I:
        return source ? 0 : all.input_grad;
    case PP_W:
        return source ? all.backward : all.weight_grad;
    default:
        return all.backward;
    }
}

void pp_slice_tokens(int64_t n, int64_t total, double *tokens)
{
    for (int64_t q = 0; q < n; q++)
        tokens[q] = (double)(total * (q + 1) / n - total * q / n);
}

size_t pp_stage_slowest(const struct pp_stage_costs *c, const double *tokens,
                        const double *pairs, size_t n)
{
    double longest = -1;
    size_t slowest = 0;
    for (size_t k = 0; k < n; k++) {
        double time = 0;
        for (int s = 0; s < c->graph->n_stages; s++) {
            const struct pp_action a = {.op = PP_F, .stage = s};
            time += pp_stage_time(c, a, pp_workload_of(tokens[k], pairs[k]));
        }
        slowest = time > longest ? k : slowest;
        longest = time > longest ? time : longest;
    }
    return slowest;
}

void pp_slice_pairs(int64_t n, int64_t total, int64_t at, int64_t length,
                    double *pairs)
{
    int64_t end = at + length;
    for (int64_t q = 0; q < n; q++) {
        int64_t from = total * q / n, to = total * (q + 1) / n;
        from = (from > at ? from : at) - at;
        to = (to < end ? to : end) - at;
        if (from < to)
            pairs[q] += (double)to * (double)(to + 1) / 2 -
                        (double)from * (double)(from + 1) / 2;
    }
}

void pp_model_cost(const struct pp_manifest_model *m, double *per_token,
                   double *per_pair)
{
    *per_token = *per_pair = 0;
    for (size_t i = 0; i < m->n_units; i++) {
        const struct pp_manifest_unit *u = &m->units[i];
        *per_token += pp_cost_total(pp_cost_in_role(
            pp_cost_of(u->fwd_flops[0], 0, pp_fqn_is_head(u->fqn)), u->role));
        *per_pair += pp_cost_total(
            pp_cost_in_role(pp_cost_of(0, u->fwd_flops[1], false), u->role));
    }
}

double pp_step_rest(const struct pp_stage_costs *c)
{
    double most = 0;
    for (int r = 0; c->profile && r < c->graph->n_rows; r++) {
        double params = 0;
        for (int s = 0; s < c->graph->n_stages; s++)
            if (c->graph->stages[s].row == r)
                params += (double)c->stages[s].trained_params;
        most = fmax(most, params);
    }
    return c->profile ? most * c->profile->seconds_per_param : 0;
}

void pp_stage_costs_finish(struct pp_stage_costs *c)
{
    free(c->head_flops);
    free(c->heads);
    for (size_t e = 0; e < PP_MAX_ENCODERS; e++)
        free(c->items[e]);
    free(c->others);
    free(c->moved);
    free(c->busier_end);
    memset(c, 0, sizeof *c);
}
