/* SPDX-License-Identifier: MIT */
/* test_mesh - the weights and bytes on one rank of a mesh, against explicit
 * sums for three models, the whole model and Megatron-LM's estimate. */
#include "model/inventory.h"
#include "model/layout.h"
#include "model/unit_bytes.h"
#include "model/vision.h"
#include "tap.h"

static const struct pp_model llama = {.architecture = PP_LLAMA,
                                      .hidden = 4096,
                                      .intermediate = 14336,
                                      .n_layers = 2,
                                      .n_heads = 32,
                                      .n_kv_heads = 8,
                                      .head_dim = 128,
                                      .vocab = 128257};
static const struct pp_model moe = {.architecture = PP_GPT_OSS,
                                    .hidden = 2880,
                                    .intermediate = 2880,
                                    .n_layers = 2,
                                    .n_heads = 64,
                                    .n_kv_heads = 8,
                                    .head_dim = 64,
                                    .vocab = 201088,
                                    .qkv_bias = true,
                                    .o_bias = true,
                                    .sinks.bits[0] = 3,
                                    .moe = {.layers = {{3}},
                                            .n_experts = 32,
                                            .top_k = 4,
                                            .intermediate = 2880,
                                            .biases = true}};
static const struct pp_model mla = {.architecture = PP_DEEPSEEK_V3,
                                    .hidden = 2048,
                                    .intermediate = 11264,
                                    .n_layers = 2,
                                    .n_heads = 16,
                                    .n_kv_heads = 16,
                                    .head_dim = 192,
                                    .vocab = 163840,
                                    .moe = {.layers = {{2}},
                                            .n_experts = 64,
                                            .top_k = 6,
                                            .intermediate = 1408,
                                            .shared = 2816,
                                            .score_bias = true},
                                    .mla = {0, 512, 128, 64, 128}};

static const struct pp_unit_id embed = {PP_UNIT_EMBED, 0, PP_LANGUAGE};
static const struct pp_unit_id layer0 = {PP_UNIT_LAYER, 0, PP_LANGUAGE};
static const struct pp_unit_id layer1 = {PP_UNIT_LAYER, 1, PP_LANGUAGE};

static void holds(const struct pp_model *m, struct pp_mesh x,
                  struct pp_unit_id u, long long dense, long long experts,
                  const char *what)
{
    const struct pp_elements h = pp_mesh_held(&x, m, u).all;
    is_int((long long)h.dense, dense, what);
    is_int((long long)h.experts, experts, "the experts of it");
}

static void test_held(void)
{
    const struct pp_mesh one = {1, 1, 1, 1, 1};
    const struct pp_mesh tp2 = {4, 2, 2, 1, 1}, tp8 = {1, 1, 8, 1, 1};
    const struct pp_mesh both = {2, 4, 4, 1, 2};
    holds(&llama, tp2, layer0,
          2 * 4096 + (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336) / 2,
          0, "a dense layer on two ranks");
    holds(&llama, tp8, embed, 16033LL * 4096, 0, "rows that do not divide");
    holds(&moe, both, layer0,
          2 * 2880 + 2880 + 32 * 2880 + 32 + 64 / 4 +
              (2 * 4096 * 2880 + 2 * 512 * 2880 + 4096 + 2 * 512) / 4,
          32 / 2 * (3LL * 2880 * 2880 / 4 + 2 * 2880 / 4 + 2880),
          "a layer of experts with biases");
    holds(&mla, both, layer1,
          2 * 2048 + 512 + 576 * 2048 + 64 * 2048 + 64 +
              (16 * 192 * 2048 + 16 * 256 * 512 + 2048 * 2048) / 4 +
              3 * 2816 * 2048 / 4,
          64 / 2 * 3LL * 1408 * 2048 / 4, "a layer of latent attention");
    for (size_t i = 0; i < 5; i++) {
        const struct pp_elements h =
            pp_mesh_held(&one, &moe, pp_model_unit(&moe, i)).all;
        is_int((long long)(h.dense + h.experts),
               (long long)pp_unit_n_params(&moe, pp_model_unit(&moe, i)),
               "a single rank holds everything");
    }
}

static size_t state(const struct pp_mesh *x, struct pp_held h, const char *name)
{
    return pp_state_sum(pp_state_bytes(x, h, pp_precision_find(name)));
}

/* Megatron-LM: bytes = parameters * (6 + 12 / dp) in bf16, here in whole cache
 * lines: 32 elements of bf16. */
