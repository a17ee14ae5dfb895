/* SPDX-License-Identifier: MIT */
/* check - checks an open packed directory: checksums, and that the
 * contents of its columns match the index. sections.c has checked the
 * index. */
#include <inttypes.h>
#include <stdlib.h>

#include "data/packed/packed.h"
#include "data/packed/format.h"

static int fail_bin(size_t bin, struct pp_err *err, const char *what,
                    long long value)
{
    return pp_fail(err, PP_EXIT_NO, "bin %zu: %s '%lld'", bin, what, value);
}

int pp_packed_list_files(const struct pp_packed *p, struct pp_file_checks *out,
                         struct pp_err *err)
{
    if (p->owned)
        return 0;
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        if (!p->map[f])
            continue;
        uint64_t sum = pp_packed_column(p, f)->checksum;
        if (pp_file_checks_add(out, p->dir, pp_packed_name(f), p->map[f],
                               p->map_bytes[f], sum, err))
            return -1;
    }
    return 0;
}

int pp_packed_check_files(const struct pp_packed *p, struct pp_err *err)
{
    struct pp_file_checks files = {0};
    int rc = pp_packed_list_files(p, &files, err);
    if (rc == 0)
        rc = pp_file_checks_run(&files, err);
    pp_file_checks_finish(&files);
    return rc;
}

/* Checks checksums. A wrong one is a finding here, not malformed input. */
static int check_sums(const struct pp_packed *p, struct pp_err *err)
{
    if (pp_packed_check_files(p, err) == 0)
        return 0;
    if (err->code == PP_EXIT_INPUT)
        err->code = PP_EXIT_NO;
    return -1;
}

/* Checks ids, labels and padding of sequence i of a bin. Counts scored labels
 * and raises *vocab. */
static int check_sequence(const struct pp_bin *bin, size_t b, uint32_t i,
                          uint32_t *scored, uint32_t *vocab, struct pp_err *err)
{
    int32_t at = bin->cu_seqlens_padded[i], end = bin->cu_seqlens_padded[i + 1];
    int32_t real = at + bin->cu_seqlens[i + 1] - bin->cu_seqlens[i];
    for (int32_t k = at; k < real; k++) {
        int32_t id = bin->input_ids[k], label = bin->labels[k];
        if (id < 0 || id == INT32_MAX)
            return fail_bin(b, err, "invalid token id", id);
        if (label == INT32_MAX || (label < 0 && label != PP_LABEL_IGNORE))
            return fail_bin(b, err, "invalid label", label);
        *vocab = (uint32_t)id >= *vocab ? (uint32_t)id + 1 : *vocab;
        if (label >= 0 && (uint32_t)label >= *vocab)
            *vocab = (uint32_t)label + 1;
        *scored += k > at && label != PP_LABEL_IGNORE;
    }
    for (int32_t k = real; k < end; k++)
        if (bin->input_ids[k] != 0 || bin->labels[k] != PP_LABEL_IGNORE)
            return fail_bin(b, err, "padding must have label -100, not",
                            bin->labels[k]);
    return 0;
}

/* Checks the placeholders of a bin. */
static int check_places(const struct pp_packed *p, const struct pp_bin *bin,
                        size_t b, struct pp_err *err)
{
    for (int m = 0; m < PP_N_MODALITIES; m++) {
        const struct pp_packed_stream *s = &p->streams[m];
        const struct pp_stream_places places = {s->modality, s->token,
                                                PP_EXIT_NO};
        if (pp_stream_exists(s) &&
            pp_packed_check_places(p, &places, b, bin->input_ids, err) != 0)
            return -1;
    }
    return 0;
}

/* Checks the generator's ids and labels of bin b. Raises *vocab. */
static int check_generator(const struct pp_packed *p, size_t b, uint32_t *vocab,
                           struct pp_err *err)
{
    struct pp_bin bin;
    uint32_t scored = 0;
    pp_packed_generator_bin(p, b, &bin);
    for (uint32_t i = 0; i < bin.n_sequences; i++)
        if (check_sequence(&bin, b, i, &scored, vocab, err) != 0)
            return pp_fail_at(err, "generator: ");
    if (scored != bin.scored)
        return fail_bin(b, err,
                        "the count of the generator's scored labels must not "
                        "be",
                        bin.scored);
    return 0;
}

/* Checks the ids and labels of one bin. Raises *vocab. */
static int check_bin_tokens(const struct pp_packed *p, size_t b,
                            uint32_t *vocab, struct pp_err *err)
{
    struct pp_bin bin;
    uint32_t scored = 0;
    pp_packed_bin(p, b, &bin);
    for (uint32_t i = 0; i < bin.n_sequences; i++)
        if (check_sequence(&bin, b, i, &scored, vocab, err) != 0)
            return -1;
    if (check_places(p, &bin, b, err) != 0)
        return -1;
    if (scored != bin.scored)
        return fail_bin(b, err, "the count of scored labels must not be",
                        bin.scored);
    return 0;
}

static int check_bin_contents(const struct pp_packed *p, struct pp_err *err)
{
    uint32_t vocab = 0, generator = 0;
    for (size_t b = 0; b < p->n_bins; b++)
        if (check_bin_tokens(p, b, &vocab, err) != 0 ||
            (pp_packed_has_generator(p) &&
             check_generator(p, b, &generator, err) != 0))
            return -1;
    if (generator != p->generator_vocab)
        return pp_fail(err, PP_EXIT_NO,
                       "index: the generator's vocabulary is '%u', but its ids "
                       "need %u",
                       p->generator_vocab, generator);
    if (vocab != p->vocab)
        return pp_fail(err, PP_EXIT_NO,
                       "index: the vocabulary is '%u', but the ids need %u",
                       p->vocab, vocab);
    return 0;
}

int pp_packed_check(const struct pp_packed *p, struct pp_err *err)
{
    if (check_sums(p, err) != 0)
        return -1;
    return pp_packed_check_cover(p, err) || check_bin_contents(p, err)
               ? pp_fail_at(err, "%s: ", p->dir)
               : 0;
}
