/* SPDX-License-Identifier: MIT */
/* pack_search - whether sequences go into a given number of bins, by a search
 * of bounded length.
 *
 * Bin completion: Korf, "A new algorithm for optimal bin packing", AAAI 2002.
 * The longest sequence left opens a bin; the bin is completed in every way to
 * which nothing that is left could be added, for adding it never hurts. What
 * bins leave empty adds up, and the number of bins times the capacity minus
 * all lengths is all that may be left empty. Equal lengths are one class, so
 * that a completion is tried once. */
#include <stdlib.h>

#include "plan/pack_classes.h"
#include "plan/pack_rule.h"

/* A choice: one of the class put into the bin that is open. */
struct choice {
    uint32_t class;
    bool opens; /* it is the first of its bin */
};

struct search {
    struct pp_classes classes;
    uint32_t *left;        /* by class: how many are left */
    struct choice *chosen; /* one for each sequence, in order */
    size_t n_chosen, n;
    uint64_t steps; /* left */
    uint64_t spare; /* what bins may yet leave empty */
    uint32_t capacity;
};

/* The longest class from c on that has some left and fits. */
static size_t next_class(struct search *s, size_t c, uint64_t space)
{
    if (c < s->classes.n && s->classes.length[c] > space)
        c = pp_classes_within(&s->classes, c, space);
    for (; c < s->classes.n && !s->left[c]; c++)
        s->steps -= s->steps > 0;
    return c;
}

/* Whether something left fits: then the bin is not complete. */
static bool fits_more(struct search *s, uint64_t space)
{
    for (size_t c = s->classes.n; c-- > 0; s->steps -= s->steps > 0)
        if (s->left[c])
            return s->classes.length[c] <= space;
    return false;
}

static void take(struct search *s, size_t c, bool opens)
{
    s->chosen[s->n_chosen++] = (struct choice){(uint32_t)c, opens};
    s->left[c]--;
}

/* Undoes choices up to one that can be exchanged for a shorter one in its bin;
 * *c is where to go on and *space what that bin then has. False when there is
 * none. */
static bool back_up(struct search *s, size_t *c, uint64_t *space)
{
    while (s->n_chosen > 0) {
        struct choice last = s->chosen[--s->n_chosen];
        s->left[last.class]++;
        *space += s->classes.length[last.class];
        if (!last.opens) {
            *c = last.class + 1;
            return true;
        }
        /* The bin before it is open again, with what it had left empty. */
        *space = 0;
        if (s->n_chosen == 0)
            return false;
        uint64_t load = 0;
        for (size_t k = s->n_chosen; k-- > 0;) {
            load += s->classes.length[s->chosen[k].class];
            if (s->chosen[k].opens)
                break;
        }
        *space = s->capacity - load;
        s->spare += *space;
    }
    return false;
}

static enum pp_search run(struct search *s)
{
    uint64_t space = 0;
    size_t c = 0;
    bool closed = true; /* the open bin is complete, or there is none yet */
    while (s->n_chosen < s->n || !closed) {
        if (s->steps == 0)
            return PP_SEARCH_UNKNOWN;
        s->steps--;
        if (closed) {
            c = next_class(s, 0, s->capacity);
            take(s, c, true);
            space = s->capacity - s->classes.length[c];
            closed = false;
        } else if ((c = next_class(s, c, space)) < s->classes.n) {
            take(s, c, false);
            space -= s->classes.length[c];
        } else if (space <= s->spare && !fits_more(s, space)) {
            s->spare -= space;
            closed = true;
        } else if (!back_up(s, &c, &space))
            return PP_SEARCH_NONE;
    }
    return PP_SEARCH_FOUND;
}

static int make_classes(struct search *s, const uint32_t *lengths,
                        struct pp_err *err)
{
    if (pp_classes_init(&s->classes, lengths, s->n, err) != 0)
        return -1;
    s->left = pp_pack_alloc(s->classes.n, sizeof *s->left, err);
    s->chosen = pp_pack_alloc(s->n, sizeof *s->chosen, err);
    if (!s->left || !s->chosen)
        return -1;
    for (size_t c = 0; c < s->classes.n; c++)
        s->left[c] = s->classes.count[c];
    return 0;
}

/* The sequences of each class in their order. */
static int make_bins(const struct search *s, struct pp_bins *out,
                     struct pp_err *err)
{
    int rc = -1;
    uint32_t *bin_of = pp_pack_alloc(s->n, sizeof *bin_of, err);
    size_t *next = pp_pack_alloc(s->classes.n, sizeof *next, err);
    uint32_t *placed = pp_pack_alloc(s->n, sizeof *placed, err);
    if (bin_of && next && placed) {
        for (size_t c = 0; c < s->classes.n; c++)
            next[c] = s->classes.first[c];
        size_t n_bins = 0;
        for (size_t k = 0; k < s->n; k++) {
            n_bins += s->chosen[k].opens;
            placed[k] = s->classes.order[next[s->chosen[k].class]++];
            bin_of[placed[k]] = (uint32_t)(n_bins - 1);
        }
        rc = pp_bins_make(out, placed, bin_of, s->n, n_bins, err);
    }
    free(bin_of);
    free(next);
    free(placed);
    return rc;
}

int pp_pack_search(const uint32_t *lengths, size_t n, uint32_t capacity,
                   size_t n_bins, enum pp_search *answer, struct pp_bins *out,
                   struct pp_err *err)
{
    enum { STEPS = 10000000 };
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += lengths[i];
    uint64_t room = (uint64_t)n_bins * capacity;
    *answer =
        room < total || (n && !n_bins) ? PP_SEARCH_NONE : PP_SEARCH_UNKNOWN;
    if (*answer == PP_SEARCH_NONE)
        return 0;
    struct search s = {
        .n = n, .capacity = capacity, .steps = STEPS, .spare = room - total};
    int rc = make_classes(&s, lengths, err);
    if (rc == 0) {
        *answer = run(&s);
        if (*answer == PP_SEARCH_FOUND && out)
            rc = make_bins(&s, out, err);
    }
    pp_classes_finish(&s.classes);
    free(s.left);
    free(s.chosen);
    return rc;
}
