/* SPDX-License-Identifier: MIT */
/* packed_check - checks a packed directory: first that no number of the index
 * leads out of its file, then, for pp_packed_check, that its contents are
 * true. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "data/packed.h"
#include "data/packed_format.h"

static int fail_index(struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: %s", what);
}

static int check_header(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    size_t bytes = p->map_bytes[PP_PACKED_INDEX];
    if (bytes < sizeof h->magic ||
        memcmp(h->magic, PP_PACKED_MAGIC, sizeof h->magic) != 0)
        return fail_index(err, "not the index of a packed directory");
    if (bytes < offsetof(struct pp_packed_header, checksum))
        return fail_index(err, "cut short");
    if (h->version > PP_PACKED_VERSION)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: version '%u' needs a newer pptools, this one "
                       "reads %d",
                       h->version, PP_PACKED_VERSION);
    if (h->version < 1)
        return fail_index(err, "version '0' does not exist");
    size_t expected = h->version == 1 ? PP_PACKED_HEADER_1 : sizeof *h;
    if (bytes < expected)
        return fail_index(err, "cut short");
    if (h->header_bytes != expected)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the header must not have '%u' bytes",
                       h->header_bytes);
    if (h->index_bytes != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: has '%zu' bytes, but its header says %llu",
                       bytes, (unsigned long long)h->index_bytes);
    if (!h->n_bins || h->n_sequences > UINT32_MAX ||
        h->n_bins > h->n_sequences || h->n_inputs > UINT32_MAX || !h->align ||
        h->capacity > INT32_MAX || h->vocab > INT32_MAX)
        return fail_index(err, "the header's counts are impossible");
    return 0;
}

/* Finds the section of n elements at offset at. */
static int find_section(struct pp_packed *p, int which, uint64_t at, uint64_t n,
                        size_t size, struct pp_err *err)
{
    size_t bytes, end;
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (at % 8 || at < h->header_bytes ||
        __builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(at, bytes, &end) ||
        end > p->map_bytes[PP_PACKED_INDEX])
        return fail_index(err, "a section is outside the file");
    p->sections[which] = (const char *)p->map[PP_PACKED_INDEX] + at;
    return 0;
}

static int find_first_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    uint64_t n_cu = h->n_sequences + h->n_bins;
    if (find_section(p, PP_SECTION_COLUMNS, h->columns, h->n_columns,
                     sizeof(struct pp_packed_column), err) != 0 ||
        find_section(p, PP_SECTION_BINS, h->bins, h->n_bins,
                     sizeof(struct pp_packed_record), err) != 0 ||
        find_section(p, PP_SECTION_CU, h->cu_seqlens, n_cu, 4, err) != 0 ||
        find_section(p, PP_SECTION_CU_PADDED, h->cu_seqlens_padded, n_cu, 4,
                     err) != 0 ||
        find_section(p, PP_SECTION_SOURCE, h->source, h->n_sequences, 4, err) !=
            0 ||
        find_section(p, PP_SECTION_START, h->start, h->n_sequences, 4, err) !=
            0)
        return -1;
    return 0;
}

/* Finds the optional sections that version 1 does not have. */
static int find_further_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (h->version == 1)
        return 0;
    if (h->kind >= PP_DATA_N_KINDS || h->n_groups > h->n_sequences ||
        !h->first_group != !h->cu_groups)
        return fail_index(err, "the header's groups are impossible");
    if (h->first_group &&
        (find_section(p, PP_SECTION_FIRST_GROUP, h->first_group, h->n_bins, 8,
                      err) != 0 ||
         find_section(p, PP_SECTION_CU_GROUPS, h->cu_groups,
                      h->n_groups + h->n_bins, 4, err) != 0))
        return -1;
    if (!h->token_files)
        return 0;
    if (find_section(p, PP_SECTION_TOKEN_FILES, h->token_files,
                     h->n_token_files, sizeof(struct pp_packed_token_file),
                     err) != 0 ||
        find_section(p, PP_SECTION_TOKEN_FILE, h->token_file, h->n_sequences, 4,
                     err) != 0 ||
        find_section(p, PP_SECTION_TOKEN_AT, h->token_at, h->n_sequences, 8,
                     err) != 0)
        return -1;
    return 0;
}

