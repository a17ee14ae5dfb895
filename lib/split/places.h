/* SPDX-License-Identifier: MIT */
/* places - whether units fit on ranks by their costs alone, decided for
 * units of few different costs; private to lib/split. */
#ifndef PP_SPLIT_PLACES_H
#define PP_SPLIT_PLACES_H

#include <stdbool.h>
#include <stddef.h>

enum { PP_PLACES_KINDS = 6 };

/* Units of equal cost are a kind. A state says how many units of each kind are
 * left, as digits of one number. */
struct pp_places {
    int n_kinds; /* 0: too many to decide */
    double cost[PP_PLACES_KINDS];
    size_t count[PP_PLACES_KINDS], stride[PP_PLACES_KINDS];
    size_t n_states;
    unsigned char *reached, *next; /* per state: some ranks leave it */
    double work;                   /* visits of states that are left */
};

void pp_places_init(struct pp_places *x, const double *cost, size_t n_units);
void pp_places_finish(struct pp_places *x);

/* Returns true if the units cannot be divided among ranks with these rooms, so
 * that no rank exceeds its room. False says nothing if the work ran out. */
bool pp_places_refuse(struct pp_places *x, const double *room, size_t n_ranks);

#endif
