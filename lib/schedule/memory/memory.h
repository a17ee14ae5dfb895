/* SPDX-License-Identifier: MIT */
/* memory - the buffers of a row, their lifetimes and their offsets.
 *
 * The row is the same in every step, so every buffer gets an offset in one
 * arena before step 0. The simulator and the executor both call this, so the
 * simulator reports what the executor allocates. Lifetimes are inclusive
 * positions in the lowered row. An overlap pair counts as one position, because
 * its actions may run at once. */
#ifndef PP_SCHEDULE_MEMORY_MEMORY_H
#define PP_SCHEDULE_MEMORY_MEMORY_H

#include "schedule/ir/schedule.h"

enum pp_buffer_kind {
    PP_BUF_ACT_I,  /* saved by F; last read by I or B, or by W or B if the stage
                      has no input gradient. With slices, at least until the last
                      slice's F */
    PP_BUF_ACT_W,  /* saved by F, last read by W or B; by I if the stage is
                      frozen */
    PP_BUF_GRAD_W, /* what W needs of I, from I to W */
    PP_BUF_GRAD_LAYER, /* the same of one layer at a time, within an action that
                          does I and W, or I of a frozen stage */
    PP_BUF_GRAD_KEYS,  /* gradients of keys and values of a slice, which later
                          slices add: from the last slice's I or B to that of the
                          slice */
    PP_BUF_STATES, /* what a slice passes to the next, and the gradients that
                      come back: from F of the slice to its W or B */
    PP_BUF_OUTPUT, /* output of F, to its last SEND_F or local consumer */
    PP_BUF_INPUT,  /* from pp_posted_at of RECV_F to F; peer is the input stage.
                      With several inputs also what they are together, within
                      F: peer is the stage */
    PP_BUF_DOUTPUT,   /* likewise from RECV_B to the action of
                         pp_consumes_gradient; peer   is the output stage */
    PP_BUF_DINPUT,    /* gradient of one input, from I or B to SEND_B or to the
                         local producer's consumption; peer is the input stage */
    PP_BUF_WORKSPACE, /* what an action needs while it runs: one per rank for
                         the whole step;
                         stage, microbatch and slice are 0. Stage 1 is a second
                         one, for the forward of overlap pairs */
    PP_BUF_RING, /* sends in flight: channel_depth messages to one rank in one
                    direction, for the whole step. stage is the other rank, peer
                    is 0 for forward and 1 for backward, microbatch is the
                    position in the ring */
    PP_BUF_WEIGHTS, /* whole weights of a stage, from UNSHARD to RESHARD:
                       microbatch is the number of the UNSHARD of the stage
                       */
    PP_BUF_HOST, /* offloaded activations, in an arena of their own on the host,
                    from F to the first backward: PP_BUF_ACT_I in whole cache
                    lines, then PP_BUF_ACT_W */
    PP_BUF_TOLD, /* what F told the host, in the same arena: lives as
                    PP_BUF_ACT_W, which may leave */
    PP_N_BUFFER_KINDS
};

struct pp_buffer {
    enum pp_buffer_kind kind;
    /* peer is -1 if the kind has none; and 0 for PP_BUF_ACT_I and PP_BUF_ACT_W
     * from RELOAD on, as they come back to another place. */
    int stage, microbatch, slice, peer;
    size_t first, last;   /* positions in the row */
    size_t bytes, offset; /* offset is a multiple of 64 */
};

/* A stage reads of several inputs their sum; each where it is, as features of
 * encoders are; or one behind the other. */
enum pp_joint { PP_JOINT_SUM, PP_JOINT_PARTS, PP_JOINT_ROW };

/* The buffer sizes of one stage for the largest microbatch, or for a slice of
 * it. */
struct pp_stage_bytes {
    size_t act_i, act_w, grad_w, output;
    size_t grad_layer; /* the largest grad_w of a unit */
    size_t grad_keys;  /* 0 without slices */
    size_t states;     /* likewise */
    size_t told;       /* bytes of the host, of a stage with experts on a GPU */
    size_t workspace;  /* within an action; one per rank */
    size_t weights;    /* gathered by UNSHARD; 0: they are always whole */
    size_t input;      /* taken over a bridge; 0: what the inputs put out */
    enum pp_joint joint;
    bool routed; /* later slices read what experts kept, in act_w */
};

/* Adds a unit to its stage: its bytes by lifetime, in the order above, the
 * gradients of its keys, what a slice passes to the next, and what it needs
 * within an action. */
static inline void pp_stage_bytes_add(struct pp_stage_bytes *b,
                                      const size_t act[3], size_t grad_keys,
                                      size_t states, size_t workspace)
{
    b->act_i += act[0];
    b->act_w += act[1];
    b->grad_w += act[2];
    b->grad_layer = act[2] > b->grad_layer ? act[2] : b->grad_layer;
    b->grad_keys += grad_keys;
    b->states += states;
    b->workspace = workspace > b->workspace ? workspace : b->workspace;
}

