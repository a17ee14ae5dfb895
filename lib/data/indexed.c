/* SPDX-License-Identifier: MIT */
/* indexed - reads Megatron's .bin and .idx. All numbers are little endian. The
 * arrays of the index follow a header of 34 bytes and are not aligned, so
 * elements are copied, never pointed at. It is one file because it is one
 * format. */
#include "data/readers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/num.h"
#include "data/documents.h"

enum { HEADER = 34 };

static const unsigned char magic[9] = "MMIDIDX\0";

struct indexed_files {
    const char *idx_name, *bin_name;
    const struct pp_indexed_options *options;
    const unsigned char *lengths, *pointers, *documents, *modes;
    const unsigned char *bin;
    size_t n_sequences, n_documents, bin_bytes;
    unsigned dtype;
    unsigned size; /* bytes of a token */
};

static uint64_t load_le(const unsigned char *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static int fail_sequence(const struct indexed_files *x, struct pp_err *err,
                         const char *what, uint64_t at)
{
    return pp_fail(err, PP_EXIT_INPUT, "%s: sequence %" PRIu64 " %s",
                   x->idx_name, at, what);
}

static int read_idx_header(struct indexed_files *x, const unsigned char *idx,
                           struct pp_err *err)
{
    uint64_t version = load_le(idx + 9, 8);
    x->dtype = idx[17];
    if (memcmp(idx, magic, sizeof magic) != 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: not the index of an indexed dataset", x->idx_name);
    if (version != 1)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: unknown version '%" PRIu64 "'; only 1 is known",
                       x->idx_name, version);
    if (x->dtype == 0 || x->dtype >= PP_TOKEN_N_TYPES)
        return pp_fail(err, PP_EXIT_INPUT, "%s: unknown element type '%u'",
                       x->idx_name, x->dtype);
    x->size = pp_token_bytes(x->dtype);
    if (!x->size)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: its elements are floating-point numbers; tokens "
                       "must be integers",
                       x->idx_name);
    return 0;
}

/* Finds the arrays. Only they may follow the header. */
static int find_idx_arrays(struct indexed_files *x, const unsigned char *idx,
                           size_t n, struct pp_err *err)
{
    if (n < HEADER)
        return pp_fail(err, PP_EXIT_INPUT, "%s: cut short", x->idx_name);
    if (read_idx_header(x, idx, err) != 0)
        return -1;
    uint64_t n_sequences = load_le(idx + 18, 8),
             n_entries = load_le(idx + 26, 8);
    size_t room = n - HEADER;
    if (n_sequences > room / 12 || n_entries > room / 8 ||
        12 * n_sequences + 8 * n_entries > room)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: cut short: '%zu' bytes are too few for %" PRIu64
                       " sequences and %" PRIu64 " document entries",
                       x->idx_name, n, n_sequences, n_entries);
    size_t left = room - (size_t)(12 * n_sequences + 8 * n_entries);
    x->n_sequences = (size_t)n_sequences;
    x->lengths = idx + HEADER;
    x->pointers = x->lengths + 4 * x->n_sequences;
    x->documents = x->pointers + 8 * x->n_sequences;
    x->modes = left ? x->documents + 8 * n_entries : NULL;
    if (left && left != x->n_sequences)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: has '%zu' bytes after the document entries; must "
                       "be %zu modes or nothing",
                       x->idx_name, left, x->n_sequences);
    if (n_entries == 0)
        return pp_fail(err, PP_EXIT_INPUT, "%s: has no document entries",
                       x->idx_name);
    x->n_documents = (size_t)n_entries - 1;
    return 0;
}

