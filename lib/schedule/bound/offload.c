/* SPDX-License-Identifier: MIT */
/* Memory with copies to the host. Activations that leave are on the device for
 * their forward and their backward and for two copies; activations that stay,
 * from one to the other. A rank's copies of one direction follow each other, so
 * only so many can leave. What is left, times the time that it stays, fits into
 * the limit times the makespan. Which leave is relaxed to parts of
 * microbatches. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/bound/parts.h"

/* The most that the copies of a stage can save. */
struct saving {
    double copies; /* time of the copies of all microbatches, one way */
    double most;   /* memory times time */
};

static int compare_savings(const void *pa, const void *pb)
{
    const struct saving *a = pa, *b = pb;
    double x = a->most * b->copies, y = b->most * a->copies;
    return (x < y) - (x > y);
}

/* Returns the most that copies save in so much time. The savings are sorted,
 * the ones that give most for their time first. */
static double save(const struct saving *s, int n, double time)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double part = s[i].copies > time ? time / s[i].copies : 1;
        sum += part * s[i].most;
        time -= part * s[i].copies;
    }
    return sum;
}

double pp_bound_offload(const struct pp_bound_case *c,
                        const struct pp_memory_limit *memory, int row,
                        const double *hold)
{
    struct saving *s = pp_calloc((size_t)c->g->n_stages, sizeof *s);
    double held = 0, limit = memory->limit[row];
    int n = 0;
    for (int i = 0; i < c->g->n_stages; i++) {
        const struct pp_load *load = &memory->load[i];
        double most = load->f_to_i + load->f_to_w;
        if (c->g->stages[i].row != row)
            continue;
        double copies = (double)c->n * memory->copy[i];
        double here =
            2 * copies + (double)c->n * (c->stages[i].time[PP_BOUND_F] +
                                         c->stages[i].time[PP_BOUND_I]);
        held += most * hold[i];
        s[n++] = (struct saving){copies, most * fmax(hold[i] - here, 0)};
    }
    qsort(s, (size_t)n, sizeof *s, compare_savings);
    double low = 0, high = held / limit;
    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        if (held - save(s, n, mid) > limit * mid)
            low = mid;
        else
            high = mid;
    }
    free(s);
    return low;
}
