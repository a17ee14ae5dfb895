/* SPDX-License-Identifier: MIT */
/* stream - reads, checks and copies the streams of a packed set. */
#include "data/packed/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"

enum pp_modality pp_packed_modality(const struct pp_packed *p)
{
    return pp_stream_exists(&p->streams[PP_MODALITY_AUDIO]) &&
                   !pp_stream_exists(&p->streams[PP_MODALITY_IMAGES])
               ? PP_MODALITY_AUDIO
               : PP_MODALITY_IMAGES;
}

void pp_packed_bin_items(const struct pp_packed *p, enum pp_modality modality,
                         size_t b, struct pp_bin_items *out)
{
    const struct pp_packed_stream *s = &p->streams[modality];
    const void *const *at = p->sections + pp_section_of(modality, 0);
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const struct pp_packed_start *starts = p->sections[PP_SECTION_STARTS];
    const struct pp_item_start *r = at[PP_SECTION_ITEM_STARTS];
    *out = (struct pp_bin_items){0};
    if (!pp_stream_exists(s))
        return;
    const int32_t *cu_items = at[PP_SECTION_CU_ITEMS];
    const int32_t *cu_rows = at[PP_SECTION_CU_ROWS];
    const struct pp_grid *grids = at[PP_SECTION_GRIDS];
    const float *values = p->map[PP_PACKED_ROWS + (int)modality];
    out->first = r[b].first_item;
    out->cu_items = cu_items + starts[b].first_sequence + b;
    out->cu_rows = cu_rows + out->first + b;
    out->grids = grids + out->first;
    out->n = (uint32_t)out->cu_items[bins[b].n_sequences];
    out->rows = (uint32_t)out->cu_rows[out->n];
    if (values)
        out->values = values + r[b].first_row * s->width;
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
static uint32_t most_of_bins(const struct pp_packed *p,
                             enum pp_modality modality, size_t size)
{
    uint32_t most = 0;
    struct pp_bin_items b;
    if (size == 1)
        return p->streams[modality].max_rows;
    for (size_t i = 0; i < p->n_bins; i++) {
        pp_packed_bin_items(p, modality, i, &b);
        for (size_t rank = 0; b.n && rank < size; rank++)
            pp_raise(&most,
                     (uint32_t)(b.cu_rows[pp_items_part(&b, size, rank + 1)] -
                                b.cu_rows[pp_items_part(&b, size, rank)]));
    }
    return most;
}

uint32_t pp_items_most(const struct pp_packed *p, enum pp_modality modality,
                       size_t size, size_t lanes)
{
    const struct pp_packed_stream *s = &p->streams[modality];
    if (!pp_stream_exists(s))
        return 0;
    uint32_t most = lanes > 1 ? most_of_lanes(s, size, lanes)
                              : most_of_bins(p, modality, size);
    return (uint32_t)pp_round_up(most, pp_modality_rows(s->modality, s->merge));
}

int pp_packed_check_places(const struct pp_packed *p,
                           const struct pp_stream_places *s, size_t b,
                           const int32_t *ids, struct pp_err *err)
{
    struct pp_bin_items at;
    struct pp_bin bin;
    pp_packed_bin(p, b, &bin);
    pp_packed_bin_items(p, s->modality, b, &at);
    struct pp_item_list items = {pp_stream_kind(&p->streams[s->modality]), 0,
                                 sizeof *at.grids, NULL};
    items.kind.modality = s->modality;
    items.kind.token = s->token;
    for (uint32_t i = 0; i < bin.n_sequences; i++) {
        if (at.cu_items) {
            items.grids = at.grids + at.cu_items[i];
            items.n = (size_t)(at.cu_items[i + 1] - at.cu_items[i]);
        }
        if (pp_items_check_places(
                &items, ids + bin.cu_seqlens_padded[i],
                (size_t)(bin.cu_seqlens[i + 1] - bin.cu_seqlens[i]), s->code,
                err) != 0)
            return pp_fail_at(err, "bin %zu: sequence %" PRIu32 ": ", b, i);
    }
    return 0;
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
                                         enum pp_modality modality,
                                         uint64_t first, size_t lanes,
                                         size_t size)
{
    struct pp_item_share most = {0, 0}, here = {0, 0};
    uint64_t total = 0, before = 0, rank = 0;
    struct pp_bin_items b;
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_items(p, modality, pp_packed_place(p, first + lane), &b);
        total += b.rows;
    }
    for (size_t lane = 0; lane < lanes; lane++) {
        pp_packed_bin_items(p, modality, pp_packed_place(p, first + lane), &b);
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

/* Checks the items of one sequence: their grids, and that its placeholders can
 * be among its tokens. */
static int check_sequence_items(const struct pp_packed *p,
                                const struct pp_packed_stream *s, size_t b,
                                uint32_t i, const struct pp_bin_items *at,
                                struct pp_err *err)
{
    const struct pp_packed_start *starts = p->sections[PP_SECTION_STARTS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const struct pp_modality_words words = pp_modality_words(s->modality);
    uint64_t features = 0;
    cu += starts[b].first_sequence + b + i;
    for (int32_t k = at->cu_items[i]; k < at->cu_items[i + 1]; k++) {
        const struct pp_grid *g = &at->grids[k];
        uint32_t rows = pp_grid_size(g);
        if (!rows || rows > s->max_item ||
            !pp_grid_merges(s->modality, s->merge, g))
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: one of the %s cannot have '%" PRIu32
                           " x %" PRIu32 " x %" PRIu32 "' %s",
                           b, words.items, g->frames, g->rows, g->columns,
                           words.rows);
        if ((int64_t)at->cu_rows[k + 1] - at->cu_rows[k] != rows)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: bin %zu: cu_rows of %s do not match the "
                           "grids",
                           b, words.items);
        features += pp_item_features(s, rows);
    }
    if (features > (uint64_t)(cu[1] - cu[0]))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: bin %zu: a sequence of '%" PRId32
                       "' tokens cannot have %" PRIu64 " features of %s",
                       b, cu[1] - cu[0], features, words.items);
    return 0;
}

