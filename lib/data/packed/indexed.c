/* SPDX-License-Identifier: MIT */
/* indexed - writes a packed directory as an indexed dataset of Megatron;
 * indexed.c reads this layout. Each file is first written beside its place, and
 * the index is written last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/documents.h"
#include "data/packed/format.h"

enum { SMALL_VOCABULARY = 65500 }; /* Megatron's limit for 16 bits */

struct indexed_export {
    const struct pp_packed *p;
    FILE *f;
    const char *name;
    uint16_t *narrow; /* scratch for a bin */
    unsigned size;    /* bytes of an element */
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
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t at = bin.cu_seqlens_padded[i];
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            if (put_sequence(x, b, bin.input_ids + at, bin.labels + at,
                             (size_t)n, err) != 0)
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
    char *bin_name = pp_calloc(n, 1), *idx_name = pp_calloc(n, 1);
    int rc = -1;
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
        .narrow = pp_calloc(p->max_tokens + 1u, sizeof *x.narrow),
        .size = p->vocab < SMALL_VOCABULARY ? 2 : 4,
    };
    int rc = check_indexed(p, err);
    if (rc == 0)
        rc = write_both(&x, prefix, err);
    free(x.narrow);
    return rc;
}
