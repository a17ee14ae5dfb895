/* SPDX-License-Identifier: MIT */
/* The key x-search: what a plan was chosen from. No tool reads it. */
#include "manifest/manifest.h"

#include <jansson.h>
#include <math.h>

#include "manifest/sections.h"

static json_t *write_try(const struct pp_manifest_try *t)
{
    json_t *v = json_object();
    pp_put(v, "schedule", json_string(t->schedule));
    pp_put(v, "step", isfinite(t->step) ? json_real(t->step) : json_null());
    pp_put(v, "placement", json_string(t->placement));
    pp_put(v, "chunks", json_integer(t->n_chunks));
    if (t->whole_head)
        pp_put(v, "whole_head", json_true());
    return v;
}

void pp_manifest_set_search(struct pp_manifest *m,
                            const struct pp_manifest_search *x)
{
    json_t *v = json_object(), *tried = json_array();
    for (size_t i = 0; i < x->n_tries; i++)
        json_array_append_new(tried, write_try(&x->tries[i]));
    pp_put(v, "step", json_real(x->step));
    pp_put(v, "bound", json_real(x->bound));
    pp_put(v, "gap", json_real(1 - x->bound / x->step));
    pp_put(v, "bound_rule", json_string(x->bound_rule));
    pp_put(v, "tried", tried);
    pp_put(m->document, "x-search", v);
}
