/* SPDX-License-Identifier: MIT */
/* manifest_layout - the ranks of a plan's components. An encoder without ranks
 * of its own is on those of the language model. */
#include "manifest/manifest.h"
#include "manifest/workloads.h"

struct pp_layout pp_manifest_layout(const struct pp_manifest *m)
{
    struct pp_layout l = {.components = {{.mesh = m->mesh}}, .n_components = 1};
    if (m->n_components == 0 || !m->components[0].apart)
        return l;
    l.generates = pp_plan_generates(m);
    l.n_components = 0;
    for (size_t i = 0; i < m->n_components; i++) {
        const struct pp_component *c = &m->components[i];
        struct pp_layout_component *to = &l.components[l.n_components];
        if (!c->apart)
            continue;
        *to = (struct pp_layout_component){c->mesh, c->first_rank,
                                           c->rank_offset};
        if (i == pp_plan_language(m))
            to->mesh.encoder_tp = m->mesh.encoder_tp;
        l.n_components++;
    }
    return l;
}
