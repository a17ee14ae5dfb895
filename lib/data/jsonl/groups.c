/* SPDX-License-Identifier: MIT */
/* groups - pairs, rollouts and chats. The line was scanned once: it is
 * valid JSON, and the places of its fields are known. Fields are read here in
 * the order in which they are needed. */
#include "data/jsonl/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Begins a sequence with the line's prompt. */
static int begin_sequence(struct pp_jsonl_sequence *r, struct pp_scan *s,
                          const struct pp_fields *f, struct pp_documents *d,
                          struct pp_err *err)
{
    r->ids = pp_documents_reserve(d, s->n + 1, err);
    r->n = 0;
    memset(r->has, 0, sizeof r->has);
    if (!r->ids)
        return -1;
    if (!f->has[PP_FIELD_PROMPT])
        return 0;
    s->at = f->at[PP_FIELD_PROMPT];
    if (pp_sequence_append_ids(r, s, false, err) != 0)
        return -1;
    return pp_sequence_trim(r, s, f, PP_FIELD_PROMPT_ATTENTION, 0, err);
}

static int end_sequence(struct pp_jsonl_sequence *r, struct pp_scan *s,
                        struct pp_documents *d, struct pp_err *err)
{
    if (r->n == 0)
        return pp_scan_fail(s, err, "a sequence needs at least one token");
    if (pp_line_check_placeholders(r->streams, d, r->ids, r->labels, r->n,
                                   err) != 0 ||
        pp_documents_add(d, r->n, r->labels, err) != 0 ||
        pp_documents_attach_items(d, err) != 0)
        return -1;
    return pp_sequence_set_columns(r, d, 0, err);
}

/* Reads one number for the sequence. */
static int read_number_field(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             const struct pp_fields *f, enum pp_field field,
                             enum pp_column column, struct pp_err *err)
{
    if (!f->has[field])
        return 0;
    s->at = f->at[field];
    pp_sequence_start_column(r, (int)column);
    return pp_scan_float(s, r->values[column], err);
}

static int add_pair(struct pp_jsonl_sequence *r, struct pp_scan *s,
                    const struct pp_fields *f, struct pp_documents *d,
                    struct pp_err *err)
{
    static const struct {
        enum pp_field value, logp, mask;
    } sides[] = {
        {PP_FIELD_CHOSEN, PP_FIELD_REF_CHOSEN, PP_FIELD_CHOSEN_ATTENTION},
        {PP_FIELD_REJECTED, PP_FIELD_REF_REJECTED,
         PP_FIELD_REJECTED_ATTENTION}};
    if (!f->has[PP_FIELD_CHOSEN] || !f->has[PP_FIELD_REJECTED])
        return pp_scan_fail(s, err,
                            "'chosen' and 'rejected' must be given together");
    for (int k = 0; k < 2; k++) {
        if (begin_sequence(r, s, f, d, err) != 0)
            return -1;
        size_t body = r->n;
        s->at = f->at[sides[k].value];
        if (pp_sequence_append_value(r, s, err) != 0 ||
            pp_sequence_trim(r, s, f, sides[k].mask, body, err) != 0 ||
            read_number_field(r, s, f, sides[k].logp, PP_COLUMN_REF_LOGPS,
                              err) != 0 ||
            (k == 0 &&
             read_number_field(r, s, f, PP_FIELD_COLUMN + PP_COLUMN_MARGINS,
                               PP_COLUMN_MARGINS, err) != 0) ||
            end_sequence(r, s, d, err) != 0 ||
            (k == 1 && pp_documents_join(d, err) != 0))
            return -1;
    }
    return pp_documents_check_last(d, PP_DATA_PAIRS, err);
}

/* Finds the values of response k: element k of each array of values. */
static int pick_response_fields(struct pp_scan *s, const struct pp_fields *f,
                                size_t k, struct pp_fields *out,
                                struct pp_err *err)
{
    *out = (struct pp_fields){0};
    for (int c = PP_FIELD_COLUMN; c < PP_N_FIELDS; c++) {
        size_t n = 0;
        int more = 0;
        if (!f->has[c])
            continue;
        s->at = f->at[c];
        if (pp_scan_expect(s, '[', err) != 0)
            return -1;
        while ((more = pp_scan_more(s, ']', &n, err)) > 0 && n <= k)
            if (pp_scan_skip(s, err) != 0)
                return -1;
        if (more < 0)
            return -1;
        if (more == 0)
            return pp_scan_fail(s, err, "'%zu' %s are fewer than the responses",
                                n, pp_columns[c - PP_FIELD_COLUMN].name);
        pp_scan_peek(s);
        out->has[c] = true;
        out->at[c] = s->at;
    }
    return 0;
}

