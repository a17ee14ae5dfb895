/* SPDX-License-Identifier: MIT */
/* tap - prints the results of a unit test in the Test Anything Protocol.
 *
 * The functions are defined in the header on purpose: a test is one file. */
#ifndef PP_TESTS_TAP_H
#define PP_TESTS_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tap {
    int n, failed;
};
static struct tap tap;

/* Prints one result. fmt is the expectation. Returns condition. */
__attribute__((format(printf, 2, 3), unused)) static bool
ok(bool condition, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%sok %d - ", condition ? "" : "not ", ++tap.n);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    fflush(stdout);
    tap.failed += !condition;
    return condition;
}

__attribute__((unused)) static bool is_int(long long got, long long want,
                                           const char *what)
{
    bool same = ok(got == want, "%s", what);
    if (!same)
        printf("# got %lld, expected %lld\n", got, want);
    return same;
}

__attribute__((unused)) static bool is_str(const char *got, const char *want,
                                           const char *what)
{
    bool same = ok(!strcmp(got, want), "%s", what);
    if (!same)
        printf("# got      '%s'\n# expected '%s'\n", got, want);
    return same;
}

/* Passes if |got - want| <= tolerance * max(1, |want|). Not-a-number fails. */
__attribute__((unused)) static bool is_near(double got, double want,
                                            double tolerance, const char *what)
{
    double scale = fabs(want) > 1 ? fabs(want) : 1;
    bool same = ok(fabs(got - want) <= tolerance * scale, "%s", what);
    if (!same)
        printf("# got %.17g, expected %.17g\n", got, want);
    return same;
}

/* Ends the test: its input cannot be made, or read. */
__attribute__((format(printf, 1, 2), noreturn, unused)) static void
give_up(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("Bail out! ");
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    exit(1);
}

__attribute__((unused)) static void skip(const char *what, const char *why)
{
    printf("ok %d - %s # SKIP %s\n", ++tap.n, what, why);
}

/* Returns how many cases share one that runs: FEWER, which scripts/test sets
 * for builds with sanitizers, or 1. */
__attribute__((unused)) static int fewer(void)
{
    const char *text = getenv("FEWER");
    int n = text ? atoi(text) : 1;
    return n > 0 ? n : 1;
}

/* Prints the plan. Returns main's exit status. */
__attribute__((unused)) static int done(void)
{
    printf("1..%d\n", tap.n);
    return tap.failed != 0;
}

#endif
