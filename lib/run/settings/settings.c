/* SPDX-License-Identifier: MIT */
#include "run/settings/settings.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

#define OBJECTIVES "sft", "dpo", "grpo", "distill", "reward"
const char *const pp_owner_names[] = {OBJECTIVES, "router", "loss", NULL};
const char *const pp_objective_names[] = {OBJECTIVES, NULL};
const char *const pp_preset_names[] = {"nemo-rl", "trl", "verl", NULL};

static const char *const flags[] = {"false", "true", NULL};
static const char *const preference_losses[] = {"sigmoid", "hinge", "ipo",
                                                "robust", NULL};
static const char *const policy_losses[] = {"ppo", "cispo", NULL};
static const char *const ratios[] = {"token", "sequence", "on-policy", "none",
                                     NULL};
static const char *const importances[] = {
    "none", "tis", "icepop", "sequence-mask", "sequence-product", NULL};
static const char *const kls[] = {"none", "k1", "k2", "k3", NULL};
static const char *const weightings[] = {"none", "score", "generation",
                                         "previous", NULL};
static const char *const aggregates[] = {"token-mean", "seq-mean-sum",
                                         "seq-mean-mean", "constant", NULL};
static const char *const sft_aggregates[] = {"token-mean", "seq-mean-sum",
                                             "seq-mean-mean", NULL};
const char *const pp_router_rule_names[] = {"tokens", "documents", "megatron",
                                            NULL};
static const char *const bias_rules[] = {"megatron", "torchtitan", NULL};

#define AT(member) offsetof(struct pp_settings, member)
#define REAL(member, min, max) AT(member), PP_SETTING_REAL, min, max, NULL
#define WORD(member, words) AT(member), PP_SETTING_WORD, 0, 0, words
#define FLAG(member) AT(member), PP_SETTING_FLAG, 0, 0, flags
#define PRESETS(nemo_rl, trl, verl) \
    {                               \
        nemo_rl, trl, verl          \
    }
#define ALL(x) PRESETS(x, x, x)
#define DPO (1u << PP_OBJECTIVE_DPO)
#define GRPO (1u << PP_OBJECTIVE_GRPO)
#define ROUTER (1u << PP_OWNER_ROUTER)
#define LOSS (1u << PP_OWNER_LOSS)

