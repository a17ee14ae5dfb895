/* SPDX-License-Identifier: MIT */
/* token_scores - columns of documents from the lines of ppscore --logprobs, by
 * the number of the sequence: the log-probability of every token, or the ids
 * and the values of the largest logits at it. */
#include "data/jsonl/sequence.h"
#include "data/readers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"

/* The arrays of a line. */
enum { LOGPROBS, TOPK_IDS, TOPK_LOGITS, N_ARRAYS };
static const char *const array_names[N_ARRAYS] = {"logprobs", "topk_ids",
                                                  "topk_logits"};

/* The fields of a line. */
struct score_fields {
    uint64_t sequence;
    bool has_sequence;
    size_t at[N_ARRAYS]; /* where an array begins in the text, or 0 */
    size_t sum;          /* where the key of the checksum does, or 0 */
};

struct token_scores {
    struct pp_documents *d;
    const char *name; /* of the file */
    bool *seen;       /* by document */
    bool of_lists;
    bool any, summed;    /* a line was read; lines have checksums */
    float *column;       /* an element per token */
    float *ids, *logits; /* NULL until the first list is read */
    int32_t *sorted;     /* (top_k) scratch */
    /* Reads the arrays of a document whose tokens are [at, end). */
    int (*read)(struct token_scores *t, struct pp_scan *s,
                const struct score_fields *f, size_t at, size_t end,
                struct pp_err *err);
};

static int fail_twice(struct pp_scan *s, size_t start, const char *key,
                      struct pp_err *err)
{
    s->at = start;
    return pp_scan_fail(s, err, "'%s' is there twice", key);
}

static int read_score_field(struct pp_scan *s, struct score_fields *f,
                            struct pp_err *err)
{
    char key[16] = {0};
    size_t n, start;
    pp_scan_peek(s);
    start = s->at;
    if (pp_scan_text(s, key, sizeof key - 1, &n, err) ||
        pp_scan_expect(s, ':', err))
        return -1;
    if (n == 8 && !memcmp(key, "sequence", n)) {
        if (f->has_sequence)
            return fail_twice(s, start, key, err);
        f->has_sequence = true;
        return pp_scan_u64(s, &f->sequence, err);
    }
    if (n == 4 && !memcmp(key, "xxh3", n)) {
        if (f->sum)
            return fail_twice(s, start, key, err);
        f->sum = start;
    }
    for (int k = 0; k < N_ARRAYS; k++) {
        if (n != strlen(array_names[k]) || memcmp(key, array_names[k], n))
            continue;
        if (f->at[k])
            return fail_twice(s, start, key, err);
        pp_scan_peek(s);
        f->at[k] = s->at;
    }
    return pp_scan_skip(s, err);
}

static int read_score_fields(const struct token_scores *t, struct pp_scan *s,
                             struct score_fields *f, struct pp_err *err)
{
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '{', err))
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0)
        if (read_score_field(s, f, err))
            return -1;
    if (more < 0 || pp_scan_end(s, err))
        return -1;
    if (!f->has_sequence)
        return pp_scan_fail(s, err, "has no 'sequence'");
    for (int k = 0; k < N_ARRAYS; k++)
        if (!f->at[k] && (k != LOGPROBS) == t->of_lists)
            return pp_scan_fail(s, err, "has no '%s'%s", array_names[k],
                                t->of_lists ? "; score with the largest logits"
                                            : "");
    return 0;
}

/* Fails if the line is not as it was written. Its last member is the checksum
 * of the text before it; lists that are made by hand have none. */
static int check_sum(struct token_scores *t, struct pp_scan *s,
                     const struct score_fields *f, struct pp_err *err)
{
    static const char comma[] = ", ";
    enum { COMMA_BYTES = sizeof comma - 1 };
    bool has = f->sum > 0;
    char want[40];
    s->at = f->sum;
    if (t->any && t->summed != has)
        return pp_scan_fail(s, err, "the line has %s 'xxh3', but others have%s",
                            has ? "an" : "no", has ? " none" : "");
    t->any = true;
    t->summed = has;
    if (!has)
        return 0;
    size_t before = f->sum > COMMA_BYTES ? f->sum - COMMA_BYTES : 0;
    int n = snprintf(want, sizeof want, "%s\"xxh3\": \"%016" PRIx64 "\"}",
                     comma, pp_checksum_of(s->text, before));
    if (s->n - before == (size_t)n &&
        !memcmp(s->text + before, want, (size_t)n))
        return 0;
    return pp_scan_fail(s, err,
                        "wrong checksum 'xxh3': the line is damaged; if you "
                        "changed it, remove this member from all lines");
}

