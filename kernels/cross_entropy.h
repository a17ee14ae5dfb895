/* SPDX-License-Identifier: MIT */
/* cross_entropy - softmax cross-entropy of a block of logits.
 *
 *   logits   (N, V)
 *   targets  (N)     each in [0, V)
 *   fwd      lse (N) written, logp (N) = logits[t, target] - lse, written
 *   bwd      replaces logits with the gradient of sum(scale * -logp):
 *            (exp(logits - lse) - onehot(target)) * scale
 * The caller computes the logits block by block, so that no buffer holds
 * [T,V]. */
#ifndef PP_KERNELS_CROSS_ENTROPY_H
#define PP_KERNELS_CROSS_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

#define PP_CROSS_ENTROPY_FWD(name)                       \
    int(name)(void *lse, void *logp, const void *logits, \
              const int32_t *targets, size_t N, size_t V, void *stream)
#define PP_CROSS_ENTROPY_BWD(name)                                             \
    int(name)(void *logits, const void *lse, const int32_t *targets, size_t N, \
              size_t V, double scale, void *stream)
typedef PP_CROSS_ENTROPY_FWD(pp_cross_entropy_fwd_fn);
typedef PP_CROSS_ENTROPY_BWD(pp_cross_entropy_bwd_fn);

#endif
