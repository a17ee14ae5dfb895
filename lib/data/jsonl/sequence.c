/* SPDX-License-Identifier: MIT */
/* sequence - makes one sequence from ids, turns and columns. */
#include <float.h>
#include <string.h>

#include "data/jsonl/sequence.h"
#include "data/packed/packed.h"

/* Reads one number for all tokens of the body, or an array for the body or for
 * all tokens. */
static int read_token_values(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             int column, size_t body, struct pp_err *err)
{
    float *out = r->values[column];
    size_t n = 0, start = s->at, n_body = r->n - body;
    float one;
    int more;
    if (pp_scan_peek(s) != '[') {
        if (pp_scan_float(s, &one, err) != 0)
            return -1;
        for (size_t i = body; i < r->n; i++)
            out[i] = one;
        return 0;
    }
    s->at++;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0)
        if (pp_scan_float(s, &out[n - 1], err) != 0)
            return -1;
    if (more < 0)
        return -1;
    if (n == n_body && body > 0) {
        memmove(out + body, out, n * sizeof *out);
        memset(out, 0, body * sizeof *out);
    } else if (n != r->n) {
        s->at = start;
        return pp_scan_fail(s, err, "'%zu' %s for %zu tokens", n,
                            pp_columns[column].name, n_body);
    }
    return 0;
}

int pp_sequence_read_columns(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             const struct pp_fields *f, size_t body,
                             struct pp_err *err)
{
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        if (!f->has[PP_FIELD_COLUMN + c] || pp_columns[c].is_ids)
            continue;
        s->at = f->at[PP_FIELD_COLUMN + c];
        pp_sequence_start_column(r, c);
        int rc = pp_columns[c].scope == PP_SCOPE_TOKEN
                     ? read_token_values(r, s, c, body, err)
                     : pp_scan_float(s, r->values[c], err);
        if (rc != 0)
            return -1;
    }
    return pp_sequence_read_generator(r, s, f, err);
}

int pp_sequence_set_columns(const struct pp_jsonl_sequence *r,
                            struct pp_documents *d, size_t at,
                            struct pp_err *err)
{
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        bool per_token = pp_columns[c].scope == PP_SCOPE_TOKEN;
        if (r->has[c] && !pp_columns[c].is_ids &&
            pp_documents_set_column(d, (enum pp_column)c,
                                    r->values[c] + (per_token ? at : 0),
                                    err) != 0)
            return -1;
    }
    return pp_sequence_set_generator(r, d, at, err);
}

/* --- padding that an attention mask marks --- */

int pp_padding_read(struct pp_scan *s, size_t at, int32_t *mask, size_t n,
                    struct pp_padding *out, struct pp_err *err)
{
    size_t given, first = 0, end;
    s->at = at;
    if (pp_scan_mask(s, mask, &given, err) != 0)
        return -1;
    s->at = at; /* the place of errors */
    if (given != n)
        return pp_scan_fail(s, err,
                            "attention_mask of '%zu' elements for %zu "
                            "tokens",
                            given, n);
    while (first < n && !mask[first])
        first++;
    for (end = first; end < n && mask[end];)
        end++;
    for (size_t i = end; i < n; i++)
        if (mask[i])
            return pp_scan_fail(s, err,
                                "attention_mask: '0' between tokens is not "
                                "padding");
    *out = (struct pp_padding){first, end - first};
    return 0;
}

int pp_sequence_trim(struct pp_jsonl_sequence *r, struct pp_scan *s,
                     const struct pp_fields *f, enum pp_field mask, size_t from,
                     struct pp_err *err)
{
    struct pp_padding p;
    if (!f->has[mask])
        return 0;
    if (pp_padding_read(s, f->at[mask], r->mask, r->n - from, &p, err) != 0)
        return -1;
    size_t at = from + p.before;
    memmove(r->ids + from, r->ids + at, p.n * sizeof *r->ids);
    memmove(r->labels + from, r->labels + at, p.n * sizeof *r->labels);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (r->has[c] && pp_columns[c].scope == PP_SCOPE_TOKEN)
            memmove(r->values[c] + from, r->values[c] + at,
                    p.n * sizeof *r->values[c]);
    r->n = from + p.n;
    return 0;
}

