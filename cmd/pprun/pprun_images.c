/* SPDX-License-Identifier: MIT */
/* pprun_images - refuses what pprun does not do with a model that has an
 * encoder. */
#include "manifest/workloads.h"
#include "model/vision.h"
#include "pprun.h"

/* Refuses what branches of two encoders cannot have: no names, or a stage
 * without units that would pass on features. */
static int check_branches(const struct pprun *p)
{
    const struct pp_manifest *m = &p->manifest;
    struct pp_err *err = &p->tool->err;
    if (p->model.encoders[1].kind == PP_VISION_NONE)
        return 0;
    if (m->n_components <= PP_MAX_ENCODERS)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/components: must name both encoders of '%s' and its "
                       "language model",
                       m->model.architecture);
    for (int s = 0; s < m->graph.n_stages; s++) {
        size_t first = m->stages[s].first_unit;
        if (m->stages[s].n_units == 0 &&
            (first == m->components[1].first_unit ||
             first == m->components[2].first_unit))
            return pp_fail(err, PP_EXIT_INPUT,
                           "/stages/%d/units: none, but the features of two "
                           "encoders go to the embedding's stage alone",
                           s);
    }
    return 0;
}

int pprun_check_images(const struct pprun *p)
{
    const struct pp_manifest *m = &p->manifest;
    const struct pprun_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    const char *name = m->model.architecture;
    if (!pp_model_has_encoder(&p->model))
        return 0;
    if (m->graph.n_slices > 1)
        return pp_fail(
            err, PP_EXIT_INPUT,
            "/schedule/slices: '%d', but the %s of %s belong to "
            "whole microbatches; take a schedule without slices",
            m->graph.n_slices,
            pp_modality_words(pp_vision_modality(&p->model.encoders[0])).items,
            name);
    if (check_branches(p))
        return -1;
    if (m->components[0].apart && o->shapes == PP_MESSAGE_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/components: messages to ranks of another mesh have "
                       "their own sizes; run without --message-size max");
    for (size_t k = 0; k < PP_MAX_ENCODERS; k++) {
        bool apart = k < pp_plan_language(m) && m->components[k].apart;
        if (p->model.encoders[k].kind != PP_VISION_NONE &&
            pp_mesh_check_encoder(apart ? &m->components[k].mesh : NULL,
                                  &m->mesh, &p->model, k, err))
            return -1;
    }
    if (o->generate || o->shrink)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' has an encoder, "
                       "for which --%s makes no data",
                       name, o->generate ? "generate" : "shrink");
    return 0;
}
