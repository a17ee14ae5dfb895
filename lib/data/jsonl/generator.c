/* SPDX-License-Identifier: MIT */
/* generator - reads the tokens of a generator behind the language model:
 * in line with the tokens of a sequence, an id that the generator reads and
 * whether it is predicted. Labels and mask mean the same as the language
 * model's. */
#include "data/jsonl/sequence.h"

#include "data/packed/packed.h"

bool pp_fields_have_generator(const struct pp_fields *f)
{
    return f->has[PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_IDS] ||
           f->has[PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_LABELS] ||
           f->has[PP_FIELD_GENERATOR_MASK];
}

int pp_fields_refuse_generator(const struct pp_scan *s,
                               const struct pp_fields *f, struct pp_err *err)
{
    if (!pp_fields_have_generator(f))
        return 0;
    return pp_scan_fail(s, err,
                        "'generator_ids' must be of a document or a chat: a "
                        "generator is trained by supervised fine-tuning alone");
}

/* Returns the array that a column of ids is read into. */
static int32_t *ids_of(const struct pp_jsonl_sequence *r, int column)
{
    return (int32_t *)(void *)r->values[column];
}

/* Checks that a field has an element for each token. */
static int check_count(struct pp_scan *s, const struct pp_fields *f, int field,
                       const char *name, size_t n, size_t tokens,
                       struct pp_err *err)
{
    if (n == tokens)
        return 0;
    s->at = f->at[field];
    return pp_scan_fail(s, err, "'%zu' %s for %zu tokens", n, name, tokens);
}

/* Reads a field that is a column of ids from `least` on. */
static int read_ids(struct pp_jsonl_sequence *r, struct pp_scan *s,
                    const struct pp_fields *f, int column, int32_t least,
                    const char *what, struct pp_err *err)
{
    int field = PP_FIELD_COLUMN + column;
    size_t n;
    s->at = f->at[field];
    pp_sequence_start_column(r, column);
    if (pp_scan_int32s(s, least, INT32_MAX - 1, what, ids_of(r, column), &n,
                       err) != 0)
        return -1;
    return check_count(s, f, field, pp_columns[column].name, n, r->n, err);
}

static int read_labels(struct pp_jsonl_sequence *r, struct pp_scan *s,
                       const struct pp_fields *f, struct pp_err *err)
{
    const int column = PP_COLUMN_GENERATOR_LABELS;
    if (read_ids(r, s, f, column, PP_LABEL_IGNORE, "a label", err) != 0)
        return -1;
    for (size_t i = 0; i < r->n; i++) {
        int32_t label = ids_of(r, column)[i];
        if (label < 0 && label != PP_LABEL_IGNORE)
            return pp_scan_fail(
                s, err, "'%d' is not a label (0 or more, or -100)", label);
    }
    return 0;
}

/* Reads the mask and takes labels away. Without labels it makes them from the
 * ids. */
static int read_generator_mask(struct pp_jsonl_sequence *r, struct pp_scan *s,
                               const struct pp_fields *f, struct pp_err *err)
{
    const int32_t *ids = ids_of(r, PP_COLUMN_GENERATOR_IDS);
    bool own = r->has[PP_COLUMN_GENERATOR_LABELS];
    size_t n;
    s->at = f->at[PP_FIELD_GENERATOR_MASK];
    pp_sequence_start_column(r, PP_COLUMN_GENERATOR_LABELS);
    if (pp_scan_mask(s, r->mask, &n, err) != 0 ||
        check_count(s, f, PP_FIELD_GENERATOR_MASK, "elements of generator_mask",
                    n, r->n, err) != 0)
        return -1;
    int32_t *labels = ids_of(r, PP_COLUMN_GENERATOR_LABELS);
    for (size_t i = 0; i < n; i++)
        if (!r->mask[i])
            labels[i] = PP_LABEL_IGNORE;
        else if (!own)
            labels[i] = ids[i];
    return 0;
}

int pp_sequence_read_generator(struct pp_jsonl_sequence *r, struct pp_scan *s,
                               const struct pp_fields *f, struct pp_err *err)
{
    if (!pp_fields_have_generator(f))
        return 0;
    if (!f->has[PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_IDS])
        return pp_scan_fail(s, err,
                            "labels or a mask of a generator need "
                            "'generator_ids'");
    if (read_ids(r, s, f, PP_COLUMN_GENERATOR_IDS, 0, "a generator's id",
                 err) != 0)
        return -1;
    if (f->has[PP_FIELD_COLUMN + PP_COLUMN_GENERATOR_LABELS] &&
        read_labels(r, s, f, err) != 0)
        return -1;
    return f->has[PP_FIELD_GENERATOR_MASK] ? read_generator_mask(r, s, f, err)
                                           : 0;
}

int pp_sequence_set_generator(const struct pp_jsonl_sequence *r,
                              struct pp_documents *d, size_t at,
                              struct pp_err *err)
{
    if (!r->has[PP_COLUMN_GENERATOR_IDS])
        return 0;
    return pp_documents_set_generator(
        d, ids_of(r, PP_COLUMN_GENERATOR_IDS) + at,
        r->has[PP_COLUMN_GENERATOR_LABELS]
            ? ids_of(r, PP_COLUMN_GENERATOR_LABELS) + at
            : NULL,
        err);
}