/* --- sequences --- */

int pp_sequence_append_ids(struct pp_jsonl_sequence *r, struct pp_scan *s,
                           bool scored, struct pp_err *err)
{
    size_t n, from = r->n;
    if (pp_scan_peek(s) == '"')
        return pp_scan_fail(s, err,
                            "expected token ids, got text; scripts/tokenize "
                            "makes them");
    if (pp_scan_int32s(s, 0, INT32_MAX - 1, "a token id", r->ids + from, &n,
                       err) != 0)
        return -1;
    r->n += n;
    for (size_t i = from; i < r->n; i++)
        r->labels[i] = scored ? r->ids[i] : PP_LABEL_IGNORE;
    return 0;
}

static int count_mismatch(const struct pp_scan *s, size_t n, const char *what,
                          size_t tokens, struct pp_err *err)
{
    return pp_scan_fail(s, err, "'%zu' %s for %zu tokens", n, what, tokens);
}

/* The labels and loss mask of the tokens from body on. */
static int read_field_labels(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             const struct pp_fields *f, size_t body,
                             struct pp_err *err)
{
    size_t n, n_body = r->n - body;
    if (f->has[PP_FIELD_LABELS]) {
        s->at = f->at[PP_FIELD_LABELS];
        if (pp_scan_int32s(s, PP_LABEL_IGNORE, INT32_MAX - 1, "a label",
                           r->mask, &n, err) != 0)
            return -1;
        if (n != n_body)
            return count_mismatch(s, n, "labels", n_body, err);
        for (size_t i = 0; i < n; i++)
            if (r->mask[i] < 0 && r->mask[i] != PP_LABEL_IGNORE)
                return pp_scan_fail(s, err,
                                    "'%d' is not a label (0 or more, or -100)",
                                    r->mask[i]);
        memcpy(r->labels + body, r->mask, n * sizeof *r->labels);
    }
    if (f->has[PP_FIELD_MASK]) {
        s->at = f->at[PP_FIELD_MASK];
        if (pp_scan_mask(s, r->mask, &n, err) != 0)
            return -1;
        if (n != n_body)
            return count_mismatch(s, n, "elements of loss_mask", n_body, err);
        for (size_t i = 0; i < n; i++)
            if (!r->mask[i])
                r->labels[body + i] = PP_LABEL_IGNORE;
            else if (r->labels[body + i] == PP_LABEL_IGNORE &&
                     !f->has[PP_FIELD_LABELS])
                r->labels[body + i] = r->ids[body + i];
    }
    return 0;
}

/* Reads whether a turn is scored: "train" says it; else a turn of the
 * assistant, or one without a role, is scored. */
static int read_train(struct pp_scan *s, const struct pp_fields *f, bool *out,
                      struct pp_err *err)
{
    char role[16];
    size_t n;
    int32_t number;
    if (f->has[PP_FIELD_TRAIN]) {
        s->at = f->at[PP_FIELD_TRAIN];
        if (pp_scan_bool(s, out))
            return 0;
        if (pp_scan_int32(s, 0, 1, "true or false", &number, err) != 0)
            return -1;
        *out = number == 1;
        return 0;
    }
    *out = true;
    if (!f->has[PP_FIELD_ROLE])
        return 0;
    s->at = f->at[PP_FIELD_ROLE];
    if (pp_scan_text(s, role, sizeof role, &n, err) != 0)
        return -1;
    *out = n == strlen("assistant") && !memcmp(role, "assistant", n);
    return 0;
}

/* Images and audio stand on the line, since all its sequences have them. */
static int refuse_inner_images(const struct pp_scan *s,
                               const struct pp_fields *f, struct pp_err *err)
{
    if (!f->has[PP_FIELD_IMAGES] && !f->has[PP_FIELD_AUDIO])
        return 0;
    return pp_scan_fail(
        s, err, "'%s' must be a field of the line, not of a turn or a side",
        f->has[PP_FIELD_IMAGES] ? "images" : "audio");
}

