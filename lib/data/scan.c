/* SPDX-License-Identifier: MIT */
/* JSON as RFC 8259 has it, no extensions. Nesting is limited, since skipping a
 * value recurses. */
#include "data/scan.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 64 };

int pp_scan_fail(const struct pp_scan *s, struct pp_err *err, const char *fmt,
                 ...)
{
    char text[sizeof err->text];
    size_t line = 1, start = 0;
    for (size_t i = 0; i < s->at && i < s->n; i++)
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pp_fail(err, PP_EXIT_INPUT, "%s: line %zu, column %zu: %s", s->name,
                   line, s->at - start + 1, text);
}

/* The byte at the position, or -1 at the end. */
static int peek(const struct pp_scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

static int peek_token(struct pp_scan *s)
{
    while (s->at < s->n && strchr(" \t\r\n", s->text[s->at]) && s->text[s->at])
        s->at++;
    return peek(s);
}

/* "expected X", and what is there instead. */
static int unexpected(const struct pp_scan *s, const char *expected,
                      struct pp_err *err)
{
    int c = peek(s);
    if (c < 0)
        return pp_scan_fail(s, err, "expected %s, got the end", expected);
    if (c > ' ' && c < 127)
        return pp_scan_fail(s, err, "expected %s, got '%c'", expected, c);
    return pp_scan_fail(s, err, "expected %s, got byte %d", expected, c);
}

int pp_scan_expect(struct pp_scan *s, char c, struct pp_err *err)
{
    const char want[] = {'\'', c, '\'', '\0'};
    if (peek_token(s) != c)
        return unexpected(s, want, err);
    s->at++;
    return 0;
}

int pp_scan_more(struct pp_scan *s, char close, size_t *n_members,
                 struct pp_err *err)
{
    const char want[] = {'\'', ',',  '\'',  ' ',  'o', 'r',
                         ' ',  '\'', close, '\'', '\0'};
    int c = peek_token(s);
    if (c == close) {
        s->at++;
        return 0;
    }
    if ((*n_members)++ == 0)
        return c < 0 ? unexpected(s, want + 7, err) : 1;
    if (c != ',')
        return unexpected(s, want, err);
    s->at++;
    return 1;
}

static int hex4(struct pp_scan *s, unsigned *out, struct pp_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (unsigned)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f' && c > 0)
            *out = *out * 16 + (unsigned)((c | 32) - 'a') + 10;
        else
            return unexpected(s, "a hexadecimal digit", err);
    }
    return 0;
}

static char *put_utf8(char *p, unsigned u)
{
    if (u < 0x80) {
        *p++ = (char)u;
    } else if (u < 0x800) {
        *p++ = (char)(0xc0 | u >> 6);
        *p++ = (char)(0x80 | (u & 63));
    } else if (u < 0x10000) {
        *p++ = (char)(0xe0 | u >> 12);
        *p++ = (char)(0x80 | (u >> 6 & 63));
        *p++ = (char)(0x80 | (u & 63));
    } else {
        *p++ = (char)(0xf0 | u >> 18);
        *p++ = (char)(0x80 | (u >> 12 & 63));
        *p++ = (char)(0x80 | (u >> 6 & 63));
        *p++ = (char)(0x80 | (u & 63));
    }
    return p;
}

/* After "\u": one code point, from two escapes when it is a surrogate. */
static int unicode_escape(struct pp_scan *s, char **p, struct pp_err *err)
{
    unsigned u, low;
    if (hex4(s, &u, err))
        return -1;
    if (u >= 0xd800 && u < 0xdc00) {
        if (s->n - s->at < 2 || memcmp(s->text + s->at, "\\u", 2))
            return pp_scan_fail(s, err, "half a surrogate pair");
        s->at += 2;
        if (hex4(s, &low, err))
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return pp_scan_fail(s, err, "half a surrogate pair");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return pp_scan_fail(s, err, "half a surrogate pair");
    }
    if (u == 0)
        return pp_scan_fail(s, err, "a name with a NUL");
    *p = put_utf8(*p, u);
    return 0;
}

/* After the backslash. */
static int escape(struct pp_scan *s, char **p, struct pp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(s);
    const char *at = c > 0 ? strchr(from, c) : NULL;
    if (at) {
        *(*p)++ = to[at - from];
        s->at++;
        return 0;
    }
    if (c != 'u')
        return unexpected(s, "an escape", err);
    s->at++;
    return unicode_escape(s, p, err);
}

