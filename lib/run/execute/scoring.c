/* SPDX-License-Identifier: MIT */
#include "run/execute/scoring.h"

#include <string.h>

#include "model/unit_bytes.h"

/* The columns that are gathered, one element per scored token. */
static const enum pp_column gathered[] = {
    PP_COLUMN_ADVANTAGES, PP_COLUMN_LOGPROBS, PP_COLUMN_PREV_LOGPROBS,
    PP_COLUMN_REF_LOGPROBS};
enum { N_GATHERED = sizeof gathered / sizeof *gathered };

_Static_assert(sizeof(struct pp_sequence_sums) +
                       (N_GATHERED + 1) * sizeof(double) ==
                   PP_SCORING_ROW_BYTES - sizeof(uint32_t),
               "unit_bytes.h");

/* Fills first[s .. s + 1] of every sequence from the scored rows. */
static void find_first(const struct pp_microbatch *mb, const struct pp_bin *b,
                       uint32_t *first)
{
    size_t k = 0;
    for (uint32_t s = 0; s < b->n_sequences; s++) {
        first[s] = (uint32_t)k;
        while (k < mb->n_scored &&
               mb->scored_rows[k] < b->cu_seqlens_padded[s + 1])
            k++;
    }
    first[b->n_sequences] = (uint32_t)k;
}

/* Copies a column. The row of position t predicts the token of t + 1. */
static void gather_column(const struct pp_microbatch *mb, const float *column,
                          double *out)
{
    for (size_t k = 0; k < mb->n_scored; k++)
        out[k] = (double)column[mb->scored_rows[k] + 1];
}

/* Divides the room among the arrays and fills them. */
static struct pp_sequence_sums *make_rows(const struct pp_scoring *s,
                                          const struct pp_bin *b,
                                          struct pp_objective_rows *r)
{
    unsigned reads = pp_objective_reads(s->options);
    struct pp_sequence_sums *sums = s->room;
    double *at = (double *)(sums + s->n_rows);
    for (size_t i = 0; i < N_GATHERED; i++, at += s->n_rows) {
        const float *column = b->columns[gathered[i]];
        if (!column || !(reads & pp_column_bit(gathered[i])))
            continue;
        gather_column(s->rows, column, at);
        r->columns[gathered[i]] = at;
    }
    const float *whole = b->columns[PP_COLUMN_REF_LOGPS];
    if (whole && reads & pp_column_bit(PP_COLUMN_REF_LOGPS)) {
        for (uint32_t i = 0; i < b->n_sequences; i++)
            at[i] = (double)whole[i];
        r->columns[PP_COLUMN_REF_LOGPS] = at;
    }
    uint32_t *first = (uint32_t *)(at + s->n_rows);
    find_first(s->rows, b, first);
    r->first = first;
    r->n_sequences = b->n_sequences;
    memset(sums, 0, b->n_sequences * sizeof *sums);
    return sums;
}

int pp_score_rows(void *ctx, const struct pp_microbatch *mb, double *x,
                  double *loss, struct pp_err *err)
{
    const struct pp_scoring *s = ctx;
    const struct pp_objective *o = pp_objectives[s->options->number];
    double ignored[PP_MAX_METRICS];
    struct pp_objective_rows r = {.x = x};
    struct pp_bin b = {0};
    (void)mb;
    (void)err;
    if (s->bin != PP_NO_BIN)
        pp_packed_bin(s->packed, s->bin, &b);
    struct pp_sequence_sums *sums = make_rows(s, &b, &r);
    o->partial(s->options, &r, sums);
    o->finish(s->options, &r, sums, &s->step, loss,
              s->metrics ? s->metrics : ignored, x);
    for (size_t k = 0; k < s->rows->n_scored; k++)
        x[k] = -x[k];
    return 0;
}

void pp_scoring_count(const struct pp_objective_options *o,
                      const struct pp_packed *p, size_t bin,
                      struct pp_objective_counts *sum)
{
    struct pp_bin b;
    if (bin == PP_NO_BIN)
        return;
    pp_packed_bin(p, bin, &b);
    if (o && pp_objective_by_sequence(o))
        pp_objective_count(&b, b.labels, o->number == PP_OBJECTIVE_DPO, sum);
    else
        sum->tokens += b.scored;
}
