/* SPDX-License-Identifier: MIT */
/* objective - the table of objectives, the columns that they read, and their
 * counts. */
#include "run/objectives/objective.h"

const struct pp_objective *const pp_objectives[PP_N_OBJECTIVES] = {
    [PP_OBJECTIVE_SFT] = &pp_objective_sft,
    [PP_OBJECTIVE_DPO] = &pp_objective_dpo,
    [PP_OBJECTIVE_GRPO] = &pp_objective_grpo,
    [PP_OBJECTIVE_DISTILL] = &pp_objective_distill,
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
