/* SPDX-License-Identifier: MIT */
#include "data/cursor.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_QUOTE = 24 };

/* Fails with "'what stands here' is not ...". */
static int fail_here(const struct pp_cursor *s, const char *expected,
                     struct pp_err *err)
{
    char quote[MAX_QUOTE + 1];
    size_t n = 0;
    if (s->p >= s->end || *s->p == '\n')
        return pp_fail(err, PP_EXIT_INPUT, "ends where %s is expected",
                       expected);
    for (const char *p = s->p; p < s->end && n < MAX_QUOTE; p++) {
        bool stop = *p == ',' || *p == ']' || *p == '}' || *p == '\n';
        if (stop && n)
            break;
        quote[n++] = (unsigned char)*p < 0x20 ? '?' : *p;
        if (stop)
            break;
    }
    /* Not half of a character. */
    while (n > 1 && ((unsigned char)quote[n - 1] & 0xc0) == 0x80)
        n--;
    quote[n] = '\0';
    return pp_fail(err, PP_EXIT_INPUT, "'%s' is not %s", quote, expected);
}

static void skip_space(struct pp_cursor *s)
{
    while (s->p < s->end &&
           (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

bool pp_cursor_blank(struct pp_cursor *s)
{
    skip_space(s);
    return s->p == s->end;
}

bool pp_cursor_try(struct pp_cursor *s, char c)
{
    skip_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

int pp_cursor_take(struct pp_cursor *s, char c, struct pp_err *err)
{
    if (pp_cursor_try(s, c))
        return 0;
    const char expected[] = {'"', c, '"', '\0'};
    return fail_here(s, expected, err);
}

int pp_cursor_end(struct pp_cursor *s, struct pp_err *err)
{
    return pp_cursor_blank(s) ? 0 : fail_here(s, "the end of the line", err);
}

static int hex4(struct pp_cursor *s, unsigned *out, struct pp_err *err)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        int c = s->p < s->end ? *s->p : 0;
        if (c >= '0' && c <= '9')
            v = v * 16 + (unsigned)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v * 16 + (unsigned)((c | 32) - 'a' + 10);
        else
            return fail_here(s, "a hexadecimal digit", err);
        s->p++;
    }
    *out = v;
    return 0;
}

static size_t put_utf8(unsigned char *out, unsigned c)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3f));
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (unsigned char)(lead[n] | c);
    return n;
}

