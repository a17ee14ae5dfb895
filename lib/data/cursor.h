/* SPDX-License-Identifier: MIT */
/* cursor - a place in one JSON text (RFC 8259), for formats that hold
 * too much for a tree of values. Every error is PP_EXIT_INPUT and quotes what
 * stands at the cursor. White space between tokens is skipped. */
#ifndef PP_DATA_CURSOR_H
#define PP_DATA_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_cursor {
    const char *p, *end;
};

/* Whether nothing but white space is left. */
bool pp_cursor_blank(struct pp_cursor *s);

/* Takes the character c when it is next. */
bool pp_cursor_try(struct pp_cursor *s, char c);

/* Takes the character c or fails. */
int pp_cursor_take(struct pp_cursor *s, char c, struct pp_err *err) PP_MUST_USE;

/* Fails when anything is left. */
int pp_cursor_end(struct pp_cursor *s, struct pp_err *err) PP_MUST_USE;

/* Decodes a string into out, which has room for as many bytes as are left;
 * *n is its length. */
int pp_cursor_string(struct pp_cursor *s, unsigned char *out, size_t *n,
                     struct pp_err *err) PP_MUST_USE;

/* An object's key into buf, cut to its size. */
int pp_cursor_key(struct pp_cursor *s, char *buf, size_t size,
                  struct pp_err *err) PP_MUST_USE;

/* An integer in [min, max]; with max 1 false and true are 0 and 1. what names
 * it in the message: "a token id". */
int pp_cursor_int32(struct pp_cursor *s, int32_t min, int32_t max,
                    const char *what, int32_t *out,
                    struct pp_err *err) PP_MUST_USE;

/* Checks a value of any kind and moves past it. */
int pp_cursor_skip(struct pp_cursor *s, struct pp_err *err) PP_MUST_USE;

#endif
