/* SPDX-License-Identifier: MIT */
/* model - the shape of a transformer: its units, their parameters, what they
 * save between forward and backward, and what they cost.
 *
 * A unit is what a stage is made of: the token embedding, a decoder layer, the
 * final norm, the head. The tables here are read by ppsplit (sizes and
 * costs), by checkpoints (names and shapes) and by the layers themselves
 * (offsets), so that a plan and a run cannot differ. */
#ifndef PP_MODEL_MODEL_H
#define PP_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pp_architecture {
    PP_LLAMA,
    PP_QWEN2,
    PP_QWEN3,
    PP_N_TRAINED, /* those before it are trained, those after it planned */
    PP_QWEN3_MOE = PP_N_TRAINED,
    PP_MIXTRAL,
    PP_GPT_OSS,
    PP_DEEPSEEK_V3, /* Moonlight too */
    PP_GPT2,
    PP_N_ARCHITECTURES,
    PP_TABLE = PP_N_ARCHITECTURES /* any: see unit_table.h */
};

enum pp_rope_type { PP_ROPE_DEFAULT, PP_ROPE_LINEAR, PP_ROPE_LLAMA3 };

struct pp_rope {
    enum pp_rope_type type;
    double theta;
    double factor;                            /* linear, llama3 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_max_position;             /* llama3 */
};

/* Some of a model's layers. Models with such sets have no more layers. */
#define PP_SET_LAYERS 1024
struct pp_layer_set {
    uint64_t bits[PP_SET_LAYERS / 64];
};

