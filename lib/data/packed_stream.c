/* SPDX-License-Identifier: MIT */
/* packed_stream - reads and checks the stream of a packed set. */
#include "data/packed_stream.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

void pp_packed_bin_items(const struct pp_packed *p, size_t b,
                         struct pp_bin_items *out)
{
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const struct pp_packed_item_record *r = p->sections[PP_SECTION_ITEM_BINS];
    *out = (struct pp_bin_items){0};
    if (!pp_stream_exists(&p->images))
        return;
    const int32_t *cu_items = p->sections[PP_SECTION_CU_ITEMS];
    const int32_t *cu_rows = p->sections[PP_SECTION_CU_ROWS];
    const struct pp_grid *grids = p->sections[PP_SECTION_GRIDS];
    const float *values = p->map[PP_PACKED_PIXELS];
    out->first = r[b].first_item;
    out->cu_items = cu_items + bins[b].first_sequence + b;
    out->cu_rows = cu_rows + out->first + b;
    out->grids = grids + out->first;
    out->n = (uint32_t)out->cu_items[bins[b].n_sequences];
    out->rows = (uint32_t)out->cu_rows[out->n];
    if (values)
        out->values = values + r[b].first_row * p->images.width;
}

/* An item belongs to the rank that its middle falls to. */
uint32_t pp_items_part(const struct pp_bin_items *b, size_t size, size_t rank)
{
    uint64_t end = 2 * (uint64_t)b->rows * rank;
    uint32_t low = 0, high = b->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        uint64_t twice =
            (uint64_t)b->cu_rows[mid] + (uint64_t)b->cu_rows[mid + 1];
        if (twice * size < end)
            low = mid + 1;
        else
            high = mid;
    }
    return rank < size ? low : b->n;
}

/* The order of bins differs between epochs, so any may come together. The
 * middles of a rank's items are in an equal part of the rows; at both ends
 * half an item may be outside. */
static uint32_t most_of_lanes(const struct pp_packed_stream *s, size_t size,
                              size_t lanes)
{
    uint64_t all = (uint64_t)s->max_rows * lanes;
    uint64_t grain = pp_modality_rows(s->modality, s->merge);
    uint64_t most = all / size / grain * grain + grain + s->max_item;
    return (uint32_t)(all == 0 || size == 1 || all < most ? all : most);
}

/* Returns the most rows that one of `size` ranks gets of a bin. */
static uint32_t most_of_bins(const struct pp_packed *p, size_t size)
{
    uint32_t most = 0;
    struct pp_bin_items b;
    if (size == 1)
        return p->images.max_rows;
    for (size_t i = 0; i < p->n_bins; i++) {
        pp_packed_bin_items(p, i, &b);
        for (size_t rank = 0; b.n && rank < size; rank++)
            pp_raise(&most,
                     (uint32_t)(b.cu_rows[pp_items_part(&b, size, rank + 1)] -
                                b.cu_rows[pp_items_part(&b, size, rank)]));
    }
    return most;
}

uint32_t pp_items_most(const struct pp_packed *p, size_t size, size_t lanes)
{
    const struct pp_packed_stream *s = &p->images;
    if (!pp_stream_exists(s))
        return 0;
    uint32_t most =
        lanes > 1 ? most_of_lanes(s, size, lanes) : most_of_bins(p, size);
    return (uint32_t)pp_round_up(most, pp_modality_rows(s->modality, s->merge));
}

struct pp_item_share pp_items_largest(const struct pp_bin_items *b, size_t size)
{
    struct pp_item_share most = {0, 0};
    for (size_t rank = 0; b->n && rank < size; rank++) {
        struct pp_item_share here = {0, 0};
        uint32_t end = pp_items_part(b, size, rank + 1);
        for (uint32_t k = pp_items_part(b, size, rank); k < end; k++) {
            double rows = b->cu_rows[k + 1] - b->cu_rows[k];
            here.rows += rows;
            here.squares += rows * rows;
        }
        if (here.rows > most.rows)
            most = here;
    }
    return most;
}

struct pp_item_share pp_items_largest_of(const struct pp_packed *p,
                                         uint64_t first, size_t lanes,
                                         size_t size)
{
    struct pp_item_share most = {0, 0}, here = {0, 0};
    uint64_t total = 0, before = 0, rank = 0;
    struct pp_bin_items b;
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_items(p, pp_packed_place(p, first + lane), &b);
        total += b.rows;
    }
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_items(p, pp_packed_place(p, first + lane), &b);
        for (uint32_t k = 0; k < b.n; k++) {
            uint64_t n = (uint64_t)(b.cu_rows[k + 1] - b.cu_rows[k]);
            uint64_t now = (2 * before + n) * size / (2 * total);
            if (now != rank)
                here = (struct pp_item_share){0, 0};
            rank = now;
            before += n;
            here.rows += (double)n;
            here.squares += (double)n * (double)n;
            most = here.rows > most.rows ? here : most;
        }
    }
    return most;
}

