/* SPDX-License-Identifier: MIT */
#include "data/lengths.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/num.h"

/* A short run of digits, which nearly every line is. */
static bool is_plain(const char *text, size_t n, int64_t *length)
{
    enum { MOST_DIGITS = 9 };
    int64_t v = 0;
    for (size_t i = 0; i < n && i < MOST_DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (text[i] - '0');
    }
    *length = v;
    return n <= MOST_DIGITS;
}

static int add_line(char *text, size_t n, struct pp_documents *d,
                    struct pp_err *err)
{
    int64_t length;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        text[--n] = '\0';
    if (n == 0)
        return 0;
    if (!is_plain(text, n, &length)) {
        if (strlen(text) != n)
            return pp_fail(err, PP_EXIT_INPUT, "holds a zero byte");
        if (pp_parse_int(text, "length", 0, INT32_MAX, &length, err) != 0)
            return -1;
    }
    return pp_documents_add(d, (size_t)length, NULL, err);
}

int pp_lengths_read(const char *name, FILE *f, struct pp_documents *d,
                    pp_read_progress_fn *progress, void *ctx,
                    struct pp_err *err)
{
    char *text = NULL;
    size_t room = 0, line = 0, bytes = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&text, &room, f)) >= 0) {
        line++;
        bytes += (size_t)n;
        rc = add_line(text, (size_t)n, d, err);
        if (rc != 0)
            pp_fail_at(err, "%s: line %zu: ", name, line);
        else if (progress)
            progress(ctx, line, bytes);
    }
    if (rc == 0 && !feof(f))
        rc = pp_fail_read(err, name);
    free(text);
    return rc;
}
