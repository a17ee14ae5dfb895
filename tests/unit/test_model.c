/* SPDX-License-Identifier: MIT */
/* test_model - names, parameters, saved tensors and costs of models with
 * published numbers. */
#include "model/cost.h"
#include "model/model.h"
#include "model/parts.h"
#include "model/shard.h"
#include "tap.h"

/* Llama 3.2 1B, Qwen2 0.5B and Qwen3 0.6B, as their config.json says. */
static const struct pp_model llama = {
    .architecture = PP_LLAMA,
    .hidden = 2048,
    .intermediate = 8192,
    .n_layers = 16,
    .n_heads = 32,
    .n_kv_heads = 8,
    .head_dim = 64,
    .vocab = 128256,
    .tied = true,
};
static const struct pp_model qwen2 = {
    .architecture = PP_QWEN2,
    .hidden = 896,
    .intermediate = 4864,
    .n_layers = 24,
    .n_heads = 14,
    .n_kv_heads = 2,
    .head_dim = 64,
    .vocab = 151936,
    .tied = true,
    .qkv_bias = true,
};
static const struct pp_model qwen3 = {
    .architecture = PP_QWEN3,
    .hidden = 1024,
    .intermediate = 3072,
    .n_layers = 28,
    .n_heads = 16,
    .n_kv_heads = 8,
    .head_dim = 128,
    .vocab = 151936,
    .tied = true,
    .qk_norm = true,
};

static struct pp_flops flops_of(const struct pp_model *m, struct pp_unit_id u)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_fwd_flops(&s, u);
}

static struct pp_cost cost_of(const struct pp_model *m, struct pp_unit_id u,
                              enum pp_recompute r, double seq_len)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_cost(&s, u, r, seq_len);
}

static void test_names(void)
{
    static const char *const names[] = {"model.embed_tokens", "model.layers.0",
                                        "model.layers.1", "model.norm",
                                        "lm_head"};
    struct pp_model m = llama;
    m.n_layers = 2;
    is_int((long long)pp_model_n_units(&m), 5, "two layers make five units");
    for (size_t i = 0; i < 5; i++) {
        struct pp_unit_id u = pp_model_unit(&m, i), back;
        char name[PP_FQN_TEXT];
        pp_unit_fqn(u, name);
        is_str(name, names[i], names[i]);
        ok(pp_unit_by_fqn(&m, name, &back) && back.kind == u.kind &&
               back.layer == u.layer,
           "and back");
    }
    static const char *const wrong[] = {
        "model.layers.2",
        "model.layers.-1",
        "model.layers.01",
        "model.layers.1 ",
        "model.layers.1.",
        "model.layers.+1",
        "model.layers. 1",
        "model.layers.",
        "model.layers",
        "norm",
        "",
        "model.layers.18446744073709551617",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct pp_unit_id u;
        ok(!pp_unit_by_fqn(&m, wrong[i], &u), "'%s' is not a unit", wrong[i]);
    }
}

static void test_params(void)
{
    /* Published numbers, which count a tied embedding once. */
    is_int((long long)pp_model_n_params(&llama), 1235814400, "Llama 3.2 1B");
    is_int((long long)pp_model_n_params(&qwen2), 494032768, "Qwen2 0.5B");
    is_int((long long)pp_model_n_params(&qwen3), 596049920, "Qwen3 0.6B");
    struct pp_model untied = llama;
    untied.tied = false;
    is_int((long long)(pp_model_n_params(&untied) - pp_model_n_params(&llama)),
           128256LL * 2048, "untied: one more table");
    struct pp_tensor_info p[PP_N_LAYER_PARAMS];
    struct pp_unit_id layer = {PP_UNIT_LAYER, 3, PP_LANGUAGE};
    size_t n = pp_unit_params(&qwen2, layer, p);
    is_int((long long)n, PP_N_LAYER_PARAMS, "parameters of a layer");
    is_str(p[PP_P_K].name, "model.layers.3.self_attn.k_proj.weight", "k");
    ok(p[PP_P_K].rows == 128 && p[PP_P_K].cols == 896 &&
           p[PP_P_K].n_dims == 2 && p[PP_P_K].init == PP_INIT_NORMAL,
       "its shape");
    is_str(p[PP_P_K_BIAS].name, "model.layers.3.self_attn.k_proj.bias",
           "its bias");
    ok(p[PP_P_K_BIAS].rows == 128 && p[PP_P_K_BIAS].n_dims == 1 &&
           p[PP_P_K_BIAS].init == PP_INIT_ZEROS,
       "is a vector");
    ok(!p[PP_P_Q_NORM].name[0] && !p[PP_P_O_BIAS].name[0],
       "Qwen2 has neither QK-norm nor a bias on o");
    pp_unit_params(&qwen3, layer, p);
    is_str(p[PP_P_Q_NORM].name, "model.layers.3.self_attn.q_norm.weight",
           "Qwen3 has QK-norm");
    ok(p[PP_P_Q_NORM].rows == 128 && !p[PP_P_Q_BIAS].name[0], "and no bias");
    ok(p[PP_P_O].rows == 1024 && p[PP_P_O].cols == 2048,
       "where heads are wider than hidden, o is not square");
}