int pp_packed_find_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (check_header(p, err) != 0 || find_first_sections(p, err) != 0 ||
        find_further_sections(p, err) != 0)
        return -1;
    p->version = h->version;
    p->n_bins = h->n_bins;
    p->n_sequences = h->n_sequences;
    p->n_inputs = h->n_inputs;
    p->n_tokens = h->n_tokens;
    p->n_positions = h->n_positions;
    p->capacity = h->capacity;
    p->align = h->align;
    p->max_tokens = h->max_tokens;
    p->max_seqlen = h->max_seqlen;
    p->vocab = h->vocab;
    p->checksum = h->checksum;
    p->n_groups = h->n_sequences;
    if (h->version > 1) {
        p->n_groups = h->n_groups;
        p->kind = (enum pp_data_kind)h->kind;
        p->index_only = h->token_files != 0;
    }
    return 0;
}

static int fail_index_bin(size_t b, struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: bin %zu: %s", b, what);
}

/* Checks the cu arrays of one bin. Differences are in 64 bits, since the arrays
 * may still hold any value. */
static int check_lengths(const struct pp_packed *p, size_t b,
                         const struct pp_packed_record *r, struct pp_err *err)
{
    const int32_t *cu =
        (const int32_t *)p->sections[PP_SECTION_CU] + r->first_sequence + b;
    const int32_t *padded = (const int32_t *)p->sections[PP_SECTION_CU_PADDED] +
                            r->first_sequence + b;
    int64_t longest = 0;
    if (cu[0] != 0 || padded[0] != 0)
        return fail_index_bin(b, err, "cu_seqlens must begin with 0");
    for (uint32_t i = 0; i < r->n_sequences; i++) {
        int64_t length = (int64_t)cu[i + 1] - cu[i];
        int64_t padded_length = (int64_t)padded[i + 1] - padded[i];
        if (length < 1 || padded_length < length)
            return fail_index_bin(
                b, err,
                "cu_seqlens must rise and stay inside cu_seqlens_padded");
        longest = padded_length > longest ? padded_length : longest;
    }
    if ((uint32_t)cu[r->n_sequences] != r->real ||
        (uint32_t)padded[r->n_sequences] != r->tokens ||
        longest != r->max_seqlen)
        return fail_index_bin(b, err,
                              "cu_seqlens does not match the bin's counts");
    return 0;
}

/* Checks that a bin's groups are not empty and cover its sequences. */
static int check_groups(const struct pp_packed *p, size_t b,
                        const struct pp_packed_record *r, uint64_t first,
                        struct pp_err *err)
{
    const uint64_t *first_group = p->sections[PP_SECTION_FIRST_GROUP];
    const uint32_t *cu = p->sections[PP_SECTION_CU_GROUPS];
    if (!first_group)
        return r->n_groups == r->n_sequences
                   ? 0
                   : fail_index_bin(b, err,
                                    "must have as many groups as sequences");
    if (first_group[b] != first || r->n_groups > p->n_groups - first)
        return fail_index_bin(
            b, err, "its groups must follow those of the previous bin");
    cu += first + b;
    for (uint32_t g = 0; g < r->n_groups; g++)
        if (cu[g + 1] <= cu[g])
            return fail_index_bin(b, err, "cu_groups must rise");
    return cu[0] == 0 && cu[r->n_groups] == r->n_sequences
               ? 0
               : fail_index_bin(b, err,
                                "cu_groups does not match the bin's counts");
}

