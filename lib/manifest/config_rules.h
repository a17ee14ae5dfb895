/* SPDX-License-Identifier: MIT */
/* config_rules - the values of a configuration that are refused, because the
 * model code would not compute what transformers does. One table has them all:
 * reading a config.json walks it, and ppsplit prints it. */
#ifndef PP_MANIFEST_CONFIG_RULES_H
#define PP_MANIFEST_CONFIG_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

/* The object that has a key. */
enum pp_config_place {
    PP_IN_MODEL,        /* that of the language model */
    PP_IN_ROPE,         /* its rope_parameters, or rope_scaling */
    PP_IN_MROPE,        /* the same behind an encoder whose positions have
                           several axes */
    PP_IN_QUANTIZATION, /* quantization_config */
    PP_IN_WHOLE,        /* that of a model with an encoder */
    PP_IN_ENCODER,      /* vision_config or audio_config */
    PP_IN_ENCODER_ROPE  /* its rope_parameters */
};

enum pp_config_form { PP_WORD, PP_NUMBER, PP_TRUE, PP_FALSE, PP_NULL };

/* The values that a key may have. A key that is not set is never refused, and
 * of a list every item counts. */
struct pp_config_rule {
    uint64_t families; /* a bit for each enum pp_architecture */
    enum pp_config_place place;
    const char *key;
    enum pp_config_form form;
    const char *const *words; /* NULL ends them */
    double number;
    const char *old;    /* an older name of the key, or NULL */
    const char *unless; /* the rule holds unless this key is 0; or NULL */
    const char *advice; /* ends the message; or NULL */
};

/* A rule without a key ends them. */
extern const struct pp_config_rule pp_config_rules[];

/* Lists that readers share with the rules. */
extern const char *const pp_gelu_words[], *const pp_rope_words[],
                                              *const pp_longrope_words[];

/* Writes what a rule accepts: "silu", "0", "greedy or group_limited_greedy". */
#define PP_ACCEPTED_TEXT 160
void pp_config_accepted(const struct pp_config_rule *r,
                        char text[PP_ACCEPTED_TEXT]);

/* Writes the key with its object: "rope_parameters.rope_type". */
#define PP_RULE_KEY_TEXT 80
void pp_config_rule_key(const struct pp_config_rule *r,
                        char text[PP_RULE_KEY_TEXT]);

/* A model that is known: its names in a config.json, and its families. */
struct pp_config_model {
    const char *model_type, *architecture;
    uint64_t families;
};

/* Returns false if there are not so many models. */
bool pp_config_model(size_t i, struct pp_config_model *out);

#endif
