/* SPDX-License-Identifier: MIT */
#include "manifest/stage_costs.h"

#include <stdlib.h>
#include <string.h>

#include "plan/cost.h"

static bool is_head(const struct pp_manifest_unit *u)
{
    char name[PP_FQN_TEXT];
    pp_unit_fqn((struct pp_unit_id){PP_UNIT_HEAD, 0}, name);
    return !strcmp(u->fqn, name);
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
            if (is_head(u))
                c->head_flops[s] = u->fwd_flops[0];
        }
    return 0;
}

bool pp_stage_costs_known(const struct pp_stage_costs *c)
{
    bool known = false;
    for (int s = 0; s < c->graph->n_stages; s++)
        known |= c->stages[s].fwd_flops[0] > 0 || c->stages[s].fwd_flops[1] > 0;
    return known;
}

double pp_stage_time(const struct pp_stage_costs *c, struct pp_action a,
                     double tokens, double pairs)
{
    if (!pp_is_compute(a.op))
        return 0;
    const double *flops = c->stages[a.stage].fwd_flops;
    double head = c->head_flops[a.stage];
    struct pp_cost h = pp_cost_of(tokens * head, 0, true);
    struct pp_cost rest =
        pp_cost_of(tokens * (flops[0] - head), flops[1] * pairs, false);
    double input = rest.input_grad + h.input_grad;
    double weight = rest.weight_grad + h.weight_grad;
    bool source = !c->graph->stages[a.stage].input_grad;
    switch ((enum pp_op)a.op) {
    case PP_F:
        return rest.forward + h.forward;
    case PP_I:
        return source ? 0 : input;
    case PP_W:
        return source ? input + weight : weight;
    default:
        return input + weight;
    }
}

void pp_slice_tokens(int64_t n, int64_t total, double *tokens)
{
    for (int64_t q = 0; q < n; q++)
        tokens[q] = (double)(total * (q + 1) / n - total * q / n);
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
        *per_token += pp_cost_total(pp_cost_of(u->fwd_flops[0], 0, is_head(u)));
        *per_pair += pp_cost_total(pp_cost_of(0, u->fwd_flops[1], false));
    }
}

void pp_stage_costs_finish(struct pp_stage_costs *c)
{
    free(c->head_flops);
    memset(c, 0, sizeof *c);
}
