/* SPDX-License-Identifier: MIT */
/* memory - which buffers a rank's list needs, from when to when, and where.
 *
 * The list is the same every step, so every buffer gets an offset in one arena
 * before step 0. The simulator reports what the executor allocates because
 * both call this. Lifetimes are positions in the rank's lowered row, ends
 * included; an overlap pair counts as one, because its actions may run at
 * once. */
#ifndef PP_SCHEDULE_MEMORY_MEMORY_H
#define PP_SCHEDULE_MEMORY_MEMORY_H

#include "schedule/ir/schedule.h"

enum pp_buffer_kind {
    PP_BUF_ACT_I,     /* saved by F, read last by I or B (by W or B where the
                         stage has no input gradient), of a slice at least by
                         the last slice's F */
    PP_BUF_ACT_W,     /* saved by F, read last by W or B */
    PP_BUF_GRAD_W,    /* output gradients kept from I to W; within B alone too.
                         A slice's from the last slice's I or B on */
    PP_BUF_OUTPUT,    /* F's result: to its last SEND_F or local consumer's F */
    PP_BUF_INPUT,     /* from RECV_F to F; peer is the input stage */
    PP_BUF_DOUTPUT,   /* from RECV_B to pp_consumes_gradient's action; peer is
                         the output stage */
    PP_BUF_DINPUT,    /* gradient of one input: from I or B to SEND_B or to the
                         local producer's consumption; peer is the input stage */
    PP_BUF_WORKSPACE, /* what F, I and B use and do not keep: one for the rank,
                       the whole step; stage, microbatch and slice are 0. Stage
                       1 is a second, for the forward of overlap pairs */
    PP_BUF_RING,      /* sends in flight: channel_depth messages to one rank in
                         one direction; the whole step. stage: the other rank,
                         peer: 0 forward, 1 backward, microbatch: place in it */
    PP_N_BUFFER_KINDS
};

struct pp_buffer {
    enum pp_buffer_kind kind;
    int stage, microbatch, slice, peer; /* peer -1 where the kind has none */
    size_t first, last;                 /* positions in the row */
    size_t bytes, offset;               /* offset is a multiple of 64 */
};

/* Bytes of one stage's buffers for the largest microbatch, or slice of it. */
struct pp_stage_bytes {
    size_t act_i, act_w, grad_w, output;
    size_t
        workspace; /* within F, I or B; the rank has one for all its stages */
};

struct pp_memory {
    struct pp_buffer *buffers; /* sorted for pp_memory_find; malloc'ed */
    size_t n;
    size_t arena_bytes; /* what to allocate: at most a little above the peak */
    size_t peak_bytes;  /* largest sum of live buffers, rings included */
    size_t peak_place;  /* in the row: where it is first reached */
    size_t peak_by_kind[PP_N_BUFFER_KINDS]; /* each kind's own peak */
    int peak_slots;                         /* as pp_row_slots */
};

/* Plans rank's buffers. sizes has one entry per stage. */
int pp_memory_plan(const struct pp_schedule *s, int row,
                   const struct pp_stage_bytes *sizes, struct pp_memory *m,
                   struct pp_err *err) PP_MUST_USE;

/* Most (stage, microbatch, slice) of the row alive at once: F opens a slot, W
 * or B closes it and still counts. 1 for a row that only runs forward. */
int pp_row_slots(const struct pp_row *list);

/* The same, and the place in the row of the F that first makes it so many; the
 * row's end where there is none. */
int pp_row_peak(const struct pp_row *list, size_t *place);

/* The buffer with that key, or NULL. Logarithmic. */
const struct pp_buffer *pp_memory_find(const struct pp_memory *m,
                                       enum pp_buffer_kind kind, int stage,
                                       int microbatch, int slice, int peer);

/* Frees; accepts a zeroed struct. */
void pp_memory_finish(struct pp_memory *m);

/* What one microbatch on one stage holds, in slots or bytes. A stage without
 * input gradient frees and takes nothing at I: all is f_to_w. A slot is
 * {0, 1, 0}. */
struct pp_load {
    double f_to_i; /* taken when F starts, freed when I (or B) has ended */
    double f_to_w; /* taken when F starts, freed when W (or B) has ended */
    double i_to_w; /* taken when I starts, freed when W has ended */
};

/* Of a stage with these buffers. */
static inline struct pp_load pp_load_of(const struct pp_stage_bytes *b,
                                        bool input_grad)
{
    double i = (double)b->act_i, w = (double)b->act_w;
    return input_grad ? (struct pp_load){i, w, (double)b->grad_w}
                      : (struct pp_load){0, i + w, 0};
}

struct pp_memory_limit {
    const double *limit;        /* per rank; NULL: no limit */
    const struct pp_load *load; /* per stage; read where there is a limit */
};

/* Private to lib/schedule/memory: fills offsets, arena_bytes and the peaks from
 * the lifetimes of the buffers, which are sorted. */
int pp_memory_place(struct pp_memory *m, struct pp_err *err) PP_MUST_USE;

#endif
