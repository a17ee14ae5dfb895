/* SPDX-License-Identifier: MIT */
/* columns - the named columns that data may have beside ids and labels, for
 * objectives that need them. pp-pack(5) says what each means. Their elements
 * are floats. */
#ifndef PP_DATA_COLUMNS_H
#define PP_DATA_COLUMNS_H

#include <stddef.h>

enum pp_column {
    PP_COLUMN_ADVANTAGES,
    PP_COLUMN_LOGPROBS,
    PP_COLUMN_PREV_LOGPROBS,
    PP_COLUMN_REF_LOGPROBS,
    PP_COLUMN_REWARDS,
    PP_COLUMN_REF_LOGPS,
    PP_COLUMN_MARGINS,
    PP_N_COLUMNS
};

/* What a column has one element for. The numbers are those of pp-pack(5). */
enum pp_scope { PP_SCOPE_TOKEN, PP_SCOPE_SEQUENCE, PP_SCOPE_GROUP };

struct pp_column_kind {
    const char *name; /* of the file in a packed directory */
    enum pp_scope scope;
};

extern const struct pp_column_kind pp_columns[PP_N_COLUMNS];

/* What the documents of an input are. The numbers are those of pp-pack(5). */
enum pp_data_kind {
    PP_DATA_DOCUMENTS, /* a sequence each */
    PP_DATA_PAIRS,     /* two: the chosen one, then the rejected one */
    PP_DATA_ROLLOUTS,  /* one or more: the responses to one prompt */
    PP_DATA_N_KINDS
};

extern const char *const pp_data_kinds[PP_DATA_N_KINDS];

#endif
