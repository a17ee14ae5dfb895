/* SPDX-License-Identifier: MIT */
#include "sched/kind.h"

#include <string.h>

#include "sched/kinds.h"

const struct pp_kind *const pp_kinds[] = {
    &pp_kind_gpipe,
    &pp_kind_1f1b,
    &pp_kind_interleaved,
    NULL,
};

const struct pp_kind *pp_kind_find(const char *name)
{
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        if (!strcmp((*k)->name, name))
            return *k;
    return NULL;
}

int pp_emit(struct pp_schedule *s, enum pp_op op, int stage, int microbatch,
            struct pp_err *err)
{
    struct pp_action a = {.stage = stage,
                          .microbatch = microbatch,
                          .peer = -1,
                          .op = (uint8_t)op};
    return pp_schedule_add(s, s->graph->stages[stage].rank, a, err);
}
