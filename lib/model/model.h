/* SPDX-License-Identifier: MIT */
/* model - the shape of a transformer: its units, their parameters, the
 * activations that they save, and their operations (cost.h: their costs).
 *
 * A stage is a list of units: the token embedding, decoder layers, the final
 * norm, the head. ppsplit (sizes and costs), checkpoints (names and shapes) and
 * the layers (offsets) all read the tables declared here, so a plan and a run
 * cannot differ. */
#ifndef PP_MODEL_MODEL_H
#define PP_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_sizes.h"
#include "model/layer_set.h"
#include "model/rope.h"
#include "model/slots.h"
#include "model/tensor.h"

/* The language models, as F(ID, table): PP_ID is the architecture, and
 * pp_family_table (parts.h) describes it. deepseek_v3 is Moonlight and Kimi-K2,
 * too, and gemma3 the language model of a Gemma 3. */
#define PP_FAMILIES(F)                    \
    F(LLAMA, llama)                       \
    F(QWEN2, qwen2)                       \
    F(QWEN3, qwen3)                       \
    F(MISTRAL, mistral)                   \
    F(QWEN3_MOE, qwen3_moe)               \
    F(MIXTRAL, mixtral)                   \
    F(GPT_OSS, gpt_oss)                   \
    F(DEEPSEEK_V3, deepseek_v3)           \
    F(GPT2, gpt2)                         \
    F(QWEN2_MOE, qwen2_moe)               \
    F(SMOLLM3, smollm3)                   \
    F(PHI3, phi3)                         \
    F(DEEPSEEK_V2, deepseek_v2)           \
    F(OLMO, olmo)                         \
    F(OLMO2, olmo2)                       \
    F(GEMMA, gemma)                       \
    F(GEMMA2, gemma2)                     \
    F(GEMMA3, gemma3)                     \
    F(OLMO3, olmo3)                       \
    F(EXAONE4, exaone4)                   \
    F(SEED_OSS, seed_oss)                 \
    F(MINISTRAL, ministral)               \
    F(CWM, cwm)                           \
    F(GLM, glm)                           \
    F(GLM4, glm4)                         \
    F(ERNIE4_5, ernie4_5)                 \
    F(GRANITE, granite)                   \
    F(ARCEE, arcee)                       \
    F(STARCODER2, starcoder2)             \
    F(COHERE, cohere)                     \
    F(COHERE2, cohere2)                   \
    F(MINISTRAL3, ministral3)             \
    F(HUNYUAN_V1_DENSE, hunyuan_v1_dense) \
    F(APERTUS, apertus)                   \
    F(QWEN3_5, qwen3_5)                   \
    F(OLMOE, olmoe)                       \
    F(FLEX_OLMO, flex_olmo)               \
    F(DOTS1, dots1)                       \
    F(EXAONE_MOE, exaone_moe)             \
    F(SOLAR_OPEN, solar_open)             \
    F(HY_V3, hy_v3)                       \
    F(GLM4_MOE, glm4_moe)                 \
    F(GLM4_MOE_LITE, glm4_moe_lite)       \
    F(MINIMAX_M2, minimax_m2)             \
    F(ERNIE4_5_MOE, ernie4_5_moe)         \
    F(HUNYUAN_V1_MOE, hunyuan_v1_moe)     \
    F(GRANITEMOE, granitemoe)             \
    F(GRANITEMOESHARED, granitemoeshared) \
    F(AFMOE, afmoe)                       \
    F(COHERE2_MOE, cohere2_moe)           \
    F(LLAMA4, llama4)                     \
    F(MIMO_V2_FLASH, mimo_v2_flash)       \
    F(QWEN3_5_MOE, qwen3_5_moe)           \
    F(QWEN3_NEXT, qwen3_next)