const struct pp_setting pp_settings_table[] = {
    {"preset", DPO | GRPO, WORD(objective.preset, pp_preset_names),
     ALL("nemo-rl"), "the system whose defaults these are"},
    {"preference-loss", DPO, WORD(objective.preference_loss, preference_losses),
     ALL("sigmoid"), "loss of a pair", "loss_type"},
    {"beta", DPO, REAL(objective.beta, 1e-12, 1e6),
     PRESETS("0.05", "0.1", "0.05"), "factor of rewards",
     "reference_policy_kl_penalty"},
    {"label-smoothing", DPO, REAL(objective.label_smoothing, 0, .5), ALL("0"),
     "share of pairs that are wrong"},
    {"preference-weight", DPO, REAL(objective.preference_weight, 0, 1e6),
     ALL("1"), "factor of the preference loss", "preference_loss_weight"},
    {"sft-weight", DPO, REAL(objective.sft_weight, 0, 1e6), ALL("0"),
     "factor of the chosen ones' own loss", "sft_loss_weight"},
    {"sft-aggregate", DPO, WORD(objective.sft_aggregate, sft_aggregates),
     PRESETS("seq-mean-sum", "token-mean", "seq-mean-sum"),
     "sum of tokens in it", "sft_average_log_probs"},
    {"average-logprobs", DPO, FLAG(objective.average_logprobs), ALL("false"),
     "rewards are means over tokens", "preference_average_log_probs"},
    {"reference-free", DPO, FLAG(objective.reference_free), ALL("false"),
     "no reference"},

    {"policy-loss", GRPO, WORD(objective.policy_loss, policy_losses),
     ALL("ppo"), "loss of a token"},
    {"ratio", GRPO, WORD(objective.ratio, ratios), ALL("token"),
     "ratio to the old policy", "importance_sampling_level"},
    {"clip-low", GRPO, REAL(objective.clip_low, 0, 1e6), ALL("0.2"),
     "how far ratios fall", "ratio_clip_min, epsilon, clip_ratio_low"},
    {"clip-high", GRPO, REAL(objective.clip_high, 0, 1e6), ALL("0.2"),
     "how far ratios rise", "ratio_clip_max, epsilon_high, clip_ratio_high"},
    {"dual-clip", GRPO, REAL(objective.dual_clip, 0, HUGE_VAL),
     PRESETS("none", "none", "3"), "limit for bad tokens",
     "ratio_clip_c, delta, clip_ratio_c"},
    {"importance", GRPO, WORD(objective.importance, importances),
     PRESETS("none", "sequence-product", "none"), "correction for the sampler"},
    {"importance-min", GRPO, REAL(objective.importance_min, 0, 1e300), ALL("0"),
     "least correction"},
    {"importance-max", GRPO, REAL(objective.importance_max, 0, HUGE_VAL),
     PRESETS("none", "3", "none"), "largest correction",
     "vllm_importance_sampling_clip_max"},
    {"kl", GRPO, WORD(objective.kl, kls), PRESETS("k3", "none", "none"),
     "estimate of the divergence", "reference_policy_kl_type, kl_loss_type"},
    {"kl-weight", GRPO, REAL(objective.kl_weight, 0, 1e6),
     PRESETS("0.01", "0", "0.001"), "factor of the divergence",
     "reference_policy_kl_penalty, beta, kl_loss_coef"},
    {"kl-importance", GRPO, WORD(objective.kl_weighting, weightings),
     PRESETS("score", "previous", "none"), "weight of the divergence",
     "use_bias_correction_kl"},
    {"kl-clamp", GRPO, REAL(objective.kl_clamp, 0, HUGE_VAL),
     PRESETS("20", "none", "20"), "limit of its log-ratio"},
    {"kl-limit", GRPO, REAL(objective.kl_limit, 0, HUGE_VAL),
     PRESETS("10", "none", "10"), "limit of the estimate"},
    {"aggregate", GRPO, WORD(objective.aggregate, aggregates),
     ALL("token-mean"), "sum of tokens", "token_level_loss, loss_agg_mode"},
    {"aggregate-length", GRPO, REAL(objective.aggregate_length, 0, 1e12),
     ALL("0"), "tokens of a sequence, for the aggregate constant"},
    {"entropy-weight", GRPO, REAL(objective.entropy_weight, -1e6, 1e6),
     ALL("0"), "factor of the reward of entropy"},

    {"aux", ROUTER, REAL(router.balance, 0, 1e6), ALL("0"),
     "factor of the loss that balances experts",
     "router-aux-loss-coef, moe-aux-loss-coeff"},
    {"z", ROUTER, REAL(router.size, 0, 1e6), ALL("0"),
     "factor of the loss of the size of logits", "moe-z-loss-coeff"},
    {"rule", ROUTER, WORD(router.rule, pp_router_rule_names), ALL("tokens"),
     "parts of a step that these losses are of"},
    {"bias-rate", ROUTER, REAL(router.bias_rate, 0, 1e6), ALL("0"),
     "step of biases by the load of experts", "moe-router-bias-update-rate"},
    {"bias-rule", ROUTER, WORD(router.bias_rule, bias_rules), ALL("megatron"),
     "system whose steps these are"},

    {"mtp", LOSS, REAL(mtp_weight, 0, 1e6), ALL("0.1"),
     "factor of the loss of multi-token prediction", "mtp-loss-scaling-factor"},
    {"generator", LOSS, REAL(generator_weight, 0, 1e6), ALL("1"),
     "factor of the loss of a generator"},
    {NULL},
};

/* Returns whether typed is the name of n bytes. */
static bool is_name(const char *name, size_t n, const char *typed)
{
    size_t i = 0;
    while (i < n &&
           (name[i] == typed[i] ||
            (strchr("-_", name[i]) && typed[i] && strchr("-_", typed[i]))))
        i++;
    return i == n && !typed[n];
}

static bool has_name(const struct pp_setting *k, const char *typed)
{
    bool found = is_name(k->name, strlen(k->name), typed);
    const char *s = k->also ? k->also : "";
    for (size_t n; !found && (n = strcspn(s, ","));
         s += n + strspn(s + n, ", "))
        found = is_name(s, n, typed);
    return found;
}

static const struct pp_setting *find(int owner, const char *name)
{
    const struct pp_setting *k = pp_settings_table;
    while (k->name && !(k->owners >> owner & 1 && has_name(k, name)))
        k++;
    return k->name ? k : NULL;
}

/* Adds a name to a list in buf of room bytes. */
static void append(char *buf, size_t room, const char *between,
                   const char *name)
{
    size_t n = strlen(buf);
    snprintf(buf + n, room - n, "%s%s", n ? between : "", name);
}

