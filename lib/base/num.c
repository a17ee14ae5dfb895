/* SPDX-License-Identifier: MIT */
#include "base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int pp_parse_size(const char *s, const char *what, size_t *out,
                  struct pp_err *err)
{
    char *end;
    unsigned shift = 0;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (*s < '0' || *s > '9')
        goto bad;
    if (*end == 'K')
        shift = 10;
    else if (*end == 'M')
        shift = 20;
    else if (*end == 'G')
        shift = 30;
    if (end[shift != 0])
        goto bad;
    if (errno || v > (SIZE_MAX >> shift))
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is too large", what, s);
    *out = (size_t)v << shift;
    return 0;
bad:
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: '%s' is not a size (digits, then K, M or G)", what, s);
}

int pp_parse_real(const char *s, const char *what, double min, double max,
                  double *out, struct pp_err *err)
{
    /* The tools never call setlocale, so strtod reads a decimal point. */
    char *end;
    double v = strtod(s, &end);
    if (!starts_a_number(s) || *end || !isfinite(v))
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not a finite number",
                       what, s);
    if (v < min || v > max)
        return pp_fail(err, PP_EXIT_INPUT, "%s: '%s' is not between %g and %g",
                       what, s, min, max);
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
    memcpy(buf, text, sizeof text);
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