#define PP_FAMILY_ID(id, table) PP_##id,
enum pp_architecture {
    PP_FAMILIES(PP_FAMILY_ID) PP_N_ARCHITECTURES,
    PP_TABLE = PP_N_ARCHITECTURES, /* any: see struct pp_unit_table */
    PP_CLIP,
    PP_QWEN2_VIT, /* encoders of images: see pp_vision_tower */
    PP_QWEN2_5_VIT,
    PP_OMNI_VIT,
    PP_WHISPER, /* encoders of audio */
    PP_OMNI_AUDIO,
    PP_END_ARCHITECTURES
};
#undef PP_FAMILY_ID

/* Mixture of experts, which replaces the MLP of some layers. */
struct pp_moe {
    struct pp_layer_set layers;
    size_t n_experts;    /* 0: a dense model */
    size_t top_k;        /* experts of each token */
    size_t intermediate; /* width of one expert */
    size_t shared;       /* width of all shared experts, or 0 */
    bool shared_gate;    /* a sigmoid weighs their output */
    double shared_scale; /* of their output; 0: 1 */
    bool biases;         /* on the router and the experts */
    double limit, gain;  /* GPT-OSS's activation (clamped_swiglu); 0: SwiGLU */
    bool score_bias;     /* a number for each expert that only selects */
    struct pp_router router;
};

/* Multi-head latent attention: low-rank queries, keys and values. */
struct pp_mla {
    size_t q_rank;                    /* 0: full-rank queries */
    size_t kv_rank;                   /* 0: no latent attention */
    size_t nope_dim, rope_dim, v_dim; /* per head */
    double score_scale; /* of the scores, beside 1 / sqrt(nope_dim + rope_dim);
                           0: 1 */
};

/* The family of a model with an encoder. */
enum pp_vision_kind {
    PP_VISION_NONE,
    PP_VISION_LLAVA,       /* CLIP's encoder, a projector of two products */
    PP_VISION_QWEN2,       /* any resolution; merges patches by fours */
    PP_VISION_QWEN2_5,     /* the same with gated MLPs, most layers windowed */
    PP_VISION_QWEN2_AUDIO, /* Whisper's encoder of audio, pooled by twos */
    PP_VISION_OMNI,        /* Qwen2.5-VL's, with its queries, keys and values
                              apart. The second encoder is of audio: */
    PP_N_VISIONS,
    PP_VISION_OMNI_AUDIO = PP_N_VISIONS, /* Whisper's for chunks of a clip */
    PP_VISION_PLANNED, /* of a model with a table, which has its units */
    PP_END_VISIONS
};

/* The most encoders, and the most hidden states that a projector reads. */
enum { PP_MAX_ENCODERS = 2, PP_MOST_STATES = 8 };

/* The components of a model, in data order: encoders, of which it may have
 * fewer, from 0 on; the language model; a generator behind it, or none. */
enum { PP_LANGUAGE = PP_MAX_ENCODERS, PP_GENERATOR, PP_N_COMPONENTS };

/* An encoder; see vision.h. Its images may be
 * clips of audio (base/modality.h): a patch is then a row, channels are
 * frequencies, and patch_size is the frames of a row. */
struct pp_vision {
    enum pp_vision_kind kind;
    size_t hidden, intermediate, n_layers, n_heads;
    size_t n_run;                /* the first n_run layers run */
    size_t patch_inputs;         /* input values of a patch */
    size_t channels, patch_size; /* of a patch of patch_size pixels each way */
    size_t frames;               /* of a patch of Qwen's; else 0 */
    size_t merge;                /* patches merged into one token */
    bool class_token, class_out; /* the language model gets the class token */
    size_t n_states; /* hidden states that the projector reads; 0: one */
    /* States before the last one of several; 0 is what the first layer reads.
     * And the place of each in a message, in the projector's order: 0 is the
     * last one, which the others follow as they ascend. */
    struct pp_layer_set kept;
    unsigned char state[PP_MOST_STATES];
    bool projector_bias;
    enum pp_gelu gelu, projector_gelu;
    double norm_eps;
    size_t window; /* features each way of a window, or 0 */
    size_t chunk;  /* of audio: rows that convolutions and attention do not
                      leave; 0: the rows of a clip */
    struct pp_layer_set windowed;
    size_t patches;     /* per image: as configured, or a common size */
    bool fixed_size;    /* all images have this size */
    size_t most;        /* patches of an image; 0: any number */
    size_t image_token; /* the id of placeholders for features */
};

