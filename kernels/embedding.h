/* SPDX-License-Identifier: MIT */
/* embedding - y[t] = w[ids[t]]
 *
 *   ids (N), each below V: the caller checks them before step 0
 *   w   (V, C)     y (N, C) written     dw (V, C) accumulated, rows ascending
 * A negative id is padding: y is 0, and dw does not change.
 *
 * scatter - y[rows[t]] = x[t], with distinct rows; other rows of y do not
 * change */
#ifndef PP_KERNELS_EMBEDDING_H
#define PP_KERNELS_EMBEDDING_H

#include <stddef.h>
#include <stdint.h>

#define PP_EMBEDDING_FWD(name)                                                \
    int(name)(void *y, const int32_t *ids, const void *w, size_t N, size_t C, \
              void *stream)
#define PP_EMBEDDING_BWD_WEIGHT(name)                                 \
    int(name)(void *dw, const void *dy, const int32_t *ids, size_t N, \
              size_t C, void *stream)
#define PP_SCATTER(name)                                                       \
    int(name)(void *y, const void *x, const int32_t *rows, size_t N, size_t C, \
              void *stream)
typedef PP_EMBEDDING_FWD(pp_embedding_fwd_fn);
typedef PP_EMBEDDING_BWD_WEIGHT(pp_embedding_bwd_weight_fn);
typedef PP_SCATTER(pp_scatter_fn);

#endif
