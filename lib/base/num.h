/* SPDX-License-Identifier: MIT */
/* num - checked products and the one parser of numbers that people type. */
#ifndef PP_BASE_NUM_H
#define PP_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* *out = a * b, or an error (PP_EXIT_SYSTEM) when that overflows. */
int pp_mul(size_t a, size_t b, size_t *out, struct pp_err *err) PP_MUST_USE;

/* The parsers below accept the whole string or nothing; what names the value
 * in the message ("-m", "--lr"). They fail with PP_EXIT_INPUT. */

/* A decimal integer in [min, max]. */
int pp_parse_int(const char *s, const char *what, int64_t min, int64_t max,
                 int64_t *out, struct pp_err *err) PP_MUST_USE;

/* A count in [min, max]: digits and at most one of K, M and G, which are powers
 * of 1024. */
int pp_parse_count(const char *s, const char *what, int64_t min, int64_t max,
                   int64_t *out, struct pp_err *err) PP_MUST_USE;

/* A size in bytes, in upper or lower case: "512", "512B", "80G", "79.5GiB",
 * "80GB". K, M, G and T are powers of 1024 alone and before iB, and powers of
 * 1000 before B. A fraction needs one of them. */
int pp_parse_size(const char *s, const char *what, size_t *out,
                  struct pp_err *err) PP_MUST_USE;

/* Returns true if s is a number without a unit, such as "80". */
bool pp_is_digits(const char *s);

/* A finite real in [min, max], decimal point whatever the locale. */
int pp_parse_real(const char *s, const char *what, double min, double max,
                  double *out, struct pp_err *err) PP_MUST_USE;

/* Writes the shortest decimal that reads back as x. buf has 32 bytes. */
void pp_format_real(double x, char *buf);

/* Bytes for people: "512 B", "1.5 KiB", "3.25 GiB". buf has 32 bytes. */
void pp_format_size(size_t bytes, char *buf);

/* n rounded up to a multiple of align (align > 0). */
static inline size_t pp_round_up(size_t n, size_t align)
{
    return (n + align - 1) / align * align;
}

#endif
