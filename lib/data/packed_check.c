/* SPDX-License-Identifier: MIT */
/* packed_check - whether what a packed directory says of itself is true. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

/* A run of one input's tokens. */
struct input_run {
    uint32_t source, start, length;
};

static int fail_bin(size_t bin, struct pp_err *err, const char *what,
                    long long value)
{
    return pp_fail(err, PP_EXIT_NO, "bin %zu: %s '%lld'", bin, what, value);
}

static int check_sums(const struct pp_packed *p, struct pp_err *err)
{
    if (pp_packed_sum(p->map[PP_PACKED_INDEX], p->map_bytes[PP_PACKED_INDEX]) !=
        p->checksum)
        return pp_fail(err, PP_EXIT_NO, "index: its checksum is wrong");
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (p->map[f] && pp_fnv(PP_FNV_START, p->map[f], p->map_bytes[f]) !=
                             pp_packed_column(p, f)->checksum)
            return pp_fail(err, PP_EXIT_NO, "%s: its checksum is wrong",
                           pp_packed_name(f));
    return pp_packed_check_tokens(p, err);
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
            return fail_bin(b, err, "token id", id);
        if (label == INT32_MAX || (label < 0 && label != PP_LABEL_IGNORE))
            return fail_bin(b, err, "label", label);
        *vocab = (uint32_t)id >= *vocab ? (uint32_t)id + 1 : *vocab;
        if (label >= 0 && (uint32_t)label >= *vocab)
            *vocab = (uint32_t)label + 1;
        *scored += k > at && label != PP_LABEL_IGNORE;
    }
    for (int32_t k = real; k < end; k++)
        if (bin->input_ids[k] != 0 || bin->labels[k] != PP_LABEL_IGNORE)
            return fail_bin(b, err, "padding with label", bin->labels[k]);
    return 0;
}

/* Room for the tokens of a bin where they are not mapped. */
struct bin_tokens {
    int32_t *ids, *labels;
};

/* One bin; its runs, and *vocab raised. */
static int check_bin_tokens(const struct pp_packed *p, size_t b,
                            const struct bin_tokens *room,
                            struct input_run *runs, uint32_t *vocab,
                            struct pp_err *err)
{
    struct pp_bin bin;
    uint32_t scored = 0;
    pp_packed_bin(p, b, &bin);
    if (p->index_only) {
        pp_packed_tokens(p, b, room->ids, room->labels);
        bin.input_ids = room->ids;
        bin.labels = room->labels;
    }
    for (uint32_t i = 0; i < bin.n_sequences; i++) {
        int32_t padded =
            bin.cu_seqlens_padded[i + 1] - bin.cu_seqlens_padded[i];
        if ((uint32_t)padded % p->align != 0)
            return fail_bin(b, err, "unaligned slot of length", padded);
        if (check_sequence(&bin, b, i, &scored, vocab, err) != 0)
            return -1;
        int32_t length = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
        *runs++ =
            (struct input_run){bin.source[i], bin.start[i], (uint32_t)length};
    }
    for (uint32_t g = 0; bin.cu_groups && g < bin.n_groups; g++)
        for (uint32_t i = bin.cu_groups[g] + 1; i < bin.cu_groups[g + 1]; i++)
            if (bin.source[i] != bin.source[i - 1])
                return fail_bin(b, err,
                                "a group of several inputs, one of them",
                                bin.source[i]);
    if (scored != bin.scored)
        return fail_bin(b, err, "wrong count of scored labels", bin.scored);
    return 0;
}

static int check_bin_contents(const struct pp_packed *p,
                              const struct bin_tokens *room,
                              struct input_run *runs, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    uint32_t vocab = 0;
    for (size_t b = 0; b < p->n_bins; b++)
        if (check_bin_tokens(p, b, room, runs + r[b].first_sequence, &vocab,
                             err) != 0)
            return -1;
    if (vocab != p->vocab)
        return pp_fail(err, PP_EXIT_NO,
                       "index: vocabulary '%u' where the ids make it %u",
                       p->vocab, vocab);
    return 0;
}

static int compare_runs(const void *va, const void *vb)
{
    const struct input_run *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

/* No token is packed twice, and of no input that is there a token before the
 * last packed one is missing; *n_there inputs are. */
static int check_runs(struct input_run *runs, size_t n, bool counted,
                      uint64_t *n_there, struct pp_err *err)
{
    qsort(runs, n, sizeof *runs, compare_runs);
    *n_there = 0;
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0 && runs[i].source == runs[i - 1].source;
        uint64_t end =
            same ? (uint64_t)runs[i - 1].start + runs[i - 1].length : 0;
        *n_there += !same;
        if (runs[i].start < end)
            return pp_fail(err, PP_EXIT_NO, "input '%u' is packed twice",
                           runs[i].source);
        if (counted && runs[i].start > end)
            return pp_fail(err, PP_EXIT_NO,
                           "input '%u': tokens before position %u are missing",
                           runs[i].source, runs[i].start);
    }
    return 0;
}

/* What is not there was counted when it was left out. */
static int check_counts(const struct pp_packed *p, uint64_t n_there,
                        struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_input *in = &h->input;
    uint64_t tokens = p->n_tokens + in->dropped_tokens + in->truncated_tokens;
    uint64_t inputs = n_there + in->n_dropped + in->n_empty;
    if (tokens != in->tokens)
        return pp_fail(err, PP_EXIT_NO,
                       "'%" PRIu64 "' tokens of the input, of which %" PRIu64
                       " are packed, dropped or cut off",
                       in->tokens, tokens);
    if (inputs != p->n_inputs)
        return pp_fail(err, PP_EXIT_NO,
                       "'%zu' documents of the input, of which %" PRIu64
                       " are packed, dropped or empty",
                       p->n_inputs, inputs);
    return 0;
}

static int check_contents(const struct pp_packed *p,
                          const struct bin_tokens *room, struct input_run *runs,
                          struct pp_err *err)
{
    bool counted = p->version > 1;
    uint64_t n_there;
    if (check_sums(p, err) != 0 ||
        check_bin_contents(p, room, runs, err) != 0 ||
        check_runs(runs, p->n_sequences, counted, &n_there, err) != 0)
        return -1;
    return counted ? check_counts(p, n_there, err) : 0;
}

int pp_packed_check(const struct pp_packed *p, struct pp_err *err)
{
    size_t bytes, n = p->index_only ? p->max_tokens : 1;
    if (pp_mul(p->n_sequences, sizeof(struct input_run), &bytes, err) != 0)
        return -1;
    struct input_run *runs = malloc(bytes);
    struct bin_tokens room = {calloc(n, sizeof *room.ids),
                              calloc(n, sizeof *room.labels)};
    int rc = -1;
    if (!runs || !room.ids || !room.labels)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else
        rc = check_contents(p, &room, runs, err);
    free(runs);
    free(room.ids);
    free(room.labels);
    return rc;
}
