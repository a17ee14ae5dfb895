/* SPDX-License-Identifier: MIT */
/* vision - the units of an encoder of images or audio, which come before the
 * units of the language model: patches, a norm, the layers, a norm, and the
 * projector, whose output tokens stand among the text tokens. Some encoders
 * have no norms. What is said of images holds for clips of audio. Pure.
 *
 * Encoders: A. Radford et al., "Learning Transferable Visual Models From
 * Natural Language Supervision", ICML 2021, as H. Liu et al., "Visual
 * Instruction Tuning", NeurIPS 2023, use it; P. Wang et al., "Qwen2-VL", 2024;
 * S. Bai et al., "Qwen2.5-VL Technical Report", 2025. A. Radford et al.,
 * "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, as Y. Chu
 * et al., "Qwen2-Audio Technical Report", 2024, and J. Xu et al., "Qwen2.5-Omni
 * Technical Report", 2025, use it.
 *
 * An encoder has its own number of tokens per image. Its operations,
 * activations and messages are given per token of the language model, and its
 * pairs per attended pair of the language model, with n_images images in a
 * sequence of seq_len tokens. So they add up with the costs of other units.
 *
 * Ranks that divide the tensors or the sequences of the language model divide
 * whole images, and all have the whole encoder. Sizes and operations are of the
 * rank with most images: each of `sharers` ranks has 1 / sharers of the
 * tokens, and it runs pp_vision_rank_images of the images. An encoder may have
 * a mesh of its own, on other ranks or on these. Its `makers`, data-parallel
 * and context-parallel ranks, then divide the images of `lanes` microbatches,
 * and each of these is `tp` ranks, which divide its tensors: heads, columns of
 * MLPs and what is between the products of the projector. Every one of them has
 * all tokens of its images, and all norms, patches and positions. */
#ifndef PP_MODEL_VISION_H
#define PP_MODEL_VISION_H

#include "base/err.h"
#include "base/modality.h"
#include "model/inventory.h"
#include "model/parts.h"
#include "model/precision.h"

/* The patches of an image of 448 x 448 pixels; for encoders of any size. */
enum { PP_USUAL_PATCHES = 1024 };

/* The base of the frequencies of row and column. */
#define PP_VISION_THETA 10000.0

/* Returns the name in config.json's architectures, such as
 * "LlavaForConditionalGeneration". kind is not PP_VISION_NONE. */
const char *pp_vision_name(enum pp_vision_kind kind);

/* Returns the family of an encoder. */
enum pp_architecture pp_vision_architecture(enum pp_vision_kind kind);

/* Number the units of an encoder, from 0 on. The component of a unit is left
 * out. */
size_t pp_vision_n_units(const struct pp_vision *v);
struct pp_unit_id pp_vision_unit(const struct pp_vision *v, size_t index);
size_t pp_vision_index(const struct pp_vision *v, struct pp_unit_id u);

/* Write the name of the unit's module in published files, such as
 * "visual.blocks.3", and its class in transformers. Names of parameters begin
 * with the module's name. m may also be a tower. */
void pp_vision_fqn(const struct pp_model *m, struct pp_unit_id u,
                   char buf[PP_FQN_TEXT]);
void pp_vision_class(const struct pp_model *m, struct pp_unit_id u,
                     char buf[PP_FQN_TEXT]);

/* Returns pp_unit_fwd_flops of such a unit whose products take so many for a
 * row, and whose attention takes so many for a pair of rows. */
struct pp_flops pp_vision_flops(const struct pp_shard *s, struct pp_unit_id u,
                                double products, double pair);

/* Returns the bytes of a block per token of the language model, on the CPU or a
 * GPU (pp_saved_rows). Encoders recompute nothing, but a frozen unit passes
 * tensors through the workspace. */
double pp_vision_saved_bytes(const struct pp_shard *s, struct pp_unit_id u,
                             enum pp_saved_block block,
                             const struct pp_precision *p, bool is_host);

/* Returns the values that the projector reads, likewise. */
double pp_vision_read_width(const struct pp_shard *s, size_t encoder);

/* Returns the values between the two products of a projector, on all ranks. */
size_t pp_vision_middle(const struct pp_model *m, const struct pp_vision *v);

