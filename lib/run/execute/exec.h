/* SPDX-License-Identifier: MIT */
/* exec - executes one row of a schedule on a rank.
 *
 * The checker and the simulator are the other two users of the player. A worker
 * holds what a rank computes with. An exec is one row on a worker, with its
 * plan of memory: training and evaluation share the worker and one arena.
 * Nothing here allocates after pp_exec_init. */
#ifndef PP_RUN_EXECUTE_EXEC_H
#define PP_RUN_EXECUTE_EXEC_H

#include <stdbool.h>

#include "comm/collective.h"
#include "comm/comm.h"
#include "run/execute/digest.h"
#include "run/execute/engine.h"
#include "run/execute/host_copies.h"
#include "run/execute/metadata.h"
#include "run/execute/progress.h"
#include "run/execute/recorder.h"
#include "run/execute/replay.h"
#include "run/execute/job.h"
#include "run/execute/scoring.h"
#include "run/execute/teacher.h"
#include "schedule/memory/memory.h"
#include "schedule/ir/at_once.h"
#include "schedule/ir/play.h"

/* The gradients of a tied embedding and of the other tensor with its values, a
 * head or the copy for multi-token prediction, of one copy of the weights.
 * SYNC_TIED adds them. */
struct pp_tied {
    bool used;
    void *embed, *head; /* this rank's gradients, or NULL */
    int peer;           /* rank of the other one, or -1 */
    size_t n;
};

/* A queue beside that of the computation, for REDUCE_GRAD. */
struct pp_reducer {
    struct pp_device *device; /* a branch, or NULL: the computation waits */
    void *begun, *done;       /* events: gradients are computed; are added */
    bool is_running;          /* no work has been made to wait for it */
    bool *has_begun; /* by parameter: before the REDUCE_GRAD of its stage */
};

/* The most copies of tied weights. */
enum { PP_MAX_COPIES = 2 };

struct pp_worker {
    const struct pp_env *env; /* borrowed */
    const struct pp_graph *graph;
    struct pp_progress *progress;     /* or NULL */
    struct pp_engine engine, overlap; /* overlap: for pairs, or zeroed */
    struct pp_tied tied[PP_MAX_COPIES];
    void *room; /* (room_values) for gradients of ranks that hold the same
                   weights; NULL if there are none */
    size_t room_values;
    bool sums_by_transport; /* of replicas (collective.h) */
    struct pp_reducer reducer;
};

/* A receive that is posted. */
struct pp_posted {
    struct pp_action action; /* the RECV */
    size_t place;            /* in its row */
};

/* The receives of a channel, from a row in a direction. */
struct pp_inbox {
    struct pp_posted *at;   /* ring */
    size_t posted, awaited; /* receives so far */
};

struct pp_exec {
    struct pp_worker *worker; /* borrowed */
    const struct pp_env *env; /* the worker's */
    const struct pp_schedule *schedule;
    struct pp_memory memory;
    unsigned char *arena; /* borrowed; of memory.arena_bytes or more */
    unsigned char *host;  /* borrowed; of memory.host_bytes or more, for
                             activations that leave, and what layers of experts
                             tell the host; or NULL */
    struct pp_host_copies *copies; /* or NULL */
    size_t room;           /* tokens of the largest microbatch of the plan */
    size_t generated_room; /* the same of a generator's */
    size_t *sent;   /* messages sent, by 2 * row + direction: ring places */
    size_t *bounds; /* (ranks + 1) parts of a message over a bridge */
    struct pp_inbox *inboxes; /* by 2 * row + direction */
    struct pp_posted *posted; /* the rings of all inboxes */
    size_t n_posted;          /* size of a ring */
    size_t n_early;           /* RECVs at places below this have been posted */
    bool trains; /* the row has a backward, so it opens and closes slots */
    struct pp_slice_blocks *before; /* (slices.n) of the current action */
    enum pp_at_once *at_once;       /* by place in the row */
    struct pp_action paired; /* the forward of a pair, until its backward */
    bool has_paired;
    size_t pc;         /* place of the current action in its row */
    void *output_host; /* room for pass->output; borrowed; NULL on the CPU */
    int slot_limit;    /* most live (stage, microbatch, slice); 0: as planned */
    enum pp_message_size shapes; /* with PP_MESSAGE_MAX, messages have the
                                    size of the capacity */

    /* Counters. */
    int slots, peak_slots;
    double compute_seconds;           /* in F, I, W, B since pp_exec_init */
    double seconds;                   /* in all passes since pp_exec_init */
    struct pp_recorder *recorder;     /* borrowed, or NULL */
    uint64_t messages, message_bytes; /* sent since pp_exec_init */

