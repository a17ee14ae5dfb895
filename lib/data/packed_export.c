/* SPDX-License-Identifier: MIT */
/* packed_export - safetensors. Bins go one after the other, as in the packed
 * directory; sums over all of it need 64 bits. */
#include "data/packed_export.h"

#include <stdlib.h>

#include "base/num.h"
#include "data/packed_format.h"
#include "data/safetensors.h"

enum { N_FIXED = 9, N_SPECS = N_FIXED + PP_N_COLUMNS };

/* What is written now. */
struct export
{
    const struct pp_packed *p;
    struct pp_tensor_writer *w;
    int32_t *ids, *labels; /* room for a bin */
    int64_t *sums;         /* room for the sums of a bin */
};

static int put_i64(struct export *x, int64_t v, struct pp_err *err)
{
    return pp_tensor_writer_put(x->w, &v, sizeof v, err);
}

/* The ids or the labels of all bins. */
static int put_tokens(struct export *x, bool labels, struct pp_err *err)
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

/* Running sums over all sequences: of tokens, or of slots. Where there is
 * padding between them, tokens are counted as if there were none. */
static int put_sums(struct export *x, bool padded, struct pp_err *err)
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

/* Where each bin's sequences begin among all, and their number. */
static int put_bins(struct export *x, struct pp_err *err)
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

static int put_groups(struct export *x, struct pp_err *err)
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

static int put_places(struct export *x, bool start, struct pp_err *err)
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

static int put_columns(struct export *x, struct pp_err *err)
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

static size_t make_specs(const struct pp_packed *p,
                         struct pp_tensor_spec specs[N_SPECS])
{
    const struct pp_tensor_spec fixed[] = {
        {"cu_seqlens", PP_DTYPE_I64, 1, {p->n_sequences + 1}},
        {"cu_seqlens_padded", PP_DTYPE_I64, 1, {p->n_sequences + 1}},
        {"cu_bins", PP_DTYPE_I64, 1, {p->n_bins + 1}},
        {"input_ids", PP_DTYPE_I32, 1, {p->n_slots}},
        {"labels", PP_DTYPE_I32, 1, {p->n_slots}},
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

/* The tensors in the order of their specs. */
static int put_all(struct export *x, struct pp_err *err)
{
    if (has_groups(x->p) &&
        (put_i64(x, (int64_t)x->p->kind, err) != 0 || put_groups(x, err) != 0))
        return -1;
    if (put_sums(x, false, err) != 0 || put_sums(x, true, err) != 0 ||
        put_bins(x, err) != 0 || put_tokens(x, false, err) != 0 ||
        put_tokens(x, true, err) != 0 || put_places(x, false, err) != 0 ||
        put_places(x, true, err) != 0)
        return -1;
    return put_columns(x, err);
}

int pp_packed_export_safetensors(const struct pp_packed *p, const char *path,
                                 struct pp_err *err)
{
    struct pp_tensor_spec specs[N_SPECS];
    size_t n = make_specs(p, specs);
    struct export x = {
        .p = p,
        .ids = calloc(p->max_tokens + 1u, sizeof *x.ids),
        .labels = calloc(p->max_tokens + 1u, sizeof *x.labels),
        .sums = calloc(p->n_sequences + 1, sizeof *x.sums),
    };
    int rc = -1;
    if (!x.ids || !x.labels || !x.sums)
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory");
    else if (pp_tensor_writer_open(path, specs, n, &x.w, err) == 0)
        rc = put_all(&x, err);
    if (rc == 0)
        rc = pp_tensor_writer_close(x.w, err);
    else
        pp_tensor_writer_abort(x.w);
    free(x.ids);
    free(x.labels);
    free(x.sums);
    return rc;
}
