/* SPDX-License-Identifier: MIT */
/* test_base - errors, arenas, numbers and addressed random numbers. */
#include "tap.h"

#include <errno.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/num.h"
#include "base/rng.h"

static void test_err(void)
{
    struct pp_err err = {0};
    is_int(pp_fail_at(&err, "x: "), -1, "a place alone is no error");
    is_int(err.code, PP_EXIT_OK, "and leaves none");
    is_int(pp_fail(&err, PP_EXIT_NO, "'%s' is bad", "a"), -1, "fail is -1");
    (void)pp_fail(&err, PP_EXIT_SYSTEM, "later");
    is_str(err.text, "'a' is bad", "the first error wins");
    (void)pp_fail_at(&err, "f: ");
    is_str(err.text, "f: 'a' is bad", "a place goes in front");
    is_int(err.code, PP_EXIT_NO, "the code stays");
    struct pp_err place = {0};
    ok(pp_fail_setting(&place, PP_EXIT_INPUT, "depth", "2", "deadlock") == -1,
       "a failure may name a setting");
    is_str(place.setting, "depth", "which is kept");
    is_str(place.value, "2", "with a value that would do");
    (void)pp_err_set_origin(&place, PP_ORIGIN_RANK, 0);
    (void)pp_err_set_origin(&place, PP_ORIGIN_RANK, 3);
    is_int(place.origin.rank, 0, "the first origin wins");
    is_int((long)place.origin.known, PP_ORIGIN_RANK, "and no other is known");
    struct pp_err sys = {0};
    errno = ENOENT;
    (void)pp_fail_errno(&sys, "%s", "f");
    is_str(sys.text, "f: No such file or directory", "errno is named");
    struct pp_err odd = {0};
    (void)pp_fail(&odd, PP_EXIT_INPUT, "'%s'",
                  "\033[2J\n\x7f\xc2\x9b\xe9 \u00e9");
    (void)pp_fail_at(&odd, "a\tb: ");
    is_str(odd.text, "a?b: '?[2J?\?\?\?? \u00e9'",
           "no control characters, nor what is no UTF-8");
}

static void test_arena(void)
{
    struct pp_arena a = {0};
    char *s = pp_arena_strdup(&a, "abc");
    unsigned char *big = pp_arena_alloc(&a, 1000, 1000);
    char *t = pp_arena_printf(&a, "%s-%d", s, 7);
    ok(s && big && t, "allocations of all sizes");
    is_str(t, "abc-7", "formatted");
    ok(big && big[999999] == 0, "memory is zeroed");
    pp_arena_finish(&a);
    ok(!a.blocks, "finish leaves an empty arena");
    pp_arena_finish(&a);
}

static void test_sizes(void)
{
    static const struct {
        const char *text;
        size_t bytes;
    } sizes[] = {
        {"0", 0},
        {"80", 80},
        {"80B", 80},
        {"3K", 3072},
        {"3k", 3072},
        {"3KiB", 3072},
        {"3kb", 3000},
        {"1.5M", 3 << 19},
        {"2G", 2UL << 30},
        {"80gib", 80UL << 30},
        {"7GB", 7000000000},
        {"2TB", 2000000000000},
        {"1T", 1UL << 40},
        {"0.25K", 256},
    };
    static const char *const bad[] = {"",    "G",   "1.5", "1.5B",
                                      "1KK", "1Ki", "-1G", ".5G",
                                      "1 G", "1E",  "0x1", "1G1"};
    struct pp_err err = {0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t z = 1;
        ok(!pp_parse_size(sizes[k].text, "s", &z, &err) && z == sizes[k].bytes,
           "size '%s'", sizes[k].text);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        size_t z;
        err = (struct pp_err){0};
        ok(pp_parse_size(bad[k], "s", &z, &err), "no size: '%s'", bad[k]);
    }
    size_t z;
    err = (struct pp_err){0};
    ok(pp_parse_size("99999999999G", "s", &z, &err),
       "a size that is too large");
    is_str(err.text, "s: '99999999999G' is too large", "is named");
}

static void test_counts(void)
{
    int64_t i = 0;
    struct pp_err err = {0};
    ok(!pp_parse_count("4k", "n", 1, 9999, &i, &err) && i == 4096, "count 4k");
    ok(!pp_parse_count("2M", "n", 1, INT64_MAX, &i, &err) && i == 2 << 20,
       "count 2M");
    ok(pp_parse_count("4KB", "n", 1, 9999, &i, &err), "a count has no bytes");
    is_str(err.text, "n: '4KB' is not a count (such as 4096 or 4K)",
           "and the message has examples");
    err = (struct pp_err){0};
    ok(pp_parse_count("10K", "n", 1, 9999, &i, &err),
       "a count above the range");
    is_str(err.text, "n: '10K' is not between 1 and 9999", "is named");
    err = (struct pp_err){0};
    ok(pp_parse_count("0", "n", 1, 9, &i, &err), "a count below the range");
    ok(pp_is_digits("80") && !pp_is_digits("80G") && !pp_is_digits(""),
       "a bare number is recognised");
}