static size_t saved_width(const struct pp_model *m, struct pp_unit_id u,
                          enum pp_recompute r, enum pp_saved_block block)
{
    const struct pp_shard s = pp_shard_whole(m);
    return pp_unit_saved_width(&s, u, r, block);
}

/* Tensors of a block follow each other without gaps, in every unit. */
static bool is_dense(const struct pp_model *m, struct pp_unit_id u,
                     enum pp_recompute r)
{
    bool dense = true;
    size_t workspace = 0, whole = saved_width(m, u, r, PP_SAVED_WORKSPACE);
    for (int when = PP_IN_FORWARD; when <= PP_IN_BACKWARD; when++) {
        struct pp_saved s[PP_MAX_SAVED];
        const struct pp_shard all = pp_shard_whole(m);
        size_t n = pp_unit_saved(&all, u, r, when, s);
        size_t at[PP_N_UNIT_BLOCKS] = {0};
        for (size_t j = 0; j < n; j++) {
            dense &= s[j].offset == at[s[j].block];
            at[s[j].block] += s[j].width;
        }
        workspace = at[PP_SAVED_WORKSPACE] > workspace ? at[PP_SAVED_WORKSPACE]
                                                       : workspace;
        for (int b = 0; b < PP_N_SAVED_BLOCKS; b++)
            /* Recomputed tensors lie with the gradients, but not in F. */
            dense &= at[b] == saved_width(m, u, r, b) ||
                     (b == PP_SAVED_GRAD_W && when == PP_IN_FORWARD && r);
    }
    return dense && workspace == whole;
}

static void test_saved(void)
{
    const struct pp_model *const models[] = {&llama, &qwen2, &qwen3};
    bool dense = true;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < pp_model_n_units(models[k]); i++)
            for (int r = 0; r <= PP_RECOMPUTE_FULL; r++)
                dense &= is_dense(models[k], pp_model_unit(models[k], i), r);
    ok(dense, "saved tensors lie without gaps");
    struct pp_unit_id layer = {PP_UNIT_LAYER, 0, PP_LANGUAGE};
    is_int((long long)saved_width(&llama, layer, PP_RECOMPUTE_NONE,
                                  PP_SAVED_ACT_I),
           (32 + 16) * 64 + 32 + 2 * 8192, "a layer until I: q k v, lse, MLP");
    is_int((long long)saved_width(&llama, layer, PP_RECOMPUTE_NONE,
                                  PP_SAVED_ACT_W),
           5 * 2048 + 2 + 8192, "until W: x, norms, attention, mid, MLP");
    is_int((long long)saved_width(&llama, layer, PP_RECOMPUTE_NONE,
                                  PP_SAVED_GRAD_KEYS),
           2 * 8 * 64, "for later slices: k v");
    is_int((long long)(saved_width(&qwen3, layer, PP_RECOMPUTE_NONE,
                                   PP_SAVED_ACT_W)),
           4 * 1024 + 2 + 2048 + 3072 + 24 * 128 + 24,
           "QK-norm keeps q and k twice");
}

