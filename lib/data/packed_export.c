/* SPDX-License-Identifier: MIT */
/* packed_export - writes a packed directory as safetensors or as an indexed
 * dataset of Megatron. Bins are in packed order. Sums over all bins need 64
 * bits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "data/packed_format.h"
#include "data/safetensors.h"
#include "data/documents.h"

enum { N_FIXED = 9, N_SPECS = N_FIXED + PP_N_COLUMNS };

/* The state of an export. */
struct tensor_export {
    const struct pp_packed *p;
    struct pp_tensor_writer *w;
    int32_t *ids, *labels; /* scratch for a bin */
    int64_t *sums;         /* scratch for the sums of a bin */
};

static int put_i64(struct tensor_export *x, int64_t v, struct pp_err *err)
{
    return pp_tensor_writer_put(x->w, &v, sizeof v, err);
}

/* Writes the ids or the labels of all bins. */
static int put_tokens(struct tensor_export *x, bool labels, struct pp_err *err)
{
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        pp_packed_tokens(x->p, b, x->ids, x->labels);
        if (pp_tensor_writer_put(x->w, labels ? x->labels : x->ids,
                                 bin.tokens * sizeof *x->ids, err) != 0)
            return -1;
    }
    return 0;
}

/* Writes the running sums over all sequences, without or with padding. */
static int put_cu_seqlens(struct tensor_export *x, bool padded,
                          struct pp_err *err)
{
    int64_t sum = 0;
    if (put_i64(x, 0, err) != 0)
        return -1;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        const int32_t *cu = padded ? bin.cu_seqlens_padded : bin.cu_seqlens;
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            x->sums[i] = sum + cu[i + 1];
        sum += cu[bin.n_sequences];
        if (pp_tensor_writer_put(x->w, x->sums,
                                 bin.n_sequences * sizeof *x->sums, err) != 0)
            return -1;
    }
    return 0;
}

/* Writes the running sums of the bins' sequences. */
static int put_cu_bins(struct tensor_export *x, struct pp_err *err)
{
    int64_t n = 0;
    if (put_i64(x, 0, err) != 0)
        return -1;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        n += bin.n_sequences;
        if (put_i64(x, n, err) != 0)
            return -1;
    }
    return 0;
}

static int put_cu_groups(struct tensor_export *x, struct pp_err *err)
{
    int64_t before = 0;
    if (put_i64(x, 0, err) != 0)
        return -1;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        for (uint32_t g = 0; g < bin.n_groups; g++)
            if (put_i64(x,
                        before + (bin.cu_groups ? bin.cu_groups[g + 1] : g + 1),
                        err) != 0)
                return -1;
        before += bin.n_sequences;
    }
    return 0;
}

static int put_sources(struct tensor_export *x, bool start, struct pp_err *err)
{
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        if (pp_tensor_writer_put(x->w, start ? bin.start : bin.source,
                                 bin.n_sequences * sizeof *bin.start, err) != 0)
            return -1;
    }
    return 0;
}

static int put_column_tensors(struct tensor_export *x, struct pp_err *err)
{
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_N_FILES; f++)
        if (x->p->map[f] && pp_tensor_writer_put(x->w, x->p->map[f],
                                                 x->p->map_bytes[f], err) != 0)
            return -1;
    return 0;
}

static bool has_groups(const struct pp_packed *p)
{
    return p->kind != PP_DATA_DOCUMENTS || p->n_groups != p->n_sequences;
}

static size_t make_tensor_specs(const struct pp_packed *p,
                                struct pp_tensor_spec specs[N_SPECS])
{
    const struct pp_tensor_spec fixed[] = {
        {"cu_seqlens", PP_DTYPE_I64, 1, {p->n_sequences + 1}},
        {"cu_seqlens_padded", PP_DTYPE_I64, 1, {p->n_sequences + 1}},
        {"cu_bins", PP_DTYPE_I64, 1, {p->n_bins + 1}},
        {"input_ids", PP_DTYPE_I32, 1, {p->n_positions}},
        {"labels", PP_DTYPE_I32, 1, {p->n_positions}},
        {"source", PP_DTYPE_I32, 1, {p->n_sequences}},
        {"start", PP_DTYPE_I32, 1, {p->n_sequences}},
    };
    size_t n = 0;
    if (has_groups(p)) {
        specs[n++] = (struct pp_tensor_spec){"kind", PP_DTYPE_I64, 1, {1}};
        specs[n++] = (struct pp_tensor_spec){
            "cu_groups", PP_DTYPE_I64, 1, {p->n_groups + 1}};
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        specs[n++] = fixed[i];
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_N_FILES; f++)
        if (p->map[f])
            specs[n++] = (struct pp_tensor_spec){
                pp_packed_name(f), PP_DTYPE_F32, 1, {p->map_bytes[f] / 4}};
    return n;
}

