/* SPDX-License-Identifier: MIT */
/* jsonl - documents from JSON Lines, and lengths from lines of numbers.
 *
 * It has its own scanner: a general JSON library would build a value per token.
 * Every token takes at least one character of its line, so the line's length
 * bounds all arrays, and loops need no checks of room. Lines with "input_ids"
 * are read here in one pass, other lines in groups.c. */
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "base/file.h"
#include "base/foreign.h"
#include "base/num.h"
#include "data/jsonl/sequence.h"
#include "data/packed/packed.h"
#include "data/readers.h"

/* The fields of one line. */
struct json_line {
    int32_t *ids, *labels, *mask; /* room for every character of the line */
    size_t n_ids, n_labels, n_mask;
    size_t n_padding; /* removed */
    size_t n_left;    /* of it, on the left */
    struct pp_fields fields;
};

static int scan_line_text(struct pp_scan *s, struct json_line *l,
                          struct pp_err *err)
{
    size_t n = 0;
    /* Decode bytes into the room of the ids, then widen them from the end. */
    unsigned char *text = (unsigned char *)l->ids;
    if (pp_scan_text(s, (char *)text, s->n, &n, err) != 0)
        return -1;
    for (size_t i = n; i-- > 0;)
        l->ids[i] = text[i];
    l->ids[n] = PP_BYTES_END;
    l->n_ids = n + 1;
    return 0;
}

/* Returns whether the byte tokenizer reads the field. */
static bool is_of_bytes(enum pp_field f)
{
    return f == PP_FIELD_TEXT || f == PP_FIELD_LABELS || f == PP_FIELD_MASK ||
           f == PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_IDS ||
           f == PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_LABELS ||
           f == PP_FIELD_GENERATOR_MASK;
}

/* Reads the fields of documents, and notes the places of other fields. */
static int scan_line_member(struct pp_scan *s, enum pp_field field, bool bytes,
                            struct json_line *l, struct pp_err *err)
{
    if (bytes ? !is_of_bytes(field) : field == PP_FIELD_TEXT)
        field = PP_FIELD_OTHER;
    /* null is as if absent, as tools that export tables write it. */
    if (field > PP_FIELD_MASK ||
        (field >= PP_FIELD_LABELS && pp_scan_peek(s) == 'n'))
        return pp_field_note(s, field, &l->fields, err);
    if (l->fields.has[field])
        return pp_field_repeated(s, field, err);
    l->fields.has[field] = true;
    pp_scan_peek(s);
    l->fields.at[field] = s->at;
    switch (field) {
    case PP_FIELD_TEXT:
        return scan_line_text(s, l, err);
    case PP_FIELD_IDS:
        return pp_scan_int32s(s, 0, INT32_MAX - 1, "a token id", l->ids,
                              &l->n_ids, err);
    case PP_FIELD_LABELS:
        return pp_scan_int32s(s, PP_LABEL_IGNORE, INT32_MAX - 1, "a label",
                              l->labels, &l->n_labels, err);
    default:
        return pp_scan_mask(s, l->mask, &l->n_mask, err);
    }
}

/* Consumes the '{' of a line. Two kinds of files that are no lines of JSON are
 * common, and have a remedy. */
static int scan_line_start(struct pp_scan *s, struct pp_err *err)
{
    const char *other =
        s->lines_before == 0 ? pp_foreign_file(s->text, s->n) : NULL;
    if (pp_scan_peek(s) == '[')
        return pp_scan_fail(s, err,
                            "expected '{', got '['; jq -c '.[]' makes lines of "
                            "a list");
    if (other)
        return pp_scan_fail(s, err, "the file is %s", other);
    return pp_scan_expect(s, '{', err);
}

static int scan_line_object(struct pp_scan *s, bool bytes, struct json_line *l,
                            struct pp_err *err)
{
    size_t n = 0;
    int more;
    if (scan_line_start(s, err) != 0)
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0) {
        enum pp_field field;
        if (pp_field_key(s, &field, err) != 0 ||
            scan_line_member(s, field, bytes, l, err) != 0)
            return -1;
    }
    return more ? -1 : pp_scan_end(s, err);
}

/* Returns whether a field says where the sequences of a row are. */
static bool has_sequences(const struct pp_fields *f)
{
    return f->has[PP_FIELD_POSITIONS] || f->has[PP_FIELD_LENGTHS] ||
           f->has[PP_FIELD_STARTS];
}