static int fail_count(struct pp_scan *s, const struct score_fields *f,
                      int array, size_t have, size_t tokens, struct pp_err *err)
{
    s->at = f->at[array];
    return pp_scan_fail(
        s, err, "sequence '%" PRIu64 "' has %zu %s, but %zu tokens",
        f->sequence, have, array == LOGPROBS ? "log-probabilities" : "lists",
        tokens);
}

/* Reads the log-probabilities of a document. */
static int read_scores(struct token_scores *t, struct pp_scan *s,
                       const struct score_fields *f, size_t at, size_t end,
                       struct pp_err *err)
{
    size_t k = 0, n = end - at;
    int more;
    float ignored;
    s->at = f->at[LOGPROBS];
    if (pp_scan_expect(s, '[', err))
        return -1;
    while ((more = pp_scan_more(s, ']', &k, err)) > 0)
        if (pp_scan_float(s, k <= n ? &t->column[at + k - 1] : &ignored, err))
            return -1;
    if (more < 0)
        return -1;
    return k == n ? 0 : fail_count(s, f, LOGPROBS, k, n, err);
}

/* Makes the columns of lists when their length is known. */
static int make_lists(struct token_scores *t, size_t top_k, struct pp_err *err)
{
    struct pp_documents *d = t->d;
    d->columns[PP_COLUMN_TOPK_IDS] = d->columns[PP_COLUMN_TOPK_LOGITS] = NULL;
    d->top_k = top_k;
    t->ids = pp_documents_make_column(d, PP_COLUMN_TOPK_IDS, err);
    t->logits =
        t->ids ? pp_documents_make_column(d, PP_COLUMN_TOPK_LOGITS, err) : NULL;
    t->sorted = pp_calloc(top_k, sizeof *t->sorted);
    if (!t->logits)
        return -1;
    for (size_t i = 0; i < pp_documents_n_tokens(d) * top_k; i++) {
        t->ids[i] = -1;
        t->logits[i] = 0;
    }
    return 0;
}

