/* SPDX-License-Identifier: MIT */
/* export - writes a packed directory as safetensors. Bins are in packed
 * order. Sums over all bins need 64 bits. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/packed/format.h"
#include "data/tensors/safetensors.h"
#include "data/documents.h"

enum { N_FIXED = 13, N_SPECS = N_FIXED + PP_N_COLUMNS };

/* The state of an export. */
struct tensor_export {
    const struct pp_packed *p;
    struct pp_tensor_writer *w;
    int64_t *sums;   /* scratch for the sums of a bin */
    int64_t *rows;   /* scratch for the positions of a chunk */
    uint32_t cp, dp; /* ranks; 0 for no cp_index, no dp_balanced */
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
        if (pp_tensor_writer_put(x->w, labels ? bin.labels : bin.input_ids,
                                 bin.tokens * sizeof *bin.labels, err) != 0)
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

/* Writes the positions of a chunk of a sequence that begins at position `at` of
 * all bins. */
static int put_chunk(struct tensor_export *x, int64_t at, int64_t n,
                     struct pp_err *err)
{
    for (int64_t i = 0; i < n; i++)
        x->rows[i] = at + i;
    return pp_tensor_writer_put(x->w, x->rows, (size_t)n * sizeof *x->rows,
                                err);
}

/* Writes the positions that context-parallel rank r has: chunks r and 2 cp - 1
 * - r of the 2 cp chunks of each sequence, as in TransformerEngine's
 * thd_get_partitioned_indices. */
static int put_cp_rank(struct tensor_export *x, uint32_t r, struct pp_err *err)
{
    int64_t before = 0;
    for (size_t b = 0; b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        const int32_t *cu = bin.cu_seqlens_padded;
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            int64_t n = cu[i + 1] - cu[i], chunk = n / (2 * (int64_t)x->cp);
            int64_t mirrored = 2 * (int64_t)x->cp - 1 - r;
            int64_t last = x->cp == 1 ? n - chunk : chunk;
            if (put_chunk(x, before + cu[i] + r * chunk, chunk, err) != 0 ||
                put_chunk(x, before + cu[i] + mirrored * chunk, last, err))
                return -1;
        }
        before += bin.tokens;
    }
    return 0;
}

static int put_cp_index(struct tensor_export *x, struct pp_err *err)
{
    for (uint32_t r = 0; r < x->cp; r++)
        if (put_cp_rank(x, r, err) != 0)
            return -1;
    return 0;
}

/* Writes the bin of every microbatch and rank: a microbatch takes dp bins, and
 * the cp ranks that share one follow each other. */
static int put_dp_balanced(struct tensor_export *x, struct pp_err *err)
{
    uint32_t cp = x->cp ? x->cp : 1;
    for (size_t b = 0; x->dp && b < x->p->n_bins; b++)
        for (uint32_t r = 0; r < cp; r++)
            if (put_i64(x, (int64_t)b, err) != 0)
                return -1;
    return 0;
}

/* Writes the ranks of all sequences: the first and how many. */
static int put_ranges(struct tensor_export *x, struct pp_err *err)
{
    for (size_t b = 0; x->p->cp && b < x->p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(x->p, b, &bin);
        for (uint32_t i = 0; i < bin.n_sequences; i++) {
            const int32_t range[] = {bin.ranks[i].first, bin.ranks[i].n};
            if (pp_tensor_writer_put(x->w, range, sizeof range, err) != 0)
                return -1;
        }
    }
    return 0;
}

static int put_column_tensors(struct tensor_export *x, struct pp_err *err)
{
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_ROWS; f++)
        if (x->p->map[f] && pp_tensor_writer_put(x->w, x->p->map[f],
                                                 x->p->map_bytes[f], err) != 0)
            return -1;
    return 0;
}

/* Returns whether bins have groups. Responses have a source instead. */
static bool has_groups(const struct pp_packed *p)
{
    return p->kind == PP_DATA_PAIRS || p->n_groups != p->n_sequences;
}

static bool has_kind(const struct pp_packed *p)
{
    return p->kind != PP_DATA_DOCUMENTS || has_groups(p);
}