/* Makes the labels in l->labels from labels and loss mask. */
static int make_line_labels(struct json_line *l, struct pp_err *err)
{
    bool has_labels = l->fields.has[PP_FIELD_LABELS];
    bool has_mask = l->fields.has[PP_FIELD_MASK];
    if (has_labels && l->n_labels != l->n_ids)
        return pp_fail(err, PP_EXIT_INPUT, "'%zu' labels for %zu tokens",
                       l->n_labels, l->n_ids);
    if (has_mask && l->n_mask != l->n_ids)
        return pp_fail(err, PP_EXIT_INPUT,
                       "loss_mask of '%zu' elements for %zu tokens", l->n_mask,
                       l->n_ids);
    for (size_t i = 0; has_labels && i < l->n_labels; i++)
        if (l->labels[i] < 0 && l->labels[i] != PP_LABEL_IGNORE)
            return pp_fail(err, PP_EXIT_INPUT,
                           "'%d' is not a label (0 or more, or %d)",
                           l->labels[i], PP_LABEL_IGNORE);
    if (!has_labels)
        memcpy(l->labels, l->ids, l->n_ids * sizeof *l->labels);
    for (size_t i = 0; has_mask && i < l->n_mask; i++)
        if (!l->mask[i])
            l->labels[i] = PP_LABEL_IGNORE;
    return 0;
}

/* Removes the padding of a row. Columns keep it until they are read. */
static int remove_padding(struct pp_scan *s, struct json_line *l,
                          struct pp_err *err)
{
    struct pp_padding p;
    if (pp_padding_read(s, l->fields.at[PP_FIELD_ATTENTION], l->mask, l->n_ids,
                        &p, err) != 0)
        return -1;
    if (p.n < l->n_ids && has_sequences(&l->fields))
        return pp_fail(err, PP_EXIT_INPUT,
                       "attention_mask: padding cannot be given beside the "
                       "places of sequences");
    memmove(l->ids, l->ids + p.before, p.n * sizeof *l->ids);
    memmove(l->labels, l->labels + p.before, p.n * sizeof *l->labels);
    l->n_padding = l->n_ids - p.n;
    l->n_left = p.before;
    l->n_ids = p.n;
    return 0;
}

/* Marks in l->mask where the sequences of a row begin: at each position 0. */
static int mark_positions(struct pp_scan *s, struct json_line *l,
                          struct pp_err *err)
{
    size_t n;
    int32_t before = -1;
    s->at = l->fields.at[PP_FIELD_POSITIONS];
    /* The marks then replace the numbers in mask. */
    if (pp_scan_int32s(s, 0, INT32_MAX, "a position", l->mask, &n, err) != 0)
        return -1;
    if (n != l->n_ids)
        return pp_fail(err, PP_EXIT_INPUT, "'%zu' position_ids for %zu tokens",
                       n, l->n_ids);
    for (size_t i = 0; i < n; i++) {
        int32_t p = l->mask[i];
        if (p != 0 && p != before + 1)
            return pp_fail(err, PP_EXIT_INPUT,
                           "position_ids: '%d' must be 0 or the previous "
                           "position plus 1",
                           p);
        before = p;
        l->mask[i] = p == 0;
    }
    return 0;
}

/* Does the same from the lengths or the starts of a row's sequences. */
static int mark_lengths(struct pp_scan *s, struct json_line *l,
                        enum pp_field field, struct pp_err *err)
{
    size_t n = 0, at = 0, k = 0;
    int32_t v;
    int more;
    memset(l->mask, 0, l->n_ids * sizeof *l->mask);
    s->at = l->fields.at[field];
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0) {
        if (pp_scan_int32(s, 0, INT32_MAX, "a length", &v, err) != 0)
            return -1;
        if (field == PP_FIELD_STARTS) {
            if ((k == 0) != (v == 0) || (size_t)v < at || (size_t)v >= l->n_ids)
                return pp_scan_fail(s, err, "'%d' is not a start in this row",
                                    v);
            l->mask[at = (size_t)v] = 1;
        } else if ((size_t)v > l->n_ids - at) {
            return pp_scan_fail(s, err, "'%d' ends after the row", v);
        } else if (v > 0) {
            l->mask[at] = 1;
            at += (size_t)v;
        }
        k++;
    }
    if (more == 0 && field == PP_FIELD_LENGTHS && at != l->n_ids)
        return pp_scan_fail(s, err, "seq_lengths sum to '%zu' for %zu tokens",
                            at, l->n_ids);
    return more;
}

/* Marks where the sequences of a row begin. Without a field for it, the row is
 * one sequence. */
static int mark_starts(struct pp_scan *s, struct json_line *l,
                       struct pp_err *err)
{
    if (l->fields.has[PP_FIELD_LENGTHS])
        return mark_lengths(s, l, PP_FIELD_LENGTHS, err);
    if (l->fields.has[PP_FIELD_STARTS])
        return mark_lengths(s, l, PP_FIELD_STARTS, err);
    if (l->fields.has[PP_FIELD_POSITIONS])
        return mark_positions(s, l, err);
    memset(l->mask, 0, l->n_ids * sizeof *l->mask);
    return 0;
}

