/* SPDX-License-Identifier: MIT */
/* Cells of other PyTorch versions: WAIT actions of newer files, and the letters
 * of files before November 2024. */
#include "schedule/csv/csv_dialect.h"

#include <stdlib.h>
#include <string.h>

/* The setting that reads the letters of before November 2024. */
static const char setting[] = "dialect", value[] = "pre-2024-11";
static const char reason[] =
    "is from before November 2024, when B was the input gradient and BW the "
    "whole backward";

/* Reports if text is a number, letters, and a number. */
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
    return pp_fail_setting(err, PP_EXIT_INPUT, setting, value, "'%.*s' %s",
                           n > 60 ? 60 : (int)n, text, reason);
}

int pp_csv_translate(const char *text, size_t n, char *now, size_t *n_now,
                     struct pp_err *err)
{
    if (n >= PP_ACTION_TEXT || text[0] == '(' || is_token(text, n, "I"))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%.*s' is not an action of files before November 2024",
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
    return pp_fail_setting(err, PP_EXIT_INPUT, setting, value,
                           "rank %d: '%dB%d' with '%dW%d' %s", row, w.stage,
                           w.microbatch, w.stage, w.microbatch, reason);
}

/* --- WAIT actions --- */

static const char prefix[] = "WAIT_";
enum { PREFIX = sizeof prefix - 1 };

static size_t count_digits(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] >= '0' && text[i] <= '9')
        i++;
    return i;
}

bool pp_csv_is_wait(const char *text, size_t n)
{
    size_t digits = count_digits(text, n);
    return digits > 0 && n - digits > PREFIX &&
           !memcmp(text + digits, prefix, PREFIX);
}

int pp_csv_add_wait(struct pp_csv_waits *w, const char *text, size_t n,
                    size_t n_before, size_t place, struct pp_err *err)
{
    char of[PP_ACTION_TEXT];
    size_t digits = count_digits(text, n), rest = n - digits - PREFIX;
    struct pp_csv_wait wait = {.n_before = n_before, .place = place};
    struct pp_err unused = {0}; /* would quote the cell without WAIT_ */
    if (n < sizeof of) {
        memcpy(of, text, digits);
        memcpy(of + digits, text + digits + PREFIX, rest);
    }
    if (n >= sizeof of ||
        pp_action_parse(of, digits + rest, &wait.of, &unused) ||
        !(pp_is_send(wait.of.op) || wait.of.op == PP_REDUCE_GRAD))
        return pp_fail(err, PP_EXIT_INPUT, "'%.*s' is not an action",
                       n > 60 ? 60 : (int)n, text);
    if (w->n == w->capacity) {
        size_t more = w->capacity ? 2 * w->capacity : 64;
        struct pp_csv_wait *list = realloc(w->list, more * sizeof *list);
        if (!list)
            return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        w->list = list;
        w->capacity = more;
    }
    w->list[w->n++] = wait;
    return 0;
}

static int compare_actions(const struct pp_action *a, const struct pp_action *b)
{
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    return (a->microbatch > b->microbatch) - (a->microbatch < b->microbatch);
}

/* Orders waits by the action that they wait for, then by place. */
static int compare_waits(const void *pa, const void *pb)
{
    const struct pp_csv_wait *a = pa, *b = pb;
    int c = compare_actions(&a->of, &b->of);
    return c ? c : (a->place > b->place) - (a->place < b->place);
}

static int compare_begun(const void *pa, const void *pb)
{
    const struct pp_csv_wait *a = pa, *b = pb;
    int c = compare_actions(&a->of, &b->of);
    return c ? c : (a->n_before > b->n_before) - (a->n_before < b->n_before);
}

/* Lists the row's sends and REDUCE_GRADs in the order of compare_begun. */
static size_t list_begun(const struct pp_row *list, struct pp_csv_wait *begun)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct pp_action a = list->actions[i];
        if (pp_is_send(a.op) || a.op == PP_REDUCE_GRAD)
            begun[n++] = (struct pp_csv_wait){.of = a, .n_before = i};
    }
    qsort(begun, n, sizeof *begun, compare_begun);
    return n;
}

static int fail_wait(const struct pp_csv_wait *w, const char *why,
                     struct pp_err *err)
{
    char text[PP_ACTION_TEXT];
    pp_action_format(w->of, false, text);
    return pp_fail(err, PP_EXIT_NO, "cell %zu waits for %s %s", w->place, text,
                   why);
}

int pp_csv_check_waits(struct pp_csv_waits *w, const struct pp_row *list,
                       struct pp_err *err)
{
    struct pp_csv_wait *begun = calloc(list->n + 1, sizeof *begun);
    int rc = 0;
    if (!begun)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    size_t n = list_begun(list, begun), at = 0;
    if (w->n > 0)
        qsort(w->list, w->n, sizeof *w->list, compare_waits);
    for (size_t i = 0; !rc && i < w->n; i++) {
        const struct pp_csv_wait *wait = &w->list[i];
        while (at < n && compare_actions(&begun[at].of, &wait->of) < 0)
            at++;
        if (i > 0 && !compare_actions(&wait->of, &w->list[i - 1].of))
            rc = fail_wait(wait, "a second time", err);
        else if (at == n || compare_actions(&begun[at].of, &wait->of) ||
                 begun[at].n_before >= wait->n_before)
            rc = fail_wait(wait, "but comes before it", err);
    }
    free(begun);
    return rc;
}
