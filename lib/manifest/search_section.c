/* SPDX-License-Identifier: MIT */
/* The key x-search: what a plan was chosen from. No tool reads it. */
#include "manifest/manifest.h"

#include <jansson.h>
#include <math.h>

#include "manifest/sections.h"

static json_t *write_try(const struct pp_manifest_try *t, struct pp_err *err)
{
    json_t *v = json_object();
    int bad = pp_put_text(v, "schedule", t->schedule, err);
    bad |=
        pp_put(v, "step", isfinite(t->step) ? json_real(t->step) : json_null());
    bad |= pp_put_text(v, "placement", t->placement, err);
    bad |= pp_put(v, "chunks", json_integer(t->n_chunks));
    if (t->whole_head)
        bad |= pp_put(v, "whole_head", json_true());
    return pp_written(v, bad, err);
}

int pp_manifest_set_search(struct pp_manifest *m,
                           const struct pp_manifest_search *x,
                           struct pp_err *err)
{
    json_t *v = json_object(), *tried = json_array();
    int bad = !tried;
    for (size_t i = 0; i < x->n_tries; i++)
        bad |= json_array_append_new(tried, write_try(&x->tries[i], err)) != 0;
    bad |= pp_put(v, "step", json_real(x->step));
    bad |= pp_put(v, "bound", json_real(x->bound));
    bad |= pp_put(v, "gap", json_real(1 - x->bound / x->step));
    bad |= pp_put_text(v, "bound_rule", x->bound_rule, err);
    bad |= pp_put(v, "tried", tried);
    v = pp_written(v, bad, err);
    if (!v)
        return -1;
    return pp_put(m->document, "x-search", v)
               ? pp_fail(err, PP_EXIT_SYSTEM, "out of memory")
               : 0;
}
