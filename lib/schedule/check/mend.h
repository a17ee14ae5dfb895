/* SPDX-License-Identifier: MIT */
/* mend - the smallest change of rows that makes a schedule valid.
 *
 * A change is one edit of a row. The search tries every edit that can end the
 * first faults, and takes the one that leaves the fewest faults and the fewest
 * actions that cannot run, and of equal edits the nearest; then it goes on with
 * what is left. If one edit suffices it finds one; several may not be the
 * fewest. */
#ifndef PP_SCHEDULE_CHECK_MEND_H
#define PP_SCHEDULE_CHECK_MEND_H

#include "schedule/ir/schedule.h"

enum pp_edit_kind {
    PP_EDIT_REMOVE,
    PP_EDIT_MOVE,   /* stands at place `to` of the row without it */
    PP_EDIT_CHANGE, /* becomes `with` */
    PP_EDIT_INSERT  /* `with` stands at `to` */
};

struct pp_edit {
    enum pp_edit_kind kind;
    int row;
    size_t place, to; /* in the row before the edit */
    struct pp_action action, with;
    /* The action behind which it stands afterwards; op is PP_IDLE at the
     * beginning of the row. */
    struct pp_action behind;
};

enum { PP_MOST_EDITS = 8 };

/* Fills *n edits to make one after the other, at most PP_MOST_EDITS; 0 if none
 * are found, in a time that the library bounds, or none are needed. messages: s
 * has its messages. All stages and ranks of actions must be in range. */
int pp_mend_find(const struct pp_schedule *s, bool messages,
                 struct pp_edit edits[PP_MOST_EDITS], int *n,
                 struct pp_err *err) PP_MUST_USE;

#endif
