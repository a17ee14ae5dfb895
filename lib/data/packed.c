/* SPDX-License-Identifier: MIT */
/* packed - the reader of packed directories.
 *
 * After open every offset that pp_packed_bin follows is known to lie inside
 * the maps; what the numbers mean is checked in packed_check.c. */
#include "data/packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "data/packed_format.h"

const char *const pp_packed_files[PP_PACKED_N_FILES] = {"index", "input_ids",
                                                        "labels"};

static int map_file(struct pp_packed *p, const char *dir, int file,
                    struct pp_err *err)
{
    size_t n = strlen(dir) + strlen(pp_packed_files[file]) + 2;
    char *path = malloc(n);
    if (!path)
        return pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    snprintf(path, n, "%s/%s", dir, pp_packed_files[file]);
    int rc = pp_file_map(path, &p->map[file], &p->map_bytes[file], err);
    free(path);
    return rc;
}

static int bad(struct pp_err *err, const char *what)
{
    return pp_fail(err, PP_EXIT_INPUT, "index: %s", what);
}

static int check_header(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    size_t bytes = p->map_bytes[PP_PACKED_INDEX];
    if (bytes < sizeof h->magic ||
        memcmp(h->magic, PP_PACKED_MAGIC, sizeof h->magic) != 0)
        return bad(err, "not the index of a packed directory");
    if (bytes < offsetof(struct pp_packed_header, checksum))
        return bad(err, "cut short");
    if (h->version > PP_PACKED_VERSION)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: version '%u' needs a newer pptools, this one "
                       "reads %d",
                       h->version, PP_PACKED_VERSION);
    if (h->version < 1)
        return bad(err, "version '0' is not a version");
    if (bytes < sizeof *h)
        return bad(err, "cut short");
    if (h->header_bytes != sizeof *h)
        return pp_fail(err, PP_EXIT_INPUT, "index: header of '%u' bytes",
                       h->header_bytes);
    if (h->index_bytes != bytes)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: '%zu' bytes where its header says %llu", bytes,
                       (unsigned long long)h->index_bytes);
    if (!h->n_bins || h->n_sequences > UINT32_MAX ||
        h->n_bins > h->n_sequences || h->n_inputs > UINT32_MAX || !h->align ||
        h->capacity > INT32_MAX || h->vocab > INT32_MAX)
        return bad(err, "the header's counts are impossible");
    return 0;
}

/* Finds the section of n elements at offset at. */
static int find_section(struct pp_packed *p, int which, uint64_t at, uint64_t n,
                        size_t size, struct pp_err *err)
{
    size_t bytes, end;
    if (at % 8 || at < sizeof(struct pp_packed_header) ||
        __builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(at, bytes, &end) ||
        end > p->map_bytes[PP_PACKED_INDEX])
        return bad(err, "a section lies outside the file");
    p->sections[which] = (const char *)p->map[PP_PACKED_INDEX] + at;
    return 0;
}

static int find_sections(struct pp_packed *p, struct pp_err *err)
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
    p->n_bins = h->n_bins;
    p->n_sequences = h->n_sequences;
    p->n_inputs = h->n_inputs;
    p->n_tokens = h->n_tokens;
    p->n_slots = h->n_slots;
    p->capacity = h->capacity;
    p->align = h->align;
    p->max_tokens = h->max_tokens;
    p->max_seqlen = h->max_seqlen;
    p->vocab = h->vocab;
    p->checksum = h->checksum;
    return 0;
}

const struct pp_packed_column *pp_packed_column(const struct pp_packed *p,
                                                int file)
{
    const struct pp_packed_header *h = p->map[PP_PACKED_INDEX];
    const struct pp_packed_column *c = p->sections[PP_SECTION_COLUMNS];
    const char *name = pp_packed_files[file];
    for (uint32_t i = 0; i < h->n_columns; i++)
        if (!strncmp(c[i].name, name, sizeof c[i].name))
            return &c[i];
    return NULL;
}

/* The columns that this version needs hold one int32 per slot. */
static int check_column(const struct pp_packed *p, int file, struct pp_err *err)
{
    const struct pp_packed_column *c = pp_packed_column(p, file);
    if (!c)
        return pp_fail(err, PP_EXIT_INPUT, "index: no column '%s'",
                       pp_packed_files[file]);
    if (c->scope != PP_SCOPE_TOKEN || c->dtype != PP_COLUMN_INT32 ||
        c->n != p->n_slots)
        return pp_fail(err, PP_EXIT_INPUT,
                       "index: column '%s' is not one int32 per token",
                       pp_packed_files[file]);
    return 0;
}

