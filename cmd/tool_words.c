/* SPDX-License-Identifier: MIT */
/* tool_words - words that an option takes, and names of options, told from
 * what was typed instead. */
#include "tool.h"

#include <ctype.h>
#include <getopt.h>
#include <string.h>

enum { MAX_LIST = 320 };

/* One more name in a list with commas. */
static void append(char list[MAX_LIST], const char *dashes, const char *name)
{
    size_t n = strlen(list);
    snprintf(list + n, MAX_LIST - n, "%s%s%s", n ? ", " : "", dashes, name);
}

int tool_word(struct tool *t, const char *option, const char *s,
              const char *const *words)
{
    char known[MAX_LIST] = "";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(s, words[i]))
            return i;
        append(known, "", words[i]);
    }
    return tool_usage(t, "%s: '%.60s' is not one of: %s", option, s, known);
}

/* How many letters must be put in, left out or exchanged to make a of b
 * (Levenshtein). Names are short; of longer ones the first letters count. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    int row[MOST + 1];
    int n = 0;
    for (; n < MOST && b[n]; n++)
        row[n] = n;
    row[n] = n;
    for (int i = 0; i < MOST && a[i]; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int k = 0; k < n; k++) {
            int change = corner + (tolower((unsigned char)a[i]) !=
                                   tolower((unsigned char)b[k]));
            int other = 1 + (row[k] < row[k + 1] ? row[k] : row[k + 1]);
            corner = row[k + 1];
            row[k + 1] = change < other ? change : other;
        }
    }
    return row[n];
}

/* The long option that typed, without its dashes, is most like; or NULL where
 * none has two thirds of its letters. */
static const char *nearest(const char *typed, const struct option *longs)
{
    const char *best = NULL;
    int least = (int)strlen(typed) / 3 + 1;
    for (; longs->name; longs++) {
        int d = distance(typed, longs->name);
        if (d < least) {
            least = d;
            best = longs->name;
        }
    }
    return best;
}

int tool_bad_option(struct tool *t, const char *typed,
                    const struct option *longs, bool takes_none)
{
    char name[40];
    size_t n = strcspn(typed + 2, "=");
    snprintf(name, sizeof name, "%.*s", (int)n, typed + 2);
    if (takes_none)
        return tool_usage(t, "option '--%s' takes no argument", name);
    char several[MAX_LIST] = "";
    for (const struct option *o = longs; o->name; o++)
        if (!strncmp(o->name, name, n))
            append(several, "--", o->name);
    if (*several)
        return tool_usage(t, "option '--%s' could be any of: %s", name,
                          several);
    const char *near = nearest(name, longs);
    return near ? tool_usage(t, "unknown option '--%s'; did you mean '--%s'?",
                             name, near)
                : tool_usage(t, "unknown option '--%s'", name);
}
