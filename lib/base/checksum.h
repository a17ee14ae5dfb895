/* SPDX-License-Identifier: MIT */
/* checksum - checksums of files: XXH3 with 64 bits and seed 0. They find
 * accidental damage, and do not protect against data that somebody altered on
 * purpose. */
#ifndef PP_BASE_CHECKSUM_H
#define PP_BASE_CHECKSUM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Returns the checksum of n bytes. */
uint64_t pp_checksum_of(const void *data, size_t n);

/* The XXH3 of bytes that come in parts. A zeroed struct is finished. */
struct pp_checksum_sum {
    void *state;
};

int pp_checksum_begin(struct pp_checksum_sum *s,
                      struct pp_err *err) PP_MUST_USE;
void pp_checksum_add(struct pp_checksum_sum *s, const void *data, size_t n);

/* Returns the checksum of the parts so far. */
uint64_t pp_checksum_value(const struct pp_checksum_sum *s);
void pp_checksum_finish(struct pp_checksum_sum *s);

/* Computes the checksum of a file that pp_file_map mapped. Lets its pages leave
 * this process on the way, so that memory stays flat; the page cache keeps
 * them. stop, which may be NULL, is called between parts; if it returns true,
 * the function ends at once, and *out is not valid. */
int pp_checksum_map(const void *data, size_t n, bool (*stop)(void *ctx),
                    void *ctx, uint64_t *out, struct pp_err *err) PP_MUST_USE;

#endif
