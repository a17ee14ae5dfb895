/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the bytes of the printable character at s, which ends before or with
 * a NUL, or 0. */
static size_t printable(const unsigned char *s)
{
    static const struct {
        unsigned char min, max; /* of the first byte */
        size_t bytes;
    } utf8[] = {
        {0x20, 0x7e, 1}, {0xc2, 0xdf, 2}, {0xe0, 0xef, 3}, {0xf0, 0xf4, 4}};
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8; i++) {
        size_t n = 1;
        if (s[0] < utf8[i].min || s[0] > utf8[i].max)
            continue;
        while (n < utf8[i].bytes && (s[n] & 0xc0) == 0x80)
            n++;
        bool is_control = s[0] == 0xc2 && s[1] < 0xa0;
        return n == utf8[i].bytes && !is_control ? n : 0;
    }
    return 0;
}

void pp_clean_text(char *text, size_t room)
{
    unsigned char *s = (unsigned char *)text;
    text[room - 1] = '\0';
    while (*s) {
        size_t n = printable(s);
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
}

/* Does nothing if *err holds an error already. */
static void fill(struct pp_err *err, enum pp_exit code, const char *fmt,
                 va_list ap)
{
    if (err->code != PP_EXIT_OK)
        return;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    pp_clean_text(err->text, sizeof err->text);
    err->code = code;
}

int pp_fail(struct pp_err *err, enum pp_exit code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    return -1;
}

int pp_fail_setting(struct pp_err *err, enum pp_exit code, const char *setting,
                    const char *value, const char *fmt, ...)
{
    if (err->code != PP_EXIT_OK)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    err->setting = setting;
    snprintf(err->value, sizeof err->value, "%s", value ? value : "");
    return -1;
}

int pp_err_set_origin(struct pp_err *err, unsigned bit, int number)
{
    struct pp_err_origin *o = &err->origin;
    if (err->code == PP_EXIT_OK || o->known & bit)
        return -1;
    o->known |= bit;
    if (bit == PP_ORIGIN_RANK)
        o->rank = number;
    else if (bit == PP_ORIGIN_STAGE)
        o->stage = number;
    else if (bit == PP_ORIGIN_MICROBATCH)
        o->microbatch = number;
    return -1;
}

int pp_fail_errno(struct pp_err *err, const char *fmt, ...)
{
    int saved = errno;
    if (err->code != PP_EXIT_OK)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    fill(err, PP_EXIT_SYSTEM, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", strerror(saved));
    return -1;
}

int pp_fail_read(struct pp_err *err, const char *name)
{
    if (errno == EISDIR)
        return pp_fail(err, PP_EXIT_INPUT, "%s: is a directory", name);
    if (errno == EBADF)
        return pp_fail(err, PP_EXIT_INPUT, "%s: is closed", name);
    return pp_fail_errno(err, "%s: cannot read", name);
}

int pp_fail_at(struct pp_err *err, const char *fmt, ...)
{
    if (err->code == PP_EXIT_OK)
        return -1;
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s", err->text);
    pp_clean_text(text, sizeof text);
    memcpy(err->text, text, sizeof text);
    return -1;
}

bool pp_faults_take(struct pp_faults *f, int row, size_t place,
                    struct pp_err *err)
{
    if (!f || err->code == PP_EXIT_SYSTEM)
        return false;
    if (f->n < PP_MAX_FAULTS)
        f->at[f->n] = (struct pp_fault){row, place, *err};
    f->n++;
    *err = (struct pp_err){0};
    return true;
}

/* A fault of a whole row comes after the faults in it. */
static int compare_faults(const void *pa, const void *pb)
{
    const struct pp_fault *a = pa, *b = pb;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

void pp_faults_sort(struct pp_faults *f)
{
    size_t kept = f->n < PP_MAX_FAULTS ? f->n : PP_MAX_FAULTS;
    qsort(f->at, kept, sizeof *f->at, compare_faults);
}
