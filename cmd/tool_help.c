/* SPDX-License-Identifier: MIT */
/* tool_help - prints the table of options: for --help, and as scripts that
 * complete command lines in bash, zsh and fish. */
#include <string.h>

#include "tool.h"

enum { HELP_COLUMN = 30 };

static void print_option(const struct tool_option *o)
{
    char left[64];
    int n = o->letter ? snprintf(left, sizeof left, "  -%c, ", o->letter)
                      : snprintf(left, sizeof left, "      ");
    n += snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", o->name,
                  o->arg ? " " : "", o->arg ? o->arg : "");
    if (n > HELP_COLUMN - 2)
        printf("%s\n%*s%s\n", left, HELP_COLUMN, "", o->help);
    else
        printf("%-*s%s\n", HELP_COLUMN, left, o->help);
}

static bool is_everyday(const struct tool *t, const struct tool_option *o)
{
    struct tool_part rest = tool_whole(t->everyday), part;
    while ((part = tool_next_part(&rest, ' ')).n)
        if (part.n == strlen(o->name) && !strncmp(part.s, o->name, part.n))
            return true;
    return false;
}

static void print_everyday(const struct tool *t)
{
    const struct tool_option *o;
    char groups[400];
    size_t n = 0;
    printf("\nEveryday options:\n");
    for (int k = 0; (o = tool_nth_option(t, k)); k++) {
        if (o->group && n < sizeof groups)
            n += (size_t)snprintf(groups + n, sizeof groups - n, "%s%s",
                                  n ? "; " : "", o->group);
        else if (o->name && is_everyday(t, o))
            print_option(o);
    }
    fputc('\n', stdout);
    tool_paragraph(stdout,
                   "--help all prints all options, --help GROUP the options of "
                   "a group. Groups, whose first word is enough: %s.",
                   groups);
}

/* Returns the first group whose name begins with text, or NULL. */
static const char *find_group(const struct tool *t, const char *text)
{
    const struct tool_option *o;
    for (int k = 0; *text && (o = tool_nth_option(t, k)); k++)
        if (o->group && !strncasecmp(o->group, text, strlen(text)))
            return o->group;
    return NULL;
}

/* Prints the options of a group, or of all groups if it is NULL. */
static void print_groups(const struct tool *t, const char *group)
{
    const struct tool_option *o;
    bool shown = false;
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->group) {
            shown = !group || !strcmp(group, o->group);
            if (shown)
                printf("\n%s:\n", o->group);
        } else if (shown && o->help) {
            print_option(o);
        }
}

int tool_print_help(struct tool *t, const char *what)
{
    bool all = what && !strcmp(what, "all");
    const char *group = what && !all ? find_group(t, what) : NULL;
    if (what && !all && !group)
        return tool_usage(
            t, "--help: '%s' is neither a group of options nor all", what);
    printf("usage: %s %s\n\n%s\n", t->name, t->synopsis, t->summary);
    if (what)
        print_groups(t, group);
    else
        print_everyday(t);
    printf("\nSee %s(1).\n", t->name);
    return 0;
}

/* --- shell completion --- */

/* How a shell completes the argument of an option. */
enum completion {
    COMPLETE_NOTHING,
    COMPLETE_WORDS,
    COMPLETE_FILES,
    COMPLETE_DIRS
};

static enum completion completion_of(const struct tool_option *o)
{
    if (o->words || o->list)
        return COMPLETE_WORDS;
    if (!strcmp(o->arg, "FILE") || !strcmp(o->arg, "TRACE") ||
        !strcmp(o->arg, "PATH"))
        return COMPLETE_FILES;
    return strcmp(o->arg, "DIR") ? COMPLETE_NOTHING : COMPLETE_DIRS;
}

static void print_words(FILE *f, const struct tool_option *o)
{
    const char *buffer[TOOL_MAX_WORDS];
    const char *const *words = tool_words_of(o, buffer);
    for (int i = 0; words[i]; i++)
        fprintf(f, "%s%s", i ? " " : "", words[i]);
}

/* Prints text for single quotes, with a backslash before each special byte. */
static void print_escaped(FILE *f, const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            fputc('\\', f);
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, f);
    }
}

