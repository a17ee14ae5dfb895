/* SPDX-License-Identifier: MIT */
#include "schedule/csv/csv_dialect.h"

#include <stdlib.h>
#include <string.h>

static const char hint[] =
    "is the dialect of before November 2024, where B is the input gradient "
    "and BW the whole backward: --dialect old reads it";

/* Whether text is a number, letters, and a number. */
static bool is_token(const char *text, size_t n, const char *letters)
{
    static const char digits[] = "0123456789";
    size_t i = 0, n_letters = strlen(letters);
    while (i < n && memchr(digits, text[i], 10))
        i++;
    if (i == 0 || n - i <= n_letters || memcmp(text + i, letters, n_letters))
        return false;
    for (i += n_letters; i < n; i++)
        if (!memchr(digits, text[i], 10))
            return false;
    return true;
}

int pp_csv_refuse_old_cell(const char *text, size_t n, struct pp_err *err)
{
    if (!is_token(text, n, "BW"))
        return 0;
    return pp_fail(err, PP_EXIT_INPUT, "'%.*s' %s", n > 60 ? 60 : (int)n, text,
                   hint);
}

int pp_csv_translate(const char *text, size_t n, char *now, size_t *n_now,
                     struct pp_err *err)
{
    if (n >= PP_ACTION_TEXT || text[0] == '(' || is_token(text, n, "I"))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' is not an action of the old dialect",
                       n > 60 ? 60 : (int)n, text);
    bool whole = is_token(text, n, "BW"), half = is_token(text, n, "B");
    *n_now = 0;
    for (size_t i = 0; i < n; i++) {
        bool dropped = whole && text[i] == 'W';
        if (!dropped)
            now[(*n_now)++] = half && text[i] == 'B' ? 'I' : text[i];
    }
    return 0;
}

static int compare_work(const void *pa, const void *pb)
{
    const struct pp_action *a = pa, *b = pb;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    return (int)a->op - (int)b->op; /* B, I, W */
}

int pp_csv_refuse_old_row(const struct pp_row *list, int row,
                          struct pp_err *err)
{
    struct pp_action *work = calloc(list->n + 1, sizeof *work);
    size_t n = 0;
    if (!work)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < list->n; i++)
        if (pp_is_compute(list->actions[i].op) && list->actions[i].op != PP_F)
            work[n++] = list->actions[i];
    qsort(work, n, sizeof *work, compare_work);
    size_t i = 1;
    while (i < n && !(work[i].op == PP_W && work[i - 1].op == PP_B &&
                      work[i].stage == work[i - 1].stage &&
                      work[i].microbatch == work[i - 1].microbatch))
        i++;
    struct pp_action w = i < n ? work[i] : (struct pp_action){.stage = -1};
    free(work);
    if (w.stage < 0)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT, "rank %d: '%dB%d' with '%dW%d' %s", row,
                   w.stage, w.microbatch, w.stage, w.microbatch, hint);
}