static void test_parse(void)
{
    int64_t i = 0;
    double d = 0;
    struct pp_err err = {0};
    ok(!pp_parse_int("-12", "n", -20, 9, &i, &err) && i == -12, "integer");
    ok(pp_parse_int("12x", "-m", 0, 99, &i, &err), "rest is refused");
    is_str(err.text, "-m: '12x' is not an integer", "with the value");
    err = (struct pp_err){0};
    ok(pp_parse_int("100", "-m", 0, 99, &i, &err), "range is kept");
    is_str(err.text, "-m: '100' is not between 0 and 99", "and named");
    const char *bad[] = {"", " 1", "1 ", "0x10", "1e3", "nan"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        err = (struct pp_err){0};
        ok(pp_parse_int(bad[k], "n", 0, 9999, &i, &err), "not '%s'", bad[k]);
    }
    err = (struct pp_err){0};
    ok(!pp_parse_real("1e-4", "x", 0, 1, &d, &err) && d == 1e-4, "real");
    static const char *const no_reals[] = {
        "nan", "inf", "-inf", "1e999", "0x1", "0X1p-3", "1x",
        "1 ",  " 1",  "",     ".",     "-",   "1e",     "1,5"};
    for (size_t k = 0; k < sizeof no_reals / sizeof *no_reals; k++) {
        err = (struct pp_err){0};
        ok(pp_parse_real(no_reals[k], "x", 0, 1e300, &d, &err), "not '%s'",
           no_reals[k]);
    }
    double list[2];
    size_t n = 0;
    err = (struct pp_err){0};
    ok(!pp_parse_reals("1,2.5,3", "x", 0, 9, list, 2, &n, &err) && n == 3 &&
           list[0] == 1 && list[1] == 2.5,
       "a list, and the number of all");
    static const char *const no_lists[] = {"",     "1,",   ",1",
                                           "1,,2", "1,10", "1;2"};
    for (size_t k = 0; k < sizeof no_lists / sizeof *no_lists; k++) {
        err = (struct pp_err){0};
        ok(pp_parse_reals(no_lists[k], "x", 0, 9, list, 2, &n, &err),
           "no list: '%s'", no_lists[k]);
    }
    char digits[80];
    memset(digits, '1', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    err = (struct pp_err){0};
    ok(pp_parse_reals(digits, "x", 0, 1e99, list, 2, &n, &err),
       "a number that is too long");
    char buf[32];
    pp_format_real(0.1, buf);
    is_str(buf, "0.1", "shortest decimal");
    pp_format_real(1.0 / 3, buf);
    ok(strtod(buf, NULL) == 1.0 / 3, "that reads back");
    static const struct {
        double x;
        const char *text;
    } reals[] = {{10, "10"},        {1200, "1200"},     {20000, "20000"},
                 {-300, "-300"},    {0, "0"},           {-0.0, "-0"},
                 {100000, "1e+05"}, {120000, "120000"}, {1e30, "1e+30"}};
    for (size_t k = 0; k < sizeof reals / sizeof *reals; k++) {
        pp_format_real(reals[k].x, buf);
        is_str(buf, reals[k].text, "no exponent if that is not longer");
    }
    ok(pp_size_of(1e30) == (size_t)1e18 && pp_size_of(1.5) == 1 &&
           pp_size_of(-1) == 0 && pp_size_of(NAN) == 0,
       "bytes beyond a size");
    double rate = 0;
    ok(!pp_parse_rate("400T", "x", &rate, &err) && rate == 400e12 &&
           !pp_parse_rate("50GB/s", "x", &rate, &err) && rate == 50e9 &&
           !pp_parse_rate("7", "x", &rate, &err) && rate == 7,
       "rates");
    static const char *const no_rates[] = {"0",      "-1",  "1e-320",
                                           "1e300T", "0x9", "1/s/s"};
    for (size_t k = 0; k < sizeof no_rates / sizeof *no_rates; k++) {
        err = (struct pp_err){0};
        ok(pp_parse_rate(no_rates[k], "x", &rate, &err), "no rate: '%s'",
           no_rates[k]);
    }
    pp_format_size(1536, buf);
    is_str(buf, "1.50 KiB", "bytes for people");
    static const struct {
        size_t bytes;
        const char *text;
    } sizes[] = {{0, "0"},           {1023, "1023"},   {1024, "1.00K"},
                 {10239, "10.0K"},   {102399, "100K"}, {1048575, "1.00M"},
                 {SIZE_MAX, "16.0E"}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        pp_format_short_size(sizes[k].bytes, buf);
        is_str(buf, sizes[k].text, "bytes in a table");
    }
}

static void test_rng(void)
{
    uint64_t k = pp_rng_key(1, "a"), l = pp_rng_key(1, "b");
    ok(k != l && k != pp_rng_key(2, "a"), "keys differ by name and seed");
    double sum = 0, sq = 0;
    int n = 100000, out = 0;
    for (int i = 0; i < n; i++) {
        double u = pp_rng_uniform(k, (uint64_t)i);
        double x = pp_rng_normal(l, (uint64_t)i);
        out += u < 0 || u >= 1;
        sum += x;
        sq += x * x;
    }
    is_int(out, 0, "uniform stays in [0, 1)");
    is_near(sum / n, 0, 0.02, "normal has mean 0");
    is_near(sq / n, 1, 0.02, "and variance 1");
}

int main(void)
{
    test_err();
    test_arena();
    test_parse();
    test_sizes();
    test_counts();
    test_rng();
    return done();
}
