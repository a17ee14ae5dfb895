/* SPDX-License-Identifier: MIT */
/* Rank 0 is asked what time it is. Its answer is from between the question and
 * when it is there: each round says so much, and all of them together more.
 * After Cristian, "Probabilistic clock synchronization", 1989. */
#include "run/record/clocks.h"

#include <math.h>

#include "base/clock.h"

enum { ROUNDS = 8 };

static int tell(struct pp_comm *c, int to, const void *data, size_t bytes,
                struct pp_err *err)
{
    return c->ops->send(c, to, PP_DIRECTION_HOST, data, bytes, err) ||
                   c->ops->send_wait(c, to, PP_DIRECTION_HOST, 0, err)
               ? -1
               : 0;
}

static int answer(struct pp_comm *c, struct pp_err *err)
{
    char asked;
    for (int rank = 1; rank < c->size; rank++)
        for (int i = 0; i < ROUNDS; i++) {
            if (c->ops->recv(c, rank, PP_DIRECTION_HOST, &asked, 1, err))
                return -1;
            double now = pp_clock();
            if (tell(c, rank, &now, sizeof now, err))
                return -1;
        }
    return 0;
}

int pp_clock_offset(struct pp_comm *c, double *offset, double *error,
                    struct pp_err *err)
{
    double least = -HUGE_VAL, most = HUGE_VAL, theirs;
    *offset = *error = 0;
    if (c->rank == 0)
        return answer(c, err);
    for (int i = 0; i < ROUNDS; i++) {
        double asked = pp_clock();
        if (tell(c, 0, "", 1, err) ||
            c->ops->recv(c, 0, PP_DIRECTION_HOST, &theirs, sizeof theirs, err))
            return -1;
        least = fmax(least, theirs - pp_clock());
        most = fmin(most, theirs - asked);
    }
    if (least <= 0 && most >= 0)
        return 0;
    *offset = (least + most) / 2;
    *error = (most - least) / 2;
    return 0;
}
