/* SPDX-License-Identifier: MIT */
/* test_checksum - checksums against values that xxhsum(1) printed, in parts and
 * of mapped files, and lists of files that are checked at once or beside. */
#include "base/checksum.h"
#include "base/file.h"
#include "data/file_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "tap.h"

/* More than the bytes that pp_checksum_map takes at once, and no multiple. */
enum { N_BYTES = (5 << 20) + 4321 };

static void test_values(void)
{
    static const char fox[] = "The quick brown fox";
    struct pp_checksum_sum s;
    struct pp_err err = {0};
    ok(pp_checksum_of("", 0) == 0x2d06800538d394c2, "XXH3 of nothing");
    ok(pp_checksum_of(fox, strlen(fox)) == UINT64_C(0xf8b92649fd8122b4),
       "XXH3 of a text");
    ok(pp_checksum_begin(&s, &err) == 0, "begin");
    for (size_t i = 0; i < strlen(fox); i++)
        pp_checksum_add(&s, fox + i, 1);
    ok(pp_checksum_value(&s) == UINT64_C(0xf8b92649fd8122b4), "byte by byte");
    pp_checksum_finish(&s);
    pp_checksum_finish(&s);
}

/* Writes a file of N_BYTES to path and maps it. */
static const char *make_file(const char *path, struct pp_err *err)
{
    char *data = malloc(N_BYTES);
    const void *map = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < N_BYTES; i++)
        data[i] = (char)(i * 2654435761u >> 7);
    FILE *f = fopen(path, "wb");
    bool good = fwrite(data, 1, N_BYTES, f) == N_BYTES;
    fclose(f);
    free(data);
    ok(good && pp_file_map(path, &map, &bytes, err) == 0 && bytes == N_BYTES,
       "a file: %s", err->text);
    return map;
}

static bool stop_at_third(void *ctx)
{
    return ++*(int *)ctx == 3;
}

static void test_map(const char *map)
{
    struct pp_err err = {0};
    uint64_t value = 0;
    int calls = 0;
    ok(pp_checksum_map(map, N_BYTES, NULL, NULL, &value, &err) == 0 &&
           value == pp_checksum_of(map, N_BYTES),
       "a mapped file");
    ok(pp_checksum_map(map, N_BYTES, stop_at_third, &calls, &value, &err) ==
               0 &&
           calls == 3,
       "it stops when it is told to");
}

/* Appends the file twenty times. The checksum of the last one is `wrong`
 * off. */
static void make_list(struct pp_file_checks *c, const char *map, uint64_t wrong)
{
    struct pp_err err = {0};
    uint64_t sum = pp_checksum_of(map, N_BYTES);
    int bad = 0;
    for (int i = 0; i < 19; i++)
        bad |= pp_file_checks_add(c, "dir", "good", map, N_BYTES, sum, &err);
    sum += wrong;
    bad |= pp_file_checks_add(c, NULL, "last", map, N_BYTES, sum, &err);
    if (bad)
        ok(false, "a list: %s", err.text);
}

static void test_list(const char *map)
{
    for (uint64_t wrong = 0; wrong < 2; wrong++) {
        struct pp_file_checks list = {0};
        struct pp_background_check *b;
        struct pp_err err = {0}, beside = {0};
        int want = wrong ? -1 : 0;
        make_list(&list, map, wrong);
        ok(pp_file_checks_bytes(&list) == (size_t)20 * N_BYTES, "a list");
        ok(pp_file_checks_run(&list, &err) == want, "at once: %s", err.text);
        ok(pp_background_check_start(&list, &b, &beside) == 0 && list.n == 0,
           "a thread takes the list");
        ok(pp_background_check_wait(b, &beside) == want, "beside: %s",
           beside.text);
        ok(pp_background_check_failed(b) == (wrong != 0) &&
               err.code == beside.code && !strcmp(err.text, beside.text),
           "both say the same");
        if (wrong)
            ok(err.code == PP_EXIT_INPUT &&
                   !strcmp(err.text,
                           "last: wrong checksum: the file is damaged"),
               "and name the file");
        pp_background_check_destroy(b);
    }
}

/* A thread with 20 GB to read ends when it is told to. */
static void test_destroy(const char *map)
{
    struct pp_file_checks list = {0};
    struct pp_background_check *b;
    struct pp_err err = {0};
    for (int i = 0; i < 200; i++)
        make_list(&list, map, 0);
    ok(pp_background_check_start(&list, &b, &err) == 0, "a long list");
    pp_background_check_destroy(b);
    pp_background_check_destroy(NULL);
    ok(true, "ends early");
}

int main(void)
{
    char base[SCRATCH_TEXT], path[SCRATCH_TEXT + 8];
    struct pp_err err = {0};
    scratch_make(base);
    snprintf(path, sizeof path, "%s/file", base);
    test_values();
    const char *map = make_file(path, &err);
    test_map(map);
    test_list(map);
    test_destroy(map);
    pp_file_unmap(map, N_BYTES);
    scratch_remove(base);
    return done();
}
