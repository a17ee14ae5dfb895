/* SPDX-License-Identifier: MIT */
/* objective_options - the options of objectives as a table: their names, ranges
 * and words, and the presets. */
#include <math.h>
#include <string.h>

#include "run/objectives/objective.h"

const char *const pp_objective_names[] = {"sft",     "dpo",    "grpo",
                                          "distill", "reward", NULL};
const char *const pp_objective_presets[] = {"nemo-rl", "trl", "verl", NULL};
const char *const pp_preference_losses[] = {"sigmoid", "hinge", "ipo", "robust",
                                            NULL};
const char *const pp_sft_aggregates[] = {"token-mean", "seq-mean-sum",
                                         "seq-mean-mean", NULL};
const char *const pp_policy_losses[] = {"ppo", "cispo", NULL};
const char *const pp_policy_ratios[] = {"token", "sequence", "on-policy",
                                        "none", NULL};
const char *const pp_importances[] = {
    "none", "tis", "icepop", "sequence-mask", "sequence-product", NULL};
const char *const pp_kls[] = {"none", "k1", "k2", "k3", NULL};
const char *const pp_kl_weightings[] = {"none", "score", "generation",
                                        "previous", NULL};
const char *const pp_aggregates[] = {"token-mean", "seq-mean-sum",
                                     "seq-mean-mean", "constant", NULL};

enum { N_PRESETS = 3, ANY = -1 };
enum type { REAL, WORD, FLAG };

static const struct option {
    const char *name;
    size_t at;
    enum type type;
    int objective; /* that reads it, or ANY */
    const char *const *words;
    double min, max;
    double presets[N_PRESETS]; /* in the order of their names */
} options[] = {
#define AT(member) offsetof(struct pp_objective_options, member)
#define ALL(x)  \
    {           \
        x, x, x \
    }
    {"objective", AT(number), WORD, ANY, pp_objective_names, 0, 0, ALL(0)},
    {"objective-preset", AT(preset), WORD, ANY, pp_objective_presets, 0, 0,
     ALL(0)},
    {"preference-loss", AT(preference_loss), WORD, PP_OBJECTIVE_DPO,
     pp_preference_losses, 0, 0, ALL(0)},
    {"beta",
     AT(beta),
     REAL,
     PP_OBJECTIVE_DPO,
     NULL,
     1e-12,
     1e6,
     {.05, .1, .05}},
    {"label-smoothing", AT(label_smoothing), REAL, PP_OBJECTIVE_DPO, NULL, 0,
     .5, ALL(0)},
    {"preference-weight", AT(preference_weight), REAL, PP_OBJECTIVE_DPO, NULL,
     0, 1e6, ALL(1)},
    {"sft-weight", AT(sft_weight), REAL, PP_OBJECTIVE_DPO, NULL, 0, 1e6,
     ALL(0)},
    {"average-logprobs", AT(average_logprobs), FLAG, PP_OBJECTIVE_DPO, NULL, 0,
     1, ALL(0)},
    {"sft-aggregate",
     AT(sft_aggregate),
     WORD,
     PP_OBJECTIVE_DPO,
     pp_sft_aggregates,
     0,
     0,
     {PP_SEQ_MEAN_SUM, PP_TOKEN_MEAN, PP_SEQ_MEAN_SUM}},
    {"reference-free", AT(reference_free), FLAG, PP_OBJECTIVE_DPO, NULL, 0, 1,
     ALL(0)},
    {"policy-loss", AT(policy_loss), WORD, PP_OBJECTIVE_GRPO, pp_policy_losses,
     0, 0, ALL(PP_POLICY_PPO)},
    {"ratio", AT(ratio), WORD, PP_OBJECTIVE_GRPO, pp_policy_ratios, 0, 0,
     ALL(PP_RATIO_TOKEN)},
    {"clip-low", AT(clip_low), REAL, PP_OBJECTIVE_GRPO, NULL, 0, 1e6, ALL(.2)},
    {"clip-high", AT(clip_high), REAL, PP_OBJECTIVE_GRPO, NULL, 0, 1e6,
     ALL(.2)},
    {"dual-clip",
     AT(dual_clip),
     REAL,
     PP_OBJECTIVE_GRPO,
     NULL,
     0,
     HUGE_VAL,
     {HUGE_VAL, HUGE_VAL, 3}},
    {"importance",
     AT(importance),
     WORD,
     PP_OBJECTIVE_GRPO,
     pp_importances,
     0,
     0,
     {PP_IMPORTANCE_NONE, PP_IMPORTANCE_SEQUENCE_PRODUCT, PP_IMPORTANCE_NONE}},
    {"importance-min", AT(importance_min), REAL, PP_OBJECTIVE_GRPO, NULL, 0,
     1e300, ALL(0)},
    {"importance-max",
     AT(importance_max),
     REAL,
     PP_OBJECTIVE_GRPO,
     NULL,
     0,
     HUGE_VAL,
     {HUGE_VAL, 3, HUGE_VAL}},
    {"kl",
     AT(kl),
     WORD,
     PP_OBJECTIVE_GRPO,
     pp_kls,
     0,
     0,
     {PP_KL_K3, PP_KL_NONE, PP_KL_NONE}},
    {"kl-weight",
     AT(kl_weight),
     REAL,
     PP_OBJECTIVE_GRPO,
     NULL,
     0,
     1e6,
     {.01, 0, .001}},
    {"kl-importance",
     AT(kl_weighting),
     WORD,
     PP_OBJECTIVE_GRPO,
     pp_kl_weightings,
     0,
     0,
     {PP_KL_SCORE, PP_KL_PREVIOUS, PP_KL_UNWEIGHTED}},
    {"kl-clamp",
     AT(kl_clamp),
     REAL,
     PP_OBJECTIVE_GRPO,
     NULL,
     0,
     HUGE_VAL,
     {20, HUGE_VAL, 20}},
    {"kl-limit",
     AT(kl_limit),
     REAL,
     PP_OBJECTIVE_GRPO,
     NULL,
     0,
     HUGE_VAL,
     {10, HUGE_VAL, 10}},
    {"aggregate", AT(aggregate), WORD, PP_OBJECTIVE_GRPO, pp_aggregates, 0, 0,
     ALL(PP_TOKEN_MEAN)},
    {"aggregate-length", AT(aggregate_length), REAL, PP_OBJECTIVE_GRPO, NULL, 0,
     1e12, ALL(0)},
    {"entropy-weight", AT(entropy_weight), REAL, PP_OBJECTIVE_GRPO, NULL, -1e6,
     1e6, ALL(0)},
};
#define N_OPTIONS (sizeof options / sizeof *options)

