/* SPDX-License-Identifier: MIT */
/* test_settings - the table of settings: how they are read, their presets, and
 * that pp-objectives(7) lists them all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/settings/settings.h"
#include "tap.h"

/* Reads settings of an owner, and completes them. */
static int take(struct pp_settings *s, int owner, const char *text,
                struct pp_err *err)
{
    pp_settings_init(s);
    *err = (struct pp_err){0};
    if (owner < PP_N_OBJECTIVES)
        s->objective.number = owner;
    return pp_settings_read(s, owner, text, err) ||
           pp_settings_complete(s, err);
}

static void is_refused(int owner, const char *text, const char *why)
{
    struct pp_settings s;
    struct pp_err err;
    ok(take(&s, owner, text, &err) && err.code == PP_EXIT_INPUT &&
           strstr(err.text, why),
       "%s: %s", text, err.text);
}

static void presets(void)
{
    struct pp_settings s;
    struct pp_err err;
    ok(!take(&s, PP_OBJECTIVE_GRPO, "", &err), "defaults go together");
    ok(s.objective.kl == PP_KL_K3 && s.objective.kl_weight == .01 &&
           isinf(s.objective.dual_clip) && s.router.balance == 0 &&
           s.mtp_weight == .1 && s.generator_weight == 1,
       "without a preset, NeMo-RL's");
    ok(!take(&s, PP_OBJECTIVE_GRPO, "kl=k2,preset=verl", &err), "a preset");
    ok(s.objective.kl == PP_KL_K2 && s.objective.kl_weight == .001 &&
           s.objective.dual_clip == 3,
       "a preset changes what is not given");
    ok(!take(&s, PP_OBJECTIVE_DPO, "preset=trl", &err) &&
           s.objective.beta == .1 && s.objective.sft_aggregate == PP_TOKEN_MEAN,
       "TRL's of dpo");
}

static void names(void)
{
    struct pp_settings s;
    struct pp_err err;
    ok(!take(&s, PP_OBJECTIVE_GRPO,
             "epsilon=.1,ratio-clip-max=.3,reference_policy_kl_penalty=.7,"
             "delta=none",
             &err) &&
           s.objective.clip_low == .1 && s.objective.clip_high == .3 &&
           s.objective.kl_weight == .7 && isinf(s.objective.dual_clip),
       "names of other systems: %s", err.text);
    ok(!take(&s, PP_OBJECTIVE_DPO, "reference_policy_kl_penalty=.7", &err) &&
           s.objective.beta == .7,
       "a name of two settings is that of the objective");
    ok(!take(&s, PP_OBJECTIVE_DPO, "average-logprobs,reference-free=false",
             &err) &&
           s.objective.average_logprobs && !s.objective.reference_free,
       "flags");
    ok(pp_setting_given(&s, PP_OBJECTIVE_DPO, "average-logprobs") &&
           !pp_setting_given(&s, PP_OBJECTIVE_DPO, "beta"),
       "what was given");
    ok(!take(&s, PP_OWNER_ROUTER, "moe_aux_loss_coeff=2,rule=documents",
             &err) &&
           s.router.balance == 2 && s.router.rule == PP_ROUTER_DOCUMENTS,
       "settings of routers");
}

static void refusals(void)
{
    is_refused(PP_OBJECTIVE_GRPO, "clip-hi=1",
               "grpo has no setting 'clip-hi'; it has preset, policy-loss, ");
    is_refused(PP_OBJECTIVE_GRPO, "label-smoothing=.1", "no setting");
    is_refused(PP_OBJECTIVE_SFT, "beta=1",
               "sft has no setting 'beta'; it has "
               "none");
    is_refused(PP_OBJECTIVE_GRPO, "clip-low", "such as clip-low=0.2");
    is_refused(PP_OBJECTIVE_GRPO, "clip-low=-1",
               "clip-low: '-1' is not between");
    is_refused(PP_OBJECTIVE_GRPO, "kl-weight=none", "kl-weight: 'none' is not");
    is_refused(PP_OBJECTIVE_GRPO, "kl=k4", "kl: 'k4' is not one of: none, k1");
    is_refused(PP_OBJECTIVE_GRPO, "kl=k1,,", "no setting ''");
    is_refused(PP_OBJECTIVE_GRPO, "aggregate=constant", "belong together");
    is_refused(PP_OBJECTIVE_GRPO, "dual-clip=.5", "must be above 1");
    is_refused(PP_OWNER_ROUTER, "rule=megatron", "router: rule has no effect");
    is_refused(PP_OWNER_ROUTER, "bias-rule=megatron", "without bias-rate");
    is_refused(PP_OWNER_LOSS, "mtp=-1", "mtp: '-1'");
}

