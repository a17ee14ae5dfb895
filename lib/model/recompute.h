/* SPDX-License-Identifier: MIT */
/* recompute - the words of --recompute, and what making again costs.
 *
 * I makes again, once, what F did not keep; W makes nothing again. The modes
 * are those of V. Korthikanti et al., "Reducing Activation Recomputation in
 * Large Transformer Models", MLSys 2023, with an attention that keeps no
 * scores anyway: selective makes attention's output again, and what costs no
 * product (Megatron-LM's core_attn, layernorm and the activation); full makes
 * all again but the product behind which nothing is read any more. */
#ifndef PP_MODEL_RECOMPUTE_H
#define PP_MODEL_RECOMPUTE_H

#include "model/model.h"

/* "none", "selective", "full"; NULL ends them. */
extern const char *const pp_recompute_names[];

/* False where there is no such mode. */
bool pp_recompute_find(const char *name, enum pp_recompute *out);

/* Operations that I does again for the unit, as pp_unit_fwd_flops counts
 * them; all 0 for what is not a decoder layer. */
struct pp_flops pp_unit_recompute_flops(const struct pp_model *m,
                                        struct pp_unit_id u,
                                        enum pp_recompute r);

#endif
