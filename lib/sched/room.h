/* SPDX-License-Identifier: MIT */
/* room - what a rank may hold, for the lower bound and the search. */
#ifndef PP_SCHED_ROOM_H
#define PP_SCHED_ROOM_H

/* What one microbatch on one stage holds, in slots or bytes. A stage without
 * input gradient frees and takes nothing at I: all is f_to_w. A slot is
 * {0, 1, 0}. */
struct pp_load {
    double f_to_i; /* taken when F starts, freed when I (or B) has ended */
    double f_to_w; /* taken when F starts, freed when W (or B) has ended */
    double i_to_w; /* taken when I starts, freed when W has ended */
};

struct pp_room {
    const double *limit;        /* per rank; NULL: no limit */
    const struct pp_load *load; /* per stage; read where there is a limit */
};

#endif
