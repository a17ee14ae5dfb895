/* SPDX-License-Identifier: MIT */
/* ppsplit_vision - a model with an encoder of images: its images, and the
 * options that do not work with it. */
#include <inttypes.h>

#include "model/vision.h"
#include "ppsplit.h"

/* Refuses methods that count decoder layers: they would leave the encoder
 * out. */
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
                          "--method: '%s' counts decoder layers only, but the "
                          "model has an encoder",
                          split_method_names[j->method]);
    }
    if (j->export == SPLIT_EXPORT_MEGATRON)
        return tool_usage(&j->t, "--export: a layout of Megatron-LM has no "
                                 "symbol for an encoder's layers");
    if (j->export == SPLIT_EXPORT_TORCHTITAN ||
        j->export == SPLIT_EXPORT_TORCHTITAN_OUTPUT)
        return tool_usage(&j->t, "--export: torchtitan has no names for an "
                                 "encoder's layers; try --export fqns");
    return 0;
}

/* Checks --encoder-ranks, which puts a boundary of the model between ranks. */
static int check_encoder_ranks(struct split_job *j)
{
    if (j->encoder_ranks == 0)
        return 0;
    if (j->method != SPLIT_BALANCED)
        return tool_usage(&j->t, "--encoder-ranks needs --method balanced");
    if (j->n_chunks > 1 || j->placement == PP_PLACEMENT_BOTH_WAYS)
        return tool_usage(&j->t,
                          "--encoder-ranks needs one stage on each rank");
    if (j->encoder_ranks >= j->n_ranks)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--encoder-ranks: '%" PRId64 "' of %" PRId64
                       " ranks leave none for the language model",
                       j->encoder_ranks, j->n_ranks);
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
                       "--image-patches: '%zu' must be a multiple of %zu, the "
                       "patches of one token",
                       patches, v->merge);
    v->patches = patches;
    return 0;
}

int split_set_images(struct split_job *j)
{
    struct pp_vision *v = &j->model.vision;
    if (v->kind == PP_VISION_NONE) {
        if (j->n_images == 0 && j->image_patches == 0 && j->encoder_ranks == 0)
            return 0;
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: '%s' has no encoder of images",
                       j->n_images        ? "--images"
                       : j->image_patches ? "--image-patches"
                                          : "--encoder-ranks",
                       j->source);
    }
    if (check_method(j) || check_encoder_ranks(j) || set_patches(j))
        return -1;
    size_t tokens = pp_vision_out_tokens(v);
    v->n_images = j->n_images ? (size_t)j->n_images : 1;
    v->seq_len = (size_t)j->seq_len;
    v->sharers = (size_t)pp_mesh_sharers(&j->mesh);
    if (v->n_images > v->seq_len / tokens)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--images: '%zu' images of %zu tokens each do not fit "
                       "into a sequence of %zu tokens (--seq-len)",
                       v->n_images, tokens, v->seq_len);
    return 0;
}
