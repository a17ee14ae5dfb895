/* SPDX-License-Identifier: MIT */
/* jsonl - documents from JSON Lines: an object per line with "input_ids", or
 * with "text" for the byte tokenizer, or a chat, a preference pair or rollouts.
 * pppack(1) says what each key means. Other keys are checked and skipped. */
#ifndef PP_DATA_JSONL_H
#define PP_DATA_JSONL_H

#include <stdbool.h>
#include <stdio.h>

#include "data/documents.h"

#define PP_BYTES_END 256 /* the byte tokenizer's end of document */

struct pp_jsonl {
    const char *name; /* for messages: "data.jsonl" */
    bool bytes;       /* tokens are the bytes of "text", then PP_BYTES_END */
    bool allow_empty; /* take documents without tokens: an error otherwise */
    size_t longest;   /* tokens of a document that is one sequence: more are an
                         error, which skip_bad does not leave out; 0: any */
    size_t skip_bad;  /* malformed lines to leave out, of all inputs of the
                         documents; each is counted there */
    /* Called with the error of each; may be NULL. */
    void (*skipped)(void *ctx, const char *error);
    pp_read_progress_fn *progress; /* may be NULL */
    void *ctx;
};

/* Appends the documents of f. Malformed input is PP_EXIT_INPUT with name and
 * line. */
int pp_jsonl_read(struct pp_jsonl *j, FILE *f, struct pp_documents *d,
                  struct pp_err *err) PP_MUST_USE;

#endif
