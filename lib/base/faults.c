/* SPDX-License-Identifier: MIT */
#include "base/faults.h"

#include <stdlib.h>

bool pp_faults_take(struct pp_faults *f, int row, size_t place,
                    struct pp_err *err)
{
    if (!f || err->code == PP_EXIT_SYSTEM)
        return false;
    if (f->n < PP_MAX_FAULTS)
        f->at[f->n] = (struct pp_fault){row, place, *err};
    f->n++;
    *err = (struct pp_err){0};
    return true;
}

/* A fault of a whole row comes after the faults in it. */
static int compare_faults(const void *pa, const void *pb)
{
    const struct pp_fault *a = pa, *b = pb;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

void pp_faults_sort(struct pp_faults *f)
{
    size_t kept = f->n < PP_MAX_FAULTS ? f->n : PP_MAX_FAULTS;
    qsort(f->at, kept, sizeof *f->at, compare_faults);
}
