/* SPDX-License-Identifier: MIT */
/* settings - --objective, --router and --loss: their keys, and help on
 * them, follow from the table of settings. */
#include <stdio.h>
#include <string.h>

#include "runner/runner.h"

static bool owns(int owner, const struct pp_setting *k)
{
    return k->owners >> owner & 1;
}

/* --- help --- */

enum { HELP_COLUMN = 26 };

/* Writes the default of each preset, which for most settings is the same. */
static void format_defaults(const struct pp_setting *k, char *buf, size_t room)
{
    snprintf(buf, room, "(%s", k->presets[0]);
    for (int i = 1; i < PP_N_PRESETS; i++)
        if (strcmp(k->presets[i], k->presets[0])) {
            size_t n = strlen(buf);
            snprintf(buf + n, room - n, "; %s: %s", pp_preset_names[i],
                     k->presets[i]);
        }
    strncat(buf, ")", room - strlen(buf) - 1);
}

static void print_setting(FILE *f, const struct pp_setting *k)
{
    bool is_flag = k->type == PP_SETTING_FLAG;
    char label[64], text[480], defaults[128], words[256] = "";
    for (int i = 0; k->words && !is_flag && k->words[i]; i++) {
        size_t n = strlen(words);
        snprintf(words + n, sizeof words - n, "%s%s", i ? ", " : ": ",
                 k->words[i]);
    }
    snprintf(label, sizeof label, "  %s%s", k->name,
             is_flag    ? ""
             : k->words ? "=WORD"
                        : "=X");
    format_defaults(k, defaults, sizeof defaults);
    snprintf(text, sizeof text, "%s%s %s%s%s", k->help, words, defaults,
             k->also ? "; also " : "", k->also ? k->also : "");
    tool_entry(f, HELP_COLUMN, label, text);
}

static int print_owner(FILE *f, int owner)
{
    int n = 0;
    for (const struct pp_setting *k = pp_settings_table; k->name; k++)
        if (owns(owner, k)) {
            print_setting(f, k);
            n++;
        }
    return n;
}

/* Returns 1: the run is over. */
static int print_help(const struct tool_option *o, int owner)
{
    printf("usage: pprun --%s %s\n", o->name, o->arg);
    if (owner < PP_N_OWNERS)
        print_owner(stdout, owner);
    for (int i = 0; owner == PP_N_OWNERS && pp_objective_names[i]; i++) {
        printf("\n%s:\n", pp_objective_names[i]);
        if (!print_owner(stdout, i))
            printf("  no settings\n");
    }
    printf("\nSee %s(7).\n", owner == PP_OWNER_ROUTER || owner == PP_OWNER_LOSS
                                 ? "pp-models"
                                 : "pp-objectives");
    return 1;
}

/* --- the options --- */

/* Reads "NAME" or "NAME,KEY=VALUE,...". */
static int read_objective(struct pp_settings *s, const char *arg,
                          struct pp_err *err)
{
    char name[64];
    size_t n = strcspn(arg, ",");
    snprintf(name, sizeof name, "%.*s", (int)n, arg);
    return pp_settings_objective(s, name, err) ||
                   pp_settings_read(s, s->objective.number,
                                    arg + n + (arg[n] == ','), err)
               ? -1
               : 0;
}

/* Returns the owner of the settings of an option; PP_N_OWNERS: the objective
 * that its argument names. */
static int owner_of(const struct tool_option *o)
{
    int owner = PP_OWNER_ROUTER;
    while (owner < PP_N_OWNERS && strcmp(pp_owner_names[owner], o->name))
        owner++;
    return owner;
}

int runner_parse_settings(struct tool *t, const struct tool_option *o,
                          const char *arg)
{
    struct runner *p = t->base;
    struct pp_settings *s = &p->job.settings;
    int owner = owner_of(o);
    if (!strcmp(arg, "help"))
        return print_help(o, owner);
    if (owner < PP_N_OWNERS ? pp_settings_read(s, owner, arg, &t->err)
                            : read_objective(s, arg, &t->err))
        return pp_fail_at(&t->err, "--%s: ", o->name);
    return 0;
}

/* Lists the names of settings of an owner, for completion. */
static void list(int owner, const char *words[])
{
    for (const struct pp_setting *k = pp_settings_table; k->name; k++)
        if (owns(owner, k))
            *words++ = k->name;
    words[0] = "help";
    words[1] = NULL;
}

void runner_list_router(const char *words[])
{
    list(PP_OWNER_ROUTER, words);
}

void runner_list_loss(const char *words[])
{
    list(PP_OWNER_LOSS, words);
}

void runner_say_settings(const struct runner *p)
{
    const struct pp_settings *s = &p->job.settings;
    const struct {
        const char *option;
        int owner;
        bool counts;
    } of[] = {{"objective ", s->objective.number, p->job.objective != NULL},
              {"router ", PP_OWNER_ROUTER, p->model.moe.n_experts > 0},
              {"loss ", PP_OWNER_LOSS, p->model.n_mtp || p->model.generator}};
    char text[PP_SETTINGS_TEXT];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].counts && p->job.optim.steps > 0) {
            pp_settings_format(s, of[i].owner, text);
            tool_say(p->tool, TOOL_DETAIL, "--%s%s%s%s", of[i].option,
                     i ? "" : pp_owner_names[of[i].owner],
                     i || !*text ? "" : ",", text);
        }
}

int runner_take_settings(struct runner *p)
{
    struct pp_job *j = &p->job;
    if (pp_settings_complete(&j->settings, &p->tool->err))
        return pp_fail_at(&p->tool->err, "--");
    if (j->settings.objective.number != PP_OBJECTIVE_SFT)
        j->objective = &j->settings.objective;
    j->optim.router = &j->settings.router;
    return 0;
}