static void test_state(void)
{
    const struct pp_mesh one = {1, 1, 1, 1, 1}, dp4 = {1, 4, 1, 1, 1};
    const struct pp_mesh mixed = {2, 4, 1, 2, 4};
    const struct pp_held h = {{8192, 1536}, {8192, 1536}},
                         odd = pp_held_whole(10, true);
    is_int((long long)state(&one, h, "bf16"), 9728 * 18, "bf16 on one rank");
    is_int((long long)state(NULL, h, "fp32"), 9728 * 16, "fp32 on one rank");
    is_int((long long)state(&dp4, h, "bf16"), 9728 * (6 + 12 / 4),
           "bf16 on four ranks");
    is_int((long long)state(&mixed, h, "bf16"),
           8192 * 6 + 8192 / 8 * 12 + 1536 * 6 + 1536 / 2 * 12,
           "fewer ranks share the state of experts");
    is_int((long long)state(&dp4, odd, "bf16"), 32 * 6 + 32 * 12,
           "each part has whole cache lines");
    /* Four owners of a layer have up to a block more of each matrix. */
    const struct pp_held held = pp_mesh_held(&dp4, &llama, layer0);
    const struct pp_elements layer = held.all;
    ok(layer.owned >= layer.dense / 4 &&
           layer.owned < layer.dense / 4 + 9 * ((uint64_t)1 << 16) &&
           state(&dp4, held, "bf16") ==
               layer.dense * 6 + (layer.owned + 31) / 32 * 32 * 12,
       "%llu of %llu elements are owned", (unsigned long long)layer.owned,
       (unsigned long long)layer.dense);
    is_int((long long)pp_mesh_held(&one, &llama, layer0).all.owned, 0,
           "a single rank divides nothing");
    is_int(pp_mesh_sharers(&mixed), 2, "context-parallel ranks share a unit");
}

/* Four ranks with a microbatch each divide an encoder's tensors: each of them
 * makes the features of all, reads them and puts those to send beside each
 * other. */
static void test_features(void)
{
    const struct pp_backend b = pp_backend_of(pp_precision_find("fp32"), true);
    struct pp_model m = llama;
    struct pp_layout l = {
        {{.mesh = {.pp = 1, .dp = 4, .tp = 1, .cp = 1, .ep = 1}}}, 1};
    struct pp_vision *v = &m.encoders[0];
    *v = (struct pp_vision){.kind = PP_VISION_LLAVA,
                            .hidden = 12,
                            .n_heads = 4,
                            .merge = 1,
                            .patches = 4};
    struct pp_shard s = pp_shard_whole(&m);
    struct pp_image_load *of = &s.images[0];
    of->n_images = 8;
    of->seq_len = 32;
    double token[2];
    for (int k = 0; k < 2; k++) {
        struct pp_mesh *x = &l.components[0].mesh;
        x->encoder_tp = k ? 4 : 0;
        pp_layout_divide_images(&l, 0, of);
        s.mesh = *x;
        token[k] =
            pp_unit_rates(&s, embed, PP_RECOMPUTE_NONE, &b).workspace.token;
    }
    is_int((long long)(token[1] - token[0]), (long long)(2 * 4 * m.hidden * 4),
           "room for the features of four microbatches, twice");
    is_int((long long)pp_vision_rank_images(of), 32, "of all images");
}

/* The head holds two activations, a block of logits with rows of x and dx, and
 * a number for each row, in cache lines. */
