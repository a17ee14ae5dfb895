/* SPDX-License-Identifier: MIT */
/* packed_sections - finds the sections of an index and checks every number in
 * it against the others, in a few passes over the sequences. The columns are
 * not read; packed_check.c compares the index with them. */
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

uint32_t pp_packed_header_bytes(uint32_t version)
{
    static const uint32_t bytes[] = {0,
                                     PP_PACKED_HEADER_1,
                                     PP_PACKED_HEADER_2,
                                     PP_PACKED_HEADER_3,
                                     PP_PACKED_HEADER_4,
                                     PP_PACKED_HEADER_5,
                                     PP_PACKED_HEADER_5,
                                     PP_PACKED_HEADER_7,
                                     PP_PACKED_HEADER_4,
                                     sizeof(struct pp_packed_header)};
    return bytes[version];
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
    size_t expected = pp_packed_header_bytes(h->version);
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
    if (pp_packed_sum(h, bytes) != h->checksum)
        return fail_index(err, "wrong checksum: the file is damaged");
    if (!h->n_bins || h->n_sequences > UINT32_MAX ||
        h->n_bins > h->n_sequences || h->n_inputs > UINT32_MAX || !h->align ||
        h->capacity > INT32_MAX || h->align > INT32_MAX || h->vocab > INT32_MAX)
        return fail_index(err, "the header's counts are impossible");
    if (h->version >= 3 && h->epoch_block > h->n_bins)
        return fail_index(err, "the header's order of epochs is impossible");
    return 0;
}

/* Returns the offset of a section that was found. */
static uint64_t section_offset(const struct pp_packed *p, int which)
{
    return (uint64_t)((const char *)p->sections[which] -
                      (const char *)p->map[PP_PACKED_INDEX]);
}

int pp_packed_find_section(struct pp_packed *p, int which, uint64_t at,
                           uint64_t n, size_t size, struct pp_err *err)
{
    size_t bytes, end;
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (at % 8 || at < h->header_bytes ||
        __builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(at, bytes, &end) ||
        end > p->map_bytes[PP_PACKED_INDEX])
        return fail_index(err, "a section is outside the file");
    for (int s = 0; s < PP_N_SECTIONS; s++) {
        uint64_t other = section_offset(p, s);
        if (p->sections[s] && bytes && at < other + p->section_bytes[s] &&
            other < end)
            return fail_index(err, "two sections overlap");
    }
    p->sections[which] = (const char *)p->map[PP_PACKED_INDEX] + at;
    p->section_bytes[which] = bytes;
    return 0;
}

static int find_first_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    uint64_t n_cu = h->n_sequences + h->n_bins;
    if (pp_packed_find_section(p, PP_SECTION_COLUMNS, h->columns, h->n_columns,
                               sizeof(struct pp_packed_column), err) != 0 ||
        pp_packed_find_section(p, PP_SECTION_BINS, h->bins, h->n_bins,
                               sizeof(struct pp_packed_record), err) != 0 ||
        pp_packed_find_section(p, PP_SECTION_CU, h->cu_seqlens, n_cu, 4, err) !=
            0 ||
        pp_packed_find_section(p, PP_SECTION_CU_PADDED, h->cu_seqlens_padded,
                               n_cu, 4, err) != 0 ||
        pp_packed_find_section(p, PP_SECTION_SOURCE, h->source, h->n_sequences,
                               4, err) != 0 ||
        pp_packed_find_section(p, PP_SECTION_START, h->start, h->n_sequences, 4,
                               err) != 0)
        return -1;
    return 0;
}

