/* SPDX-License-Identifier: MIT */
/* num - checked products, and numbers as text: one parser for all options. */
#ifndef PP_BASE_NUM_H
#define PP_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Sets *out = a * b. Fails with PP_EXIT_SYSTEM if that overflows. */
int pp_mul(size_t a, size_t b, size_t *out, struct pp_err *err) PP_MUST_USE;

/* The parsers below accept the whole string or nothing. They fail with
 * PP_EXIT_INPUT; what is the value's name in the message ("-m", "--lr"). */

/* Reads a decimal integer in [min, max]. */
int pp_parse_int(const char *s, const char *what, int64_t min, int64_t max,
                 int64_t *out, struct pp_err *err) PP_MUST_USE;

/* Reads a count in [min, max]: digits, then at most one of K, M and G, which
 * are powers of 1024. */
int pp_parse_count(const char *s, const char *what, int64_t min, int64_t max,
                   int64_t *out, struct pp_err *err) PP_MUST_USE;

/* Reads a size in bytes, in upper or lower case: "512", "512B", "80G",
 * "79.5GiB", "80GB". K, M, G and T are powers of 1024 alone and before iB, and
 * powers of 1000 before B. A fraction needs one of these letters. */
int pp_parse_size(const char *s, const char *what, size_t *out,
                  struct pp_err *err) PP_MUST_USE;

/* Returns true if s is a number without a unit, such as "80". */
bool pp_is_digits(const char *s);

/* Reads a finite decimal real in [min, max]. The decimal point does not depend
 * on the locale. */
int pp_parse_real(const char *s, const char *what, double min, double max,
                  double *out, struct pp_err *err) PP_MUST_USE;

/* Reads reals between commas, *n of them. out has the first ones, at most most.
 */
int pp_parse_reals(const char *s, const char *what, double min, double max,
                   double *out, size_t most, size_t *n,
                   struct pp_err *err) PP_MUST_USE;

/* Reads a rate such as "400T", "50GB" or "50GB/s" in [1, 10^30]: K, M, G, T and
 * P are powers of 1000. */
int pp_parse_rate(const char *s, const char *what, double *out,
                  struct pp_err *err) PP_MUST_USE;

/* Writes the shortest decimal that reads back as x, without an exponent if that
 * is not longer. buf has 32 bytes. */
void pp_format_real(double x, char *buf);

/* Returns the whole bytes in x: 0 if x is negative or NAN, at most 10^18. */
size_t pp_size_of(double x);

/* Writes a size for people: "512 B", "1.50 KiB". buf has 32 bytes. */
void pp_format_size(size_t bytes, char *buf);

/* Writes a size for a column of a table, with three digits and at most six
 * characters: "512", "1.5K", "23.4G". K is 1024. buf has 32 bytes. */
void pp_format_short_size(size_t bytes, char *buf);

/* Return the larger and the smaller of two sizes. */
static inline size_t pp_most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t pp_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the quotient, rounded up. b is not 0. */
static inline size_t pp_divide_up(size_t a, size_t b)
{
    return a / b + (a % b > 0);
}

/* Returns n rounded up to a multiple of align. align is not 0. */
static inline size_t pp_round_up(size_t n, size_t align)
{
    return (n + align - 1) / align * align;
}

/* Buffers begin on a cache line. */
enum { PP_LINE_BYTES = 64 };

/* Returns the bytes of the cache lines of a buffer of n bytes; at least one. */
static inline size_t pp_line_bytes(size_t n)
{
    return pp_round_up(n ? n : 1, PP_LINE_BYTES);
}

#endif
