/* SPDX-License-Identifier: MIT */
/* jsonl_fields - the keys of JSON Lines that mean something, in this project's
 * words and in those of others. For jsonl*.c only. */
#ifndef PP_DATA_JSONL_FIELDS_H
#define PP_DATA_JSONL_FIELDS_H

#include <stdbool.h>

#include "data/columns.h"
#include "data/scan.h"

enum pp_field {
    PP_FIELD_TEXT,
    PP_FIELD_IDS,
    PP_FIELD_LABELS,
    PP_FIELD_MASK,
    PP_FIELD_POSITIONS,
    PP_FIELD_LENGTHS,
    PP_FIELD_STARTS,
    PP_FIELD_PROMPT,
    PP_FIELD_RESPONSE,
    PP_FIELD_RESPONSES,
    PP_FIELD_MESSAGES,
    PP_FIELD_ROLE,
    PP_FIELD_TRAIN,
    PP_FIELD_CHOSEN,
    PP_FIELD_REJECTED,
    PP_FIELD_GROUP,
    PP_FIELD_REF_CHOSEN,
    PP_FIELD_REF_REJECTED,
    PP_FIELD_COLUMN, /* and on: enum pp_column */
    PP_N_FIELDS = PP_FIELD_COLUMN + PP_N_COLUMNS,
    PP_FIELD_OTHER = PP_N_FIELDS
};

/* Where the values of an object's fields begin in the text. */
struct pp_fields {
    bool has[PP_N_FIELDS];
    size_t at[PP_N_FIELDS];
};

/* A key and its colon: what it means. */
int pp_field_key(struct pp_scan *s, enum pp_field *out,
                 struct pp_err *err) PP_MUST_USE;

/* The field was there before: an error. */
int pp_field_repeated(const struct pp_scan *s, enum pp_field field,
                      struct pp_err *err);

/* Notes where the value of a field is, and skips it. Other keys' values are
 * skipped too. */
int pp_field_note(struct pp_scan *s, enum pp_field field, struct pp_fields *f,
                  struct pp_err *err) PP_MUST_USE;

/* A whole object. */
int pp_fields_scan(struct pp_scan *s, struct pp_fields *f,
                   struct pp_err *err) PP_MUST_USE;

/* A number that a float can hold. */
int pp_scan_float(struct pp_scan *s, float *out,
                  struct pp_err *err) PP_MUST_USE;

/* An array of 0, 1, false and true. */
int pp_scan_mask(struct pp_scan *s, int32_t *out, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

#endif
