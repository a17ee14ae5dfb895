/* SPDX-License-Identifier: MIT */
/* objective - the table of objectives, their counts and sums, and the loss of
 * the next token (sft). */
#include "run/objectives/objective.h"

#include <math.h>

static double at(const double *column, size_t t)
{
    return column ? column[t] : 0;
}

void pp_objective_sum(const struct pp_objective_options *o,
                      const struct pp_objective_rows *r,
                      struct pp_sequence_sums *sums)
{
    const double *p = r->columns[PP_COLUMN_PREV_LOGPROBS];
    const double *q = r->columns[PP_COLUMN_LOGPROBS];
    const double *f = r->columns[PP_COLUMN_REF_LOGPROBS];
    const double *a = r->columns[PP_COLUMN_ADVANTAGES];
    (void)o;
    for (size_t s = 0; s < r->n_sequences; s++)
        for (size_t t = r->first[s]; t < r->first[s + 1]; t++) {
            sums[s].n += 1;
            sums[s].x += r->x[t];
            sums[s].ratio += p ? r->x[t] - p[t] : 0;
            sums[s].importance += p && q ? p[t] - q[t] : 0;
            sums[s].reference += at(f, t);
            sums[s].up += fmax(at(a, t), 0);
            sums[s].down += fmin(at(a, t), 0);
        }
}

/* Adds in token order, and multiplies once. */
static void finish_sft(const struct pp_objective_options *o,
                       const struct pp_objective_rows *r,
                       const struct pp_sequence_sums *sums,
                       const struct pp_objective_counts *step, double *loss,
                       double *metrics, double *dx)
{
    double scale = step->tokens > 0 ? 1 / step->tokens : 0, sum = 0;
    (void)o;
    (void)sums;
    (void)metrics;
    for (size_t t = 0; t < r->first[r->n_sequences]; t++) {
        sum -= r->x[t];
        dx[t] = -scale;
    }
    *loss = sum * scale;
}

static const struct pp_objective sft = {
    .name = "sft",
    .kind = PP_DATA_DOCUMENTS,
    .partial = pp_objective_sum,
    .finish = finish_sft,
};

/* The head gives minus the divergence from the teacher for each token. */
static const struct pp_objective distill = {
    .name = "distill",
    .kind = PP_DATA_DOCUMENTS,
    .any_kind = true,
    .partial = pp_objective_sum,
    .finish = finish_sft,
};

const struct pp_objective *const pp_objectives[PP_N_OBJECTIVES] = {
    [PP_OBJECTIVE_SFT] = &sft,
    [PP_OBJECTIVE_DPO] = &pp_objective_dpo,
    [PP_OBJECTIVE_GRPO] = &pp_objective_grpo,
    [PP_OBJECTIVE_DISTILL] = &distill,
    [PP_OBJECTIVE_REWARD] = &pp_objective_reward,
};

unsigned pp_objective_needs(const struct pp_objective_options *o)
{
    unsigned bits = 0;
    if (o->number == PP_OBJECTIVE_DISTILL)
        return pp_column_bit(PP_COLUMN_TOPK_IDS) |
               pp_column_bit(PP_COLUMN_TOPK_LOGITS);
    if (o->number != PP_OBJECTIVE_GRPO)
        return 0; /* dpo takes one of two columns: see the reader of data */
    bits |= pp_column_bit(PP_COLUMN_ADVANTAGES);
    if (o->ratio == PP_RATIO_TOKEN || o->ratio == PP_RATIO_SEQUENCE ||
        o->importance != PP_IMPORTANCE_NONE ||
        (o->kl != PP_KL_NONE && o->kl_weighting == PP_KL_PREVIOUS))
        bits |= pp_column_bit(PP_COLUMN_PREV_LOGPROBS);
    if (o->importance != PP_IMPORTANCE_NONE ||
        (o->kl != PP_KL_NONE && o->kl_weighting == PP_KL_GENERATION))
        bits |= pp_column_bit(PP_COLUMN_LOGPROBS);
    if (o->kl != PP_KL_NONE)
        bits |= pp_column_bit(PP_COLUMN_REF_LOGPROBS);
    return bits;
}

unsigned pp_objective_reads(const struct pp_objective_options *o)
{
    if (o->number == PP_OBJECTIVE_GRPO)
        return pp_objective_needs(o) | pp_column_bit(PP_COLUMN_PREV_LOGPROBS) |
               pp_column_bit(PP_COLUMN_LOGPROBS);
    return o->number == PP_OBJECTIVE_DPO && !o->reference_free
               ? pp_column_bit(PP_COLUMN_REF_LOGPROBS) |
                     pp_column_bit(PP_COLUMN_REF_LOGPS)
               : 0;
}

bool pp_objective_in_pairs(const struct pp_objective_options *o)
{
    return pp_objectives[o->number]->kind == PP_DATA_PAIRS;
}

bool pp_objective_by_sequence(const struct pp_objective_options *o)
{
    return pp_objective_in_pairs(o) ||
           (o->number == PP_OBJECTIVE_GRPO &&
            (o->ratio == PP_RATIO_SEQUENCE || o->aggregate != PP_TOKEN_MEAN ||
             o->importance >= PP_IMPORTANCE_SEQUENCE_MASK));
}

void pp_objective_count(const struct pp_objective_options *o,
                        const struct pp_bin *b, const int32_t *labels,
                        struct pp_objective_counts *sum)
{
    bool pair = false, in_pairs = pp_objective_in_pairs(o);
    for (uint32_t s = 0; s < b->n_sequences; s++) {
        int32_t from = b->cu_seqlens_padded[s], n = 0;
        int32_t real = b->cu_seqlens[s + 1] - b->cu_seqlens[s];
        /* Nothing predicts the first token of a sequence. */
        for (int32_t t = from + 1; t < from + real; t++)
            n += !labels || labels[t] != PP_LABEL_IGNORE;
        if (o->number == PP_OBJECTIVE_REWARD)
            n = 1;
        sum->tokens += n;
        sum->sequences += n > 0;
        pair = (s % 2 ? pair : false) || n > 0;
        sum->pairs += in_pairs && s % 2 && pair;
        sum->chosen += in_pairs && s % 2 == 0 ? n : 0;
    }
}

double pp_metric_combine(enum pp_combine how, double a, double b)
{
    return how == PP_COMBINE_MIN   ? fmin(a, b)
           : how == PP_COMBINE_MAX ? fmax(a, b)
                                   : a + b;
}

double pp_metric_neutral(enum pp_combine how)
{
    return how == PP_COMBINE_MIN   ? HUGE_VAL
           : how == PP_COMBINE_MAX ? -HUGE_VAL
                                   : 0;
}