/* What follows "\u", perhaps with the second half of a surrogate pair. */
static int scan_unicode(struct pp_cursor *s, unsigned char *out, size_t *n,
                        struct pp_err *err)
{
    unsigned high = 0, low = 0;
    if (hex4(s, &high, err) != 0)
        return -1;
    if (high < 0xd800 || high > 0xdfff) {
        *n += put_utf8(out, high);
        return 0;
    }
    if (high > 0xdbff || s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
        return pp_fail(err, PP_EXIT_INPUT, "'\\u%04x' is half a character",
                       high);
    s->p += 2;
    if (hex4(s, &low, err) != 0)
        return -1;
    if (low < 0xdc00 || low > 0xdfff)
        return pp_fail(err, PP_EXIT_INPUT, "'\\u%04x' is half a character",
                       high);
    *n += put_utf8(out, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
    return 0;
}

static int scan_escape(struct pp_cursor *s, unsigned char *out, size_t *n,
                       struct pp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = s->p < s->end && *s->p ? strchr(from, *s->p) : NULL;
    if (at) {
        s->p++;
        *out = (unsigned char)to[at - from];
        ++*n;
        return 0;
    }
    if (s->p == s->end || *s->p != 'u')
        return fail_here(s, "an escape", err);
    s->p++;
    return scan_unicode(s, out, n, err);
}

int pp_cursor_string(struct pp_cursor *s, unsigned char *out, size_t *n,
                     struct pp_err *err)
{
    size_t k = 0;
    skip_space(s);
    if (s->p == s->end || *s->p != '"')
        return fail_here(s, "a string", err);
    s->p++;
    while (s->p < s->end) {
        unsigned char c = (unsigned char)*s->p;
        if (c == '"') {
            s->p++;
            *n = k;
            return 0;
        }
        if (c < 0x20)
            break;
        s->p++;
        if (c != '\\')
            out[k++] = c;
        else if (scan_escape(s, out + k, &k, err) != 0)
            return -1;
    }
    if (s->p < s->end && *s->p != '\n')
        return pp_fail(err, PP_EXIT_INPUT,
                       "'\\x%02x' in a string must be escaped",
                       (unsigned char)*s->p);
    return pp_fail(err, PP_EXIT_INPUT, "ends inside a string");
}

/* Moves past a string without keeping it, checking its escapes. */
static int skip_string(struct pp_cursor *s, char *buf, size_t size,
                       struct pp_err *err)
{
    size_t k = 0;
    skip_space(s);
    if (s->p == s->end || *s->p != '"')
        return fail_here(s, "a string", err);
    s->p++;
    while (s->p < s->end && *s->p != '"') {
        unsigned char piece[4] = {(unsigned char)*s->p};
        size_t n = 0;
        if (piece[0] < 0x20)
            return pp_fail(err, PP_EXIT_INPUT, "ends inside a string");
        s->p++;
        if (piece[0] != '\\')
            n = 1;
        else if (scan_escape(s, piece, &n, err) != 0)
            return -1;
        for (size_t i = 0; i < n; i++)
            if (k + 1 < size)
                buf[k++] = (char)piece[i];
    }
    if (s->p == s->end)
        return pp_fail(err, PP_EXIT_INPUT, "ends inside a string");
    s->p++;
    if (size)
        buf[k] = '\0';
    return 0;
}

int pp_cursor_key(struct pp_cursor *s, char *buf, size_t size,
                  struct pp_err *err)
{
    return skip_string(s, buf, size, err);
}

static bool take_word(struct pp_cursor *s, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return false;
    s->p += n;
    return true;
}

int pp_cursor_int32(struct pp_cursor *s, int32_t min, int32_t max,
                    const char *what, int32_t *out, struct pp_err *err)
{
    skip_space(s);
    struct pp_cursor start = *s;
    if (max == 1 && (take_word(s, "true") || take_word(s, "false"))) {
        *out = s->p[-2] == 'u';
        return 0;
    }
    bool minus = s->p < s->end && *s->p == '-';
    const char *first = s->p += minus;
    int64_t v = 0;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        if (v <= INT32_MAX)
            v = v * 10 + (*s->p - '0');
    bool number = s->p > first && (*first != '0' || s->p == first + 1);
    bool fraction = s->p < s->end && (*s->p == '.' || (*s->p | 32) == 'e');
    v = minus ? -v : v;
    if (!number || fraction || v < min || v > max)
        return fail_here(&start, what, err);
    *out = (int32_t)v;
    return 0;
}

static size_t skip_digits(struct pp_cursor *s)
{
    const char *first = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return (size_t)(s->p - first);
}

static int skip_number(struct pp_cursor *s, struct pp_err *err)
{
    struct pp_cursor start = *s;
    s->p += *s->p == '-';
    bool zero = s->p < s->end && *s->p == '0';
    size_t n = skip_digits(s);
    bool good = n > 0 && !(zero && n > 1);
    if (good && s->p < s->end && *s->p == '.') {
        s->p++;
        good = skip_digits(s) > 0;
    }
    if (good && s->p < s->end && (*s->p | 32) == 'e') {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        good = skip_digits(s) > 0;
    }
    return good ? 0 : fail_here(&start, "a JSON value", err);
}

static int skip_scalar(struct pp_cursor *s, struct pp_err *err)
{
    if (s->p < s->end && *s->p == '"')
        return skip_string(s, NULL, 0, err);
    if (s->p < s->end && (*s->p == '-' || (*s->p >= '0' && *s->p <= '9')))
        return skip_number(s, err);
    if (take_word(s, "true") || take_word(s, "false") || take_word(s, "null"))
        return 0;
    return fail_here(s, "a JSON value", err);
}

/* Goes past the opening of nested arrays and objects to a scalar, or to the
 * end of an empty one. Returns 1 at a scalar, 0 after a closed value. */
static int descend(struct pp_cursor *s, char *open, int *depth,
                   struct pp_err *err)
{
    for (;;) {
        skip_space(s);
        if (s->p == s->end || (*s->p != '[' && *s->p != '{'))
            return 1;
        if (*depth == MAX_DEPTH)
            return pp_fail(err, PP_EXIT_INPUT, "nested deeper than '%d'",
                           MAX_DEPTH);
        char closing = *s->p++ == '[' ? ']' : '}';
        if (pp_cursor_try(s, closing))
            return 0;
        open[(*depth)++] = closing;
        if (closing == '}' && (skip_string(s, NULL, 0, err) != 0 ||
                               pp_cursor_take(s, ':', err) != 0))
            return -1;
    }
}

int pp_cursor_skip(struct pp_cursor *s, struct pp_err *err)
{
    char open[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        int scalar = descend(s, open, &depth, err);
        if (scalar < 0 || (scalar && skip_scalar(s, err) != 0))
            return -1;
        while (depth > 0 && pp_cursor_try(s, open[depth - 1]))
            depth--;
        if (depth == 0)
            return 0;
        if (pp_cursor_take(s, ',', err) != 0)
            return -1;
        if (open[depth - 1] == '}' && (skip_string(s, NULL, 0, err) != 0 ||
                                       pp_cursor_take(s, ':', err) != 0))
            return -1;
    }
}
