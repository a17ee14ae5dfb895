/* SPDX-License-Identifier: MIT */
/* room - what a rank may hold, for the lower bound and the search. */
#ifndef PP_SCHED_ROOM_H
#define PP_SCHED_ROOM_H

#include "sched/memory.h"

/* What one microbatch on one stage holds, in slots or bytes. A stage without
 * input gradient frees and takes nothing at I: all is f_to_w. A slot is
 * {0, 1, 0}. */
struct pp_load {
    double f_to_i; /* taken when F starts, freed when I (or B) has ended */
    double f_to_w; /* taken when F starts, freed when W (or B) has ended */
    double i_to_w; /* taken when I starts, freed when W has ended */
};

/* Of a stage with these buffers. */
static inline struct pp_load pp_load_of(const struct pp_stage_bytes *b,
                                        bool input_grad)
{
    double i = (double)b->act_i, w = (double)b->act_w;
    return input_grad ? (struct pp_load){i, w, (double)b->grad_w}
                      : (struct pp_load){0, i + w, 0};
}

struct pp_room {
    const double *limit;        /* per rank; NULL: no limit */
    const struct pp_load *load; /* per stage; read where there is a limit */
};

#endif
