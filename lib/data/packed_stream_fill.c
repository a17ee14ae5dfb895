/* SPDX-License-Identifier: MIT */
/* packed_stream_fill - fills the sections of a stream, for an index or for a
 * set in memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/packed.h"
#include "data/packed_format.h"
#include "data/packed_stream.h"

void pp_item_open_bin(struct pp_item_cursor *c)
{
    c->records[c->next.bin] =
        (struct pp_packed_item_record){c->totals->n, c->totals->n_rows};
    c->next.items = c->next.rows = 0;
}

static void add_item(struct pp_item_cursor *c, const struct pp_grid *g)
{
    uint64_t at = c->totals->n + c->next.items;
    uint32_t rows = pp_grid_size(g);
    c->grids[at] = *g;
    c->next.items++;
    c->next.rows += rows;
    c->cu_rows[at + c->next.bin + 1] = (int32_t)c->next.rows;
    pp_raise(&c->totals->max_item, rows);
}

static void end_item_sequence(struct pp_item_cursor *c)
{
    c->next.sequence++;
    c->cu_items[c->next.sequence + c->next.bin] = (int32_t)c->next.items;
}

void pp_item_close_bin(struct pp_item_cursor *c)
{
    struct pp_packed_stream *s = c->totals;
    s->n += c->next.items;
    s->n_rows += c->next.rows;
    pp_raise(&s->max_items, c->next.items);
    pp_raise(&s->max_rows, c->next.rows);
    c->next.bin++;
}

void pp_item_begin(struct pp_item_cursor *c, struct pp_packed_header *h, int i,
                   struct pp_packed_stream *totals)
{
    const struct pp_packed_items *s = pp_packed_items(h, i);
    char *at = (char *)h;
    totals->modality = (enum pp_modality)s->modality;
    *c = (struct pp_item_cursor){
        .records = (void *)(at + s->bins),
        .cu_items = (void *)(at + s->cu_items),
        .cu_rows = (void *)(at + s->cu_rows),
        .grids = (void *)(at + s->grids),
        .totals = totals,
    };
}

void pp_item_end(const struct pp_item_cursor *c, struct pp_packed_items *s)
{
    s->n_rows = c->totals->n_rows;
    s->max_items = c->totals->max_items;
    s->max_rows = c->totals->max_rows;
    s->max_item = c->totals->max_item;
}

int pp_item_add_part(struct pp_item_cursor *c,
                     const struct pp_packed_content *content,
                     const struct pp_part *p, const int32_t *ids,
                     struct pp_err *err)
{
    enum pp_modality m = c->totals->modality;
    const struct pp_items *s = &content->docs->items[m];
    const struct pp_item *at;
    size_t n = pp_items_of(s, p->sequence, &at);
    const struct pp_item_list items = pp_items_list(s, at, n);
    if (pp_items_check_places(&items, ids, p->length, PP_EXIT_INPUT, err) != 0)
        return pp_fail_at(err, "sequence %zu: ", p->sequence);
    for (size_t i = 0; i < n; i++) {
        if (at[i].rows > (uint32_t)INT32_MAX - c->next.rows)
            return pp_fail(err, PP_EXIT_INPUT,
                           "bin %zu: cannot have more than '%d' %s",
                           c->next.bin, INT32_MAX, pp_modality_words(m).rows);
        add_item(c, &at[i].grid);
    }
    end_item_sequence(c);
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

/* Allocates the arrays of n items with that many rows as one block. */
static int alloc_items(struct pp_packed *p, const struct pp_packed_stream *s,
                       uint64_t n, uint64_t rows, struct pp_item_cursor *c,
                       struct pp_err *err)
{
    size_t n_cu = p->n_sequences + p->n_bins;
    uint64_t n_cu_rows = n + p->n_bins, width = s->width;
    size_t bytes = p->n_bins * sizeof *c->records;
    const void **at = p->sections + PP_SECTIONS_OF_STREAM * s->modality;
    if (n > SIZE_MAX / 64 || rows > SIZE_MAX / 64 / width)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many %s",
                       pp_modality_words(s->modality).rows);
    size_t words = n_cu + n_cu_rows + 3 * n + rows * width;
    c->records = calloc(1, bytes + words * sizeof(int32_t));
    if (!c->records)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    p->owned_items[s->modality] = c->records;
    c->cu_items = (int32_t *)(c->records + p->n_bins);
    c->cu_rows = c->cu_items + n_cu;
    c->grids = (struct pp_grid *)(c->cu_rows + n_cu_rows);
    at[PP_SECTION_ITEM_BINS] = c->records;
    at[PP_SECTION_CU_ITEMS] = c->cu_items;
    at[PP_SECTION_CU_ROWS] = c->cu_rows;
    at[PP_SECTION_GRIDS] = c->grids;
    p->map[s->file] = c->grids + n;
    return 0;
}

int pp_packed_set_items(struct pp_packed *p, const struct pp_item_content *c,
                        float **values, struct pp_err *err)
{
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const struct pp_grid *grid = c->grids;
    struct pp_packed_stream *s = &p->streams[c->kind.modality];
    struct pp_item_cursor at = {.totals = s};
    uint64_t n = 0, rows = 0;
    *s = (struct pp_packed_stream){.modality = c->kind.modality,
                                   .width = c->kind.width,
                                   .token = c->kind.token,
                                   .merge = c->kind.merge,
                                   .class_out = c->kind.class_out,
                                   .file =
                                       PP_PACKED_ROWS + (int)c->kind.modality};
    for (size_t i = 0; i < p->n_sequences; i++)
        n += c->n[i];
    for (uint64_t k = 0; k < n; k++)
        rows += pp_grid_size(&c->grids[k]);
    if (alloc_items(p, s, n, rows, &at, err) != 0)
        return -1;
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_item_open_bin(&at);
        for (uint32_t i = 0; i < bins[b].n_sequences; i++) {
            for (uint32_t k = 0; k < c->n[bins[b].first_sequence + i]; k++)
                add_item(&at, grid++);
            end_item_sequence(&at);
        }
        pp_item_close_bin(&at);
    }
    *values = (float *)(at.grids + n);
    return pp_packed_check_streams(p, err);
}
