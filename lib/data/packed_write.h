/* SPDX-License-Identifier: MIT */
/* packed_write - makes a packed directory from documents and bins. */
#ifndef PP_DATA_PACKED_WRITE_H
#define PP_DATA_PACKED_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/pieces.h"

struct pp_packed_content {
    const int32_t *ids;    /* tokens of all inputs; NULL: an index only, of the
                              files that docs names */
    const int32_t *labels; /* likewise, or NULL: the ids are the labels */
    const struct pp_piece *pieces; /* none empty */
    size_t n_bins;
    const size_t *first; /* n_bins + 1: bin b is items[first[b]..first[b+1]) */
    const uint32_t *items; /* indices into pieces */
    size_t n_inputs;
    uint32_t capacity, align;
    /* What the pieces are of: their sequences, columns and files. NULL: a piece
     * is a sequence, and there are no columns. */
    const struct pp_documents *docs;
    size_t first_document; /* source 0 */
    struct pp_input_counts counts;
    /* Called now and then with the bins written so far; may be NULL. */
    void (*progress)(void *ctx, size_t bins);
    void *ctx;
};

/* Whether dir may be written: absent, empty, or a packed directory that holds
 * nothing else. PP_EXIT_INPUT otherwise. */
int pp_packed_may_write(const char *dir, struct pp_err *err) PP_MUST_USE;

/* Writes dir: as DIR.tmp beside it, flushed to the disk, then put in its place
 * at once; a packed directory that was there stays whole until then. Nothing
 * of DIR.tmp is left after a failure. There must be a bin. */
int pp_packed_write(const char *dir, const struct pp_packed_content *c,
                    struct pp_err *err) PP_MUST_USE;

#endif
