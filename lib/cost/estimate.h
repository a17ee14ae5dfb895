/* SPDX-License-Identifier: MIT */
/* estimate - seconds of a model's units on a machine, without a measurement.
 * Pure.
 *
 * A product of an (m, k) and a (k, n) matrix reaches the share
 *   efficiency x m / (m + 200) x n / (n + 200) x k / (k + 200)
 * of the peak, and starts within 4 us. That is within 20 % of published
 * products of 1024 to 16384 on A100 (bf16) and H100 (fp8; Azure AI benchmarking
 * guide). Attention of a rank with r rows, tokens times heads, reaches
 *   efficiency x r / (r + 70000) x s / (s + 200)
 * for sequences of s tokens, and 0.8 of that in its input gradient. On a B200
 * that is .10, .17, .35 and .47 for 4, 8, 32 and 128 heads of 4096 tokens,
 * which SimuMax measured as .08, .16, .37 and .49. Elementwise work takes the
 * time of the memory. The trainer decides which exchanges tensor-parallel,
 * context-parallel and expert-parallel ranks make. Only the steps of a ring
 * hide an exchange of pprun. */
#ifndef PP_COST_ESTIMATE_H
#define PP_COST_ESTIMATE_H

#include "cost/machine.h"
#include "cost/trainer.h"
#include "model/cost.h"
#include "model/layout.h"
#include "model/profile.h"

/* The problem. All pointers are borrowed. */
struct pp_estimate {
    const struct pp_shard *shard;
    const struct pp_precision *precision;
    const struct pp_machine *machine;
    const struct pp_trainer *trainer; /* NULL: pprun */
    double flops; /* a rate that all products reach; 0: by the machine */
    struct pp_layout layout;
    struct pp_default_microbatch microbatch;
    unsigned free; /* bits of groups (layout.h) whose exchanges take no time */
};

/* Returns the share of a peak that a product reaches, of a machine whose
 * largest products reach `efficiency`. */
double pp_product_efficiency(double efficiency, double m, double n, double k);

/* Sets the seconds of unit i per token of a whole microbatch and per attended
 * pair. Its times without tokens are spread over the tokens of the microbatch.
 */
void pp_estimate_unit(const struct pp_estimate *x, size_t i,
                      struct pp_unit_seconds *s);

/* Returns the seconds of the update for each parameter that a rank updates. */
double pp_estimate_update(const struct pp_estimate *x);

#endif
