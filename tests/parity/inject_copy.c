/* SPDX-License-Identifier: MIT */
/* Faults of copies between a rank and the host. */
#include <string.h>

#include "base/num.h"
#include "inject.h"
#include "run/execute/exec_impl.h"

/* Copies back what the host has of the next microbatch of the stage. */
static void reload_next(const struct pp_exec *e, struct pp_action a)
{
    static const enum pp_buffer_kind kinds[] = {PP_BUF_ACT_I, PP_BUF_ACT_W};
    const struct pp_buffer *host = NULL;
    struct pp_action next = a;
    while (!host) {
        next.microbatch = (next.microbatch + 1) % e->schedule->n_microbatches;
        host = pp_exec_find(e, PP_BUF_HOST, a.stage, next, -1);
    }
    const unsigned char *from = e->host + host->offset;
    for (int k = 0; k < 2; k++) {
        const struct pp_buffer *b = pp_exec_find(e, kinds[k], a.stage, a, 0);
        memcpy(e->arena + b->offset, from, b->bytes);
        from += pp_round_up(b->bytes, PP_LINE_BYTES);
    }
}

/* Lets the backward read where the activations were before they left. */
static void stay_away(const struct pp_exec *e, struct pp_action a)
{
    static const enum pp_buffer_kind kinds[] = {PP_BUF_ACT_I, PP_BUF_ACT_W};
    for (int k = 0; k < 2; k++) {
        const struct pp_buffer *back = pp_exec_find(e, kinds[k], a.stage, a, 0);
        e->memory.buffers[back - e->memory.buffers].offset =
            pp_exec_find(e, kinds[k], a.stage, a, -1)->offset;
    }
}

int inject_copy(const struct pp_exec *e, struct pp_device *on,
                struct pp_action a, struct pp_err *err)
{
    bool back = a.op == PP_RELOAD, chosen = a.stage == 1;
    if (chosen && inject_is_of(e, "offload-late")) {
        a.op = PP_OFFLOAD;
        if (!back || pp_host_copy(e, on, a, err))
            return back ? -1 : 0;
        a.op = PP_RELOAD;
    }
    if (chosen && back && inject_is_of(e, "reload-late"))
        return 0;
    if (chosen && back && inject_is_of(e, "reload-away")) {
        stay_away(e, a);
        return 0;
    }
    if (chosen && back && inject_is_of(e, "reload-other")) {
        reload_next(e, a);
        return 0;
    }
    return pp_host_copy(e, on, a, err);
}
