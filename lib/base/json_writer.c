/* SPDX-License-Identifier: MIT */
#include "base/json_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "base/num.h"

/* Writes s as a JSON string. Writes runs without escapes at once, because
 * traces have millions of strings. */
static void put_string(FILE *f, const char *s)
{
    putc('"', f);
    for (;;) {
        size_t n = 0;
        while (s[n] != '"' && s[n] != '\\' && (unsigned char)s[n] >= ' ')
            n++;
        fwrite(s, 1, n, f);
        s += n;
        if (!*s)
            break;
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else
            fprintf(f, "\\u%04x", (unsigned)*s);
        s++;
    }
    putc('"', f);
}

static void begin_line(const struct pp_json_writer *w)
{
    fprintf(w->f, "\n%*s", w->indent * w->depth, "");
}

/* Writes everything in front of a value: comma, line break or space, key. */
static void begin_member(struct pp_json_writer *w, const char *key)
{
    bool any = false, line = w->line;
    if (w->depth > 0) {
        any = w->open[w->depth - 1].any;
        line |= w->open[w->depth - 1].lines != PP_JSON_INLINE;
        w->open[w->depth - 1].any = true;
    }
    w->line = false;
    if (any)
        putc(',', w->f);
    if (line)
        begin_line(w);
    else if (any && !w->compact)
        putc(' ', w->f);
    if (key) {
        put_string(w->f, key);
        fputs(w->compact ? ":" : ": ", w->f);
    }
}

static void open_bracket(struct pp_json_writer *w, const char *key,
                         enum pp_json_lines lines, const char *brackets)
{
    assert(w->depth < (int)(sizeof w->open / sizeof *w->open));
    begin_member(w, key);
    putc(brackets[0], w->f);
    w->open[w->depth].close = brackets[1];
    w->open[w->depth].any = false;
    w->open[w->depth].lines = lines;
    w->depth++;
}

void pp_json_object(struct pp_json_writer *w, const char *key,
                    enum pp_json_lines lines)
{
    open_bracket(w, key, lines, "{}");
}

void pp_json_array(struct pp_json_writer *w, const char *key,
                   enum pp_json_lines lines)
{
    open_bracket(w, key, lines, "[]");
}

void pp_json_end(struct pp_json_writer *w)
{
    assert(w->depth > 0);
    w->depth--;
    if (w->open[w->depth].any && w->open[w->depth].lines == PP_JSON_BROKEN)
        begin_line(w);
    putc(w->open[w->depth].close, w->f);
}

struct pp_json_writer pp_json_line(FILE *f)
{
    struct pp_json_writer w = {.f = f};
    pp_json_object(&w, NULL, PP_JSON_INLINE);
    return w;
}

struct pp_json_writer pp_json_lines(FILE *f)
{
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    return w;
}

void pp_json_finish(struct pp_json_writer *w)
{
    pp_json_end(w);
    putc('\n', w->f);
}

void pp_json_break(struct pp_json_writer *w)
{
    w->line = true;
}

void pp_json_string(struct pp_json_writer *w, const char *key, const char *s)
{
    begin_member(w, key);
    put_string(w->f, s);
}

void pp_json_bool(struct pp_json_writer *w, const char *key, bool v)
{
    begin_member(w, key);
    fputs(v ? "true" : "false", w->f);
}

void pp_json_int(struct pp_json_writer *w, const char *key, int64_t v)
{
    begin_member(w, key);
    fprintf(w->f, "%" PRId64, v);
}

void pp_json_uint(struct pp_json_writer *w, const char *key, uint64_t v)
{
    begin_member(w, key);
    fprintf(w->f, "%" PRIu64, v);
}

void pp_json_real(struct pp_json_writer *w, const char *key, double v)
{
    char text[32] = "null";
    if (isfinite(v))
        pp_format_real(v, text);
    begin_member(w, key);
    fputs(text, w->f);
}

void pp_json_format(struct pp_json_writer *w, const char *key, const char *fmt,
                    ...)
{
    va_list ap;
    begin_member(w, key);
    va_start(ap, fmt);
    vfprintf(w->f, fmt, ap);
    va_end(ap);
}