/* Bytes of the well-formed UTF-8 sequence at p, 0 when it is not one (Unicode
 * table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF). */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    size_t len = p[0] < 0x80   ? 1
                 : p[0] < 0xc2 ? 0
                 : p[0] < 0xe0 ? 2
                 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf5 ? 4
                               : 0;
    if (len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* Where the string that begins at the position ends at the latest: its first
 * quote that no backslash precedes. */
static size_t string_limit(const struct pp_scan *s)
{
    size_t i = s->at;
    while (i < s->n && s->text[i] != '"')
        i += s->text[i] == '\\' ? 2 : 1;
    return i < s->n ? i : s->n;
}

int pp_scan_string(struct pp_scan *s, struct pp_arena *a, const char **out,
                   struct pp_err *err)
{
    if (peek_token(s) != '"')
        return unexpected(s, "a string", err);
    s->at++;
    /* Unescaping never lengthens. */
    char *p = pp_arena_alloc(a, string_limit(s) - s->at + 1, 1);
    if (!p)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", s->name);
    *out = p;
    while (peek(s) != '"') {
        const unsigned char *u = (const unsigned char *)s->text + s->at;
        if (peek(s) < ' ')
            return unexpected(s, "the end of a string", err);
        if (*u == '\\') {
            s->at++;
            if (escape(s, &p, err))
                return -1;
            continue;
        }
        size_t len = utf8_length(u, s->n - s->at);
        if (len == 0)
            return unexpected(s, "UTF-8", err);
        memcpy(p, u, len);
        p += len;
        s->at += len;
    }
    s->at++;
    *p = '\0';
    return 0;
}

int pp_scan_key(struct pp_scan *s, struct pp_arena *a, const char **out,
                struct pp_err *err)
{
    if (pp_scan_string(s, a, out, err))
        return -1;
    return pp_scan_expect(s, ':', err);
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

int pp_scan_u64(struct pp_scan *s, uint64_t *out, struct pp_err *err)
{
    uint64_t v = 0;
    if (!is_digit(peek_token(s)))
        return unexpected(s, "a whole number", err);
    size_t first = s->at;
    for (; is_digit(peek(s)); s->at++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(peek(s) - '0'), &v))
            return pp_scan_fail(s, err, "the number is too large");
    if (s->text[first] == '0' && s->at - first > 1)
        return pp_scan_fail(s, err, "a number with a leading 0");
    if (peek(s) == '.' || peek(s) == 'e' || peek(s) == 'E')
        return unexpected(s, "a whole number", err);
    *out = v;
    return 0;
}

static int skip_digits(struct pp_scan *s, struct pp_err *err)
{
    if (!is_digit(peek(s)))
        return unexpected(s, "a digit", err);
    while (is_digit(peek(s)))
        s->at++;
    return 0;
}

static int skip_number(struct pp_scan *s, struct pp_err *err)
{
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0')
        s->at++;
    else if (skip_digits(s, err))
        return -1;
    if (peek(s) == '.') {
        s->at++;
        if (skip_digits(s, err))
            return -1;
    }
    if (peek(s) != 'e' && peek(s) != 'E')
        return 0;
    s->at++;
    if (peek(s) == '-' || peek(s) == '+')
        s->at++;
    return skip_digits(s, err);
}

static int skip_word(struct pp_scan *s, struct pp_err *err)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (s->n - s->at >= n && !memcmp(s->text + s->at, words[i], n)) {
            s->at += n;
            return 0;
        }
    }
    return unexpected(s, "a value", err);
}

static int skip_value(struct pp_scan *s, struct pp_arena *a, int nesting,
                      struct pp_err *err)
{
    const char *text;
    size_t n = 0;
    int more, c = peek_token(s);
    if (c == '"')
        return pp_scan_string(s, a, &text, err);
    if (c == '-' || is_digit(c))
        return skip_number(s, err);
    if (c != '{' && c != '[')
        return skip_word(s, err);
    if (nesting == MAX_NESTING)
        return pp_scan_fail(s, err, "nested deeper than %d", MAX_NESTING);
    s->at++;
    while ((more = pp_scan_more(s, c == '{' ? '}' : ']', &n, err)) > 0) {
        if (c == '{' && pp_scan_key(s, a, &text, err))
            return -1;
        if (skip_value(s, a, nesting + 1, err))
            return -1;
    }
    return more;
}

int pp_scan_skip(struct pp_scan *s, struct pp_arena *a, struct pp_err *err)
{
    return skip_value(s, a, 0, err);
}

int pp_scan_end(struct pp_scan *s, struct pp_err *err)
{
    return peek_token(s) < 0 ? 0 : unexpected(s, "the end", err);
}
