/* SPDX-License-Identifier: MIT */
/* packed_check - whether what a packed directory says of itself is true. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

/* A run of one input's tokens. */
struct run {
    uint32_t source, start, length;
};

static int no(size_t bin, struct pp_err *err, const char *what, long long value)
{
    return pp_fail(err, PP_EXIT_NO, "bin %zu: %s '%lld'", bin, what, value);
}

static int check_sums(const struct pp_packed *p, struct pp_err *err)
{
    if (pp_packed_sum(p->map[PP_PACKED_INDEX], p->map_bytes[PP_PACKED_INDEX]) !=
        p->checksum)
        return pp_fail(err, PP_EXIT_NO, "index: its checksum is wrong");
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (pp_fnv(PP_FNV_START, p->map[f], p->map_bytes[f]) !=
            pp_packed_column(p, f)->checksum)
            return pp_fail(err, PP_EXIT_NO, "%s: its checksum is wrong",
                           pp_packed_files[f]);
    return 0;
}

/* Sequence i of a bin: ids, labels and padding; counts what is scored and
 * raises *vocab. */
static int check_sequence(const struct pp_bin *bin, size_t b, uint32_t i,
                          uint32_t *scored, uint32_t *vocab, struct pp_err *err)
{
    int32_t at = bin->cu_seqlens_padded[i], end = bin->cu_seqlens_padded[i + 1];
    int32_t real = at + bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
    for (int32_t k = at; k < real; k++) {
        int32_t id = bin->input_ids[k], label = bin->labels[k];
        if (id < 0 || id == INT32_MAX)
            return no(b, err, "token id", id);
        if (label == INT32_MAX || (label < 0 && label != PP_LABEL_IGNORE))
            return no(b, err, "label", label);
        *vocab = (uint32_t)id >= *vocab ? (uint32_t)id + 1 : *vocab;
        if (label >= 0 && (uint32_t)label >= *vocab)
            *vocab = (uint32_t)label + 1;
        *scored += k > at && label != PP_LABEL_IGNORE;
    }
    for (int32_t k = real; k < end; k++)
        if (bin->input_ids[k] != 0 || bin->labels[k] != PP_LABEL_IGNORE)
            return no(b, err, "padding with label", bin->labels[k]);
    return 0;
}

static int check_bins(const struct pp_packed *p, struct run *runs,
                      struct pp_err *err)
{
    uint32_t vocab = 0;
    for (size_t b = 0; b < p->n_bins; b++) {
        struct pp_bin bin;
        uint32_t scored = 0;
        pp_packed_bin(p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t slot =
                bin.cu_seqlens_padded[i + 1] - bin.cu_seqlens_padded[i];
            if ((uint32_t)slot % p->align != 0)
                return no(b, err, "unaligned slot of length", slot);
            if (check_sequence(&bin, b, i, &scored, &vocab, err) != 0)
                return -1;
            int32_t length = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            *runs++ =
                (struct run){bin.source[i], bin.start[i], (uint32_t)length};
        }
        if (scored != bin.scored)
            return no(b, err, "wrong count of scored labels", bin.scored);
    }
    if (vocab != p->vocab)
        return pp_fail(err, PP_EXIT_NO,
                       "index: vocabulary '%u' where the ids make it %u",
                       p->vocab, vocab);
    return 0;
}

static int compare_runs(const void *va, const void *vb)
{
    const struct run *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static int check_once(struct run *runs, size_t n, struct pp_err *err)
{
    qsort(runs, n, sizeof *runs, compare_runs);
    for (size_t i = 1; i < n; i++)
        if (runs[i].source == runs[i - 1].source &&
            runs[i].start < (uint64_t)runs[i - 1].start + runs[i - 1].length)
            return pp_fail(err, PP_EXIT_NO, "input '%u' is packed twice",
                           runs[i].source);
    return 0;
}

int pp_packed_check(const struct pp_packed *p, struct pp_err *err)
{
    size_t bytes;
    if (pp_mul(p->n_sequences, sizeof(struct run), &bytes, err) != 0)
        return -1;
    struct run *runs = malloc(bytes);
    if (!runs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    int rc = -1;
    if (check_sums(p, err) == 0 && check_bins(p, runs, err) == 0)
        rc = check_once(runs, p->n_sequences, err);
    free(runs);
    return rc;
}
