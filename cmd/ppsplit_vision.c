/* SPDX-License-Identifier: MIT */
/* An encoder of images in front of a language model: what its images are, and
 * which methods know of it. */
#include <inttypes.h>

#include "plan/vision.h"
#include "ppsplit.h"

/* Methods that count decoder layers would leave the encoder out. */
static int check_method(struct split_job *j)
{
    switch (j->method) {
    case SPLIT_BALANCED:
    case SPLIT_FQNS:
    case SPLIT_PARAMETERS:
    case SPLIT_TYPE:
    case SPLIT_UNIFORM_UNITS:
        break;
    default:
        return tool_usage(&j->t,
                          "--method: '%s' counts the layers of one model, and "
                          "knows of no encoder",
                          split_method_names[j->method]);
    }
    if (j->export == SPLIT_EXPORT_MEGATRON)
        return tool_usage(&j->t, "--export: a layout of Megatron-LM cannot say "
                                 "where an encoder's layers are");
    if (j->export == SPLIT_EXPORT_TORCHTITAN ||
        j->export == SPLIT_EXPORT_TORCHTITAN_OUTPUT)
        return tool_usage(&j->t, "--export: torchtitan has no names for an "
                                 "encoder's layers; take fqns");
    return 0;
}

static int set_patches(struct split_job *j)
{
    struct pp_vision *v = &j->model.vision;
    size_t patches = (size_t)j->image_patches;
    if (j->image_patches == 0)
        return 0;
    if (v->fixed_size && patches != v->patches)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--image-patches: images of '%s' have %zu patches, not "
                       "'%zu'",
                       j->source, v->patches, patches);
    if (patches % v->merge)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--image-patches: '%zu' is not a multiple of the %zu "
                       "that become one token",
                       patches, v->merge);
    v->patches = patches;
    return 0;
}

int split_set_images(struct split_job *j)
{
    struct pp_vision *v = &j->model.vision;
    if (v->kind == PP_VISION_NONE) {
        if (j->n_images == 0 && j->image_patches == 0)
            return 0;
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: '%s' has no encoder of images",
                       j->n_images ? "--images" : "--image-patches", j->source);
    }
    if (check_method(j) || set_patches(j))
        return -1;
    size_t tokens = pp_vision_out_tokens(v);
    v->n_images = j->n_images ? (size_t)j->n_images : 1;
    v->seq_len = (size_t)j->seq_len;
    if (v->n_images > v->seq_len / tokens)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--images: %zu of %zu tokens each do not fit into "
                       "sequences of %zu (--seq-len)",
                       v->n_images, tokens, v->seq_len);
    return 0;
}
