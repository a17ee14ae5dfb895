/* SPDX-License-Identifier: MIT */
/* rig - one layer to test, with its parameters, a packed microbatch and saved
 * blocks. */
#ifndef PP_TESTS_RIG_H
#define PP_TESTS_RIG_H

#include "run/parts/call.h"
#include "values.h"

#define RIG_MAX_TOKENS 6400
#define RIG_MAX_SEQUENCES 8

/* Real and padded rows of each sequence. */
struct packing {
    size_t n;
    int real[RIG_MAX_SEQUENCES], padded[RIG_MAX_SEQUENCES];
};

struct rig {
    struct pp_model m;
    struct pp_env env, others[PP_N_ROWS]; /* of an encoder's layers, for
                                                  its projector */
    struct pp_model tower;
    struct pp_layer l;
    struct pp_microbatch mb;
    struct pp_host_microbatch host; /* the same, since a call */
    struct values w, g;             /* all parameters, slots ascending */
    struct values x, y, dx, dy, blocks[PP_N_UNIT_BLOCKS], scratch;
    struct values cos, sin;
    double loss, logps[RIG_MAX_TOKENS];
    int32_t cu[RIG_MAX_SEQUENCES + 1], cu_padded[RIG_MAX_SEQUENCES + 1];
    int32_t positions[RIG_MAX_TOKENS], ids[RIG_MAX_TOKENS];
    int32_t axes[PP_ROPE_AXES * RIG_MAX_TOKENS];
    int32_t rows[RIG_MAX_TOKENS], targets[RIG_MAX_TOKENS];
    int32_t features[RIG_MAX_TOKENS], sources[RIG_MAX_TOKENS];
    int32_t cu_windows[RIG_MAX_TOKENS];
    int32_t n_frames[RIG_MAX_SEQUENCES], kinds[RIG_MAX_TOKENS];
    float *pixels;                          /* of patches, likewise */
    const float *images[RIG_MAX_SEQUENCES]; /* those of each */
};

/* Returns a small model, whose flags the caller may change. The heads together
 * are narrower than hidden. */
struct pp_model rig_model(void);

/* Notes which rows of audio begin a run, and which have half of their frames.
 * The caller may have changed n_frames. */
void rig_list_kinds(struct rig *r);

/* Returns whether a unit has no input gradient, and the width of its input. */
bool rig_is_first(enum pp_unit_kind kind);
size_t rig_in_width(const struct pp_model *m, enum pp_unit_kind kind);

/* Makes a rig. All arrays begin `shift` elements behind an aligned address.
 * Parameters and inputs are random, outputs and blocks are NaN. */
void rig_init(struct rig *r, const struct pp_model *m, enum pp_unit_kind kind,
              const struct pp_kernels *k, const struct packing *p,
              size_t shift);
/* Makes a rig for a layer that recomputes, or of another shard. */
void rig_init_mode(struct rig *r, const struct pp_shard *s,
                   enum pp_unit_kind kind, enum pp_recompute mode,
                   const struct pp_kernels *k, const struct packing *p,
                   size_t shift);
void rig_finish(struct rig *r);

/* Returns the call of the layer in F, or in I, W and B. */
struct pp_call rig_call(struct rig *r, enum pp_saved_when when,
                        struct pp_err *err);

/* Runs forward. Returns the scalar whose gradients backward computes: the
 * head's loss, or the sum of y dy over all rows. */
double rig_forward(struct rig *r);
/* Adds the losses of its router to the scalar, if mb has them. */
double rig_scalar(struct rig *r);
/* Computes central differences of rig_scalar for every element of at but fixed
 * positions. */
void rig_differences(struct rig *r, struct values *at, struct values *out);
void rig_backward(struct rig *r); /* I, then W into zeroed g */
/* Runs I and W at once, for a layer that can. */
void rig_backward_together(struct rig *r);

/* Returns whether no kernel wrote behind its output. */
bool rig_guards(const struct rig *r);

#endif