    struct pp_scoring *scoring; /* borrowed; NULL without an objective */
    struct pp_teacher teacher;  /* of the current action */
    struct pp_replay replay;    /* likewise */
    /* Borrowed: (stages of one copy, PP_DIGEST_N); or NULL. */
    uint64_t *digests;
    struct pp_metadata *metadata; /* borrowed; takes the sequences of every
                                     forward; or NULL */

    const struct pp_pass *pass; /* the current one */
};

/* Scores of this rank's tokens in a pass: the log-probability of each, and
 * details (struct pp_microbatch). */
struct pp_scored {
    struct pp_token_place *at;
    double *values; /* (room, width) */
    size_t n, width;
};

/* One execution of the row. Microbatch k is the bin at place first + k stride,
 * and empty if that is not before end. If the rank has no tokens (env.h), the
 * bins from there on are the bins of all data-parallel ranks of the language
 * model. */
struct pp_pass {
    /* NULL: the loss of the next token. `step` has the counts of all passes of
     * the step, on all data-parallel ranks. */
    const struct pp_objective_options *objective;
    struct pp_objective_counts step;
    double *metrics; /* (n_metrics) of each microbatch, or NULL: every rank
                        that divides it has PP_MAX_METRICS */
    size_t n_metrics;
    struct pp_router_losses *router; /* of a step that trains, or NULL */
    double *expert_rounds;           /* likewise */
    struct pp_ahead_loss *ahead;     /* likewise, if the model has a layer for
                                        multi-token prediction */
    struct pp_generator_loss *generator; /* if the model has one; or NULL */
    /* The choice of experts to replay, and the file that takes it; or NULL. */
    const struct pp_routes *given;
    const struct pp_routes_output *taken;
    const struct pp_packed *packed;
    uint64_t first, end;
    uint64_t stride; /* data-parallel ranks of the language model: each takes
                        every stride-th */
    double scale;    /* 1 / scored tokens of the step; 0 when there are none */
    double temperature; /* divides logits; 0: 1 */
    bool sync;          /* the last pass of a step: REDUCE_GRAD, SYNC_COPIES and
                           SYNC_TIED act */
    int number;         /* index of the pass in its step */
    bool score_all;     /* log-probabilities of every token */
    bool base;          /* without adapters */
    const float *reference; /* by position of packed; or NULL: its column */
    double *losses; /* in the memory of the kernels: microbatch k's is at
                       k stride, and added to if this rank runs the head */
    /* Called after the forward of the head, with the log-probability of each
     * row; or NULL. Each copy of the head calls it on its own rank. */
    void (*logps)(void *ctx, size_t bin, const struct pp_host_microbatch *host);
    const struct pp_scored *scored; /* with logps: where the details go */
    size_t top_k;
    bool entropy;
    const struct pp_sampler *sampler;
    uint64_t draw;  /* of the first bin; another bin has this much more */
    uint64_t draws; /* of a bin, in all passes */
    /* Called after the forward of a stage that has an output, or NULL: see
     * struct pp_job. On a device it needs exec.output_host. */
    void (*output)(void *ctx, int stage, size_t bin,
                   const struct pp_microbatch *mb, const void *y,
                   struct pp_edge edge);
    void *ctx;
};

/* Plans the memory; the caller then sets arena and host. sizes: bytes of every
 * stage for the largest microbatch, which has room tokens. */
int pp_exec_init(struct pp_exec *e, struct pp_worker *w,
                 const struct pp_schedule *s,
                 const struct pp_stage_bytes *sizes, size_t room,
                 struct pp_err *err) PP_MUST_USE;
void pp_exec_finish(struct pp_exec *e);

/* The steps of an executor. Callers go through the table, because a test
 * program links a table with faults (tests/parity/inject.c). */
struct pp_exec_ops {
    int (*run)(struct pp_exec *e, const struct pp_pass *pass,
               struct pp_err *err);
    int (*view)(struct pp_batch *b, const struct pp_packed *p,
                const struct pp_batch_part *part,
                struct pp_host_microbatch *host, struct pp_err *err);
    /* The objective of a microbatch; ctx is the exec's scoring. */
    int (*score)(void *ctx, const struct pp_microbatch *mb, double *x,
                 double *loss, struct pp_err *err);
    struct pp_player player; /* its ctx is the exec */
    /* Copies the activations of an OFFLOAD or a RELOAD, beside the player. */
    int (*copy)(const struct pp_exec *e, struct pp_device *on,
                struct pp_action a, struct pp_err *err);
    /* pp_sync_gather (sync.h) */
    int (*gather)(const struct pp_worker *w, enum pp_weights_block block,
                  struct pp_err *err);
};
extern const struct pp_exec_ops pp_exec_ops;

#endif
