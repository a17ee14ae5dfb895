/* SPDX-License-Identifier: MIT */
#include "cost/stage_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cost/trainer.h"
#include "model/cost.h"
#include "model/layout.h"
#include "model/parts.h"
#include "model/precision.h"

/* Returns the seconds of recomputation per token or per pair. */
static double recompute_time(const struct pp_plan_unit *u, enum pp_recompute r,
                             const struct pp_unit_seconds *t, int k)
{
    const struct pp_plan_mode *mode = pp_plan_mode(u, r);
    double all = u->costs.fwd_flops[k];
    double share = mode && all > 0 ? mode->recompute_flops[k] / all : 0;
    return k == 0 && mode ? pp_recompute_seconds(t, r, share)
                          : share * t->fwd[k];
}

static void add_seconds(struct pp_unit_seconds *to,
                        const struct pp_unit_seconds *t,
                        const struct pp_plan_unit *u, enum pp_recompute r)
{
    for (int k = 0; k < 2; k++) {
        to->fwd[k] += t->fwd[k];
        if (u->role != PP_ROLE_FORWARD)
            to->input[k] += t->input[k] + recompute_time(u, r, t, k);
        if (u->role == PP_ROLE_TRAINED)
            to->weight[k] += t->weight[k];
    }
    if (u->role == PP_ROLE_TRAINED)
        to->once += t->once;
}

/* The parameters of a unit on a rank, experts' apart. dp cp ranks hold
 * the same dense parameters, and divide them; some ranks hold the same experts.
 */
struct shares {
    double dense, experts, dense_ranks, expert_ranks;
};

/* Finds the shares. The bytes of a rank's weights tell how many experts it has,
 * unless these are divided like dense weights. */
static struct shares shares_of(const struct pp_mesh *x,
                               const struct pp_plan_unit *u,
                               const struct pp_precision *types)
{
    double n = x->dp * x->cp, of_experts = (double)pp_mesh_expert_ranks(x);
    double ratio = x->ep * n / of_experts, experts = 0;
    double all = (double)u->costs.params / x->tp;
    if (ratio != 1 && u->weight_bytes > 0 && !(u->mapped_bytes > 0))
        experts =
            fmax(0, (all - u->weight_bytes / (double)types->element_bytes) /
                        (ratio - 1));
    return (struct shares){all - ratio * experts, experts, n,
                           of_experts / x->ep};
}

static const struct pp_precision *types_of(const struct pp_plan *p)
{
    const char *name = p->model->dtype;
    const struct pp_precision *found = name ? pp_precision_find(name) : NULL;
    return found ? found : pp_precisions;
}

/* Returns the time of the update for a parameter that a rank holds, over the
 * time for a parameter that it updates. */
static double held_share(const struct pp_plan *p, bool reduces)
{
    const struct pp_trainer *t = pp_trainer_find(p->model->trainer);
    const struct pp_precision *types = types_of(p);
    return pp_trainer_held_bytes(t, types, reduces) /
           pp_trainer_update_bytes(t, types);
}

/* Adds the parameters of a unit of a stage to sums. A sum of gradients also
 * moves its parts back, unless each rank keeps its part alone (ZeRO-1). */
static void add_params(const struct pp_stage_costs *c, int stage, size_t unit,
                       struct pp_stage_cost *to)
{
    const struct pp_plan *p = &c->plan;
    const struct pp_plan_unit *u = &p->model->units[unit];
    const struct pp_precision *types = types_of(p);
    const struct pp_layout l = pp_plan_layout(*p);
    const struct pp_mesh x =
        pp_layout_mesh(&l, p->graph->stages[stage].row, unit < c->language);
    const struct shares held = shares_of(&x, u, types);
    const double all[] = {held.dense, held.experts};
    const double own[] = {held.dense / held.dense_ranks,
                          held.experts / held.expert_ranks};
    for (int k = 0; k < 2; k++) {
        double others = all[k] - own[k];
        to->gathered[k] += others * (double)types->element_bytes;
        if (u->role != PP_ROLE_TRAINED)
            continue;
        to->updated += p->mesh->whole_state ? all[k] : own[k];
        to->update += (p->mesh->whole_state ? all[k] : own[k]) +
                      all[k] * held_share(p, others > 0);
        to->reduced[k] += (p->mesh->whole_state ? 2 : 1) * others *
                          (double)pp_gradient_bytes(types);
    }
}

