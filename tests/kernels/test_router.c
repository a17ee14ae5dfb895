/* SPDX-License-Identifier: MIT */
/* test_router - the auxiliary losses of routers: their values against the
 * definition, their gradients against finite differences in fp64. */
#include <math.h>
#include <string.h>

#include "rig.h"

#include "run/parts/layer_impl.h"

static const struct packing packed = {5, {5, 1, 0, 7, 3}, {8, 1, 2, 7, 4}};

enum { EXPERTS = 5, CHOSEN = 2 };

static struct pp_model model_of(bool sigmoid)
{
    struct pp_model m = rig_model();
    m.architecture = PP_QWEN2_MOE;
    m.moe = (struct pp_moe){{{1}}, EXPERTS,     CHOSEN,
                            3,     .shared = 4, .shared_gate = true};
    m.moe.router.sigmoid = m.moe.router.norm = sigmoid;
    return m;
}

/* A rig whose scalar has the losses too. */
struct routed {
    struct rig r;
    struct pp_router_options options;
    struct pp_router_losses losses;
};

static void routed_init(struct routed *x, const struct pp_kernels *k,
                        enum pp_recompute mode, struct pp_router_options o,
                        bool sigmoid)
{
    const struct pp_model m = model_of(sigmoid);
    const struct pp_shard whole = pp_shard_whole(&m);
    rig_init_mode(&x->r, &whole, PP_UNIT_LAYER, mode, k, &packed, 0);
    x->options = o;
    /* The step has other microbatches too. */
    x->losses = (struct pp_router_losses){
        .options = &x->options, .tokens = 40, .parts = 9};
    x->r.mb.experts.router = &x->losses;
}

static void gradients(struct pp_router_options o, enum pp_recompute mode,
                      bool sigmoid)
{
    struct routed x;
    const char *name = pp_router_rule_names[o.rule];
    routed_init(&x, &pp_kernels_f64, mode, o, sigmoid);
    rig_scalar(&x.r);
    double balance = x.losses.balance, size = x.losses.size;
    rig_backward(&x.r);
    ok(rig_guards(&x.r), "%s: writes stay inside", name);
    is_near(x.losses.balance, balance, 0, "the backward adds no balance");
    is_near(x.losses.size, size, 0, "the backward adds no size");
    struct values w = values_new(&pp_kernels_f64, x.r.w.n, 0);
    struct values in = values_new(&pp_kernels_f64, x.r.x.n, 0);
    rig_differences(&x.r, &x.r.w, &w);
    ok(values_near(&x.r.g, &w, 1e-8, 1e-3, "parameter gradient"),
       "%s, %g and %g: gradients of all parameters", name, o.balance, o.size);
    rig_differences(&x.r, &x.r.x, &in);
    ok(values_near(&x.r.dx, &in, 1e-8, 1e-3, "input gradient"),
       "%s, %g and %g: gradient of the input", name, o.balance, o.size);
    values_free(&w);
    values_free(&in);
    rig_finish(&x.r);
}

/* Returns whether token t chose expert e: fewer than CHOSEN are better. */
static bool chose(const double *p, size_t e)
{
    int better = 0;
    for (size_t i = 0; i < EXPERTS; i++)
        better += p[i] > p[e] || (i < e && !(p[i] < p[e]));
    return better < CHOSEN;
}

/* Returns E sum n[e] P[e] / T^2 over tokens of `count` sequences from `first`
 * on, and their number. */
static double balance_of(const double *probs, size_t first, size_t count,
                         double *tokens)
{
    double n[EXPERTS] = {0}, sum[EXPERTS] = {0}, T = 0, all = 0;
    for (size_t i = 0, row = 0; i < packed.n; row += (size_t)packed.padded[i++])
        for (size_t t = 0;
             i >= first && i < first + count && t < (size_t)packed.real[i];
             t++, T++)
            for (size_t e = 0; e < EXPERTS; e++) {
                const double *p = probs + (row + t) * EXPERTS;
                n[e] += chose(p, e);
                sum[e] += p[e];
            }
    for (size_t e = 0; e < EXPERTS; e++)
        all += n[e] * sum[e];
    *tokens = T;
    return T > 0 ? EXPERTS * all / (T * T) : 0;
}

static void values_of_rules(void)
{
    for (int rule = 0; pp_router_rule_names[rule]; rule++) {
        struct routed x;
        struct pp_err err = {0};
        double T, want = 0;
        routed_init(&x, &pp_kernels_f64, PP_RECOMPUTE_NONE,
                    (struct pp_router_options){1, 1, rule}, false);
        rig_scalar(&x.r);
        const struct pp_call c = rig_call(&x.r, PP_IN_FORWARD, &err);
        const double *p = c.s[PP_S_PROBS];
        if (rule == PP_ROUTER_DOCUMENTS)
            for (size_t i = 0; i < packed.n; i++)
                want += balance_of(p, i, 1, &T) / 9;
        else
            want = balance_of(p, 0, packed.n, &T);
        want *= rule == PP_ROUTER_TOKENS     ? T / 40
                : rule == PP_ROUTER_MEGATRON ? 1. / (9 * CHOSEN)
                                             : 1;
        is_near(x.losses.balance, want, 1e-14, pp_router_rule_names[rule]);
        rig_finish(&x.r);
    }
}

/* Equal logits: every expert has the probability 1 / E, the first ones get all
 * tokens, and the size is log(E)^2. */
static void ties(void)
{
    struct routed x;
    routed_init(&x, &pp_kernels_f32, PP_RECOMPUTE_NONE,
                (struct pp_router_options){1, 1, PP_ROUTER_TOKENS}, false);
    struct values zero = values_new(&pp_kernels_f32, EXPERTS * x.r.m.hidden, 0);
    fill(&zero, 0);
    x.r.l.w[PP_P_ROUTER] = zero.at;
    x.losses.tokens = 16;
    rig_scalar(&x.r);
    is_near(x.losses.balance, CHOSEN, 1e-6, "balance of equal logits");
    is_near(x.losses.size, log(EXPERTS) * log(EXPERTS), 1e-6,
            "size of equal logits");
    is_near(x.losses.load, (double)EXPERTS / CHOSEN, 1e-12,
            "the first experts have all tokens");
    values_free(&zero);
    rig_finish(&x.r);
}

int main(void)
{
    for (int rule = 0; pp_router_rule_names[rule]; rule++)
        gradients((struct pp_router_options){3, 2, rule}, PP_RECOMPUTE_NONE,
                  false);
    gradients((struct pp_router_options){3, 0, PP_ROUTER_TOKENS},
              PP_RECOMPUTE_SELECTIVE, false);
    gradients((struct pp_router_options){0, 2, PP_ROUTER_TOKENS},
              PP_RECOMPUTE_FULL, false);
    gradients((struct pp_router_options){3, 2, PP_ROUTER_DOCUMENTS},
              PP_RECOMPUTE_NONE, true);
    values_of_rules();
    ties();
    return done();
}
