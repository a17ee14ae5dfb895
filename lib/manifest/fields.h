/* SPDX-License-Identifier: MIT */
/* fields - an object of a document as a table of its keys.
 *
 * Private to lib/manifest. A row says under which key a member of a record
 * stands, its type, its range and whether it may be absent. The same table
 * reads, writes, compares and prints the object. Rules across rows, and rows of
 * PP_OWN without functions, belong to the section. Keys are printed in the
 * table's order. */
#ifndef PP_MANIFEST_FIELDS_H
#define PP_MANIFEST_FIELDS_H

#include "manifest/json.h"

enum pp_field_type {
    PP_OWN,     /* by the row's functions, or by the section itself */
    PP_INTEGER, /* not negative; of 1, 4 or 8 bytes */
    PP_REAL,
    PP_REALS, /* an array of as many doubles as the member has */
    PP_FLAG,
    PP_STRING, /* borrowed from the document; not empty */
    PP_CHOICE, /* a word; the member is its index */
    PP_OBJECT  /* with a table of its own, whose record is the member */
};

enum pp_field_presence {
    PP_NEEDED,
    PP_OPTIONAL, /* not written if it is `absent`, all 0 or out of range */
    PP_ALWAYS    /* may be absent, but is written */
};

struct pp_doc_field {
    const char *key; /* NULL ends a table */
    enum pp_field_type type;
    enum pp_field_presence presence;
    size_t offset, size; /* of the member in the record */
    int64_t min, max;    /* of an integer */
    double least, most;  /* of a real */
    size_t max_at;  /* if it is not 0: the offset of a member of the same size,
                       further up in the table, that the integer's max is */
    int64_t absent; /* what an integer is without its key, if that is not 0 */
    const char *const *words; /* which NULL ends */
    const char *list;         /* the same for a message: "position or probs" */
    /* The record begins with a bool that says if the object is there. */
    bool flagged;
    const struct pp_doc_field
        *fields; /* of an object, or of objects in a list */
    /* If PP_OWN; they take the member, or the record if there is none. */
    int (*read)(const struct pp_value *at, void *member);
    void (*put)(json_t *object, const char *key, const void *member);
};

/* The place of a member. */
#define PP_AT(record, member) \
    offsetof(record, member), sizeof(((record *)NULL)->member)

/* Returns the row of a key, or NULL. */
const struct pp_doc_field *pp_field_find(const struct pp_doc_field *fields,
                                         const char *key);

/* Fails unless the value is an object whose keys are in the table or begin with
 * x-. */
int pp_value_object(const struct pp_value *at,
                    const struct pp_doc_field *fields) PP_MUST_USE;

/* Does the same, and reads what is not the section's own into the record. A key
 * that is absent leaves its member alone, or sets it to `absent`. */
int pp_fields_read(const struct pp_value *at, const struct pp_doc_field *fields,
                   void *record) PP_MUST_USE;

/* Returns a new object of a record. A text that is not UTF-8 fills *err
 * (pp_put_text). */
json_t *pp_fields_write(const struct pp_doc_field *fields, const void *record,
                        struct pp_err *err) PP_MUST_USE;

/* Returns whether the members of two records are the same, but for rows without
 * a member. */
bool pp_fields_same(const struct pp_doc_field *fields, const void *a,
                    const void *b);

#endif
