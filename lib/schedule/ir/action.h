/* SPDX-License-Identifier: MIT */
/* action - one entry of a schedule.
 *
 * The letters are PyTorch's (torch.distributed.pipelining): F forward, B full
 * backward, I input gradient, W weight gradient. B is I followed by W. SEND
 * names the sending stage, RECV the receiving stage. pp-schedules(7) compares
 * the names with the names in other systems. */
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
    PP_SEND_F, /* sends an output to a later stage */
    PP_RECV_F,
    PP_SEND_B, /* sends the gradient of an input to an earlier stage */
    PP_RECV_B,
    PP_REDUCE_GRAD, /* sums a stage's gradients over dp; has no microbatch */
    PP_UNSHARD,
    PP_RESHARD,
    PP_OFFLOAD, /* the activations of a stage and microbatch have left for the
                   host: the copy begins behind their F */
    PP_RELOAD,  /* they begin to come back, for the backward */
    PP_SYNC_COPIES, /* adds the gradients of the copies of the weights, on every
                       rank that holds a copy; has no stage */
    PP_SYNC_TIED,   /* adds the gradients of tied weights; has no stage */
    PP_N_OPS,
    PP_IDLE /* an empty cell of PyTorch's CSV. Kinds emit it for export only; a
               schedule that is checked or run never contains it */
};

/* Bits 1 << op. */
enum {
    PP_COMPUTE_OPS = 1 << PP_F | 1 << PP_B | 1 << PP_I | 1 << PP_W,
    PP_SEND_OPS = 1 << PP_SEND_F | 1 << PP_SEND_B
};

struct pp_action {
    int32_t stage;      /* -1 for SYNC_COPIES and SYNC_TIED */
    int32_t microbatch; /* -1 if the op has none (pp_has_microbatch) */
    int32_t peer;       /* the other stage of a SEND or RECV, else -1 */
    int16_t slice;      /* 0 unless sequences are sliced */
    uint8_t op;         /* enum pp_op */
    uint8_t overlap;    /* 1 if paired with the next action (OVERLAP_F_B) */
};

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

static inline bool pp_is_message(enum pp_op op)
{
    return pp_is_send(op) || pp_is_recv(op);
}

/* Returns true for the ops that move bytes between the ranks of a row. */
static inline bool pp_is_collective(enum pp_op op)
{
    return op == PP_REDUCE_GRAD || op == PP_UNSHARD;
}

/* Returns true for the ops that copy activations between a rank and the host.
 */
static inline bool pp_is_copy(enum pp_op op)
{
    return op == PP_OFFLOAD || op == PP_RELOAD;
}

/* Returns true for the ops that take time beside the computation, or may. */
static inline bool pp_is_transfer(enum pp_op op)
{
    return pp_is_collective(op) || pp_is_copy(op);
}

/* Returns true for the ops that are of a microbatch. */
static inline bool pp_has_microbatch(enum pp_op op)
{
    return op <= PP_RECV_B || pp_is_copy(op);
}

/* Returns false for the ops that concern a rank as a whole. */
static inline bool pp_has_stage(enum pp_op op)
{
    return op < PP_SYNC_COPIES;
}

/* The most slices of a microbatch that an action can name. */
#define PP_MAX_SLICES INT16_MAX

/* The longest text of an action in bytes, with the final NUL. */
#define PP_ACTION_TEXT 64

/* Writes the text of a ("2F0", "1SEND_F0", "2F0.1", "SYNC_TIED") to buf, which
 * has PP_ACTION_TEXT bytes. Writes the peer ("2RECV_F0<1", "1SEND_F0>2") only
 * if with_peer. The caller writes the marks of overlap pairs. Returns the
 * length. */
size_t pp_action_format(struct pp_action a, bool with_peer, char *buf);

/* Returns the name of op, such as "SEND_F". */
const char *pp_op_name(enum pp_op op);

/* Reads one action that fills text[0..n) exactly. Leaves the peer at -1 if the
 * text has none; pp_schedule_imply_peers can fill it. Fails with PP_EXIT_INPUT
 * and quotes the text. */
int pp_action_parse(const char *text, size_t n, struct pp_action *a,
                    struct pp_err *err) PP_MUST_USE;

#endif
