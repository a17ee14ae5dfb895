/* SPDX-License-Identifier: MIT */
/* scan - a strict JSON tokenizer over memory: RFC 8259, no extensions.
 *
 * It reads JSON outside manifests: safetensors headers, their index, lists of
 * names, JSON Lines. It walks the text and builds nothing, so a text of any
 * size costs only what its reader keeps. lib/manifest reads manifests and
 * config.json with a library. */
#ifndef PP_DATA_SCAN_H
#define PP_DATA_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Set text, n and name, and lines_before if the text is part of a file; zero
 * the rest. Every message begins with the name, the line and the column (in
 * bytes). The text need not end with a NUL. Every function first skips blanks,
 * and fails with PP_EXIT_INPUT. */
struct pp_scan {
    const char *text;
    size_t n, at;
    const char *name;
    size_t lines_before;
    bool *placed; /* set by an error, which then has its place; may be NULL */
};

/* Fails at the scanner's position: "name: line 1, column 7: expected ...". */
int pp_scan_fail(const struct pp_scan *s, struct pp_err *err, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

/* Fails with "expected a string, got '1'". */
int pp_scan_unexpected(const struct pp_scan *s, const char *expected,
                       struct pp_err *err);

/* Returns the next byte, or -1 if only blanks are left. */
int pp_scan_peek(struct pp_scan *s);

/* Fails unless only blanks are left. */
int pp_scan_end(struct pp_scan *s, struct pp_err *err) PP_MUST_USE;

/* Consumes c. */
int pp_scan_expect(struct pp_scan *s, char c, struct pp_err *err) PP_MUST_USE;

/* Goes on inside an object or array whose opening was consumed. Returns 1 if
 * another member follows (its comma is consumed), 0 if close was consumed, -1
 * on error. *n_members starts at 0 and counts. */
int pp_scan_more(struct pp_scan *s, char close, size_t *n_members,
                 struct pp_err *err) PP_MUST_USE;

/* Reads a string, unescaped, in UTF-8. *n is its bytes; as many as fit into
 * size are stored. They may include a NUL; none is added. */
int pp_scan_text(struct pp_scan *s, char *out, size_t size, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

/* Reads a string into a. It must hold no NUL. */
int pp_scan_string(struct pp_scan *s, struct pp_arena *a, const char **out,
                   struct pp_err *err) PP_MUST_USE;

/* Reads an object's key: a string and the colon after it. */
int pp_scan_key(struct pp_scan *s, struct pp_arena *a, const char **out,
                struct pp_err *err) PP_MUST_USE;

/* Consumes true or false. Returns false, without an error, if neither is
 * next. */
bool pp_scan_bool(struct pp_scan *s, bool *out);

/* Reads an integer from 0 to 2^64 - 1. */
int pp_scan_u64(struct pp_scan *s, uint64_t *out,
                struct pp_err *err) PP_MUST_USE;

/* Reads an integer in [min, max]. what is its name in messages: "a token
 * id". */
int pp_scan_int32(struct pp_scan *s, int32_t min, int32_t max, const char *what,
                  int32_t *out, struct pp_err *err) PP_MUST_USE;

/* Reads an array of such integers. out needs an element for every byte left. */
int pp_scan_int32s(struct pp_scan *s, int32_t min, int32_t max,
                   const char *what, int32_t *out, size_t *n,
                   struct pp_err *err) PP_MUST_USE;

/* Checks and skips any value. */
int pp_scan_skip(struct pp_scan *s, struct pp_err *err) PP_MUST_USE;

#endif
