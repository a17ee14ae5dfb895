/* SPDX-License-Identifier: MIT */
/* fuzz_scores - reads any bytes as the lines of ppscore --logprobs. They are
 * refused with the name of the file, or give every token a number, or as many
 * ids as every other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Makes two documents of three and of two tokens, and one without any. */
static void make_documents(struct pp_documents *d)
{
    static const size_t lengths[] = {3, 2, 0};
    struct pp_err err = {0};
    for (size_t i = 0; i < 3; i++) {
        int32_t *ids = pp_documents_reserve(d, lengths[i] + 1, &err);
        if (!ids)
            abort();
        memset(ids, 0, lengths[i] * sizeof *ids);
        if (pp_documents_add(d, lengths[i], NULL, &err) != 0)
            abort();
    }
}

static void check(const struct pp_documents *d, bool lists)
{
    enum { TOKENS = 5 };
    const float *logprobs = d->columns[PP_COLUMN_LOGPROBS];
    const float *ids = d->columns[PP_COLUMN_TOPK_IDS];
    for (size_t i = 0; !lists && i < TOKENS; i++)
        if (!isfinite(logprobs[i]))
            abort();
    for (size_t i = 0; lists && i < TOKENS * d->top_k; i++)
        if (ids[i] < -1 || ids[i] >= PP_LISTED_IDS ||
            !isfinite(d->columns[PP_COLUMN_TOPK_LOGITS][i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    for (int lists = 0; lists < 2; lists++) {
        struct pp_documents d = {0};
        struct pp_err err = {0};
        make_documents(&d);
        FILE *f = fmemopen((void *)(size_t)data, n, "r");
        if (!f)
            abort();
        int rc =
            lists ? pp_top_k_scores_read("in", f, &d, &err)
                  : pp_token_scores_read("in", f, PP_COLUMN_LOGPROBS, &d, &err);
        if (rc == 0)
            check(&d, lists);
        else if (err.code != PP_EXIT_INPUT || strncmp(err.text, "in: ", 4) != 0)
            abort();
        fclose(f);
        pp_documents_finish(&d);
    }
    return 0;
}
