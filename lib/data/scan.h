/* SPDX-License-Identifier: MIT */
/* scan - a strict JSON tokenizer over memory: RFC 8259, no extensions.
 *
 * For JSON outside manifests: safetensors headers, their index, lists of
 * names, JSON Lines. It walks the text and builds nothing, so a text of any
 * size costs only what its reader keeps. Manifests and config.json are read by
 * lib/manifest, with a library. */
#ifndef PP_DATA_SCAN_H
#define PP_DATA_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Set text, n and name, and lines_before where the text is part of a file;
 * zero the rest. name starts every message, which goes on with line and
 * column (in bytes). The text need not end with a NUL. Every function skips
 * blanks before what it reads and fails with PP_EXIT_INPUT. */
struct pp_scan {
    const char *text;
    size_t n, at;
    const char *name;
    size_t lines_before;
};

/* An error at the scanner's position: "name: line 1, column 7: expected ..." */
int pp_scan_fail(const struct pp_scan *s, struct pp_err *err, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

/* The same where expected is missing: "expected a string, got '1'". */
int pp_scan_unexpected(const struct pp_scan *s, const char *expected,
                       struct pp_err *err);

/* The byte that is next, or -1 where nothing but blanks is left. */
int pp_scan_peek(struct pp_scan *s);

/* Fails unless nothing but blanks is left. */
int pp_scan_end(struct pp_scan *s, struct pp_err *err) PP_MUST_USE;

/* Consumes c. */
int pp_scan_expect(struct pp_scan *s, char c, struct pp_err *err) PP_MUST_USE;

/* Inside an object or array whose opening has been consumed: 1 when another
 * member follows (its comma is consumed), 0 when close was consumed, -1 on
 * error. *n_members starts at 0 and counts. */
int pp_scan_more(struct pp_scan *s, char close, size_t *n_members,
                 struct pp_err *err) PP_MUST_USE;

/* A string's bytes, unescaped, which are UTF-8: *n of them, of which as many
 * as fit into size are stored. They may hold a NUL, and none is added. */
int pp_scan_text(struct pp_scan *s, char *out, size_t size, size_t *n,
                 struct pp_err *err) PP_MUST_USE;

/* A string in a, which must hold no NUL. */
int pp_scan_string(struct pp_scan *s, struct pp_arena *a, const char **out,
                   struct pp_err *err) PP_MUST_USE;

/* A string and the colon after it: an object's key. */
int pp_scan_key(struct pp_scan *s, struct pp_arena *a, const char **out,
                struct pp_err *err) PP_MUST_USE;

/* Consumes true or false when one of them is next. */
bool pp_scan_bool(struct pp_scan *s, bool *out);

/* An integer from 0 to 2^64 - 1. */
int pp_scan_u64(struct pp_scan *s, uint64_t *out,
                struct pp_err *err) PP_MUST_USE;

/* An integer in [min, max]. what names it in the message: "a token id". */
int pp_scan_int32(struct pp_scan *s, int32_t min, int32_t max, const char *what,
                  int32_t *out, struct pp_err *err) PP_MUST_USE;

/* An array of them. out has room for as many as bytes are left. */
int pp_scan_int32s(struct pp_scan *s, int32_t min, int32_t max,
                   const char *what, int32_t *out, size_t *n,
                   struct pp_err *err) PP_MUST_USE;

/* Any value, checked and forgotten. */
int pp_scan_skip(struct pp_scan *s, struct pp_err *err) PP_MUST_USE;

#endif
