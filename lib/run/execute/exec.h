/* SPDX-License-Identifier: MIT */
/* exec - walks one rank's list for real: the third thing handed to the player.
 *
 * A worker is what a rank computes with; an exec is one list on it with its
 * planned arena, so that training and evaluation share a worker. Nothing here
 * allocates once pp_exec_init has returned. */
#ifndef PP_RUN_EXECUTE_EXEC_H
#define PP_RUN_EXECUTE_EXEC_H

#include <stdbool.h>

#include "comm/comm.h"
#include "run/execute/engine.h"
#include "run/execute/recorder.h"
#include "run/execute/job.h"
#include "schedule/memory/memory.h"
#include "schedule/ir/play.h"

/* Gradients of a tied embedding and head of one copy of the weights, added at
 * SYNC_TIED. */
struct pp_tied {
    bool used;
    void *embed, *head; /* this rank's gradients, or NULL */
    void *received;     /* (n) where the other is on another rank */
    int peer;           /* that rank, or -1 */
    size_t n;
};

struct pp_worker {
    int rank;
    struct pp_comm *comm;
    const struct pp_kernels *kernels;
    const struct pp_graph *graph;
    const struct pp_parameters *params;
    struct pp_engine engine, overlap; /* beside: of overlap pairs, or zeroed */
    struct pp_tied tied[PP_MAX_COPIES];
    void *copied; /* (PP_COPIED_PART) another copy's gradients, at SYNC_COPIES;
                     NULL where there is one copy of the weights */
};

struct pp_exec {
    struct pp_worker *worker; /* borrowed */
    const struct pp_schedule *schedule;
    struct pp_memory memory;
    unsigned char *arena;
    size_t *sent; /* messages sent, by 2 * rank + lane: places in the rings */
    bool trains;  /* the list has a backward: slots are opened and closed */
    struct pp_slice_blocks *before; /* (n_slices) of the action under way */
    struct pp_action paired; /* the forward of a pair, until its backward */
    bool has_paired;
    size_t pc;      /* place of the action under way in its row */
    void *shown;    /* host memory for an output that pass->output looks at;
                       borrowed, NULL where it is there already */
    int slot_limit; /* most live (stage, microbatch, slice); 0: as planned */
    enum pp_message_size shapes; /* of messages; with PP_MESSAGE_MAX sizes are
                              those of the capacity */

    /* Counted while running. */
    int slots, peak_slots;
    double compute_seconds;       /* in F, I, W, B since the exec was made */
    double seconds;               /* in all passes, likewise */
    struct pp_recorder *recorder; /* borrowed, or NULL */
    uint64_t messages, message_bytes; /* sent, likewise */

    const struct pp_pass *pass; /* the one under way */
};

/* One walk of the list. Microbatch k is the bin (first + k) mod n_bins, or an
 * empty one where first + k >= end. */
struct pp_pass {
    const struct pp_packed *packed;
    uint64_t first, end;
    double scale;   /* 1 / scored tokens of the step; 0 when there are none */
    bool sync;      /* the last pass of a step: SYNC_COPIES and _TIED act */
    int number;     /* among the passes of its step */
    bool score_all; /* log-probabilities of every token */
    double *losses; /* (n_microbatches) written where this rank runs the head */
    /* Called after the head's forward with each row's log-probability, or
     * NULL. Copies of the head call from their own ranks. */
    void (*logps)(void *ctx, size_t bin, const struct pp_microbatch *mb);
    /* Called after the forward of a stage that has an output, or NULL: see
     * struct pp_job. On a device it takes shown. */
    void (*output)(void *ctx, int stage, size_t bin,
                   const struct pp_microbatch *mb, const void *y, size_t width);
    void *ctx;
};

/* Plans and allocates. sizes: bytes of every stage at the largest
 * microbatch. */
int pp_exec_init(struct pp_exec *e, struct pp_worker *w,
                 const struct pp_schedule *s,
                 const struct pp_stage_bytes *sizes,
                 struct pp_err *err) PP_MUST_USE;
void pp_exec_finish(struct pp_exec *e);

int pp_exec_run(struct pp_exec *e, const struct pp_pass *pass,
                struct pp_err *err) PP_MUST_USE;

#endif
