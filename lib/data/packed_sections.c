/* SPDX-License-Identifier: MIT */
/* packed_sections - what an index says of itself, before anything is believed
 * of it. */
#include "data/packed_format.h"

#include <string.h>

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
        return fail_index(err, "version '0' is not a version");
    size_t expected = h->version == 1 ? PP_PACKED_HEADER_1 : sizeof *h;
    if (bytes < expected)
        return fail_index(err, "cut short");
    if (h->header_bytes != expected)
        return pp_fail(err, PP_EXIT_INPUT, "index: header of '%u' bytes",
                       h->header_bytes);
    if (h->index_bytes != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%zu' bytes where its header says %llu", bytes,
                       (unsigned long long)h->index_bytes);
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
        return fail_index(err, "a section lies outside the file");
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

/* Those that version 1 has not, where they are there. */
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

/* The cu arrays of one bin. Differences are taken in 64 bits: the arrays may
 * hold anything yet. */
static int check_lengths(const struct pp_packed *p, size_t b,
                         const struct pp_packed_record *r, struct pp_err *err)
{
    const int32_t *cu =
        (const int32_t *)p->sections[PP_SECTION_CU] + r->first_sequence + b;
    const int32_t *padded = (const int32_t *)p->sections[PP_SECTION_CU_PADDED] +
                            r->first_sequence + b;
    int64_t longest = 0;
    if (cu[0] != 0 || padded[0] != 0)
        return fail_index_bin(b, err, "cu_seqlens does not begin at 0");
    for (uint32_t i = 0; i < r->n_sequences; i++) {
        int64_t length = (int64_t)cu[i + 1] - cu[i];
        int64_t padded_length = (int64_t)padded[i + 1] - padded[i];
        if (length < 1 || padded_length < length)
            return fail_index_bin(b, err,
                                  "cu_seqlens does not rise inside its slots");
        longest = padded_length > longest ? padded_length : longest;
    }
    if ((uint32_t)cu[r->n_sequences] != r->real ||
        (uint32_t)padded[r->n_sequences] != r->tokens ||
        longest != r->max_seqlen)
        return fail_index_bin(b, err,
                              "cu_seqlens contradicts the bin's counts");
    return 0;
}

/* A bin's groups: each has a sequence, and no other is between them. */
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
                                    "as many groups as sequences belong");
    if (first_group[b] != first || r->n_groups > p->n_groups - first)
        return fail_index_bin(b, err, "its groups do not follow those before");
    cu += first + b;
    for (uint32_t g = 0; g < r->n_groups; g++)
        if (cu[g + 1] <= cu[g])
            return fail_index_bin(b, err, "cu_groups does not rise");
    return cu[0] == 0 && cu[r->n_groups] == r->n_sequences
               ? 0
               : fail_index_bin(b, err,
                                "cu_groups contradicts the bin's counts");
}

static int check_bin_records(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    uint64_t sequences = 0, positions = 0, tokens = 0, groups = 0;
    uint32_t max_tokens = 0, max_seqlen = 0;
    for (size_t b = 0; b < p->n_bins; b++, r++) {
        if (r->first_sequence != sequences || r->first_position != positions)
            return fail_index_bin(b, err,
                                  "does not begin where the one before ends");
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
        return fail_index(err, "the bins contradict the header's counts");
    return 0;
}

static int check_sources(const struct pp_packed *p, struct pp_err *err)
{
    const uint32_t *source = p->sections[PP_SECTION_SOURCE];
    for (size_t i = 0; i < p->n_sequences; i++)
        if (source[i] >= p->n_inputs)
            return pp_fail(err, PP_EXIT_INPUT,
                           "index: sequence %zu: source '%u' is not below %zu",
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
