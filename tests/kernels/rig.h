/* SPDX-License-Identifier: MIT */
/* rig - one layer on the bench: parameters, a packed microbatch, blocks. */
#ifndef PP_TESTS_RIG_H
#define PP_TESTS_RIG_H

#include "run/parts/layer.h"
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
    struct pp_layer l;
    const struct pp_layer_ops *ops;
    struct pp_microbatch mb;
    struct values w, g; /* all parameters, slots ascending */
    struct values x, y, dx, dy, blocks[PP_N_UNIT_BLOCKS], scratch;
    struct values cos, sin;
    double loss, logps[RIG_MAX_TOKENS];
    int32_t cu[RIG_MAX_SEQUENCES + 1], cu_padded[RIG_MAX_SEQUENCES + 1];
    int32_t positions[RIG_MAX_TOKENS], ids[RIG_MAX_TOKENS];
    int32_t rows[RIG_MAX_TOKENS], targets[RIG_MAX_TOKENS];
};

/* A small model; the caller changes flags. Heads do not fill hidden. */
struct pp_model rig_model(void);

/* Everything allocated `shift` elements away from malloc's alignment,
 * parameters and inputs drawn, outputs and blocks not-a-number. */
void rig_init(struct rig *r, const struct pp_model *m, enum pp_unit_kind kind,
              const struct pp_kernels *k, const struct packing *p,
              size_t shift);
/* The same for a layer that recomputes. */
void rig_init_mode(struct rig *r, const struct pp_model *m,
                   enum pp_unit_kind kind, enum pp_recompute mode,
                   const struct pp_kernels *k, const struct packing *p,
                   size_t shift);
void rig_finish(struct rig *r);

/* Forward; then the scalar that gradients are of: the head's loss, or
 * sum y dy over all rows. */
double rig_forward(struct rig *r);
void rig_backward(struct rig *r); /* I, then W into zeroed g */
/* The same at once, for a layer that can. */
void rig_backward_together(struct rig *r);

/* No kernel wrote behind its output. */
bool rig_guards(const struct rig *r);

#endif
