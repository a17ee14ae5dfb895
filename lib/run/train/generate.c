/* SPDX-License-Identifier: MIT */
/* generate - continues prompts: a forward pass for each token, over all tokens
 * so far, in which only the last row of a sequence predicts. Keys and values
 * are computed again. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "comm/tree.h"
#include "run/train/rank.h"

/* The sequences, the same on every rank: each is a bin of its own. */
struct generation {
    struct pp_rank *rank;
    struct pp_packed set; /* this rank's, with room for the new tokens */
    int32_t *next;        /* (bins) the token of this pass, or -1 */
    bool *ended;          /* (bins) */
};

/* pp_packed_take has allocated these. */
static int32_t *own_column(const int32_t *column)
{
    return (int32_t *)(uintptr_t)column;
}

static void clear_labels(const struct generation *g)
{
    for (size_t i = 0; i < g->set.n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(&g->set, i, &b);
        for (uint32_t t = 0; t < b.tokens; t++)
            own_column(b.labels)[t] = PP_LABEL_IGNORE;
    }
}

/* Lets row `at` of the new tokens predict, and no other. */
static void label_row(const struct generation *g, size_t at)
{
    size_t n_new = g->rank->job->generate.n;
    for (size_t i = 0; i < g->set.n_bins; i++) {
        struct pp_bin b;
        pp_packed_bin(&g->set, i, &b);
        int32_t *labels =
            own_column(b.labels) + b.cu_seqlens[1] - (int32_t)n_new;
        if (at > 0)
            labels[at - 1] = PP_LABEL_IGNORE;
        if (!g->ended[i])
            labels[at] = 0; /* any token: the row is scored */
        g->next[i] = -1;
    }
}

static void take_next(void *ctx, const struct pp_token_place *at,
                      const double *values, size_t n)
{
    struct generation *g = ctx;
    const struct pp_job *j = g->rank->job;
    for (size_t i = 0; i < n; i++)
        g->next[at[i].sequence] =
            (int32_t)values[i * g->rank->scored.width + 1];
    j->scored(j->ctx, at, values, n);
}

/* Appends the tokens. Returns whether a sequence goes on. */
static bool append_next(const struct generation *g, size_t at)
{
    const struct pp_job *j = g->rank->job;
    bool goes_on = false;
    for (size_t i = 0; i < g->set.n_bins; i++) {
        struct pp_bin b;
        if (g->next[i] < 0)
            continue;
        pp_packed_bin(&g->set, i, &b);
        size_t row = (size_t)b.cu_seqlens[1] - j->generate.n + at;
        own_column(b.input_ids)[row] = g->next[i];
        g->ended[i] = g->next[i] == j->generate.stop;
        goes_on |= !g->ended[i];
    }
    return goes_on;
}

int pp_rank_generate(struct pp_rank *r, struct pp_err *err)
{
    const struct pp_job *j = r->job;
    struct generation g = {.rank = r};
    bool goes_on = true;
    if (pp_packed_take(j->data, j->data->n_bins, &g.set, err))
        return -1;
    g.next = calloc(g.set.n_bins, sizeof *g.next);
    g.ended = calloc(g.set.n_bins, sizeof *g.ended);
    const struct pp_sampler s = {
        .greedy = !j->generate.samples,
        .key = pp_rng_key(j->generate.seed, "generate"),
        .room = malloc(j->model->vocab * r->kernels.element_bytes)};
    int rc = g.next && g.ended && s.room
                 ? 0
                 : pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    clear_labels(&g);
    for (size_t at = 0; at < j->generate.n && goes_on && rc == 0; at++) {
        label_row(&g, at);
        rc = pp_rank_draw(r, &g.set, &s, at, take_next, &g, err) ||
             pp_tree_broadcast(r->env.comm, g.next,
                               g.set.n_bins * sizeof *g.next, err);
        goes_on = rc == 0 && append_next(&g, at);
    }
    free(g.next);
    free(g.ended);
    free(s.room);
    pp_packed_finish(&g.set);
    return rc ? -1 : 0;
}