int pp_packed_find_stream(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    uint64_t n_cu = h->n_sequences + h->n_bins, n_values, n_cu_rows;
    bool audio = h->version == PP_PACKED_AUDIO;
    p->images =
        (struct pp_packed_stream){.modality = (enum pp_modality)h->modality,
                                  .width = h->width,
                                  .token = h->token,
                                  .merge = h->merge,
                                  .capacity = h->row_capacity,
                                  .max_items = h->max_items,
                                  .max_rows = h->max_rows,
                                  .max_item = h->max_item,
                                  .n = h->n_items,
                                  .n_rows = h->n_rows};
    if (!h->width || !h->merge || h->merge > INT16_MAX ||
        h->token >= h->vocab || !h->n_items || h->token_files ||
        h->row_capacity > INT32_MAX ||
        h->modality != (audio ? PP_MODALITY_AUDIO : PP_MODALITY_IMAGES) ||
        (audio && (h->ranks || h->cp || h->max_rank_tokens)) ||
        __builtin_mul_overflow(h->n_rows, h->width, &n_values) ||
        __builtin_add_overflow(h->n_items, h->n_bins, &n_cu_rows))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the header's images are impossible");
    return pp_packed_find_section(p, PP_SECTION_ITEM_BINS, h->item_bins,
                                  h->n_bins,
                                  sizeof(struct pp_packed_item_record), err) ||
                   pp_packed_find_section(p, PP_SECTION_CU_ITEMS, h->cu_items,
                                          n_cu, 4, err) ||
                   pp_packed_find_section(p, PP_SECTION_CU_ROWS, h->cu_rows,
                                          n_cu_rows, 4, err) ||
                   pp_packed_find_section(p, PP_SECTION_GRIDS, h->grids,
                                          h->n_items, sizeof(struct pp_grid),
                                          err)
               ? -1
               : 0;
}

static int fail_items(size_t b, struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: bin %zu: %s", b, what);
}

/* Checks the items of one sequence: their grids, and that its placeholders can
 * be among its tokens. */
static int check_sequence_items(const struct pp_packed *p, size_t b, uint32_t i,
                                const struct pp_bin_items *at,
                                struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const struct pp_modality_words words =
        pp_modality_words(p->images.modality);
    uint64_t features = 0;
    cu += r[b].first_sequence + b + i;
    for (int32_t k = at->cu_items[i]; k < at->cu_items[i + 1]; k++) {
        const struct pp_grid *g = &at->grids[k];
        uint32_t rows = pp_grid_size(g);
        if (!rows || rows > p->images.max_item ||
            !pp_grid_merges(p->images.modality, p->images.merge, g))
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: one of the %s cannot have '%" PRIu32
                           " x %" PRIu32 " x %" PRIu32 "' %s",
                           b, words.items, g->frames, g->rows, g->columns,
                           words.rows);
        if ((int64_t)at->cu_rows[k + 1] - at->cu_rows[k] != rows)
            return fail_items(b, err, "cu_rows do not match the grids");
        features += pp_item_features(&p->images, rows);
    }
    if (features > (uint64_t)(cu[1] - cu[0]))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: bin %zu: a sequence of '%" PRId32
                       "' tokens cannot have %" PRIu64 " features of %s",
                       b, cu[1] - cu[0], features, words.items);
    return 0;
}

/* Checks the items of bin b, which begin where *items and *rows say, and
 * adds them to these. */
static int check_bin_items(const struct pp_packed *p, size_t b, uint64_t *items,
                           uint64_t *rows, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const struct pp_packed_item_record *at = p->sections[PP_SECTION_ITEM_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU_ITEMS];
    struct pp_bin_items bin;
    uint32_t n = r[b].n_sequences;
    cu += r[b].first_sequence + b;
    if (at[b].first_item != *items || at[b].first_row != *rows)
        return fail_items(b, err, "its images do not follow the bin before");
    if (cu[0] != 0)
        return fail_items(b, err, "cu_items must begin with 0");
    for (uint32_t i = 0; i < n; i++)
        if (cu[i + 1] < cu[i])
            return fail_items(b, err, "cu_items must not decrease");
    if ((uint64_t)cu[n] > p->images.n - *items)
        return fail_items(b, err, "has more images than there are");
    pp_packed_bin_items(p, b, &bin);
    if (bin.cu_rows[0] != 0)
        return fail_items(b, err, "cu_rows must begin with 0");
    for (uint32_t i = 0; i < n; i++)
        if (check_sequence_items(p, b, i, &bin, err) != 0)
            return -1;
    *items += bin.n;
    *rows += bin.rows;
    return 0;
}

/* The largest bin and item, as the index should have them. */
struct item_maxima {
    uint32_t items, rows, item;
};

static void find_maxima(const struct pp_packed *p, size_t b,
                        struct item_maxima *m)
{
    struct pp_bin_items bin;
    pp_packed_bin_items(p, b, &bin);
    pp_raise(&m->items, bin.n);
    pp_raise(&m->rows, bin.rows);
    for (uint32_t k = 0; k < bin.n; k++)
        pp_raise(&m->item, pp_grid_size(&bin.grids[k]));
}

int pp_packed_check_stream(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_stream *s = &p->images;
    struct item_maxima m = {0};
    uint64_t items = 0, rows = 0;
    if (!pp_stream_exists(s))
        return 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        if (check_bin_items(p, b, &items, &rows, err) != 0)
            return -1;
        find_maxima(p, b, &m);
    }
    if (items != s->n || rows != s->n_rows || m.items != s->max_items ||
        m.rows != s->max_rows || m.item != s->max_item ||
        (s->capacity && m.rows > s->capacity))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the images do not match the header's counts");
    return 0;
}