static bool has_links(const struct pp_plan *p)
{
    return p->machine && p->machine->n_levels > 0;
}

/* Finds the links of a stage: the machine's, or the measured one. */
static void find_links(struct pp_stage_costs *c, int stage)
{
    const struct pp_plan *p = &c->plan;
    const struct pp_layout l = pp_plan_layout(*p);
    const struct pp_stage_node *node = &p->graph->stages[stage];
    const struct pp_place place = {
        .component = pp_layout_component(&l, node->row), .row = node->row};
    struct pp_stage_cost *to = &c->stages[stage];
    if (!has_links(p)) {
        to->passed =
            (struct pp_link){p->profile->latency, p->profile->seconds_per_byte};
        to->data[0] = to->passed;
        to->data[1] = (struct pp_link){0, to->passed.per_byte};
        return;
    }
    const struct pp_group dense = pp_layout_group(&l, &place, PP_GROUP_DATA);
    const struct pp_group experts =
        pp_layout_group(&l, &place, PP_GROUP_EXPERT_DATA);
    to->data[0] = pp_machine_ring(p->machine, &dense);
    to->data[1] = pp_machine_ring(p->machine, &experts);
    for (int i = 0; i < node->n_outputs; i++)
        to->passed = pp_link_slower(
            to->passed,
            pp_machine_rows(p->machine, &l, node->row,
                            p->graph->stages[node->outputs[i]].row));
}

/* Returns the factor of messages from a stage: above 1 for the last stage of
 * encoders with ranks of their own. */
static double busier_end(struct pp_plan p, int stage)
{
    const struct pp_layout l = pp_plan_layout(p);
    int row = p.graph->stages[stage].row, of = pp_layout_component(&l, row);
    const struct pp_layout_component *e = &l.components[of];
    bool last = row == e->first_row + e->mesh.pp - 1;
    return last ? pp_layout_busier_end(&l, of) : 1;
}

/* Returns the component whose workload a unit takes: an encoder, if its items
 * are counted, or PP_LANGUAGE. */
static size_t worker_of(const struct pp_stage_costs *c, size_t unit)
{
    return pp_plan_counted(c->plan) ? pp_plan_encoder_of(c->plan, unit)
                                    : PP_LANGUAGE;
}

/* Adds a unit of a stage to sums. */
static void add_unit(const struct pp_stage_costs *c, int s, size_t unit,
                     struct pp_stage_cost *to)
{
    const struct pp_plan *p = &c->plan;
    const struct pp_plan_unit *u = &p->model->units[unit];
    bool head = pp_fqn_is_head(u->fqn);
    if (head)
        to->head_flops = u->costs.fwd_flops[0];
    if (!p->profile)
        return;
    add_seconds(head ? &to->head : &to->of[worker_of(c, unit)],
                &p->profile->units[unit], u, p->stages[s].recompute);
    add_params(c, s, unit, to);
}

static void sum_stage(struct pp_stage_costs *c, int s)
{
    const struct pp_plan_stage *stage = &c->plan.stages[s];
    struct pp_stage_cost *to = &c->stages[s];
    to->busier_end = busier_end(c->plan, s);
    if (c->plan.profile)
        find_links(c, s);
    for (size_t i = 0; i < stage->n_units; i++)
        add_unit(c, s, stage->first_unit + i, to);
}

void pp_stage_costs_init(struct pp_stage_costs *c, struct pp_plan p)
{
    *c = (struct pp_stage_costs){.plan = p};
    c->stages = pp_calloc((size_t)p.graph->n_stages, sizeof *c->stages);
    if (p.n_components)
        c->language = p.components[pp_plan_language(p)].first_unit;
    for (int s = 0; s < p.graph->n_stages; s++)
        sum_stage(c, s);
}

bool pp_stage_costs_known(const struct pp_stage_costs *c)
{
    bool known = c->plan.profile != NULL;
    for (int s = 0; s < c->plan.graph->n_stages; s++)
        known |= c->plan.stages[s].costs.fwd_flops[0] > 0 ||
                 c->plan.stages[s].costs.fwd_flops[1] > 0;
    return known;
}

