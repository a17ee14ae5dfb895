/* SPDX-License-Identifier: MIT */
/* inject_score - faults of objectives. */
#include "inject.h"

#include <stdlib.h>
#include <string.h>

/* Puts 0 where a row of a rejected sequence is. */
static void cut_pairs(const struct pp_microbatch *rows, double *x)
{
    for (size_t k = 0, i = 0; k < rows->scored.n; k++) {
        while (rows->scored.rows[k] >= rows->cu_seqlens_padded[i + 1])
            i++;
        if (rows->sequence[i] % 2)
            x[k] = 0;
    }
}

/* local-mean: see faulty_compute.
 * sums-local: ranks that divide sequences do not add their sums.
 * divergence-detached: the term of the divergence has no gradient.
 * pair-cut: the rejected sequences are in other microbatches, and their sums do
 * not come from there. */
int inject_score(const struct pp_exec *e, const struct pp_microbatch *mb,
                 double *x, double *loss, struct pp_err *err)
{
    struct pp_scoring *s = e->scoring;
    struct pp_objective_options without = *s->options;
    size_t bytes = mb->scored.n * sizeof *x;
    double ignored, *kept = malloc(bytes + 1);
    if (!kept)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    memcpy(kept, x, bytes);
    if (inject_is("local-mean")) {
        double n = e->schedule->n_microbatches;
        s->step = (struct pp_objective_counts){0};
        pp_scoring_count(s->options, s->packed, s->bin, &s->step);
        s->step.tokens *= n;
        s->step.sequences *= n;
        s->step.pairs *= n;
    }
    const struct pp_env *env = s->env;
    struct pp_env alone = *env;
    alone.context.group.n = 1;
    alone.context.group.index = 0;
    s->env = inject_is("sums-local") ? &alone : env;
    if (inject_is("pair-cut"))
        cut_pairs(&s->rows->of, x);
    int rc = pp_score_rows(s, mb, x, loss, err);
    if (inject_is("pair-cut"))
        cut_pairs(&s->rows->of, x);
    s->env = env;
    if (rc == 0 && inject_is("divergence-detached")) {
        memcpy(x, kept, bytes);
        without.kl_weight = 0;
        s->options = &without;
        rc = pp_score_rows(s, mb, x, &ignored, err);
    }
    free(kept);
    return rc;
}
