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
    struct pp_err sys = {0};
    errno = ENOENT;
    (void)pp_fail_errno(&sys, "%s", "f");
    is_str(sys.text, "f: No such file or directory", "errno is named");
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
    ok(!pp_arena_alloc(&a, SIZE_MAX / 2, 4), "overflow is NULL");
    pp_arena_finish(&a);
    ok(!a.blocks, "finish leaves an empty arena");
    pp_arena_finish(&a);
}

static void test_parse(void)
{
    int64_t i = 0;
    size_t z = 0;
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
    ok(!pp_parse_size("3K", "s", &z, &err) && z == 3072, "K");
    ok(!pp_parse_size("2G", "s", &z, &err) && z == (size_t)2 << 30, "G");
    ok(pp_parse_size("1KB", "s", &z, &err), "KB is refused");
    err = (struct pp_err){0};
    ok(pp_parse_size("99999999999G", "s", &z, &err), "too large");
    err = (struct pp_err){0};
    ok(!pp_parse_real("1e-4", "x", 0, 1, &d, &err) && d == 1e-4, "real");
    ok(pp_parse_real("nan", "x", 0, 1, &d, &err), "nan is refused");
    char buf[32];
    pp_format_real(0.1, buf);
    is_str(buf, "0.1", "shortest decimal");
    pp_format_real(1.0 / 3, buf);
    ok(strtod(buf, NULL) == 1.0 / 3, "that reads back");
    pp_format_size(1536, buf);
    is_str(buf, "1.50 KiB", "bytes for people");
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
    test_rng();
    return done();
}
