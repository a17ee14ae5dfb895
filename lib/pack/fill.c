/* SPDX-License-Identifier: MIT */
/* fill - fills one bin after the other: the minimum bin slack heuristic. Gupta
 * and Ho, "A new heuristic algorithm for the one-dimensional bin-packing
 * problem", Production Planning & Control 10, 1999. The longest sequence left
 * opens each bin (Fleszar and Hindi, Computers & Operations Research 29, 2002).
 *
 * A bin is completed by descending lengths, the longest that fit first. The
 * last choice is changed first, until nothing is left empty or the bin's share
 * of the work is done. The fullest completion is used for as many bins as it
 * can fill. Equal lengths are one class. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "pack/rule.h"

/* Limits on completions: in all, and the least and the most per bin. */
enum { COMPLETIONS = 1 << 24, LEAST = 8, MOST = 4096 };

/* From HOLD_FROM sequences on, one in HELD of each length is held back until
 * the lengths left are below 1/SHORT of the capacity: the last bins need
 * sequences of all lengths too. */
enum { HOLD_FROM = 1 << 16, HELD = 64, SHORT = 32 };

struct bin_filler {
    struct pp_classes classes;
    uint32_t *left;  /* by class, without sequences held back */
    uint32_t *taken; /* by class */
    uint32_t
        *skip; /* per class c: no class in [c, skip[c]) has a sequence left */
    uint32_t *chosen;  /* classes in the open bin, longest first */
    uint32_t *fullest; /* the best of them */
    size_t n_chosen, n_fullest;
    uint64_t spare; /* space that the best leaves empty */
    uint32_t capacity;
    uint32_t budget;           /* completions left for all bins */
    uint32_t *placed, *bin_at; /* in the order in which they are placed */
    size_t n_placed, n_bins;
};

/* Returns the first class from c on that has sequences left, chosen ones
 * excluded, and is no longer than space. */
static size_t next_fill_class(struct bin_filler *f, size_t c, uint64_t space)
{
    size_t end = f->classes.n;
    if (c < end && f->classes.length[c] > space)
        c = pp_classes_within(&f->classes, c, space);
    for (;;) {
        while (f->skip[c] != c) {
            f->skip[c] = f->skip[f->skip[c]];
            c = f->skip[c];
        }
        if (c == end || f->left[c])
            return c;
        c++;
    }
}

static void add_class(struct bin_filler *f, size_t c, uint64_t *space)
{
    f->chosen[f->n_chosen++] = (uint32_t)c;
    f->left[c]--;
    *space -= f->classes.length[c];
}

/* Undoes the last choice; *c is the class to try next. Returns false if only
 * the first choice is left. */
static bool undo_fill(struct bin_filler *f, size_t *c, uint64_t *space)
{
    if (f->n_chosen == 1)
        return false;
    *c = f->chosen[--f->n_chosen];
    f->left[*c]++;
    *space += f->classes.length[(*c)++];
    return true;
}

/* Completes the bin that holds the one chosen sequence. */
static void complete_bin(struct bin_filler *f, uint64_t space)
{
    size_t c = f->chosen[0];
    uint32_t most = f->budget < LEAST ? LEAST : f->budget, tried = 0;
    most = most > MOST ? MOST : most;
    f->spare = UINT64_MAX;
    for (;;) {
        while ((c = next_fill_class(f, c, space)) < f->classes.n)
            add_class(f, c, &space);
        if (space < f->spare) {
            f->spare = space;
            f->n_fullest = f->n_chosen;
            memcpy(f->fullest, f->chosen, f->n_chosen * sizeof *f->chosen);
        }
        if (space == 0 || ++tried == most || !undo_fill(f, &c, &space))
            break;
    }
    f->budget -= tried < f->budget ? tried : f->budget;
    for (size_t k = 1; k < f->n_chosen; k++)
        f->left[f->chosen[k]]++;
}

/* Returns how many bins the best completion can fill. The open bin already
 * holds one sequence of the first class. */
static uint32_t count_bins(const struct bin_filler *f)
{
    uint32_t least = UINT32_MAX;
    for (size_t k = 0, end; k < f->n_fullest; k = end) {
        uint32_t c = f->fullest[k], left = f->left[c] + (k == 0);
        for (end = k + 1; end < f->n_fullest && f->fullest[end] == c;)
            end++;
        uint32_t bins = left / (uint32_t)(end - k);
        least = bins < least ? bins : least;
    }
    return least;
}

/* Closes as many bins as the best completion can fill: a search would find the
 * same lengths for each of them. */
static void close_bins(struct bin_filler *f)
{
    uint32_t n = count_bins(f);
    f->left[f->fullest[0]]++;
    for (size_t k = 0; k < f->n_fullest; k++)
        f->left[f->fullest[k]] -= n;
    for (uint32_t b = 0; b < n; b++, f->n_bins++)
        for (size_t k = 0; k < f->n_fullest; k++) {
            uint32_t c = f->fullest[k];
            f->placed[f->n_placed] =
                f->classes.order[f->classes.first[c] + f->taken[c]++];
            f->bin_at[f->n_placed++] = (uint32_t)f->n_bins;
        }
    for (size_t k = 0; k < f->n_fullest; k++)
        if (!f->left[f->fullest[k]])
            f->skip[f->fullest[k]] = f->fullest[k] + 1;
}

/* Fills bins while a sequence longer than shortest is left. */
static void fill_bins(struct bin_filler *f, int64_t shortest)
{
    f->skip[f->classes.n] = (uint32_t)f->classes.n;
    for (size_t c = 0; c < f->classes.n; c++)
        f->skip[c] = (uint32_t)c;
    for (size_t c; (c = next_fill_class(f, 0, f->capacity)) < f->classes.n &&
                   f->classes.length[c] > shortest;) {
        uint64_t space = f->capacity;
        f->n_chosen = 0;
        add_class(f, c, &space);
        complete_bin(f, space);
        close_bins(f);
    }
}

static void fill_in_two_rounds(struct bin_filler *f, size_t n)
{
    for (size_t c = 0; n > HOLD_FROM && c < f->classes.n; c++)
        f->left[c] = f->classes.count[c] - f->classes.count[c] / HELD;
    fill_bins(f, f->capacity / SHORT);
    for (size_t c = 0; c < f->classes.n; c++)
        f->left[c] = f->classes.count[c] - f->taken[c];
    fill_bins(f, -1);
}

void pp_pack_fill(const struct pp_pack_input *in, struct pp_bins *out)
{
    size_t n = in->n;
    struct bin_filler f = {.capacity = in->capacity, .budget = COMPLETIONS};
    pp_classes_init(&f.classes, in->lengths, n);
    f.left = pp_calloc(f.classes.n, sizeof *f.left);
    f.taken = pp_calloc(f.classes.n, sizeof *f.taken);
    f.skip = pp_calloc(f.classes.n + 1, sizeof *f.skip);
    f.chosen = pp_calloc(n, sizeof *f.chosen);
    f.fullest = pp_calloc(n, sizeof *f.fullest);
    f.placed = pp_calloc(n, sizeof *f.placed);
    f.bin_at = pp_calloc(n, sizeof *f.bin_at);
    fill_in_two_rounds(&f, n);
    pp_bins_gather(out, f.placed, f.bin_at, n, f.n_bins);
    pp_classes_finish(&f.classes);
    free(f.left);
    free(f.taken);
    free(f.skip);
    free(f.chosen);
    free(f.fullest);
    free(f.placed);
    free(f.bin_at);
}
