/* SPDX-License-Identifier: MIT */
/* tool_print - text and tables for people, in 80 columns. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "tool.h"

/* A column is as wide as its title, or as a size of six characters. */
static int width_of(const char *title)
{
    int n = (int)strlen(title);
    return n < 6 ? 6 : n;
}

void tool_memory_titles(bool mapped, char buf[TOOL_MEMORY_ROW])
{
    int n = snprintf(buf, TOOL_MEMORY_ROW, "rank");
    for (int k = 0; k < PP_N_MEMORY_PARTS; k++)
        n += snprintf(buf + n, (size_t)(TOOL_MEMORY_ROW - n), " %*s",
                      width_of(pp_memory_part_names[k]),
                      pp_memory_part_names[k]);
    snprintf(buf + n, (size_t)(TOOL_MEMORY_ROW - n), " %6s%s", "total",
             mapped ? " mapped" : "");
}

void tool_memory_row(int rank, const struct pp_rank_bytes *b,
                     char buf[TOOL_MEMORY_ROW])
{
    char size[32];
    int n = snprintf(buf, TOOL_MEMORY_ROW, "%4d", rank);
    for (int k = 0; k < PP_N_MEMORY_PARTS; k++) {
        pp_format_short_size(b->part[k], size);
        n += snprintf(buf + n, (size_t)(TOOL_MEMORY_ROW - n), " %*s",
                      width_of(pp_memory_part_names[k]), size);
    }
    pp_format_short_size(pp_rank_total(b), size);
    n += snprintf(buf + n, (size_t)(TOOL_MEMORY_ROW - n), " %6s", size);
    pp_format_short_size(b->mapped, size);
    if (b->mapped)
        snprintf(buf + n, (size_t)(TOOL_MEMORY_ROW - n), " %6s", size);
}

void tool_memory_json(struct pp_json_writer *w, const struct pp_rank_bytes *b)
{
    pp_json_object(w, NULL, PP_JSON_INLINE);
    for (int k = 0; k < PP_N_MEMORY_PARTS; k++)
        pp_json_uint(w, pp_memory_part_names[k], b->part[k]);
    pp_json_uint(w, "total", pp_rank_total(b));
    if (b->mapped)
        pp_json_uint(w, "mapped", b->mapped);
    pp_json_end(w);
}

/* Prints words from a column on, and breaks lines before the last column. */
static void wrap(FILE *f, const char *text, int indent)
{
    int column = indent;
    for (int n; *text; text += n) {
        text += strspn(text, " ");
        n = (int)strcspn(text, " ");
        if (column > indent && column + 1 + n > TOOL_COLUMNS) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        }
        bool first = column == indent;
        fprintf(f, "%s%.*s", first ? "" : " ", n, text);
        column += n + !first;
    }
    fputc('\n', f);
}

void tool_paragraph(FILE *f, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n >= 0)
        wrap(f, text, 0);
    free(text);
}

void tool_entry(FILE *f, int indent, const char *label, const char *text)
{
    fprintf(f, "%-*s ", indent - 1, label);
    wrap(f, text, indent);
}

void tool_note_lost(struct tool *t, const char *form, unsigned bit,
                    const struct tool_choice *choices, const void *plan)
{
    char lost[1024] = "", text[TOOL_CHOICE];
    size_t n = 0;
    for (const struct tool_choice *c = choices; c->made; c++)
        if (!(c->held & bit) && c->made(plan, text) && n < sizeof lost)
            n += (size_t)snprintf(lost + n, sizeof lost - n, "%s%s",
                                  n ? ", " : "", text);
    if (n)
        tool_say(t, TOOL_NOTE,
                 "--export %s does not hold these choices, so set them in its "
                 "system: %s",
                 form, lost);
}