static inline void pp_layer_set_add(struct pp_layer_set *s, size_t layer)
{
    s->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

static inline bool pp_layer_set_has(const struct pp_layer_set *s, size_t layer)
{
    return layer < PP_SET_LAYERS && s->bits[layer / 64] >> layer % 64 & 1;
}

/* Mixture of experts: what stands in the place of the MLP of some layers. */
struct pp_moe {
    struct pp_layer_set layers;
    size_t n_experts; /* 0: there are none */
    size_t top_k;     /* experts that a token goes to */
    size_t intermediate;
    size_t shared;   /* width of what every token goes through, or 0 */
    bool biases;     /* on the router and the experts */
    bool score_bias; /* one number for each expert, for choosing only */
};

/* Multi-head latent attention: queries, and keys with values, of low rank. */
struct pp_mla {
    size_t q_rank;                    /* 0: queries are of full rank */
    size_t kv_rank;                   /* 0: there is no latent attention */
    size_t nope_dim, rope_dim, v_dim; /* of a head */
};

/* Whose way to put an encoder of images in front of the language model. */
enum pp_vision_kind {
    PP_VISION_NONE,
    PP_VISION_LLAVA,   /* CLIP's, and a projector of two products */
    PP_VISION_QWEN2,   /* of any resolution; patches are merged by fours */
    PP_VISION_QWEN2_5, /* the same, gated, most layers in windows */
    PP_N_VISIONS
};

/* A vision transformer, and what a sequence asks of it; see vision.h. */
struct pp_vision {
    enum pp_vision_kind kind;
    size_t hidden, intermediate, n_layers, n_heads;
    size_t n_run;        /* layers whose output is used, the first */
    size_t patch_inputs; /* numbers that a patch is made of */
    size_t merge;        /* patches that become one token */
    bool class_token;    /* one token more than patches ... */
    bool class_out;      /* ... that the language model gets too */
    bool projector_bias;
    size_t window; /* patches that the layers of windowed attend, or 0 */
    struct pp_layer_set windowed;
    size_t patches;  /* of an image; from the configuration, or a usual size */
    bool fixed_size; /* images have no other */
    size_t n_images; /* of a sequence ... */
    size_t seq_len;  /* ... of so many tokens, images included */
};

struct pp_model {
    enum pp_architecture architecture; /* of the language model */
    size_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, vocab;
    size_t max_position;
    double norm_eps;
    double init_range; /* initializer_range: standard deviation of --init */
    struct pp_rope rope;
    bool tied;     /* the head uses the embedding's weight */
    bool qkv_bias; /* on q, k and v */
    bool o_bias;
    bool mlp_bias;
    bool qk_norm; /* RMSNorm of every query and key head, before RoPE */
    /* Of the architectures that are only planned: */
    bool sinks;    /* a learnt logit of each head that attends nothing */
    size_t window; /* positions that the layers of windowed attend, or 0 */
    struct pp_layer_set windowed;
    struct pp_moe moe;
    struct pp_mla mla;
    size_t n_nextn; /* layers for multi-token prediction that there are ... */
    size_t n_mtp;   /* ... and that count: units behind the norm, whose layers
                       are numbered on from n_layers */
    struct pp_vision vision;           /* its units come first */
    const struct pp_unit_table *table; /* borrowed; then, of what is above, only
                                          n_layers counts */
};

/* "LlamaForCausalLM" and the like, as config.json's architectures has it; not
 * of PP_TABLE, whose table says it. */
const char *pp_architecture_name(enum pp_architecture a);

/* Whether pprun trains it. What pp_unit_params and pp_unit_saved list is whole
 * for such models only; counts, costs and sizes are for all. */
static inline bool pp_architecture_trained(enum pp_architecture a)
{
    return a < PP_N_TRAINED;
}

/* The architecture of the whole: an encoder's with its language model, or what
 * a table says. */
const char *pp_model_architecture(const struct pp_model *m);

/* Whether pprun trains the whole. */
static inline bool pp_model_trained(const struct pp_model *m)
{
    return m->vision.kind == PP_VISION_NONE &&
           pp_architecture_trained(m->architecture);
}

enum pp_unit_kind {
    PP_UNIT_EMBED,
    PP_UNIT_LAYER,
    PP_UNIT_NORM,
    PP_UNIT_HEAD,
    /* Of an encoder of images (vision.h): */
    PP_UNIT_PATCHES,
    PP_UNIT_PRE_NORM,
    PP_UNIT_VISION_LAYER,
    PP_UNIT_POST_NORM,
    PP_UNIT_PROJECTOR
};

struct pp_unit_id {
    enum pp_unit_kind kind;
    size_t layer; /* of a layer: its number, else 0 */
};

static inline bool pp_unit_is_vision(struct pp_unit_id u)
{
    return u.kind >= PP_UNIT_PATCHES;
}

/* Units in the order data passes them: those of an encoder of images where
 * there is one, embedding, layers, norm, layers for multi-token prediction
 * where they count, head. */
size_t pp_model_n_units(const struct pp_model *m);
struct pp_unit_id pp_model_unit(const struct pp_model *m, size_t index);
size_t pp_model_index(const struct pp_model *m, struct pp_unit_id u);

/* Whether it is a layer for multi-token prediction: a decoder layer behind a
 * product that joins the hidden states with the next tokens' embeddings, and
 * three norms. It shares embedding and head (DeepSeek-AI, "DeepSeek-V3
 * Technical Report", 2024, section 2.2). */
static inline bool pp_unit_is_mtp(const struct pp_model *m, struct pp_unit_id u)
{
    return !m->table && u.kind == PP_UNIT_LAYER && u.layer >= m->n_layers;
}

/* Units before the layers. */
size_t pp_model_n_first(const struct pp_model *m);

/* Longest fully qualified name or tensor name, with the final NUL. */
#define PP_FQN_TEXT 96

/* "model.embed_tokens", "model.layers.3", "model.norm", "lm_head": of a
 * language model. */
void pp_unit_fqn(struct pp_unit_id u, char buf[PP_FQN_TEXT]);

/* The same of any model's unit, also of a table's or an encoder's. */
void pp_model_fqn(const struct pp_model *m, struct pp_unit_id u,
                  char buf[PP_FQN_TEXT]);

/* The unit of that name; false when the model has none. */
bool pp_unit_by_fqn(const struct pp_model *m, const char *fqn,
                    struct pp_unit_id *u);

/* A parameter tensor. Shapes are Hugging Face's: (rows, cols) row-major, cols
 * 1 for a vector. */
struct pp_param {
    char name[PP_FQN_TEXT]; /* Hugging Face's: "model.norm.weight" */
    size_t rows, cols;
    bool is_matrix; /* two dimensions in the file */
    bool is_bias;
};

/* Slots of a unit's parameters. q, k, v stand next to each other, as do their
 * biases, and gate and up: a layer multiplies by each group at once. */
enum pp_layer_param {
    PP_P_NORM1,
    PP_P_Q,
    PP_P_K,
    PP_P_V,
    PP_P_Q_BIAS,
    PP_P_K_BIAS,
    PP_P_V_BIAS,
    PP_P_Q_NORM,
    PP_P_K_NORM,
    PP_P_O,
    PP_P_O_BIAS,
    PP_P_NORM2,
    PP_P_GATE,
    PP_P_UP,
    PP_P_GATE_BIAS,
    PP_P_UP_BIAS,
    PP_P_DOWN,
    PP_P_DOWN_BIAS,
    PP_N_LAYER_PARAMS
};
enum { PP_P_WEIGHT = 0 }; /* the only slot of embedding, norm and head */

/* Fills the unit's parameter table: out[slot].name is "" where this model has
 * no such parameter, or one of another shape than these. Returns the number of
 * slots (1 for all but layers). The head's parameter is named lm_head.weight
 * even when tied. */
size_t pp_unit_params(const struct pp_model *m, struct pp_unit_id u,
                      struct pp_param out[PP_N_LAYER_PARAMS]);

/* Elements of all parameters of the unit. */
uint64_t pp_unit_n_params(const struct pp_model *m, struct pp_unit_id u);

/* Elements of all distinct parameters: a tied head counts nothing. */
uint64_t pp_model_n_params(const struct pp_model *m);

/* What a unit keeps between its forward and its backward: tensors of a width
 * (elements) per token, in one of three blocks by lifetime. */
enum pp_saved_block {
    PP_SAVED_ACT_I,  /* F to I */
    PP_SAVED_ACT_W,  /* F to W */
    PP_SAVED_GRAD_W, /* I to W */
    PP_N_SAVED_BLOCKS,
    /* Within one F, I or B: what is not kept because I makes it again. Layers
     * use it one after the other. */
    PP_SAVED_WORKSPACE = PP_N_SAVED_BLOCKS,
    PP_N_UNIT_BLOCKS
};

/* What a decoder layer makes again in I instead of keeping it (recompute.h).
 * W makes nothing again: what it reads lives from I to W then, with the
 * gradients. */
enum pp_recompute {
    PP_RECOMPUTE_NONE,
    PP_RECOMPUTE_SELECTIVE, /* attention's output, what norms and the
                               activation give: all but x, q, k, v, what
                               o_proj adds to and gate and up */
    PP_RECOMPUTE_FULL,      /* all but its input */
    PP_N_RECOMPUTES
};

/* F writes a tensor in one block, I and W may find it in another. */
enum pp_saved_when { PP_IN_FORWARD, PP_IN_BACKWARD };

struct pp_saved {
    enum pp_saved_block block;
    size_t width;
    bool is_statistic; /* of the accumulated type, not the element's */
    size_t offset;     /* values per token before it in the unit's block: the
                          tensor of T tokens begins behind offset * T */
    size_t statistics; /* how many of those are statistics */
};

/* Saved tensors of a decoder layer, and their blocks where it makes nothing
 * again. QKV = (NH + 2 NKV) head_dim. */
enum pp_layer_saved {
    PP_S_X,        /* ACT_W: the layer's input, hidden */
    PP_S_RSTD1,    /* ACT_W: 1 */
    PP_S_NORM1,    /* ACT_W: normed input, hidden */
    PP_S_QKV_RAW,  /* ACT_W: q and k before QK-norm, (NH + NKV) head_dim; width
                      0 without QK-norm */
    PP_S_QK_RSTD,  /* ACT_W: NH + NKV; width 0 without QK-norm */
    PP_S_QKV,      /* ACT_I: q, k after RoPE and v, row of QKV */
    PP_S_LSE,      /* ACT_I: log-sum-exp of each head, NH */
    PP_S_ATTN,     /* ACT_W: attention output, NH head_dim */
    PP_S_MID,      /* ACT_W: x + attention block, hidden */
    PP_S_RSTD2,    /* ACT_W: 1 */
    PP_S_NORM2,    /* ACT_W: hidden */
    PP_S_GATE_UP,  /* ACT_I: gate and up before SwiGLU, 2 intermediate */
    PP_S_ACT,      /* ACT_W: silu(gate) * up, intermediate */
    PP_S_DNORM1,   /* GRAD_W: gradient of NORM1, hidden */
    PP_S_DQK_NORM, /* GRAD_W: gradient of normed q and k before RoPE,
                      (NH + NKV) head_dim; width 0 without QK-norm */
    PP_S_DQKV,     /* GRAD_W: gradient of the q, k, v products, QKV */
    PP_S_DMID,     /* GRAD_W: gradient of MID, which is o_proj's, hidden */
    PP_S_DNORM2,   /* GRAD_W: hidden */
    PP_S_DGATE_UP, /* GRAD_W: 2 intermediate */
    PP_S_DY,       /* GRAD_W: gradient of the layer's output, hidden */
    PP_N_LAYER_SAVED
};
/* Saved tensors of the other units. */
enum { PP_S_EMBED_DY, PP_N_EMBED_SAVED }; /* GRAD_W hidden */
enum { PP_S_FN_X, PP_S_FN_RSTD, PP_S_FN_DY, PP_N_NORM_SAVED };
/* ACT_W hidden, ACT_W 1, GRAD_W hidden */
enum { PP_S_HEAD_X, PP_S_HEAD_LSE, PP_N_HEAD_SAVED }; /* ACT_W both */

#define PP_MAX_SAVED PP_N_LAYER_SAVED

/* Fills the unit's table of saved tensors; returns their number. What is kept
 * from F on has the same place in F and afterwards. */
size_t pp_unit_saved(const struct pp_model *m, struct pp_unit_id u,
                     enum pp_recompute r, enum pp_saved_when when,
                     struct pp_saved out[PP_MAX_SAVED]);

/* Values per token of a whole block of the unit; precision.h has bytes. Of the
 * passing block the larger of F's and I's. */
size_t pp_unit_saved_width(const struct pp_model *m, struct pp_unit_id u,
                           enum pp_recompute r, enum pp_saved_block block);

/* Floating-point operations of one forward: per token, and per attended pair
 * of positions (a sequence of n tokens has n (n + 1) / 2, or less where a
 * window is set). Tokens of a mixture of experts go to top_k of them. A
 * multiplication and an addition count two; products only. Weight gradient and
 * input gradient of the products cost the same each; the pairs' input gradient
 * costs 2.5 times their forward (the scores are recomputed). */
struct pp_flops {
    double per_token, per_pair;
    size_t window; /* 0: none */
};
struct pp_flops pp_unit_fwd_flops(const struct pp_model *m,
                                  struct pp_unit_id u);

/* Pairs that a token of a sequence of seq_len tokens attends, on average. */
double pp_attended_pairs(size_t window, double seq_len);

struct pp_unit_row {
    const char *fqn;   /* below PP_FQN_TEXT characters */
    const char *class; /* of its module; likewise */
    enum pp_unit_kind kind;
    uint64_t params;
    double fwd_flops[2]; /* per token, per attended pair */
    double act_bytes[PP_N_SAVED_BLOCKS], out_bytes; /* per token */
};

struct pp_unit_table {
    const char *architecture;
    const struct pp_unit_row *rows;
    size_t n, n_first; /* all, and those before the first layer */
};

/* The row of a unit of the model, which has a table. */
const struct pp_unit_row *pp_unit_row(const struct pp_model *m,
                                      struct pp_unit_id u);

/* Whether the unit makes its products again in each half of its backward, as
 * the head does: in a table that one named lm_head, as in a manifest. */
bool pp_unit_recomputes(const struct pp_model *m, struct pp_unit_id u);

/* Keeps units, heads per key head, biases, QK-norm, RoPE's kind and tying;
 * makes hidden, heads, widths and vocabulary small. Random weights then vary
 * enough for attention to matter at that width. */
void pp_model_synthetic(struct pp_model *m);

#endif