/* Linear attention by the gated delta rule (kernels/delta.h). */
struct pp_delta {
    struct pp_layer_set layers; /* the others have attention */
    size_t key_heads, value_heads, key_dim, value_dim;
    size_t taps; /* of its convolution */
};

/* Return the channels of the convolution, and the outputs of the product. */
static inline size_t pp_delta_channels(const struct pp_delta *d)
{
    return 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;
}

static inline size_t pp_delta_outputs(const struct pp_delta *d)
{
    return pp_delta_channels(d) + d->value_heads * (d->value_dim + 2);
}

struct pp_lora; /* lora.h */

/* The part of a unit in training (frozen.h). */
enum pp_role {
    PP_ROLE_TRAINED,
    PP_ROLE_PASSED, /* it is frozen, but a unit before it is trained: it has an
                       input gradient and no weight gradient */
    PP_ROLE_FORWARD /* no unit up to this one is trained: it has no backward */
};

/* Heads of attention: queries; keys and values; their widths. */
struct pp_heads {
    size_t n, n_kv;
    size_t qk, v; /* of a query or key, and of a value */
};

struct pp_model {
    enum pp_architecture architecture; /* the language model's */
    size_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, vocab;
    size_t v_dim; /* of a value head; 0: mla.v_dim, or head_dim */
    struct pp_heads windowed_heads; /* of layers with a window; n 0: as the
                                       others */
    size_t max_position;
    double norm_eps;
    double init_range; /* initializer_range: standard deviation of weights */
    const char *dtype; /* pp_precision's name of its type; NULL: not stated */
    size_t rotary_dim; /* first elements of a head that RoPE turns; 0: all */
    bool adjacent;     /* neighbours of what rotates pair, not its halves */
    struct pp_rope rope;
    struct pp_rope windowed_rope; /* of layers with a window; theta 0: as the
                                     others */
    bool tied;                    /* the head uses the embedding's weight */
    bool scores; /* the head gives a number for each sequence, from its last
                    token: a reward model */
    bool qkv_bias;
    bool no_k_bias; /* ... but keys have none */
    bool o_bias;
    bool mlp_bias;
    enum pp_gelu gelu;    /* of an MLP without gate */
    const char *dropout;  /* the key of config.json that asks for some, which
                             pprun does not apply; or NULL */
    bool qk_norm;         /* RMSNorm of every query and key head, before RoPE */
    bool norms_all_heads; /* QK-norm is one of all queries and one of all keys
                             of a token */
    size_t window;        /* positions that a windowed layer attends, or 0 */
    bool chunked;         /* windows are chunks: they do not move on */
    struct pp_layer_set windowed;
    /* Queries at position p are multiplied by 1 + query_beta ln(1 + floor(p /
     * query_period)); 0: by 1. If unrotated_queries, only in layers without
     * rotary positions, which then count from 1. */
    double query_beta;
    bool unrotated_queries;
    size_t query_period;
    double query_scalar; /* scores are divided by its root; 0: head_dim */
    double value_scale;  /* of values; 0: 1 */
    double embed_scale;  /* of embeddings; 0: 1 */
    double logit_scale;  /* of logits, before the cap; 0: 1 */
    double score_cap, logit_cap; /* they become cap tanh(x / cap); 0: none */
    struct pp_moe moe;
    struct pp_layer_set unrotated; /* layers without rotary positions */
    /* Frequencies that each position of a token rotates, if it has several: row
       and column in an encoder; time, row and column behind it. */
    size_t rope_axes[PP_ROPE_AXES];
    struct pp_mla mla;
    struct pp_delta delta;
    bool gates; /* a product of the input, behind a sigmoid, multiplies the
                   output of attention */
    struct pp_layer_set sinks; /* layers with a learned sink per head */
    size_t n_nextn; /* layers for multi-token prediction in config.json ... */
    size_t n_mtp;   /* ... and in the plan: units after the norm, numbered
                       from n_layers on. pprun trains at most one */
    size_t head_stages; /* in the plan: units that divide the words of the head,
                           with the loss as a unit behind them; 0: the head is
                           one unit */
    /* Their units come first, in this order; at most one of each modality. Of
       an encoder that the model does not have, the kind is PP_VISION_NONE. */
    struct pp_vision encoders[PP_MAX_ENCODERS];
    const struct pp_unit_table *table; /* borrowed, or NULL; with a table only
                                          n_layers above is used, and if it is
                                          estimated the sizes by which ranks
                                          divide: of heads, hidden, vocab and
                                          moe.n_experts */
    const struct pp_lora *lora;        /* its adapters; borrowed; or NULL */
    bool maps; /* matrices of frozen products are mapped (tensor.h) */
    const enum pp_role *roles; /* by unit; borrowed; NULL: all are trained. A
                                  tower has the roles of the whole model */
    /* A generator: a language model of its own behind this one, whose units
       follow; or NULL. Borrowed. It has no encoder, and no tied head. */
    const struct pp_model *generator;
    size_t reads; /* of a generator: the width of the rows that its embedding
                     adds, after a product, the connector; or 0 */
};