/* Returns an encoder as a model of its own. Its rows are the tokens of images:
 * the class token, then the patches; an image is a sequence. Its vocabulary is
 * the class token, if it has one. pp_vision_shard returns the shard of
 * the tower: all tokens of its images, and a share of heads and of columns of
 * MLPs. The units of the encoder are the tower's, but for the projector, which
 * has the language model's width. */
struct pp_model pp_vision_tower(const struct pp_model *m, size_t encoder);
struct pp_shard pp_vision_shard(const struct pp_shard *s,
                                const struct pp_model *tower, size_t encoder);

/* Reports whether several patches make one feature. The projector then norms
 * them, and its first product is as wide as what it reads. */
static inline bool pp_vision_merges(const struct pp_vision *v)
{
    return v->kind == PP_VISION_QWEN2 || v->kind == PP_VISION_QWEN2_5 ||
           v->kind == PP_VISION_OMNI;
}

/* Returns the patches of a feature if items may have any size, or 0 if all have
 * one size. */
static inline size_t pp_vision_merge_any(const struct pp_vision *v)
{
    return v->fixed_size ? 0 : v->merge;
}

/* Reports whether the encoder takes audio. */
static inline bool pp_vision_hears(const struct pp_vision *v)
{
    return v->kind == PP_VISION_QWEN2_AUDIO || v->kind == PP_VISION_OMNI_AUDIO;
}

/* Returns how many hidden states the projector reads, and how many of them a
 * message behind that unit has beside the unit's own rows. */
static inline size_t pp_vision_states(const struct pp_vision *v)
{
    return v->n_states ? v->n_states : 1;
}
size_t pp_vision_kept(const struct pp_vision *v, struct pp_unit_id behind);

/* Returns how many rows as wide as the language model a feature has: of
 * Qwen3-VL one for each state that the projector reads. */
static inline size_t pp_vision_makes(const struct pp_vision *v)
{
    return v->kind == PP_VISION_PLANNED ? pp_vision_states(v) : 1;
}

/* Returns the values of a feature that the projector reads. */
static inline size_t pp_vision_read(const struct pp_vision *v)
{
    return v->merge * v->hidden * pp_vision_states(v);
}

/* Returns what the encoder takes. */
static inline enum pp_modality pp_vision_modality(const struct pp_vision *v)
{
    return pp_vision_hears(v) ? PP_MODALITY_AUDIO : PP_MODALITY_IMAGES;
}

/* Returns the name of the encoder among the parts of a model. */
static inline const char *pp_vision_part(const struct pp_vision *v)
{
    return pp_vision_hears(v) ? "audio" : "vision";
}

/* Returns the part of the projector. */
enum pp_part_kind pp_vision_projector(const struct pp_vision *v);

/* Returns whether the encoder has RMSNorm, without biases, and not LayerNorm.
 */
bool pp_vision_is_rms(const struct pp_vision *v);

/* Reports whether the projector sorts features by the rank that takes them: an
 * encoder's with a mesh of its own, if ranks divide tokens. */
static inline bool pp_vision_sorts(const struct pp_image_load *l)
{
    return !l->exchangers && l->sharers > 1;
}

/* The images of a set of data. */
struct pp_image_set {
    enum pp_modality modality;
    size_t n, n_patches;
    size_t max_image, max_frames; /* patches and frames of one image */
    size_t token;                 /* the id of placeholders */
    size_t patch_inputs;          /* input values of a patch */
    size_t merge;                 /* patches of a feature */
    bool class_out;               /* each has a feature of a class token, too */
};

/* Fails with PP_EXIT_INPUT if the model cannot take the images: it has no
 * encoder of them, or another one. No images are fine. */
int pp_vision_check_images(const struct pp_model *m,
                           const struct pp_image_set *s,
                           struct pp_err *err) PP_MUST_USE;

/* Returns the images of a sequence, or of one of each lane, on the rank that
 * has most of them. */
size_t pp_vision_rank_images(const struct pp_image_load *l);

/* Returns the features of these images. */
size_t pp_vision_features(const struct pp_shard *s, size_t encoder);

/* Turns a value for each row of the encoder and one for each pair of rows of an
 * image into values for each token and attended pair of the language model, on
 * the rank with most images. */
void pp_vision_scale(const struct pp_shard *s, size_t encoder, double c[2]);

/* Returns the tokens of images, tokens of each, for a token of a rank. */
double pp_vision_rate(const struct pp_image_load *l, size_t tokens);

#endif
