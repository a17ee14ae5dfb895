/* SPDX-License-Identifier: MIT */
/* items - growing arrays of items and the values of their rows. */
#include "data/items.h"

#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "data/packed/packed.h"

uint32_t pp_grid_size(const struct pp_grid *g)
{
    uint64_t n = (uint64_t)g->rows * g->columns;
    if (n > INT32_MAX || __builtin_mul_overflow(n, g->frames, &n) ||
        n > INT32_MAX)
        return 0;
    return (uint32_t)n;
}

bool pp_grid_merges(enum pp_modality modality, uint32_t merge,
                    const struct pp_grid *g)
{
    return modality == PP_MODALITY_AUDIO
               ? g->frames == 1 && (g->rows == 1 || g->columns == 1) &&
                     pp_grid_size(g) >= merge
               : g->rows % merge == 0 && g->columns % merge == 0;
}

/* Makes room for n elements. Small arrays stay in memory. */
static int reserve(struct pp_spill_array *g, size_t n, size_t size,
                   struct pp_err *err)
{
    return n <= g->room && g->at ? 0 : pp_spill_grow(g, n, size, NULL, 0, err);
}

void pp_items_begin(struct pp_items *s)
{
    s->n_loaded = 0;
    s->n_rows = s->n ? s->at[s->n - 1].first_row + s->at[s->n - 1].rows : 0;
    if (s->released > s->n_rows)
        s->released = s->n_rows;
}

/* Takes the kind of the first item, or compares it. */
static int check_kind(struct pp_items *s, const struct pp_item_kind *k,
                      struct pp_err *err)
{
    if (!s->n && !s->n_loaded)
        s->kind = *k;
    if (k->width != s->kind.width)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s of '%" PRIu32 "' values cannot be mixed with "
                       "earlier ones of %" PRIu32,
                       pp_modality_words(k->modality).rows, k->width,
                       s->kind.width);
    if (k->class_out != s->kind.class_out)
        return pp_fail(err, PP_EXIT_INPUT,
                       "images with and without a feature of a class token "
                       "cannot be mixed");
    if (k->token != s->kind.token || k->merge != s->kind.merge ||
        k->modality != s->kind.modality)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s for the token '%" PRIu32 "', merged by %" PRIu32
                       ", cannot be mixed with earlier ones for %" PRIu32
                       ", merged by %" PRIu32,
                       pp_modality_words(k->modality).items, k->token, k->merge,
                       s->kind.token, s->kind.merge);
    return 0;
}

/* Fails if the rows of an item do not make features. */
static int check_grid(const struct pp_item_kind *kind, const struct pp_grid *g,
                      struct pp_err *err)
{
    const struct pp_modality_words words = pp_modality_words(kind->modality);
    if (!kind->width)
        return pp_fail(err, PP_EXIT_INPUT, "%s of '0' values are impossible",
                       words.rows);
    if (!pp_grid_size(g))
        return pp_fail(err, PP_EXIT_INPUT,
                       "one of the %s cannot have '%" PRIu32 " x %" PRIu32
                       " x %" PRIu32 "' %s",
                       words.items, g->frames, g->rows, g->columns, words.rows);
    if (pp_grid_merges(kind->modality, kind->merge, g))
        return 0;
    if (kind->modality == PP_MODALITY_AUDIO)
        return pp_fail(err, PP_EXIT_INPUT,
                       "a clip of '%" PRIu32 "' rows is too short: a feature "
                       "has %" PRIu32,
                       pp_grid_size(g), kind->merge);
    return pp_fail(err, PP_EXIT_INPUT,
                   "a grid of '%" PRIu32 " x %" PRIu32 " x %" PRIu32
                   "' patches cannot be merged by %" PRIu32 " x %" PRIu32,
                   g->frames, g->rows, g->columns, kind->merge, kind->merge);
}