static bool has_parts_or_columns(const struct pp_fields *f)
{
    for (int i = PP_FIELD_COLUMN; i < PP_N_FIELDS; i++)
        if (f->has[i])
            return true;
    return has_sequences(f) || pp_fields_have_generator(f);
}

/* Adds a row of several sequences, or with columns. */
static int add_sequences(struct pp_scan *s, struct json_line *l,
                         struct pp_jsonl_sequence *r, const int32_t *labels,
                         struct pp_documents *d, struct pp_err *err)
{
    r->n = l->n_ids + l->n_padding;
    r->ids = l->ids;
    memset(r->has, 0, sizeof r->has);
    /* The columns need room that the marks then take. */
    if (pp_sequence_read_columns(r, s, &l->fields, 0, err) != 0 ||
        mark_starts(s, l, err) != 0)
        return -1;
    for (size_t at = 0, end; at < l->n_ids; at = end) {
        for (end = at + 1; end < l->n_ids && !l->mask[end];)
            end++;
        if (pp_documents_add(d, end - at, labels ? labels + at : NULL, err) !=
                0 ||
            pp_documents_attach_items(d, err) != 0 ||
            pp_sequence_set_columns(r, d, l->n_left + at, err) != 0 ||
            pp_documents_check_last(d, PP_DATA_DOCUMENTS, err) != 0)
            return -1;
    }
    return 0;
}

/* Checks the tokens of a line, and finds its labels: NULL, if each token is the
 * label of the one before it. */
static int read_line_tokens(const struct pp_jsonl *j, struct pp_scan *s,
                            struct json_line *l, const struct pp_documents *d,
                            int32_t **labels, struct pp_err *err)
{
    const bool *has = l->fields.has;
    bool images = has[PP_FIELD_IMAGES] || has[PP_FIELD_AUDIO];
    bool own = has[PP_FIELD_LABELS] || has[PP_FIELD_MASK] || images;
    if (!has[j->bytes ? PP_FIELD_TEXT : PP_FIELD_IDS])
        return pp_fail_setting(err, PP_EXIT_INPUT, "bytes", NULL,
                               j->bytes
                                   ? "no 'text', which the byte tokenizer needs"
                                   : "no 'input_ids'; scripts/tokenize makes "
                                     "them from text, and a "
                                     "model of bytes needs none");
    if (own && make_line_labels(l, err) != 0)
        return -1;
    if (has[PP_FIELD_ATTENTION] && remove_padding(s, l, err) != 0)
        return -1;
    if (images && has_sequences(&l->fields))
        return pp_fail(
            err, PP_EXIT_INPUT,
            "images and audio cannot be divided among the sequences of a row: "
            "give each a line");
    *labels = own ? l->labels : NULL;
    if (pp_line_check_placeholders(j->streams, d, l->ids, *labels, l->n_ids,
                                   err) != 0)
        return -1;
    if (l->n_ids == 0 && !j->allow_empty)
        return pp_fail_setting(err, PP_EXIT_INPUT, "empty", "drop",
                               "'input_ids' is empty");
    return 0;
}

static int add_line_documents(const struct pp_jsonl *j, struct pp_scan *s,
                              struct json_line *l, struct pp_jsonl_sequence *r,
                              struct pp_documents *d, struct pp_err *err)
{
    int32_t *labels = NULL;
    if (read_line_tokens(j, s, l, d, &labels, err) != 0)
        return -1;
    if (l->n_ids > 0 && has_parts_or_columns(&l->fields))
        return add_sequences(s, l, r, labels, d, err);
    if (pp_documents_add(d, l->n_ids, labels, err) != 0 ||
        pp_documents_attach_items(d, err) != 0)
        return -1;
    return pp_documents_check_last(d, PP_DATA_DOCUMENTS, err);
}

/* Adds the line to an error, unless the scanner has placed it. */
static int fail_at_line(const struct pp_jsonl *j, const struct pp_scan *s,
                        struct pp_err *err)
{
    return *s->placed ? -1
                      : pp_fail_at(err, "%s: line %zu: ", j->name,
                                   s->lines_before + 1);
}