/* Finds the optional sections that version 1 does not have. */
static int find_further_sections(struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    if (h->version == 1)
        return 0;
    if (h->kind >= PP_DATA_N_KINDS || h->n_groups < h->n_bins ||
        h->n_groups > h->n_sequences || !h->first_group != !h->cu_groups)
        return fail_index(err, "the header's groups are impossible");
    if (h->first_group &&
        (pp_packed_find_section(p, PP_SECTION_FIRST_GROUP, h->first_group,
                                h->n_bins, 8, err) != 0 ||
         pp_packed_find_section(p, PP_SECTION_CU_GROUPS, h->cu_groups,
                                h->n_groups + h->n_bins, 4, err) != 0))
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
    p->checksum =
        (struct pp_checksum){pp_packed_checksum_kind(h->version), h->checksum};
    p->n_groups = h->n_sequences;
    if (h->version > 1) {
        p->n_groups = h->n_groups;
        p->kind = (enum pp_data_kind)h->kind;
    }
    if (h->version > 2)
        p->epoch = (struct pp_epoch_order){h->epoch_block, h->epoch_seed, 0};
    if (pp_packed_find_generator(p, err) != 0 ||
        pp_packed_find_streams(p, err) != 0)
        return -1;
    bool ranks = h->version == 5 || (pp_packed_has_generator(p) && h->ranks);
    return ranks ? pp_packed_find_ranks(p, err) : 0;
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
        if (length < 1 || padded_length < length || padded_length > INT32_MAX)
            return fail_index_bin(
                b, err,
                "cu_seqlens must rise and stay inside cu_seqlens_padded");
        if (p->align > 1 && (uint32_t)padded_length % p->align != 0)
            return fail_index_bin(
                b, err, "a sequence's positions are no multiple of align");
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
    if (cu[0] != 0 || cu[r->n_groups] != r->n_sequences)
        return fail_index_bin(b, err,
                              "cu_groups does not match the bin's counts");
    const uint32_t *source =
        (const uint32_t *)p->sections[PP_SECTION_SOURCE] + r->first_sequence;
    for (uint32_t g = 0; g < r->n_groups; g++)
        for (uint32_t i = cu[g] + 1; i < cu[g + 1]; i++)
            if (source[i] != source[i - 1])
                return fail_index_bin(b, err,
                                      "a group must be of one document");
    return 0;
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
            r->tokens > p->capacity || r->real < r->n_sequences ||
            r->scored > r->real - r->n_sequences ||
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

/* Sequences are sorted if a table of all documents up to the last one would
 * have so many elements for each of them: the index says how many there are. */
enum { SPARSE = 64 };

/* Counts about the documents that are packed. */
struct packed_inputs {
    uint32_t *end; /* token after the last packed one of each; 0: absent */
    size_t n;      /* elements of end */
    uint64_t n_packed;
};

/* Checks that sources are documents and that starts are inside the longest
 * possible document. Counts the elements that in->end needs. */
static int check_starts(const struct pp_packed *p, struct packed_inputs *in,
                        struct pp_err *err)
{
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    const uint32_t *start = p->sections[PP_SECTION_START];
    uint32_t last = 0;
    for (size_t i = 0; i < p->n_sequences; i++) {
        if (source[i] >= p->n_inputs)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: source '%u' must be below %zu",
                           i, source[i], p->n_inputs);
        if (start[i] >= p->n_tokens)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: start '%u' must be below the "
                           "number of tokens",
                           i, start[i]);
        last = source[i] > last ? source[i] : last;
    }
    in->n = (size_t)last + 1;
    return 0;
}

/* Returns a hash of a token of a document. */
static uint64_t hash_place(uint32_t source, uint32_t at)
{
    uint64_t x = ((uint64_t)source << 32 | at) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* Returns whether the sequences of each document cover its tokens from 0 on,
 * each once: then every start but 0 is the end of a sequence of the same
 * document, and every end but the last is a start. Sums of hashes compare the
 * two multisets, since sorting ten million sequences takes seconds. Counts the
 * documents. */
static bool covers_inputs(const struct pp_packed *p, struct packed_inputs *in)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    const int32_t *cu = p->sections[PP_SECTION_CU];
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    const uint32_t *start = p->sections[PP_SECTION_START];
    uint64_t sum = 0, n_begun = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t b = 0, s = 0; b < p->n_bins; b++)
            for (uint32_t i = 0; i < r[b].n_sequences; i++, s++) {
                const int32_t *at = cu + s + b;
                uint64_t end = (uint64_t)start[s] + (uint32_t)(at[1] - at[0]);
                uint32_t *last = &in->end[source[s]];
                if (end > UINT32_MAX)
                    return false;
                if (pass == 0) {
                    *last = end > *last ? (uint32_t)end : *last;
                    n_begun += start[s] == 0;
                    sum += start[s] ? hash_place(source[s], start[s]) : 0;
                } else if (end == *last) {
                    *last = 0;
                    in->n_packed++;
                } else {
                    sum -= hash_place(source[s], (uint32_t)end);
                }
            }
    return sum == 0 && n_begun == in->n_packed;
}

