/* SPDX-License-Identifier: MIT */
#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int pp_mul(size_t a, size_t b, size_t *out, struct pp_err *err)
{
    if (__builtin_mul_overflow(a, b, out))
        return pp_fail(err, PP_EXIT_SYSTEM, "%zu x %zu is too large", a, b);
    return 0;
}

static int starts_a_number(const char *s)
{
    if (*s == '-' || *s == '+')
        s++;
    return (*s >= '0' && *s <= '9') || *s == '.';
}

/* strtod also reads hexadecimal numbers. */
static int is_decimal(const char *s)
{
    return starts_a_number(s) && !strpbrk(s, "xX");
}

int pp_parse_int(const char *s, const char *what, int64_t min, int64_t max,
                 int64_t *out, struct pp_err *err)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (!starts_a_number(s) || *end || errno == EINVAL)
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not an integer", what,
                       s);
    if (errno == ERANGE || v < min || v > max)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not between %" PRId64 " and %" PRId64, what,
                       s, min, max);
    *out = v;
    return 0;
}

int pp_parse_count(const char *s, const char *what, int64_t min, int64_t max,
                   int64_t *out, struct pp_err *err)
{
    static const char letters[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    const char *letter =
        *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    unsigned shift = letter ? 10 * (unsigned)(letter - letters + 1) : 0;
    if (*s < '0' || *s > '9' || end[shift != 0])
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not a count (such as 4096 or 4K)", what, s);
    if (errno || v > (uint64_t)max >> shift || (int64_t)(v << shift) < min)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not between %" PRId64 " and %" PRId64, what,
                       s, min, max);
    *out = (int64_t)(v << shift);
    return 0;
}

bool pp_is_digits(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

/* Returns the bytes of a unit such as "g", "GB" or "GiB", or 0. */
static uint64_t unit_bytes(const char *unit)
{
    static const char letters[] = "KMGT";
    if (!*unit || !strcasecmp(unit, "B"))
        return 1;
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    bool binary = !unit[1] || !strcasecmp(unit + 1, "iB");
    if (!letter || (!binary && strcasecmp(unit + 1, "B") != 0))
        return 0;
    uint64_t bytes = 1;
    for (const char *l = letters; l <= letter; l++)
        bytes *= binary ? 1024 : 1000;
    return bytes;
}

int pp_parse_size(const char *s, const char *what, size_t *out,
                  struct pp_err *err)
{
    char *end;
    errno = 0;
    unsigned long long whole = strtoull(s, &end, 10);
    const char *point = *end == '.' ? end : NULL;
    if (point)
        end += 1 + strspn(end + 1, "0123456789");
    uint64_t unit = unit_bytes(end);
    if (*s < '0' || *s > '9' || !unit || (point && unit == 1))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not a size (such as 80GiB, 80G or 512M)",
                       what, s);
    if (errno || whole >= SIZE_MAX / unit)
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is too large", what, s);
    double part = point && end > point + 1 ? strtod(point, NULL) : 0;
    *out = (size_t)(whole * unit) + (size_t)(part * (double)unit);
    return 0;
}

int pp_parse_real(const char *s, const char *what, double min, double max,
                  double *out, struct pp_err *err)
{
    /* The tools never call setlocale, so strtod reads a decimal point. */
    char *end;
    double v = strtod(s, &end);
    if (!is_decimal(s) || *end || !isfinite(v))
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not a finite number",
                       what, s);
    if (v < min || v > max)
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not between %g and %g",
                       what, s, min, max);
    *out = v;
    return 0;
}

int pp_parse_reals(const char *s, const char *what, double min, double max,
                   double *out, size_t most, size_t *n, struct pp_err *err)
{
    for (*n = 0;; ++*n) {
        char text[64];
        double v;
        size_t length = strcspn(s, ",");
        if (length >= sizeof text)
            return pp_fail(err, PP_EXIT_INPUT, "%s: '%.*s' is too long", what,
                           (int)length, s);
        memcpy(text, s, length);
        text[length] = '\0';
        if (pp_parse_real(text, what, min, max, &v, err))
            return -1;
        if (*n < most)
            out[*n] = v;
        if (!s[length])
            break;
        s += length + 1;
    }
    ++*n;
    return 0;
}

int pp_parse_rate(const char *s, const char *what, double *out,
                  struct pp_err *err)
{
    static const char units[] = "KMGTP";
    char *end;
    double v = strtod(s, &end);
    const char *unit =
        *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (; unit && unit >= units; unit--)
        v *= 1000;
    end += *end && strchr(units, toupper((unsigned char)*end)) ? 1 : 0;
    end += *end == 'B' || *end == 'b';
    if (!strcmp(end, "/s"))
        end += 2;
    if (!is_decimal(s) || *end || !isfinite(v))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not a rate such as 400T or 50GB", what, s);
    if (v < 1 || v > 1e30)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%s' is not between 1 and 1e+30", what, s);
    *out = v;
    return 0;
}

void pp_format_real(double x, char *buf)
{
    char text[32];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    /* 10 reads better than 1e+01 and is shorter. */
    if (x == floor(x) && fabs(x) < 0x1p53) {
        char whole[32];
        snprintf(whole, sizeof whole, "%.0f", x);
        if (strlen(whole) <= strlen(text))
            memcpy(text, whole, sizeof text);
    }
    memcpy(buf, text, sizeof text);
}

size_t pp_size_of(double x)
{
    return x > 0 ? (size_t)fmin(x, 1e18) : 0;
}

void pp_format_size(size_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        u++;
    }
    snprintf(buf, 32, u ? "%.2f %s" : "%.0f %s", v, units[u]);
}

void pp_format_short_size(size_t bytes, char *buf)
{
    static const char units[][2] = {"", "K", "M", "G", "T", "P", "E"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1023.5; v /= 1024)
        u++;
    int digits = u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
    snprintf(buf, 32, "%.*f%s", digits, v, units[u]);
}
