/* SPDX-License-Identifier: MIT */
/* reference_file - the reference that a run has made from the base of adapters,
 * in a file beside its checkpoints: DIR/reference-KEY. A run that goes on takes
 * it from there. Its name is a checksum of all that its values depend on, so
 * that a reference of other data or another base is never taken. */
#ifndef PP_RUN_TRAIN_REFERENCE_FILE_H
#define PP_RUN_TRAIN_REFERENCE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pp_reference_file {
    uint64_t key;
    uint64_t first, end; /* the places of the data that have values; all of the
                            eval data have */
    float *values;       /* borrowed */
    size_t n;
};

/* Takes the values from the file in dir, if there is one that is intact and has
 * these places. Returns whether it did. */
bool pp_reference_read(const struct pp_reference_file *f, const char *dir);

/* Writes the file to dir, unless an intact one with these places is there. */
int pp_reference_write(const struct pp_reference_file *f, const char *dir,
                       struct pp_err *err) PP_MUST_USE;

#endif
