/* SPDX-License-Identifier: MIT */
/* tool_options - reads a command line by the table of options. */
#include "tool_options.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "base/num.h"
#include "tool.h"
#include "version.h"

enum {
    MAX_NAMES = 192, /* with synonyms and former names */
    MAX_NAME = 48,
    LONG_OPTION = 256 /* getopt_long returns this plus the entry's place */
};

static int take_verbose(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    (void)o;
    (void)arg;
    t->verbose++;
    return 0;
}

static int take_help(struct tool *t, const struct tool_option *o,
                     const char *arg)
{
    (void)o;
    return tool_print_help(t, arg) ? -1 : 1;
}

static int take_version(struct tool *t, const struct tool_option *o,
                        const char *arg)
{
    (void)o;
    (void)arg;
    printf("%s %s\n%s%s%s\n", t->name, PP_VERSION, PP_BUILD_FACTS,
           t->facts ? ", " : "", t->facts ? t->facts : "");
    return 1;
}

static int take_completion(struct tool *t, const struct tool_option *o,
                           const char *arg)
{
    (void)o;
    return tool_print_completion(t, arg) ? -1 : 1;
}

/* These entries follow the program's own. Their variables are in struct tool.
 */
static const struct tool_option common[] = {
    {'o', "output", "FILE", "write to FILE, replaced when complete",
     TOOL_AT(struct tool, output)},
    {.group = "General"},
    {'q', "quiet", NULL, "no progress and no notes",
     TOOL_AT(struct tool, quiet)},
    {'v', "verbose", NULL, "say more on stderr", .parse = take_verbose},
    {'V', "version", NULL, "print version and build facts",
     .parse = take_version},
    {'h', "help", "GROUP", "print everyday options, a group, or all",
     .optional = true, .parse = take_help},
    {0, "completion", "SHELL", NULL, .parse = take_completion},
    {0},
};

static bool is_end(const struct tool_option *o)
{
    return !o->name && !o->group;
}

const struct tool_option *tool_nth_option(const struct tool *t, int k)
{
    const struct tool_option *const tables[] = {t->options, t->shared, common};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct tool_option *o = tables[i]; o && !is_end(o); o++)
            if (k-- == 0)
                return o;
    return NULL;
}

struct tool_spelling tool_spell(const struct tool_option *o)
{
    struct tool_spelling s;
    if (o->letter)
        snprintf(s.text, sizeof s.text, "-%c", o->letter);
    else
        snprintf(s.text, sizeof s.text, "--%s", o->name);
    return s;
}

const char *const *tool_words_of(const struct tool_option *o,
                                 const char *buffer[TOOL_MAX_WORDS])
{
    if (o->list)
        o->list(buffer);
    return o->list ? buffer : o->words;
}

void tool_remark(struct tool *t, const char *fmt, ...)
{
    size_t n = strlen(t->remarks), room = sizeof t->remarks - n;
    va_list ap;
    va_start(ap, fmt);
    size_t length = (size_t)vsnprintf(t->remarks + n, room, fmt, ap);
    va_end(ap);
    if (length + 1 < room)
        strcat(t->remarks, "\n");
    else
        t->remarks[n] = '\0';
}

/* All names of the options, in the form for getopt_long(3). */
struct option_names {
    char letters[2 * MAX_NAMES];
    struct option names[MAX_NAMES];
    char synonyms[MAX_NAMES][MAX_NAME];
    int n, n_synonyms;
};

static void add_name(struct option_names *all, const struct tool_option *o,
                     const char *name, int k)
{
    assert(all->n + 1 < MAX_NAMES);
    int takes = o->optional ? optional_argument
                : o->arg    ? required_argument
                            : no_argument;
    all->names[all->n++] = (struct option){name, takes, NULL, LONG_OPTION + k};
}

static void add_synonyms(struct option_names *all, const struct tool_option *o,
                         int k)
{
    const char *s = o->also ? o->also : "";
    for (size_t n; (n = strcspn(s, " ")) > 0; s += n + (s[n] == ' ')) {
        char *copy = all->synonyms[all->n_synonyms++];
        snprintf(copy, MAX_NAME, "%.*s", (int)n, s);
        add_name(all, o, copy, k);
    }
}

static void collect_names(const struct tool *t, struct option_names *all)
{
    const struct tool_option *o;
    char *letter = all->letters;
    *letter++ = ':';
    for (int k = 0; (o = tool_nth_option(t, k)); k++) {
        if (!o->name)
            continue;
        if (o->letter)
            *letter++ = o->letter;
        if (o->letter && o->arg && !o->optional)
            *letter++ = ':';
        add_name(all, o, o->name, k);
        add_synonyms(all, o, k);
    }
    *letter = '\0';
}

