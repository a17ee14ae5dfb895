/* SPDX-License-Identifier: MIT */
/* ppsplit_vision - a model with an encoder: its images or its audio, and the
 * options that do not work with it. */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
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

/* Sets a size of the encoder's mesh, "dp=2". */
static int set_encoder_size(struct tool *t, const char *item)
{
    struct split_job *j = t->base;
    struct pp_mesh *x = &j->encoder;
    const struct {
        const char *name;
        int *at;
    } sizes[] = {
        {"pp=", &x->pp}, {"dp=", &x->dp}, {"tp=", &x->tp}, {"cp=", &x->cp}};
    size_t i = 0, n_sizes = sizeof sizes / sizeof *sizes;
    int64_t n;
    while (i < n_sizes && strncmp(item, sizes[i].name, 3))
        i++;
    if (!strncmp(item, "ep=", 3))
        return tool_usage(t,
                          "--encoder-mesh: '%s' is not possible, as an encoder "
                          "has no experts; it has pp, dp, tp and cp",
                          item);
    if (i == n_sizes)
        return tool_usage(
            t, "--encoder-mesh: '%s' is not a size such as pp=1,dp=2", item);
    if (pp_parse_int(item + 3, "--encoder-mesh", 1, SPLIT_MAX_RANKS, &n,
                     &t->err))
        return -1;
    if (*sizes[i].at)
        return tool_usage(t, "--encoder-mesh: '%s' is a second value for it",
                          item);
    *sizes[i].at = (int)n;
    return 0;
}

int split_read_encoder_mesh(struct tool *t, const struct tool_option *o,
                            const char *arg)
{
    struct split_job *j = t->base;
    char *text = pp_arena_strdup(&j->arena, arg);
    (void)o;
    if (!text)
        return pp_fail(&t->err, PP_EXIT_SYSTEM, "out of memory");
    j->encoder = (struct pp_mesh){.ep = 1};
    for (char *item; (item = strsep(&text, ","));)
        if (set_encoder_size(t, item))
            return -1;
    int *const sizes[] = {&j->encoder.pp, &j->encoder.dp, &j->encoder.tp,
                          &j->encoder.cp};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = *sizes[i] ? *sizes[i] : 1;
    j->encoder_ranks = j->encoder.pp;
    return 0;
}

/* Checks --encoder-ranks and --encoder-mesh, which put a boundary of the model
 * between ranks. */
static int check_encoder_ranks(struct split_job *j)
{
    const char *name = j->encoder.dp ? "--encoder-mesh" : "--encoder-ranks";
    if (j->encoder_ranks == 0)
        return 0;
    if (j->method != SPLIT_BALANCED)
        return tool_usage(&j->t, "%s needs --method balanced", name);
    if (j->n_chunks > 1 || j->placement == PP_PLACEMENT_BOTH_WAYS)
        return tool_usage(&j->t, "%s needs one stage on each rank", name);
    if (j->encoder_ranks >= j->n_ranks)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "%s: '%" PRId64 "' of %" PRId64
                       " ranks leave none for the language model",
                       name, j->encoder_ranks, j->n_ranks);
    if (!j->encoder.dp)
        return 0;
    if (j->mesh.cp_exact)
        return tool_usage(&j->t, "--encoder-mesh excludes --cp-exact");
    j->encoder.order = j->mesh.order;
    j->encoder.whole_state = j->mesh.whole_state;
    j->encoder.divided_weights = j->mesh.divided_weights;
    j->encoder.resident = j->mesh.resident;
    return 0;
}

static int set_patches(struct split_job *j)
{
    struct pp_vision *v = &j->model.encoders[0];
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
    if (v->most && patches > v->most)
        return pp_fail(&j->t.err, PP_EXIT_INPUT,
                       "--image-patches: clips of audio of '%s' have at most "
                       "%zu rows, not '%zu'",
                       j->source, v->most, patches);
    v->patches = patches;
    return 0;
}

int split_set_images(struct split_job *j)
{
    struct pp_vision *v = &j->model.encoders[0];
    if (v->kind == PP_VISION_NONE) {
        if (j->n_images == 0 && j->image_patches == 0 && j->encoder_ranks == 0)
            return 0;
        return pp_fail(&j->t.err, PP_EXIT_INPUT, "%s: '%s' has no encoder",
                       j->n_images        ? "--images"
                       : j->image_patches ? "--image-patches"
                       : j->encoder.dp    ? "--encoder-mesh"
                                          : "--encoder-ranks",
                       j->source);
    }
    if (check_method(j) || check_encoder_ranks(j) || set_patches(j))
        return -1;
    size_t tokens = pp_vision_out_tokens(v);
    v->n_images = j->n_images ? (size_t)j->n_images : 1;
    v->seq_len = (size_t)j->seq_len;
    v->sharers = (size_t)pp_mesh_sharers(&j->mesh);
    v->makers = (size_t)(j->encoder.dp * j->encoder.cp);
    v->tp = (size_t)j->encoder.tp;
    v->lanes = (size_t)j->mesh.dp;
    if (v->n_images > v->seq_len / tokens)
        return pp_fail(
            &j->t.err, PP_EXIT_INPUT,
            "--images: '%zu' %s of %zu tokens each do not fit into a "
            "sequence of %zu tokens (--seq-len)",
            v->n_images, pp_modality_words(pp_vision_modality(v)).items, tokens,
            v->seq_len);
    return 0;
}
