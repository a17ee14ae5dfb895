/* SPDX-License-Identifier: MIT */
/* action - one entry of a schedule: what one pipeline rank does next.
 *
 * The letters are PyTorch's (torch.distributed.pipelining): F forward, B full
 * backward, I input gradient, W weight gradient. B is I then W. SEND names the
 * sending stage, RECV the receiving one. pp-schedules(7) has the table of
 * names elsewhere. */
#ifndef PP_SCHEDULE_IR_ACTION_H
#define PP_SCHEDULE_IR_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pp_op {
    PP_F,
    PP_B,
    PP_I,
    PP_W,
    PP_SEND_F, /* an output to a later stage */
    PP_RECV_F,
    PP_SEND_B, /* the gradient of an input to an earlier stage */
    PP_RECV_B,
    PP_REDUCE_GRAD, /* a stage's gradients summed over dp; no microbatch */
    PP_UNSHARD,
    PP_RESHARD,
    PP_SYNC_COPIES, /* gradients of the copies of the weights added, on every
                       rank that holds one; no stage */
    PP_SYNC_TIED,   /* tied embedding and head gradients added; no stage */
    PP_N_OPS,
    PP_IDLE /* nothing: an empty cell of PyTorch's CSV. Only between a kind and
               its export, never in a schedule that is checked or run */
};

struct pp_action {
    int32_t stage;      /* -1 for SYNC_COPIES and SYNC_TIED */
    int32_t microbatch; /* -1 where the op has none */
    int32_t peer;       /* SEND, RECV: the other stage. Others: -1 */
    int16_t slice;      /* 0 unless the sequence is sliced */
    uint8_t op;         /* enum pp_op */
    uint8_t overlap;    /* 1: paired with the next action (OVERLAP_F_B) */
};

/* F, B, I or W. */
static inline bool pp_is_compute(enum pp_op op)
{
    return op <= PP_W;
}

static inline bool pp_is_send(enum pp_op op)
{
    return op == PP_SEND_F || op == PP_SEND_B;
}

static inline bool pp_is_recv(enum pp_op op)
{
    return op == PP_RECV_F || op == PP_RECV_B;
}

/* All but what concerns a rank as a whole. */
static inline bool pp_has_stage(enum pp_op op)
{
    return op < PP_SYNC_COPIES;
}

/* Most slices of a microbatch: what an action can name. */
#define PP_MAX_SLICES INT16_MAX

/* Longest text of one action, with the final NUL. */
#define PP_ACTION_TEXT 64

/* Writes a's text ("2F0", "1SEND_F0", "2F0.1", "SYNC_TIED") to buf of
 * PP_ACTION_TEXT bytes. The peer is written ("2RECV_F0<1", "1SEND_F0>2") only
 * when with_peer. Overlap pairs are the caller's. Returns the length. */
size_t pp_action_format(struct pp_action a, bool with_peer, char *buf);

/* "SEND_F". */
const char *pp_op_name(enum pp_op op);

/* Reads one action that fills text[0..n) exactly. A peer not written is left
 * -1; the reader of the schedule fills it from the stage graph. Fails with
 * PP_EXIT_INPUT, quoting the cell. */
int pp_action_parse(const char *text, size_t n, struct pp_action *a,
                    struct pp_err *err) PP_MUST_USE;

#endif