/* Returns the sizes of a slice among the sizes of all stages. */
static inline const struct pp_stage_bytes *
pp_slice_bytes(const struct pp_graph *g, const struct pp_stage_bytes *sizes,
               int stage, int slice)
{
    return &sizes[stage * g->slices.n + slice];
}

struct pp_memory {
    struct pp_buffer *buffers; /* sorted for pp_memory_find; malloc'ed */
    size_t n, n_host;       /* buffers in the arena, then buffers on the host */
    size_t arena_bytes;     /* bytes to allocate, a little above the peak */
    size_t workspace_bytes; /* the part of arena_bytes for workspaces */
    size_t peak_bytes;      /* largest sum of live buffers, rings included */
    size_t peak_place;      /* position in the row that first reaches it */
    size_t message_bytes;   /* of messages there, in whole cache lines */
    size_t host_bytes;      /* of the arena on the host */
    size_t peak_by_kind[PP_N_BUFFER_KINDS]; /* each kind's own peak */
    int peak_slots;                         /* the same as pp_row_slots */
};

/* Fills the buffers of a row and the actions between which each is live, but
 * not their places, and no sums of bytes. sizes has an entry for every slice of
 * every stage (pp_slice_bytes). */
void pp_memory_buffers(const struct pp_schedule *s, int row,
                       const struct pp_stage_bytes *sizes, struct pp_memory *m);

/* Plans the buffers of a row: fills all of m. Fails with PP_EXIT_SYSTEM if the
 * sum of their bytes overflows. */
int pp_memory_plan(const struct pp_schedule *s, int row,
                   const struct pp_stage_bytes *sizes, struct pp_memory *m,
                   struct pp_err *err) PP_MUST_USE;

/* Returns the most slots of row number `row` that are open at once. F opens a
 * slot for (stage, microbatch, slice) if the stage has a backward; the action
 * that ends it (pp_ends_backward) closes it and still counts. OFFLOAD closes it
 * too, and RELOAD opens it again. Returns 1 for a
 * row that only runs forward. */
int pp_row_slots(const struct pp_schedule *s, int row);

/* Like pp_row_slots, in microbatches: a slice is its share of one. Sets *place
 * to the position of the F that first reaches the peak, or to the row's end if
 * there is none. */
double pp_row_peak(const struct pp_schedule *s, int row, size_t *place);

/* Returns the whole weights of a stage at a place of the row, from its UNSHARD
 * to its RESHARD, or NULL. */
const struct pp_buffer *pp_memory_weights(const struct pp_memory *m,
                                          const struct pp_row *row,
                                          size_t place, int stage);

/* Returns the buffer with that key, or NULL. Takes logarithmic time. */
const struct pp_buffer *pp_memory_find(const struct pp_memory *m,
                                       enum pp_buffer_kind kind, int stage,
                                       int microbatch, int slice, int peer);

/* Frees the buffers; accepts a zeroed struct. */
void pp_memory_finish(struct pp_memory *m);

/* The memory of one microbatch on one stage, in slots or bytes. A stage without
 * input gradient frees and takes nothing at I, so all of it is f_to_w. A frozen
 * stage keeps nothing beyond I, one without a backward nothing at all. A slot
 * is {0, 1, 0, 0}. */
struct pp_load {
    double f_to_i; /* from the start of F to the end of I (or B) */
    double f_to_w; /* from the start of F to the end of W (or B) */
    double i_to_w; /* from the start of I to the end of W */
    double in_b;   /* within B, or W of a stage without input gradient */
};

/* Returns the load of a stage with these buffers. */
static inline struct pp_load pp_load_of(const struct pp_stage_bytes *b,
                                        const struct pp_stage_node *n)
{
    double i = (double)b->act_i, w = (double)b->act_w;
    double layer = (double)b->grad_layer;
    if (!n->has_backward)
        return (struct pp_load){0, 0, 0, 0};
    if (n->frozen)
        return (struct pp_load){i + w, 0, layer, layer};
    return n->input_grad ? (struct pp_load){i, w, (double)b->grad_w, layer}
                         : (struct pp_load){0, i + w, 0, layer};
}

struct pp_memory_limit {
    const double *limit;        /* per row; NULL: no limit */
    const struct pp_load *load; /* per stage; read only if there is a limit */
    const double *copy; /* per stage: time of an OFFLOAD or RELOAD; NULL: there
                           are none. Read only by bounds */
};

/* Private to lib/schedule/memory. Fills offsets, arena_bytes and the peaks from
 * the lifetimes of the sorted buffers. */
int pp_memory_place(struct pp_memory *m, struct pp_err *err) PP_MUST_USE;

#endif