static int bad_bin(size_t b, struct pp_err *err, const char *what)
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
        return bad_bin(b, err, "cu_seqlens does not begin at 0");
    for (uint32_t i = 0; i < r->n_sequences; i++) {
        int64_t length = (int64_t)cu[i + 1] - cu[i];
        int64_t slot = (int64_t)padded[i + 1] - padded[i];
        if (length < 1 || slot < length)
            return bad_bin(b, err, "cu_seqlens does not rise inside its slots");
        longest = slot > longest ? slot : longest;
    }
    if ((uint32_t)cu[r->n_sequences] != r->real ||
        (uint32_t)padded[r->n_sequences] != r->tokens ||
        longest != r->max_seqlen)
        return bad_bin(b, err, "cu_seqlens contradicts the bin's counts");
    return 0;
}

static int check_bins(const struct pp_packed *p, struct pp_err *err)
{
    const struct pp_packed_record *r = p->sections[PP_SECTION_BINS];
    uint64_t sequences = 0, slots = 0, tokens = 0;
    uint32_t max_tokens = 0, max_seqlen = 0;
    for (size_t b = 0; b < p->n_bins; b++, r++) {
        if (r->first_sequence != sequences || r->first_slot != slots)
            return bad_bin(b, err, "does not begin where the one before ends");
        if (r->n_sequences < 1 || r->n_sequences > p->n_sequences - sequences ||
            r->tokens > p->capacity || r->scored > r->real ||
            r->n_groups > r->n_sequences)
            return bad_bin(b, err, "impossible counts");
        if (check_lengths(p, b, r, err) != 0)
            return -1;
        sequences += r->n_sequences;
        slots += r->tokens;
        tokens += r->real;
        max_tokens = r->tokens > max_tokens ? r->tokens : max_tokens;
        max_seqlen = r->max_seqlen > max_seqlen ? r->max_seqlen : max_seqlen;
    }
    if (sequences != p->n_sequences || slots != p->n_slots ||
        tokens != p->n_tokens || max_tokens != p->max_tokens ||
        max_seqlen != p->max_seqlen)
        return bad(err, "the bins contradict the header's counts");
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

static int check_index(struct pp_packed *p, struct pp_err *err)
{
    if (check_header(p, err) != 0 || find_sections(p, err) != 0 ||
        check_bins(p, err) != 0 || check_sources(p, err) != 0)
        return -1;
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++)
        if (check_column(p, f, err) != 0)
            return -1;
    return 0;
}

static int open_columns(struct pp_packed *p, const char *dir,
                        struct pp_err *err)
{
    size_t bytes;
    if (pp_mul(p->n_slots, sizeof(int32_t), &bytes, err) != 0)
        return -1;
    for (int f = PP_PACKED_INDEX + 1; f < PP_PACKED_N_FILES; f++) {
        if (map_file(p, dir, f, err) != 0)
            return -1;
        if (p->map_bytes[f] != bytes)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s/%s: '%zu' bytes where the index says %zu", dir,
                           pp_packed_files[f], p->map_bytes[f], bytes);
    }
    return 0;
}

int pp_packed_open(const char *dir, struct pp_packed *p, struct pp_err *err)
{
    memset(p, 0, sizeof *p);
    if (map_file(p, dir, PP_PACKED_INDEX, err) != 0)
        return -1;
    if (check_index(p, err) != 0)
        pp_fail_at(err, "%s/", dir);
    else if (open_columns(p, dir, err) == 0)
        return 0;
    pp_packed_finish(p);
    return -1;
}

void pp_packed_bin(const struct pp_packed *p, size_t b, struct pp_bin *out)
{
    const struct pp_packed_record *r =
        (const struct pp_packed_record *)p->sections[PP_SECTION_BINS] + b;
    size_t cu = r->first_sequence + b;
    *out = (struct pp_bin){
        .n_sequences = r->n_sequences,
        .tokens = r->tokens,
        .scored = r->scored,
        .n_groups = r->n_groups,
        .max_seqlen = r->max_seqlen,
        .cu_seqlens = (const int32_t *)p->sections[PP_SECTION_CU] + cu,
        .cu_seqlens_padded =
            (const int32_t *)p->sections[PP_SECTION_CU_PADDED] + cu,
        .source = (const uint32_t *)p->sections[PP_SECTION_SOURCE] +
                  r->first_sequence,
        .start =
            (const uint32_t *)p->sections[PP_SECTION_START] + r->first_sequence,
        .input_ids =
            (const int32_t *)p->map[PP_PACKED_INPUT_IDS] + r->first_slot,
        .labels = (const int32_t *)p->map[PP_PACKED_LABELS] + r->first_slot,
    };
}

void pp_packed_finish(struct pp_packed *p)
{
    free(p->owned);
    for (int i = 0; i < PP_PACKED_N_FILES && !p->owned; i++)
        pp_file_unmap(p->map[i], p->map_bytes[i]);
    memset(p, 0, sizeof *p);
}
