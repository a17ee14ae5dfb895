/* SPDX-License-Identifier: MIT */
/* scan - the tokenizer. An error is placed where the wrong token begins.
 * Nesting is limited, since skipping a value recurses. It is one file so that
 * the small functions of the fast paths are inlined. */
#include "data/scan.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TWENTY_DIGITS UINT64_C(10000000000000000000)

enum { MAX_NESTING = 200, MAX_QUOTE = 24 };

int pp_scan_fail(const struct pp_scan *s, struct pp_err *err, const char *fmt,
                 ...)
{
    char text[sizeof err->text];
    size_t line = s->lines_before + 1, start = 0;
    for (size_t i = 0; i < s->at && i < s->n; i++)
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    if (s->placed && err->code == PP_EXIT_OK)
        *s->placed = true;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pp_fail(err, PP_EXIT_INPUT, "%s: line %zu, column %zu: %s", s->name,
                   line, s->at - start + 1, text);
}

/* Returns the byte at the position, or -1 at the end. */
static int byte_at(const struct pp_scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

int pp_scan_peek(struct pp_scan *s)
{
    while (s->at < s->n && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                            s->text[s->at] == '\t' || s->text[s->at] == '\r'))
        s->at++;
    return byte_at(s);
}

/* Quotes a mark, or a run of bytes that looks like a number or a word. */
int pp_scan_unexpected(const struct pp_scan *s, const char *expected,
                       struct pp_err *err)
{
    const char *p = s->text + s->at;
    size_t n = 0;
    int c = byte_at(s);
    if (c < 0)
        return pp_scan_fail(s, err, "expected %s, got the end", expected);
    if (c <= ' ' || c >= 127)
        return pp_scan_fail(s, err, "expected %s, got byte %d", expected, c);
    while (n < s->n - s->at && n < MAX_QUOTE && p[n] > ' ' && p[n] < 127 &&
           !strchr("[]{}:,\"", p[n]))
        n++;
    return pp_scan_fail(s, err, "expected %s, got '%.*s'", expected,
                        n ? (int)n : 1, p);
}

int pp_scan_end(struct pp_scan *s, struct pp_err *err)
{
    return pp_scan_peek(s) < 0 ? 0 : pp_scan_unexpected(s, "the end", err);
}

int pp_scan_expect(struct pp_scan *s, char c, struct pp_err *err)
{
    const char want[] = {'\'', c, '\'', '\0'};
    if (pp_scan_peek(s) != c)
        return pp_scan_unexpected(s, want, err);
    s->at++;
    return 0;
}

static int expected_more(const struct pp_scan *s, bool first, char close,
                         struct pp_err *err)
{
    const char want[] = {'\'', ',',  '\'',  ' ',  'o', 'r',
                         ' ',  '\'', close, '\'', '\0'};
    return pp_scan_unexpected(s, first ? want + 7 : want, err);
}

static inline int more(struct pp_scan *s, char close, size_t *n_members,
                       struct pp_err *err)
{
    int c = pp_scan_peek(s);
    if (c == close) {
        s->at++;
        return 0;
    }
    bool first = (*n_members)++ == 0;
    if (c < 0 || (!first && c != ','))
        return expected_more(s, first, close, err);
    s->at += !first;
    return 1;
}

int pp_scan_more(struct pp_scan *s, char close, size_t *n_members,
                 struct pp_err *err)
{
    return more(s, close, n_members, err);
}

static int hex4(struct pp_scan *s, unsigned *out, struct pp_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = byte_at(s);
        if (c >= '0' && c <= '9')
            *out = *out * 16 + (unsigned)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f' && c > 0)
            *out = *out * 16 + (unsigned)((c | 32) - 'a') + 10;
        else
            return pp_scan_unexpected(s, "a hexadecimal digit", err);
    }
    return 0;
}

/* Stores a code point. Returns its number of bytes. */
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

/* Reads what follows "\u": one code point; a surrogate pair is two escapes. */
static int unicode_escape(struct pp_scan *s, char *out, size_t *n,
                          struct pp_err *err)
{
    unsigned u, low;
    if (hex4(s, &u, err))
        return -1;
    if (u >= 0xd800 && u < 0xdc00) {
        if (s->n - s->at < 2 || memcmp(s->text + s->at, "\\u", 2))
            return pp_scan_fail(s, err, "incomplete surrogate pair");
        s->at += 2;
        if (hex4(s, &low, err))
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return pp_scan_fail(s, err, "incomplete surrogate pair");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return pp_scan_fail(s, err, "incomplete surrogate pair");
    }
    *n = put_utf8(out, u);
    return 0;
}