static size_t make_tensor_specs(const struct pp_packed *p,
                                const struct pp_packed_ranks *ranks,
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
    if (p->bytes)
        specs[n++] = (struct pp_tensor_spec){"bytes", PP_DTYPE_I64, 1, {1}};
    if (has_kind(p))
        specs[n++] = (struct pp_tensor_spec){"kind", PP_DTYPE_I64, 1, {1}};
    if (has_groups(p))
        specs[n++] = (struct pp_tensor_spec){
            "cu_groups", PP_DTYPE_I64, 1, {p->n_groups + 1}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        specs[n++] = fixed[i];
    if (p->cp)
        specs[n++] = (struct pp_tensor_spec){
            "cp_ranks", PP_DTYPE_I32, 2, {p->n_sequences, 2}};
    if (ranks->cp)
        specs[n++] =
            (struct pp_tensor_spec){"cp_index",
                                    PP_DTYPE_I64,
                                    2,
                                    {ranks->cp, p->n_positions / ranks->cp}};
    if (ranks->dp)
        specs[n++] = (struct pp_tensor_spec){
            "dp_balanced",
            PP_DTYPE_I64,
            2,
            {p->n_bins / ranks->dp,
             ranks->dp * (size_t)(ranks->cp ? ranks->cp : 1)}};
    for (int f = PP_PACKED_COLUMNS; f < PP_PACKED_ROWS; f++) {
        size_t width = pp_column_width(f - PP_PACKED_COLUMNS, p->top_k);
        size_t rows = p->map[f] ? p->map_bytes[f] / 4 / width : 0;
        if (p->map[f])
            specs[n++] = (struct pp_tensor_spec){
                pp_packed_name(f),
                pp_packed_is_int(f) ? PP_DTYPE_I32 : PP_DTYPE_F32,
                width > 1 ? 2 : 1,
                {rows, width}};
    }
    return n;
}

/* Writes the tensors in the order of their specs. */
static int put_tensors(struct tensor_export *x, struct pp_err *err)
{
    if ((x->p->bytes && put_i64(x, 1, err) != 0) ||
        (has_kind(x->p) && put_i64(x, (int64_t)x->p->kind, err) != 0) ||
        (has_groups(x->p) && put_cu_groups(x, err) != 0))
        return -1;
    if (put_cu_seqlens(x, false, err) != 0 ||
        put_cu_seqlens(x, true, err) != 0 || put_cu_bins(x, err) != 0 ||
        put_tokens(x, false, err) != 0 || put_tokens(x, true, err) != 0 ||
        put_sources(x, false, err) != 0 || put_sources(x, true, err) != 0 ||
        put_ranges(x, err) != 0 || put_cp_index(x, err) != 0 ||
        put_dp_balanced(x, err) != 0)
        return -1;
    return put_column_tensors(x, err);
}

/* Fails if a sequence cannot be cut into 2 cp equal chunks. A single rank has
 * all of it. */
static int check_chunks(const struct pp_packed *p, uint32_t cp,
                        struct pp_err *err)
{
    for (size_t b = 0; cp > 1 && b < p->n_bins; b++) {
        struct pp_bin bin;
        pp_packed_bin(p, b, &bin);
        const int32_t *cu = bin.cu_seqlens_padded;
        for (uint32_t i = 0; i < bin.n_sequences; i++)
            if ((cu[i + 1] - cu[i]) % (2 * (int64_t)cp))
                return pp_fail(err, PP_EXIT_INPUT,
                               "bin %zu: the '%d' positions of a sequence are "
                               "not a multiple of 2 x %u context-parallel "
                               "ranks",
                               b, cu[i + 1] - cu[i], cp);
    }
    return 0;
}

/* Fails if a microbatch would have fewer bins than data-parallel ranks. */
static int check_bins(const struct pp_packed *p, uint32_t dp,
                      struct pp_err *err)
{
    if (!dp || p->n_bins % dp == 0)
        return 0;
    return pp_fail(err, PP_EXIT_INPUT,
                   "the '%zu' bins are not a multiple of %" PRIu32
                   " data-parallel ranks; pack them into such a multiple",
                   p->n_bins, dp);
}

int pp_packed_export_safetensors(const struct pp_packed *p,
                                 const struct pp_packed_ranks *ranks,
                                 const char *path, struct pp_err *err)
{
    struct pp_tensor_spec specs[N_SPECS];
    for (int m = 0; m < PP_N_MODALITIES; m++)
        if (pp_stream_exists(&p->streams[m]))
            return pp_fail(
                err, PP_EXIT_INPUT,
                "%s: '%" PRIu64 "' %s cannot be written as safetensors", path,
                p->streams[m].n, pp_modality_words((enum pp_modality)m).items);
    if (p->cp && ranks->cp)
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: cp_index of '%u' ranks cannot hold sequences that "
                       "have ranks of their own",
                       path, ranks->cp);
    if (check_chunks(p, ranks->cp, err) != 0 ||
        check_bins(p, ranks->dp, err) != 0)
        return -1;
    size_t n = make_tensor_specs(p, ranks, specs);
    struct tensor_export x = {
        .p = p,
        .sums = pp_calloc(p->n_sequences + 1, sizeof *x.sums),
        .rows = pp_calloc(p->max_seqlen + 1u, sizeof *x.rows),
        .cp = ranks->cp,
        .dp = ranks->dp,
    };
    int rc = pp_tensor_writer_open(path, specs, n, &x.w, err);
    if (rc == 0)
        rc = put_tensors(&x, err);
    if (rc == 0)
        rc = pp_tensor_writer_close(x.w, err);
    else
        pp_tensor_writer_abort(x.w);
    free(x.sums);
    free(x.rows);
    return rc;
}
