/* SPDX-License-Identifier: MIT */
#include "run/checkpoint/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/elements.h"
#include "base/file.h"
#include "run/checkpoint/ckpt.h"
#include "run/checkpoint/files.h"
#include "run/checkpoint/save.h"
#include "run/checkpoint/sums.h"
#include "run/parameters/stored.h"

/* The factors of scale B A, which is added to a tensor of the base, or the
 * tensor that takes its place. */
struct addition {
    const struct pp_tensor *a, *b, *instead; /* NULL: none */
    struct pp_tensor_info of;
    bool quantised;
};

struct merge {
    const struct pp_model *m;
    const struct pp_tensors *t;
    struct addition *added; /* by number of the base tensor */
};

/* Finds what takes the place of tensors of a unit outside of layers. */
static void find_saved(struct merge *g, const struct pp_tensor_info *table,
                       size_t n)
{
    struct pp_stored w, saved;
    for (size_t i = 0; i < n; i++) {
        const char *base = pp_lora_base_name(table[i].name);
        if (base && pp_stored_find(&w, g->t, g->m, base) &&
            pp_stored_find(&saved, g->t, g->m, table[i].name))
            g->added[w.values - pp_tensors_at(g->t, 0)] = (struct addition){
                .instead = saved.values, .quantised = w.as != PP_STORED_PLAIN};
    }
}

/* Finds the tensors of the base that training changed. */
static void find_additions(struct merge *g)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    struct pp_stored w, a, b;
    for (size_t i = 0; i < pp_model_n_units(g->m); i++) {
        struct pp_unit_id u = pp_model_unit(g->m, i);
        find_saved(g, table, pp_unit_params(g->m, u, table));
        for (size_t k = 0; u.kind == PP_UNIT_LAYER && k < PP_N_ADAPTED; k++) {
            const struct pp_tensor_info *of = &table[pp_lora_slots[k]];
            const struct pp_tensor_info *ab = &table[PP_P_ADAPTERS + 2 * k];
            if (!ab->name[0] || !pp_stored_find(&w, g->t, g->m, of->name) ||
                !pp_stored_find(&a, g->t, g->m, ab[0].name) ||
                !pp_stored_find(&b, g->t, g->m, ab[1].name))
                continue;
            g->added[w.values - pp_tensors_at(g->t, 0)] = (struct addition){
                a.values, b.values, NULL, *of, w.as != PP_STORED_PLAIN};
        }
    }
}

enum pp_dtype pp_merge_dtype(const struct pp_model *m,
                             const struct pp_tensors *t)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS];
    struct pp_stored w;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        size_t n = pp_unit_params(m, u, table);
        for (size_t k = 0; u.kind == PP_UNIT_LAYER && k < n; k++)
            if (table[k].n_dims == 2 && !pp_lora_has(table[k].name) &&
                pp_stored_find(&w, t, m, table[k].name))
                return w.values->dtype;
    }
    return PP_DTYPE_OTHER;
}

/* Reads a factor, or its transpose, (rows, cols). */
static double *read_factor(const struct pp_tensor *x, bool transposed,
                           struct pp_err *err)
{
    size_t rows = (size_t)x->dims[0], cols = (size_t)x->dims[1];
    double *v = pp_calloc(x->n + 1, sizeof *v);
    if (pp_tensor_read_f64(x, 0, x->n, v, err)) {
        free(v);
        return NULL;
    }
    if (!transposed)
        return v;
    double *turned = pp_calloc(x->n + 1, sizeof *turned);
    pp_transpose(turned, v, rows, cols, sizeof *v);
    free(v);
    return turned;
}

/* row += scale left right, with left (rank) and right (rank, cols). */
static void add_row(double *row, const double *left, const double *right,
                    size_t rank, size_t cols, double scale)
{
    for (size_t r = 0; r < rank; r++) {
        double x = scale * left[r];
        for (size_t j = 0; j < cols; j++)
            row[j] += x * right[r * cols + j];
    }
}

/* Writes the values of a tensor in the type of the tensor whose place it takes.
 */
static int put_instead(const struct pp_tensor *x, const struct pp_tensor *by,
                       struct pp_tensor_writer *w, struct pp_err *err)
{
    enum { PART = 4096 };
    double values[PART];
    size_t bytes = pp_dtype_bytes(x->dtype);
    for (uint64_t at = 0, n; at < by->n; at += n) {
        n = by->n - at < PART ? by->n - at : PART;
        if (pp_tensor_read_f64(by, at, n, values, err))
            return -1;
        pp_elements_convert(values, bytes, values, sizeof *values, n);
        if (pp_tensor_writer_put(w, values, n * bytes, err))
            return -1;
    }
    return 0;
}

