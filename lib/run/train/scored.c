/* SPDX-License-Identifier: MIT */
/* scored - brings the scores of a scoring job from the ranks that make them to
 * rank 0, after every pass. A rank keeps the scores of its own microbatches of
 * one pass. */
#include "comm/tree.h"
#include "run/train/rank.h"

void pp_rank_note_scores(void *ctx, size_t bin,
                         const struct pp_host_microbatch *host)
{
    const struct pp_microbatch *mb = &host->of;
    struct pp_rank *r = ctx;
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return;
    pp_packed_bin(r->job->data, bin, &b);
    for (size_t i = 0, k = 0; k < mb->scored.n; k++) {
        int32_t row = mb->scored.rows[k];
        if (k == mb->scored.n_labelled)
            i = 0;
        while (row >= mb->cu_seqlens_padded[i + 1])
            i++;
        size_t of = (size_t)mb->sequence[i];
        r->scored.at[r->scored.n] = (struct pp_token_place){
            b.source[of],
            b.start[of] + (uint32_t)(mb->positions[row] + mb->scored.predicts)};
        r->scored.values[r->scored.n++ * r->scored.width] = mb->loss.logps[k];
    }
}

struct score_taker {
    const struct pp_scored *scored;
    pp_take_scores_fn *take;
    void *ctx;
};

static void take_scores(void *ctx, size_t first, size_t n)
{
    const struct score_taker *t = ctx;
    const struct pp_scored *s = t->scored;
    t->take(t->ctx, s->at + first, s->values + first * s->width, n);
}

int pp_rank_hand_over(struct pp_rank *r, pp_take_scores_fn *take, void *ctx,
                      struct pp_err *err)
{
    struct pp_scored *s = &r->scored;
    struct score_taker to = {s, take, ctx};
    const struct pp_records records = {
        .n = s->n,
        .part = PP_SCORES_PART,
        .columns = {{s->at, sizeof *s->at},
                    {s->values, s->width * sizeof *s->values}}};
    s->n = 0;
    return pp_tree_collect(r->env.comm, &records, take_scores, &to, err);
}
