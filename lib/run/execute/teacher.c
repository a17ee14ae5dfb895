/* SPDX-License-Identifier: MIT */
#include "run/execute/teacher.h"

#include <math.h>

#include "run/execute/exec.h"

_Static_assert((int)PP_LONGEST_LIST <= (int)PP_MOST_TOP_K, "the head's room");

static int fail_list(const struct pp_teacher *t, size_t position,
                     const char *what, double value, struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "packed data: bin %zu: the teacher's list at position %zu "
                   "%s '%g'",
                   t->bin, position, what, value);
}

/* Makes the weights of one list of k logits. Returns their entropy, NAN if they
 * are not finite. */
static double soften(const float *logits, size_t k, double *weights)
{
    double max = -INFINITY, sum = 0, entropy = 0;
    for (size_t j = 0; j < k; j++)
        max = fmax(max, (double)logits[j]);
    for (size_t j = 0; j < k; j++)
        sum += weights[j] = exp((double)logits[j] - max);
    for (size_t j = 0; j < k; j++) {
        double log_weight = (double)logits[j] - max - log(sum);
        weights[j] = exp(log_weight);
        entropy -= weights[j] * log_weight;
    }
    return entropy;
}

/* Reads the list at a position of the bin. */
static int read_list(const struct pp_teacher *t, const struct pp_bin *b,
                     size_t position, int32_t *ids, double *weights,
                     double *entropy, struct pp_err *err)
{
    size_t k = b->top_k, at = position * k;
    const float *listed = b->columns[PP_COLUMN_TOPK_IDS] + at;
    for (size_t j = 0; j < k; j++) {
        if (!(listed[j] >= 0 && listed[j] < (float)t->vocab))
            return fail_list(t, position, "has the id", (double)listed[j], err);
        ids[j] = pp_word_here(t->first_word, t->n_words, (int32_t)listed[j]);
    }
    *entropy = soften(b->columns[PP_COLUMN_TOPK_LOGITS] + at, k, weights);
    return isfinite(*entropy)
               ? 0
               : fail_list(t, position, "has logits of entropy", *entropy, err);
}

static int teacher_rows(void *ctx, size_t at, size_t n, int32_t *ids,
                        double *weights, double *entropy, struct pp_err *err)
{
    const struct pp_teacher *t = ctx;
    struct pp_bin b;
    size_t sequence = 0;
    pp_packed_bin(t->packed, t->bin, &b);
    for (size_t i = 0; i < n; i++, ids += b.top_k, weights += b.top_k) {
        size_t position = pp_batch_predicts(&b, t->rows, at + i, &sequence);
        if (read_list(t, &b, position, ids, weights, &entropy[i], err))
            return -1;
    }
    return 0;
}

void pp_teacher_attach(struct pp_teacher *t, const struct pp_pass *p,
                       const struct pp_batch_part *part,
                       const struct pp_batch *b,
                       struct pp_host_microbatch *host)
{
    if (!p->objective || p->objective->number != PP_OBJECTIVE_DISTILL)
        return;
    *t = (struct pp_teacher){.packed = p->packed,
                             .bin = part->bin,
                             .rows = host,
                             .vocab = b->vocab,
                             .first_word = part->first_word,
                             .n_words = part->n_words};
    host->of.teacher =
        (struct pp_head_targets){teacher_rows, t, p->packed->top_k};
}
