/* SPDX-License-Identifier: MIT */
/* jsonl_rows - sequences made of the fields of one line: chats, preference
 * pairs and rollouts. For jsonl*.c only. */
#ifndef PP_DATA_JSONL_ROWS_H
#define PP_DATA_JSONL_ROWS_H

#include "data/documents.h"
#include "data/jsonl_fields.h"

/* Scratch of a reader: arrays with an element for every character of the
 * longest line so far. Zeroed is empty. */
struct pp_rows {
    int32_t *labels, *mask;
    float *values[PP_N_COLUMNS]; /* NULL until needed */
    size_t room;
    char *group; /* of the rollouts before; NULL: none */
    /* The sequence being made: its ids have been put into the documents'. */
    int32_t *ids;
    size_t n;
    bool has[PP_N_COLUMNS];
};

/* Makes room for lines of n characters. */
int pp_rows_room(struct pp_rows *r, size_t n, struct pp_err *err) PP_MUST_USE;

/* Reads the columns among the fields of an object for the tokens from body on,
 * or all n where there are as many values. */
int pp_rows_columns(struct pp_rows *r, struct pp_scan *s,
                    const struct pp_fields *f, size_t body,
                    struct pp_err *err) PP_MUST_USE;

/* Puts the columns of the last sequence, whose first token was the row's
 * token at. */
int pp_rows_put(const struct pp_rows *r, struct pp_documents *d, size_t at,
                struct pp_err *err) PP_MUST_USE;

/* The row's values of a column begin as zeros. */
int pp_row_start_column(struct pp_rows *r, int column,
                        struct pp_err *err) PP_MUST_USE;

/* Appends the ids that are next. */
int pp_row_append_ids(struct pp_rows *r, struct pp_scan *s, bool scored,
                      struct pp_err *err) PP_MUST_USE;

/* Appends what an object's fields say of a sequence, and reads its columns. */
int pp_row_append_object(struct pp_rows *r, struct pp_scan *s,
                         const struct pp_fields *f,
                         struct pp_err *err) PP_MUST_USE;

/* The same from the value that is next: ids, turns, or an object. */
int pp_row_append_value(struct pp_rows *r, struct pp_scan *s,
                        struct pp_err *err) PP_MUST_USE;

/* Whether the fields are of a line that this file makes sequences of. */
bool pp_rows_known(const struct pp_fields *f);

/* Appends the documents of such a line. */
int pp_rows_add(struct pp_rows *r, struct pp_scan *s, const struct pp_fields *f,
                struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

void pp_rows_finish(struct pp_rows *r);

#endif
