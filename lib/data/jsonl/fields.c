/* SPDX-License-Identifier: MIT */
/* fields - the table of keys, values that several fields have, and the scratch
 * of a reader. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "data/jsonl/sequence.h"

void pp_sequence_reserve(struct pp_jsonl_sequence *r, size_t n)
{
    if (n + 1 <= r->capacity)
        return;
    r->capacity = n + n / 2 + 1024;
    free(r->labels);
    free(r->mask);
    for (int c = 0; c < PP_N_COLUMNS; c++) {
        free(r->values[c]);
        r->values[c] = NULL;
    }
    r->labels = pp_calloc(r->capacity, sizeof *r->labels);
    r->mask = pp_calloc(r->capacity, sizeof *r->mask);
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
        r->values[column] = pp_calloc(r->capacity, sizeof(float));
    memset(r->values[column], 0, r->capacity * sizeof(float));
    r->has[column] = true;
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