/* Reports whether the model is an encoder alone. */
static inline bool pp_model_is_tower(const struct pp_model *m)
{
    return m->architecture >= PP_CLIP;
}

/* Returns the name in config.json's architectures, such as "LlamaForCausalLM".
 * a is not PP_TABLE: a table carries its own name. */
const char *pp_architecture_name(enum pp_architecture a);

/* Returns the name of the whole model: that of the vision-language model, or
 * the table's, or pp_architecture_name. */
const char *pp_model_architecture(const struct pp_model *m);

/* Returns true if pprun trains the whole model. */
static inline bool pp_model_trained(const struct pp_model *m)
{
    const struct pp_model *g = m->generator;
    return m->n_mtp <= 1 && !m->table && !(g && g->table);
}

enum pp_unit_kind {
    PP_UNIT_EMBED,
    PP_UNIT_LAYER,
    PP_UNIT_NORM,
    PP_UNIT_HEAD,
    PP_UNIT_LOSS,    /* of a head that several units divide; without parameters
                      */
    PP_UNIT_PATCHES, /* of encoders alone (vision.h), as the next one */
    PP_UNIT_PROJECTOR
};

struct pp_unit_id {
    enum pp_unit_kind kind;
    size_t layer; /* number of a layer, or 0; 1 for the norm behind the layers
                     of an encoder; of the units that divide a head. With a
                     table, a unit that is not a layer
                     has its index here. */
    size_t component; /* of the model; for a unit of a tower, of the model that
                         has the encoder */
};

/* Returns the model that a unit belongs to, m or its generator, and makes *u
 * the unit of that model. */
static inline const struct pp_model *pp_unit_model(const struct pp_model *m,
                                                   struct pp_unit_id *u)
{
    if (u->component != PP_GENERATOR)
        return m;
    u->component = PP_LANGUAGE;
    return m->generator;
}

static inline bool pp_unit_is_vision(struct pp_unit_id u)
{
    return u.component < PP_LANGUAGE;
}

/* Reports whether the unit is a layer of a language model or of a generator. */
static inline bool pp_unit_is_decoder(struct pp_unit_id u)
{
    return u.kind == PP_UNIT_LAYER && !pp_unit_is_vision(u);
}

/* Returns the encoder that the unit belongs to. */
static inline const struct pp_vision *pp_unit_encoder(const struct pp_model *m,
                                                      struct pp_unit_id u)
{
    return &m->encoders[u.component];
}

/* Returns whether the unit runs. LLaVA reads a hidden state before the last
 * layer of its encoder; what comes after it has weights but no gradients. */
static inline bool pp_unit_runs(const struct pp_model *m, struct pp_unit_id u)
{
    return !pp_unit_is_vision(u) ||
           u.layer <
               (u.kind == PP_UNIT_LAYER ? pp_unit_encoder(m, u)->n_run : 1);
}

