/* SPDX-License-Identifier: MIT */
/* json_scan - a cursor over one JSON text (RFC 8259), for formats that hold
 * too much for a tree of values. Every error is PP_EXIT_INPUT and quotes what
 * stands at the cursor. White space between tokens is skipped. */
#ifndef PP_DATA_JSON_SCAN_H
#define PP_DATA_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_json {
    const char *p, *end;
};

/* Whether nothing but white space is left. */
bool pp_json_blank(struct pp_json *s);

/* Takes the character c when it is next. */
bool pp_json_try(struct pp_json *s, char c);

/* Takes the character c or fails. */
int pp_json_take(struct pp_json *s, char c, struct pp_err *err) PP_MUST_USE;

/* Fails when anything is left. */
int pp_json_end(struct pp_json *s, struct pp_err *err) PP_MUST_USE;

/* Decodes a string into out, which has room for as many bytes as are left;
 * *n is its length. */
int pp_json_string(struct pp_json *s, unsigned char *out, size_t *n,
                   struct pp_err *err) PP_MUST_USE;

/* An object's key into buf, cut to its size. */
int pp_json_key(struct pp_json *s, char *buf, size_t size,
                struct pp_err *err) PP_MUST_USE;

/* An integer in [min, max]; with max 1 false and true are 0 and 1. what names
 * it in the message: "a token id". */
int pp_json_int32(struct pp_json *s, int32_t min, int32_t max, const char *what,
                  int32_t *out, struct pp_err *err) PP_MUST_USE;

/* Checks a value of any kind and moves past it. */
int pp_json_skip(struct pp_json *s, struct pp_err *err) PP_MUST_USE;

#endif