/* Reads what follows a backslash: at most four bytes. */
static int scan_escape(struct pp_scan *s, char *out, size_t *n,
                       struct pp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = byte_at(s);
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

/* Returns the bytes of the well-formed UTF-8 sequence at p, or 0 if there is
 * none (Unicode table 3-7: no overlong forms, no surrogates, nothing above
 * U+10FFFF). */
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

/* Copies plain ASCII, at most n bytes. Returns the bytes; as many as fit into
 * room are stored. */
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

/* Reads one character that is escaped or not ASCII, as *n bytes of UTF-8. */
static int scan_character(struct pp_scan *s, char bytes[4], size_t *n,
                          struct pp_err *err)
{
    int c = byte_at(s);
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
        if (byte_at(s) == '"')
            break;
        /* Write in place if there is room for any character. */
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

/* Returns the first quote without a backslash, which ends the string at the
 * position. */
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
    /* Unescaping never lengthens. The opening quote leaves a byte for the
     * NUL. */
    size_t n = 0, size = string_limit(s) - s->at;
    char *p = pp_arena_alloc(a, size, 1);
    if (pp_scan_text(s, p, size - 1, &n, err))
        return -1;
    if (memchr(p, '\0', n))
        return pp_scan_fail(s, err, "the name has a NUL");
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

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* Consumes the digits of an integer. Returns false if there are none or too
 * many, if a 0 leads, or if a fraction or exponent follows. */
static inline bool scan_whole(struct pp_scan *s, uint64_t *out)
{
    const char *first = s->text + s->at, *end = s->text + s->n, *p = first;
    uint64_t v = 0;
    for (; p < end && is_digit(*p); p++)
        v = v * 10 + (uint64_t)(*p - '0');
    size_t n = (size_t)(p - first);
    /* Twenty digits that do not fit wrap to less than the least of twenty. */
    bool large = n > 20 || (n == 20 && (*first > '1' || v < TWENTY_DIGITS));
    if (n == 0 || large || (*first == '0' && n > 1) ||
        (p < end && (*p == '.' || *p == 'e' || *p == 'E')))
        return false;
    s->at += n;
    *out = v;
    return true;
}

int pp_scan_u64(struct pp_scan *s, uint64_t *out, struct pp_err *err)
{
    pp_scan_peek(s);
    return scan_whole(s, out) ? 0
                              : pp_scan_unexpected(s, "a whole number", err);
}

static inline bool scan_int32(struct pp_scan *s, int32_t min, int32_t max,
                              int32_t *out)
{
    uint64_t v;
    bool minus = pp_scan_peek(s) == '-';
    size_t first = s->at;
    s->at += minus;
    if (scan_whole(s, &v) && v <= INT32_MAX) {
        *out = minus ? -(int32_t)v : (int32_t)v;
        if (*out >= min && *out <= max)
            return true;
    }
    s->at = first;
    return false;
}

int pp_scan_int32(struct pp_scan *s, int32_t min, int32_t max, const char *what,
                  int32_t *out, struct pp_err *err)
{
    return scan_int32(s, min, max, out) ? 0 : pp_scan_unexpected(s, what, err);
}

/* Reads one to seven digits at the start of eight bytes. Returns how many there
 * are, or 0 if there are none or more, or if a 0 leads. It examines all eight
 * as one little-endian word: numbers differ in length, so a branch on each byte
 * would be mispredicted once per number. */
static inline size_t seven_digits(const char *p, uint32_t *out)
{
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                  "little endian machines only");
    uint64_t word, other;
    memcpy(&word, p, sizeof word);
    word ^= UINT64_C(0x3030303030303030);
    /* The top bit of each byte above 9; a carry only reaches later ones. */
    other = (word | (word + UINT64_C(0x7676767676767676))) &
            UINT64_C(0x8080808080808080);
    size_t n = other ? (size_t)__builtin_ctzll(other) / 8 : 0;
    if (n == 0 || (n > 1 && *p == '0'))
        return 0;
    word <<= 64 - 8 * n;
    word = (word * 10 + (word >> 8)) & UINT64_C(0x00ff00ff00ff00ff);
    word = (word * 100 + (word >> 16)) & UINT64_C(0x0000ffff0000ffff);
    *out = (uint32_t)(word * 10000 + (word >> 32));
    return n;
}

/* Steps over a byte, and keeps the compiler from turning the branch around it
 * into arithmetic: then the next number would wait for the byte. A branch that
 * always goes the same way costs nothing. */
static inline const char *step_over(const char *p)
{
    p++;
    __asm__("" : "+r"(p));
    return p;
}

/* Reads elements while they are short and separated by a comma and at most one
 * blank. Stops after the last one; the caller handles anything else and all
 * errors. Returns the number of elements. */
static size_t plain_int32s(struct pp_scan *s, int32_t min, int32_t max,
                           int32_t *out)
{
    enum { SPACE = 1, SIGN = 1, WORD = 8, NEXT = 1 };
    const char *p = s->text + s->at, *end = s->text + s->n;
    size_t n = 0;
    while (end - p >= SPACE + SIGN + WORD + NEXT) {
        uint32_t v = 0;
        if (*p == ' ')
            p = step_over(p);
        bool minus = *p == '-';
        if (minus)
            p = step_over(p);
        size_t digits = seven_digits(p, &v);
        int32_t value = minus ? -(int32_t)v : (int32_t)v;
        p += digits;
        if (!digits || (*p != ',' && *p != ']') || value < min || value > max)
            break;
        out[n++] = value;
        s->at = (size_t)(p - s->text);
        if (*p++ == ']')
            break;
    }
    return n;
}

int pp_scan_int32s(struct pp_scan *s, int32_t min, int32_t max,
                   const char *what, int32_t *out, size_t *n,
                   struct pp_err *err)
{
    size_t k = 0;
    int follows;
    if (pp_scan_expect(s, '[', err))
        return -1;
    while ((follows = more(s, ']', &k, err)) > 0) {
        size_t n_plain = plain_int32s(s, min, max, &out[k - 1]);
        if (n_plain)
            k += n_plain - 1;
        else if (!scan_int32(s, min, max, &out[k - 1]))
            return pp_scan_unexpected(s, what, err);
    }
    *n = k;
    return follows;
}

static inline bool scan_word(struct pp_scan *s, const char *text, size_t n)
{
    if (s->n - s->at < n || memcmp(s->text + s->at, text, n))
        return false;
    s->at += n;
    return true;
}

bool pp_scan_bool(struct pp_scan *s, bool *out)
{
    pp_scan_peek(s);
    *out = scan_word(s, "true", 4);
    return *out || scan_word(s, "false", 5);
}

static int skip_digits(struct pp_scan *s, struct pp_err *err)
{
    if (!is_digit(byte_at(s)))
        return pp_scan_unexpected(s, "a digit", err);
    while (is_digit(byte_at(s)))
        s->at++;
    return 0;
}

static int skip_number(struct pp_scan *s, struct pp_err *err)
{
    if (byte_at(s) == '-')
        s->at++;
    if (byte_at(s) == '0')
        s->at++;
    else if (skip_digits(s, err))
        return -1;
    if (byte_at(s) == '.') {
        s->at++;
        if (skip_digits(s, err))
            return -1;
    }
    if (byte_at(s) != 'e' && byte_at(s) != 'E')
        return 0;
    s->at++;
    if (byte_at(s) == '-' || byte_at(s) == '+')
        s->at++;
    return skip_digits(s, err);
}

static int skip_value(struct pp_scan *s, int nesting, struct pp_err *err)
{
    size_t n = 0, length;
    bool value;
    int more, c = pp_scan_peek(s);
    if (c == '"')
        return pp_scan_text(s, NULL, 0, &length, err);
    if (c == '-' || is_digit(c))
        return skip_number(s, err);
    if (pp_scan_bool(s, &value) || scan_word(s, "null", 4))
        return 0;
    if (c != '{' && c != '[')
        return pp_scan_unexpected(s, "a value", err);
    if (nesting == MAX_NESTING)
        return pp_scan_fail(s, err, "nested deeper than %d", MAX_NESTING);
    s->at++;
    while ((more = pp_scan_more(s, c == '{' ? '}' : ']', &n, err)) > 0) {
        if (c == '{' && (pp_scan_text(s, NULL, 0, &length, err) ||
                         pp_scan_expect(s, ':', err)))
            return -1;
        if (skip_value(s, nesting + 1, err))
            return -1;
    }
    return more;
}

int pp_scan_skip(struct pp_scan *s, struct pp_err *err)
{
    return skip_value(s, 0, err);
}
