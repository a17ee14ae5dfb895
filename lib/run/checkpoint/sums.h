/* SPDX-License-Identifier: MIT */
/* sums - the list of checksums of a checkpoint's files.
 *
 * CHECKPOINT/checksums.xxh3 has a line for each other file, in the form of
 * xxhsum(1): XXH3 (optimizer/state.safetensors) = 0123456789abcdef. The first
 * line, a comment, has the checksum of the rest. */
#ifndef PP_RUN_CHECKPOINT_SUMS_H
#define PP_RUN_CHECKPOINT_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PP_CKPT_SUMS "checksums.xxh3"

struct pp_ckpt_sum {
    char *name;     /* of a file inside the checkpoint */
    uint64_t value; /* XXH3 */
};

/* A zeroed struct is empty. */
struct pp_ckpt_sums {
    struct pp_ckpt_sum *at;
    size_t n, capacity;
};

int pp_ckpt_sums_add(struct pp_ckpt_sums *s, const char *name, uint64_t value,
                     struct pp_err *err) PP_MUST_USE;

/* Writes a file of n bytes into the checkpoint, syncs it, and adds its
 * checksum.
 */
int pp_ckpt_sums_put(struct pp_ckpt_sums *s, const char *checkpoint,
                     const char *name, const char *text, size_t n,
                     struct pp_err *err) PP_MUST_USE;
void pp_ckpt_sums_finish(struct pp_ckpt_sums *s);

/* Writes the list into the checkpoint, and syncs it. */
int pp_ckpt_sums_write(const struct pp_ckpt_sums *s, const char *checkpoint,
                       struct pp_err *err) PP_MUST_USE;

/* Appends the list that text holds. path starts messages. Fails with
 * PP_EXIT_INPUT if the list is damaged or names a file outside the
 * checkpoint. */
int pp_ckpt_sums_parse(const char *path, const char *text, size_t n,
                       struct pp_ckpt_sums *s, struct pp_err *err) PP_MUST_USE;

#endif
