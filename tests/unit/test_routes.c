/* SPDX-License-Identifier: MIT */
/* test_routes - files of routes: what is written is read, at its place; every
 * change of a bit and every cut is found, and so are numbers that no router
 * chooses under a checksum that is right. */
#include <unistd.h>

#include "base/checksum.h"
#include "data/routes.h"
#include "scratch.h"
#include "tap.h"

/* Two bins of 3 and 2 positions. */
static const struct pp_routes_shape shape = {7, 2, 2, 2, 5, 99};
enum { HEADER = 56, SUM_AT = 8, SUMMED = 16, N = 2 * 2 * 5 };

static char *contents(const char *path, size_t *n)
{
    char *data = malloc(4096);
    FILE *f = fopen(path, "rb");
    *n = f ? fread(data, 1, 4096, f) : 0;
    if (f)
        fclose(f);
    return data;
}

static void test_round(const char *path)
{
    struct pp_routes_output o, second;
    struct pp_routes r;
    struct pp_err err = {0};
    const uint16_t first[] = {6, 0}, last[] = {3, 5};
    size_t place = pp_routes_place(&shape, 3, 2, 1, 1);
    is_int((long long)place, N - 2, "the last place");
    is_int((long long)pp_routes_place(&shape, 0, 3, 1, 0), 6,
           "the second layer of the first bin");
    ok(!pp_routes_create(&o, path, &shape, &err) &&
           !pp_routes_join(&second, path, o.tmp.path, &shape, &err) &&
           !pp_routes_write(&o, 0, first, 2, &err) &&
           !pp_routes_write(&second, place, last, 2, &err),
       "two writers");
    pp_routes_abort(&second);
    ok(access(path, F_OK) != 0 && !pp_routes_commit(&o, &err) &&
           access(path, F_OK) == 0,
       "a file appears when it is complete");
    ok(!pp_routes_open(path, &shape, &r, &err), "it is read");
    bool none = true;
    for (size_t i = 2; i < N - 2; i++)
        none = none && r.experts[i] == PP_NO_EXPERT;
    ok(none && !memcmp(r.experts, first, sizeof first) &&
           !memcmp(r.experts + place, last, sizeof last),
       "places have what was written, others have none");
    pp_routes_close(&r);
    is_str(err.text, "", "no errors");
}

/* Returns the error of reading n bytes in memory. */
static struct pp_err parse(const void *data, size_t n)
{
    struct pp_routes r;
    struct pp_err err = {0};
    if (!pp_routes_parse(data, n, &r, &err))
        err.code = PP_EXIT_OK;
    return err;
}

static void test_damage(const char *path)
{
    size_t n;
    char *data = contents(path, &n);
    bool found = true;
    is_int((long long)n, HEADER + 2 * N, "the bytes of the file");
    for (size_t i = 0; i < 8 * n; i++) {
        data[i / 8] ^= (char)(1 << i % 8);
        found = found && parse(data, n).code == PP_EXIT_INPUT;
        data[i / 8] ^= (char)(1 << i % 8);
    }
    ok(found, "every flipped bit is found");
    for (size_t i = 0; i < n; i++)
        found = found && parse(data, i).code == PP_EXIT_INPUT;
    ok(found, "every cut is found");
    is_int(parse(data, n).code, PP_EXIT_OK, "the file itself is read");
    free(data);
}

/* Changes a number in a file and makes its checksum right. */
static void refused(const char *path, size_t at, uint16_t value,
                    const char *want)
{
    size_t n;
    char *data = contents(path, &n);
    memcpy(data + at, &value, sizeof value);
    uint64_t sum = pp_checksum_of(data + SUMMED, n - SUMMED);
    memcpy(data + SUM_AT, &sum, sizeof sum);
    is_str(parse(data, n).text, want, want);
    free(data);
}

static void test_refused(const char *path)
{
    struct pp_routes r;
    struct pp_routes_shape other = shape;
    struct pp_err err = {0};
    refused(path, HEADER, 7,
            "place '0' does not have distinct experts below 7");
    refused(path, HEADER, 0,
            "place '0' does not have distinct experts below 7");
    refused(path, HEADER, PP_NO_EXPERT,
            "place '0' does not have distinct experts below 7");
    refused(path, HEADER + 2 * (N - 1), PP_NO_EXPERT,
            "place '9' does not have distinct experts below 7");
    refused(path, 16, 2, "version '2' is not this program's 1");
    refused(path, 28, 8, "'8' experts of '7' for a token are impossible");
    refused(path, 24, 3,
            "has '96' bytes, which are not those of its header; it may be cut");
    refused(path, 46, UINT16_MAX,
            "has '96' bytes, which are not those of its header; it may be cut");
    other.data = 98;
    ok(pp_routes_open(path, &other, &r, &err) && err.code == PP_EXIT_INPUT &&
           strstr(err.text, "is for data whose sequences have the hash "
                            "'0000000000000063', and these have "
                            "0000000000000062"),
       "other data");
    other = shape;
    other.n_layers = 3;
    err = (struct pp_err){0};
    ok(pp_routes_open(path, &other, &r, &err) &&
           strstr(err.text, "has '2' layers with experts, but the model has 3"),
       "another model");
}

/* A file that is not completed leaves nothing. */
static void test_abort(const char *path)
{
    struct pp_routes_output o;
    struct pp_routes_shape large = shape;
    struct pp_err err = {0};
    char tmp[4096];
    ok(!pp_routes_create(&o, path, &shape, &err), "a second file");
    snprintf(tmp, sizeof tmp, "%s", o.tmp.path);
    pp_routes_abort(&o);
    ok(access(tmp, F_OK) != 0 && access(path, F_OK) == 0,
       "is removed, and the first one stays");
    large.n_experts = PP_NO_EXPERT + 1;
    ok(pp_routes_create(&o, path, &large, &err) && err.code == PP_EXIT_INPUT,
       "too many experts");
}

int main(void)
{
    char dir[SCRATCH_TEXT], path[64];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/routes", dir);
    test_round(path);
    test_damage(path);
    test_refused(path);
    test_abort(path);
    scratch_remove(dir);
    return done();
}