static void test_workspace(void)
{
    const struct pp_backend b = pp_backend_of(pp_precision_find("fp32"), true);
    struct pp_model m = llama;
    m.vocab = 40000; /* 32 Mi logits are 838 rows, or 512 in whole tiles */
    struct pp_unit_id head = {PP_UNIT_HEAD, 0, PP_LANGUAGE},
                      norm = {PP_UNIT_NORM, 0, PP_LANGUAGE};
    const struct pp_shard s = pp_shard_whole(&m);
    struct pp_unit_rates r = pp_unit_rates(&s, head, PP_RECOMPUTE_NONE, &b);
    const size_t C = m.hidden, row = (m.vocab + 2 * C) * 4;
    is_int((long long)pp_unit_bytes(&r, 1024, 0).workspace,
           (long long)(1024 * (8 * C + 4) + 512 * row + 256), "many rows");
    is_int((long long)pp_unit_bytes(&r, 100, 0).workspace,
           (long long)(100 * (8 * C + 4) / 64 * 64 + 64 + 112 * row + 256),
           "few rows are rounded up to 16");
    r = pp_unit_rates(&s, norm, PP_RECOMPUTE_NONE, &b);
    is_int((long long)pp_unit_bytes(&r, 10, 0).workspace,
           (long long)(80 * C + 256), "a norm has no scratch");
    is_int((long long)pp_unit_bytes(&r, 10, 0).output, (long long)(40 * C),
           "its output");
    is_int((long long)pp_rank_rows(&s.mesh, &b, 10), 10, "rows on the CPU");
    const struct pp_mesh tp2 = {1, 1, 2, 1, 1};
    m.n_mtp = 2;
    const struct pp_shard half = pp_shard_of(&m, &tp2);
    is_int((long long)(pp_unit_rates(&half, norm, PP_RECOMPUTE_NONE, &b)
                           .workspace.token -
                       pp_unit_rates(&s, norm, PP_RECOMPUTE_NONE, &b)
                           .workspace.token),
           (long long)(2 * 2 * 4 * C),
           "two rooms for the rows of two ranks, also of what pprun does not "
           "train");
    const struct pp_backend gpu =
        pp_backend_of(pp_precision_find("bf16"), false);
    const struct pp_mesh cp2 = {1, 1, 1, 2, 1};
    is_int((long long)pp_rank_rows(&cp2, &gpu, 35), 32,
           "a GPU has a multiple of 16");
}

static void test_check(void)
{
    /* pprun does not train it. */
    static struct pp_model planned;
    planned = llama;
    planned.n_mtp = 2;
    static const struct {
        const struct pp_model *m;
        struct pp_mesh x;
        size_t seq_len;
        const char *want;
    } rows[] = {
        {&llama, {1, 3, 8, 2, 1}, 4096, ""},
        {&llama, {1, 1, 1, 1, 1}, 4095, ""},
        {&llama,
         {1, 1, 3, 1, 1},
         4096,
         "the model's 32 heads do not divide by 3 tensor-parallel ranks"},
        {&llama, {1, 1, 16, 1, 1}, 4096, ""},
        {&planned,
         {1, 1, 16, 1, 1},
         4096,
         "the model's 8 key and value heads do not divide by 16 "
         "tensor-parallel ranks"},
        {&llama,
         {1, 2, 1, 1, 2},
         4096,
         "the model has no experts for 2 expert-parallel ranks"},
        {&llama,
         {1, 1, 4, 2, 1},
         4104,
         "the sequence length 4104 is not a multiple of 16 (2 x cp x tp)"},
        {&llama,
         {1, 1, 1, 3, 1},
         4096,
         "the sequence length 4096 is not a multiple of 6 (2 x cp)"},
        {&llama,
         {1, 1, 2, 1, 1},
         4095,
         "the sequence length 4095 is not a multiple of 2 (tp)"},
        {&moe, {1, 4, 1, 2, 8}, 4096, ""},
        {&moe,
         {1, 3, 1, 1, 2},
         4096,
         "dp x cp is 3 ranks, which do not divide by 2 expert-parallel ranks"},
        {&moe,
         {1, 3, 1, 1, 3},
         4096,
         "the model's 32 experts do not divide by 3 expert-parallel ranks"},
        {&mla, {1, 1, 16, 1, 1}, 4096, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pp_err err = {0};
        int rc = pp_mesh_check(&rows[i].x, rows[i].m, rows[i].seq_len, &err);
        is_str(rc ? err.text : "", rows[i].want, "model and mesh divide");
    }
    struct pp_err hint = {0};
    ok(pp_mesh_check(&(struct pp_mesh){1, 1, 4, 2, 1}, &llama, 4104, &hint) !=
           0,
       "a sequence length that does not divide is refused");
    is_str(hint.setting, "seq-len", "the setting to change");
    is_str(hint.value, "4112", "the next length that divides");
    hint = (struct pp_err){0};
    ok(pp_mesh_check(&(struct pp_mesh){1, 1, 24, 1, 1}, &llama, 4104, &hint) !=
           0,
       "heads that do not divide are refused");
    is_str(hint.value, "16", "the most ranks below that can divide the model");
    struct pp_model odd = llama;
    struct pp_err err = {0};
    odd.intermediate = 14339;
    ok(pp_mesh_check(&(struct pp_mesh){1, 1, 2, 1, 1}, &odd, 4096, &err) != 0,
       "a width that does not divide is refused");
}

int main(void)
{
    test_held();
    test_state();
    test_workspace();
    test_features();
    test_check();
    return done();
}
