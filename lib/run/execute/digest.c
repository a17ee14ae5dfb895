/* SPDX-License-Identifier: MIT */
#include "run/execute/digest.h"

#include "base/hash.h"

/* Returns the row of the rank that has token t of the bin; PP_NO_BIN if another
 * rank has it. */
static size_t row_of(const struct pp_digest_rows *r, size_t t)
{
    const int32_t *order = r->host->of.keys.order;
    size_t of_cp = r->host->of.tokens, rows = of_cp / r->tp;
    size_t row = order ? (size_t)order[t] : t;
    size_t first = (order ? r->cp_rank * of_cp : 0) + r->tp_rank * rows;
    return row >= first && row < first + rows ? row - first : PP_NO_BIN;
}

static uint64_t hash_at(const struct pp_digest_rows *r, size_t t, const void *x,
                        size_t bytes)
{
    const uint64_t place[] = {r->bin, t};
    uint64_t h = pp_fnv(PP_FNV_START, place, sizeof place);
    return pp_fnv(h, x, bytes);
}

void pp_digest_rows(uint64_t *sum, const struct pp_digest_rows *r,
                    const void *x, size_t row_bytes)
{
    struct pp_bin b = {0};
    if (r->bin != PP_NO_BIN)
        pp_packed_bin(r->packed, r->bin, &b);
    for (uint32_t i = 0; i < b.n_sequences; i++) {
        size_t t = (size_t)b.cu_seqlens_padded[i];
        size_t end = t + (size_t)(b.cu_seqlens[i + 1] - b.cu_seqlens[i]);
        for (; t < end; t++) {
            size_t row = row_of(r, t);
            if (row != PP_NO_BIN)
                *sum +=
                    hash_at(r, t, (const char *)x + row * row_bytes, row_bytes);
        }
    }
}

/* The labelled rows of a rank ascend, and so do its tokens in the bin. */
void pp_digest_logps(uint64_t *sum, const struct pp_digest_rows *r,
                     const double *logps)
{
    const struct pp_scored_rows *scored = &r->host->of.scored;
    struct pp_bin b = {0};
    size_t k = 0;
    if (r->bin != PP_NO_BIN)
        pp_packed_bin(r->packed, r->bin, &b);
    for (size_t t = 0; t < b.tokens && k < scored->n_labelled; t++)
        if (row_of(r, t) == (size_t)scored->rows[k])
            *sum += hash_at(r, t, &logps[k++], sizeof *logps);
}

void pp_digest_loss(uint64_t *sum, const struct pp_digest_rows *r, double loss)
{
    *sum += hash_at(r, 0, &loss, sizeof loss);
}
