/* SPDX-License-Identifier: MIT */
/* recorder - the times of one rank: start and end of each action and of each
 * part of a step, and the time of each layer.
 *
 * It keeps the last steps, in memory allocated before the first one. Recording
 * takes a timestamp (timestamps.h) at the ends of actions and layers; it
 * allocates, sends and writes nothing. A player in front of the executor's
 * records sends. The executor itself records synchronisation, compute
 * actions, since two may run at once, and receives: the time of a RECV is the
 * wait for its message, before the action that uses it. */
#ifndef PP_RUN_RECORD_RECORDER_H
#define PP_RUN_RECORD_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "run/timing/timestamps.h"
#include "run/parts/layer.h"
#include "schedule/ir/play.h"

/* The ends of the parts of a step. */
enum pp_mark {
    PP_MARK_START,
    PP_MARK_ZEROED,    /* sums are 0; the schedule starts */
    PP_MARK_PLAYED,    /* the schedule is done */
    PP_MARK_EXCHANGED, /* all ranks know the norms */
    PP_MARK_UPDATED,   /* weights are updated; the step is done */
    PP_N_MARKS
};

/* The settings of a recorder. */
struct pp_recording {
    int n_steps;  /* keep the last ones of the run */
    int n_passes; /* passes of a step */
    bool layers;  /* record the time of each layer too */
    int share;    /* tensor-parallel ranks that divide the work of a token */
};

/* The work that a slice of a microbatch gives a rank. */
struct pp_part_size {
    double tokens, pairs; /* attended pairs */
    /* The rows of each encoder for its images, the features that it makes of
     * them, and the pairs of rows of each image. */
    struct {
        size_t rows, features;
        double pairs;
    } images[PP_MAX_ENCODERS];
};

struct pp_recorder {
    struct pp_recording kept;
    const struct pp_schedule *schedule; /* borrowed */
    size_t n;                           /* actions of the row */
    size_t parts;                       /* microbatches x slices */
    struct pp_device *device;           /* the rank's, borrowed */
    struct pp_timestamps timestamps; /* times of the current step: marks, spans,
                                and the starts and ends of layers, if wanted */
    double error;                    /* largest error of a time, in seconds */
    double (*spans)[2];              /* (n_steps, n_passes, n) start and end */
    double (*marks)[PP_N_MARKS];     /* (n_steps) */
    int64_t n_done;                  /* steps begun */

    /* With layers: seconds is (n_steps, n_passes, parts, n_layers,
     * PP_N_LAYER_TIMES), -1 if nothing ran. sizes is (n_steps, n_passes,
     * parts). */
    size_t n_layers;     /* layers of all stages of the rank */
    size_t *first_layer; /* by stage: index of its first layer */
    double *seconds;
    struct pp_part_size *sizes;
    size_t *from; /* (n_passes, parts, n_layers, PP_N_LAYER_TIMES) of the
                     current step: timestamps of their starts */
    struct pp_layer_times layer_times;

    /* The current pass. */
    size_t pass;
    const struct pp_player *player;
    void *ctx;
    const size_t *pc;
};

/* n_layers: by stage, 0 for a stage of another rank. d: NULL is the CPU. */
int pp_recorder_init(struct pp_recorder *r, const struct pp_schedule *s,
                     int rank, const size_t *n_layers,
                     const struct pp_recording *kept, struct pp_device *d,
                     struct pp_err *err) PP_MUST_USE;
/* Call it before the device is closed. Accepts a zeroed struct. */
void pp_recorder_finish(struct pp_recorder *r);

/* Starts a step; sets a mark in it; reads its times when the step has ended and
 * the device is idle. All three accept a recorder that keeps nothing. */
void pp_recorder_step(struct pp_recorder *r);
void pp_recorder_mark(struct pp_recorder *r, enum pp_mark mark);
int pp_recorder_read(struct pp_recorder *r, struct pp_err *err) PP_MUST_USE;

/* Starts a pass of the step. pp_recording_player, with r as its context, calls
 * player with ctx. *pc is the place of the current action. */
void pp_recorder_pass(struct pp_recorder *r, int pass,
                      const struct pp_player *player, void *ctx,
                      const size_t *pc);
extern const struct pp_player pp_recording_player;

/* Ends the pass: layers that run later are not recorded. */
void pp_recorder_passed(struct pp_recorder *r);

/* Marks the start and the end of the action at this place of the row, but a
 * SEND, after the work queued so far on `on`: the device or another handle
 * of it. */
void pp_recorder_begin(struct pp_recorder *r, size_t place,
                       struct pp_device *on);
void pp_recorder_end(struct pp_recorder *r, size_t place, struct pp_device *on);

/* Starts to record the layers of action a on *host, on the device itself. */
void pp_recorder_layers(struct pp_recorder *r, size_t place, struct pp_action a,
                        const struct pp_host_microbatch *host);

/* Returns the number of steps kept; returns the index of the k-th of them. */
int pp_recorder_n_kept(const struct pp_recorder *r);
int pp_recorder_place(const struct pp_recorder *r, int k);

#endif
