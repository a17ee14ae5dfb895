/* SPDX-License-Identifier: MIT */
/* --offload auto: which activations leave for the host, within --memory. */
#include <stdlib.h>

#include "base/alloc.h"
#include "ppsched.h"
#include "schedule/offload/offload.h"

/* In bytes a rank also holds messages and gradients, which follow from the
 * rows: then the room is lowered by what is too much, several times. */
enum { MAX_TRIES = 12 };

/* Lowers the room of each rank by the bytes by which its plan is too large. */
static int tighten(const struct ppsched *p, const struct pp_schedule *s,
                   double *room, bool *fits, struct pp_err *err)
{
    *fits = true;
    for (int r = 0; r < s->graph->n_rows; r++) {
        struct pp_memory m;
        if (pp_memory_plan(s, r, p->costs.sizes, &m, err))
            return -1;
        double over = (double)m.arena_bytes +
                      (double)ppsched_fixed_bytes(p, s, r) -
                      (double)p->options.memory;
        pp_memory_finish(&m);
        if (over > 0) {
            room[r] -= over;
            *fits = false;
        }
    }
    return 0;
}

/* Replaces *s by the order with copies that fits. */
static int offload_within(struct ppsched *p, struct pp_schedule *s,
                          const double *load, double *room, struct pp_err *err)
{
    const struct pp_offload_options o = {&p->costs.costs, load, room};
    bool fits = false;
    for (int i = 0; i < MAX_TRIES && !fits; i++) {
        struct pp_schedule woven;
        pp_schedule_copy(s, &woven);
        int rc = pp_offload(&woven, &o, err);
        fits = p->options.slots > 0;
        if (!rc && !fits)
            rc = tighten(p, &woven, room, &fits, err);
        if (rc || !fits) {
            pp_schedule_finish(&woven);
            if (rc)
                return -1;
            continue;
        }
        pp_schedule_finish(s);
        *s = woven;
    }
    return fits ? 0
                : pp_fail(err, PP_EXIT_NO,
                          "no way to offload activations was found that fits");
}

int ppsched_offload(struct ppsched *p, struct pp_schedule *s,
                    struct pp_err *err)
{
    const struct ppsched_options *o = &p->options;
    const struct pp_graph *g = s->graph;
    if (g->n_slices > 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--offload: there are %d slices, whose keys and values "
                       "others read",
                       g->n_slices);
    if (!o->slots && !p->costs.sized)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--memory: the stages have no sizes; give the limit in "
                       "slots, with --max-in-flight");
    double *load = pp_calloc((size_t)g->n_stages, sizeof *load);
    double *room = pp_calloc((size_t)g->n_rows, sizeof *room);
    for (int i = 0; i < g->n_stages; i++)
        load[i] =
            o->slots
                ? 1
                : (double)(p->costs.sizes[i].act_i + p->costs.sizes[i].act_w);
    for (int r = 0; r < g->n_rows; r++)
        room[r] = o->slots ? (double)o->slots : ppsched_room(p, r);
    int rc = offload_within(p, s, load, room, err);
    free(load);
    free(room);
    return rc;
}