static int fail_unknown(int owner, const char *name, struct pp_err *err)
{
    char known[PP_SETTINGS_TEXT] = "";
    for (const struct pp_setting *k = pp_settings_table; k->name; k++)
        if (k->owners >> owner & 1)
            append(known, sizeof known, ", ", k->name);
    return pp_fail(err, PP_EXIT_INPUT, "%s has no setting '%.40s'; it has %s",
                   pp_owner_names[owner], name, *known ? known : "none");
}

static int find_word(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (is_name(words[i], strlen(words[i]), word))
            return i;
    return -1;
}

static int fail_word(const char *word, const char *const *words,
                     struct pp_err *err)
{
    char known[PP_SETTINGS_TEXT] = "";
    for (int i = 0; words[i]; i++)
        append(known, sizeof known, ", ", words[i]);
    return pp_fail(err, PP_EXIT_INPUT, "'%.60s' is not one of: %s", word,
                   known);
}

static bool has_none(const struct pp_setting *k)
{
    return k->words ? find_word("none", k->words) >= 0 : isinf(k->max);
}

static int set(struct pp_settings *s, const struct pp_setting *k,
               const char *value, struct pp_err *err)
{
    void *at = (char *)s + k->at;
    int word = k->words ? find_word(value, k->words) : 0;
    if (word < 0)
        return fail_word(value, k->words, err)
                   ? pp_fail_at(err, "%s: ", k->name)
                   : 0;
    switch (k->type) {
    case PP_SETTING_WORD:
        *(int *)at = word;
        break;
    case PP_SETTING_FLAG:
        *(bool *)at = word;
        break;
    case PP_SETTING_REAL:
        if (!strcmp(value, "none") && has_none(k))
            *(double *)at = HUGE_VAL;
        else
            return pp_parse_real(value, k->name, k->min, fmin(k->max, 1e300),
                                 at, err);
    }
    return 0;
}

static uint64_t bit(const struct pp_setting *k)
{
    return (uint64_t)1 << (k - pp_settings_table);
}

int pp_setting_set(struct pp_settings *s, int owner, const char *name,
                   const char *value, struct pp_err *err)
{
    const struct pp_setting *k = find(owner, name);
    if (!k)
        return fail_unknown(owner, name, err);
    if (!value && !has_none(k))
        return 0;
    s->given |= bit(k);
    return set(s, k, value ? value : "none", err);
}

int pp_settings_objective(struct pp_settings *s, const char *name,
                          struct pp_err *err)
{
    int i = find_word(name, pp_objective_names);
    if (i < 0)
        return fail_word(name, pp_objective_names, err);
    s->objective.number = i;
    return 0;
}

int pp_settings_read(struct pp_settings *s, int owner, const char *text,
                     struct pp_err *err)
{
    for (size_t n; *text; text += n + (text[n] == ',')) {
        char item[128];
        n = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, text);
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        const struct pp_setting *k = find(owner, item);
        if (k && !value && k->type != PP_SETTING_FLAG)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%s' needs a value, such as %s=%s", item, k->name,
                           k->presets[0]);
        if (pp_setting_set(s, owner, item, value ? value : "true", err))
            return -1;
    }
    return 0;
}

bool pp_setting_given(const struct pp_settings *s, int owner, const char *name)
{
    return s->given & bit(find(owner, name));
}