/* Writes the tensors in the order of their specs. */
static int put_tensors(struct tensor_export *x, struct pp_err *err)
{
    if (has_groups(x->p) && (put_i64(x, (int64_t)x->p->kind, err) != 0 ||
                             put_cu_groups(x, err) != 0))
        return -1;
    if (put_cu_seqlens(x, false, err) != 0 ||
        put_cu_seqlens(x, true, err) != 0 || put_cu_bins(x, err) != 0 ||
        put_tokens(x, false, err) != 0 || put_tokens(x, true, err) != 0 ||
        put_sources(x, false, err) != 0 || put_sources(x, true, err) != 0)
        return -1;
    return put_column_tensors(x, err);
}

int pp_packed_export_safetensors(const struct pp_packed *p, const char *path,
                                 struct pp_err *err)
{
    struct pp_tensor_spec specs[N_SPECS];
    size_t n = make_tensor_specs(p, specs);
    struct tensor_export x = {
        .p = p,
        .ids = calloc(p->max_tokens + 1u, sizeof *x.ids),
        .labels = calloc(p->max_tokens + 1u, sizeof *x.labels),
        .sums = calloc(p->n_sequences + 1, sizeof *x.sums),
    };
    int rc = -1;
    if (!x.ids || !x.labels || !x.sums)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (pp_tensor_writer_open(path, specs, n, &x.w, err) == 0)
        rc = put_tensors(&x, err);
    if (rc == 0)
        rc = pp_tensor_writer_close(x.w, err);
    else
        pp_tensor_writer_abort(x.w);
    free(x.ids);
    free(x.labels);
    free(x.sums);
    return rc;
}

/* The export for Megatron; indexed.c reads this layout. Each file is first
 * written beside its place, and the index is written last. */

enum { SMALL_VOCABULARY = 65500 }; /* Megatron's limit for 16 bits */

struct indexed_export {
    const struct pp_packed *p;
    FILE *f;
    const char *name;
    int32_t *ids, *labels; /* scratch for a bin */
    uint16_t *narrow;      /* scratch for a bin */
    unsigned size;         /* bytes of an element */
};

static int put_bytes(struct indexed_export *x, const void *data, size_t bytes,
                     struct pp_err *err)
{
    if (bytes > 0 && fwrite(data, 1, bytes, x->f) != bytes)
        return pp_fail_errno(err, "%s: cannot write", x->name);
    return 0;
}

static int put_u64(struct indexed_export *x, uint64_t v, struct pp_err *err)
{
    return put_bytes(x, &v, sizeof v, err);
}

/* Fails if the format cannot hold the data. */
static int check_indexed(const struct pp_packed *p, struct pp_err *err)
{
    const char *what = NULL;
    if (p->kind != PP_DATA_DOCUMENTS)
        what = pp_data_kinds[p->kind];
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_N_FILES; f++)
        if (p->map[f])
            what = pp_packed_name(f);
    if (what)
        return pp_fail(err, PP_EXIT_INPUT,
                       "an indexed dataset cannot hold '%s'", what);
    return 0;
}

static int put_sequence(struct indexed_export *x, size_t b, const int32_t *ids,
                        const int32_t *labels, size_t n, struct pp_err *err)
{
    if (memcmp(ids, labels, n * sizeof *ids) != 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "bin %zu: an indexed dataset cannot hold 'labels' "
                       "that differ from the ids",
                       b);
    if (x->size == sizeof *ids)
        return put_bytes(x, ids, n * sizeof *ids, err);
    for (size_t i = 0; i < n; i++)
        x->narrow[i] = (uint16_t)ids[i];
    return put_bytes(x, x->narrow, n * sizeof *x->narrow, err);
}

