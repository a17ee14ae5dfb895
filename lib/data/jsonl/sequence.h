/* SPDX-License-Identifier: MIT */
/* sequence - sequences from the fields of one line: chats, preference
 * pairs and rollouts. For the files of jsonl only. */
#ifndef PP_DATA_JSONL_SEQUENCE_H
#define PP_DATA_JSONL_SEQUENCE_H

#include <stdbool.h>

#include "data/documents.h"
#include "data/readers.h"
#include "data/scan.h"

/* The known keys of JSON Lines. */
enum pp_field {
    PP_FIELD_TEXT,
    PP_FIELD_IDS,
    PP_FIELD_LABELS,
    PP_FIELD_MASK,
    PP_FIELD_POSITIONS,
    PP_FIELD_LENGTHS,
    PP_FIELD_STARTS,
    PP_FIELD_ATTENTION, /* the masks of padding */
    PP_FIELD_PROMPT_ATTENTION,
    PP_FIELD_CHOSEN_ATTENTION,
    PP_FIELD_REJECTED_ATTENTION,
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
    PP_FIELD_IMAGES, /* plus an enum pp_modality */
    PP_FIELD_AUDIO,
    PP_FIELD_GENERATOR_MASK,
    PP_FIELD_COLUMN, /* plus an enum pp_column */
    PP_N_FIELDS = PP_FIELD_COLUMN + PP_N_COLUMNS,
    PP_FIELD_OTHER = PP_N_FIELDS
};

/* The places in the text at which the values of an object's fields begin. */
struct pp_fields {
    bool has[PP_N_FIELDS];
    size_t at[PP_N_FIELDS];
};

/* Reads a key and its colon. */
int pp_field_key(struct pp_scan *s, enum pp_field *out,
                 struct pp_err *err) PP_MUST_USE;

/* Fails since the field is there twice. */
int pp_field_repeated(const struct pp_scan *s, enum pp_field field,
                      struct pp_err *err);

/* Notes the place of a field's value, and skips the value. Values of other keys
 * are only skipped, and so is an empty list of images. */
int pp_field_note(struct pp_scan *s, enum pp_field field, struct pp_fields *f,
                  struct pp_err *err) PP_MUST_USE;

/* Reads a number that a float can hold. */
int pp_scan_float(struct pp_scan *s, float *out,
                  struct pp_err *err) PP_MUST_USE;

/* Reads an array of 0, 1, false and true. */
int pp_scan_mask(struct pp_scan *s, int32_t *out, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

/* The scratch of a reader: arrays with an element for every character of the
 * longest line so far. A zeroed struct is empty. */
struct pp_jsonl_sequence {
    int32_t *labels, *mask;
    float *values[PP_N_COLUMNS]; /* NULL until needed */
    size_t capacity;             /* of each array */
    char *group;                 /* the previous rollouts' group; NULL: none */
    /* The sequence being made: its ids are in room reserved in the
     * documents. */
    int32_t *ids;
    size_t n;
    bool has[PP_N_COLUMNS];
    const struct pp_jsonl_stream *const *streams; /* of the reader */
};

/* Makes room for lines of n characters. */
void pp_sequence_reserve(struct pp_jsonl_sequence *r, size_t n);

/* Reads the columns among the fields of an object. Their values are for the
 * tokens from body on, or for all n if there are n values. */
int pp_sequence_read_columns(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             const struct pp_fields *f, size_t body,
                             struct pp_err *err) PP_MUST_USE;

/* Reads the generator's ids, labels and mask among the fields of an object: one
 * element for each of the n tokens. (generator.c) */
int pp_sequence_read_generator(struct pp_jsonl_sequence *r, struct pp_scan *s,
                               const struct pp_fields *f,
                               struct pp_err *err) PP_MUST_USE;

/* Returns whether a field is about a generator. */
bool pp_fields_have_generator(const struct pp_fields *f);

/* Fails if one is, since the sequences are of pairs or rollouts. */
int pp_fields_refuse_generator(const struct pp_scan *s,
                               const struct pp_fields *f,
                               struct pp_err *err) PP_MUST_USE;

/* Sets the generator's ids and labels of the last sequence, which began at
 * token `at` of the line. */
int pp_sequence_set_generator(const struct pp_jsonl_sequence *r,
                              struct pp_documents *d, size_t at,
                              struct pp_err *err) PP_MUST_USE;

/* Sets the columns of the last sequence, which began at token `at` of the
 * line. */
int pp_sequence_set_columns(const struct pp_jsonl_sequence *r,
                            struct pp_documents *d, size_t at,
                            struct pp_err *err) PP_MUST_USE;

/* Sets the values of a column to zeros. */
void pp_sequence_start_column(struct pp_jsonl_sequence *r, int column);

/* Appends the array of ids that is next. */
int pp_sequence_append_ids(struct pp_jsonl_sequence *r, struct pp_scan *s,
                           bool scored, struct pp_err *err) PP_MUST_USE;

/* Appends the tokens among the fields of an object, and reads its columns. */
int pp_sequence_append_object(struct pp_jsonl_sequence *r, struct pp_scan *s,
                              const struct pp_fields *f,
                              struct pp_err *err) PP_MUST_USE;

/* The tokens among padding. */
struct pp_padding {
    size_t before; /* padding on the left */
    size_t n;      /* tokens */
};

/* Reads an attention mask of n elements at a place of the text into
 * mask. */
int pp_padding_read(struct pp_scan *s, size_t at, int32_t *mask, size_t n,
                    struct pp_padding *out, struct pp_err *err) PP_MUST_USE;

/* Removes padding from the tokens from `from` on and from their labels and
 * columns, if the mask is among the fields. */
int pp_sequence_trim(struct pp_jsonl_sequence *r, struct pp_scan *s,
                     const struct pp_fields *f, enum pp_field mask, size_t from,
                     struct pp_err *err) PP_MUST_USE;

/* Appends the value that is next: ids, turns, or an object. */
int pp_sequence_append_value(struct pp_jsonl_sequence *r, struct pp_scan *s,
                             struct pp_err *err) PP_MUST_USE;

/* Returns whether the fields are of a chat, a pair or rollouts. */
bool pp_fields_make_sequences(const struct pp_fields *f);

/* Appends the documents of such a line. */
int pp_jsonl_add_sequences(struct pp_jsonl_sequence *r, struct pp_scan *s,
                           const struct pp_fields *f, struct pp_documents *d,
                           struct pp_err *err) PP_MUST_USE;

/* Loads the items of a line, which every sequence of it has. */
int pp_line_load_items(
    struct pp_scan *s, const struct pp_fields *f,
    const struct pp_jsonl_stream *const streams[PP_N_MODALITIES],
    struct pp_documents *d, struct pp_err *err) PP_MUST_USE;

/* Checks that n ids have the placeholders of the loaded items of each modality
 * (pp_items_check_places), and takes the labels of these away. labels may be
 * NULL. */
int pp_line_check_placeholders(
    const struct pp_jsonl_stream *const streams[PP_N_MODALITIES],
    const struct pp_documents *d, const int32_t *ids, int32_t *labels, size_t n,
    struct pp_err *err) PP_MUST_USE;

void pp_sequence_finish(struct pp_jsonl_sequence *r);

#endif
