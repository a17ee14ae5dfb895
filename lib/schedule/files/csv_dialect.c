/* SPDX-License-Identifier: MIT */
/* WAIT actions of PyTorch's files. */
#include "schedule/files/csv_dialect.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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
    pp_array_reserve(&w->list, &w->capacity, w->n + 1, sizeof *w->list);
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
    struct pp_csv_wait *begun = pp_calloc(list->n + 1, sizeof *begun);
    int rc = 0;
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