/* Checks that sequences are inside the tokens, in rising order. */
static int check_sequences(const struct indexed_files *x, struct pp_err *err)
{
    uint64_t before = 0;
    for (size_t i = 0; i < x->n_sequences; i++) {
        uint64_t length = load_le(x->lengths + 4 * i, 4);
        uint64_t at = load_le(x->pointers + 8 * i, 8);
        if (length > INT32_MAX)
            return fail_sequence(x, err, "has a negative length", i);
        if (at > INT64_MAX || at < before)
            return fail_sequence(x, err, "begins before the previous one", i);
        if (at > x->bin_bytes || length > (x->bin_bytes - at) / x->size)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: cut short: '%zu' bytes, but sequence %zu of %s "
                           "ends at %" PRIu64,
                           x->bin_name, x->bin_bytes, i, x->idx_name,
                           at + length * x->size);
        if (x->modes && x->modes[i] && !x->options->modes)
            return pp_fail_setting(err, PP_EXIT_INPUT, "modes", NULL,
                                   "%s: sequence %zu has mode '%d', so it may "
                                   "not be text",
                                   x->idx_name, i, (int8_t)x->modes[i]);
        before = at;
    }
    return 0;
}

static uint64_t document_entry(const struct indexed_files *x, size_t i)
{
    return load_le(x->documents + 8 * i, 8);
}

/* Checks that document entries rise from 0 to the number of sequences. */
static int check_documents(const struct indexed_files *x, struct pp_err *err)
{
    uint64_t before = 0, last = document_entry(x, x->n_documents);
    if (document_entry(x, 0) != 0 || last != x->n_sequences)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: its documents do not cover sequences 0 to %zu",
                       x->idx_name, x->n_sequences);
    for (size_t i = 0; i <= x->n_documents; i++) {
        uint64_t entry = document_entry(x, i);
        if (entry < before)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: document entry %zu, '%" PRIu64
                           "', is less than the previous one",
                           x->idx_name, i, entry);
        before = entry;
    }
    return 0;
}

static bool is_taken(const struct indexed_files *x, size_t s)
{
    return !x->options->modes || x->options->modes[x->modes ? x->modes[s] : 0];
}

/* Counts the tokens that are taken from document i. */
static int count_tokens(const struct indexed_files *x, size_t i, size_t *n,
                        struct pp_err *err)
{
    size_t first = (size_t)document_entry(x, i),
           end = (size_t)document_entry(x, i + 1);
    uint64_t sum = 0;
    for (size_t s = first; s < end; s++) {
        if (is_taken(x, s))
            sum += load_le(x->lengths + 4 * s, 4);
        if (sum > INT32_MAX)
            return pp_fail(err, PP_EXIT_INPUT,
                           "%s: document %zu is too long to be packed",
                           x->idx_name, i);
    }
    if (sum == 0 && !x->options->allow_empty)
        return pp_fail_setting(err, PP_EXIT_INPUT, "empty", "drop",
                               "%s: document %zu is empty", x->idx_name, i);
    *n = (size_t)sum;
    return 0;
}

/* Notes the sequences that were left out of document i, which was just added.
 */
static int count_omitted(const struct indexed_files *x, size_t i,
                         struct pp_documents *d, struct pp_err *err)
{
    size_t first = (size_t)document_entry(x, i),
           end = (size_t)document_entry(x, i + 1);
    size_t n = 0, n_tokens = 0;
    for (size_t s = first; s < end; s++)
        if (!is_taken(x, s)) {
            n++;
            n_tokens += (size_t)load_le(x->lengths + 4 * s, 4);
        }
    return n ? pp_documents_add_omission(d, d->n - 1, n, n_tokens, err) : 0;
}

static int bad_token(const struct indexed_files *x, size_t s,
                     struct pp_err *err)
{
    return pp_fail(err, PP_EXIT_INPUT,
                   "%s: sequence %zu has an invalid token id", x->bin_name, s);
}

