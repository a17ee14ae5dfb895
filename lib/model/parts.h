/* SPDX-License-Identifier: MIT */
/* parts - what units are made of, as far as plans know it: the parameters and
 * the saved tensors of each part. The operations of parts are in
 * run/parts/layer_impl.h.
 *
 * A unit is a list of parts, which share its tables of parameters and of saved
 * tensors. Every part has its own slots there. */
#ifndef PP_MODEL_PARTS_H
#define PP_MODEL_PARTS_H

#include "model/model.h"

struct pp_saved; /* shard.h */
struct pp_shard;

enum pp_part_kind {
    PP_PART_EMBEDDING,
    PP_PART_POSITIONS, /* learned, added to the embedding */
    PP_PART_CONNECTOR, /* a product of the language model's rows, likewise */
    PP_PART_RMS_NORM,
    PP_PART_LAYER_NORM, /* with a bias */
    PP_PART_PLAIN_NORM, /* a layer norm without parameters */
    PP_PART_ATTENTION,  /* grouped queries; see pp_unit_rotates */
    PP_PART_GATED_MLP,
    PP_PART_PLAIN_MLP, /* two products with GELU between them */
    PP_PART_LATENT_ATTENTION,
    PP_PART_DELTA, /* linear attention, in some layers in place of attention */
    PP_PART_EXPERTS, /* router, gated experts, shared expert */
    PP_PART_JOIN,    /* what a layer for multi-token prediction has around its
                        decoder layer */
    PP_PART_HEAD,
    PP_PART_SCORE, /* a head that gives a number for each sequence */
    PP_PART_LOSS,  /* of a head that several units divide */
    /* Parts of encoders alone: */
    PP_PART_PATCHES,   /* a product of pixels, and a class token */
    PP_PART_PROJECTOR, /* two products with GELU between them */
    PP_PART_MERGER,    /* a norm of patches, then the same for several at once
                        */
    PP_PART_FRAMES,    /* two convolutions of the frames of audio */
    PP_PART_POOLER,    /* the mean of neighbours, a norm, a product */
    PP_N_PARTS
};

/* The norms of a model. */
enum pp_norm_place {
    PP_BEFORE_ATTENTION,
    PP_AFTER_ATTENTION, /* before its output is added to the input */
    PP_BEFORE_MLP,
    PP_AFTER_MLP, /* likewise */
    PP_BEFORE_HEAD,
    PP_N_NORM_PLACES
};

struct pp_model_part {
    enum pp_part_kind kind;
    enum pp_norm_place place; /* of a norm */
    size_t encoder;           /* of the model's, for a part of an encoder */
    struct pp_unit_id unit;   /* of the part, in its own model */
};

/* The slots of a norm in the tables of its unit. The last norm, and one after a
 * block, do not save their outputs: y is PP_NO_SLOT. Only one after a block
 * saves the gradient of its input, dx: the block's weights need it. */
enum { PP_NO_SLOT = -1 };
struct pp_norm_slots {
    int weight, bias;             /* parameters */
    int x, rstd, mean, y, dy, dx; /* saved tensors */
};
extern const struct pp_norm_slots pp_norm_slots[PP_N_NORM_PLACES];

/* A part of any model. pp_encoder_part_row has the parts of encoders alone. */
struct pp_part_row {
    /* Fills the part's entries of the unit's parameters, without names. */
    void (*tensors)(const struct pp_model *m, const struct pp_model_part *p,
                    struct pp_tensor_info *out);
    /* Fills the blocks and widths of the part's saved tensors, as without
     * recomputation. */
    void (*saved)(const struct pp_shard *s, const struct pp_model_part *p,
                  struct pp_saved *out);
};
const struct pp_part_row *pp_part_row(enum pp_part_kind kind);
const struct pp_part_row *pp_encoder_part_row(enum pp_part_kind kind);

/* Lists the parts of a unit in forward order, and returns their number. Units
 * of an encoder, but for the projector, are the tower's (vision.h). */
enum { PP_MAX_PARTS = 7 };
size_t pp_unit_parts(const struct pp_model *m, struct pp_unit_id u,
                     struct pp_model_part out[PP_MAX_PARTS]);

