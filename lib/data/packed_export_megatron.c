/* SPDX-License-Identifier: MIT */
/* packed_export_megatron - the layout is in indexed.c, which reads it. The
 * index is written last, and each file beside its place first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/packed_export.h"
#include "data/packed_format.h"
#include "data/token_type.h"

enum { SMALL_VOCABULARY = 65500 }; /* Megatron's limit for 16 bits */

struct export
{
    const struct pp_packed *p;
    FILE *f;
    const char *name;
    int32_t *ids, *labels; /* room for a bin */
    uint16_t *narrow;      /* likewise */
    unsigned size;         /* of an element */
};

static int put(struct export *x, const void *data, size_t bytes,
               struct pp_err *err)
{
    if (bytes > 0 && fwrite(data, 1, bytes, x->f) != bytes)
        return pp_fail_errno(err, "%s: cannot write", x->name);
    return 0;
}

static int put_u64(struct export *x, uint64_t v, struct pp_err *err)
{
    return put(x, &v, sizeof v, err);
}

/* What the format has no place for. */
static int check(const struct pp_packed *p, struct pp_err *err)
{
    const char *what = NULL;
    if (p->kind != PP_DATA_DOCUMENTS)
        what = pp_data_kinds[p->kind];
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_N_FILES; f++)
        if (p->map[f])
            what = pp_packed_name(f);
    if (what)
        return pp_fail(err, PP_EXIT_INPUT,
                       "'%s' have no place in an indexed dataset", what);
    return 0;
}

static int put_sequence(struct export *x, size_t b, const int32_t *ids,
                        const int32_t *labels, size_t n, struct pp_err *err)
{
    if (memcmp(ids, labels, n * sizeof *ids) != 0)
        return pp_fail(err, PP_EXIT_INPUT,
                       "bin %zu: 'labels' other than the ids have no place in "
                       "an indexed dataset",
                       b);
    if (x->size == sizeof *ids)
        return put(x, ids, n * sizeof *ids, err);
    for (size_t i = 0; i < n; i++)
        x->narrow[i] = (uint16_t)ids[i];
    return put(x, x->narrow, n * sizeof *x->narrow, err);
}

static int put_bin_file(struct export *x, struct pp_err *err)
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

/* Lengths, or places in the other file. */
static int put_list(struct export *x, bool places, struct pp_err *err)
{
    uint64_t place = 0;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int32_t n = bin.cu_seqlens[i + 1] - bin.cu_seqlens[i];
            if ((places ? put_u64(x, place, err) : put(x, &n, 4, err)) != 0)
                return -1;
            place += (uint64_t)n * x->size;
        }
    }
    return 0;
}

static int put_idx_file(struct export *x, struct pp_err *err)
{
    size_t n = x->p->n_sequences;
    unsigned char type = x->size == 2 ? PP_TOKEN_U16 : PP_TOKEN_I32;
    if (put(x, "MMIDIDX\0", 9, err) != 0 || put_u64(x, 1, err) != 0 ||
        put(x, &type, 1, err) != 0 || put_u64(x, n, err) != 0 ||
        put_u64(x, n + 1, err) != 0 || put_list(x, false, err) != 0 ||
        put_list(x, true, err) != 0)
        return -1;
    for (size_t i = 0; i <= n; i++)
        if (put_u64(x, i, err) != 0)
            return -1;
    return 0;
}

/* A file written as PATH.tmp; to be renamed. */
static int write_file(struct export *x, const char *tmp,
                      int (*fill)(struct export *, struct pp_err *),
                      struct pp_err *err)
{
    x->name = tmp;
    x->f = fopen(tmp, "wbe");
    if (!x->f)
        return pp_fail_errno(err, "%s: cannot create", tmp);
    int rc = fill(x, err);
    if (rc == 0 && (fflush(x->f) != 0 || fsync(fileno(x->f)) != 0))
        rc = pp_fail_errno(err, "%s: cannot write", tmp);
    fclose(x->f);
    return rc;
}

static int write_both(struct export *x, const char *prefix, struct pp_err *err)
{
    size_t n = strlen(prefix) + sizeof ".bin.tmp";
    char *name[4] = {malloc(n), malloc(n), malloc(n), malloc(n)};
    static const char *const ends[] = {".bin", ".idx", ".bin.tmp", ".idx.tmp"};
    int rc = 0;
    for (int i = 0; i < 4; i++)
        if (name[i])
            snprintf(name[i], n, "%s%s", prefix, ends[i]);
        else
            rc = pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    if (rc == 0 && (write_file(x, name[2], put_bin_file, err) != 0 ||
                    write_file(x, name[3], put_idx_file, err) != 0))
        rc = -1;
    /* An old index of other tokens must not meet the new ones. */
    if (rc == 0 && unlink(name[1]) != 0 && errno != ENOENT)
        rc = pp_fail_errno(err, "%s", name[1]);
    if (rc == 0 &&
        (rename(name[2], name[0]) != 0 || rename(name[3], name[1]) != 0))
        rc = pp_fail_errno(err, "%s: cannot rename", prefix);
    for (int i = 0; i < 4; i++) {
        if (i > 1 && name[i])
            unlink(name[i]);
        free(name[i]);
    }
    return rc;
}

int pp_packed_export_megatron(const struct pp_packed *p, const char *prefix,
                              struct pp_err *err)
{
    struct export x = {
        .p = p,
        .ids = calloc(p->max_tokens + 1u, sizeof *x.ids),
        .labels = calloc(p->max_tokens + 1u, sizeof *x.labels),
        .narrow = calloc(p->max_tokens + 1u, sizeof *x.narrow),
        .size = p->vocab < SMALL_VOCABULARY ? 2 : 4,
    };
    int rc = -1;
    if (!x.ids || !x.labels || !x.narrow)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (check(p, err) == 0)
        rc = write_both(&x, prefix, err);
    free(x.ids);
    free(x.labels);
    free(x.narrow);
    return rc;
}
