/* SPDX-License-Identifier: MIT */
/* test_parameters - the layout of the tensors of a rank. */
#include "on_host.h"
#include "tap.h"

#include <stdint.h>

#include "model/mesh.h"
#include "model/unit_bytes.h"
#include "run/parameters/parameters.h"

static const struct pp_model tiny = {
    .architecture = PP_QWEN3,
    .hidden = 6,
    .intermediate = 10,
    .n_layers = 3,
    .n_heads = 3,
    .n_kv_heads = 1,
    .head_dim = 2,
    .vocab = 11,
    .tied = true,
    .qkv_bias = true,
    .mlp_bias = true,
    .qk_norm = true,
};

static bool follows(const struct pp_parameters *p, size_t slot)
{
    struct pp_parameter *a = pp_parameters_find(p, 0, 2, slot);
    struct pp_parameter *b = pp_parameters_find(p, 0, 2, slot + 1);
    return a && b && (float *)a->w + a->n == b->w &&
           (float *)a->g + a->n == b->g && (float *)a->v + a->n == b->v;
}

static void test_whole_model(void)
{
    struct pp_err err = {0};
    struct pp_parameters p;
    struct pp_unit_range all = {0, 0, pp_model_n_units(&tiny), 0};
    if (!ok(!pp_parameters_init(&p, &tiny, &all, 1, &floats,
                                PP_WITH_GRADS | PP_WITH_MOMENTS, &err),
            "the whole model on one rank"))
        return;
    size_t n = 0;
    bool ordered = true, inside = true, aligned = true;
    for (size_t i = 0; i < p.n; i++) {
        struct pp_parameter *t = &p.at[i];
        n += t->n;
        ordered = ordered && t->order == i;
        inside = inside &&
                 (float *)t->w + t->n <= (float *)p.blocks[0] + p.n_elements;
        if (t->slot == 0)
            aligned = aligned && (uintptr_t)t->w % 64 == 0;
    }
    is_int((long long)n,
           (long long)pp_model_n_params(&tiny) + tiny.vocab * tiny.hidden,
           "every element is there once, and the tied head");
    ok(ordered, "the order is that of the model");
    ok(inside, "all tensors are inside the block");
    ok(aligned, "units begin on cache lines");
    ok(follows(&p, PP_P_Q) && follows(&p, PP_P_K), "q, k, v follow");
    ok(follows(&p, PP_P_Q_BIAS) && follows(&p, PP_P_K_BIAS),
       "their biases follow too");
    ok(follows(&p, PP_P_GATE) && follows(&p, PP_P_GATE_BIAS),
       "gate and up follow");
    ok(!follows(&p, PP_P_NORM2 - 1), "the o_proj bias does not exist");
    struct pp_parameter *head = pp_parameters_find(&p, 0, 5, PP_P_WEIGHT);
    ok(head && head->tied_copy && !p.at[0].tied_copy, "the head is the copy");
    float *w = p.blocks[0];
    bool zero = true;
    for (size_t i = 0; i < p.n_elements; i++)
        zero = zero && w[i] == 0;
    ok(zero, "the blocks are zeroed");
    pp_parameters_finish(&p);
    pp_parameters_finish(&p);
}

static void test_two_stages(void)
{
    struct pp_err err = {0};
    struct pp_parameters p, whole;
    /* V placement: the ends on one rank, an empty stage between. */
    struct pp_unit_range r[] = {{0, 0, 2, 0}, {3, 4, 0, 0}, {7, 4, 2, 0}};
    struct pp_unit_range all = {0, 0, pp_model_n_units(&tiny), 0};
    if (!ok(!pp_parameters_init(&p, &tiny, r, 3, &doubles, PP_WITH_GRADS,
                                &err) &&
                !pp_parameters_init(&whole, &tiny, &all, 1, &doubles, 0, &err),
            "two stages on one rank"))
        return;
    ok(!p.blocks[2] && !p.at[0].m && p.at[0].g, "moments are not allocated");
    ok(!whole.blocks[1] && !whole.at[0].g, "gradients are not allocated");
    ok(p.at[0].stage == 0 && p.at[p.n - 1].stage == 7, "stages are kept");
    bool same = true;
    for (size_t i = 0; i < p.n; i++) {
        struct pp_parameter *t =
            pp_parameters_find(&whole, 0, p.at[i].unit, p.at[i].slot);
        same = same && t && t->order == p.at[i].order &&
               !strcmp(t->info.name, p.at[i].info.name) &&
               (uintptr_t)t->w % 64 == (uintptr_t)p.at[i].w % 64;
    }
    ok(same, "order and alignment are those of the whole model");
    ok(!pp_parameters_find(&p, 0, 2, PP_P_Q),
       "does not find a unit of another rank");
    ok(pp_parameters_find(&p, 0, 4, PP_P_WEIGHT), "finds the last norm");
    pp_parameters_finish(&p);
    pp_parameters_finish(&whole);
}