/* Names in files of weights. */
struct pp_names {
    const char *embedding, *positions; /* "model.embed_tokens.weight" */
    const char *norm, *norm_bias, *head;
    const char *patches; /* of an encoder; its embedding, if it has one, is a
                            class token */
    const char *conv1_bias, *conv2, *conv2_bias; /* of audio; patches is conv1's
                                                    weight */
    const char *layers; /* "model.layers", which the number of one follows */
    /* By slot: "input_layernorm.weight", or "mlp.experts.%.up_proj.weight" with
     * the number of an expert for '%'. NULL: the family never has it.
     * Without a name for keys, the tensor of queries holds queries, keys and
     * values; likewise that of the gate holds gate and up, also of experts. */
    const char *layer[PP_N_LAYER_PARAMS];
    bool transposed;      /* files have matrices of layers as (in, out) */
    bool stacks;          /* one tensor has all experts, as (in, out) */
    bool stacks_rows;     /* the same as (out, in) */
    bool alternate;       /* in it gate and up take turns, else gate is first */
    bool bias_is_row;     /* files have the bias of a router as (1, experts) */
    const char *optional; /* how names may begin: "transformer." Released
                             weights of the family lack it */
    const char *buffers[2]; /* how the names of tensors end that files may have
                               and nobody reads; or NULL */
};

/* An architecture: its class, its keys and names in files, and the parts of its
 * layers. A layer without experts has a gated MLP in place of them. */
struct pp_family {
    const char *model_type;   /* "llama"; NULL: an encoder */
    const char *architecture; /* "LlamaForCausalLM" */
    const char *config;  /* definitions of manifest/formula.h that differ from
                            the definitions of all families
                            (manifest/config_family.c); NULL: an encoder */
    const char *scoring; /* "LlamaForSequenceClassification", or NULL */
    const struct pp_names *names;
    enum pp_part_kind norm, attention, mlp;
    bool norms_after;      /* norms follow attention and MLP ... */
    bool only_after;       /* ... and none are before them */
    bool norms_rotated;    /* QK-norm follows rotary positions */
    bool parallel;         /* the MLP reads the norm before attention, too */
    bool no_norm_bias;     /* layer norms have a weight alone */
    enum pp_gelu gelu;     /* of an MLP without gate */
    bool whole;            /* attention is not causal */
    bool from_zero;        /* RMSNorm multiplies by 1 + its weight */
    bool scales_embedding; /* by the root of hidden */
    bool geglu;            /* the gate of an MLP is GELU's, not SiLU's */
    bool fixed_positions;  /* positions are stored, but not trained */
    bool sinusoids;        /* they are not stored, but follow from formulas */
    bool residual_init;    /* PP_INIT_RESIDUAL for the last product of each */
};
const struct pp_family *pp_family_of(enum pp_architecture a);

/* Reports whether the tensor of queries holds the gates of attention, too: each
 * head's behind its query. */
static inline bool pp_model_gates_beside(const struct pp_model *m)
{
    return m->gates &&
           !pp_family_of(m->architecture)->names->layer[PP_P_ATTN_GATE];
}

/* Reports whether attention of a decoder layer norms queries and keys. Without
 * a name for the weight the norm has none, and layers without rotary positions
 * have no norm. */
static inline bool pp_unit_norms_qk(const struct pp_model *m,
                                    struct pp_unit_id u)
{
    return m->qk_norm &&
           (pp_family_of(m->architecture)->names->layer[PP_P_Q_NORM] ||
            pp_unit_rotates(m, u));
}

/* Reports whether the gate of the outputs of linear attention is in one tensor
 * with queries, keys and values: the rows of each key head are together. */
static inline bool pp_model_delta_grouped(const struct pp_model *m)
{
    return !pp_family_of(m->architecture)->names->layer[PP_P_DELTA_Z];
}

/* Returns whether a unit of that name is a head, of words or rewards, or one of
 * the units that divide it; or whether it is one of these. */
bool pp_fqn_is_head(const char *fqn);
bool pp_fqn_is_head_part(const char *fqn);

/* Return the names of the embedding and of the head in files of the model. */
const char *pp_embedding_name(const struct pp_model *m);
const char *pp_head_name(const struct pp_model *m);

/* The families of language models, and of encoders. */
#define PP_FAMILY_TABLE(id, table) \
    extern const struct pp_family pp_family_##table;
PP_FAMILIES(PP_FAMILY_TABLE)
#undef PP_FAMILY_TABLE
extern const struct pp_family pp_family_clip, pp_family_qwen2_vit,
    pp_family_qwen2_5_vit, pp_family_omni_vit, pp_family_whisper,
    pp_family_omni_audio;

#endif