/* Returns the number of the model's encoders. */
static inline size_t pp_model_n_encoders(const struct pp_model *m)
{
    size_t n = 0;
    while (n < PP_MAX_ENCODERS && m->encoders[n].kind != PP_VISION_NONE)
        n++;
    return n;
}

static inline bool pp_model_has_encoder(const struct pp_model *m)
{
    return pp_model_n_encoders(m) > 0;
}

/* Number units in data order: each encoder's, embedding, layers, norm, layers
 * for multi-token prediction, head; then the generator's.
 * pp_component_first returns the number of the first unit of a component, or
 * with PP_N_COMPONENTS the number of all units; pp_component_n_units returns 0
 * for a component that the model does not have. */
size_t pp_component_n_units(const struct pp_model *m, size_t component);
size_t pp_component_first(const struct pp_model *m, size_t component);
size_t pp_model_n_units(const struct pp_model *m);
struct pp_unit_id pp_model_unit(const struct pp_model *m, size_t index);
size_t pp_model_index(const struct pp_model *m, struct pp_unit_id u);

/* Returns true for a layer for multi-token prediction. It has a product that
 * joins the hidden states with the next tokens' embeddings, a decoder layer and
 * three norms, and it shares embedding and head (DeepSeek-AI, "DeepSeek-V3
 * Technical Report", 2024, section 2.2). */
static inline bool pp_unit_is_mtp(const struct pp_model *m, struct pp_unit_id u)
{
    return !m->table && pp_unit_is_decoder(u) && u.layer >= m->n_layers;
}

/* Returns the positions that a decoder layer attends, its own included, or 0 if
 * it attends all before it. */
static inline size_t pp_unit_window(const struct pp_model *m,
                                    struct pp_unit_id u)
{
    return pp_layer_set_has(&m->windowed, u.layer) ? m->window : 0;
}

/* Return the heads of layers with a window, or of the other layers; and the
 * heads of a layer. */
static inline struct pp_heads pp_model_heads(const struct pp_model *m,
                                             bool windowed)
{
    size_t v = m->mla.kv_rank ? m->mla.v_dim : m->v_dim;
    if (windowed && m->windowed_heads.n)
        return m->windowed_heads;
    return (struct pp_heads){m->n_heads, m->n_kv_heads, m->head_dim,
                             v ? v : m->head_dim};
}

static inline struct pp_heads pp_unit_heads(const struct pp_model *m,
                                            struct pp_unit_id u)
{
    return pp_model_heads(m, pp_layer_set_has(&m->windowed, u.layer));
}

/* Returns the role of a unit. Units that do not run are frozen. */
enum pp_role pp_unit_role(const struct pp_model *m, struct pp_unit_id u);

/* Returns true if attention of a decoder layer rotates queries and keys. */
bool pp_unit_rotates(const struct pp_model *m, struct pp_unit_id u);

/* Returns the number of units before the decoder layers. */
size_t pp_model_n_first(const struct pp_model *m);

/* Writes the name of a language model's unit: "model.embed_tokens",
 * "model.layers.3", "model.norm" or "lm_head". */
void pp_unit_fqn(struct pp_unit_id u, char buf[PP_FQN_TEXT]);

/* Writes the name of any unit, also of a table or a vision encoder. */
void pp_model_fqn(const struct pp_model *m, struct pp_unit_id u,
                  char buf[PP_FQN_TEXT]);

/* Finds a unit by its name. Returns false if the model has none. */
bool pp_unit_by_fqn(const struct pp_model *m, const char *fqn,
                    struct pp_unit_id *u);

/* Fills the unit's parameter table (tensor.h). out[i].name is "" if the model
 * has no such parameter, or has it in another form. Returns the number of rows.
 * The head's parameter is lm_head.weight even if it is tied, or score.weight.
 */
size_t pp_unit_params(const struct pp_model *m, struct pp_unit_id u,
                      struct pp_tensor_info out[PP_N_LAYER_PARAMS]);

/* Returns the elements of a query head that RoPE rotates in layers with a
 * window, or in the others; or 0: the model adds learned positions to the
 * embedding instead. */
size_t pp_model_rotary(const struct pp_model *m, bool windowed);

