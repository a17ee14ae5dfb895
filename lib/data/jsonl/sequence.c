/* SPDX-License-Identifier: MIT */
/* sequence - makes one sequence from ids, turns and columns; and the
 * table of keys. It is one file because every key is a part of a sequence. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "data/jsonl/sequence.h"
#include "data/packed/packed.h"

void pp_sequence_reserve(struct pp_jsonl_sequence *r, size_t n)
{
    if (n + 1 <= r->room)
        return;
    r->room = n + n / 2 + 1024;
    free(r->labels);
    free(r->mask);
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        free(r->values[c]);
        r->values[c] = NULL;
    }
    r->labels = pp_calloc(r->room, sizeof *r->labels);
    r->mask = pp_calloc(r->room, sizeof *r->mask);
}

void pp_sequence_finish(struct pp_jsonl_sequence *r)
{
    free(r->labels);
    free(r->mask);
    free(r->group);
    for (int c = 0; c < PP_N_COLUMNS; c++)
        free(r->values[c]);
}

void pp_sequence_start_column(struct pp_jsonl_sequence *r, int column)
{
    if (r->has[column])
        return;
    if (!r->values[column])
        r->values[column] = pp_calloc(r->room, sizeof(float));
    memset(r->values[column], 0, r->room * sizeof(float));
    r->has[column] = true;
}

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

enum { COLUMN = PP_FIELD_COLUMN };

/* The first name of a field is pptools' own; others are from TRL, NeMo-RL and
 * verl. */
static const struct {
    const char *name;
    int field;
} field_names[] = {
    {"text", PP_FIELD_TEXT},
    {"input_ids", PP_FIELD_IDS},
    {"token_ids", PP_FIELD_IDS},
    {"labels", PP_FIELD_LABELS},
    {"loss_mask", PP_FIELD_MASK},
    {"token_loss_mask", PP_FIELD_MASK},
    {"completion_mask", PP_FIELD_MASK},
    {"assistant_masks", PP_FIELD_MASK},
    {"attention_mask", PP_FIELD_ATTENTION},
    {"prompt_attention_mask", PP_FIELD_PROMPT_ATTENTION},
    {"chosen_attention_mask", PP_FIELD_CHOSEN_ATTENTION},
    {"rejected_attention_mask", PP_FIELD_REJECTED_ATTENTION},
    {"position_ids", PP_FIELD_POSITIONS},
    {"seq_lengths", PP_FIELD_LENGTHS},
    {"seq_start_id", PP_FIELD_STARTS},
    {"prompt", PP_FIELD_PROMPT},
    {"prompt_ids", PP_FIELD_PROMPT},
    {"prompt_input_ids", PP_FIELD_PROMPT},
    {"response", PP_FIELD_RESPONSE},
    {"response_ids", PP_FIELD_RESPONSE},
    {"completion_ids", PP_FIELD_RESPONSE},
    {"responses", PP_FIELD_RESPONSES},
    {"messages", PP_FIELD_MESSAGES},
    {"message_log", PP_FIELD_MESSAGES},
    {"role", PP_FIELD_ROLE},
    {"train", PP_FIELD_TRAIN},
    {"chosen", PP_FIELD_CHOSEN},
    {"chosen_ids", PP_FIELD_CHOSEN},
    {"chosen_input_ids", PP_FIELD_CHOSEN},
    {"rejected", PP_FIELD_REJECTED},
    {"rejected_ids", PP_FIELD_REJECTED},
    {"rejected_input_ids", PP_FIELD_REJECTED},
    {"group", PP_FIELD_GROUP},
    {"ref_chosen_logps", PP_FIELD_REF_CHOSEN},
    {"ref_rejected_logps", PP_FIELD_REF_REJECTED},
    {"images", PP_FIELD_IMAGES},
    {"image", PP_FIELD_IMAGES},
    {"pixel_values", PP_FIELD_IMAGES},
    {"audio", PP_FIELD_AUDIO},
    {"audios", PP_FIELD_AUDIO},
    {"input_features", PP_FIELD_AUDIO},
    {"advantages", COLUMN + PP_COLUMN_ADVANTAGES},
    {"advantage", COLUMN + PP_COLUMN_ADVANTAGES},
    {"logprobs", COLUMN + PP_COLUMN_LOGPROBS},
    {"generation_logprobs", COLUMN + PP_COLUMN_LOGPROBS},
    {"rollout_log_probs", COLUMN + PP_COLUMN_LOGPROBS},
    {"prev_logprobs", COLUMN + PP_COLUMN_PREV_LOGPROBS},
    {"old_log_probs", COLUMN + PP_COLUMN_PREV_LOGPROBS},
    {"old_per_token_logps", COLUMN + PP_COLUMN_PREV_LOGPROBS},
    {"ref_logprobs", COLUMN + PP_COLUMN_REF_LOGPROBS},
    {"reference_policy_logprobs", COLUMN + PP_COLUMN_REF_LOGPROBS},
    {"ref_log_prob", COLUMN + PP_COLUMN_REF_LOGPROBS},
    {"ref_per_token_logps", COLUMN + PP_COLUMN_REF_LOGPROBS},
    {"rewards", COLUMN + PP_COLUMN_REWARDS},
    {"reward", COLUMN + PP_COLUMN_REWARDS},
    {"ref_logps", COLUMN + PP_COLUMN_REF_LOGPS},
    {"margin", COLUMN + PP_COLUMN_MARGINS},
    {"margins", COLUMN + PP_COLUMN_MARGINS},
    {"generator_ids", COLUMN + PP_COLUMN_GENERATOR_IDS},
    {"generator_labels", COLUMN + PP_COLUMN_GENERATOR_LABELS},
    {"generator_mask", PP_FIELD_GENERATOR_MASK},
};

