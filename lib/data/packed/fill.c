/* SPDX-License-Identifier: MIT */
/* fill - fills the sections of a set, for an index or in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed/packed.h"
#include "data/packed/format.h"

uint64_t pp_packed_lay_out(const struct pp_packed *p, int first, int end,
                           uint64_t at, uint64_t offset[PP_N_SECTIONS])
{
    for (int s = first; s < end; s++) {
        uint64_t bytes = pp_section_bytes(p, s);
        offset[s] = bytes ? at : 0;
        at = pp_round_up(at + bytes, 8);
    }
    return at;
}

/* Returns the section of a modality, or NULL. */
static void *items_at(const struct pp_packed_fill *f, int m, int section)
{
    return f->at[pp_section_of((enum pp_modality)m, section)];
}

/* Opens the items of the last bin. Its sums begin with the zeros that are
 * there. */
static void open_items(struct pp_packed_fill *f, int m)
{
    const struct pp_packed_stream *s = &f->set->streams[m];
    struct pp_item_start *at = items_at(f, m, PP_SECTION_ITEM_STARTS);
    if (at)
        at[f->bin] = (struct pp_item_start){s->n, s->n_rows};
}

/* Gives the last sequence no items so far. */
static void open_sequence_items(struct pp_packed_fill *f, int m)
{
    int32_t *cu = items_at(f, m, PP_SECTION_CU_ITEMS);
    if (!cu)
        return;
    cu += f->sequence + f->bin;
    cu[1] = cu[0];
}

void pp_fill_bin(struct pp_packed_fill *f)
{
    struct pp_packed *p = f->set;
    struct pp_packed_start *starts = f->at[PP_SECTION_STARTS];
    f->bin = p->n_bins++;
    if (starts)
        starts[f->bin] = (struct pp_packed_start){p->n_sequences,
                                                  p->n_positions, p->n_groups};
    for (int m = 0; m < PP_N_MODALITIES; m++)
        open_items(f, m);
}

void pp_fill_sequence(struct pp_packed_fill *f,
                      const struct pp_fill_sequence *q)
{
    struct pp_packed *p = f->set;
    size_t s = f->sequence = p->n_sequences++, cu = s + f->bin;
    uint32_t *cu_groups = f->at[PP_SECTION_CU_GROUPS];
    p->n_groups += !q->is_member;
    p->n_positions += q->padded;
    p->n_tokens += q->length;
    if (!f->at[PP_SECTION_BINS])
        return;
    struct pp_packed_record *r = pp_fill_record(f);
    int32_t *sums = (int32_t *)f->at[PP_SECTION_CU] + cu;
    int32_t *padded = (int32_t *)f->at[PP_SECTION_CU_PADDED] + cu;
    ((uint32_t *)f->at[PP_SECTION_SOURCE])[s] = q->source;
    ((uint32_t *)f->at[PP_SECTION_START])[s] = q->start;
    sums[1] = sums[0] + (int32_t)q->length;
    padded[1] = padded[0] + (int32_t)q->padded;
    r->n_sequences++;
    r->n_groups += !q->is_member;
    r->real += q->length;
    r->tokens += q->padded;
    pp_raise(&r->max_seqlen, q->padded);
    pp_raise(&p->max_seqlen, q->padded);
    pp_raise(&p->max_tokens, r->tokens);
    if (cu_groups)
        cu_groups[p->n_groups + f->bin] = r->n_sequences;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        open_sequence_items(f, m);
}

