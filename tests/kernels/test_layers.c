/* SPDX-License-Identifier: MIT */
/* test_layers - compares every element of every layer's gradients with finite
 * differences in fp64. Also tests packing, determinism and memory. */
#include "rig.h"

#include "model/vision.h"
#include "run/parts/layer_impl.h"

static const struct packing packed = {5, {5, 1, 0, 7, 3}, {8, 1, 2, 7, 4}};

struct variant {
    const char *name;
    enum pp_unit_kind kind;
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    size_t hidden, n_kv_heads; /* 0: the rig's */
    enum pp_recompute mode;
    enum pp_architecture architecture; /* 0: Llama */
    enum pp_gelu gelu;
    struct pp_moe moe;
    double capacity; /* of experts */
    struct pp_mla mla;
    bool norms_all_heads;
    double score_cap, logit_cap;
    size_t window;
    size_t axes[PP_ROPE_AXES];
    bool adjacent;
};

#define V3_MOE                                                       \
    {                                                                \
        {{1}}, 6, 2, 3, .shared = 3, .score_bias = true, .router = { \
            .sigmoid = true,                                         \
            .norm = true,                                            \
            .two_best = true,                                        \
            .n_groups = 2,                                           \
            .kept_groups = 1,                                        \
            .scale = 2.5                                             \
        }                                                            \
    }

/* Many gates and ups are beyond the limit. */
#define OSS_MOE                                                    \
    {                                                              \
        {{1}}, 5, 2, 3, .biases = true, .limit = 0.2, .gain = 1.7, \
                        .router.norm = true                        \
    }

#define LLAMA4_MOE                               \
    {                                            \
        {{1}}, 5, 2, 3, .shared = 3, .router = { \
            .sigmoid = true,                     \
            .weighs_input = true                 \
        }                                        \
    }