static int read_json_line(const struct pp_jsonl *j, struct pp_scan *s,
                          struct pp_jsonl_sequence *r, struct pp_documents *d,
                          struct pp_err *err)
{
    struct json_line l = {0};
    if (pp_scan_peek(s) < 0)
        return 0;
    pp_sequence_reserve(r, s->n);
    l.labels = r->labels;
    l.mask = r->mask;
    /* One more than the characters: the end of document. */
    l.ids = pp_documents_reserve(d, s->n + 1, err);
    if (!l.ids)
        return fail_at_line(j, s, err);
    if (scan_line_object(s, j->bytes, &l, err) != 0)
        return -1;
    if (pp_line_load_items(s, &l.fields, j->streams, d, err) != 0)
        return fail_at_line(j, s, err);
    bool is_row =
        !l.fields.has[PP_FIELD_IDS] && pp_fields_make_sequences(&l.fields);
    int rc = is_row ? pp_jsonl_add_sequences(r, s, &l.fields, d, err)
                    : add_line_documents(j, s, &l, r, d, err);
    return rc != 0 ? fail_at_line(j, s, err) : 0;
}

/* Reads a line, or skips it if it is malformed and may be skipped. */
static int read_or_skip_line(const struct pp_jsonl *j, struct pp_scan *s,
                             struct pp_jsonl_sequence *r,
                             struct pp_documents *d, struct pp_err *err)
{
    size_t before = d->n;
    if (read_json_line(j, s, r, d, err) == 0)
        return 0;
    if (err->code != PP_EXIT_INPUT || d->n_skipped >= j->skip_bad)
        return -1;
    pp_documents_truncate(d, before);
    d->n_skipped++;
    if (j->skipped)
        j->skipped(j->ctx, err->text);
    *err = (struct pp_err){0};
    return 0;
}

/* Checks the lengths of a line that became a document of one sequence, or
 * responses. `first` is its first sequence. Pairs and rows of several documents
 * are checked later. */
static int check_line_length(const struct pp_jsonl *j, const struct pp_scan *s,
                             const struct pp_documents *d, size_t first,
                             struct pp_err *err)
{
    bool later = d->kind != PP_DATA_ROLLOUTS && d->n_sequences != first + 1;
    for (size_t k = first; j->longest && !later && k < d->n_sequences; k++) {
        size_t n = d->first[k + 1] - d->first[k];
        if (n <= j->longest)
            continue;
        pp_fail_setting(err, PP_EXIT_INPUT, "oversize", NULL,
                        "'%zu' tokens are more than the %zu of a bin", n,
                        j->longest);
        return fail_at_line(j, s, err);
    }
    return 0;
}

int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err)
{
    char *text;
    size_t n, bytes = 0;
    struct pp_jsonl_sequence rows = {.streams = j->streams};
    struct pp_lines lines = {
        .f = f, .name = j->name, .keep_zeros = j->skip_bad > 0};
    int rc = 0;
    d->bytes |= j->bytes;
    while (rc == 0 && (rc = pp_lines_next(&lines, &text, &n, err)) > 0) {
        size_t before = d->n_sequences, line = lines.n;
        bool placed = false;
        struct pp_scan s = {.text = text,
                            .n = n,
                            .name = j->name,
                            .lines_before = line - 1,
                            .placed = &placed};
        if (line == 1 && n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
            s.at = 3; /* a byte order mark: editors on Windows write it */
        bytes += n + 1;
        rc = read_or_skip_line(j, &s, &rows, d, err) ||
                     check_line_length(j, &s, d, before, err)
                 ? -1
                 : 0;
        if (rc == 0 && j->progress)
            j->progress(j->ctx, line, bytes);
    }
    pp_sequence_finish(&rows);
    pp_lines_finish(&lines);
    return rc;
}

/* Parses a short run of digits, the usual line. Returns false for any other. */
static bool parse_short_length(const char *text, size_t n, int64_t *length)
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

static int add_length_line(char *text, size_t n, struct pp_documents *d,
                           struct pp_err *err)
{
    int64_t length;
    while (n > 0 && text[n - 1] == '\r')
        text[--n] = '\0';
    if (n == 0)
        return 0;
    if (!parse_short_length(text, n, &length)) {
        if (strlen(text) != n)
            return pp_fail(err, PP_EXIT_INPUT, "has a zero byte");
        if (pp_parse_int(text, "length", 0, INT32_MAX, &length, err) != 0)
            return -1;
    }
    return pp_documents_add(d, (size_t)length, NULL, err);
}

int pp_lengths_read(const char *name, FILE *f, struct pp_documents *d,
                    pp_read_progress_fn *progress, void *ctx,
                    struct pp_err *err)
{
    char *text;
    size_t n, bytes = 0;
    struct pp_lines lines = {.f = f, .name = name};
    int rc = 0;
    while (rc == 0 && (rc = pp_lines_next(&lines, &text, &n, err)) > 0) {
        bytes += n + 1;
        rc = add_length_line(text, n, d, err);
        if (rc != 0)
            pp_fail_at(err, "%s: line %zu: ", name, lines.n);
        else if (progress)
            progress(ctx, lines.n, bytes);
    }
    pp_lines_finish(&lines);
    return rc;
}
