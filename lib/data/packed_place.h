/* SPDX-License-Identifier: MIT */
/* packed_place - a directory written beside its place, then put there. For
 * packed_write.c only. */
#ifndef PP_DATA_PACKED_PLACE_H
#define PP_DATA_PACKED_PLACE_H

#include "base/err.h"

struct pp_place {
    char *dir; /* the place, symbolic links followed */
    char *tmp; /* DIR.tmp, where to write */
    int lock;  /* tmp, open and locked */
};

/* Makes an empty DIR.tmp. What an interrupted run left there is removed;
 * another run at work there is an error. */
int pp_place_open(struct pp_place *p, const char *dir,
                  struct pp_err *err) PP_MUST_USE;

/* DIR.tmp/name, to be freed; NULL when out of memory. */
char *pp_place_path(const struct pp_place *p, const char *name) PP_MUST_USE;

/* Puts DIR.tmp in its place and frees p, also after a failure. */
int pp_place_commit(struct pp_place *p, struct pp_err *err) PP_MUST_USE;

/* Removes DIR.tmp and frees p. */
void pp_place_abort(struct pp_place *p);

#endif