static int *word_at(struct pp_objective_options *o, const struct option *k)
{
    return (int *)((char *)o + k->at);
}

static double *real_at(struct pp_objective_options *o, const struct option *k)
{
    return (double *)((char *)o + k->at);
}

static bool *flag_at(struct pp_objective_options *o, const struct option *k)
{
    return (bool *)((char *)o + k->at);
}

void pp_objective_unset(struct pp_objective_options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].type == REAL)
            *real_at(o, &options[i]) = NAN;
        else if (options[i].type == WORD)
            *word_at(o, &options[i]) = -1;
}

static bool is_set(struct pp_objective_options *o, const struct option *k)
{
    return k->type == REAL   ? !isnan(*real_at(o, k))
           : k->type == WORD ? *word_at(o, k) >= 0
                             : *flag_at(o, k);
}

static bool is_name(const char *name, const char *typed)
{
    for (; *name && (*name == *typed || (*name == '-' && *typed == '_'));
         name++)
        typed++;
    return !*name && !*typed;
}

/* Sets a limit to none. Returns false if the option is none. */
static bool set_no_limit(struct pp_objective_options *o, const struct option *k)
{
    if (k->type != REAL || !isinf(k->max))
        return false;
    *real_at(o, k) = HUGE_VAL;
    return true;
}

static const struct option *find(const char *name, struct pp_err *err)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (is_name(options[i].name, name))
            return &options[i];
    pp_fail(err, PP_EXIT_INPUT, "'%s' is no option of an objective", name);
    return NULL;
}

