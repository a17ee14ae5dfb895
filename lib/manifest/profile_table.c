/* SPDX-License-Identifier: MIT */
/* profile_table - measured costs as a plain table: a unit a line, with the
 * seconds of its forward, input gradient and weight gradient for a microbatch.
 * A name that ends with * is a pattern. Blank lines and what follows # do not
 * count. */
#include <string.h>

#include "base/num.h"
#include "manifest/profile_json.h"

enum { COLUMNS = 4 };
#define BLANKS " \t\r"

/* Cuts a line into words; returns their number, COLUMNS + 1 if there are more.
 */
static size_t cut(char *line, char *words[COLUMNS + 1])
{
    size_t n = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word; n <= COLUMNS && (word = strsep(&line, BLANKS));)
        if (*word)
            words[n++] = word;
    return n;
}

static int read_row(char *line, const char *what, struct pp_unit_seconds *u,
                    bool *is_row, struct pp_err *err)
{
    char *words[COLUMNS + 1];
    size_t n = cut(line, words);
    *is_row = n > 0;
    if (n == 0)
        return 0;
    if (n != COLUMNS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: needs a unit and the seconds of its forward, input "
                       "gradient and weight gradient",
                       what);
    *u = (struct pp_unit_seconds){.fqn = words[0]};
    double *const to[] = {u->fwd, u->input, u->weight};
    for (size_t k = 1; k < COLUMNS; k++)
        if (pp_parse_real(words[k], what, 0, 1e9, to[k - 1], err))
            return -1;
    return 0;
}

bool pp_profile_is_table(const char *text, size_t n)
{
    while (n > 0 && strchr(" \t\r\n", *text)) {
        text++;
        n--;
    }
    return n > 0 && *text != '{';
}

int pp_profile_parse_table(const char *text, size_t n, const char *name,
                           struct pp_arena *a, struct pp_profile *p,
                           struct pp_err *err)
{
    char *copy = pp_arena_alloc(a, n + 1, 1), what[256];
    size_t rows = 1, number = 0;
    memcpy(copy, text, n);
    for (size_t i = 0; i < n; i++)
        rows += text[i] == '\n';
    *p =
        (struct pp_profile){.units = pp_arena_alloc(a, rows, sizeof *p->units)};
    for (char *line; (line = strsep(&copy, "\n"));) {
        bool is_row;
        snprintf(what, sizeof what, "%.200s: line %zu", name, ++number);
        if (read_row(line, what, &p->units[p->n_units], &is_row, err))
            return -1;
        p->n_units += is_row;
    }
    return p->n_units
               ? 0
               : pp_fail(err, PP_EXIT_INPUT, "%s: there are no units", name);
}