/* Returns the elements of a row in the rotary tables: as many, or also the
 * elements of a second table if layers with a window or queries have tables of
 * their own. */
size_t pp_model_rope_width(const struct pp_model *m);

/* Returns the most tokens of a sequence, or SIZE_MAX: RoPE goes on behind
 * max_position, unless it is dynamic or longrope. */
size_t pp_model_longest(const struct pp_model *m);

/* Returns the number of tensors in the tables of all units. */
size_t pp_model_n_tensors(const struct pp_model *m);

/* Returns the number of elements of all parameters of the unit. */
uint64_t pp_unit_n_params(const struct pp_model *m, struct pp_unit_id u);

/* Returns the number of elements of all parameters, without a tied head. */
uint64_t pp_model_n_params(const struct pp_model *m);

/* Returns the same with a tied head: the sum over all units. */
uint64_t pp_model_n_elements(const struct pp_model *m);

/* A unit saves tensors between forward and backward, each with a width in
 * elements per token. They lie in three blocks, by lifetime. */
enum pp_saved_block {
    PP_SAVED_ACT_I,  /* F to I */
    PP_SAVED_ACT_W,  /* F to W */
    PP_SAVED_GRAD_W, /* I to W */
    PP_N_SAVED_BLOCKS,
    /* Within one F, I or B: tensors that I recomputes. The layers of a stage
     * share this block. */
    PP_SAVED_WORKSPACE = PP_N_SAVED_BLOCKS,
    PP_SAVED_GRAD_KEYS, /* from the last slice's I to I; only with slices */
    PP_SAVED_STATES, /* what linear attention passes to the next slice, from F
                        to W; once, not for each token */
    PP_N_UNIT_BLOCKS
};

/* Activations that I of a decoder layer recomputes (cost.h): a set of parts, as
 * bits. W recomputes nothing: what it reads then lives from I to W, with the
 * gradients. An activation goes with the product before it. */
enum pp_recompute {
    PP_RECOMPUTE_NONE = 0,
    PP_AGAIN_NORMS = 1 << 0,     /* outputs of the norms before blocks */
    PP_AGAIN_ATTENTION = 1 << 1, /* the output of attention's heads */
    PP_AGAIN_QKV = 1 << 2,       /* queries, keys and values; of latent
                                    attention, from the latent values */
    PP_AGAIN_LATENT = 1 << 3,    /* latent values */
    PP_AGAIN_OUTPUTS = 1 << 4,   /* the sum after attention, and the outputs of
                                    blocks that a norm follows */
    PP_AGAIN_MLP_ACT = 1 << 5,   /* an MLP's activation, or a shared expert's */
    PP_AGAIN_MLP = 1 << 6,       /* its first products */
    PP_AGAIN_EXPERT_ACT = 1 << 7, /* the same of the experts that tokens choose
                                   */
    PP_AGAIN_EXPERTS = 1 << 8,
    /* Whatever needs no product but attention's; the layer keeps x, q,
     * k, v, the sum after attention, gate and up. */
    PP_RECOMPUTE_SELECTIVE = PP_AGAIN_NORMS | PP_AGAIN_ATTENTION |
                             PP_AGAIN_MLP_ACT | PP_AGAIN_EXPERT_ACT,
    /* All but the layer's input, and what its router chose. */
    PP_RECOMPUTE_FULL = (1 << 9) - 1
};
enum { PP_N_RECOMPUTED = 9 };

/* Floating-point operations of one forward, per token and per attended pair of
 * positions. A sequence of n tokens has n (n + 1) / 2 pairs, or fewer with a
 * window. Only products count; a multiplication with an addition counts 2. A
 * token of a mixture of experts passes top_k experts. */
struct pp_flops {
    double per_token, per_pair;
    size_t window;       /* of the pairs; 0: none */
    double per_any_pair; /* of all pairs, whatever the window */
    bool chunked;        /* the window is a chunk: a token attends the tokens
                            before it in its own */
    double frozen; /* of the products for a token: W lacks so many, of a unit
                      that trains adapters alone */
};
struct pp_shard;
struct pp_flops pp_unit_fwd_flops(const struct pp_shard *s,
                                  struct pp_unit_id u);