int pp_objective_set_number(struct pp_objective_options *o, const char *name,
                            double x, struct pp_err *err)
{
    const struct option *k = find(name, err);
    if (!k)
        return -1;
    if (k->type == WORD)
        return pp_fail(err, PP_EXIT_INPUT, "'%s' must be a word", name);
    if (isinf(k->max) && !(x >= k->min))
        return pp_fail(err, PP_EXIT_INPUT, "'%s': '%g' must be at least %g",
                       name, x, k->min);
    if (!(x >= k->min && x <= k->max) || (k->type == FLAG && x != 0 && x != 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s': '%g' must be between %g and %g", name, x, k->min,
                       k->max);
    if (k->type == FLAG)
        *flag_at(o, k) = x != 0;
    else
        *real_at(o, k) = x;
    return 0;
}

int pp_objective_set_word(struct pp_objective_options *o, const char *name,
                          const char *word, struct pp_err *err)
{
    const struct option *k = find(name, err);
    if (!k)
        return -1;
    for (int i = 0; k->type == WORD && k->words[i]; i++)
        if (is_name(k->words[i], word)) {
            *word_at(o, k) = i;
            return 0;
        }
    if (!strcmp(word, "none") && set_no_limit(o, k))
        return 0;
    return pp_fail(err, PP_EXIT_INPUT, "'%s': '%s' is not one of its values",
                   name, word);
}

int pp_objective_set_none(struct pp_objective_options *o, const char *name,
                          struct pp_err *err)
{
    const struct option *k = find(name, err);
    if (!k)
        return -1;
    for (int i = 0; k->type == WORD && k->words[i]; i++)
        if (!strcmp(k->words[i], "none"))
            *word_at(o, k) = i;
    (void)set_no_limit(o, k);
    return 0;
}

const char *pp_objective_useless(const struct pp_objective_options *o)
{
    struct pp_objective_options copy = *o;
    int number = o->number < 0 ? PP_OBJECTIVE_SFT : o->number;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].objective != ANY && options[i].objective != number &&
            is_set(&copy, &options[i]))
            return options[i].name;
    return NULL;
}

static int check_policy(const struct pp_objective_options *o,
                        struct pp_err *err)
{
    if (o->policy_loss == PP_POLICY_CISPO &&
        (o->ratio != PP_RATIO_TOKEN ||
         (o->dual_clip > 0 && !isinf(o->dual_clip))))
        return pp_fail(err, PP_EXIT_INPUT,
                       "policy-loss cispo takes token ratios and no dual-clip");
    if (o->dual_clip > 0 && o->dual_clip <= 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "dual-clip '%g' must be above 1, or none", o->dual_clip);
    if (o->importance_min > o->importance_max)
        return pp_fail(err, PP_EXIT_INPUT,
                       "importance-min '%g' is above importance-max '%g'",
                       o->importance_min, o->importance_max);
    if ((o->aggregate == PP_CONSTANT_MEAN) != (o->aggregate_length > 0))
        return pp_fail(err, PP_EXIT_INPUT,
                       "aggregate constant and aggregate-length, the tokens "
                       "that a sequence counts as, belong together");
    return 0;
}

int pp_objective_resolve(struct pp_objective_options *o, struct pp_err *err)
{
    int preset = o->preset < 0 ? 0 : o->preset;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *k = &options[i];
        if (is_set(o, k) || k->type == FLAG)
            continue;
        if (k->type == REAL)
            *real_at(o, k) = k->presets[preset];
        else
            *word_at(o, k) = (int)k->presets[preset];
    }
    if (o->number == PP_OBJECTIVE_GRPO)
        return check_policy(o, err);
    if (o->number == PP_OBJECTIVE_DPO && o->label_smoothing > 0 &&
        o->preference_loss != PP_PREFER_SIGMOID &&
        o->preference_loss != PP_PREFER_ROBUST)
        return pp_fail(err, PP_EXIT_INPUT,
                       "label-smoothing goes with preference-loss sigmoid or "
                       "robust");
    if (o->number == PP_OBJECTIVE_DPO && o->label_smoothing >= .5 &&
        o->preference_loss == PP_PREFER_ROBUST)
        return pp_fail(err, PP_EXIT_INPUT,
                       "label-smoothing '%g' must be below 0.5 with "
                       "preference-loss robust",
                       o->label_smoothing);
    return 0;
}
