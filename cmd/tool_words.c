/* SPDX-License-Identifier: MIT */
/* tool_words - finds the word or the option that the user meant. It also knows
 * names of other systems. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "tool.h"

enum { MAX_LIST = 320, MAX_TYPED = 40 };

/* Words of other systems. */
static const struct word_synonym {
    const char *typed, *word;
} word_synonyms[] = {
    {"bfloat16", "bf16"},
    {"float32", "fp32"},
    {"float64", "fp64"},
    /* torchtitan's pipeline_parallel_schedule */
    {"interleaved1f1b", "interleaved"},
    {"loopedbfs", "looped-bfs"},
    {"interleavedzerobubble", "zb-interleaved"},
    {"zbvzerobubble", "zbv"},
    {"makespan", "time"},
};

/* Options of other systems that do not map to one of ours without thought. */
static const struct option_hint {
    const char *typed, *option, *argument;
} option_hints[] = {
    {"bf16", "dtype", "bf16"},
    {"micro-batch-size", "capacity", "TOKENS"},
    {"recompute-activations", "recompute", "selective"},
    {"recompute-granularity", "recompute", "MODE"},
    {"activation-checkpointing", "recompute", "full"},
    {"load", "resume", "DIR"},
    {"seed", "init", "SEED"},
    {"data-path", "data", "DIR"},
    {"max-seq-len", "capacity", "TOKENS"},
    {"max-length", "capacity", "TOKENS"},
};

/* Adds one more name to a list with commas. */
static void append_name(char list[MAX_LIST], const char *dashes,
                        const char *name)
{
    size_t n = strlen(list);
    snprintf(list + n, MAX_LIST - n, "%s%s%s", n ? ", " : "", dashes, name);
}

static int find_word(const char *s, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcasecmp(s, words[i]))
            return i;
    return -1;
}

/* A synonym counts only for an option that has its word. */
static int find_synonym(const char *s, const char *const *words)
{
    for (size_t k = 0; k < sizeof word_synonyms / sizeof *word_synonyms; k++) {
        const struct word_synonym *y = &word_synonyms[k];
        int i = strcasecmp(s, y->typed) ? -1 : find_word(y->word, words);
        if (i >= 0)
            return i;
    }
    return -1;
}

int tool_word(struct tool *t, const char *option, const char *s,
              const char *const *words)
{
    int found = find_word(s, words);
    if (found < 0)
        found = find_synonym(s, words);
    if (found >= 0)
        return found;
    char known[MAX_LIST] = "";
    for (int i = 0; words[i]; i++)
        append_name(known, "", words[i]);
    return tool_usage(t, "%s: '%.60s' is not one of: %s", option, s, known);
}

/* Returns the edit distance of two names (Levenshtein), without regard to case.
 * Only the first letters of very long names count. */
static int edit_distance(const char *a, const char *b)
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

/* Returns the least distance from typed to the option's name and synonyms. */
static int option_distance(const char *typed, const struct tool_option *o)
{
    int least = edit_distance(typed, o->name);
    struct tool_part rest = tool_whole(o->also), part;
    while ((part = tool_next_part(&rest, ' ')).n) {
        char name[MAX_TYPED];
        snprintf(name, sizeof name, "%.*s", (int)part.n, part.s);
        int d = edit_distance(typed, name);
        least = d < least ? d : least;
    }
    return least;
}

/* Returns the option that is most like typed, or NULL if none shares two thirds
 * of its letters. */
static const char *nearest_option(const struct tool *t, const char *typed)
{
    const struct tool_option *o;
    const char *best = NULL;
    int least = (int)strlen(typed) / 3 + 1;
    for (int k = 0; (o = tool_nth_option(t, k)); k++) {
        if (!o->name || !o->help)
            continue;
        int d = option_distance(typed, o);
        if (d < least) {
            least = d;
            best = o->name;
        }
    }
    return best;
}

/* Returns the hint for an option of another system, or NULL. */
static const struct option_hint *find_hint(const struct tool *t,
                                           const char *typed)
{
    for (size_t k = 0; k < sizeof option_hints / sizeof *option_hints; k++)
        if (!strcmp(typed, option_hints[k].typed) &&
            tool_find_option(t, option_hints[k].option,
                             strlen(option_hints[k].option)) >= 0)
            return &option_hints[k];
    return NULL;
}

int tool_bad_option(struct tool *t, const char *typed, bool takes_none)
{
    char name[MAX_TYPED], several[MAX_LIST] = "";
    const struct tool_option *o;
    size_t n = strcspn(typed + 2, "=");
    snprintf(name, sizeof name, "%.*s", (int)n, typed + 2);
    if (takes_none)
        return tool_usage(t, "option '--%s' takes no argument", name);
    for (int k = 0; (o = tool_nth_option(t, k)); k++)
        if (o->name && o->help && !strncmp(o->name, name, n))
            append_name(several, "--", o->name);
    if (*several)
        return tool_usage(t, "option '--%s' could be any of: %s", name,
                          several);
    const struct option_hint *hint = find_hint(t, name);
    if (hint)
        return tool_usage(t, "unknown option '--%s'; did you mean '--%s %s'?",
                          name, hint->option, hint->argument);
    const char *near = nearest_option(t, name);
    return near ? tool_usage(t, "unknown option '--%s'; did you mean '--%s'?",
                             name, near)
                : tool_usage(t, "unknown option '--%s'", name);
}