/* Returns the sum over the units of a stage, each in its role. */
static struct pp_cost units_flops(const struct pp_stage_costs *c, int stage,
                                  struct pp_workload l, enum pp_logits of_head)
{
    const struct pp_plan_stage *s = &c->plan.stages[stage];
    struct pp_cost sum = {0, 0, 0, 0};
    for (size_t i = s->first_unit; i < s->first_unit + s->n_units; i++) {
        const struct pp_plan_unit *u = &c->plan.model->units[i];
        const struct pp_plan_mode *mode = pp_plan_mode(u, s->recompute);
        size_t k = worker_of(c, i);
        double tokens = l.of[k].tokens, pairs = l.of[k].pairs;
        enum pp_logits logits =
            pp_fqn_is_head(u->fqn) ? of_head : PP_LOGITS_KEPT;
        struct pp_cost x = pp_cost_of(tokens * u->costs.fwd_flops[0],
                                      pairs * u->costs.fwd_flops[1], logits);
        x = pp_cost_lacking(x, tokens * u->frozen_flops);
        if (mode)
            x = pp_cost_recompute(x, tokens * mode->recompute_flops[0],
                                  pairs * mode->recompute_flops[1]);
        sum = pp_cost_sum(sum,
                          pp_cost_at_once(pp_cost_in_role(x, u->role), logits));
    }
    return sum;
}

/* Reports whether all units take the same tokens and pairs. */
static bool is_even(const struct pp_workload *l)
{
    bool even = true;
    for (size_t k = 0; k < PP_LANGUAGE; k++)
        even &= !memcmp(&l->of[k], &l->of[PP_LANGUAGE], sizeof *l->of);
    return even;
}

static struct pp_cost stage_flops(const struct pp_stage_costs *c, int stage,
                                  struct pp_workload l, enum pp_logits logits)
{
    double tokens = l.of[PP_LANGUAGE].tokens, pairs = l.of[PP_LANGUAGE].pairs;
    if (c->plan.model->has_frozen || !is_even(&l))
        return units_flops(c, stage, l, logits);
    const double *flops = c->plan.stages[stage].costs.fwd_flops;
    double head = c->stages[stage].head_flops;
    struct pp_cost h =
        pp_cost_at_once(pp_cost_of(tokens * head, 0, logits), logits);
    struct pp_cost rest = pp_cost_of(tokens * (flops[0] - head),
                                     flops[1] * pairs, PP_LOGITS_KEPT);
    const double *again = c->plan.stages[stage].recompute_flops;
    rest = pp_cost_recompute(rest, tokens * again[0], pairs * again[1]);
    return pp_cost_sum(rest, h);
}

static struct pp_cost seconds_of(const struct pp_unit_seconds *s, double tokens,
                                 double pairs, enum pp_logits logits)
{
    struct pp_cost c =
        pp_cost_measured(s->fwd[0] * tokens + s->fwd[1] * pairs,
                         s->input[0] * tokens + s->input[1] * pairs,
                         s->weight[0] * tokens + s->weight[1] * pairs, logits);
    c.backward = pp_cost_less(c.backward, s->once * tokens);
    return pp_cost_at_once(c, logits);
}

static struct pp_cost stage_seconds(const struct pp_stage_cost *s,
                                    struct pp_workload l, enum pp_logits logits)
{
    struct pp_cost sum = seconds_of(&s->head, l.of[PP_LANGUAGE].tokens,
                                    l.of[PP_LANGUAGE].pairs, logits);
    for (size_t k = PP_LANGUAGE + 1; k-- > 0;)
        sum = pp_cost_sum(sum, seconds_of(&s->of[k], l.of[k].tokens,
                                          l.of[k].pairs, PP_LOGITS_KEPT));
    return sum;
}

/* In both directions a message is as wide as the lower stage's output. */
static double message_time(const struct pp_stage_costs *c, struct pp_action a,
                           struct pp_workload l)
{
    int lower = a.op == PP_SEND_F ? a.stage : a.peer;
    double bytes =
        pp_plan_passed(c->plan, lower, l) * c->stages[lower].busier_end;
    const struct pp_link x = c->stages[lower].passed;
    return x.seconds + x.per_byte * bytes;
}