/* Returns the operations of a token in the states of a layer of linear
 * attention. */
double pp_delta_flops(const struct pp_model *m);

/* Returns the mean number of pairs that a token of a sequence attends. */
double pp_attended_pairs(size_t window, double seq_len);

/* Returns the mean operations of a pair of a sequence, of all its pairs. */
double pp_pair_flops(const struct pp_flops *f, double seq_len);

/* The workspace of an action: bytes as a function of its rows. It has two
 * activations that the units of a stage hand on, then what the unit recomputes,
 * then the scratch of its kernels, each from a cache line on. */
struct pp_workspace {
    double token;     /* for each row; not whole for units of an encoder */
    size_t fixed;     /* once */
    size_t row, rows; /* for a row of logits, and most of these rows */
    size_t keys;      /* keys and values of a row; only slices need them */
    /* Once, in no workspace: */
    size_t states; /* what passes to the next slice; likewise */
    size_t told;   /* what F tells the host of a GPU, in its memory */
};

enum { PP_WORKSPACE_NUMBERS = 5 }; /* of the struct */

/* The costs of a unit, or a sum over units. */
struct pp_unit_costs {
    uint64_t params;
    double fwd_flops[2];                 /* per token, per attended pair */
    double act_bytes[PP_N_SAVED_BLOCKS]; /* per token, by pp_saved_block */
    double out_bytes;                    /* per token */
};

/* A model of any architecture, known by a table of its units and their costs.
 * Some units come before the layers and some after them; rules that count
 * layers count only the layers. The rows of its encoder come first: an
 * encoder's costs are given per patch, or per feature of the projector, and per
 * pair of patches. */
struct pp_unit_row {
    const char *fqn;   /* below PP_FQN_TEXT characters */
    const char *class; /* class of its module; likewise */
    enum pp_unit_kind kind;
    struct pp_unit_costs costs;
    struct pp_workspace workspace;
    /* The members of pp_flops beside the members of costs. */
    size_t window;
    double per_any_pair;
    bool chunked;
    /* Parameters of experts, and parameters that tensor-parallel ranks do not
     * divide, which are norms, biases and routers. */
    uint64_t experts, whole;
    /* Tensor-parallel ranks of an encoder divide so much of act_bytes. */
    double divided[PP_N_SAVED_BLOCKS];
};

/* The costs of units that follow from rules and not from code that computes
 * them. Numbers of parameters are exact. */
enum pp_estimated {
    PP_ESTIMATED_NOTHING,
    PP_ESTIMATED_MEMORY, /* saved activations */
    PP_ESTIMATED_COSTS   /* these and operations */
};

struct pp_unit_table {
    const char *architecture;
    const struct pp_unit_row *rows;
    size_t n, n_first; /* units of the language model, and those before its
                          first layer */
    bool of_elements;  /* bytes of rows are elements of the model's type */
    enum pp_estimated estimated;
    const char *left_out; /* parts that the table lacks; or NULL */
};

/* Returns the table's row of a unit. The model has a table. */
const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u);

/* Returns what the bytes of a table's rows are multiplied by, for elements of
 * so many bytes. */
static inline double pp_table_bytes_of(const struct pp_model *m,
                                       size_t element_bytes)
{
    return m->table->of_elements ? (double)element_bytes : 1;
}

/* Returns true if I and W both recompute the unit's products, as the head does.
 * In a table this is the unit named lm_head or score. */
bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u);

/* Makes a synthetic model: a small one that a pipeline cannot tell from *m. It
 * keeps the units, query heads per key head, biases, QK-norm, the RoPE type and
 * tying; it reduces hidden, heads, widths and vocabulary. init_range becomes
 * large enough for attention to matter at that width. tp ranks that divide the
 * tensors of *m can divide the result's. It keeps at least `share` key
 * heads, so that ranks can exchange them. */
void pp_model_synthetic(struct pp_model *m, size_t tp, size_t share);

#endif
