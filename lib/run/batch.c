/* SPDX-License-Identifier: MIT */
#include "run/batch.h"

#include <stdlib.h>
#include <string.h>

int pp_batch_init(struct pp_batch *b, size_t max_tokens, size_t vocab,
                  struct pp_err *err)
{
    memset(b, 0, sizeof *b);
    size_t n = max_tokens ? max_tokens : 1;
    b->max_tokens = max_tokens;
    b->vocab = (int32_t)vocab;
    b->positions = calloc(n, sizeof *b->positions);
    b->input_ids = calloc(n, sizeof *b->input_ids);
    b->scored_rows = calloc(n, sizeof *b->scored_rows);
    b->targets = calloc(n, sizeof *b->targets);
    b->logps = calloc(n, sizeof *b->logps);
    b->ids = calloc(n, sizeof *b->ids);
    b->labels = calloc(n, sizeof *b->labels);
    if (!b->positions || !b->input_ids || !b->scored_rows || !b->targets ||
        !b->logps || !b->ids || !b->labels)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    return 0;
}

void pp_batch_finish(struct pp_batch *b)
{
    free(b->positions);
    free(b->input_ids);
    free(b->scored_rows);
    free(b->targets);
    free(b->logps);
    free(b->ids);
    free(b->labels);
    memset(b, 0, sizeof *b);
}

static bool is_token(const struct pp_batch *b, int32_t id)
{
    return id >= 0 && id < b->vocab;
}

/* One sequence: real rows [start, start + n), padding up to end. False with
 * *bad at an id that is no token. */
static bool view_sequence(struct pp_batch *b, const struct pp_bin *bin,
                          int32_t start, int32_t n, int32_t end, bool score_all,
                          size_t *n_scored, int32_t *bad)
{
    for (int32_t t = start; t < end; t++) {
        bool real = t < start + n;
        b->positions[t] = t - start;
        b->input_ids[t] = real ? bin->input_ids[t] : -1;
        if (real && !is_token(b, *bad = bin->input_ids[t]))
            return false;
        if (t + 1 >= start + n)
            continue;
        int32_t target = score_all ? bin->input_ids[t + 1] : bin->labels[t + 1];
        if (target == PP_LABEL_IGNORE)
            continue;
        if (!is_token(b, *bad = target))
            return false;
        b->scored_rows[*n_scored] = t;
        b->targets[*n_scored] = target;
        (*n_scored)++;
    }
    return true;
}

int pp_batch_view(struct pp_batch *b, const struct pp_packed *p, size_t bin,
                  bool score_all, struct pp_microbatch *mb, struct pp_err *err)
{
    struct pp_bin v = {.cu_seqlens = b->empty, .cu_seqlens_padded = b->empty};
    if (bin != PP_NO_BIN)
        pp_packed_bin(p, bin, &v);
    if (bin != PP_NO_BIN && p->index_only) {
        pp_packed_tokens(p, bin, b->ids, b->labels);
        v.input_ids = b->ids;
        v.labels = b->labels;
    }
    size_t n_scored = 0;
    int32_t bad;
    for (uint32_t i = 0; i < v.n_sequences; i++)
        if (!view_sequence(b, &v, v.cu_seqlens_padded[i],
                           v.cu_seqlens[i + 1] - v.cu_seqlens[i],
                           v.cu_seqlens_padded[i + 1], score_all, &n_scored,
                           &bad))
            return pp_fail(err, PP_EXIT_INPUT,
                           "packed data: bin %zu: id '%d' is not in the "
                           "vocabulary of %d",
                           bin, bad, b->vocab);
    *mb = (struct pp_microbatch){
        .tokens = v.tokens,
        .n_sequences = v.n_sequences,
        .max_seqlen = v.max_seqlen,
        .cu_seqlens = v.cu_seqlens,
        .cu_seqlens_padded = v.cu_seqlens_padded,
        .positions = b->positions,
        .input_ids = b->input_ids,
        .n_scored = n_scored,
        .scored_rows = b->scored_rows,
        .targets = b->targets,
    };
    return 0;
}
