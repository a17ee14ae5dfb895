/* SPDX-License-Identifier: MIT */
/* The scanner's strings: escapes and UTF-8. */
#include "data/scan.h"

#include <string.h>

/* The byte at the position, or -1 at the end. */
static int next_byte(const struct pp_scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

static int hex4(struct pp_scan *s, unsigned *out, struct pp_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = next_byte(s);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (unsigned)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f' && c > 0)
            *out = *out * 16 + (unsigned)((c | 32) - 'a') + 10;
        else
            return pp_scan_unexpected(s, "a hexadecimal digit", err);
    }
    return 0;
}

/* Returns the number of bytes. */
static size_t put_utf8(char *out, unsigned u)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (u < 0x80) {
        *out = (char)u;
        return 1;
    }
    size_t n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, u >>= 6)
        out[i] = (char)(0x80 | (u & 63));
    *out = (char)(lead[n] | u);
    return n;
}

/* After "\u": one code point, from two escapes when it is a surrogate. */
static int unicode_escape(struct pp_scan *s, char *out, size_t *n,
                          struct pp_err *err)
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
    *n = put_utf8(out, u);
    return 0;
}

/* After the backslash: at most four bytes. */
static int scan_escape(struct pp_scan *s, char *out, size_t *n,
                       struct pp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = next_byte(s);
    const char *at = c > 0 ? strchr(from, c) : NULL;
    if (at) {
        *out = to[at - from];
        *n = 1;
        s->at++;
        return 0;
    }
    if (c != 'u')
        return pp_scan_unexpected(s, "an escape", err);
    s->at++;
    return unicode_escape(s, out, n, err);
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

/* Copies ASCII that stands for itself in a string, at most n bytes of it.
 * Returns how much there is, of which room bytes are stored. */
static size_t copy_plain(const char *p, size_t n, char *out, size_t room)
{
    size_t i;
    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c < ' ' || c >= 0x80 || c == '"' || c == '\\')
            break;
        if (i < room)
            out[i] = (char)c;
    }
    return i;
}

/* One character of a string that is escaped or not ASCII, as UTF-8: its *n
 * bytes. */
static int scan_character(struct pp_scan *s, char bytes[4], size_t *n,
                          struct pp_err *err)
{
    int c = next_byte(s);
    if (c == '\\') {
        s->at++;
        return scan_escape(s, bytes, n, err);
    }
    if (c < ' ')
        return pp_scan_unexpected(s, "the end of a string", err);
    const char *p = s->text + s->at;
    *n = utf8_length((const unsigned char *)p, s->n - s->at);
    if (*n == 0)
        return pp_scan_unexpected(s, "UTF-8", err);
    memcpy(bytes, p, *n);
    s->at += *n;
    return 0;
}

int pp_scan_text(struct pp_scan *s, char *out, size_t size, size_t *n,
                 struct pp_err *err)
{
    size_t k = 0;
    if (pp_scan_peek(s) != '"')
        return pp_scan_unexpected(s, "a string", err);
    s->at++;
    for (;;) {
        char bytes[4];
        size_t room = k < size ? size - k : 0, len;
        len = copy_plain(s->text + s->at, s->n - s->at, room ? out + k : NULL,
                         room);
        s->at += len;
        k += len;
        if (next_byte(s) == '"')
            break;
        /* In place, unless there may be no room. */
        bool fits = k + sizeof bytes <= size;
        if (scan_character(s, fits ? out + k : bytes, &len, err))
            return -1;
        for (size_t i = 0; !fits && i < len && k + i < size; i++)
            out[k + i] = bytes[i];
        k += len;
    }
    s->at++;
    *n = k;
    return 0;
}

/* Where the string that begins at the position ends at the latest: its first
 * quote that no backslash precedes. */
static size_t string_limit(const struct pp_scan *s)
{
    size_t i = s->at + 1;
    while (i < s->n && s->text[i] != '"')
        i += s->text[i] == '\\' ? 2 : 1;
    return i < s->n ? i : s->n;
}

int pp_scan_string(struct pp_scan *s, struct pp_arena *a, const char **out,
                   struct pp_err *err)
{
    if (pp_scan_peek(s) != '"')
        return pp_scan_unexpected(s, "a string", err);
    /* Unescaping never lengthens. The opening quote's byte is the NUL's. */
    size_t n = 0, size = string_limit(s) - s->at;
    char *p = pp_arena_alloc(a, size, 1);
    if (!p)
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", s->name);
    if (pp_scan_text(s, p, size - 1, &n, err))
        return -1;
    if (memchr(p, '\0', n))
        return pp_scan_fail(s, err, "a name with a NUL");
    p[n] = '\0';
    *out = p;
    return 0;
}

int pp_scan_key(struct pp_scan *s, struct pp_arena *a, const char **out,
                struct pp_err *err)
{
    if (pp_scan_string(s, a, out, err))
        return -1;
    return pp_scan_expect(s, ':', err);
}
