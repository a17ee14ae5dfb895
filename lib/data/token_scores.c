/* SPDX-License-Identifier: MIT */
/* token_scores - columns of documents from the lines of pprun --logprobs: the
 * log-probabilities of every token of a sequence, by its number. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/jsonl_sequence.h"
#include "data/readers.h"

struct token_scores {
    struct pp_documents *d;
    float *column;    /* an element per token */
    bool *seen;       /* by document */
    const char *name; /* of the file */
};

/* The fields of a line. */
struct score_fields {
    uint64_t sequence;
    bool has_sequence, has_values;
    size_t values; /* where the array begins in the text */
};

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
    bool is_sequence = n == 8 && !memcmp(key, "sequence", n);
    bool is_values = n == 8 && !memcmp(key, "logprobs", n);
    if ((is_sequence && f->has_sequence) || (is_values && f->has_values)) {
        s->at = start;
        return pp_scan_fail(s, err, "'%s' is there twice", key);
    }
    f->has_sequence |= is_sequence;
    if (is_sequence)
        return pp_scan_u64(s, &f->sequence, err);
    f->has_values |= is_values;
    if (is_values) {
        pp_scan_peek(s);
        f->values = s->at;
    }
    return pp_scan_skip(s, err);
}

static int read_score_fields(struct pp_scan *s, struct score_fields *f,
                             struct pp_err *err)
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
    if (!f->has_sequence || !f->has_values)
        return pp_scan_fail(s, err, "has no '%s'",
                            f->has_sequence ? "logprobs" : "sequence");
    return 0;
}

/* Reads the values of a document of n tokens into out. */
static int read_scores(struct pp_scan *s, const struct score_fields *f,
                       float *out, size_t n, struct pp_err *err)
{
    size_t k = 0;
    int more;
    float ignored;
    s->at = f->values;
    if (pp_scan_expect(s, '[', err))
        return -1;
    while ((more = pp_scan_more(s, ']', &k, err)) > 0)
        if (pp_scan_float(s, k <= n ? &out[k - 1] : &ignored, err))
            return -1;
    if (more < 0)
        return -1;
    if (k == n)
        return 0;
    s->at = f->values;
    return pp_scan_fail(s, err,
                        "sequence '%" PRIu64 "' has %zu log-probabilities, but "
                        "%zu tokens",
                        f->sequence, k, n);
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
    if (read_score_fields(s, &f, err))
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
    size_t at = token_at(t->d, f.sequence);
    size_t end = token_at(t->d, f.sequence + 1);
    return read_scores(s, &f, t->column + at, end - at, err);
}

static int read_score_lines(struct token_scores *t, FILE *file,
                            struct pp_err *err)
{
    char *text = NULL;
    size_t room = 0, line = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&text, &room, file)) >= 0) {
        struct pp_scan s = {.text = text,
                            .n = (size_t)n - (text[n - 1] == '\n'),
                            .name = t->name,
                            .lines_before = line++};
        rc = read_score_line(t, &s, err);
    }
    if (rc == 0 && !feof(file))
        rc = pp_fail_read(err, t->name);
    free(text);
    return rc;
}

int pp_token_scores_read(const char *name, FILE *f, enum pp_column column,
                         struct pp_documents *d, struct pp_err *err)
{
    struct token_scores t = {.d = d, .name = name};
    if (d->n == 0)
        return 0;
    t.column = pp_documents_make_column(d, column, err);
    if (!t.column)
        return -1;
    t.seen = calloc(d->n, sizeof *t.seen);
    int rc = t.seen ? read_score_lines(&t, f, err)
                    : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < d->n && rc == 0; i++)
        if (!t.seen[i] && token_at(d, i + 1) > token_at(d, i))
            rc = pp_fail(err, PP_EXIT_INPUT, "%s: sequence '%zu' is missing",
                         name, i);
    free(t.seen);
    return rc;
}
