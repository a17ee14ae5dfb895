/* SPDX-License-Identifier: MIT */
/* images - refuses what pprun does not do with a model that has an
 * encoder. */
#include "cost/workloads.h"
#include "model/vision.h"
#include "runner/runner.h"

/* Refuses two encoders that have no names. */
static int check_branches(const struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    return pp_model_n_encoders(&p->model) > 1 &&
                   m->n_components <= PP_MAX_ENCODERS
               ? pp_fail(&p->tool->err, PP_EXIT_INPUT,
                         "/components: must name both encoders of '%s' and its "
                         "language model",
                         m->model.architecture)
               : 0;
}

int runner_check_images(const struct runner *p)
{
    const struct pp_manifest *m = &p->manifest;
    const struct runner_options *o = &p->options;
    struct pp_err *err = &p->tool->err;
    const char *name = m->model.architecture;
    if (!pp_model_has_encoder(&p->model))
        return 0;
    if (check_branches(p))
        return -1;
    if (m->components[0].apart && o->shapes == PP_MESSAGE_MAX)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/components: messages to ranks of another mesh have "
                       "their own sizes; run without --message-size max");
    for (size_t k = 0; k < pp_model_n_encoders(&p->model); k++) {
        bool apart =
            k < pp_plan_language(pp_manifest_plan(m)) && m->components[k].apart;
        if (pp_mesh_check_encoder(apart ? &m->components[k].mesh : NULL,
                                  &m->mesh, &p->model, k, err))
            return -1;
    }
    if (p->job.generate.n || o->shrink)
        return pp_fail(err, PP_EXIT_INPUT,
                       "/model/architecture: '%s' has an encoder, "
                       "for which --%s makes no data",
                       name, p->job.generate.n ? "generate" : "shrink");
    return 0;
}
