/* SPDX-License-Identifier: MIT */
/* items - the items of documents (base/modality.h): their grids, and the values
 * of their rows, in memory or, if there are many, in a mapped file without a
 * name.
 *
 * The items of a line are loaded first, and then attached to each of its
 * sequences, which share the rows. */
#ifndef PP_DATA_ITEMS_H
#define PP_DATA_ITEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/modality.h"
#include "data/spill.h"

/* The rows of an item. The rows of an image are patches, from the slowest
 * dimension to the fastest; a clip of audio has 1, 1 and its rows, or 1, its
 * rows and 1 if the last row has one frame of the clip and not two. */
struct pp_grid {
    uint32_t frames, rows, columns;
};

/* Returns the rows of an item with that grid, or 0 if there are none or more
 * than 2^31 - 1. */
uint32_t pp_grid_size(const struct pp_grid *g);

/* Return the grid of a clip of audio, which has an even number of frames, or an
 * odd one of 3 or more; and the frames of a clip. */
static inline struct pp_grid pp_clip_grid(uint32_t frames)
{
    uint32_t rows = frames / 2 + frames % 2;
    return frames % 2 ? (struct pp_grid){1, rows, 1}
                      : (struct pp_grid){1, 1, rows};
}
static inline uint32_t pp_clip_frames(const struct pp_grid *g)
{
    return 2 * g->rows * g->columns - (g->columns == 1);
}

/* Reports whether the rows make features: patches of an image can be merged, or
 * a clip of audio has enough rows for one. */
bool pp_grid_merges(enum pp_modality modality, uint32_t merge,
                    const struct pp_grid *g);

/* The properties that all items of a stream share. Zeroed: there are none. */
struct pp_item_kind {
    uint32_t width; /* values of a row. Of an image: channel, frame, row,
                       column, as in the weight of a patch embedding. Of audio:
                       frequency, then frame */
    uint32_t token; /* the id of placeholders */
    uint32_t merge; /* see base/modality.h */
    enum pp_modality modality;
    bool class_out; /* an item has one more feature, of the encoder's class
                       token, before the features of its rows */
};

struct pp_item {
    struct pp_grid grid;
    uint32_t rows;
    size_t first_row; /* among the rows of all items */
};

/* A zeroed struct is empty. */
struct pp_items {
    struct pp_item_kind kind; /* set by the first item */
    bool forget;              /* keep no values; set before loading */
    size_t n;                 /* attached to sequences */
    struct pp_item *at;
    float *values; /* rows of kind.width */
    /* Private. */
    size_t n_sequences; /* that have an entry in first */
    size_t *first;      /* n_sequences + 1 */
    size_t n_loaded, n_rows;
    size_t released; /* rows at the last release */
    struct pp_item *loaded;
    struct pp_spill_array grow_at, grow_first, grow_loaded, grow_values;
};

/* Begins a line: forgets items that were loaded and not attached. */
void pp_items_begin(struct pp_items *s);

/* Loads one item and returns room for its values, (rows, width), or NULL with
 * *err filled. spill and limit are as for pp_spill_grow. Fails with
 * PP_EXIT_INPUT if the grid makes no features, or if the kind is another than
 * that of the earlier items. */
float *pp_items_load(struct pp_items *s, const struct pp_item_kind *kind,
                     const struct pp_grid *grid, const char *spill,
                     size_t limit, struct pp_err *err) PP_MUST_USE;

/* Attaches the loaded items to sequence number `sequence`, which has none and
 * is behind all that have. */
int pp_items_attach(struct pp_items *s, size_t sequence,
                    struct pp_err *err) PP_MUST_USE;

/* Returns how many items a sequence has, and the first of them. */
size_t pp_items_of(const struct pp_items *s, size_t sequence,
                   const struct pp_item **first);

/* Takes the labels of the placeholders among n ids away: nothing should predict
 * them. */
void pp_items_unlabel(uint32_t token, const int32_t *ids, int32_t *labels,
                      size_t n);

/* The items of a sequence: their kind, and their grids, which are `stride`
 * bytes apart. */
struct pp_item_list {
    struct pp_item_kind kind;
    size_t n, stride;
    const struct pp_grid *grids;
};

/* Returns the items that are loaded, or n items. */
struct pp_item_list pp_items_list_loaded(const struct pp_items *s);
struct pp_item_list pp_items_list(const struct pp_items *s,
                                  const struct pp_item *at, size_t n);

/* Fails with the code unless n ids have a placeholder for each feature of the
 * items, and the placeholders of an item follow each other. */
int pp_items_check_places(const struct pp_item_list *l, const int32_t *ids,
                          size_t n, enum pp_exit code,
                          struct pp_err *err) PP_MUST_USE;

/* Removes the items of all sequences from n_sequences on. */
void pp_items_truncate(struct pp_items *s, size_t n_sequences);

/* Lets the mapped values leave memory, since they will not be read soon. */
void pp_items_release(struct pp_items *s);

void pp_items_finish(struct pp_items *s);

#endif
