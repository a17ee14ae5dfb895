/* SPDX-License-Identifier: MIT */
/* scan - a strict JSON tokenizer over memory.
 *
 * For the small documents that lie outside manifests: safetensors headers,
 * their index, lists of names. It walks the text and builds nothing, so a
 * header of any size costs only what its reader keeps. Manifests and
 * config.json are read by lib/manifest, with a library. */
#ifndef PP_DATA_SCAN_H
#define PP_DATA_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* Set text, n and name, zero the rest. name starts every message, which goes
 * on with line and column. The text need not end with a NUL. Every function
 * skips blanks before what it reads and fails with PP_EXIT_INPUT. */
struct pp_scan {
    const char *text;
    size_t n, at;
    const char *name;
};

/* An error at the scanner's position: "name: line 1, column 7: expected ..." */
int pp_scan_fail(const struct pp_scan *s, struct pp_err *err, const char *fmt,
                 ...) __attribute__((format(printf, 3, 4)));

/* Consumes c. */
int pp_scan_expect(struct pp_scan *s, char c, struct pp_err *err) PP_MUST_USE;

/* Inside an object or array whose opening has been consumed: 1 when another
 * member follows (its comma is consumed), 0 when close was consumed, -1 on
 * error. *n_members starts at 0 and counts. */
int pp_scan_more(struct pp_scan *s, char close, size_t *n_members,
                 struct pp_err *err) PP_MUST_USE;

/* A string, unescaped, in a. Must be UTF-8 and hold no NUL. */
int pp_scan_string(struct pp_scan *s, struct pp_arena *a, const char **out,
                   struct pp_err *err) PP_MUST_USE;

/* A string and the colon after it: an object's key. */
int pp_scan_key(struct pp_scan *s, struct pp_arena *a, const char **out,
                struct pp_err *err) PP_MUST_USE;

/* An integer from 0 to 2^64 - 1. */
int pp_scan_u64(struct pp_scan *s, uint64_t *out,
                struct pp_err *err) PP_MUST_USE;

/* Any value, checked and forgotten. a holds its strings meanwhile. */
int pp_scan_skip(struct pp_scan *s, struct pp_arena *a,
                 struct pp_err *err) PP_MUST_USE;

/* Nothing but blanks may follow. */
int pp_scan_end(struct pp_scan *s, struct pp_err *err) PP_MUST_USE;

#endif
