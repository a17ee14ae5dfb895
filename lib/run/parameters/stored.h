/* SPDX-License-Identifier: MIT */
/* stored - a tensor of weights as a file has it: in a floating type, or in
 * blocks that share a scale, as released weights may be.
 *
 *   FP8    values (rows, cols) of type F8_E4M3, and X_scale_inv with a factor
 *          for each block of 128 x 128 (DeepSeek-AI, "DeepSeek-V3 Technical
 *          Report", 2024, section 3.3)
 *   MXFP4  X_blocks (experts, rows, cols / 32, 16) with two values of type E2M1
 *          in each byte, the low bits first, and X_scales (experts, rows,
 *          cols / 32), exponents of 2 plus 127 (Open Compute Project,
 *          "Microscaling Formats Specification", 2023). Files have matrices of
 *          other types as the transpose. */
#ifndef PP_RUN_PARAMETERS_STORED_H
#define PP_RUN_PARAMETERS_STORED_H

#include "data/tensors/safetensors.h"
#include "model/model.h"

enum pp_storage { PP_STORED_PLAIN, PP_STORED_FP8, PP_STORED_MXFP4 };

struct pp_stored {
    enum pp_storage as;
    const struct pp_tensor *values, *scales; /* borrowed */
};

/* Finds a tensor of the model, whose name may lack what is optional. If the
 * model is tied, the embedding may have the name of the head; a module that is
 * trained beside adapters may have its name in the base. m may be NULL: then
 * names have no second form. Returns false if there is none. */
bool pp_stored_find(struct pp_stored *out, const struct pp_tensors *t,
                    const struct pp_model *m, const char *name);

/* Reports whether t need not have a tensor of this name: one of a generator's
 * connector, if t has none of it. */
bool pp_stored_may_lack(const struct pp_tensors *t, const char *name);

/* Checks shapes and types, but not names. */
int pp_stored_check(const struct pp_tensor_info *p, const struct pp_stored *x,
                    struct pp_err *err) PP_MUST_USE;

/* Reports whether it is the transpose of the tensor. */
static inline bool pp_stored_transposed(const struct pp_tensor_info *p,
                                        const struct pp_stored *x)
{
    return p->transposed && x->as != PP_STORED_MXFP4;
}

/* Reads n elements from element first on, as floats or as doubles, by
 * value_bytes. x has passed the check. */
int pp_stored_read(const struct pp_stored *x, uint64_t first, uint64_t n,
                   size_t value_bytes, void *out,
                   struct pp_err *err) PP_MUST_USE;

/* Returns the bytes of files that one of tp ranks reads in place for a unit of
 * a model that maps its base. A tied head counts its embedding. */
size_t pp_stored_mapped(const struct pp_tensors *t, const struct pp_model *m,
                        struct pp_unit_id u, size_t tp);

#endif