static void test_costs(void)
{
    struct pp_unit_id layer = {PP_UNIT_LAYER, 0, PP_LANGUAGE},
                      head = {PP_UNIT_HEAD, 0, PP_LANGUAGE};
    struct pp_unit_id embed = {PP_UNIT_EMBED, 0, PP_LANGUAGE},
                      norm = {PP_UNIT_NORM, 0, PP_LANGUAGE};
    struct pp_flops f = flops_of(&llama, layer);
    /* Two operations for each element of each matrix. */
    is_near(f.per_token,
            2.0 * (2048 * (2048 + 1024) + 2048 * 2048 + 3 * 2048 * 8192), 0,
            "products of a layer");
    is_near(f.per_pair, 4 * 2048, 0, "scores and values of each pair");
    struct pp_cost c = cost_of(&llama, layer, PP_RECOMPUTE_NONE, 1);
    is_near(c.weight_grad, f.per_token, 0, "W has only products");
    is_near(c.forward, f.per_token + f.per_pair, 0, "one token, one pair");
    is_near(c.input_grad, f.per_token + 2.5 * f.per_pair, 0,
            "I recomputes the scores");
    is_near(cost_of(&llama, layer, PP_RECOMPUTE_NONE, 4095).forward,
            f.per_token + 2048 * f.per_pair, 0, "half the length on average");
    is_near(pp_cost_total(cost_of(&llama, head, PP_RECOMPUTE_NONE, 4096)),
            4 * 2.0 * 2048 * 128256, 0, "the head is four products");
    c = cost_of(&llama, head, PP_RECOMPUTE_NONE, 4096);
    ok(c.input_grad == 2 * c.forward && c.weight_grad == 2 * c.forward,
       "and five where I and W are apart");
    c = pp_cost_at_once(pp_cost_of(5, 0, PP_LOGITS_ONCE), PP_LOGITS_ONCE);
    ok(c.forward == 15 && c.input_grad == 0 && c.weight_grad == 0 &&
           c.backward == 0,
       "three products if F makes the gradients");
    c = pp_cost_measured(5, 9, 7, PP_LOGITS_ONCE);
    ok(c.input_grad == 4 && c.weight_grad == 2 && c.backward == 6,
       "then each saves a forward");
    c = pp_cost_measured(5, 9, 7, PP_LOGITS_AGAIN);
    ok(c.forward == 5 && c.input_grad == 9 && c.weight_grad == 7 &&
           c.backward == 11,
       "measured, the two save a forward together");
    is_near(pp_cost_measured(5, 9, 4, PP_LOGITS_AGAIN).backward, 9, 0,
            "and no more than the shorter of them");
    is_near(pp_cost_measured(5, 9, 7, PP_LOGITS_KEPT).backward, 16, 0,
            "where nothing is made twice, nothing");
    c = cost_of(&llama, layer, PP_RECOMPUTE_NONE, 1);
    is_near(c.backward, c.input_grad + c.weight_grad, 0,
            "a layer's B is its I and W");
    double small =
        pp_cost_total(cost_of(&llama, embed, PP_RECOMPUTE_NONE, 4096)) +
        pp_cost_total(cost_of(&llama, norm, PP_RECOMPUTE_NONE, 4096));
    ok(small > 0 && small < pp_cost_total(c) / 100,
       "embedding and norm cost something, and little");
}

/* Saved and recomputed tensors and their costs, counted by hand. */
static void test_recompute(void)
{
    static const struct {
        enum pp_recompute r;
        long long act_i, act_w, grad_w, workspace;
    } want[] = {
        /* Selective keeps q, k, v, gate, up, x and mid. */
        {PP_RECOMPUTE_SELECTIVE, 3072 + 2 * 8192, 2 * 2048,
         4 * 2048 + 3072 + 2 * 8192 + 3 * 2048 + 2 + 8192,
         3 * 2048 + 2 + 8192 + 32},
        {PP_RECOMPUTE_FULL, 0, 2048,
         4 * 2048 + 3072 + 2 * 8192 + 4 * 2048 + 2 + 8192,
         3072 + 32 + 3 * 8192 + 4 * 2048 + 2},
    };
    struct pp_unit_id layer = {PP_UNIT_LAYER, 0, PP_LANGUAGE},
                      head = {PP_UNIT_HEAD, 0, PP_LANGUAGE};
    for (size_t i = 0; i < 2; i++) {
        enum pp_recompute r = want[i].r;
        char name[PP_RECOMPUTE_TEXT];
        pp_recompute_text(r, name);
        const long long *w[] = {&want[i].act_i, &want[i].act_w, &want[i].grad_w,
                                &want[i].workspace};
        for (int b = 0; b <= PP_SAVED_WORKSPACE; b++)
            is_int((long long)saved_width(&llama, layer, r, b), *w[b], name);
        is_int((long long)saved_width(&llama, head, r, PP_SAVED_ACT_W), 2050,
               "recomputation leaves the head alone");
        struct pp_cost none = cost_of(&llama, layer, 0, 1023);
        struct pp_cost c = cost_of(&llama, layer, r, 1023);
        double pairs = 512 * 4 * 2048.0;
        double again =
            i == 0 ? pairs : none.forward - 2.0 * 2048 * 8192; /* down */
        ok(c.forward == none.forward && c.weight_grad == none.weight_grad,
           "%s: F and W cost what they cost", name);
        is_near(c.input_grad - none.input_grad, again, 1e-9,
                "I makes it again");
        is_near(c.backward - none.backward, again, 1e-9, "and so does B");
    }
    enum pp_recompute r;
    ok(pp_recompute_find("full", &r) && r == PP_RECOMPUTE_FULL &&
           !pp_recompute_find("all", &r),
       "modes have names");
}