static int copy_document(const struct indexed_files *x, size_t i,
                         struct pp_documents *d, struct pp_err *err)
{
    size_t first = (size_t)document_entry(x, i),
           end = (size_t)document_entry(x, i + 1), n;
    if (count_tokens(x, i, &n, err) != 0)
        return -1;
    int32_t *out = pp_documents_reserve(d, n, err);
    if (!out)
        return -1;
    for (size_t s = first; s < end; s++) {
        size_t length = (size_t)load_le(x->lengths + 4 * s, 4);
        size_t at = (size_t)load_le(x->pointers + 8 * s, 8);
        if (!is_taken(x, s))
            continue;
        if (!pp_token_convert(x->dtype, x->bin + at, length, out))
            return bad_token(x, s, err);
        out += length;
    }
    if (pp_documents_add(d, n, NULL, err) != 0 ||
        count_omitted(x, i, d, err) != 0)
        return -1;
    return pp_documents_check_last(d, PP_DATA_DOCUMENTS, err);
}

static int check_indexed_files(struct indexed_files *x, const void *idx,
                               size_t idx_bytes, struct pp_err *err)
{
    if (find_idx_arrays(x, idx, idx_bytes, err) != 0 ||
        check_sequences(x, err) != 0)
        return -1;
    return check_documents(x, err);
}

int pp_indexed_parse(const char *idx_name, const void *idx, size_t idx_bytes,
                     const char *bin_name, const void *bin, size_t bin_bytes,
                     const struct pp_indexed_options *o, struct pp_documents *d,
                     struct pp_err *err)
{
    struct indexed_files x = {
        .options = o,
        .idx_name = idx_name,
        .bin_name = bin_name,
        .bin = bin,
        .bin_bytes = bin_bytes,
    };
    if (check_indexed_files(&x, idx, idx_bytes, err) != 0)
        return -1;
    for (size_t i = 0; i < x.n_documents; i++)
        if (copy_document(&x, i, d, err) != 0)
            return -1;
    return 0;
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n > m && !memcmp(s + n - m, end, m);
}

/* Returns prefix and ending in one string, which the caller frees. */
static char *join_name(const char *prefix, const char *ending)
{
    size_t n = strlen(prefix), m = strlen(ending) + 1;
    char *s = pp_calloc(n + m, 1);
    memcpy(s, prefix, n);
    memcpy(s + n, ending, m);
    return s;
}

bool pp_indexed_is_name(const char *name, size_t *prefix_bytes)
{
    size_t n = strlen(name);
    *prefix_bytes = n;
    if (ends_with(name, n, ".idx") || ends_with(name, n, ".bin")) {
        *prefix_bytes = n - 4;
        return true;
    }
    if (pp_file_exists(name))
        return false;
    char *idx = join_name(name, ".idx");
    bool is_there = idx && pp_file_exists(idx);
    free(idx);
    return is_there;
}

/* Reads the two named files. */
static int read_bin_and_idx(const char *idx_name, const char *bin_name,
                            const struct pp_indexed_options *o,
                            struct pp_documents *d, struct pp_err *err)
{
    const void *idx, *bin;
    size_t idx_bytes, bin_bytes;
    if (pp_file_map(idx_name, &idx, &idx_bytes, err) != 0)
        return -1;
    if (pp_file_map(bin_name, &bin, &bin_bytes, err) != 0) {
        pp_file_unmap(idx, idx_bytes);
        return -1;
    }
    int rc = pp_indexed_parse(idx_name, idx, idx_bytes, bin_name, bin,
                              bin_bytes, o, d, err);
    pp_file_unmap(bin, bin_bytes);
    pp_file_unmap(idx, idx_bytes);
    return rc;
}

int pp_indexed_read(const char *prefix, const struct pp_indexed_options *o,
                    struct pp_documents *d, struct pp_err *err)
{
    char *idx_name = join_name(prefix, ".idx"),
         *bin_name = join_name(prefix, ".bin");
    int rc = read_bin_and_idx(idx_name, bin_name, o, d, err);
    free(idx_name);
    free(bin_name);
    return rc;
}
