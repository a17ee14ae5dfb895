/* SPDX-License-Identifier: MIT */
/* tool_options - reads a command line by the table of options. */
#include "tool_options.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/num.h"
#include "tool.h"
#include "version.h"

enum {
    MAX_NAMES = 192, /* with synonyms and former names */
    MAX_NAME = 48,
    LONG_OPTION = 256 /* getopt_long returns this plus the entry's place */
};

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
    struct tool_part rest = tool_whole(o->also), part;
    while ((part = tool_next_part(&rest, ' ')).n) {
        char *copy = all->synonyms[all->n_synonyms++];
        snprintf(copy, MAX_NAME, "%.*s", (int)part.n, part.s);
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

static int set_size(struct tool *t, const struct tool_option *o,
                    const char *arg, size_t *bytes)
{
    const struct tool_spelling name = tool_spell(o);
    if (pp_parse_size(arg, name.text, bytes, &t->err))
        return -1;
    if (*bytes == 0)
        return tool_usage(t, "%s: '%s' must be positive", name.text, arg);
    if (pp_is_digits(arg)) {
        t->bare = o;
        t->bare_size = arg;
    }
    return 0;
}

int tool_set(struct tool *t, const struct tool_option *o, const char *arg)
{
    void *variable = (tool_is_common(o) ? (char *)t : (char *)t->base) + o->at;
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
    case TOOL_SIZE:
        return set_size(t, o, arg, variable);
    case TOOL_INT:
    case TOOL_INT64:
        return set_integer(t, o, arg, variable);
    }
    return 0;
}

/* Prints the version, the help or a completion. Then the run is over. */
static int answer(struct tool *t, const struct tool_option *o, const char *arg)
{
    int rc = 0;
    if (o->letter == 'V')
        printf("%s %s\n%s%s%s\n", t->name, PP_VERSION, PP_BUILD_FACTS,
               t->facts ? ", " : "", t->facts ? t->facts : "");
    else
        rc = o->letter == 'h' ? tool_print_help(t, arg)
                              : tool_print_completion(t, arg);
    return rc ? rc : 1;
}

/* Takes entry k of the tables. */
static int take_option(struct tool *t, int k, const char *arg)
{
    const struct tool_option *o = tool_nth_option(t, k);
    t->given[k / 64] |= (uint64_t)1 << k % 64;
    if (o->parse)
        return o->parse(t, o, arg);
    return tool_is_common(o) && o->type == TOOL_NOTHING ? answer(t, o, arg)
                                                        : tool_set(t, o, arg);
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
    t->argc = argc;
    t->argv = argv;
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
    if (t->bare)
        tool_say(t, TOOL_DETAIL,
                 "--%s %s is in bytes; give a unit, such as %sG", t->bare->name,
                 t->bare_size, t->bare_size);
    return 0;
}
