/* SPDX-License-Identifier: MIT */
/* tool_conditions - checks what the options of a table need and exclude. */
#include <string.h>

#include "tool.h"

/* One condition of the table: NAME or NAME=WORD. */
struct condition {
    const struct tool_option *option; /* NULL if no option has the name */
    int place;                        /* the option's, in the tables */
    const char *word;                 /* NULL: none */
    int word_length;
};

static struct condition read_condition(const struct tool *t, const char *s,
                                       size_t n)
{
    const char *equals = memchr(s, '=', n);
    struct condition c = {
        .place = tool_find_option(t, s, equals ? (size_t)(equals - s) : n)};
    c.option = c.place < 0 ? NULL : tool_nth_option(t, c.place);
    if (equals) {
        c.word = equals + 1;
        c.word_length = (int)(n - (size_t)(c.word - s));
    }
    return c;
}

static bool condition_holds(const struct tool *t, const struct condition *c)
{
    if (!c->word)
        return tool_is_given(t, c->place);
    const char *buffer[TOOL_MAX_WORDS];
    const void *variable = (const char *)t->base + c->option->at;
    const char *value =
        c->option->type == TOOL_TEXT
            ? *(const char *const *)variable
            : tool_words_of(c->option, buffer)[*(const int *)variable];
    return value && !strncmp(value, c->word, (size_t)c->word_length) &&
           !value[c->word_length];
}

/* Removes one alternative from a part of needs and returns it. */
static struct condition next_alternative(const struct tool *t,
                                         struct tool_part *rest, bool *named)
{
    struct tool_part part = tool_next_part(rest, '|');
    *named = *part.s != '?';
    return read_condition(t, part.s + !*named, part.n - !*named);
}

static bool any_holds(const struct tool *t, struct tool_part alternatives)
{
    bool named;
    while (alternatives.n) {
        struct condition c = next_alternative(t, &alternatives, &named);
        if (condition_holds(t, &c))
            return true;
    }
    return false;
}

static struct tool_spelling spell_condition(const struct condition *c)
{
    struct tool_spelling s = tool_spell(c->option);
    size_t n = strlen(s.text);
    if (c->word)
        snprintf(s.text + n, sizeof s.text - n, " %.*s", c->word_length,
                 c->word);
    return s;
}

/* Says "--seed needs -s auto", "--lenient needs --csv or --export csv-comms" or
 * "--stages needs --method weights or automodel". */
static int refuse_need(struct tool *t, const struct tool_option *o,
                       struct tool_part alternatives)
{
    char list[160] = "";
    const struct tool_option *last = NULL;
    for (bool named; alternatives.n;) {
        struct condition c = next_alternative(t, &alternatives, &named);
        bool more = alternatives.n && *alternatives.s != '?';
        size_t n = strlen(list);
        if (!named)
            continue;
        snprintf(list + n, sizeof list - n, "%s%.*s",
                 n == 0 ? ""
                 : more ? ", "
                        : " or ",
                 c.option == last ? c.word_length : (int)sizeof list,
                 c.option == last ? c.word : spell_condition(&c).text);
        last = c.option;
    }
    return tool_usage(t, "%s needs %s", tool_spell(o).text, list);
}

static int check_option(struct tool *t, const struct tool_option *o)
{
    struct tool_part rest = tool_whole(o->needs);
    while (rest.n) {
        struct tool_part alternatives = tool_next_part(&rest, ' ');
        if (!any_holds(t, alternatives))
            return refuse_need(t, o, alternatives);
    }
    rest = tool_whole(o->excludes);
    while (rest.n) {
        struct tool_part part = tool_next_part(&rest, ' ');
        struct condition c = read_condition(t, part.s, part.n);
        if (condition_holds(t, &c))
            return tool_usage(t, "%s and %s exclude each other",
                              tool_spell(o).text, spell_condition(&c).text);
    }
    return 0;
}

int tool_check_options(struct tool *t)
{
    const struct tool_option *o;
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (tool_is_given(t, k) && check_option(t, o))
            return -1;
    return 0;
}

int tool_check_table(struct tool *t)
{
    const struct tool_option *o;
    for (int k = 0; (o = tool_nth_option(t, k)); k++) {
        const char *texts[] = {o->needs, o->excludes};
        for (int i = 0; i < 2; i++) {
            struct tool_part rest = tool_whole(texts[i]), part;
            while ((part = tool_next_part(&rest, ' ')).n)
                for (bool named; part.n;)
                    if (!next_alternative(t, &part, &named).option)
                        return tool_usage(t, "table: --%s: '%s'", o->name,
                                          texts[i]);
        }
    }
    struct tool_part rest = tool_whole(t->everyday), part;
    while ((part = tool_next_part(&rest, ' ')).n)
        if (tool_find_option(t, part.s, part.n) < 0)
            return tool_usage(t, "table: everyday: '%.*s'", (int)part.n,
                              part.s);
    return 0;
}