static int check_preference(const struct pp_objective_options *o,
                            struct pp_err *err)
{
    if (o->label_smoothing > 0 && o->preference_loss != PP_PREFER_SIGMOID &&
        o->preference_loss != PP_PREFER_ROBUST)
        return pp_fail(err, PP_EXIT_INPUT,
                       "label-smoothing goes with preference-loss sigmoid or "
                       "robust");
    if (o->label_smoothing >= .5 && o->preference_loss == PP_PREFER_ROBUST)
        return pp_fail(err, PP_EXIT_INPUT,
                       "label-smoothing '%g' must be below 0.5 with "
                       "preference-loss robust",
                       o->label_smoothing);
    return 0;
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

/* Refuses rules of losses and steps that are not there. */
static int check_router(const struct pp_settings *s, struct pp_err *err)
{
    if (pp_setting_given(s, PP_OWNER_ROUTER, "rule") &&
        !pp_router_has_losses(&s->router))
        return pp_fail(err, PP_EXIT_INPUT,
                       "rule has no effect without aux or z");
    if (pp_setting_given(s, PP_OWNER_ROUTER, "bias-rule") &&
        !(s->router.bias_rate > 0))
        return pp_fail(err, PP_EXIT_INPUT,
                       "bias-rule has no effect without bias-rate");
    return 0;
}

static int check(const struct pp_settings *s, int owner, struct pp_err *err)
{
    switch (owner) {
    case PP_OBJECTIVE_DPO:
        return check_preference(&s->objective, err);
    case PP_OBJECTIVE_GRPO:
        return check_policy(&s->objective, err);
    case PP_OWNER_ROUTER:
        return check_router(s, err);
    default:
        return 0;
    }
}

static void take_preset(struct pp_settings *s)
{
    struct pp_err err = {0};
    for (const struct pp_setting *k = pp_settings_table; k->name; k++)
        if (!(s->given & bit(k)) &&
            set(s, k, k->presets[s->objective.preset], &err))
            assert(!"a default is a value");
}

void pp_settings_init(struct pp_settings *s)
{
    memset(s, 0, sizeof *s);
    take_preset(s);
}

int pp_settings_complete(struct pp_settings *s, struct pp_err *err)
{
    const int owners[] = {s->objective.number, PP_OWNER_ROUTER, PP_OWNER_LOSS};
    take_preset(s);
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        if (check(s, owners[i], err))
            return pp_fail_at(
                err, "%s%s: ", owners[i] < PP_N_OBJECTIVES ? "objective " : "",
                pp_owner_names[owners[i]]);
    return 0;
}

static void format_value(const struct pp_settings *s,
                         const struct pp_setting *k, char buf[32])
{
    const void *at = (const char *)s + k->at;
    switch (k->type) {
    case PP_SETTING_WORD:
        snprintf(buf, 32, "%s", k->words[*(const int *)at]);
        break;
    case PP_SETTING_FLAG:
        snprintf(buf, 32, "%s", k->words[*(const bool *)at]);
        break;
    case PP_SETTING_REAL:
        if (isinf(*(const double *)at))
            strcpy(buf, "none");
        else
            pp_format_real(*(const double *)at, buf);
    }
}

void pp_settings_format(const struct pp_settings *s, int owner,
                        char text[PP_SETTINGS_TEXT])
{
    char value[32];
    *text = '\0';
    for (const struct pp_setting *k = pp_settings_table; k->name; k++)
        if (k->owners >> owner & 1) {
            format_value(s, k, value);
            append(text, PP_SETTINGS_TEXT, ",", k->name);
            append(text, PP_SETTINGS_TEXT, "=", value);
        }
}

void pp_settings_write(const struct pp_settings *s,
                       char text[PP_SETTINGS_LINES])
{
    const int owners[] = {s->objective.number, PP_OWNER_ROUTER, PP_OWNER_LOSS};
    char values[PP_SETTINGS_TEXT];
    *text = '\0';
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        pp_settings_format(s, owners[i], values);
        append(text, PP_SETTINGS_LINES, "", pp_owner_names[owners[i]]);
        append(text, PP_SETTINGS_LINES, " ", values);
        append(text, PP_SETTINGS_LINES, "", "\n");
    }
}

static int read_lines(struct pp_settings *s, const char *text,
                      struct pp_err *err)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        char line[2 * PP_SETTINGS_TEXT];
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        char *values = line + strcspn(line, " ");
        if (*values)
            *values++ = '\0';
        int owner = find_word(line, pp_owner_names);
        if (owner < 0)
            return fail_word(line, pp_owner_names, err);
        if (owner < PP_N_OBJECTIVES)
            s->objective.number = owner;
        if (pp_settings_read(s, owner, values, err))
            return -1;
    }
    return 0;
}

int pp_settings_compare(const struct pp_settings *s, const char *text,
                        char other[PP_SETTINGS_LINES], struct pp_err *err)
{
    struct pp_settings was;
    pp_settings_init(&was);
    if (read_lines(&was, text, err))
        return -1;
    int objective = was.objective.number;
    unsigned owners = ROUTER | LOSS;
    *other = '\0';
    if (objective == s->objective.number) {
        owners |= 1u << objective;
    } else {
        append(other, PP_SETTINGS_LINES, "", "objective ");
        append(other, PP_SETTINGS_LINES, "", pp_owner_names[objective]);
    }
    for (const struct pp_setting *k = pp_settings_table; k->name; k++) {
        char then[32], now[32];
        format_value(&was, k, then);
        format_value(s, k, now);
        if (k->owners & owners && strcmp(then, now) != 0) {
            append(other, PP_SETTINGS_LINES, ", ", k->name);
            append(other, PP_SETTINGS_LINES, "=", then);
        }
    }
    return 0;
}
