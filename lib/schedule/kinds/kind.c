/* SPDX-License-Identifier: MIT */
/* The table of kinds. */
#include "schedule/kinds/kind.h"

#include <assert.h>
#include <string.h>

#include "schedule/kinds/kinds.h"

const struct pp_kind *const pp_kinds[] = {
    &pp_kind_gpipe,          &pp_kind_1f1b,
    &pp_kind_eager_1f1b,     &pp_kind_interleaved,
    &pp_kind_looped_bfs,     &pp_kind_hanayo,
    &pp_kind_zb_h1,          &pp_kind_zb_h2,
    &pp_kind_zb_interleaved, &pp_kind_zbv,
    &pp_kind_v_half,         &pp_kind_v_min,
    &pp_kind_dualpipev,      &pp_kind_dualpipe,
    &pp_kind_seq1f1b,        NULL,
};

void pp_kind_names(const char *names[PP_MAX_KINDS])
{
    static_assert(sizeof pp_kinds / sizeof *pp_kinds < PP_MAX_KINDS,
                  "there is room for all names, auto and NULL");
    int n = 0;
    while (pp_kinds[n]) {
        names[n] = pp_kinds[n]->name;
        n++;
    }
    names[n] = "auto";
    names[n + 1] = NULL;
}

const struct pp_kind *pp_kind_find(const char *name)
{
    for (const struct pp_kind *const *k = pp_kinds; *k; k++)
        if (!strcmp((*k)->name, name))
            return *k;
    return NULL;
}

int pp_kind_admits(const char *kind, const struct pp_graph *g, bool copies,
                   struct pp_err *err)
{
    if (g->n_copies > 1 && !copies)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s runs on one copy of the weights, not two: use "
                       "placement loop or v, or use dualpipe",
                       kind);
    return 0;
}

int pp_kind_emit(const struct pp_kind *k, struct pp_schedule *s,
                 const struct pp_kind_options *o, struct pp_err *err)
{
    if (pp_kind_admits(k->name, s->graph, k->copies, err))
        return -1;
    if (s->graph->slices.n > 1 ? pp_emit_slices(k, s, o, err)
                               : pp_emit_whole(k, s, o, err))
        return -1;
    pp_schedule_trim(s);
    return 0;
}
