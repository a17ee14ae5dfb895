/* SPDX-License-Identifier: MIT */
/* faults - a list of faults of one input, for a user who wants to mend them all
 * at once. */
#ifndef PP_BASE_FAULTS_H
#define PP_BASE_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { PP_MAX_FAULTS = 24 };
#define PP_NO_PLACE ((size_t)-1)

struct pp_fault {
    int row;
    size_t place; /* in the row; PP_NO_PLACE: of the row as a whole */
    struct pp_err err;
};

struct pp_faults {
    struct pp_fault at[PP_MAX_FAULTS];
    size_t n; /* faults beyond PP_MAX_FAULTS count but are not kept */
};

/* Moves the error that *err holds to the list, and returns true: then the
 * caller goes on. Returns false if there is no list (f is NULL) or if the
 * system failed. */
bool pp_faults_take(struct pp_faults *f, int row, size_t place,
                    struct pp_err *err);

/* Sorts the faults kept by row and place. */
void pp_faults_sort(struct pp_faults *f);

#endif
