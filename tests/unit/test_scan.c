/* SPDX-License-Identifier: MIT */
/* test_scan - scans arrays of numbers: the fast path must give the same as the
 * plain rule of JSON, whatever is between and after the numbers. */
#include "base/rng.h"
#include "data/scan.h"
#include "tap.h"

enum { MOST = 64 };

/* Scans text. Returns the number of elements, or -1. */
static int scan(const char *text, size_t n, int32_t min, int32_t max,
                int32_t out[MOST], size_t *at, struct pp_err *err)
{
    struct pp_scan s = {.text = text, .n = n, .name = "text"};
    size_t count = 0;
    *err = (struct pp_err){0};
    int rc = pp_scan_int32s(&s, min, max, "a number", out, &count, err);
    *at = s.at;
    return rc ? -1 : (int)count;
}

/* Numbers of any length, with all kinds of blanks. */
static void test_random(void)
{
    static const char *const between[] = {",", ", ", " ,", ",\t", " , ", ",  "};
    uint64_t key = pp_rng_key(11, "scan"), draw = 0;
    size_t wrong = 0;
    for (int r = 0; r < 20000; r++) {
        char text[1024] = "[";
        int32_t want[MOST], got[MOST];
        size_t at = 1, end;
        int n = (int)(pp_rng_bits(key, draw++) % 12);
        for (int i = 0; i < n; i++) {
            uint64_t bits = pp_rng_bits(key, draw++);
            want[i] = (int32_t)(bits >> 33 >> (bits & 31));
            if (bits & 32)
                want[i] = -want[i];
            const char *comma = between[bits >> 8 & 63 ? 1 : bits >> 14 & 3];
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d",
                                   i ? comma : "", want[i]);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "]");
        size_t whole = at;
        snprintf(text + at, sizeof text - at, ", 12345678");
        struct pp_err err;
        /* Try it with and without bytes after it. */
        for (int more = 0; more < 2; more++)
            wrong += scan(text, more ? strlen(text) : whole, INT32_MIN,
                          INT32_MAX, got, &end, &err) != n ||
                     end != whole ||
                     memcmp(got, want, (size_t)n * sizeof *got) != 0;
    }
    is_int((long long)wrong, 0, "arrays are read back");
}

/* Each must be refused at the wrong element. */
static void test_refused(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"[1, 2, 012, 3, 4, 5, 6, 7]", "got '012'"},
        {"[1, 2, 1.5, 3, 4, 5, 6, 7]", "got '1.5'"},
        {"[1, 2, 1e5, 3, 4, 5, 6, 7]", "got '1e5'"},
        {"[1, 2, 1001, 3, 4, 5, 6, 7]", "got '1001'"},
        {"[1, 2, -101, 3, 4, 5, 6, 7]", "got '-101'"},
        {"[1, 2, -, 3, 4, 5, 6, 7, 8]", "got '-'"},
        {"[1, 2,, 3, 4, 5, 6, 7, 8]", "got ','"},
        {"[1, 2, 3, 4, 5, 6, 7, 8, ]", "got ']'"},
        {"[1, 2 3, 4, 5, 6, 7, 8, 9]", "got '3'"},
        {"[1, 2:3, 4, 5, 6, 7, 8, 9]", "got ':'"},
        {"[1, 2, 99999999999999999999]", "got '99999999999999999999'"},
        {"[1, 2, 3, 4, 5, 6, 7, 8", "got the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t out[MOST];
        size_t at;
        struct pp_err err;
        int rc = scan(cases[i].text, strlen(cases[i].text), -100, 1000, out,
                      &at, &err);
        ok(rc < 0 && strstr(err.text, cases[i].want), "%s: %s", cases[i].text,
           err.text);
    }
}

int main(void)
{
    test_random();
    test_refused();
    return done();
}