static void test_limits(void)
{
    struct pp_err err = {0};
    struct pp_parameters p;
    is_int(pp_parameters_init(&p, &tiny, NULL, 0, &floats, PP_WITH_GRADS, &err),
           0, "a rank without units");
    ok(p.n == 0 && p.n_elements == 0 && !p.blocks[0], "it holds nothing");
    pp_parameters_finish(&p);

    struct pp_model huge = tiny;
    huge.vocab = SIZE_MAX / 5;
    struct pp_unit_range one = {0, 0, 1, 0};
    ok(pp_parameters_init(&p, &huge, &one, 1, &floats, 0, &err) &&
           err.code == PP_EXIT_SYSTEM,
       "a product that overflows fails");
    huge.vocab = SIZE_MAX / 8 / tiny.hidden;
    err = (struct pp_err){0};
    ok(pp_parameters_init(&p, &huge, &one, 1, &doubles, 0, &err) &&
           err.code == PP_EXIT_SYSTEM && !p.at,
       "missing memory fails");
}

/* Owners of the optimizer's state hold each element once, in blocks of one
 * size. */
static void test_owners(void)
{
    enum { OWNERS = 3 };
    struct pp_err err = {0};
    struct pp_parameters p[OWNERS];
    struct pp_unit_range all = {0, 0, pp_model_n_units(&tiny), 0};
    size_t n = 0, sum = 0;
    bool made = true, inside = true;
    for (size_t o = 0; o < OWNERS; o++) {
        const struct pp_parameter_memory where = {
            .element_bytes = sizeof(float),
            .accumulator_bytes = sizeof(float),
            .shares = {.owners = OWNERS, .owner = o}};
        made =
            made && !pp_parameters_init(&p[o], &tiny, &all, 1, &where,
                                        PP_WITH_GRADS | PP_WITH_MOMENTS, &err);
    }
    if (!ok(made, "three owners"))
        return;
    for (size_t i = 0; i < p[0].n; i++) {
        n += p[0].at[i].n;
        for (size_t o = 0; o < OWNERS; o++) {
            const struct pp_parameter *t = &p[o].at[i];
            float *m = t->m, *block = p[o].blocks[PP_BLOCK_M];
            sum += t->own.n;
            inside = inside && m >= block &&
                     m + t->own.n <= block + p[o].n_owned &&
                     (i == 0 || p[o].at[i - 1].unit != t->unit ||
                      (float *)p[o].at[i - 1].m + p[o].at[i - 1].own.n == m);
        }
    }
    ok(sum == n, "they own every element once");
    ok(inside, "their parts follow each other in the blocks");
    ok(p[0].n_owned == p[1].n_owned && p[1].n_owned == p[2].n_owned &&
           p[0].n_owned < p[0].n_elements,
       "their blocks have one size");
    for (size_t o = 0; o < OWNERS; o++)
        pp_parameters_finish(&p[o]);
}

/* Returns the bytes of all units of a mixture of experts, as plans know them.
 */
static struct pp_state_bytes planned(const struct pp_mesh *x,
                                     const struct pp_model *m)
{
    const struct pp_precision types = {.element_bytes = sizeof(float),
                                       .accumulator_bytes = sizeof(float)};
    struct pp_state_bytes sum = {0};
    for (size_t u = 0; u < pp_model_n_units(m); u++) {
        struct pp_state_bytes s =
            pp_state_bytes(x, pp_mesh_held(x, m, pp_model_unit(m, u)), &types);
        sum.weights += s.weights;
        sum.gradients += s.gradients;
        sum.optimizer += s.optimizer;
    }
    return sum;
}

/* Adds what a rank holds and owns to the sums of each tensor. Returns whether
 * its blocks have the bytes of the plan. */
