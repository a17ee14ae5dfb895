/* SPDX-License-Identifier: MIT */
/* recorder - what one rank's time goes to: when each action and each part of a
 * step began and ended, and how long each layer took.
 *
 * Of the latest steps, in memory that is there before the first one: recording
 * is a stamp (timestamps.h) at the ends of actions and layers, and nothing is
 * allocated, sent or written. Messages and synchronisation are seen by a player
 * that stands before the executor's; who computes an action says so himself,
 * since two may be under way at once. */
#ifndef PP_RUN_RECORD_RECORDER_H
#define PP_RUN_RECORD_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "run/timing/timestamps.h"
#include "run/parts/layer.h"
#include "schedule/ir/play.h"

/* Ends of a step's parts. */
enum pp_mark {
    PP_MARK_START,
    PP_MARK_ZEROED,  /* gradients are zero: the schedule begins */
    PP_MARK_WALKED,  /* the schedule is through */
    PP_MARK_TOLD,    /* norms are known to all ranks */
    PP_MARK_UPDATED, /* so are the weights: the step is done */
    PP_N_MARKS
};

/* What to keep. */
struct pp_recording {
    int n_steps;  /* the latest of the run */
    int n_passes; /* of each step */
    bool layers;  /* also how long each layer takes */
};

struct pp_recorder {
    struct pp_recording kept;
    const struct pp_schedule *schedule; /* borrowed */
    size_t n;                           /* actions of the row */
    size_t parts;                       /* microbatches x slices */
    struct pp_device *device;           /* borrowed: the rank's */
    struct pp_timestamps
        timestamps;     /* of the step under way: marks, spans, and with
                   layers where they begin and where they end */
    double error;       /* most seconds that times are off the clock */
    double (*spans)[2]; /* (n_steps, n_passes, n) start and end */
    double (*marks)[PP_N_MARKS]; /* (n_steps) */
    int64_t n_done;              /* steps begun */

    /* With layers: seconds is (n_steps, n_passes, parts, n_layers,
     * PP_N_LAYER_TIMES), -1 where there is none; sizes (n_steps, n_passes,
     * parts) holds tokens and attended pairs. */
    size_t n_layers;     /* of the rank's stages */
    size_t *first_layer; /* by stage: its place among them */
    double *seconds, (*sizes)[2];
    size_t *from; /* (n_passes, parts, n_layers, PP_N_LAYER_TIMES) of the step
                     under way: the stamps at which these began */
    struct pp_layer_times layer_times;

    /* The pass under way. */
    size_t pass;
    const struct pp_player *player;
    void *ctx;
    const size_t *pc;
};

/* n_layers: by stage, 0 where the stage is another rank's. d: NULL is the
 * CPU. */
int pp_recorder_init(struct pp_recorder *r, const struct pp_schedule *s,
                     int rank, const size_t *n_layers,
                     const struct pp_recording *kept, struct pp_device *d,
                     struct pp_err *err) PP_MUST_USE;
/* Before the device is closed. Accepts a zeroed struct. */
void pp_recorder_finish(struct pp_recorder *r);

/* A step begins, whose marks are then set one by one; when it has ended and the
 * device is done, it is read. All three accept a recorder that keeps nothing.
 */
void pp_recorder_step(struct pp_recorder *r);
void pp_recorder_mark(struct pp_recorder *r, enum pp_mark mark);
int pp_recorder_read(struct pp_recorder *r, struct pp_err *err) PP_MUST_USE;

/* A pass of the step begins: what pp_recording_player is then handed r for goes
 * on to player and ctx, *pc being the action that it is at. */
void pp_recorder_pass(struct pp_recorder *r, int pass,
                      const struct pp_player *player, void *ctx,
                      const size_t *pc);
extern const struct pp_player pp_recording_player;

/* The pass has ended: layers that run now are nobody's. */
void pp_recorder_passed(struct pp_recorder *r);

/* The compute action at this place of the row begins and ends, with what on has
 * been given so far: the device or another handle of it. */
void pp_recorder_begin(struct pp_recorder *r, size_t place,
                       struct pp_device *on);
void pp_recorder_end(struct pp_recorder *r, size_t place, struct pp_device *on);

/* Its layers begin, on the device itself: a is the action, on mb. */
void pp_recorder_layers(struct pp_recorder *r, size_t place, struct pp_action a,
                        const struct pp_microbatch *mb);

/* Steps that are kept, and where in n_steps the k-th of them is. */
int pp_recorder_n_kept(const struct pp_recorder *r);
int pp_recorder_place(const struct pp_recorder *r, int k);

#endif
