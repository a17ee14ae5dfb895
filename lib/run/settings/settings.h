/* SPDX-License-Identifier: MIT */
/* settings - the settings of objectives, routers and other losses as one table.
 * Pure. pp-objectives(7) and pp-models(7) have their meaning.
 *
 * The command line and the lines of --objective-cases are read with the table,
 * and help, the presets, and what -v prints are made from it. */
#ifndef PP_RUN_SETTINGS_SETTINGS_H
#define PP_RUN_SETTINGS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pp_objective_number {
    PP_OBJECTIVE_SFT,
    PP_OBJECTIVE_DPO,
    PP_OBJECTIVE_GRPO,
    PP_OBJECTIVE_DISTILL,
    PP_OBJECTIVE_REWARD,
    PP_N_OBJECTIVES
};

/* The owners of settings: the objectives, and two more. */
enum { PP_OWNER_ROUTER = PP_N_OBJECTIVES, PP_OWNER_LOSS, PP_N_OWNERS };
extern const char *const pp_owner_names[PP_N_OWNERS + 1];

/* The first owners; NULL ends the list. */
extern const char *const pp_objective_names[PP_N_OBJECTIVES + 1];

enum pp_preference_loss {
    PP_PREFER_SIGMOID,
    PP_PREFER_HINGE,
    PP_PREFER_IPO,
    PP_PREFER_ROBUST
};
enum pp_policy_loss { PP_POLICY_PPO, PP_POLICY_CISPO };
enum pp_policy_ratio {
    PP_RATIO_TOKEN,
    PP_RATIO_SEQUENCE,
    PP_RATIO_ON_POLICY,
    PP_RATIO_NONE
};
enum pp_importance {
    PP_IMPORTANCE_NONE,
    PP_IMPORTANCE_TIS,
    PP_IMPORTANCE_ICEPOP,
    PP_IMPORTANCE_SEQUENCE_MASK,
    PP_IMPORTANCE_SEQUENCE_PRODUCT
};
enum pp_kl { PP_KL_NONE, PP_KL_K1, PP_KL_K2, PP_KL_K3 };
enum pp_kl_weighting {
    PP_KL_UNWEIGHTED,
    PP_KL_SCORE,
    PP_KL_GENERATION,
    PP_KL_PREVIOUS
};
enum pp_aggregate {
    PP_TOKEN_MEAN,
    PP_SEQ_MEAN_SUM,
    PP_SEQ_MEAN_MEAN,
    PP_CONSTANT_MEAN
};

struct pp_objective_options {
    int number; /* enum pp_objective_number */
    int preset;

    /* dpo */
    double beta, label_smoothing, preference_weight, sft_weight;
    int preference_loss; /* enum pp_preference_loss */
    int sft_aggregate;   /* enum pp_aggregate, without CONSTANT */
    bool average_logprobs, reference_free;

    /* grpo */
    int policy_loss, ratio, importance, kl, kl_weighting, aggregate;
    double clip_low, clip_high;
    double dual_clip; /* HUGE_VAL or 0: none */
    double importance_min, importance_max;
    double kl_weight;
    double kl_clamp, kl_limit; /* of the log-ratio, and of the estimate */
    double aggregate_length;
    double entropy_weight;
};

/* The parts of a step that losses of routers are of, and their weights. */
enum pp_router_rule {
    PP_ROUTER_TOKENS,
    PP_ROUTER_DOCUMENTS,
    PP_ROUTER_MEGATRON
};
extern const char *const pp_router_rule_names[]; /* ends with NULL */

/* The step of a router's bias: the rate times the sign of the mean load minus
 * that of the expert. TORCHTITAN's steps are then moved to the mean 0. */
enum pp_bias_rule { PP_BIAS_MEGATRON, PP_BIAS_TORCHTITAN };

struct pp_router_options {
    double balance, size; /* coefficients of losses; 0: without the loss */
    int rule;             /* enum pp_router_rule */
    double bias_rate;     /* 0: biases stay */
    int bias_rule;        /* enum pp_bias_rule */
};
static inline bool pp_router_has_losses(const struct pp_router_options *o)
{
    return o->balance > 0 || o->size > 0;
}

struct pp_settings {
    struct pp_objective_options objective;
    struct pp_router_options router;
    double mtp_weight, generator_weight; /* of these losses */
    uint64_t given;                      /* rows of the table, as bits */
};

enum pp_setting_type { PP_SETTING_REAL, PP_SETTING_WORD, PP_SETTING_FLAG };
enum { PP_N_PRESETS = 3 };
extern const char *const pp_preset_names[PP_N_PRESETS + 1];

struct pp_setting {
    const char *name; /* NULL ends the table */
    unsigned owners;  /* as bits */
    size_t at;        /* of a double, an int or a bool in struct pp_settings */
    enum pp_setting_type type;
    double min, max; /* without a largest value, HUGE_VAL, "none" is a value */
    const char *const *words;          /* which NULL ends; of a flag, too */
    const char *presets[PP_N_PRESETS]; /* the values that are not given */
    const char *help;
    const char *also; /* names in other systems, or NULL. Values may differ */
};
extern const struct pp_setting pp_settings_table[];

/* Sets the objective sft and all defaults. */
void pp_settings_init(struct pp_settings *s);

/* Sets the objective by its name. */
int pp_settings_objective(struct pp_settings *s, const char *name,
                          struct pp_err *err) PP_MUST_USE;

/* Sets one setting of an owner. Hyphens and underscores are alike. The value
 * NULL is "none", or changes nothing if that is not a value. Fails with
 * PP_EXIT_INPUT, and names all settings of the owner if the name is wrong. */
int pp_setting_set(struct pp_settings *s, int owner, const char *name,
                   const char *value, struct pp_err *err) PP_MUST_USE;

/* Sets what a text "NAME=VALUE,..." has, with a flag's name alone for true. */
int pp_settings_read(struct pp_settings *s, int owner, const char *text,
                     struct pp_err *err) PP_MUST_USE;

/* Gives every setting that was not set the value of the preset, and refuses
 * combinations that make no sense. */
int pp_settings_complete(struct pp_settings *s, struct pp_err *err) PP_MUST_USE;

/* Returns whether a setting of that name was set. */
bool pp_setting_given(const struct pp_settings *s, int owner, const char *name);

/* Writes all settings of an owner as pp_settings_read takes them. */
enum { PP_SETTINGS_TEXT = 512 };
void pp_settings_format(const struct pp_settings *s, int owner,
                        char text[PP_SETTINGS_TEXT]);

/* Writes the settings of a run: a line "OWNER NAME=VALUE,..." for its
 * objective, for routers, and for other losses. */
enum { PP_SETTINGS_LINES = 3 * PP_SETTINGS_TEXT };
void pp_settings_write(const struct pp_settings *s,
                       char text[PP_SETTINGS_LINES]);

/* Reads such a text and lists which of its settings s has otherwise, as
 * "objective sft, aux=0.1", or "". Fails with PP_EXIT_INPUT. */
int pp_settings_compare(const struct pp_settings *s, const char *text,
                        char other[PP_SETTINGS_LINES],
                        struct pp_err *err) PP_MUST_USE;

#endif