static int check_bin_records(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    uint64_t sequences = 0, positions = 0, tokens = 0, groups = 0;
    uint32_t max_tokens = 0, max_seqlen = 0;
    for (size_t b = 0; b < p->n_bins; b++, r++) {
        if (r->first_sequence != sequences || r->first_position != positions)
            return fail_index_bin(b, err,
                                  "must begin where the previous bin ends");
        if (r->n_sequences < 1 || r->n_sequences > p->n_sequences - sequences ||
            r->tokens > p->capacity || r->scored > r->real ||
            r->n_groups > r->n_sequences)
            return fail_index_bin(b, err, "impossible counts");
        if (check_lengths(p, b, r, err) != 0 ||
            check_groups(p, b, r, groups, err) != 0)
            return -1;
        groups += r->n_groups;
        sequences += r->n_sequences;
        positions += r->tokens;
        tokens += r->real;
        max_tokens = r->tokens > max_tokens ? r->tokens : max_tokens;
        max_seqlen = r->max_seqlen > max_seqlen ? r->max_seqlen : max_seqlen;
    }
    if (sequences != p->n_sequences || positions != p->n_positions ||
        tokens != p->n_tokens || groups != p->n_groups ||
        max_tokens != p->max_tokens || max_seqlen != p->max_seqlen)
        return fail_index(err, "the bins do not match the header's counts");
    return 0;
}

static int check_sources(const struct pp_packed *p, struct pp_err *err)
{
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    for (size_t i = 0; i < p->n_sequences; i++)
        if (source[i] >= p->n_inputs)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: source '%u' must be below %zu",
                           i, source[i], p->n_inputs);
    return 0;
}

static int check_token_files(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const uint32_t *file = p->sections[PP_SECTION_TOKEN_FILE];
    for (size_t i = 0; p->index_only && i < p->n_sequences; i++)
        if (file[i] >= h->n_token_files)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: there is no token file '%u'",
                           i, file[i]);
    return 0;
}

int pp_packed_check_sections(const struct pp_packed *p, struct pp_err *err)
{
    if (check_bin_records(p, err) != 0 || check_sources(p, err) != 0)
        return -1;
    return check_token_files(p, err);
}

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
        return pp_fail(err, PP_EXIT_NO, "index: wrong checksum");
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (p->map[f] && pp_fnv(PP_FNV_START, p->map[f], p->map_bytes[f]) !=
                             pp_packed_column(p, f)->checksum)
            return pp_fail(err, PP_EXIT_NO, "%s: wrong checksum",
                           pp_packed_name(f));
    return pp_packed_check_tokens(p, err);
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

/* Scratch for the tokens of a bin that are not mapped as columns. */
struct bin_tokens {
    int32_t *ids, *labels;
};

/* Checks one bin. Stores its runs and raises *vocab. */
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
            return fail_bin(b, err, "unaligned sequence of padded length",
                            padded);
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
                                "a group must be of one input, not also of",
                                bin.source[i]);
    if (scored != bin.scored)
        return fail_bin(b, err, "the count of scored labels must not be",
                        bin.scored);
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
                       "index: the vocabulary is '%u', but the ids need %u",
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

/* Checks that no token is packed twice, and that no packed input lacks a token
 * before its last packed one. *n_there is the number of packed inputs. */
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

/* Checks that all tokens and documents are packed or counted as left out. */
static int check_counts(const struct pp_packed *p, uint64_t n_there,
                        struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_input *in = &h->input;
    uint64_t tokens = p->n_tokens + in->dropped_tokens + in->truncated_tokens;
    uint64_t inputs = n_there + in->n_dropped + in->n_empty;
    if (tokens != in->tokens)
        return pp_fail(err, PP_EXIT_NO,
                       "the input has '%" PRIu64 "' tokens, but %" PRIu64
                       " are packed, dropped or cut off",
                       in->tokens, tokens);
    if (inputs != p->n_inputs)
        return pp_fail(err, PP_EXIT_NO,
                       "the input has '%zu' documents, but %" PRIu64
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