static int add_responses(struct pp_jsonl_sequence *r, struct pp_scan *s,
                         const struct pp_fields *f, struct pp_documents *d,
                         struct pp_err *err)
{
    struct pp_scan list = *s;
    struct pp_fields own;
    size_t n = 0;
    int more;
    list.at = f->at[PP_FIELD_RESPONSES];
    if (pp_scan_expect(&list, '[', err) != 0)
        return -1;
    while ((more = pp_scan_more(&list, ']', &n, err)) > 0) {
        if (begin_sequence(r, s, f, d, err) != 0)
            return -1;
        size_t body = r->n;
        if (pp_sequence_append_value(r, &list, err) != 0 ||
            pick_response_fields(s, f, n - 1, &own, err) != 0 ||
            pp_sequence_read_columns(r, s, &own, body, err) != 0 ||
            end_sequence(r, s, d, err) != 0 ||
            (n > 1 && pp_documents_join(d, err) != 0))
            return -1;
    }
    if (more == 0 && n == 0)
        return pp_scan_fail(&list, err, "'responses' is empty");
    return more ? -1 : pp_documents_check_last(d, PP_DATA_ROLLOUTS, err);
}

/* Notes the line's group. *same: it is the group of the previous line. */
static int note_group(struct pp_jsonl_sequence *r, struct pp_scan *s,
                      const struct pp_fields *f, bool *same, struct pp_err *err)
{
    char *before = r->group;
    size_t at = f->at[PP_FIELD_GROUP];
    int rc = 0;
    r->group = NULL;
    *same = false;
    if (f->has[PP_FIELD_GROUP]) {
        s->at = at;
        rc = pp_scan_skip(s, err);
    }
    if (f->has[PP_FIELD_GROUP] && rc == 0) {
        r->group = pp_calloc(s->at - at + 1, 1);
        memcpy(r->group, s->text + at, s->at - at);
        *same = before && !strcmp(before, r->group);
    }
    free(before);
    return rc;
}

static int add_single(struct pp_jsonl_sequence *r, struct pp_scan *s,
                      const struct pp_fields *f, struct pp_documents *d,
                      enum pp_data_kind kind, struct pp_err *err)
{
    if (begin_sequence(r, s, f, d, err) != 0 ||
        pp_sequence_append_object(r, s, f, err) != 0 ||
        end_sequence(r, s, d, err) != 0)
        return -1;
    return pp_documents_check_last(d, kind, err);
}

static int add_rollouts(struct pp_jsonl_sequence *r, struct pp_scan *s,
                        const struct pp_fields *f, struct pp_documents *d,
                        struct pp_err *err)
{
    bool same;
    int rc = f->has[PP_FIELD_RESPONSES]
                 ? add_responses(r, s, f, d, err)
                 : add_single(r, s, f, d, PP_DATA_ROLLOUTS, err);
    if (rc != 0 || note_group(r, s, f, &same, err) != 0)
        return -1;
    return same ? pp_documents_join(d, err) : 0;
}

bool pp_fields_make_sequences(const struct pp_fields *f)
{
    return f->has[PP_FIELD_CHOSEN] || f->has[PP_FIELD_REJECTED] ||
           f->has[PP_FIELD_RESPONSE] || f->has[PP_FIELD_RESPONSES] ||
           f->has[PP_FIELD_MESSAGES];
}

int pp_jsonl_add_sequences(struct pp_jsonl_sequence *r, struct pp_scan *s,
                           const struct pp_fields *f, struct pp_documents *d,
                           struct pp_err *err)
{
    if (f->has[PP_FIELD_ATTENTION] &&
        (f->has[PP_FIELD_CHOSEN] || f->has[PP_FIELD_RESPONSES]))
        return pp_fail(err, PP_EXIT_INPUT,
                       "'attention_mask' must be of one sequence: give one to "
                       "each side or response");
    if (!f->has[PP_FIELD_MESSAGES] &&
        pp_fields_refuse_generator(s, f, err) != 0)
        return -1;
    if (f->has[PP_FIELD_CHOSEN] || f->has[PP_FIELD_REJECTED])
        return add_pair(r, s, f, d, err);
    if (f->has[PP_FIELD_RESPONSE] || f->has[PP_FIELD_RESPONSES])
        return add_rollouts(r, s, f, d, err);
    return add_single(r, s, f, d, PP_DATA_DOCUMENTS, err);
}