/* The stream while it is checked: the items and rows of the bins so far, and
 * the largest bin and item, as the index should have them. */
struct stream_check {
    uint64_t items, rows;
    uint32_t max_items, max_rows, max_item;
};

/* Checks the running sums of the items of bin b, which continue the sums of the
 * bins before it. */
static int check_bin_sums(const struct pp_packed *p,
                          const struct pp_packed_stream *s, size_t b,
                          const struct stream_check *c, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const struct pp_packed_start *starts = p->sections[PP_SECTION_STARTS];
    const struct pp_item_start *at =
        p->sections[pp_section_of(s->modality, PP_SECTION_ITEM_STARTS)];
    const int32_t *cu =
        p->sections[pp_section_of(s->modality, PP_SECTION_CU_ITEMS)];
    const char *what = NULL;
    uint32_t n = r[b].n_sequences;
    cu += starts[b].first_sequence + b;
    if (at[b].first_item != c->items || at[b].first_row != c->rows)
        what = "do not follow the bin before";
    else if (cu[0] != 0)
        what = "have cu_items that do not begin with 0";
    for (uint32_t i = 0; !what && i < n; i++)
        if (cu[i + 1] < cu[i])
            what = "have cu_items that decrease";
    if (!what && (uint64_t)cu[n] > s->n - c->items)
        what = "are more than there are";
    return what ? pp_fail(err, PP_EXIT_INPUT, "index: bin %zu: its %s %s", b,
                          pp_modality_words(s->modality).items, what)
                : 0;
}

/* Checks the items of bin b, and adds them to the items of the bins before it.
 */
static int check_bin_items(const struct pp_packed *p,
                           const struct pp_packed_stream *s, size_t b,
                           struct stream_check *c, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    struct pp_bin_items bin;
    if (check_bin_sums(p, s, b, c, err) != 0)
        return -1;
    pp_packed_bin_items(p, s->modality, b, &bin);
    if (bin.cu_rows[0] != 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: bin %zu: cu_rows must begin with 0", b);
    for (uint32_t i = 0; i < r[b].n_sequences; i++)
        if (check_sequence_items(p, s, b, i, &bin, err) != 0)
            return -1;
    c->items += bin.n;
    c->rows += bin.rows;
    pp_raise(&c->max_items, bin.n);
    pp_raise(&c->max_rows, bin.rows);
    for (uint32_t k = 0; k < bin.n; k++)
        pp_raise(&c->max_item, pp_grid_size(&bin.grids[k]));
    return 0;
}

static int check_stream(const struct pp_packed *p,
                        const struct pp_packed_stream *s, struct pp_err *err)
{
    struct stream_check c = {0};
    for (size_t b = 0; b < p->n_bins; b++)
        if (check_bin_items(p, s, b, &c, err) != 0)
            return -1;
    if (c.items != s->n || c.rows != s->n_rows || c.max_items != s->max_items ||
        c.max_rows != s->max_rows || c.max_item != s->max_item ||
        (s->capacity && c.max_rows > s->capacity))
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the %s do not match the header's counts",
                       pp_modality_words(s->modality).items);
    return 0;
}

