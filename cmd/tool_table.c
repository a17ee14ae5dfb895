/* SPDX-License-Identifier: MIT */
/* tool_table - the entries of a program's options, and of the options that all
 * programs have, as one list; and names in texts. */
#include <assert.h>
#include <string.h>

#include "tool.h"

/* These entries follow the program's own. Their variables are in struct tool;
 * tool_read_options does what the ones without a variable say. */
static const struct tool_option common[] = {
    {'o', "output", "FILE", "write to FILE, replaced when complete",
     TOOL_AT(struct tool, output)},
    {.group = "General"},
    {'q', "quiet", NULL, "no progress and no notes",
     TOOL_AT(struct tool, quiet)},
    {'v', "verbose", NULL, "say more on stderr", TOOL_AT(struct tool, verbose)},
    {'V', "version", NULL, "print version and build facts"},
    {'h', "help", "GROUP", "print everyday options, a group, or all",
     .optional = true},
    {0, "completion", "SHELL", NULL},
    {0},
};

bool tool_is_common(const struct tool_option *o)
{
    return o >= common && o < common + sizeof common / sizeof *common;
}

const struct tool_option *tool_nth_option(const struct tool *t, int k)
{
    const struct tool_option *const tables[] = {t->options, t->shared, common};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct tool_option *o = tables[i];
             o && (o->name || o->group); o++)
            if (k-- == 0)
                return o;
    return NULL;
}

int tool_find_option(const struct tool *t, const char *name, size_t n)
{
    const struct tool_option *o;
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->name && !strncmp(o->name, name, n) && !o->name[n])
            return k;
    return -1;
}

bool tool_given(const struct tool *t, const char *name)
{
    int k = tool_find_option(t, name, strlen(name));
    assert(k >= 0);
    return tool_is_given(t, k);
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

struct tool_part tool_whole(const char *s)
{
    s = s ? s : "";
    return (struct tool_part){s, strlen(s)};
}

struct tool_part tool_next_part(struct tool_part *rest, char separator)
{
    const char *at = memchr(rest->s, separator, rest->n);
    struct tool_part part = {rest->s, at ? (size_t)(at - rest->s) : rest->n};
    size_t used = part.n + (at != NULL);
    *rest = (struct tool_part){rest->s + used, rest->n - used};
    return part;
}
