/* SPDX-License-Identifier: MIT */
/* trainer_bytes - the functions of the rows of pp_trainers; private to
 * lib/cost.
 */
#ifndef PP_COST_TRAINER_BYTES_H
#define PP_COST_TRAINER_BYTES_H

#include "model/unit_bytes.h"

struct pp_unit_rates pp_megatron_rates(const struct pp_shard *s,
                                       struct pp_unit_id u, enum pp_recompute r,
                                       const struct pp_backend *b);
struct pp_state_bytes pp_megatron_state(const struct pp_mesh *x,
                                        const struct pp_model *m,
                                        struct pp_unit_id u,
                                        const struct pp_precision *p);
double pp_megatron_fixed(const struct pp_mesh *x, const struct pp_model *m,
                         size_t first, size_t end);

struct pp_unit_rates pp_torchtitan_rates(const struct pp_shard *s,
                                         struct pp_unit_id u,
                                         enum pp_recompute r,
                                         const struct pp_backend *b);
struct pp_state_bytes pp_torchtitan_state(const struct pp_mesh *x,
                                          const struct pp_model *m,
                                          struct pp_unit_id u,
                                          const struct pp_precision *p);
double pp_torch_fixed(const struct pp_mesh *x, const struct pp_model *m,
                      size_t first, size_t end);

struct pp_unit_rates pp_deepspeed_rates(const struct pp_shard *s,
                                        struct pp_unit_id u,
                                        enum pp_recompute r,
                                        const struct pp_backend *b);

struct pp_state_bytes pp_own_state(const struct pp_mesh *x,
                                   const struct pp_model *m,
                                   struct pp_unit_id u,
                                   const struct pp_precision *p);
double pp_own_fixed(const struct pp_mesh *x, const struct pp_model *m,
                    size_t first, size_t end);

#endif