/* Settings that are written read back as the same. */
static void text(void)
{
    const char *given =
        "preset=verl,clip-high=0.28,kl-clamp=none,entropy-weight"
        "=1e-300,importance=tis";
    char a[PP_SETTINGS_TEXT], b[PP_SETTINGS_TEXT];
    struct pp_settings s;
    struct pp_err err;
    ok(!take(&s, PP_OBJECTIVE_GRPO, given, &err), "%s", given);
    pp_settings_format(&s, PP_OBJECTIVE_GRPO, a);
    ok(!take(&s, PP_OBJECTIVE_GRPO, a, &err), "%s", a);
    pp_settings_format(&s, PP_OBJECTIVE_GRPO, b);
    ok(!strcmp(a, b) && strstr(a, "clip-high=0.28") &&
           strstr(a, "dual-clip=3") && strstr(a, "kl-clamp=none"),
       "%s", b);
}

/* Settings of a run are compared with a text of another. */
static void comparison(void)
{
    struct pp_settings s, other;
    struct pp_err err = {0};
    char text[PP_SETTINGS_LINES], list[PP_SETTINGS_LINES];
    ok(!take(&s, PP_OBJECTIVE_GRPO, "clip-high=0.28,kl-clamp=none", &err),
       "settings");
    pp_settings_write(&s, text);
    ok(!pp_settings_compare(&s, text, list, &err), "own text is read");
    is_str(list, "", "a text of the same settings");
    ok(!take(&other, PP_OBJECTIVE_GRPO, "clip-high=0.2", &err), "others");
    other.router.balance = .5;
    ok(!pp_settings_compare(&other, text, list, &err), "are read");
    is_str(list, "clip-high=0.28, kl-clamp=none, aux=0", "their differences");
    ok(!take(&other, PP_OBJECTIVE_DPO, "preset=trl", &err), "an objective");
    ok(!pp_settings_compare(&other, text, list, &err), "is read");
    is_str(list, "objective grpo", "its settings are not those of another");
    ok(pp_settings_compare(&s, "router aux=0.1\nrouters aux=1\n", list, &err) &&
           err.code == PP_EXIT_INPUT &&
           strstr(err.text, "'routers' is not one of: sft, dpo"),
       "%s", err.text);
}

/* The page has a line for the defaults of each setting, and one for its other
 * names. */
static void page(void)
{
    static char text[65536];
    char path[4096], line[512];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/man/pp-objectives.7",
             source ? source : ".");
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    for (const struct pp_setting *k = pp_settings_table; k->name; k++) {
        int owner =
            k->owners >> PP_OWNER_LOSS & 1 ? PP_OWNER_LOSS : PP_OWNER_ROUTER;
        if (k->owners >> owner & 1)
            snprintf(line, sizeof line, "\n.It %s %s Ta %s\n",
                     pp_owner_names[owner], k->name, k->presets[0]);
        else
            snprintf(line, sizeof line, "\n.It %s Ta %s Ta %s Ta %s\n", k->name,
                     k->presets[0], k->presets[1], k->presets[2]);
        ok(strstr(text, line) != NULL, "pp-objectives(7) has %.*s",
           (int)strlen(line) - 2, line + 1);
        snprintf(line, sizeof line, "\n.It %s Ta %s\n", k->name,
                 k->also ? k->also : "");
        ok(!k->also || strstr(text, line), "and its other names");
    }
}

int main(void)
{
    presets();
    names();
    refusals();
    text();
    comparison();
    page();
    return done();
}
