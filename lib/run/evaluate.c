/* SPDX-License-Identifier: MIT */
/* Forward-only walks: validation loss and log-probabilities. */
#include <string.h>

#include "run/rank.h"

/* Walks all bins of p in passes of the list's n_microbatches; the last pass is
 * filled up with empty microbatches. Adds the losses in bin order. */
static int walk(struct pp_rank *r, const struct pp_packed *p, double scale,
                double *loss, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    uint64_t m = (uint64_t)j->forward->n_microbatches;
    *loss = 0;
    for (uint64_t first = 0; first < p->n_bins; first += m) {
        const struct pp_pass pass = {
            .packed = p,
            .first = first,
            .end = p->n_bins,
            .scale = scale,
            .score_all = j->score,
            .losses = r->losses,
            .logps = j->score ? j->logps : NULL,
            .ctx = j->ctx,
        };
        memset(r->losses, 0, m * sizeof *r->losses);
        if (pp_exec_run(&r->forward, &pass, err))
            return -1;
        for (uint64_t k = 0; k < m; k++)
            *loss += r->losses[k];
    }
    return 0;
}

int pp_rank_evaluate(struct pp_rank *r, double *loss, struct pp_err *err)
{
    const struct pp_packed *p = r->job->eval;
    uint64_t scored = 0;
    double mine;
    for (size_t i = 0; i < p->n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(p, i, &b);
        scored += b.scored;
    }
    if (walk(r, p, scored ? 1 / (double)scored : 0, &mine, err) ||
        r->comm->ops->allgather(r->comm, &mine, r->all, sizeof mine, err))
        return -1;
    /* Only the rank with the head has a loss. */
    *loss = 0;
    for (int k = 0; k < r->comm->size; k++)
        *loss += r->all[k];
    return 0;
}

int pp_rank_score(struct pp_rank *r, struct pp_err *err)
{
    double loss;
    return walk(r, r->job->data, 0, &loss, err);
}