/* Returns the time in which bytes move over the links of a stage. */
static double moving_time(const struct pp_stage_cost *s, const double bytes[2],
                          int rounds)
{
    double time = 0;
    for (int k = 0; k < 2; k++)
        if (bytes[k] > 0)
            time +=
                rounds * s->data[k].seconds + s->data[k].per_byte * bytes[k];
    return time;
}

/* Returns the time of sums of gradients. */
static double reduction_time(const struct pp_stage_costs *c, int stage,
                             const double bytes[2])
{
    int rounds = c->plan.mesh->whole_state && has_links(&c->plan) ? 2 : 1;
    return c->plan.graph->replicas
               ? moving_time(&c->stages[stage], bytes, rounds)
               : 0;
}

double pp_stage_gather(const struct pp_stage_costs *c, int stage)
{
    return moving_time(&c->stages[stage], c->stages[stage].gathered, 1);
}

double pp_stage_copied(const struct pp_stage_costs *c, int stage)
{
    const struct pp_plan *p = &c->plan;
    const struct pp_graph *g = p->graph;
    const struct pp_layout l = pp_plan_layout(*p);
    int first = pp_original(g, stage), n = 0;
    struct pp_link link = {0};
    if (!p->profile)
        return 0;
    for (int s = first; s < g->n_stages; s += g->n_stages / g->n_copies) {
        if (pp_home(g, s) != s)
            continue;
        if (n++ > 0 && has_links(p))
            link = pp_link_slower(link, pp_machine_rows(p->machine, &l,
                                                        g->stages[first].row,
                                                        g->stages[s].row));
        else if (n > 1)
            link = (struct pp_link){p->profile->latency,
                                    p->profile->seconds_per_byte};
    }
    double bytes =
        c->stages[stage].updated * (double)pp_gradient_bytes(types_of(p));
    return n > 1 ? 2 * (link.seconds + link.per_byte * bytes * (n - 1) / n) : 0;
}

/* Returns who makes the logits, if pprun would do so. Units that divide a head
 * wait for its loss. */
static enum pp_logits logits_of(const struct pp_stage_costs *c,
                                enum pp_logits of_pprun)
{
    const struct pp_trainer *t = pp_trainer_find(c->plan.model->trainer);
    bool divided = pp_graph_head(c->plan.graph) > 0;
    return t == pp_trainers && !divided ? of_pprun : PP_LOGITS_AGAIN;
}

