/* SPDX-License-Identifier: MIT */
/* exec_generator - what an action has of a generator behind the language model:
 * its microbatch, and the bridge to its ranks if they divide rows in another
 * way. */
#include "run/execute/exec_impl.h"

/* Returns whether rows cross a bridge between this rank and another one of the
 * generator, or of the language model. */
static bool has_bridge(const struct pp_exec *e)
{
    return e->env->layout.generates && !pp_env_encodes(e->env);
}

/* Returns the place of the microbatch of the first lane. */
static uint64_t first_place(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_pass *p = e->pass;
    size_t lane = pp_env_has_tokens(e->env) ? (size_t)e->env->place.dp : 0;
    return p->first - lane + (uint64_t)a.microbatch * p->stride;
}

/* Returns the bin of this rank's lane, on ranks that all have lanes. */
static size_t bin_here(const struct pp_exec *e, struct pp_action a)
{
    uint64_t at = first_place(e, a) + (uint64_t)e->env->place.dp;
    return at < e->pass->end ? pp_packed_place(e->pass->packed, at) : PP_NO_BIN;
}

struct pp_bridge pp_exec_bridge(const struct pp_exec *e, struct pp_action a)
{
    struct pp_generated *g = &e->worker->engine.generated;
    return pp_bridge_of(e->env, e->pass->packed, first_place(e, a),
                        e->pass->end, g->tokens, g->next);
}

size_t pp_exec_generated(const struct pp_exec *e, struct pp_action a)
{
    const struct pp_mesh *x = pp_env_mesh(e->env);
    struct pp_bin b = {0};
    if (has_bridge(e)) {
        const struct pp_bridge bridge = pp_exec_bridge(e, a);
        return pp_bridge_rows(&bridge) * (size_t)pp_mesh_sharers(x);
    }
    if (bin_here(e, a) != PP_NO_BIN)
        pp_packed_bin(e->pass->packed, bin_here(e, a), &b);
    return b.ranks
               ? (size_t)x->cp * pp_bin_rank_tokens(&b, x->cp, e->env->place.cp)
               : b.tokens;
}

/* Completes the view of the generator. A pass that scores has no loss of it. */
static void set_loss(const struct pp_exec *e, struct pp_generated *g)
{
    static const struct pp_generator_loss none = {0};
    struct pp_head_loss *l = &g->view.of.loss;
    l->generator = e->pass->generator ? e->pass->generator : &none;
    l->scale = l->generator->scale;
    l->temperature = e->pass->temperature;
    l->sum = e->env->place.tp == 0 ? l->generator->sum : NULL;
}

bool pp_exec_has_head(const struct pp_stage *s)
{
    const struct pp_layer *last = s->layers + s->n_layers - 1;
    return s->n_layers > 0 && last->rows == PP_ROWS_TOKENS &&
           (last->unit.kind == PP_UNIT_LOSS ||
            (last->unit.kind == PP_UNIT_HEAD && !pp_layer_divides_head(last)));
}

int pp_exec_attach_generator(const struct pp_exec *e, struct pp_engine *on,
                             struct pp_action a,
                             struct pp_host_microbatch *host,
                             struct pp_err *err)
{
    struct pp_generated *g = &on->generated;
    struct pp_bridge b;
    if (!e->env->shard.model->generator)
        return 0;
    if (has_bridge(e))
        b = pp_exec_bridge(e, a);
    if (has_bridge(e) && pp_exec_has_head(&on->stages[a.stage]))
        host->of.bridge = pp_generated_places(g, &b);
    const struct pp_env *env = pp_env_of(e->env, PP_ROWS_GENERATED);
    if (!env)
        return 0;
    if (pp_generated_view(g, env, has_bridge(e) ? &b : NULL, e->pass->packed,
                          bin_here(e, a), err))
        return -1;
    set_loss(e, g);
    host->of.views[PP_GENERATOR] = &g->there;
    return 0;
}
