/* SPDX-License-Identifier: MIT */
/* progress - one word, so that a reader never sees half of a place: the phase
 * in the lowest 4 bits, then 28 bits of the action's index and 32 bits of the
 * step. */
#include "run/execute/progress.h"

#include <stdio.h>

#include "run/execute/job.h"

#define PHASE_BITS 4
#define INDEX_BITS 28
#define MASK(bits) (((uint64_t)1 << (bits)) - 1)

void pp_progress_phase(struct pp_progress *p, enum pp_phase phase, int64_t step)
{
    uint64_t place = (uint64_t)step << (PHASE_BITS + INDEX_BITS);
    if (p)
        atomic_store_explicit(&p->place, place | phase, memory_order_release);
}

void pp_progress_action(struct pp_progress *p, size_t index)
{
    if (!p)
        return;
    uint64_t place = atomic_load_explicit(&p->place, memory_order_relaxed);
    place &= ~(MASK(INDEX_BITS) << PHASE_BITS);
    place |= ((uint64_t)index & MASK(INDEX_BITS)) << PHASE_BITS;
    atomic_store_explicit(&p->place, place, memory_order_release);
}

static void format_action(const struct pp_job *j, const struct pp_schedule *s,
                          int rank, size_t index, char *text)
{
    const struct pp_layout layout = pp_job_layout(j);
    struct pp_place place;
    if (!pp_layout_find(&layout, rank, &place))
        return;
    const struct pp_row *row = &s->rows[place.row];
    if (index < row->n)
        pp_action_format(row->actions[index], false, text);
}

void pp_progress_format(struct pp_progress *p, const struct pp_job *j, int rank,
                        char *text, size_t room)
{
    uint64_t place = atomic_load_explicit(&p->place, memory_order_acquire);
    enum pp_phase phase = (enum pp_phase)(place & MASK(PHASE_BITS));
    size_t index = (size_t)(place >> PHASE_BITS & MASK(INDEX_BITS));
    unsigned long step = (unsigned long)(place >> (PHASE_BITS + INDEX_BITS));
    char action[PP_ACTION_TEXT] = "";
    switch (phase) {
    case PP_PHASE_START:
        snprintf(text, room, "the start");
        break;
    case PP_PHASE_TRAIN:
        format_action(j, j->schedule, rank, index, action);
        snprintf(text, room, "step %lu: %s", step, action);
        break;
    case PP_PHASE_UPDATE:
        snprintf(text, room, "step %lu: the update", step);
        break;
    case PP_PHASE_EVALUATE:
        format_action(j, j->forward, rank, index, action);
        snprintf(text, room, "the evaluation: %s", action);
        break;
    case PP_PHASE_SAVE:
        snprintf(text, room, "the checkpoint of step %lu", step);
        break;
    case PP_PHASE_END:
        snprintf(text, room, "the end");
        break;
    }
}