/* Writes a tensor with its addition, row by row of the file. */
static int put_sum(const struct merge *g, const struct pp_tensor *x,
                   const struct addition *add, struct pp_tensor_writer *w,
                   struct pp_err *err)
{
    size_t rows = (size_t)x->dims[0], cols = (size_t)x->dims[1];
    size_t rank = (size_t)add->a->dims[0], bytes = pp_dtype_bytes(x->dtype);
    bool turned = add->of.transposed;
    double *left = read_factor(turned ? add->a : add->b, turned, err);
    double *right = read_factor(turned ? add->b : add->a, turned, err);
    double *row = pp_calloc(cols + 1, sizeof *row);
    int rc = left && right ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        rc = pp_tensor_read_f64(x, i * cols, cols, row, err);
        if (rc)
            break;
        add_row(row, left + i * rank, right, rank, cols,
                pp_lora_scale(g->m->lora, add->of.name));
        pp_elements_convert(row, bytes, row, sizeof *row, cols);
        rc = pp_tensor_writer_put(w, row, cols * bytes, err);
    }
    free(left);
    free(right);
    free(row);
    return rc;
}

/* Checks the types of a tensor: the writer knows the types of pprun. */
static int check_type(const struct pp_tensor *x, const struct addition *add,
                      struct pp_err *err)
{
    bool plain = x->dtype == PP_DTYPE_F64 || x->dtype == PP_DTYPE_F32 ||
                 x->dtype == PP_DTYPE_BF16;
    bool changes = add->a || add->instead;
    return !add->quantised &&
                   (plain || (!changes && x->dtype != PP_DTYPE_OTHER))
               ? 0
               : pp_fail(err, PP_EXIT_INPUT,
                         "'%s' is of dtype %s; nothing can be merged with F64, "
                         "F32 and BF16 alone",
                         x->name, x->dtype_name);
}

static int write_tensors(const struct merge *g, const char *dir,
                         struct pp_ckpt_sums *sums, struct pp_err *err)
{
    static const char name[] = "model.safetensors";
    char path[PP_PATH_TEXT];
    size_t all = pp_tensors_n(g->t), n = 0;
    struct pp_tensor_spec *specs = pp_calloc(all + 1, sizeof *specs);
    struct pp_tensor_writer *w = NULL;
    int rc = pp_path(path, err, "%s/%s", dir, name);
    for (size_t i = 0; rc == 0 && i < all; i++) {
        const struct pp_tensor *x = pp_tensors_at(g->t, i);
        if (pp_lora_has(x->name))
            continue;
        rc = check_type(x, &g->added[i], err);
        specs[n] = (struct pp_tensor_spec){
            .name = x->name, .dtype = x->dtype, .n_dims = x->n_dims};
        memcpy(specs[n++].dims, x->dims, sizeof specs->dims);
    }
    if (rc == 0)
        rc = pp_tensor_writer_open(path, specs, n, &w, err);
    for (size_t i = 0; rc == 0 && i < all; i++) {
        const struct pp_tensor *x = pp_tensors_at(g->t, i);
        const struct addition *add = &g->added[i];
        if (!pp_lora_has(x->name))
            rc = add->a ? put_sum(g, x, add, w, err)
                 : add->instead
                     ? put_instead(x, add->instead, w, err)
                     : pp_tensor_writer_put(w, x->data, x->bytes, err);
    }
    if (rc == 0)
        rc = pp_ckpt_sums_add(sums, name, pp_tensor_writer_checksum(w), err);
    if (rc)
        pp_tensor_writer_abort(w);
    free(specs);
    return rc ? rc : pp_tensor_writer_close(w, err);
}

int pp_merge(const char *dir, const struct pp_model *m,
             const struct pp_tensors *t, const char *config_text,
             const char *source, struct pp_err *err)
{
    char tmp[PP_PATH_TEXT];
    struct pp_ckpt_sums sums = {0};
    struct pp_err ignored = {0};
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (pp_file_exists(dir))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: exists; a model is merged into a new directory",
                       dir);
    /* A name of its own, so that nothing of the user's is in the way. */
    if (pp_path(tmp, err, "%.*s.%ld.tmp", (int)n, dir, (long)getpid()))
        return -1;
    if (pp_file_exists(tmp))
        return pp_fail(err, PP_EXIT_INPUT, "%s: exists", tmp);
    if (pp_dir_make(tmp, err))
        return -1;
    struct merge g = {m, t, pp_calloc(pp_tensors_n(t) + 1, sizeof *g.added)};
    find_additions(&g);
    int rc = write_tensors(&g, tmp, &sums, err) ||
                     pp_ckpt_sums_put(&sums, tmp, "config.json", config_text,
                                      strlen(config_text), err) ||
                     pp_ckpt_copy_companions(source, tmp, &sums, err) ||
                     pp_ckpt_sums_write(&sums, tmp, err) ||
                     pp_file_sync(tmp, err)
                 ? -1
                 : 0;
    if (rc == 0 && rename(tmp, dir) != 0)
        rc = pp_fail_errno(err, "%s: cannot rename", tmp);
    if (rc && pp_dir_remove(tmp, &ignored))
        rc = -1; /* it stays beside */
    pp_ckpt_sums_finish(&sums);
    free(g.added);
    return rc;
}