/* Notes the fields of a whole object. */
static int scan_fields(struct pp_scan *s, struct pp_fields *f,
                       struct pp_err *err)
{
    size_t n = 0;
    int more;
    *f = (struct pp_fields){0};
    if (pp_scan_expect(s, '{', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, '}', &n, err)) > 0) {
        enum pp_field field;
        if (pp_field_key(s, &field, err) != 0 ||
            pp_field_note(s, field, f, err) != 0)
            return -1;
    }
    return more;
}

static int append_turn(struct pp_jsonl_sequence *r, struct pp_scan *s,
                       struct pp_err *err)
{
    struct pp_fields f;
    size_t body = r->n;
    bool train;
    if (scan_fields(s, &f, err) != 0)
        return -1;
    size_t end = s->at;
    if (!f.has[PP_FIELD_IDS])
        return pp_scan_fail(s, err,
                            "a turn needs 'input_ids'; scripts/tokenize makes "
                            "them from text");
    if (refuse_inner_images(s, &f, err) != 0)
        return -1;
    if (read_train(s, &f, &train, err) != 0)
        return -1;
    s->at = f.at[PP_FIELD_IDS];
    if (pp_sequence_append_ids(r, s, train, err) != 0 ||
        read_field_labels(r, s, &f, body, err) != 0 ||
        pp_sequence_trim(r, s, &f, PP_FIELD_ATTENTION, body, err) != 0)
        return -1;
    for (int c = 0; c < PP_N_COLUMNS; c++)
        if (f.has[PP_FIELD_COLUMN + c])
            return pp_scan_fail(s, err,
                                "'%s' must be beside the turns, not inside one",
                                pp_columns[c].name);
    if (f.has[PP_FIELD_GENERATOR_MASK])
        return pp_scan_fail(s, err,
                            "'generator_mask' must be beside the turns, not "
                            "inside one");
    s->at = end;
    return 0;
}

static int append_turns(struct pp_jsonl_sequence *r, struct pp_scan *s,
                        struct pp_err *err)
{
    size_t n = 0;
    int more;
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', &n, err)) > 0)
        if (append_turn(r, s, err) != 0)
            return -1;
    return more;
}

/* Appends an array of ids or of turns. */
static int append_list(struct pp_jsonl_sequence *r, struct pp_scan *s,
                       struct pp_err *err)
{
    struct pp_scan ahead = *s;
    bool list = pp_scan_peek(&ahead) == '[';
    ahead.at += list;
    return list && pp_scan_peek(&ahead) == '{'
               ? append_turns(r, s, err)
               : pp_sequence_append_ids(r, s, true, err);
}

int pp_sequence_append_object(struct pp_jsonl_sequence *r, struct pp_scan *s,
                              const struct pp_fields *f, struct pp_err *err)
{
    static const enum pp_field bodies[] = {PP_FIELD_IDS, PP_FIELD_RESPONSE,
                                           PP_FIELD_MESSAGES};
    size_t body = r->n;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        if (!f->has[bodies[i]])
            continue;
        s->at = f->at[bodies[i]];
        if (append_list(r, s, err) != 0 ||
            read_field_labels(r, s, f, body, err) != 0)
            return -1;
        if (pp_sequence_read_columns(r, s, f, body, err) != 0)
            return -1;
        return pp_sequence_trim(r, s, f, PP_FIELD_ATTENTION, body, err);
    }
    return pp_scan_fail(s, err, "no 'input_ids'");
}

int pp_sequence_append_value(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             struct pp_err *err)
{
    struct pp_fields f;
    if (pp_scan_peek(s) != '{')
        return append_list(r, s, err);
    if (scan_fields(s, &f, err) != 0)
        return -1;
    size_t end = s->at;
    if (refuse_inner_images(s, &f, err) != 0 ||
        pp_fields_refuse_generator(s, &f, err) != 0 ||
        pp_sequence_append_object(r, s, &f, err) != 0)
        return -1;
    s->at = end;
    return 0;
}
