/* SPDX-License-Identifier: MIT */
/* config_values - getters in the manner of config.json, where null is the same
 * as absent and numbers are positive. Private to lib/manifest. */
#ifndef PP_MANIFEST_CONFIG_VALUES_H
#define PP_MANIFEST_CONFIG_VALUES_H

#include "manifest/json.h"
#include "model/model.h"

/* A member that is there and not null. */
bool pp_config_find_set(const struct pp_value *object, const char *key,
                        struct pp_value *out);

/* A size from 1 to max; opt_size leaves *out alone when it is not set. */
int pp_config_get_size(const struct pp_value *object, const char *key,
                       int64_t max, size_t *out) PP_MUST_USE;
int pp_config_opt_size(const struct pp_value *object, const char *key,
                       size_t *out) PP_MUST_USE;

int pp_config_opt_bool(const struct pp_value *object, const char *key,
                       bool *out) PP_MUST_USE;

/* A real above 0 and up to max. */
int pp_config_get_positive(const struct pp_value *object, const char *key,
                           double max, double *out) PP_MUST_USE;
int pp_config_opt_positive(const struct pp_value *object, const char *key,
                           double max, double *out) PP_MUST_USE;

/* The place of text, the value at, in words, which end with NULL; -1 with a
 * message that lists them where it is none of them. */
int pp_config_word(const struct pp_value *at, const char *text,
                   const char *const *words);

/* A key that, where it is set, may only have one value. */
int pp_config_only_text(const struct pp_value *object, const char *key,
                        const char *wanted) PP_MUST_USE;
int pp_config_only_number(const struct pp_value *object, const char *key,
                          double wanted) PP_MUST_USE;

/* The rotary embedding, from rope_theta and rope_scaling or rope_parameters.
 * m->max_position has been read. */
int pp_config_read_rope(const struct pp_value *root,
                        struct pp_model *m) PP_MUST_USE;

/* Of the architectures that are only planned. Experts and windows; other sizes
 * have been read. */
int pp_config_read_moe(const struct pp_value *root,
                       struct pp_model *m) PP_MUST_USE;

/* Sizes of latent attention; n_heads has been read. */
int pp_config_read_mla(const struct pp_value *root,
                       struct pp_model *m) PP_MUST_USE;

/* Whether the model is an encoder of images and a language model, and of which
 * kind. */
bool pp_config_has_vision(const struct pp_value *root,
                          enum pp_vision_kind *kind);

/* The model_type of a kind: "llava". */
const char *pp_config_vision_type(enum pp_vision_kind kind);

/* Reads both; m->vision.kind is set. Workloads are one image in a sequence
 * until somebody says more. */
int pp_config_read_vision(const struct pp_value *root,
                          struct pp_model *m) PP_MUST_USE;

/* A language model: its architecture, sizes and biases, and nothing that only
 * matters when it runs. */
int pp_config_read_language(const struct pp_value *root,
                            struct pp_model *m) PP_MUST_USE;

/* All sizes of GPT-2, under names of their own. */
int pp_config_read_gpt2(const struct pp_value *root,
                        struct pp_model *m) PP_MUST_USE;

#endif