static int put_bin_file(struct indexed_export *x, struct pp_err *err)
{
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        pp_packed_tokens(x->p, b, x->ids, x->labels);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t at = bin.cu_seqlens_padded[i];
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            if (put_sequence(x, b, x->ids + at, x->labels + at, (size_t)n,
                             err) != 0)
                return -1;
        }
    }
    return 0;
}

/* Writes the lengths, or the places in the other file. */
static int put_idx_list(struct indexed_export *x, bool places,
                        struct pp_err *err)
{
    uint64_t place = 0;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            if ((places ? put_u64(x, place, err) : put_bytes(x, &n, 4, err)) !=
                0)
                return -1;
            place += (uint64_t)n * x->size;
        }
    }
    return 0;
}

static int put_idx_file(struct indexed_export *x, struct pp_err *err)
{
    size_t n = x->p->n_sequences;
    unsigned char type = x->size == 2 ? PP_TOKEN_U16 : PP_TOKEN_I32;
    if (put_bytes(x, "MMIDIDX\0", 9, err) != 0 || put_u64(x, 1, err) != 0 ||
        put_bytes(x, &type, 1, err) != 0 || put_u64(x, n, err) != 0 ||
        put_u64(x, n + 1, err) != 0 || put_idx_list(x, false, err) != 0 ||
        put_idx_list(x, true, err) != 0)
        return -1;
    for (size_t i = 0; i <= n; i++)
        if (put_u64(x, i, err) != 0)
            return -1;
    return 0;
}

/* Writes a file and leaves it open; the caller commits it. */
static int write_file(struct indexed_export *x, const struct pp_output *out,
                      int (*fill)(struct indexed_export *, struct pp_err *),
                      struct pp_err *err)
{
    x->name = out->path;
    x->f = out->f;
    if (fill(x, err) != 0)
        return -1;
    if (fflush(x->f) != 0 || fsync(fileno(x->f)) != 0)
        return pp_fail_errno(err, "%s: cannot write", x->name);
    return 0;
}

static int write_both(struct indexed_export *x, const char *prefix,
                      struct pp_err *err)
{
    struct pp_output bin = {0}, idx = {0};
    size_t n = strlen(prefix) + sizeof ".bin";
    char *bin_name = malloc(n), *idx_name = malloc(n);
    int rc = -1;
    if (!bin_name || !idx_name) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
        goto out;
    }
    snprintf(bin_name, n, "%s.bin", prefix);
    snprintf(idx_name, n, "%s.idx", prefix);
    if (pp_output_open(&bin, bin_name, err) ||
        pp_output_open(&idx, idx_name, err) ||
        write_file(x, &bin, put_bin_file, err) ||
        write_file(x, &idx, put_idx_file, err))
        goto out;
    /* An old index must not be paired with the new tokens. */
    if (unlink(idx_name) != 0 && errno != ENOENT)
        pp_fail_errno(err, "%s", idx_name);
    else if (pp_output_commit(&bin, err) == 0)
        rc = pp_output_commit(&idx, err);
out:
    pp_output_abort(&bin);
    pp_output_abort(&idx);
    free(bin_name);
    free(idx_name);
    return rc;
}

int pp_packed_export_megatron(const struct pp_packed *p, const char *prefix,
                              struct pp_err *err)
{
    struct indexed_export x = {
        .p = p,
        .ids = calloc(p->max_tokens + 1u, sizeof *x.ids),
        .labels = calloc(p->max_tokens + 1u, sizeof *x.labels),
        .narrow = calloc(p->max_tokens + 1u, sizeof *x.narrow),
        .size = p->vocab < SMALL_VOCABULARY ? 2 : 4,
    };
    int rc = -1;
    if (!x.ids || !x.labels || !x.narrow)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (check_indexed(p, err) == 0)
        rc = write_both(&x, prefix, err);
    free(x.ids);
    free(x.labels);
    free(x.narrow);
    return rc;
}
