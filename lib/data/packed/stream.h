/* SPDX-License-Identifier: MIT */
/* stream - the streams beside the tokens of a packed set: for each
 * modality (base/modality.h) the items for an encoder, and the values of their
 * rows.
 *
 * An item belongs to a sequence and stands for placeholders in it: tokens with
 * the id `token`, in the order of the items. A sequence has as many
 * placeholders as its items have features. pp-images(5) has the byte layout. */
#ifndef PP_DATA_PACKED_STREAM_H
#define PP_DATA_PACKED_STREAM_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/items.h"

struct pp_packed;

/* One modality of a set: the items of all bins. An index has these bytes. */
struct pp_packed_stream {
    uint64_t n, n_rows; /* items and rows of all bins */
    enum pp_modality modality;
    uint32_t width;    /* values of a row, as in struct pp_item_kind. 0: the set
                          has no such stream, and all of this is 0 */
    uint32_t token;    /* the id of placeholders */
    uint32_t merge;    /* see base/modality.h */
    uint32_t capacity; /* most rows of a bin when it was packed; 0: no limit */
    uint32_t max_items, max_rows; /* of a bin */
    uint32_t max_item;            /* rows of the largest item */
    uint32_t class_out;           /* 0 or 1, as in struct pp_item_kind */
    uint32_t reserved;            /* 0 */
};
static_assert(sizeof(struct pp_packed_stream) == 56, "pp-pack(5)");

/* Returns whether the set has the stream; a bin may still have no items. */
static inline bool pp_stream_exists(const struct pp_packed_stream *s)
{
    return s->width > 0;
}

/* Returns the features of an item of that many rows. */
static inline uint32_t pp_item_features(const struct pp_packed_stream *s,
                                        uint32_t rows)
{
    return rows / (uint32_t)pp_modality_rows(s->modality, s->merge) +
           s->class_out;
}

/* Returns what the items of the stream share. */
static inline struct pp_item_kind
pp_stream_kind(const struct pp_packed_stream *s)
{
    return (struct pp_item_kind){s->width, s->token, s->merge, s->modality,
                                 s->class_out != 0};
}

/* The items of one bin. Sequence i has items cu_items[i]..cu_items[i + 1], and
 * item k has the rows cu_rows[k]..cu_rows[k + 1] of the values. If the set has
 * no such stream, all is 0 and NULL. */
struct pp_bin_items {
    uint32_t n, rows;
    uint64_t first;              /* items in the bins before it */
    const int32_t *cu_items;     /* n_sequences + 1 */
    const int32_t *cu_rows;      /* n + 1 */
    const struct pp_grid *grids; /* n */
    const float *values;         /* (rows, width) */
};

/* Fills *out with the items of bin b, which is below n_bins. */
void pp_packed_bin_items(const struct pp_packed *p, enum pp_modality modality,
                         size_t b, struct pp_bin_items *out);

/* The placeholders of a stream: their id, also if the set has no such stream,
 * and the code of an error. */
struct pp_stream_places {
    enum pp_modality modality;
    uint32_t token;
    enum pp_exit code;
};

/* Checks the placeholders of all sequences of bin b, whose ids are given
 * (pp_items_check_places). */
int pp_packed_check_places(const struct pp_packed *p,
                           const struct pp_stream_places *s, size_t b,
                           const int32_t *ids, struct pp_err *err) PP_MUST_USE;

/* Returns the first of the items of a rank, among `size` ranks that divide the
 * items of a bin: each has consecutive whole items, with as equal numbers of
 * rows as can be. Rank `size` begins at the end. */
uint32_t pp_items_part(const struct pp_bin_items *b, size_t size, size_t rank);

/* The items of the rank with most rows, among `size` ranks that divide the
 * items of a bin: its rows, and the sum of the squares of the rows of each
 * item. */
struct pp_item_share {
    double rows, squares;
};
struct pp_item_share pp_items_largest(const struct pp_bin_items *b,
                                      size_t size);

/* The same of the microbatches at `lanes` places from `first` on, whose items
 * the ranks divide as if of one bin. */
struct pp_item_share pp_items_largest_of(const struct pp_packed *p,
                                         enum pp_modality modality,
                                         uint64_t first, size_t lanes,
                                         size_t size);

/* Returns the most rows that one of `size` ranks gets: of a bin, or at most of
 * any `lanes` bins if they divide the items of several as if of one. It is
 * rounded up to whole features, of which plans assume a number in proportion.
 */
uint32_t pp_items_most(const struct pp_packed *p, enum pp_modality modality,
                       size_t size, size_t lanes);

/* Items for a set in memory, in the order of its sequences. */
struct pp_item_content {
    struct pp_item_kind kind;
    const uint32_t *n;           /* (n_sequences) items of each sequence */
    const struct pp_grid *grids; /* of all items */
};

/* Gives items to a set in memory that has none of their modality. *values is
 * room for the caller to fill: (rows, width) of all items, zeros so far, which
 * pp_packed_finish frees. Fails with PP_EXIT_INPUT if a grid is impossible, or
 * if the features of a sequence are more than its tokens. */
int pp_packed_set_items(struct pp_packed *p, const struct pp_item_content *c,
                        float **values, struct pp_err *err) PP_MUST_USE;

#endif