static void print_bash_case(FILE *f, const struct tool_option *o)
{
    fprintf(f, "    ");
    if (o->letter)
        fprintf(f, "-%c | ", o->letter);
    fprintf(f, "--%s) ", o->name);
    switch (completion_of(o)) {
    case COMPLETE_NOTHING:
        fprintf(f, "return ;;\n");
        break;
    case COMPLETE_WORDS:
        fprintf(f, "words='");
        print_words(f, o);
        fprintf(f, "' ;;\n");
        break;
    case COMPLETE_FILES:
        fprintf(f, "kind=-f ;;\n");
        break;
    case COMPLETE_DIRS:
        fprintf(f, "kind=-d ;;\n");
        break;
    }
}

/* bash splits "--name=value" into three words. */
static void print_bash(const struct tool *t, FILE *f)
{
    const struct tool_option *o;
    fprintf(f,
            "_%s() {\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} words= kind=\n"
            "    local prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    [[ $cur != = ]] || cur=\n"
            "    [[ $prev != = ]] || prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "    COMPREPLY=()\n"
            "    case $prev in\n",
            t->name);
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->help && o->arg)
            print_bash_case(f, o);
    fprintf(f, "    *) [[ $cur == -* ]] && words='");
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->help)
            fprintf(f, "%s--%s", k > 1 ? " " : "", o->name);
    fprintf(f,
            "' || kind=-f ;;\n"
            "    esac\n"
            "    mapfile -t COMPREPLY < <(compgen $kind -W \"$words\" -- "
            "\"$cur\")\n"
            "}\n"
            "complete -o filenames -F _%s %s\n",
            t->name, t->name);
}

static void print_zsh_option(FILE *f, const struct tool_option *o)
{
    const char *value = o->arg ? "=" : "";
    fprintf(f, "    ");
    if (o->letter)
        fprintf(f, "'(-%c --%s)'{-%c%s,--%s%s}'", o->letter, o->name, o->letter,
                o->arg ? "+" : "", o->name, value);
    else
        fprintf(f, "'--%s%s", o->name, value);
    fputc('[', f);
    print_escaped(f, o->help, "[]:\\");
    fputc(']', f);
    if (o->arg) {
        fputc(':', f);
        print_escaped(f, o->arg, "[]:\\");
        fputc(':', f);
    }
    switch (o->arg ? completion_of(o) : COMPLETE_NOTHING) {
    case COMPLETE_NOTHING:
        break;
    case COMPLETE_WORDS:
        fputc('(', f);
        print_words(f, o);
        fputc(')', f);
        break;
    case COMPLETE_FILES:
        fprintf(f, "_files");
        break;
    case COMPLETE_DIRS:
        fprintf(f, "_files -/");
        break;
    }
    fprintf(f, "' \\\n");
}

static void print_zsh(const struct tool *t, FILE *f)
{
    const struct tool_option *o;
    fprintf(f, "#compdef %s\n_arguments -s -S \\\n", t->name);
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->help)
            print_zsh_option(f, o);
    fprintf(f, "    '*:file:_files'\n");
}

static void print_fish_option(const struct tool *t, FILE *f,
                              const struct tool_option *o)
{
    fprintf(f, "complete -c %s", t->name);
    if (o->letter)
        fprintf(f, " -s %c", o->letter);
    fprintf(f, " -l %s", o->name);
    switch (o->arg ? completion_of(o) : COMPLETE_NOTHING) {
    case COMPLETE_NOTHING:
        fprintf(f, "%s", o->arg ? " -x" : "");
        break;
    case COMPLETE_WORDS:
        fprintf(f, " -x -a '");
        print_words(f, o);
        fprintf(f, "'");
        break;
    case COMPLETE_FILES:
        fprintf(f, " -r -F");
        break;
    case COMPLETE_DIRS:
        fprintf(f, " -x -a '(__fish_complete_directories)'");
        break;
    }
    fprintf(f, " -d '");
    print_escaped(f, o->help, "\\");
    fprintf(f, "'\n");
}

static void print_fish(const struct tool *t, FILE *f)
{
    const struct tool_option *o;
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->help)
            print_fish_option(t, f, o);
}

int tool_print_completion(struct tool *t, const char *shell)
{
    static const char *const shells[] = {"bash", "zsh", "fish", NULL};
    static void (*const print[])(const struct tool *,
                                 FILE *) = {print_bash, print_zsh, print_fish};
    int i = tool_word(t, "--completion", shell, shells);
    if (i < 0 || tool_check_table(t))
        return -1;
    print[i](t, stdout);
    return 0;
}
