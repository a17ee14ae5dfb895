/* SPDX-License-Identifier: MIT */
/* layer - the tables of unit kinds and parts, and helpers of the layer_*.c
 * files. */
#include "run/parts/layer.h"

#include <string.h>

#include "kernel_sizes.h"
#include "model/vision.h"
#include "run/parts/layer_impl.h"

const struct pp_layer_ops *pp_layer_ops(const struct pp_model *m,
                                        struct pp_unit_id u)
{
    static const struct pp_layer_ops *const ops[] = {
        [PP_UNIT_EMBED] = &pp_layer_embed,
        [PP_UNIT_LAYER] = &pp_layer_decoder,
        [PP_UNIT_NORM] = &pp_layer_norm,
        [PP_UNIT_HEAD] = &pp_layer_head,
        [PP_UNIT_PATCHES] = &pp_layer_patches,
        [PP_UNIT_PROJECTOR] = &pp_layer_projector,
    };
    if (u.kind == PP_UNIT_PATCHES && pp_vision_hears(pp_unit_encoder(m, u)))
        return &pp_layer_frames;
    return pp_unit_is_mtp(m, u) ? &pp_layer_mtp : ops[u.kind];
}

const struct pp_norm_ops *pp_norm_ops(enum pp_part_kind kind)
{
    static const struct pp_norm_ops *const ops[PP_N_PARTS] = {
        [PP_PART_RMS_NORM] = &pp_part_rms_norm,
        [PP_PART_LAYER_NORM] = &pp_part_layer_norm,
        [PP_PART_PLAIN_NORM] = &pp_part_layer_norm,
    };
    return ops[kind];
}

const struct pp_block_ops *pp_block_ops(enum pp_part_kind kind)
{
    static const struct pp_block_ops *const ops[PP_N_PARTS] = {
        [PP_PART_ATTENTION] = &pp_part_attention,
        [PP_PART_LATENT_ATTENTION] = &pp_part_latent_attention,
        [PP_PART_GATED_MLP] = &pp_part_mlp,
        [PP_PART_PLAIN_MLP] = &pp_part_mlp,
        [PP_PART_EXPERTS] = &pp_part_experts,
    };
    return ops[kind];
}

struct pp_backend pp_kernels_backend(const struct pp_kernels *k, bool is_host)
{
    return (struct pp_backend){.element_bytes = k->element_bytes,
                               .accumulator_bytes = k->accumulator_bytes,
                               .head_logits = k->head_logits,
                               .head_rows = k->head_rows,
                               .is_host = is_host};
}

void pp_layer_saved(const struct pp_layer *l, size_t tokens,
                    enum pp_saved_when when, const struct pp_layer_blocks *b,
                    void *at[PP_MAX_SAVED])
{
    struct pp_saved s[PP_MAX_SAVED];
    size_t n = pp_unit_saved(l->env->model, l->unit, l->recompute, when, s);
    size_t rows = pp_saved_rows(pp_env_is_host(l->env),
                                tokens / pp_model_tp(l->env->model));
    for (size_t i = 0; i < n; i++) {
        void *block = b->block[s[i].block];
        size_t statistics = s[i].statistics * rows;
        size_t elements = s[i].offset * rows - statistics;
        at[i] = block ? pp_layer_statistic_at(
                            l, pp_layer_at(l, block, elements), statistics)
                      : NULL;
    }
}

void pp_layer_saved_before(const struct pp_layer *l,
                           const struct pp_slice_blocks *slice,
                           const struct pp_layer_blocks *b,
                           void *at[PP_MAX_SAVED])
{
    struct pp_layer_blocks of;
    size_t room = pp_layer_room(slice->tokens, slice->room);
    size_t rows = pp_saved_rows(pp_env_is_host(l->env),
                                room / pp_model_tp(l->env->model));
    for (int k = 0; k < PP_N_UNIT_BLOCKS; k++) {
        void *base = slice->block[k];
        of.block[k] = base ? (char *)base + b->offset[k] * rows : NULL;
    }
    pp_layer_saved(l, room, PP_IN_BACKWARD, &of, at);
}

int pp_layer_keep(const struct pp_layer *l, const struct pp_microbatch *mb,
                  void *kept, const void *x, struct pp_err *err)
{
    size_t C = l->env->model->hidden;
    if (x != kept)
        PP_LAYER_RUN(l->env->kernels->copy(kept, x, pp_layer_rows(l, mb), C, C,
                                           C, l->env->stream));
    return 0;
}

int pp_layer_fail(const struct pp_layer *l, int code, struct pp_err *err)
{
    char name[PP_FQN_TEXT];
    pp_model_fqn(l->env->model, l->unit, name);
    return pp_fail(err, PP_EXIT_SYSTEM, "%s: a kernel of %s failed: code %d",
                   name, l->env->kernels->name, code);
}

int pp_layer_put(const struct pp_layer *l, void *to, const void *from,
                 size_t bytes, struct pp_err *err)
{
    const struct pp_device_ops *ops = pp_device_ops(l->env->device);
    if (!ops->is_host)
        return ops->put(l->env->device, to, from, bytes, err);
    memcpy(to, from, bytes);
    return 0;
}