double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     struct pp_workload l, enum pp_logits logits)
{
    if (pp_is_send(a.op) && c->plan.profile)
        return message_time(c, a, l);
    if (a.op == PP_REDUCE_GRAD && c->plan.profile)
        return reduction_time(c, a.stage, c->stages[a.stage].reduced);
    if (a.op == PP_UNSHARD && c->plan.profile)
        return c->plan.graph->resident ? pp_stage_gather(c, a.stage) : 0;
    if (!pp_is_compute(a.op))
        return 0;
    logits = logits_of(c, logits);
    struct pp_cost all = c->plan.profile
                             ? stage_seconds(&c->stages[a.stage], l, logits)
                             : stage_flops(c, a.stage, l, logits);
    bool source = !c->plan.graph->stages[a.stage].input_grad;
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

/* Returns the share of the gradients of the first stage in the last bucket that
 * Megatron-LM fills: buckets have 40 million elements, or a million for each
 * data-parallel rank (distributed_data_parallel.py). */
static double last_bucket(const struct pp_stage_costs *c)
{
    const struct pp_mesh *x = c->plan.mesh;
    double n = x->dp * x->cp;
    double moved = c->stages[0].reduced[0] + c->stages[0].reduced[1];
    double bytes = (double)pp_gradient_bytes(types_of(&c->plan));
    return fmin(1, fmax(40e6, 1e6 * x->dp) * bytes / (moved * n / (n - 1)));
}

void pp_stage_made(const struct pp_stage_costs *c, int stage,
                   struct pp_workload l, enum pp_logits logits,
                   struct pp_made *made)
{
    enum pp_trainer_buckets buckets =
        pp_trainer_find(c->plan.model->trainer)->buckets;
    const struct pp_plan_stage *s = &c->plan.stages[stage];
    const double *moved = c->stages[stage].reduced;
    double backward = 0, reduction = 0;
    *made =
        (struct pp_made){.left = pp_calloc(s->n_units + 2, sizeof *made->left)};
    if (!c->plan.profile || !(reduction_time(c, stage, moved) > 0))
        return;
    if (buckets == PP_BUCKETS_FIRST && stage == 0) {
        double last = last_bucket(c);
        made->left[made->n++] = (struct pp_made_left){1 - last, 1};
        made->left[made->n++] = (struct pp_made_left){0, last};
    }
    if (buckets != PP_BUCKETS_LAYERS)
        return;
    /* B makes the gradients of the first unit last. */
    for (size_t i = 0; i < s->n_units; i++) {
        struct pp_stage_cost unit = {0};
        add_unit(c, stage, s->first_unit + i, &unit);
        reduction += reduction_time(c, stage, unit.reduced);
        made->left[made->n++] = (struct pp_made_left){backward, reduction};
        backward += stage_seconds(&unit, l, logits_of(c, logits)).backward;
    }
    made->longer = reduction - reduction_time(c, stage, moved);
    for (int i = 0; i < made->n; i++) {
        made->left[i].backward /= backward > 0 ? backward : 1;
        made->left[i].reduction /= reduction;
    }
}

void pp_slice_tokens(struct pp_plan p, int64_t total,
                     struct pp_workload *slices)
{
    for (int q = 0; q < p.graph->slices.n; q++)
        slices[q] =
            pp_workload_of((double)(pp_plan_slice_begin(p, total, q + 1) -
                                    pp_plan_slice_begin(p, total, q)),
                           0);
}

size_t pp_stage_slowest(const struct pp_stage_costs *c, const double *tokens,
                        const double *pairs, size_t n)
{
    double longest = -1;
    size_t slowest = 0;
    for (size_t k = 0; k < n; k++) {
        double time = 0;
        for (int s = 0; s < c->plan.graph->n_stages; s++) {
            const struct pp_action a = {.op = PP_F, .stage = s};
            time += pp_stage_time(c, a, pp_workload_of(tokens[k], pairs[k]),
                                  PP_LOGITS_LEAST);
        }
        slowest = time > longest ? k : slowest;
        longest = time > longest ? time : longest;
    }
    return slowest;
}

void pp_slice_pairs(struct pp_plan p, int64_t total, int64_t at, int64_t length,
                    struct pp_workload *slices)
{
    int64_t end = at + length;
    for (int q = 0; q < p.graph->slices.n; q++) {
        int64_t from = pp_plan_slice_begin(p, total, q);
        int64_t to = pp_plan_slice_begin(p, total, q + 1);
        from = (from > at ? from : at) - at;
        to = (to < end ? to : end) - at;
        for (size_t k = 0; from < to && k <= PP_LANGUAGE; k++)
            slices[q].of[k].pairs += (double)to * (double)(to + 1) / 2 -
                                     (double)from * (double)(from + 1) / 2;
    }
}

void pp_model_cost(const struct pp_plan_model *m, double *per_token,
                   double *per_pair)
{
    *per_token = *per_pair = 0;
    for (size_t i = 0; i < m->n_units; i++) {
        const struct pp_plan_unit *u = &m->units[i];
        *per_token += pp_cost_total(pp_cost_in_role(
            pp_cost_lacking(pp_cost_of(u->costs.fwd_flops[0], 0,
                                       pp_fqn_is_head(u->fqn) ? PP_LOGITS_AGAIN
                                                              : PP_LOGITS_KEPT),
                            u->frozen_flops),
            u->role));
        *per_pair += pp_cost_total(pp_cost_in_role(
            pp_cost_of(0, u->costs.fwd_flops[1], PP_LOGITS_KEPT), u->role));
    }
}

void pp_stage_costs_finish(struct pp_stage_costs *c)
{
    free(c->stages);
    memset(c, 0, sizeof *c);
}