int pp_field_key(struct pp_scan *s, enum pp_field *out, struct pp_err *err)
{
    char key[32];
    size_t n = 0;
    *out = PP_FIELD_OTHER;
    if (pp_scan_text(s, key, sizeof key, &n, err) != 0)
        return -1;
    for (size_t i = 0;
         n < sizeof key && i < sizeof field_names / sizeof *field_names; i++)
        if (strlen(field_names[i].name) == n &&
            !memcmp(field_names[i].name, key, n))
            *out = (enum pp_field)field_names[i].field;
    return pp_scan_expect(s, ':', err);
}

int pp_field_repeated(const struct pp_scan *s, enum pp_field field,
                      struct pp_err *err)
{
    size_t i = 0;
    while (field_names[i].field != (int)field)
        i++;
    return pp_scan_fail(s, err, "repeated '%s'", field_names[i].name);
}

/* Returns whether an empty list is next. */
static bool is_empty_list(const struct pp_scan *s)
{
    struct pp_scan ahead = *s;
    int c = pp_scan_peek(&ahead);
    ahead.at++;
    return c == '[' && pp_scan_peek(&ahead) == ']';
}

int pp_field_note(struct pp_scan *s, enum pp_field field, struct pp_fields *f,
                  struct pp_err *err)
{
    if ((field == PP_FIELD_IMAGES || field == PP_FIELD_AUDIO) &&
        is_empty_list(s))
        field = PP_FIELD_OTHER;
    /* Tools that export tables write null for a missing value. */
    if (field != PP_FIELD_OTHER && pp_scan_peek(s) != 'n') {
        if (f->has[field])
            return pp_field_repeated(s, field, err);
        f->has[field] = true;
        f->at[field] = s->at;
    }
    return pp_scan_skip(s, err);
}

int pp_scan_float(struct pp_scan *s, float *out, struct pp_err *err)
{
    char text[64];
    struct pp_err ignored = {0};
    double x;
    int c = pp_scan_peek(s);
    size_t start = s->at;
    if ((c != '-' && (c < '0' || c > '9')) || pp_scan_skip(s, &ignored) != 0) {
        s->at = start;
        return pp_scan_unexpected(s, "a number", err);
    }
    size_t n = s->at - start;
    if (n >= sizeof text)
        n = sizeof text - 1;
    memcpy(text, s->text + start, n);
    text[n] = '\0';
    if (pp_parse_real(text, "number", -(double)FLT_MAX, (double)FLT_MAX, &x,
                      &ignored) != 0) {
        s->at = start;
        return pp_scan_unexpected(s, "a number that a float can hold", err);
    }
    *out = (float)x;
    return 0;
}

int pp_scan_mask(struct pp_scan *s, int32_t *out, size_t *n, struct pp_err *err)
{
    int more;
    *n = 0;
    if (pp_scan_expect(s, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(s, ']', n, err)) > 0) {
        int32_t *m = &out[*n - 1];
        bool word;
        if (pp_scan_bool(s, &word))
            *m = word;
        else if (pp_scan_int32(s, 0, 1, "0 or 1", m, err) != 0)
            return -1;
    }
    return more;
}