/* A head that units divide has the words, the operations and the gradients of
 * the whole head, and the loss is the last unit. */
static void test_head_stages(size_t n)
{
    struct pp_model m = llama;
    m.vocab = 32003; /* n does not divide it */
    size_t n_units = pp_model_n_units(&m);
    struct pp_unit_id head = {PP_UNIT_HEAD, 0, PP_LANGUAGE};
    uint64_t params = pp_unit_n_params(&m, head), all = pp_model_n_params(&m);
    struct pp_cost want = cost_of(&m, head, 0, 1023), sum = {0, 0, 0, 0};
    m.head_stages = n;
    is_int((long long)pp_model_n_units(&m), (long long)(n_units + n),
           "a head of several units has a unit for the loss");
    is_int((long long)pp_model_n_params(&m), (long long)all,
           "the model has as many parameters");
    uint64_t words = 0;
    for (size_t i = n_units - 1; i < pp_model_n_units(&m); i++) {
        struct pp_unit_id u = pp_model_unit(&m, i), found;
        char fqn[PP_FQN_TEXT], name[PP_FQN_TEXT];
        bool loss = i + 1 == pp_model_n_units(&m);
        pp_model_fqn(&m, u, fqn);
        snprintf(name, sizeof name, loss ? "loss" : "lm_head.%zu",
                 i + 1 - n_units);
        is_str(fqn, name, "its units have names");
        ok(pp_model_index(&m, u) == i && pp_unit_by_fqn(&m, fqn, &found) &&
               pp_model_index(&m, found) == i &&
               pp_fqn_is_head_part(fqn) == !loss &&
               pp_fqn_is_head(fqn) == !loss,
           "  and are found by them");
        uint64_t own = pp_unit_n_params(&m, u);
        ok(loss ? own == 0
                : own / m.hidden * n + n > m.vocab &&
                      own / m.hidden * n < m.vocab + n,
           "  and an even part of the words");
        words += own;
        sum = pp_cost_sum(sum, cost_of(&m, u, 0, 1023));
    }
    is_int((long long)words, (long long)params, "parts are the whole head");
    is_near(sum.forward, want.forward, 1e-12, "F of all parts is its F");
    is_near(sum.backward, want.backward, 1e-12, "and so is B");
}

static void live(int n_ranks, int n_chunks, bool v, int n, const char *want)
{
    char text[128];
    int at = 0;
    for (int s = 0; s < n_ranks * n_chunks; s++)
        at +=
            snprintf(text + at, sizeof text - (size_t)at, "%s%d", s ? "," : "",
                     pp_live_microbatches(n_ranks, n_chunks, v, s, n));
    char what[64];
    snprintf(what, sizeof what, "in flight: %d x %d%s, %d microbatches",
             n_ranks, n_chunks, v ? " V" : "", n);
    is_str(text, want, what);
}

int main(void)
{
    test_names();
    test_params();
    test_saved();
    test_costs();
    test_recompute();
    test_head_stages(2);
    test_head_stages(16);
    live(4, 1, false, 8, "4,3,2,1");
    live(4, 1, false, 2, "2,2,2,1");
    live(4, 2, true, 16, "8,7,6,5,4,3,2,1");
    /* Interleaved: rank r has 2 (p - 1 - r) + (v - 1) p + 1 in total. */
    live(4, 2, false, 16, "7,5,4,4,4,4,3,1");
    live(2, 3, false, 16, "3,2,2,2,2,1");
    live(1, 1, false, 4, "1");
    return done();
}