static const struct variant variants[] = {
    {"embedding", PP_UNIT_EMBED, 0, 0, 0, 0, 0, 0},
    {"norm", PP_UNIT_NORM, 0, 0, 0, 0, 0, 0},
    {"head", PP_UNIT_HEAD, 0, 0, 0, 0, 0, 0},
    {"decoder", PP_UNIT_LAYER, 0, 0, 0, 0, 0, 0},
    {"decoder, heads fill hidden", PP_UNIT_LAYER, 0, 0, 0, 0, 24, 0},
    {"decoder, one key head", PP_UNIT_LAYER, 0, 0, 0, 0, 0, 1},
    {"decoder, as many key heads", PP_UNIT_LAYER, 0, 0, 0, 0, 0, 4},
    {"decoder, qkv bias", PP_UNIT_LAYER, 1, 0, 0, 0, 0, 0},
    {"decoder, all biases", PP_UNIT_LAYER, 1, 1, 1, 0, 0, 0},
    {"decoder, QK-norm", PP_UNIT_LAYER, 0, 0, 0, 1, 0, 0},
    {"decoder, QK-norm, all biases", PP_UNIT_LAYER, 1, 1, 1, 1, 0, 1},
    {"decoder, selective", PP_UNIT_LAYER, 1, 1, 1, 0, 0, 0,
     PP_RECOMPUTE_SELECTIVE},
    {"decoder, full", PP_UNIT_LAYER, 1, 1, 1, 0, 0, 0, PP_RECOMPUTE_FULL},
    {"decoder, QK-norm, selective", PP_UNIT_LAYER, 0, 0, 0, 1, 0, 1,
     PP_RECOMPUTE_SELECTIVE},
    {"decoder, QK-norm, full", PP_UNIT_LAYER, 0, 0, 0, 1, 0, 1,
     PP_RECOMPUTE_FULL},
    {"GPT-2 embedding", PP_UNIT_EMBED, .architecture = PP_GPT2},
    {"GPT-2 norm", PP_UNIT_NORM, .architecture = PP_GPT2},
    {"GPT-2 decoder", PP_UNIT_LAYER, 1, 1, 1, .n_kv_heads = 4,
     .architecture = PP_GPT2},
    {"GPT-2 decoder, exact, selective", PP_UNIT_LAYER, 1, 1, 1, .n_kv_heads = 4,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_GPT2,
     .gelu = PP_GELU_ERF},
    {"GPT-2 decoder, full", PP_UNIT_LAYER, 1, 1, 1, .n_kv_heads = 4,
     .mode = PP_RECOMPUTE_FULL, .architecture = PP_GPT2},
    {"CLIP patches", PP_UNIT_PATCHES, .architecture = PP_CLIP},
    {"CLIP norm", PP_UNIT_NORM, .architecture = PP_CLIP},
    {"CLIP layer", PP_UNIT_LAYER, .architecture = PP_CLIP},
    {"CLIP layer, selective", PP_UNIT_LAYER, .architecture = PP_CLIP,
     .mode = PP_RECOMPUTE_SELECTIVE},
    {"CLIP layer, full", PP_UNIT_LAYER, .architecture = PP_CLIP,
     .mode = PP_RECOMPUTE_FULL},
    {"projector", PP_UNIT_PROJECTOR, .architecture = PP_CLIP},
    {"Qwen2-VL merger", PP_UNIT_PROJECTOR, .architecture = PP_QWEN2_VIT},
    {"Qwen2-VL layer", PP_UNIT_LAYER, .architecture = PP_QWEN2_VIT},
    {"Qwen2.5-VL patches", PP_UNIT_PATCHES, .architecture = PP_QWEN2_5_VIT},
    {"Qwen2.5-VL merger", PP_UNIT_PROJECTOR, .architecture = PP_QWEN2_5_VIT},
    {"Qwen2.5-VL layer", PP_UNIT_LAYER, .architecture = PP_QWEN2_5_VIT},
    {"Whisper frames", PP_UNIT_PATCHES, .architecture = PP_WHISPER},
    {"Whisper layer", PP_UNIT_LAYER, .architecture = PP_WHISPER},
    {"Whisper pool", PP_UNIT_PROJECTOR, .architecture = PP_WHISPER},
    {"Omni frames", PP_UNIT_PATCHES, .architecture = PP_OMNI_AUDIO},
    {"Omni layer of audio", PP_UNIT_LAYER, .architecture = PP_OMNI_AUDIO},
    {"Omni pool", PP_UNIT_PROJECTOR, .architecture = PP_OMNI_AUDIO},
    {"Omni layer of images", PP_UNIT_LAYER, .architecture = PP_OMNI_VIT},
    {"Qwen2-VL decoder", PP_UNIT_LAYER, 1, .axes = {1, 1, 1}},
    {"Qwen2-VL decoder, selective", PP_UNIT_LAYER, 1, .axes = {1, 1, 1},
     .mode = PP_RECOMPUTE_SELECTIVE},
    {"Qwen2-VL decoder, full", PP_UNIT_LAYER, 1, .axes = {1, 1, 1},
     .mode = PP_RECOMPUTE_FULL},
    {"Mixtral decoder", PP_UNIT_LAYER, .architecture = PP_MIXTRAL,
     .moe = {{{1}}, 5, 2, 3, .router.norm = true}},
    {"Mixtral decoder, one of each", PP_UNIT_LAYER, .architecture = PP_MIXTRAL,
     .moe = {{{1}}, 3, 1, 2, .router.norm = true}},
    {"Qwen3-MoE decoder, selective", PP_UNIT_LAYER, .qk_norm = true,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_QWEN3_MOE,
     .moe = {{{1}}, 4, 4, 3}},
    {"Qwen3-MoE decoder, dense", PP_UNIT_LAYER, .architecture = PP_QWEN3_MOE,
     .moe = {{{2}}, 5, 2, 3}},
    {"Qwen2-MoE decoder", PP_UNIT_LAYER, 1, .architecture = PP_QWEN2_MOE,
     .moe = {{{1}}, 5, 3, 3, .shared = 4, .shared_gate = true}},
    {"Qwen2-MoE decoder, full", PP_UNIT_LAYER, 1, .mode = PP_RECOMPUTE_FULL,
     .architecture = PP_QWEN2_MOE,
     .moe = {{{1}},
             4,
             2,
             2,
             .shared = 8,
             .shared_gate = true,
             .router.norm = true}},
    /* The values are narrower than the keys, or wider. */
    {"DeepSeek-V2 decoder, dense", PP_UNIT_LAYER,
     .architecture = PP_DEEPSEEK_V2, .moe = {{{2}}, 6, 2, 3}, .adjacent = true,
     .mla = {0, 5, 3, 4, 2, .score_scale = 1.5}},
    {"DeepSeek-V2 decoder", PP_UNIT_LAYER, .architecture = PP_DEEPSEEK_V2,
     .moe = {{{1}},
             6,
             2,
             3,
             .shared = 4,
             .router = {.n_groups = 3, .kept_groups = 2, .scale = 4}},
     .adjacent = true, .mla = {7, 5, 3, 2, 6}},
    {"DeepSeek-V3 decoder, biases, selective", PP_UNIT_LAYER, 1, 1,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_DEEPSEEK_V3,
     .moe = V3_MOE, .mla = {7, 5, 3, 4, 2}},
    {"DeepSeek-V3 decoder, full", PP_UNIT_LAYER, .mode = PP_RECOMPUTE_FULL,
     .architecture = PP_DEEPSEEK_V3, .moe = V3_MOE, .adjacent = true,
     .mla = {0, 9, 1, 4, 5}},
    {"Llama 4 decoder", PP_UNIT_LAYER, 1, 1, .architecture = PP_LLAMA4,
     .adjacent = true, .qk_norm = true, .moe = LLAMA4_MOE, .window = 3},
    {"Llama 4 decoder, selective", PP_UNIT_LAYER, .qk_norm = true,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_LLAMA4,
     .moe = LLAMA4_MOE, .window = 3},
    {"Llama 4 decoder with a capacity, full", PP_UNIT_LAYER, .n_kv_heads = 1,
     .mode = PP_RECOMPUTE_FULL, .architecture = PP_LLAMA4, .moe = LLAMA4_MOE,
     .capacity = 0.7},
    {"Cohere decoder", PP_UNIT_LAYER, 1, 1, .architecture = PP_COHERE,
     .adjacent = true},
    {"Cohere decoder, selective", PP_UNIT_LAYER, .n_kv_heads = 1,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_COHERE2, .window = 2},
    {"Cohere decoder, full", PP_UNIT_LAYER, .mode = PP_RECOMPUTE_FULL,
     .architecture = PP_COHERE},
    {"Arcee decoder", PP_UNIT_LAYER, .architecture = PP_ARCEE,
     .gelu = PP_RELU_SQUARED},
    {"Apertus decoder", PP_UNIT_LAYER, .qk_norm = true,
     .architecture = PP_APERTUS, .gelu = PP_XIELU},
    {"Apertus decoder, full", PP_UNIT_LAYER, 1, 1, .qk_norm = true,
     .mode = PP_RECOMPUTE_FULL, .architecture = PP_APERTUS, .gelu = PP_XIELU},
    {"StarCoder2 decoder, full", PP_UNIT_LAYER, 1, 1, 1,
     .mode = PP_RECOMPUTE_FULL, .architecture = PP_STARCODER2},
    {"GPT-OSS decoder", PP_UNIT_LAYER, 1, 1, .architecture = PP_GPT_OSS,
     .moe = OSS_MOE, .window = 3},
    {"GPT-OSS decoder, selective", PP_UNIT_LAYER, .n_kv_heads = 1,
     .mode = PP_RECOMPUTE_SELECTIVE, .architecture = PP_GPT_OSS,
     .moe = OSS_MOE},
    {"GPT-OSS decoder, full", PP_UNIT_LAYER, 1, 1, .mode = PP_RECOMPUTE_FULL,
     .architecture = PP_GPT_OSS, .moe = OSS_MOE},
    {"GPT-OSS decoder with a capacity, full", PP_UNIT_LAYER, 1, 1,
     .mode = PP_RECOMPUTE_FULL, .architecture = PP_GPT_OSS,
     .moe = {{{1}},
             5,
             2,
             3,
             .biases = true,
             .limit = 0.2,
             .gain = 1.7,
             .router.norm = true},
     .capacity = 0.7},
    {"Qwen2-MoE decoder with a capacity", PP_UNIT_LAYER, 1,
     .architecture = PP_QWEN2_MOE,
     .moe = {{{1}},
             5,
             3,
             3,
             .shared = 4,
             .shared_gate = true,
             .router.norm = true},
     .capacity = 0.5},
    {"Gemma embedding", PP_UNIT_EMBED, .architecture = PP_GEMMA2},
    {"Gemma norm", PP_UNIT_NORM, .architecture = PP_GEMMA2},
    {"Gemma 2 head", PP_UNIT_HEAD, .architecture = PP_GEMMA2, .logit_cap = 1},
    {"Gemma 2 decoder", PP_UNIT_LAYER, .architecture = PP_GEMMA2,
     .score_cap = 0.7, .window = 3},
    {"Gemma 2 decoder, selective", PP_UNIT_LAYER, .architecture = PP_GEMMA2,
     .score_cap = 0.7, .mode = PP_RECOMPUTE_SELECTIVE},
    {"Gemma 3 decoder, full", PP_UNIT_LAYER, .qk_norm = true,
     .architecture = PP_GEMMA3, .mode = PP_RECOMPUTE_FULL, .window = 3},
    {"OLMo norm", PP_UNIT_NORM, .architecture = PP_OLMO},
    {"OLMo decoder", PP_UNIT_LAYER, .architecture = PP_OLMO},
    {"OLMo 2 decoder", PP_UNIT_LAYER, .qk_norm = true, .norms_all_heads = true,
     .architecture = PP_OLMO2},
    {"OLMo 2 decoder, selective", PP_UNIT_LAYER, .qk_norm = true,
     .norms_all_heads = true, .architecture = PP_OLMO2,
     .mode = PP_RECOMPUTE_SELECTIVE},
    {"OLMo 2 decoder, full", PP_UNIT_LAYER, 1, 1, .qk_norm = true,
     .norms_all_heads = true, .architecture = PP_OLMO2, .n_kv_heads = 1,
     .mode = PP_RECOMPUTE_FULL},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

/* Returns a small model with images, or its encoder if that has the unit. */
static struct pp_model model_of_images(enum pp_vision_kind vision,
                                       enum pp_unit_kind kind)
{
    struct pp_model m = rig_model();
    bool audio =
        vision == PP_VISION_QWEN2_AUDIO || vision == PP_VISION_OMNI_AUDIO;
    bool windows = vision == PP_VISION_QWEN2_5 || vision == PP_VISION_OMNI;
    m.encoders[0] = (struct pp_vision){
        .kind = vision,
        .hidden = 12,
        .intermediate = 9,
        .n_layers = 2,
        .n_heads = 3,
        .n_run = 1,
        .patch_inputs = audio ? 6 : 5,
        .channels = 2,
        .most = audio ? 12 : 0,
        .merge = vision == PP_VISION_LLAVA ? 1 : 2,
        .window = windows,
        .chunk = vision == PP_VISION_OMNI_AUDIO ? 3 : 0,
        .windowed.bits[0] = windows || vision == PP_VISION_OMNI_AUDIO,
        .class_token = vision == PP_VISION_LLAVA,
        .projector_bias = true,
        .gelu = PP_GELU_SIGMOID,
        .projector_gelu = PP_GELU_ERF,
        .norm_eps = 1e-5,
        .patches = 8,
    };
    return kind == PP_UNIT_PROJECTOR ? m : pp_vision_tower(&m, 0);
}

static struct pp_model model_of(const struct variant *v)
{
    if (v->architecture == PP_CLIP)
        return model_of_images(PP_VISION_LLAVA, v->kind);
    if (v->architecture == PP_QWEN2_VIT)
        return model_of_images(PP_VISION_QWEN2, v->kind);
    if (v->architecture == PP_WHISPER)
        return model_of_images(PP_VISION_QWEN2_AUDIO, v->kind);
    if (v->architecture == PP_QWEN2_5_VIT)
        return model_of_images(PP_VISION_QWEN2_5, v->kind);
    if (v->architecture == PP_OMNI_VIT)
        return model_of_images(PP_VISION_OMNI, v->kind);
    if (v->architecture == PP_OMNI_AUDIO)
        return model_of_images(PP_VISION_OMNI_AUDIO, v->kind);
    struct pp_model m = rig_model();
    m.architecture = v->architecture;
    m.gelu = v->gelu;
    memcpy(m.rope_axes, v->axes, sizeof m.rope_axes);
    m.moe = v->moe;
    m.sinks.bits[0] = v->architecture == PP_GPT_OSS;
    m.mla = v->mla;
    m.adjacent = v->adjacent;
    m.qkv_bias = v->qkv_bias;
    m.o_bias = v->o_bias;
    m.mlp_bias = v->mlp_bias;
    m.qk_norm = v->qk_norm;
    m.norms_all_heads = v->norms_all_heads;
    m.score_cap = v->score_cap;
    m.logit_cap = v->logit_cap;
    m.query_scalar = v->score_cap > 0 ? 3 : 0;
    m.window = v->window;
    m.chunked = v->architecture == PP_LLAMA4;
    m.windowed.bits[0] = v->window > 0;
    m.hidden = v->hidden ? v->hidden : m.hidden;
    m.n_kv_heads = v->n_kv_heads ? v->n_kv_heads : m.n_kv_heads;
    if (m.mla.kv_rank) {
        m.n_kv_heads = m.n_heads;
        m.head_dim = m.mla.nope_dim + m.mla.rope_dim;
    }
    return m;
}

static struct pp_shard shard_of(const struct pp_model *m,
                                const struct variant *v)
{
    struct pp_shard s = pp_shard_whole(m);
    s.mesh.expert_capacity = v->capacity;
    s.images[0].seq_len = 8;
    return s;
}

static void gradients(const struct variant *v)
{
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig r;
    rig_init_mode(&r, &shard, v->kind, v->mode, &pp_kernels_f64, &packed, 0);
    rig_forward(&r);
    rig_backward(&r);
    ok(rig_guards(&r), "%s: writes stay inside", v->name);
    struct values w = values_new(&pp_kernels_f64, r.w.n, 0);
    struct values x = values_new(&pp_kernels_f64, r.x.n, 0);
    rig_differences(&r, &r.w, &w);
    ok(values_near(&r.g, &w, 1e-8, 1e-3, "parameter gradient"),
       "%s: gradients of all parameters", v->name);
    rig_differences(&r, &r.x, &x);
    if (!rig_is_first(v->kind))
        ok(values_near(&r.dx, &x, 1e-8, 1e-3, "input gradient"),
           "%s: gradient of the input", v->name);
    /* A second W adds the same gradient again. */
    struct values twice = values_new(&pp_kernels_f64, r.g.n, 0);
    for (size_t i = 0; i < r.g.n; i++)
        set(&twice, i, 2 * get(&r.g, i));
    struct pp_err err = {0};
    const struct pp_call c = rig_call(&r, PP_IN_BACKWARD, &err);
    rig_forward(&r);
    if (pp_layer_bwd_weight(&c))
        abort();
    ok(values_near(&r.g, &twice, 1e-14, 1e-3, "second W"), "%s: W accumulates",
       v->name);
    values_free(&w);
    values_free(&x);
    values_free(&twice);
    rig_finish(&r);
}

/* Compares f32 with f64 on the same numbers. */
static void precision(const struct variant *v)
{
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig a, b;
    rig_init_mode(&a, &shard, v->kind, v->mode, &pp_kernels_f32, &packed, 0);
    rig_init_mode(&b, &shard, v->kind, v->mode, &pp_kernels_f64, &packed, 0);
    double la = rig_forward(&a), lb = rig_forward(&b);
    rig_backward(&a);
    rig_backward(&b);
    is_near(la, lb, 1e-5, "fp32 forward is near fp64's");
    double g = nmse(&a.g, &b.g);
    double dx = rig_is_first(v->kind) ? 0 : nmse(&a.dx, &b.dx);
    if (!ok(g < 1e-12 && dx < 1e-12, "%s: fp32 gradients are near fp64's",
            v->name))
        printf("# nmse of g %.3g, of dx %.3g\n", g, dx);
    rig_finish(&a);
    rig_finish(&b);
}

static void determinism(const struct variant *v, const struct pp_kernels *k)
{
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig a, b;
    rig_init_mode(&a, &shard, v->kind, v->mode, k, &packed, 0);
    rig_init_mode(&b, &shard, v->kind, v->mode, k, &packed, 3);
    rig_forward(&b); /* an earlier call has no effect */
    rig_backward(&b);
    double la = rig_forward(&a), lb = rig_forward(&b);
    rig_backward(&a);
    rig_backward(&b);
    ok(!memcmp(&la, &lb, sizeof la) && same_bits(&a.g, &b.g) &&
           (v->kind == PP_UNIT_HEAD || same_bits(&a.y, &b.y)) &&
           (rig_is_first(v->kind) || same_bits(&a.dx, &b.dx)),
       "%s, %s: same bits again and at other addresses", v->name, k->name);
    rig_finish(&a);
    rig_finish(&b);
}

/* Copies rows of the packed rig's inputs for sequence i alone. */
static void take_sequence(struct rig *one, const struct rig *all, size_t i)
{
    size_t C = all->m.hidden, first = (size_t)all->cu_padded[i];
    size_t in = rig_in_width(&all->m, all->l.unit.kind);
    for (size_t j = 0; j < one->x.n; j++)
        set(&one->x, j, get(&all->x, first * in + j));
    for (size_t j = 0; j < one->dy.n; j++)
        set(&one->dy, j, get(&all->dy, first * C + j));
    size_t patch = all->m.encoders[0].patch_inputs;
    bool audio = pp_vision_hears(&all->m.encoders[0]);
    size_t rows = audio ? (size_t)one->cu[1] : one->mb.encoder.n_features;
    if (one->pixels)
        memcpy(one->pixels, all->images[i], rows * patch * sizeof *one->pixels);
    one->mb.scored.n = 0;
    for (size_t t = 0; t < one->mb.tokens; t++)
        one->ids[t] = all->ids[first + t];
    for (size_t j = 0; j < all->mb.scored.n; j++) {
        int32_t row = all->rows[j] - all->cu_padded[i];
        if (row < 0 || (size_t)row >= one->mb.tokens)
            continue;
        one->rows[one->mb.scored.n] = row;
        one->targets[one->mb.scored.n++] = all->targets[j];
    }
}

/* Returns whether y and dx of the sequence are the same as when packed. */
static bool same_rows(const struct rig *one, const struct rig *all, size_t i)
{
    size_t at = (size_t)all->cu_padded[i] * all->m.hidden;
    bool same = true;
    for (size_t j = 0; j < one->y.n; j++) {
        if (one->l.unit.kind != PP_UNIT_HEAD)
            same = same && fabs(get(&one->y, j) - get(&all->y, at + j)) < 1e-12;
        if (!rig_is_first(one->l.unit.kind))
            same =
                same && fabs(get(&one->dx, j) - get(&all->dx, at + j)) < 1e-12;
    }
    return same;
}

static void packing(const struct variant *v)
{
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig all;
    rig_init_mode(&all, &shard, v->kind, v->mode, &pp_kernels_f64, &packed, 0);
    double loss = rig_forward(&all), sum = 0;
    rig_backward(&all);
    struct values g = values_new(&pp_kernels_f64, all.g.n, 0);
    bool same = true;
    fill(&g, 0);
    for (size_t i = 0; i < packed.n; i++) {
        struct packing alone = {1, {packed.real[i]}, {packed.padded[i]}};
        struct rig one;
        rig_init_mode(&one, &shard, v->kind, v->mode, &pp_kernels_f64, &alone,
                      0);
        take_sequence(&one, &all, i);
        sum += rig_forward(&one);
        rig_backward(&one);
        same = same && same_rows(&one, &all, i);
        for (size_t j = 0; j < g.n; j++)
            set(&g, j, get(&g, j) + get(&one.g, j));
        rig_finish(&one);
    }
    /* Experts with a capacity keep the first tokens of all sequences. */
    bool apart = same && fabs(sum - loss) < 1e-11 &&
                 values_near(&g, &all.g, 1e-12, 1, "sum of gradients");
    ok(apart == (v->capacity <= 0),
       "%s: packed sequences are what they are alone%s", v->name,
       v->capacity > 0 ? ", but for a capacity" : "");
    values_free(&g);
    rig_finish(&all);
}

/* Reports whether a layer that recomputes a set has the bits of one that keeps
 * everything, although other blocks are overwritten between its actions. */
static bool recomputes(const struct rig *all, const struct pp_shard *shard,
                       const struct variant *v, enum pp_recompute mode,
                       const struct pp_kernels *k)
{
    struct rig r;
    struct pp_err err = {0};
    rig_init_mode(&r, shard, v->kind, mode, k, &packed, 0);
    rig_forward(&r);
    struct values *workspace = &r.blocks[PP_SAVED_WORKSPACE];
    const struct pp_call c = rig_call(&r, PP_IN_BACKWARD, &err);
    fill(workspace, NAN);
    fill(&r.blocks[PP_SAVED_GRAD_W], NAN);
    fill(&r.g, 0);
    if (pp_layer_bwd_input(&c, r.dx.at, r.dy.at))
        abort();
    fill(workspace, NAN);
    fill(&r.blocks[PP_SAVED_ACT_I], NAN);
    if (pp_layer_bwd_weight(&c))
        abort();
    bool same = rig_guards(&r) && same_bits(&all->y, &r.y) &&
                same_bits(&all->dx, &r.dx) && same_bits(&all->g, &r.g);
    rig_finish(&r);
    return same;
}

/* Tests the set of a variant, and if that is full each part alone, all but one
 * and some other sets. */
static void recompute(const struct variant *v, const struct pp_kernels *k)
{
    enum { N_PARTS = 9, N_OTHERS = 40 };
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig all;
    unsigned wrong = 0, full = PP_RECOMPUTE_FULL;
    rig_init_mode(&all, &shard, v->kind, PP_RECOMPUTE_NONE, k, &packed, 0);
    rig_forward(&all);
    rig_backward(&all);
    ok(recomputes(&all, &shard, v, v->mode, k),
       "%s, %s: the bits of a layer that keeps everything", v->name, k->name);
    for (unsigned i = 0; v->mode == full && i < 2 * N_PARTS + N_OTHERS; i++) {
        unsigned set = i < N_PARTS       ? 1u << i
                       : i < 2 * N_PARTS ? full & ~(1u << (i - N_PARTS))
                                         : i * 2654435761u >> 23;
        if (!recomputes(&all, &shard, v, (enum pp_recompute)set, k))
            wrong = set;
    }
    ok(!wrong, "%s, %s: the same bits with other sets of parts (0x%x)", v->name,
       k->name, wrong);
    rig_finish(&all);
}

/* Tests zero tokens: no memory is touched and the loss is 0. */
static void no_tokens(const struct variant *v)
{
    struct packing none = {0};
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig r;
    rig_init_mode(&r, &shard, v->kind, v->mode, &pp_kernels_f32, &none, 0);
    double loss = rig_forward(&r), sum = 0;
    rig_backward(&r);
    for (size_t i = 0; i < r.g.n; i++)
        sum += fabs(get(&r.g, i));
    ok(loss == 0 && sum == 0 && rig_guards(&r), "%s: no tokens", v->name);
    rig_finish(&r);
}

/* Tests that gradients that are NULL are skipped. */
static void frozen(const struct variant *v)
{
    struct pp_model m = model_of(v);
    const struct pp_shard shard = shard_of(&m, v);
    struct rig r;
    rig_init_mode(&r, &shard, v->kind, v->mode, &pp_kernels_f64, &packed, 0);
    memset(r.l.g, 0, sizeof r.l.g);
    rig_forward(&r);
    rig_backward(&r);
    double sum = 0;
    for (size_t i = 0; i < r.g.n; i++)
        sum += fabs(get(&r.g, i));
    ok(sum == 0, "%s: no gradients, no weight gradient", v->name);
    rig_finish(&r);
}

/* Tests that the log-probabilities add up to the loss. */
static void logps(void)
{
    struct pp_model m = rig_model();
    struct rig r;
    rig_init(&r, &m, PP_UNIT_HEAD, &pp_kernels_f64, &packed, 0);
    double loss = rig_forward(&r), sum = 0;
    for (size_t i = 0; i < r.mb.scored.n; i++)
        sum -= r.logps[i];
    ok(loss == sum * r.mb.loss.scale && r.mb.scored.n > 5,
       "head: loss is the scaled sum of -logp");
    r.mb.loss.logps = NULL;
    is_near(rig_forward(&r), loss, 0, "head: the same without logps");
    rig_finish(&r);
}

/* Tests more scored rows than a block of logits has. */
static void head_blocks(void)
{
    struct packing long_one = {1, {500}, {512}};
    struct pp_model m = rig_model();
    m.vocab = 280001; /* 112 rows */
    m.hidden = 4;
    struct rig a, b;
    rig_init(&a, &m, PP_UNIT_HEAD, &pp_kernels_f32, &long_one, 0);
    rig_init(&b, &m, PP_UNIT_HEAD, &pp_kernels_f64, &long_one, 0);
    double la = rig_forward(&a), lb = rig_forward(&b);
    rig_backward(&a);
    rig_backward(&b);
    is_near(la, lb, 1e-6, "head: loss over several blocks");
    ok(a.mb.scored.n > 300 && rig_guards(&a) && nmse(&a.g, &b.g) < 1e-11 &&
           nmse(&a.dx, &b.dx) < 1e-11,
       "head: gradients over several blocks");
    ok(a.scratch.n * sizeof(float) <= (size_t)132 << 20,
       "head: scratch is bounded");
    rig_finish(&a);
    rig_finish(&b);
}

/* Tests I and W at once, which compute the logits once, over several blocks. */
static void head_together(const struct pp_kernels *k)
{
    struct packing long_one = {1, {300}, {310}};
    struct pp_kernels small = *k;
    struct pp_model m = rig_model();
    struct rig a, b;
    small.head_rows = 48;
    rig_init(&a, &m, PP_UNIT_HEAD, &small, &long_one, 0);
    rig_init(&b, &m, PP_UNIT_HEAD, &small, &long_one, 0);
    rig_forward(&a);
    rig_forward(&b);
    rig_backward(&a);
    rig_backward_together(&b);
    ok(rig_guards(&b) && same_bits(&a.dx, &b.dx) && same_bits(&a.g, &b.g),
       "head, %s: B has the bits of I, then W", k->name);
    rig_finish(&a);
    rig_finish(&b);
}

/* Tests block sizes of other backends, and more rows than are read from a
 * device at a time. */
static void head_block_sizes(void)
{
    struct packing long_one = {1, {6300}, {6304}};
    struct pp_kernels small = pp_kernels_f64, whole = pp_kernels_f64;
    struct pp_model m = rig_model();
    struct rig a, b;
    small.head_rows = 48;
    whole.head_rows = SIZE_MAX;
    rig_init(&a, &m, PP_UNIT_HEAD, &small, &long_one, 0);
    rig_init(&b, &m, PP_UNIT_HEAD, &whole, &long_one, 0);
    is_near(rig_forward(&a), rig_forward(&b), 1e-14,
            "head: one loss, whatever its blocks");
    rig_backward(&a);
    rig_backward(&b);
    ok(a.mb.scored.n > 4096 && rig_guards(&a) && rig_guards(&b) &&
           nmse(&a.g, &b.g) < 1e-28 && nmse(&a.dx, &b.dx) < 1e-28,
       "head: one gradient, whatever its blocks");
    ok(a.scratch.n < b.scratch.n, "head: smaller blocks take less");
    rig_finish(&a);
    rig_finish(&b);
}

static void operations(void)
{
    for (int a = 0; a < PP_N_ARCHITECTURES; a++) {
        const struct pp_family *f = pp_family_of((enum pp_architecture)a);
        bool runs = pp_block_ops(f->attention) && pp_block_ops(f->mlp);
        ok(runs, "the blocks of %s have operations", f->architecture);
    }
}

/* The kernels that run although the first product fails. */
static struct {
    int products, activations;
} after;

static PP_LINEAR_FWD(fail_product)
{
    (void)y, (void)x, (void)w, (void)b, (void)r, (void)N, (void)C, (void)OC;
    (void)ldy, (void)ldx, (void)stream;
    after.products++;
    return 7;
}

static PP_SWIGLU_FWD(count_activation)
{
    (void)y, (void)gu, (void)N, (void)C, (void)stream;
    after.activations++;
    return 0;
}

/* Tests that the first error of a call ends it, and stays. */
static void errors(void)
{
    struct pp_model m = rig_model();
    struct pp_kernels k = pp_kernels_f64;
    struct pp_err err = {0};
    struct rig r;
    k.linear_fwd = fail_product;
    k.swiglu_fwd = count_activation;
    rig_init(&r, &m, PP_UNIT_LAYER, &k, &packed, 0);
    const struct pp_call c = rig_call(&r, PP_IN_FORWARD, &err);
    ok(pp_layer_fwd(&c, r.y.at, r.x.at) == -1 && err.code == PP_EXIT_SYSTEM,
       "a layer whose kernel fails fails");
    is_str(err.text, "model.layers.0: a kernel of cpu-f64 failed: code 7",
           "and says so");
    ok(after.products == 1 && after.activations == 0,
       "no kernel runs after the first error");
    PP_TRY(&c, pp_fail(&err, PP_EXIT_INPUT, "later"));
    const struct pp_call later = rig_call(&r, PP_IN_BACKWARD, &err);
    ok(pp_layer_bwd_weight(&later) == -1 && err.code == PP_EXIT_SYSTEM,
       "the first error stays");
    err = (struct pp_err){0};
    PP_TRY(&c, 0);
    ok(!pp_call_failed(&c), "without an error a call goes on");
    PP_TRY(&c, -1);
    ok(pp_call_failed(&c), "a failure without a text is one, too");
    rig_finish(&r);
}

int main(void)
{
    operations();
    errors();
    for (size_t i = 0; i < N_VARIANTS; i++) {
        if (i % (size_t)fewer() == 0)
            gradients(&variants[i]);
        precision(&variants[i]);
        determinism(&variants[i], &pp_kernels_f32);
        determinism(&variants[i], &pp_kernels_f64);
        /* The rows of a projector, and of merged patches, are apart. */
        if (variants[i].kind != PP_UNIT_PROJECTOR &&
            !(variants[i].kind == PP_UNIT_PATCHES &&
              variants[i].architecture == PP_QWEN2_5_VIT))
            packing(&variants[i]);
        no_tokens(&variants[i]);
        frozen(&variants[i]);
        if (variants[i].mode) {
            recompute(&variants[i], &pp_kernels_f32);
            recompute(&variants[i], &pp_kernels_f64);
        }
    }
    logps();
    head_blocks();
    head_block_sizes();
    head_together(&pp_kernels_f32);
    head_together(&pp_kernels_f64);
    return done();
}
