/* SPDX-License-Identifier: MIT */
/* An encoder of images in front of a language model: what its images are, and
 * which methods know of it. */
#include <inttypes.h>

#include "split/split.h"
#include "model/vision.h"
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

/* A boundary between two ranks, each with one stage. */
static int check_apart(struct split_job *j)
{
    struct pp_err *err = &j->t.err;
    size_t vision = pp_vision_n_units(&j->model);
    size_t language = pp_model_n_units(&j->model) - vision;
    int64_t n = j->encoder_ranks, rest = j->n_ranks - n;
    if (n == 0)
        return 0;
    if (j->method != SPLIT_BALANCED)
        return tool_usage(&j->t, "--encoder-ranks needs the method balanced");
    if (j->n_chunks > 1 || j->placement == PP_PLACEMENT_BOTH_WAYS)
        return tool_usage(&j->t,
                          "--encoder-ranks needs one stage on each rank");
    if (rest < 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--encoder-ranks: '%" PRId64 "' of %" PRId64
                       " ranks leave none for the language model",
                       n, j->n_ranks);
    if ((size_t)n > vision || (size_t)rest > language)
        return pp_fail(err, PP_EXIT_INPUT,
                       "--encoder-ranks: '%" PRId64 "' and %" PRId64
                       " ranks are not for %zu and %zu units",
                       n, rest, vision, language);
    return 0;
}

int split_apart(struct split_job *j)
{
    size_t at = (size_t)j->encoder_ranks, n = (size_t)j->graph.n_stages;
    size_t vision = pp_vision_n_units(&j->model);
    if (pp_split_balanced(j->costs, vision, at, j->bounds, &j->t.err) ||
        pp_split_balanced(j->costs + vision, j->n_units - vision, n - at,
                          j->bounds + at, &j->t.err))
        return -1;
    for (size_t s = at; s <= n; s++)
        j->bounds[s] += vision;
    j->run.step.fixed_stage = at;
    j->run.step.fixed_unit = vision;
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
        if (j->n_images == 0 && j->image_patches == 0 && j->encoder_ranks == 0)
            return 0;
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: '%s' has no encoder of images",
                       j->n_images        ? "--images"
                       : j->image_patches ? "--image-patches"
                                          : "--encoder-ranks",
                       j->source);
    }
    if (check_method(j) || check_apart(j) || set_patches(j))
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