int pp_packed_check_streams(const struct pp_packed *p, struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_stream_exists(&p->streams[m]) &&
            check_stream(p, &p->streams[m], err) != 0)
            return -1;
    return 0;
}

/* Loads the items that a sequence of the packed set has of a modality. */
static int load_items(const struct pp_packed *p, enum pp_modality m, size_t b,
                      uint32_t i, struct pp_documents *d, struct pp_err *err)
{
    struct pp_bin_items at;
    const struct pp_item_kind kind = pp_stream_kind(&p->streams[m]);
    pp_packed_bin_items(p, m, b, &at);
    pp_items_begin(&d->items[m]);
    if (!at.cu_items)
        return 0;
    for (int32_t k = at.cu_items[i]; k < at.cu_items[i + 1]; k++) {
        size_t values = pp_grid_size(&at.grids[k]);
        float *to = pp_items_load(&d->items[m], &kind, &at.grids[k], d->spill,
                                  d->spill_bytes, err);
        if (!to)
            return -1;
        values *= kind.width;
        memcpy(to, at.values + (size_t)at.cu_rows[k] * kind.width,
               values * sizeof *to);
    }
    return 0;
}

int pp_packed_load_items(const struct pp_packed *p, size_t b, uint32_t i,
                         struct pp_documents *d, struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (load_items(p, (enum pp_modality)m, b, i, d, err) != 0)
            return -1;
    return pp_documents_attach_items(d, err);
}

/* Copies the items of the bins of p, as pp_packed_take copies bins. Counts
 * them only, while values is NULL. */
static void copy_items(const struct pp_packed *p, enum pp_modality m,
                       size_t n_bins, uint32_t *n, struct pp_grid *grids,
                       float *values)
{
    for (size_t b = 0; b < n_bins; b++) {
        struct pp_bin_items at;
        struct pp_bin bin;
        pp_packed_bin(p, b % p->n_bins, &bin);
        pp_packed_bin_items(p, m, b % p->n_bins, &at);
        size_t here = (size_t)at.rows * p->streams[m].width;
        if (values) {
            memcpy(values, at.values, here * sizeof *values);
            values += here;
            continue;
        }
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            *n++ = (uint32_t)(at.cu_items[i + 1] - at.cu_items[i]);
        memcpy(grids, at.grids, at.n * sizeof *grids);
        grids += at.n;
    }
}

static int copy_stream(const struct pp_packed *p, enum pp_modality m,
                       size_t n_bins, struct pp_packed *out, struct pp_err *err)
{
    uint64_t most = (uint64_t)p->streams[m].max_items * n_bins;
    uint32_t *n = calloc(out->n_sequences + 1, sizeof *n);
    struct pp_grid *grids = calloc(most + 1, sizeof *grids);
    float *values;
    const struct pp_item_content c = {pp_stream_kind(&p->streams[m]), n, grids};
    int rc = -1;
    if (!n || !grids) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    } else {
        copy_items(p, m, n_bins, n, grids, NULL);
        rc = pp_packed_set_items(out, &c, &values, err);
        if (rc == 0)
            copy_items(p, m, n_bins, NULL, NULL, values);
    }
    free(n);
    free(grids);
    return rc;
}

int pp_packed_copy_items(const struct pp_packed *p, size_t n_bins,
                         struct pp_packed *out, struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_stream_exists(&p->streams[m]) &&
            copy_stream(p, (enum pp_modality)m, n_bins, out, err) != 0)
            return -1;
    return 0;
}