/* A run of one input's tokens. */
struct input_run {
    uint32_t source, start, length;
};

static int compare_runs(const void *va, const void *vb)
{
    const struct input_run *a = va, *b = vb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

/* Checks runs in order, to name the document that is not covered. Counts the
 * documents. */
static int check_runs(const struct input_run *runs, size_t n,
                      uint64_t *n_packed, struct pp_err *err)
{
    *n_packed = 0;
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0 && runs[i].source == runs[i - 1].source;
        *n_packed += !same;
        uint64_t end =
            same ? (uint64_t)runs[i - 1].start + runs[i - 1].length : 0;
        if (runs[i].start < end)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: input '%u' is packed twice", runs[i].source);
        if (runs[i].start > end)
            return pp_fail(
                err, PP_EXIT_INPUT,
                "index: input '%u': tokens before position %u are missing",
                runs[i].source, runs[i].start);
        if ((uint64_t)runs[i].start + runs[i].length > UINT32_MAX)
            return fail_index(err, "a document is too long");
    }
    return 0;
}

/* Does the work of pp_packed_check_cover. */
static int check_sorted(const struct pp_packed *p, uint64_t *n_packed,
                        struct pp_err *err)
{
    size_t bytes, s = 0;
    struct pp_bin bin;
    if (pp_mul(p->n_sequences, sizeof(struct input_run), &bytes, err) != 0)
        return -1;
    struct input_run *runs = malloc(bytes);
    if (!runs)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    for (size_t b = 0; b < p->n_bins; b++) {
        pp_packed_bin(p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            runs[s++] =
                (struct input_run){bin.source[i], bin.start[i], (uint32_t)n};
        }
    }
    qsort(runs, s, sizeof *runs, compare_runs);
    int rc = check_runs(runs, s, n_packed, err);
    free(runs);
    return rc;
}

int pp_packed_check_cover(const struct pp_packed *p, struct pp_err *err)
{
    uint64_t n_packed;
    return check_sorted(p, &n_packed, err);
}

static int check_inputs(const struct pp_packed *p, struct packed_inputs *in,
                        struct pp_err *err)
{
    if (check_starts(p, in, err) != 0)
        return -1;
    if (in->n / SPARSE > p->n_sequences)
        return check_sorted(p, &in->n_packed, err);
    in->end = calloc(in->n, sizeof *in->end);
    if (!in->end)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    bool covered = covers_inputs(p, in);
    free(in->end);
    in->end = NULL;
    return covered ? 0 : check_sorted(p, &in->n_packed, err);
}

/* Checks that all tokens and documents are packed or counted as left out. */
static int check_input_counts(const struct pp_packed *p, uint64_t n_packed,
                              struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_input *in = &h->input;
    uint64_t tokens, inputs;
    if (p->version == 1)
        return 0;
    if (__builtin_add_overflow(p->n_tokens, in->dropped_tokens, &tokens) ||
        __builtin_add_overflow(tokens, in->truncated_tokens, &tokens) ||
        tokens != in->tokens)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the input has '%" PRIu64 "' tokens, but %" PRIu64
                       " are packed, dropped or cut off",
                       in->tokens, tokens);
    if (__builtin_add_overflow(n_packed, in->n_dropped, &inputs) ||
        __builtin_add_overflow(inputs, in->n_empty, &inputs) ||
        inputs != p->n_inputs)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: the input has '%zu' documents, but %" PRIu64
                       " are packed, dropped or empty",
                       p->n_inputs, inputs);
    if (in->n_dropped > in->dropped_tokens ||
        (in->dropped_tokens && !in->n_dropped) ||
        (in->truncated_tokens && !in->n_truncated) || in->n_split > n_packed)
        return fail_index(err, "the counts of the input are impossible");
    return 0;
}

int pp_packed_check_sections(const struct pp_packed *p, struct pp_err *err)
{
    struct packed_inputs in = {0};
    if (check_bin_records(p, err) != 0 || check_inputs(p, &in, err) != 0 ||
        check_input_counts(p, in.n_packed, err) != 0)
        return -1;
    if (pp_packed_check_streams(p, err) != 0 ||
        pp_packed_check_generator(p, err) != 0)
        return -1;
    return pp_packed_check_ranks(p, err);
}
