/* SPDX-License-Identifier: MIT */
/* scored - brings the scores of a scoring job from the ranks that make them to
 * rank 0, after every pass. A rank keeps those of its own microbatches of one
 * pass. */
#include "run/train/rank.h"

#include <string.h>

void pp_rank_note_scores(void *ctx, size_t bin, const struct pp_microbatch *mb)
{
    struct pp_rank *r = ctx;
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return;
    pp_packed_bin(r->job->data, bin, &b);
    for (size_t i = 0, k = 0; k < mb->n_scored; k++) {
        int32_t row = mb->scored_rows[k];
        if (k == mb->n_labelled)
            i = 0;
        while (row >= mb->cu_seqlens_padded[i + 1])
            i++;
        size_t of = (size_t)mb->sequence[i];
        r->scored.at[r->scored.n] = (struct pp_token_place){
            b.source[of],
            b.start[of] + (uint32_t)(mb->positions[row] + mb->predicts)};
        r->scored.values[r->scored.n++ * r->scored.width] = mb->logps[k];
    }
}

static size_t part_of(size_t left)
{
    return left < PP_SCORES_PART ? left : PP_SCORES_PART;
}

static int send_scores(struct pp_rank *r, struct pp_err *err)
{
    struct pp_scored *s = &r->scored;
    uint64_t n = s->n;
    if (pp_comm_send_host(r->env.comm, 0, &n, sizeof n, err))
        return -1;
    for (size_t at = 0, part; at < s->n; at += part) {
        part = part_of(s->n - at);
        if (pp_comm_send_host(r->env.comm, 0, s->at + at, part * sizeof *s->at,
                              err) ||
            pp_comm_send_host(r->env.comm, 0, s->values + at * s->width,
                              part * s->width * sizeof *s->values, err))
            return -1;
    }
    return 0;
}

static int take_scores(struct pp_rank *r, int from, pp_take_scores_fn *take,
                       void *ctx, struct pp_err *err)
{
    struct pp_scored *s = &r->scored;
    uint64_t left;
    if (pp_comm_receive(r->env.comm, from, PP_DIRECTION_HOST, &left,
                        sizeof left, err))
        return -1;
    for (size_t part; left > 0; left -= part) {
        part = part_of(left);
        if (pp_comm_receive(r->env.comm, from, PP_DIRECTION_HOST, s->at,
                            part * sizeof *s->at, err) ||
            pp_comm_receive(r->env.comm, from, PP_DIRECTION_HOST, s->values,
                            part * s->width * sizeof *s->values, err))
            return -1;
        take(ctx, s->at, s->values, part);
    }
    return 0;
}

int pp_rank_hand_over(struct pp_rank *r, pp_take_scores_fn *take, void *ctx,
                      struct pp_err *err)
{
    struct pp_scored *s = &r->scored;
    int rc = 0;
    if (r->env.comm->rank > 0)
        rc = send_scores(r, err);
    else
        take(ctx, s->at, s->values, s->n);
    s->n = 0;
    for (int k = 1; r->env.comm->rank == 0 && k < r->env.comm->size && rc == 0;
         k++)
        rc = take_scores(r, k, take, ctx, err);
    return rc;
}