/* Reads one list into out, which has room for `room` values. */
static int read_list(struct pp_scan *s, bool are_ids, float *out, size_t room,
                     size_t *n, struct pp_err *err)
{
    int more = 0, rc = 0;
    float ignored;
    *n = 0;
    if (pp_scan_expect(s, '[', err))
        return -1;
    while (rc == 0 && (more = pp_scan_more(s, ']', n, err)) > 0) {
        float *to = *n <= room ? out + *n - 1 : &ignored;
        int32_t id = 0;
        rc = are_ids ? pp_scan_int32(s, 0, PP_LISTED_IDS - 1, "a token id", &id,
                                     err)
                     : pp_scan_float(s, to, err);
        if (rc == 0 && are_ids)
            *to = (float)id;
    }
    return rc ? rc : more;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Fails if an id is twice in the list of a token. */
static int check_distinct(const struct token_scores *t, struct pp_scan *s,
                          const float *ids, struct pp_err *err)
{
    size_t k = t->d->top_k;
    for (size_t i = 0; i < k; i++)
        t->sorted[i] = (int32_t)ids[i];
    qsort(t->sorted, k, sizeof *t->sorted, compare_ids);
    for (size_t i = 1; i < k; i++)
        if (t->sorted[i] == t->sorted[i - 1])
            return pp_scan_fail(s, err, "a list has the id '%" PRId32 "' twice",
                                t->sorted[i]);
    return 0;
}

/* Reads the lists of a document from one of the arrays. The first list that is
 * not empty says how long all are. */
static int read_lists(struct token_scores *t, struct pp_scan *s,
                      const struct score_fields *f, int array, size_t at,
                      size_t end, struct pp_err *err)
{
    bool are_ids = array == TOPK_IDS;
    float room[PP_LONGEST_LIST];
    size_t token = 0, n;
    int more;
    s->at = f->at[array];
    if (pp_scan_expect(s, '[', err))
        return -1;
    while ((more = pp_scan_more(s, ']', &token, err)) > 0) {
        if (read_list(s, are_ids, room, PP_LONGEST_LIST, &n, err))
            return -1;
        if (n == 0 || at + token > end)
            continue;
        if (n > PP_LONGEST_LIST || (t->ids && n != t->d->top_k))
            return pp_scan_fail(s, err,
                                "a list has '%zu' elements, but must have %zu",
                                n, t->ids ? t->d->top_k : PP_LONGEST_LIST);
        if ((!t->ids && make_lists(t, n, err)) ||
            (are_ids && check_distinct(t, s, room, err)))
            return -1;
        memcpy((are_ids ? t->ids : t->logits) + (at + token - 1) * n, room,
               n * sizeof *room);
    }
    if (more < 0)
        return -1;
    return token == end - at ? 0
                             : fail_count(s, f, array, token, end - at, err);
}

static int read_both_lists(struct token_scores *t, struct pp_scan *s,
                           const struct score_fields *f, size_t at, size_t end,
                           struct pp_err *err)
{
    return read_lists(t, s, f, TOPK_IDS, at, end, err) ||
                   read_lists(t, s, f, TOPK_LOGITS, at, end, err)
               ? -1
               : 0;
}

/* Returns the first token of document i; i may be n. */
static size_t token_at(const struct pp_documents *d, size_t i)
{
    return d->first[pp_documents_sequence(d, i)];
}

static int read_score_line(struct token_scores *t, struct pp_scan *s,
                           struct pp_err *err)
{
    struct score_fields f = {0};
    if (read_score_fields(t, s, &f, err) || check_sum(t, s, &f, err))
        return -1;
    if (f.sequence >= t->d->n)
        return pp_scan_fail(s, err,
                            "sequence '%" PRIu64 "' is not in the data, which "
                            "have %zu",
                            f.sequence, t->d->n);
    if (t->seen[f.sequence])
        return pp_scan_fail(s, err, "sequence '%" PRIu64 "' is there twice",
                            f.sequence);
    t->seen[f.sequence] = true;
    /* The sequences of a group follow each other. */
    return t->read(t, s, &f, token_at(t->d, f.sequence),
                   token_at(t->d, f.sequence + 1), err);
}

static int read_score_lines(struct token_scores *t, FILE *file,
                            struct pp_err *err)
{
    char *text;
    size_t n;
    struct pp_lines lines = {.f = file, .name = t->name};
    int rc = 0;
    while (rc == 0 && (rc = pp_lines_next(&lines, &text, &n, err)) > 0) {
        struct pp_scan s = {
            .text = text, .n = n, .name = t->name, .lines_before = lines.n - 1};
        rc = read_score_line(t, &s, err);
    }
    pp_lines_finish(&lines);
    return rc;
}

/* Reads the file and checks that no document is missing. */
static int read_all_scores(struct token_scores *t, FILE *f, struct pp_err *err)
{
    struct pp_documents *d = t->d;
    t->seen = pp_calloc(d->n, sizeof *t->seen);
    int rc = read_score_lines(t, f, err);
    for (size_t i = 0; i < d->n && rc == 0; i++)
        if (!t->seen[i] && token_at(d, i + 1) > token_at(d, i))
            rc = pp_fail(err, PP_EXIT_INPUT, "%s: sequence '%zu' is missing",
                         t->name, i);
    free(t->seen);
    free(t->sorted);
    return rc;
}

int pp_token_scores_read(const char *name, FILE *f, enum pp_column column,
                         struct pp_documents *d, struct pp_err *err)
{
    struct token_scores t = {.d = d, .name = name, .read = read_scores};
    if (d->n == 0)
        return 0;
    t.column = pp_documents_make_column(d, column, err);
    return t.column ? read_all_scores(&t, f, err) : -1;
}

int pp_top_k_scores_read(const char *name, FILE *f, struct pp_documents *d,
                         struct pp_err *err)
{
    struct token_scores t = {
        .d = d, .name = name, .of_lists = true, .read = read_both_lists};
    if (d->n == 0)
        return 0;
    if (read_all_scores(&t, f, err))
        return -1;
    return t.ids ? 0
                 : pp_fail(err, PP_EXIT_INPUT, "%s: all lists are empty", name);
}
