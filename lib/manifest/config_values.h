/* SPDX-License-Identifier: MIT */
/* config_values - getters for config.json: null is the same as absent, and
 * numbers are positive. Private to lib/manifest. */
#ifndef PP_MANIFEST_CONFIG_VALUES_H
#define PP_MANIFEST_CONFIG_VALUES_H

#include "manifest/config_rules.h"
#include "manifest/json.h"
#include "model/model.h"

/* Returns true if the member is present and not null. */
bool pp_config_find_set(const struct pp_value *object, const char *key,
                        struct pp_value *out);

/* Reads a size from 1 to max. opt_size leaves *out alone if the key is not
 * set. */
int pp_config_get_size(const struct pp_value *object, const char *key,
                       int64_t max, size_t *out) PP_MUST_USE;
int pp_config_opt_size(const struct pp_value *object, const char *key,
                       size_t *out) PP_MUST_USE;

int pp_config_opt_bool(const struct pp_value *object, const char *key,
                       bool *out) PP_MUST_USE;

/* Reads a real above 0 and up to max. */
int pp_config_get_positive(const struct pp_value *object, const char *key,
                           double max, double *out) PP_MUST_USE;
int pp_config_opt_positive(const struct pp_value *object, const char *key,
                           double max, double *out) PP_MUST_USE;

/* Sets m->dropout to the first key of a language model or an encoder by which
 * it asks for dropout. m->architecture is set. */
int pp_config_read_dropout(const struct pp_value *object,
                           struct pp_model *m) PP_MUST_USE;

/* Returns the index of text in words, a list that NULL ends. If words does not
 * hold it, returns -1 with a message that lists them. at is text's place. */
int pp_config_word(const struct pp_value *at, const char *text,
                   const char *const *words);

/* Fails if the key is set to another word. */
int pp_config_only_text(const struct pp_value *object, const char *key,
                        const char *wanted) PP_MUST_USE;

/* Fails if a value of an object is one that the rules refuse. */
int pp_config_check(const struct pp_value *object, enum pp_architecture family,
                    enum pp_config_place place) PP_MUST_USE;

/* Reads the rotary embedding from rope_theta and rope_scaling or from
 * rope_parameters. m->max_position and the default of theta are set. */
int pp_config_read_rope(const struct pp_value *root,
                        struct pp_model *m) PP_MUST_USE;

/* Reads one for the layers with a window, and one for the others. */
int pp_config_read_two_ropes(const struct pp_value *root,
                             struct pp_model *m) PP_MUST_USE;

/* Reads how many frequencies each axis rotates (M-RoPE), after the rotary
 * embedding. */
int pp_config_read_axes(const struct pp_value *root,
                        struct pp_model *m) PP_MUST_USE;

/* Finds the configuration of the thinker in that of a whole Qwen2.5-Omni. */
bool pp_config_find_thinker(const struct pp_value *root,
                            struct pp_value *thinker);

/* Returns true, with the kind of the first one, if the model has encoders and a
 * language model. */
bool pp_config_has_vision(const struct pp_value *root,
                          enum pp_vision_kind *kind);

/* Returns our name of the type of the weights, or NULL. float16 counts as bf16,
 * which takes as many bytes. */
const char *pp_config_dtype(const struct pp_value *root);

/* Returns the model_type of a kind, such as "llava". */
const char *pp_config_vision_type(enum pp_vision_kind kind);

/* Reads the encoders and the language model. m->encoders[0].kind is set. The
 * workload of each is one image in a sequence, which the caller may change. */
int pp_config_read_vision(const struct pp_value *root,
                          struct pp_model *m) PP_MUST_USE;

/* Reads an encoder of m, whose kind is set. The language model is read. */
int pp_config_read_encoder(const struct pp_value *root, struct pp_model *m,
                           struct pp_vision *v) PP_MUST_USE;

/* Reads what a plan does not need but a run does: rotary positions, dropout. */
int pp_config_read_details(const struct pp_value *root,
                           struct pp_model *m) PP_MUST_USE;

/* Reads a language model from the definitions of its family (model/parts.h) and
 * of all: everything but the rotary embedding, for which m->rope and
 * m->windowed_rope get the defaults of theta. */
int pp_config_read_family(const struct pp_value *root,
                          struct pp_model *m) PP_MUST_USE;

/* Fails if formulas divided by a key that is 0, since f->bad was cleared. */
struct pp_formulas;
int pp_config_check_divisors(const struct pp_formulas *f) PP_MUST_USE;

/* Definitions of formula.h that all families share. */
extern const char pp_config_definitions[];

/* Reads a language model for planning: its architecture, sizes and biases. */
int pp_config_read_language(const struct pp_value *root,
                            struct pp_model *m) PP_MUST_USE;

#endif
