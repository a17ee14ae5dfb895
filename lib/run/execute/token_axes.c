/* SPDX-License-Identifier: MIT */
/* token_axes - walks through the tokens of a microbatch and numbers them. */
#include "run/execute/token_axes.h"

#include "model/vision.h"

struct numberer {
    const struct pp_image_work *work;
    struct pp_bin_items images;
    struct pp_bin bin;
    int32_t token; /* the placeholder of images */
    int32_t *axes;
    uint32_t side, image, number; /* number: the feature of the image */
    size_t sequence;
};

/* Writes the positions of the token at a place, if this rank has its row. */
static void put_axes(const struct numberer *n, size_t place, int32_t t,
                     int32_t row, int32_t column)
{
    const struct pp_image_work *w = n->work;
    const struct pp_row_place at =
        pp_image_taker(w, w->lane, &n->bin, n->sequence, place);
    if (at.number / w->tp != w->taker / w->tp)
        return;
    int32_t *to = n->axes + 3 * at.row;
    to[0] = t;
    to[1] = row;
    to[2] = column;
}

/* Numbers a placeholder. Its image begins at position `start`, and what follows
 * the image begins at the one that is returned. */
static int32_t number_feature(struct numberer *n, size_t place, int32_t start)
{
    const struct pp_grid *g = &n->images.grids[n->image];
    uint32_t rows = g->rows / n->side, columns = g->columns / n->side;
    put_axes(n, place, start, start + (int32_t)(n->number / columns),
             start + (int32_t)(n->number % columns));
    if (++n->number < rows * columns)
        return start;
    n->number = 0;
    n->image++;
    return start + (int32_t)(rows > columns ? rows : columns);
}

static void number_sequence(struct numberer *n, size_t i)
{
    const struct pp_bin *b = &n->bin;
    size_t first = (size_t)b->cu_seqlens_padded[i], t = first;
    size_t end = first + (size_t)(b->cu_seqlens[i + 1] - b->cu_seqlens[i]);
    int32_t position = 0;
    n->sequence = i;
    for (; t < end; t++)
        if (b->input_ids[t] == n->token && n->image < n->images.n) {
            position = number_feature(n, t, position);
        } else {
            put_axes(n, t, position, position, position);
            position++;
        }
    for (; t < (size_t)b->cu_seqlens_padded[i + 1]; t++)
        put_axes(n, t, 0, 0, 0);
}

bool pp_token_axes(const struct pp_image_work *w, const struct pp_vision *v,
                   int32_t *axes)
{
    struct numberer n = {.work = w,
                         .token = (int32_t)v->image_token,
                         .axes = axes,
                         .side = w->packed->streams[w->modality].merge};
    size_t bin = pp_image_bin(w, w->lane);
    if (!pp_vision_merges(v) || bin == PP_NO_BIN)
        return false;
    pp_packed_bin_items(w->packed, w->modality, bin, &n.images);
    pp_packed_bin(w->packed, bin, &n.bin);
    for (size_t i = 0; n.images.n && i < n.bin.n_sequences; i++)
        number_sequence(&n, i);
    return n.images.n > 0;
}
