/* SPDX-License-Identifier: MIT */
/* room - what a rank may hold, for the bound and the search. */
#ifndef PP_SCHED_ROOM_H
#define PP_SCHED_ROOM_H

/* What a microbatch on a stage holds: taken at F and freed after I; taken at F
 * and freed after W (or B); taken at I and freed after W. Slots: {0, 1, 0}. */
struct pp_load {
    double f_to_i, f_to_w, i_to_w;
};

struct pp_room {
    const double *limit;        /* per rank; NULL: no limit */
    const struct pp_load *load; /* per stage */
};

#endif
