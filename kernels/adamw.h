/* SPDX-License-Identifier: MIT */
/* adamw - one step of AdamW (Loshchilov and Hutter 2019) or of plain SGD, with
 * PyTorch's order of operations.
 *
 *   w, m, v   (n) updated in place       g (n) gradient, read
 *   master    (n) or NULL. Weights of fewer bits than the accumulated values
 *             have one: the step updates it, and w becomes its rounding.
 *             With NULL the step updates w itself.
 *
 * The step multiplies g by g_scale first (clipping). AdamW then computes
 *   w *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   w -= lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps),  bc = 1 - b^step
 * and SGD
 *   w -= lr (g + wd w) */
#ifndef PP_KERNELS_ADAMW_H
#define PP_KERNELS_ADAMW_H

#include <stddef.h>

struct pp_adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    double bias1, bias2; /* 1 - beta^step */
    double g_scale;
};

#define PP_ADAMW(name)                                                \
    int(name)(void *w, void *master, void *m, void *v, const void *g, \
              size_t n, const struct pp_adamw_step *s, void *stream)
#define PP_SGD(name)                                          \
    int(name)(void *w, void *master, const void *g, size_t n, \
              const struct pp_adamw_step *s, void *stream)
typedef PP_ADAMW(pp_adamw_fn);
typedef PP_SGD(pp_sgd_fn);

#endif