static int set_word(struct tool *t, const struct tool_option *o,
                    const char *arg, void *variable)
{
    const char *buffer[TOOL_MAX_WORDS];
    const char *const *words = tool_words_of(o, buffer);
    int i = tool_word(t, tool_spell(o).text, arg, words);
    if (i < 0)
        return -1;
    if (o->type == TOOL_TEXT)
        *(const char **)variable = words[i];
    else if (o->type == TOOL_FLAG)
        *(bool *)variable = i > 0;
    else
        *(int *)variable = i;
    return 0;
}

static int set_integer(struct tool *t, const struct tool_option *o,
                       const char *arg, void *variable)
{
    const struct tool_spelling name = tool_spell(o);
    int64_t v;
    if ((o->counts ? pp_parse_count : pp_parse_int)(
            arg, name.text, (int64_t)o->min, (int64_t)o->max, &v, &t->err))
        return -1;
    if (o->type == TOOL_INT)
        *(int *)variable = (int)v;
    else
        *(int64_t *)variable = v;
    return 0;
}

static bool is_common(const struct tool_option *o)
{
    return o >= common && o < common + sizeof common / sizeof *common;
}

int tool_set(struct tool *t, const struct tool_option *o, const char *arg)
{
    void *variable = (is_common(o) ? (char *)t : (char *)t->base) + o->at;
    if (o->words || o->list)
        return set_word(t, o, arg, variable);
    switch (o->type) {
    case TOOL_NOTHING:
        break;
    case TOOL_FLAG:
        *(bool *)variable = true;
        break;
    case TOOL_TEXT:
        *(const char **)variable = arg;
        break;
    case TOOL_REAL:
        if (isinf(o->max) && !strcmp(arg, "none")) {
            *(double *)variable = HUGE_VAL;
            break;
        }
        return pp_parse_real(arg, tool_spell(o).text, o->min,
                             fmin(o->max, 1e300), variable, &t->err);
    case TOOL_INT:
    case TOOL_INT64:
        return set_integer(t, o, arg, variable);
    }
    return 0;
}

/* Takes entry k of the tables. */
static int take_option(struct tool *t, int k, const char *arg)
{
    const struct tool_option *o = tool_nth_option(t, k);
    t->given[k / 64] |= (uint64_t)1 << k % 64;
    return o->parse ? o->parse(t, o, arg) : tool_set(t, o, arg);
}

/* Returns the entry with that letter. */
static int find_letter(const struct tool *t, int letter)
{
    int k = 0;
    while (tool_nth_option(t, k)->letter != letter)
        k++;
    return k;
}

static int refuse_option(struct tool *t, int c, const char *word,
                         const char *last)
{
    if (c == ':')
        return tool_usage(t, "option '%s' needs an argument", last);
    if (optopt > 0 && optopt < LONG_OPTION && word[1] != '-')
        return tool_usage(t, "unknown option '-%c'", optopt);
    return tool_bad_option(t, last, optopt > 0);
}

int tool_read_options(struct tool *t, int argc, char **argv)
{
    struct option_names all = {0};
    collect_names(t, &all);
    signal(SIGXFSZ, SIG_IGN);
    tool_catch_faults(t->name);
    opterr = 0;
    for (;;) {
        int word = optind ? optind : 1, i = 0;
        int c = getopt_long(argc, argv, all.letters, all.names, &i);
        if (c == -1)
            break;
        if (c == '?' || c == ':')
            return refuse_option(t, c, argv[word], argv[optind - 1]);
        int k = c >= LONG_OPTION ? c - LONG_OPTION : find_letter(t, c);
        bool may_follow = tool_nth_option(t, k)->optional && !optarg;
        if (may_follow && optind < argc && argv[optind][0] != '-')
            optarg = argv[optind++];
        if (take_option(t, k, optarg))
            return -1;
    }
    char *rest = t->remarks, *line;
    while ((line = strsep(&rest, "\n")) && *line)
        tool_say(t, TOOL_DETAIL, "%s", line);
    return 0;
}

int tool_memory(struct tool *t, const char *arg, size_t *bytes)
{
    if (pp_parse_size(arg, "--memory", bytes, &t->err))
        return -1;
    if (*bytes == 0)
        return tool_usage(t, "--memory: '%s' must be positive", arg);
    if (pp_is_digits(arg))
        tool_remark(t, "--memory %s is in bytes; give a unit, such as %sG", arg,
                    arg);
    return 0;
}