static bool add_rank(const struct pp_mesh *x, const struct pp_model *m,
                     size_t rank, size_t *held, size_t *owned)
{
    struct pp_err err = {0};
    struct pp_parameters p;
    struct pp_unit_range all = {0, 0, pp_model_n_units(m), 0};
    const struct pp_parameter_memory where = {
        .element_bytes = sizeof(float),
        .accumulator_bytes = sizeof(float),
        .shares = {.tp = (size_t)x->tp,
                   .tp_rank = rank % (size_t)x->tp,
                   .owners = pp_mesh_owners(x),
                   .owner = rank / (size_t)x->tp},
        .experts = {.tp = x->experts_over_tp,
                    .owners = x->whole_state ? 1 : pp_mesh_expert_ranks(x),
                    .owner = rank},
        .divided = pp_mesh_divides_weights(x),
        .ep = (size_t)x->ep};
    bool inside = true;
    struct pp_state_bytes plan = planned(x, m);
    if (pp_parameters_init(&p, m, &all, 1, &where,
                           PP_WITH_GRADS | PP_WITH_MOMENTS, &err))
        return false;
    for (size_t i = 0; i < p.n; i++) {
        const struct pp_parameter *t = &p.at[i], *before = &t[-1];
        const float *w = t->w, *block = p.blocks[PP_BLOCK_W];
        held[t->order] += t->held.n;
        owned[t->order] += t->own.n;
        inside = inside && w >= block && w + t->held.n <= block + p.n_held &&
                 (i == 0 || (w >= (float *)before->w + before->held.n &&
                             t->whole >= before->whole + before->n));
    }
    bool same = inside && p.n_held * sizeof(float) == plan.weights &&
                p.n_trained * sizeof(float) == plan.gradients &&
                2 * p.n_owned * sizeof(float) == plan.optimizer;
    pp_parameters_finish(&p);
    return same;
}

/* Expert-parallel ranks hold whole experts, and each element has one owner. */
static void test_experts(const struct pp_mesh *x)
{
    enum { TENSORS = 200 };
    struct pp_model m = tiny;
    m.architecture = PP_MIXTRAL;
    m.tied = m.qkv_bias = m.mlp_bias = m.qk_norm = false;
    m.hidden = 40;
    m.n_heads = 4;
    m.moe = (struct pp_moe){{{7}}, 8, 2, 30};
    size_t held[TENSORS] = {0}, owned[TENSORS] = {0};
    size_t ranks = (size_t)x->dp * (size_t)x->cp, ep = (size_t)x->ep;
    size_t tp = (size_t)x->tp, holders = pp_mesh_expert_ranks(x) / ep;
    bool planned_bytes = true, shared = true, once = true;
    for (size_t r = 0; r < ranks * tp; r++)
        planned_bytes = add_rank(x, &m, r, held, owned) && planned_bytes;
    size_t order = 0;
    for (size_t u = 0; u < pp_model_n_units(&m); u++) {
        struct pp_tensor_info table[PP_N_LAYER_PARAMS], t;
        size_t n = pp_unit_params(&m, pp_model_unit(&m, u), table);
        for (size_t slot = 0; slot < pp_table_slots(table, n); slot++) {
            if (!pp_table_at(table, n, slot, &t))
                continue;
            bool expert = strstr(t.name, ".experts.");
            size_t copies = pp_tensor_piece(&t, tp, 1).replica ? tp : 1;
            size_t by = expert ? holders : ranks * copies;
            size_t elements = pp_tensor_elements(&t);
            size_t single = expert ? 1 : copies;
            shared =
                shared &&
                held[order] == (x->divided_weights ? single : by) * elements;
            once = once &&
                   owned[order] == (x->whole_state ? by : single) * elements;
            order++;
        }
    }
    ok(planned_bytes, "ep %zu of %zu ranks, tp %zu: the bytes of the plan", ep,
       ranks, tp);
    ok(shared, "ep %zu: each expert is on %zu ranks%s", ep, holders,
       x->divided_weights ? ", which divide it" : "");
    ok(once, "ep %zu: each element has its owners", ep);
}

int main(void)
{
    test_whole_model();
    test_two_stages();
    test_limits();
    test_owners();
    for (int ep = 1; ep <= 4; ep *= 2) {
        test_experts(
            &(struct pp_mesh){1, 4, 1, 1, ep, .divided_weights = true});
        test_experts(&(struct pp_mesh){1, 4, 1, 1, ep});
        test_experts(&(struct pp_mesh){1, 2, 1, 4, ep});
        test_experts(&(struct pp_mesh){1, 4, 1, 1, ep, .whole_state = true});
    }
    /* Whole experts on tensor-parallel ranks. */
    for (int ep = 1; ep <= 8; ep *= 2)
        for (int zero = 0; zero <= 2; zero++)
            test_experts(&(struct pp_mesh){.pp = 1,
                                           .dp = 2,
                                           .tp = 2,
                                           .cp = 2,
                                           .ep = ep,
                                           .experts_over_tp = true,
                                           .whole_state = zero == 0,
                                           .divided_weights = zero == 2});
    test_experts(&(struct pp_mesh){1, 1, 2, 1, 1, .experts_over_tp = true});
    test_experts(&(struct pp_mesh){1, 1, 2, 1, 2, .experts_over_tp = true});
    return done();
}