void pp_fill_item(struct pp_packed_fill *f, enum pp_modality m,
                  const struct pp_grid *g)
{
    struct pp_packed_stream *s = &f->set->streams[m];
    struct pp_grid *grids = items_at(f, m, PP_SECTION_GRIDS);
    uint64_t k = s->n++;
    uint32_t rows = pp_grid_size(g);
    s->n_rows += rows;
    if (!grids)
        return;
    int32_t *n = (int32_t *)items_at(f, m, PP_SECTION_CU_ITEMS) + f->sequence +
                 f->bin + 1;
    int32_t *sums = (int32_t *)items_at(f, m, PP_SECTION_CU_ROWS) + k + f->bin;
    grids[k] = *g;
    ++*n;
    sums[1] = sums[0] + (int32_t)rows;
    pp_raise(&s->max_item, rows);
    pp_raise(&s->max_items, (uint32_t)*n);
    pp_raise(&s->max_rows, (uint32_t)sums[1]);
}

void *pp_fill_begin(struct pp_packed_fill *f, size_t head, size_t tail,
                    uint64_t offset[PP_N_SECTIONS + 1], struct pp_err *err)
{
    struct pp_packed *p = f->set;
    uint64_t at[PP_N_SECTIONS + 1];
    uint64_t end = pp_packed_lay_out(p, 0, PP_N_SECTIONS, head, at);
    char *block = p->n_sequences > UINT32_MAX ? NULL : calloc(1, end + tail);
    at[PP_N_SECTIONS] = end;
    if (!block) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        return NULL;
    }
    for (int s = 0; s < PP_N_SECTIONS; s++)
        p->sections[s] = f->at[s] = at[s] ? block + at[s] : NULL;
    if (offset)
        memcpy(offset, at, sizeof at);
    p->n_bins = p->n_sequences = p->n_groups = 0;
    p->n_positions = p->n_tokens = 0;
    for (int m = 0; m < PP_N_MODALITIES; m++)
        p->streams[m].n = p->streams[m].n_rows = 0;
    return block;
}

int pp_packed_set_items(struct pp_packed *p, const struct pp_item_content *c,
                        float **values, struct pp_err *err)
{
    const enum pp_modality m = c->kind.modality;
    const struct pp_packed_record *bins = p->sections[PP_SECTION_BINS];
    const int first = pp_section_of(m, PP_SECTION_ITEM_STARTS);
    const struct pp_grid *grid = c->grids;
    const uint32_t *n = c->n;
    struct pp_packed_stream *s = &p->streams[m];
    struct pp_packed_fill f = {.set = p};
    uint64_t at[PP_N_SECTIONS];
    *s = (struct pp_packed_stream){.modality = m,
                                   .width = c->kind.width,
                                   .token = c->kind.token,
                                   .merge = c->kind.merge,
                                   .class_out = c->kind.class_out};
    for (size_t i = 0; i < p->n_sequences; i++)
        s->n += n[i];
    for (uint64_t k = 0; k < s->n; k++)
        s->n_rows += pp_grid_size(&grid[k]);
    if (s->n > SIZE_MAX / 64 || s->n_rows > SIZE_MAX / 64 / s->width)
        return pp_fail(err, PP_EXIT_SYSTEM, "too many %s",
                       pp_modality_words(m).rows);
    uint64_t end =
        pp_packed_lay_out(p, first, first + PP_SECTIONS_OF_STREAM, 8, at);
    char *block = calloc(1, end + s->n_rows * s->width * sizeof **values);
    if (!block)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    p->owned_items[m] = block;
    p->map[PP_PACKED_ROWS + (int)m] = *values = (float *)(void *)(block + end);
    for (int k = first; k < first + PP_SECTIONS_OF_STREAM; k++)
        p->sections[k] = f.at[k] = at[k] ? block + at[k] : NULL;
    s->n = s->n_rows = 0;
    for (; f.bin < p->n_bins; f.bin++) {
        open_items(&f, (int)m);
        for (uint32_t i = 0; i < bins[f.bin].n_sequences; i++, f.sequence++) {
            open_sequence_items(&f, (int)m);
            for (uint32_t k = 0; k < n[f.sequence]; k++)
                pp_fill_item(&f, m, grid++);
        }
    }
    return pp_packed_check_streams(p, err);
}
