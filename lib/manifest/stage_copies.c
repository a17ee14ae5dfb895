/* SPDX-License-Identifier: MIT */
/* stage_copies - "copy_of" of a manifest's stages.
 *
 * The stages that are copies come last and copy the others one by one, so that
 * which copy a stage belongs to is known by its number. */
#include <inttypes.h>
#include <limits.h>

#include "manifest/sections.h"

int pp_read_copy_of(const struct pp_value *at, int stage, struct pp_manifest *m)
{
    struct pp_stage_node *stages = m->graph.stages;
    struct pp_value member;
    int64_t original;
    bool after = stage > 0 && stages[stage - 1].copy_of >= 0;
    stages[stage].copy_of = -1;
    if (!pp_value_find(at, "copy_of", &member)) {
        if (after)
            return pp_value_fail(at,
                                 "stage %d copies another and stage %d, after "
                                 "it, does not",
                                 stage - 1, stage);
        return 0;
    }
    if (pp_value_int(&member, 0, INT_MAX, &original))
        return -1;
    int expected = after ? stages[stage - 1].copy_of + 1 : 0;
    if (stages[expected].copy_of >= 0)
        return pp_value_fail(&member,
                             "'%" PRId64 "' has a copy already: two of the "
                             "weights are the most",
                             original);
    if (original >= stage || stages[original].copy_of >= 0)
        return pp_value_fail(&member,
                             "'%" PRId64 "' is not an earlier stage that is no "
                             "copy",
                             original);
    if (original != expected)
        return pp_value_fail(&member,
                             "'%" PRId64 "' is not %d: copies have the order "
                             "of what they copy",
                             original, expected);
    stages[stage].copy_of = (int)original;
    return 0;
}

void pp_imply_inputs(const struct pp_graph *g, int stage, int *inputs)
{
    const struct pp_stage_node *n = &g->stages[stage];
    if (n->copy_of < 0 && stage > 0)
        inputs[0] = stage - 1;
    for (int i = 0; n->copy_of >= 0 && i < g->stages[n->copy_of].n_inputs; i++)
        inputs[i] = g->stages[n->copy_of].inputs[i] + stage - n->copy_of;
}

int pp_check_copied_units(const struct pp_value *at,
                          const struct pp_manifest *m, int stage)
{
    int original = m->graph.stages[stage].copy_of;
    if (original < 0 || m->stages[stage].n_units == m->stages[original].n_units)
        return 0;
    return pp_value_fail(at,
                         "%zu units, and %zu in stage %d, of which it is the "
                         "copy",
                         m->stages[stage].n_units, m->stages[original].n_units,
                         original);
}

int pp_count_copies(const struct pp_value *at, struct pp_manifest *m)
{
    struct pp_graph *g = &m->graph;
    int last = g->stages[g->n_stages - 1].copy_of, originals = 0;
    while (originals < g->n_stages && g->stages[originals].copy_of < 0)
        originals++;
    if (last >= 0 && last != originals - 1)
        return pp_value_fail(at, "stage %d has no copy, and stage %d has",
                             last + 1, last);
    g->n_copies = g->n_stages / originals;
    return 0;
}
