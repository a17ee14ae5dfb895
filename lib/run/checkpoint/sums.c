/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"
#include "data/file_check.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"

enum { DIGITS = 16 };
static const char head[] = "# XXH3 of the other lines = ";
static const char before_name[] = "XXH3 (", after_name[] = ") = ";

int pp_ckpt_sums_add(struct pp_ckpt_sums *s, const char *name, uint64_t value,
                     struct pp_err *err)
{
    if (pp_try_array_reserve(&s->at, &s->capacity, s->n + 1, sizeof *s->at,
                             err))
        return -1;
    char *copy = strdup(name);
    if (!copy)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    s->at[s->n++] = (struct pp_ckpt_sum){copy, value};
    return 0;
}

void pp_ckpt_sums_finish(struct pp_ckpt_sums *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->at[i].name);
    free(s->at);
    *s = (struct pp_ckpt_sums){0};
}

/* --- writing --- */

int pp_ckpt_sums_put(struct pp_ckpt_sums *s, const char *checkpoint,
                     const char *name, const char *text, size_t n,
                     struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    return pp_path(path, err, "%s/%s", checkpoint, name) ||
                   pp_file_write(path, text, n, err) ||
                   pp_ckpt_sums_add(s, name, pp_checksum_of(text, n), err)
               ? -1
               : 0;
}

int pp_ckpt_sums_write(const struct pp_ckpt_sums *s, const char *checkpoint,
                       struct pp_err *err)
{
    char path[PP_PATH_TEXT], *text = NULL;
    const size_t first = sizeof head - 1 + DIGITS + 1;
    size_t n = 0;
    if (pp_path(path, err, "%s/" PP_CKPT_SUMS, checkpoint))
        return -1;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return pp_fail_errno(err, "%s", path);
    fprintf(f, "%s%0*d\n", head, DIGITS, 0);
    for (size_t i = 0; i < s->n; i++)
        fprintf(f, "%s%s%s%0*" PRIx64 "\n", before_name, s->at[i].name,
                after_name, DIGITS, s->at[i].value);
    if ((ferror(f) | fclose(f)) != 0) {
        free(text);
        return pp_fail(err, PP_EXIT_SYSTEM, "%s: out of memory", path);
    }
    char digits[DIGITS + 1];
    snprintf(digits, sizeof digits, "%0*" PRIx64, DIGITS,
             pp_checksum_of(text + first, n - first));
    memcpy(text + sizeof head - 1, digits, DIGITS);
    int rc = pp_file_write(path, text, n, err);
    free(text);
    return rc;
}

/* --- reading --- */

/* Reads the digits that end a line at `end`. */
static bool read_digits(const char *at, const char *end, uint64_t *value)
{
    static const char digits[] = "0123456789abcdef";
    if (end - at != DIGITS)
        return false;
    for (*value = 0; at < end; at++) {
        const char *digit = *at ? strchr(digits, *at) : NULL;
        if (!digit)
            return false;
        *value = *value << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static bool begins(const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

/* Returns whether the path stays inside the checkpoint. */
static bool is_inside(const char *name)
{
    if (*name == '\0' || *name == '/')
        return false;
    for (const char *p = name; *p; p += strspn(p, "/")) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += n;
    }
    return true;
}

/* Reads a line of the list, which ends before `end`. */
static int read_line(const char *path, const char *at, const char *end,
                     struct pp_ckpt_sums *s, struct pp_err *err)
{
    char name[PP_PATH_TEXT];
    uint64_t value;
    size_t before = sizeof before_name - 1, after = sizeof after_name - 1;
    size_t n = (size_t)(end - at);
    size_t name_n = n - before - after - DIGITS; /* valid if n is enough */
    if (n < before + after + DIGITS || !begins(at, end, before_name) ||
        !begins(at + before + name_n, end, after_name) ||
        !read_digits(end - DIGITS, end, &value))
        return pp_fail(err, PP_EXIT_INPUT, "%s: line %zu is malformed", path,
                       s->n + 2);
    if (name_n >= sizeof name)
        name_n = sizeof name - 1;
    if (pp_path(name, err, "%.*s", (int)name_n, at + before))
        return -1;
    if (!is_inside(name))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: '%.200s' is not in the checkpoint", path, name);
    return pp_ckpt_sums_add(s, name, value, err);
}

int pp_ckpt_sums_parse(const char *path, const char *text, size_t n,
                       struct pp_ckpt_sums *s, struct pp_err *err)
{
    const char *end = text + n, *eol = memchr(text, '\n', n);
    uint64_t value;
    if (!eol || !begins(text, eol, head) ||
        !read_digits(text + sizeof head - 1, eol, &value) ||
        pp_checksum_of(eol + 1, (size_t)(end - eol - 1)) != value)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: wrong checksum: the file is damaged", path);
    for (const char *at = eol + 1; at < end; at = eol + 1) {
        eol = memchr(at, '\n', (size_t)(end - at));
        if (!eol)
            return pp_fail(err, PP_EXIT_INPUT, "%s: cut short", path);
        if (read_line(path, at, eol, s, err))
            return -1;
    }
    return 0;
}

static int read_sums(const char *path, struct pp_ckpt_sums *s,
                     struct pp_err *err)
{
    const void *text;
    size_t n;
    if (pp_file_map(path, &text, &n, err))
        return -1;
    int rc = pp_ckpt_sums_parse(path, text, n, s, err);
    pp_file_unmap(text, n);
    return rc;
}

int pp_ckpt_verify(const char *path, const char *only, int part, int n_parts,
                   struct pp_err *err)
{
    char name[PP_PATH_TEXT];
    struct pp_ckpt_sums s = {0};
    if (pp_path(name, err, "%s/" PP_CKPT_SUMS, path))
        return -1;
    if (only && !pp_file_exists(name))
        return 0;
    int rc = read_sums(name, &s, err), turn = 0;
    for (size_t i = 0; rc == 0 && i < s.n; i++) {
        if (only && strncmp(s.at[i].name, only, strlen(only)) != 0)
            continue;
        if (turn++ % n_parts != part)
            continue;
        rc = pp_path(name, err, "%s/%s", path, s.at[i].name) ||
                     pp_file_check_path(name, s.at[i].value, err)
                 ? -1
                 : 0;
    }
    pp_ckpt_sums_finish(&s);
    return rc;
}
