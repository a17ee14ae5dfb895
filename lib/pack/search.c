/* SPDX-License-Identifier: MIT */
/* search - a search that decides whether sequences fit into a given number
 * of bins.
 *
 * It is bin completion: Korf, "A new algorithm for optimal bin
 * packing", AAAI 2002. The longest sequence left opens a bin. The bin is
 * completed in every way that leaves no room for another sequence, since adding
 * one never hurts. The empty space of all bins is limited: it is the number of
 * bins times the capacity, minus all lengths. Equal lengths are one class, so
 * that a completion is tried once. */
#include <stdlib.h>

#include "base/alloc.h"
#include "pack/patterns.h"

struct completion_search {
    const struct pp_classes *classes;
    uint32_t *left;               /* by class: sequences left */
    struct pp_bin_choice *chosen; /* one for each sequence, in order */
    size_t n_chosen, n;
    uint64_t steps; /* left */
    uint64_t spare; /* space that bins may still leave empty */
    uint32_t capacity;
};

/* Returns the longest class from c on that has sequences left and fits. */
static size_t next_left_class(struct completion_search *s, size_t c,
                              uint64_t space)
{
    if (c < s->classes->n && s->classes->length[c] > space)
        c = pp_classes_within(s->classes, c, space);
    for (; c < s->classes->n && !s->left[c]; c++)
        s->steps -= s->steps > 0;
    return c;
}

/* Returns whether some sequence left fits: then the bin is not complete. */
static bool fits_more(struct completion_search *s, uint64_t space)
{
    for (size_t c = s->classes->n; c-- > 0; s->steps -= s->steps > 0)
        if (s->left[c])
            return s->classes->length[c] <= space;
    return false;
}

static void choose_class(struct completion_search *s, size_t c, bool opens)
{
    s->chosen[s->n_chosen++] = (struct pp_bin_choice){(uint32_t)c, opens};
    s->left[c]--;
}

/* Undoes choices up to one that can be exchanged for a shorter one in its bin.
 * *c is the class to try next, and *space the space of that bin. Returns false
 * if there is no such choice. */
static bool undo_choice(struct completion_search *s, size_t *c, uint64_t *space)
{
    while (s->n_chosen > 0) {
        struct pp_bin_choice last = s->chosen[--s->n_chosen];
        s->left[last.class]++;
        *space += s->classes->length[last.class];
        if (!last.opens) {
            *c = last.class + 1;
            return true;
        }
        /* The previous bin is open again, with the space that it had left. */
        *space = 0;
        if (s->n_chosen == 0)
            return false;
        uint64_t load = 0;
        for (size_t k = s->n_chosen; k-- > 0;) {
            load += s->classes->length[s->chosen[k].class];
            if (s->chosen[k].opens)
                break;
        }
        *space = s->capacity - load;
        s->spare += *space;
    }
    return false;
}

static enum pp_pack_answer run_search(struct completion_search *s)
{
    uint64_t space = 0;
    size_t c = 0;
    bool closed = true; /* the open bin is complete, or there is none yet */
    while (s->n_chosen < s->n || !closed) {
        if (s->steps == 0)
            return PP_PACK_UNKNOWN;
        s->steps--;
        if (closed) {
            c = next_left_class(s, 0, s->capacity);
            choose_class(s, c, true);
            space = s->capacity - s->classes->length[c];
            closed = false;
        } else if ((c = next_left_class(s, c, space)) < s->classes->n) {
            choose_class(s, c, false);
            space -= s->classes->length[c];
        } else if (space <= s->spare && !fits_more(s, space)) {
            s->spare -= space;
            closed = true;
        } else if (!undo_choice(s, &c, &space))
            return PP_PACK_IMPOSSIBLE;
    }
    return PP_PACK_FOUND;
}

enum pp_pack_answer pp_pack_complete(const struct pp_classes *classes,
                                     uint32_t *left, uint32_t capacity,
                                     size_t n_bins, uint64_t steps,
                                     struct pp_bin_choice *chosen)
{
    struct completion_search s = {.classes = classes,
                                  .left = left,
                                  .chosen = chosen,
                                  .steps = steps,
                                  .capacity = capacity};
    uint64_t total = 0, all = (uint64_t)n_bins * capacity;
    for (size_t c = 0; c < classes->n; c++) {
        s.n += left[c];
        total += (uint64_t)left[c] * classes->length[c];
    }
    if (all < total || (s.n && !n_bins))
        return PP_PACK_IMPOSSIBLE;
    s.spare = all - total;
    return run_search(&s);
}

void pp_bins_of_choices(const struct pp_classes *classes,
                        const struct pp_bin_choice *chosen, size_t n,
                        struct pp_bins *out)
{
    uint32_t *bin_of = pp_calloc(n, sizeof *bin_of);
    size_t *next = pp_calloc(classes->n, sizeof *next);
    uint32_t *placed = pp_calloc(n, sizeof *placed);
    for (size_t c = 0; c < classes->n; c++)
        next[c] = classes->first[c];
    size_t n_bins = 0;
    for (size_t k = 0; k < n; k++) {
        n_bins += chosen[k].opens;
        placed[k] = classes->order[next[chosen[k].class]++];
        bin_of[placed[k]] = (uint32_t)(n_bins - 1);
    }
    pp_bins_make(out, placed, bin_of, n, n_bins);
    free(bin_of);
    free(next);
    free(placed);
}

void pp_pack_search(const uint32_t *lengths, size_t n, uint32_t capacity,
                    size_t n_bins, enum pp_pack_answer *answer,
                    struct pp_bins *out)
{
    enum { STEPS = 10000000 };
    struct pp_classes classes;
    pp_classes_init(&classes, lengths, n);
    uint32_t *left = pp_calloc(classes.n, sizeof *left);
    struct pp_bin_choice *chosen = pp_calloc(n, sizeof *chosen);
    for (size_t c = 0; c < classes.n; c++)
        left[c] = classes.count[c];
    *answer = pp_pack_complete(&classes, left, capacity, n_bins, STEPS, chosen);
    if (*answer == PP_PACK_FOUND && out) {
        pp_bins_of_choices(&classes, chosen, n, out);
    }
    pp_classes_finish(&classes);
    free(left);
    free(chosen);
}