float *pp_items_load(struct pp_items *s, const struct pp_item_kind *kind,
                     const struct pp_grid *g, const char *spill, size_t limit,
                     struct pp_err *err)
{
    uint32_t rows = pp_grid_size(g);
    size_t first = s->forget ? 0 : s->n_rows, n;
    if (check_grid(kind, g, err) != 0 || check_kind(s, kind, err) != 0 ||
        pp_mul(first + rows, kind->width, &n, err) != 0 ||
        reserve(&s->grow_loaded, s->n_loaded + 1, sizeof *s->loaded, err) != 0)
        return NULL;
    if (n > s->grow_values.room &&
        pp_spill_grow(&s->grow_values, n, sizeof(float), spill, limit, err))
        return NULL;
    if (s->n_rows - s->released > limit / sizeof(float) / kind->width)
        pp_items_release(s);
    s->loaded = s->grow_loaded.at;
    s->values = s->grow_values.at;
    s->loaded[s->n_loaded++] = (struct pp_item){*g, rows, s->n_rows};
    s->n_rows += rows;
    return s->values + first * kind->width;
}

int pp_items_attach(struct pp_items *s, size_t sequence, struct pp_err *err)
{
    if (!s->n_loaded)
        return 0;
    if (reserve(&s->grow_first, sequence + 2, sizeof *s->first, err) != 0 ||
        reserve(&s->grow_at, s->n + s->n_loaded, sizeof *s->at, err) != 0)
        return -1;
    s->first = s->grow_first.at;
    s->at = s->grow_at.at;
    /* The sequences in between have none. */
    while (s->n_sequences <= sequence)
        s->first[s->n_sequences++] = s->n;
    memcpy(s->at + s->n, s->loaded, s->n_loaded * sizeof *s->at);
    s->n += s->n_loaded;
    s->first[s->n_sequences] = s->n;
    return 0;
}

size_t pp_items_of(const struct pp_items *s, size_t sequence,
                   const struct pp_item **first)
{
    if (sequence >= s->n_sequences)
        return 0;
    *first = s->at + s->first[sequence];
    return s->first[sequence + 1] - s->first[sequence];
}

void pp_items_unlabel(uint32_t token, const int32_t *ids, int32_t *labels,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == (int64_t)token)
            labels[i] = PP_LABEL_IGNORE;
}

struct pp_item_list pp_items_list(const struct pp_items *s,
                                  const struct pp_item *at, size_t n)
{
    return (struct pp_item_list){s->kind, n, sizeof *at, n ? &at->grid : NULL};
}

struct pp_item_list pp_items_list_loaded(const struct pp_items *s)
{
    return pp_items_list(s, s->loaded, s->n_loaded);
}

/* Returns the features of item k. */
static size_t features_of(const struct pp_item_list *l, size_t k)
{
    const struct pp_grid *g =
        (const void *)((const char *)l->grids + k * l->stride);
    return pp_grid_size(g) / pp_modality_rows(l->kind.modality, l->kind.merge) +
           l->kind.class_out;
}

int pp_items_check_places(const struct pp_item_list *l, const int32_t *ids,
                          size_t n, enum pp_exit code, struct pp_err *err)
{
    const struct pp_modality_words words = pp_modality_words(l->kind.modality);
    const int64_t token = l->kind.token;
    uint64_t features = 0;
    size_t found = 0, at = 0;
    for (size_t k = 0; k < l->n; k++)
        features += features_of(l, k);
    for (size_t i = 0; i < n; i++)
        found += ids[i] == token;
    if (found != features)
        return pp_fail(err, code,
                       "'%zu' placeholders (id %" PRIu32 ") for %" PRIu64
                       " features of %s",
                       found, l->kind.token, features, words.items);
    for (size_t k = 0; k < l->n; k++) {
        while (ids[at] != token)
            at++;
        for (size_t end = at + features_of(l, k); at < end; at++)
            if (ids[at] != token)
                return pp_fail(err, code,
                               "token '%" PRId32 "' is between placeholders "
                               "(id %" PRIu32 ") of one %s, which must follow "
                               "each other",
                               ids[at], l->kind.token, words.item);
    }
    return 0;
}

void pp_items_truncate(struct pp_items *s, size_t n_sequences)
{
    if (n_sequences < s->n_sequences) {
        s->n_sequences = n_sequences;
        s->n = s->first[n_sequences];
    }
    pp_items_begin(s);
}

void pp_items_release(struct pp_items *s)
{
    pp_spill_release(&s->grow_values);
    s->released = s->n_rows;
}

void pp_items_finish(struct pp_items *s)
{
    pp_spill_finish(&s->grow_at);
    pp_spill_finish(&s->grow_first);
    pp_spill_finish(&s->grow_loaded);
    pp_spill_finish(&s->grow_values);
    *s = (struct pp_items){0};
}
