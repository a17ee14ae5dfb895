/* SPDX-License-Identifier: MIT */
/* What a unit takes: by its operations, or as it was measured (--costs); and
 * how fast ranks are (--rank-speed). */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "manifest/profile_json.h"
#include "model/cost.h"
#include "model/model.h"
#include "ppsplit.h"

/* Puts the measured units in the model's order. */
static int match(struct split_job *j, const struct pp_profile *p)
{
    struct pp_err *err = &j->t.err;
    char name[PP_FQN_TEXT];
    size_t at = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        struct pp_unit_id u;
        if (!pp_unit_by_fqn(&j->model, p->units[i].fqn, &u))
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: /units/%zu/fqn: '%s' is not in the model",
                           j->costs_file, i, p->units[i].fqn);
    }
    for (size_t i = 0; i < j->n_units; i++) {
        pp_model_fqn(&j->model, pp_model_unit(&j->model, i), name);
        /* They are in order as a rule. */
        size_t tried = 0;
        while (tried < p->n_units && strcmp(p->units[at].fqn, name)) {
            at = (at + 1) % p->n_units;
            tried++;
        }
        if (tried == p->n_units)
            return pp_fail(err, PP_EXIT_INPUT, "%s: /units: no '%s'",
                           j->costs_file, name);
        j->measured[i] = p->units[at];
    }
    return 0;
}

int split_read_costs(struct split_job *j)
{
    struct pp_profile p;
    if (!j->costs_file)
        return 0;
    j->measured = pp_arena_alloc(&j->arena, j->n_units, sizeof *j->measured);
    if (!j->measured)
        return pp_fail(&j->t.err, PP_EXIT_SYSTEM, "out of memory");
    if (pp_profile_read(j->costs_file, &j->arena, &p, &j->t.err))
        return -1;
    j->profile = (struct pp_profile){.units = j->measured,
                                     .n_units = j->n_units,
                                     .seconds_per_byte = p.seconds_per_byte,
                                     .latency = p.latency,
                                     .seconds_per_param = p.seconds_per_param};
    return match(j, &p);
}

static double part(double some, double all)
{
    return all > 0 ? some / all : 0;
}

struct pp_cost split_unit_cost(const struct split_job *j, size_t i,
                               double tokens, double pairs)
{
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    struct pp_flops f = pp_unit_fwd_flops(&j->model, u);
    struct pp_flops again =
        pp_unit_recompute_flops(&j->model, u, split_recompute(j, i));
    if (j->measured) {
        const struct pp_unit_seconds *x = &j->measured[i];
        const struct pp_cost c =
            pp_cost_measured(x->fwd[0] * tokens + x->fwd[1] * pairs,
                             x->input[0] * tokens + x->input[1] * pairs,
                             x->weight[0] * tokens + x->weight[1] * pairs,
                             pp_unit_recomputes(&j->model, u));
        /* As much of the forward's time as of its operations. */
        return pp_cost_recompute(
            c, x->fwd[0] * tokens * part(again.per_token, f.per_token),
            x->fwd[1] * pairs * part(again.per_pair, f.per_pair));
    }
    double share = pp_mesh_share(&j->mesh);
    /* Of the pairs, those that lie in the layer's window. */
    double length = (double)j->seq_len;
    double seen =
        pp_attended_pairs(f.window, length) / pp_attended_pairs(0, length);
    return pp_cost_recompute(pp_cost_of(share * f.per_token * tokens,
                                        share * f.per_pair * pairs * seen,
                                        pp_unit_recomputes(&j->model, u)),
                             share * again.per_token * tokens,
                             share * again.per_pair * pairs * seen);
}

double split_token_cost(const struct split_job *j, size_t i)
{
    double length = (double)j->seq_len;
    struct pp_unit_id u = pp_model_unit(&j->model, i);
    const struct pp_cost c =
        j->measured ? split_unit_cost(j, i, 1, (length + 1) / 2)
                    : pp_unit_cost(&j->model, u, split_recompute(j, i), length);
    return c.forward +
           (j->run.halves ? c.input_grad + c.weight_grad : c.backward);
}

int split_read_speeds(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    int64_t n = 0;
    if (!j->rank_speed)
        return 0;
    char *text = pp_arena_strdup(&j->arena, j->rank_speed);
    j->speeds =
        pp_arena_alloc(&j->arena, (size_t)j->n_ranks, sizeof *j->speeds);
    if (!text || !j->speeds)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (char *item; (item = strsep(&text, ",")); n++) {
        double v;
        if (pp_parse_real(item, "--rank-speed", 1e-6, 1e6, &v, err))
            return -1;
        if (n < j->n_ranks)
            j->speeds[n] = v;
    }
    if (n != j->n_ranks)
        return tool_usage(
            &j->t, "--rank-speed: '%s' is for %" PRId64 " ranks, not %" PRId64,
            j->rank_speed, n, j->n_ranks);
    return 0;
}
