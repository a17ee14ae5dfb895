/* SPDX-License-Identifier: MIT */
#include "data/jsonl_fields.h"

#include <float.h>
#include <string.h>

#include "base/num.h"

enum { COLUMN = PP_FIELD_COLUMN };

/* Fields have one name here; the others are those of TRL, NeMo-RL and verl. */
static const struct {
    const char *name;
    int field;
} names[] = {
    {"text", PP_FIELD_TEXT},
    {"input_ids", PP_FIELD_IDS},
    {"token_ids", PP_FIELD_IDS},
    {"labels", PP_FIELD_LABELS},
    {"loss_mask", PP_FIELD_MASK},
    {"token_loss_mask", PP_FIELD_MASK},
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
};

int pp_field_key(struct pp_scan *s, enum pp_field *out, struct pp_err *err)
{
    char key[32];
    size_t n = 0;
    *out = PP_FIELD_OTHER;
    if (pp_scan_text(s, key, sizeof key, &n, err) != 0)
        return -1;
    for (size_t i = 0; n < sizeof key && i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && !memcmp(names[i].name, key, n))
            *out = (enum pp_field)names[i].field;
    return pp_scan_expect(s, ':', err);
}

int pp_field_repeated(const struct pp_scan *s, enum pp_field field,
                      struct pp_err *err)
{
    size_t i = 0;
    while (names[i].field != (int)field)
        i++;
    return pp_scan_fail(s, err, "repeated '%s'", names[i].name);
}

int pp_field_note(struct pp_scan *s, enum pp_field field, struct pp_fields *f,
                  struct pp_err *err)
{
    /* Tables that lack a value have null there. */
    if (field != PP_FIELD_OTHER && pp_scan_peek(s) != 'n') {
        if (f->has[field])
            return pp_field_repeated(s, field, err);
        f->has[field] = true;
        f->at[field] = s->at;
    }
    return pp_scan_skip(s, err);
}

int pp_fields_scan(struct pp_scan *s, struct pp_fields *f, struct pp_err *err)
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
