/* SPDX-License-Identifier: MIT */
/* ckpt_shards - cuts the tensors into files, and writes their index. */
#include "run/checkpoint/ckpt_shards.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/json_writer.h"

const char *const pp_ckpt_stems[PP_N_BLOCKS] = {
    [PP_BLOCK_W] = "model",
    [PP_BLOCK_M] = "optimizer/exp_avg",
    [PP_BLOCK_V] = "optimizer/exp_avg_sq",
    [PP_BLOCK_MASTER] = "optimizer/master",
};

/* Lists the tensors of the model, and returns their number. */
static size_t list_tensors(const struct pp_model *m, struct pp_tensor_info *out)
{
    struct pp_tensor_info table[PP_N_LAYER_PARAMS], info;
    size_t n = 0;
    for (size_t u = 0; u < pp_model_n_units(m); u++) {
        struct pp_unit_id id = pp_model_unit(m, u);
        size_t n_rows = pp_unit_params(m, id, table);
        size_t n_slots = pp_table_slots(table, n_rows);
        for (size_t slot = 0; slot < n_slots; slot++)
            if (pp_table_at(table, n_rows, slot, &info))
                out[n + pp_table_order(table, n_rows, slot)] = info;
        n += pp_table_tensors(table, n_rows);
    }
    return n;
}

enum pp_weights_block pp_shards_source_of(const struct pp_shards *s,
                                          enum pp_weights_block block, size_t i)
{
    enum pp_weights_block source = s->blocks[block].source;
    return source == PP_BLOCK_MASTER && s->tensors[i].frozen ? PP_BLOCK_W
                                                             : source;
}

size_t pp_shards_bytes(const struct pp_shards *s, enum pp_weights_block block,
                       size_t i)
{
    bool there = block == PP_BLOCK_W || !s->tensors[i].frozen ||
                 s->blocks[block].source == PP_BLOCK_W;
    there &= !s->tensors[i].tied_to;
    return there ? pp_tensor_elements(&s->tensors[i]) *
                       s->blocks[block].element_bytes
                 : 0;
}

/* Returns the bytes of tensor i and of those that files have as one with it. */
static size_t stack_bytes(const struct pp_shards *s,
                          enum pp_weights_block block, size_t i)
{
    size_t n = s->tensors[i].stack ? s->tensors[i].stack : 1;
    return s->tensors[i].number ? 0 : n * pp_shards_bytes(s, block, i);
}

/* Fills first, which has room for s->n + 1 numbers, and returns the number of
 * files. */
static int cut(const struct pp_shards *s, enum pp_weights_block block,
               size_t limit, size_t *first)
{
    size_t bytes = 0;
    int n = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t more = stack_bytes(s, block, i);
        if (i == 0 || (bytes > 0 && more > 0 && bytes + more > limit)) {
            first[n++] = i;
            bytes = 0;
        }
        bytes += more;
    }
    first[n] = s->n;
    return n;
}

/* Returns the block of the weights before they are rounded. */
static enum pp_weights_block exact_block(const struct pp_parameters *p)
{
    return p->wanted[PP_BLOCK_MASTER] ? PP_BLOCK_MASTER : PP_BLOCK_W;
}

enum pp_weights_block pp_shards_source(const struct pp_parameters *p,
                                       size_t save_bytes)
{
    return save_bytes ? exact_block(p) : PP_BLOCK_W;
}

/* Says which blocks are saved, from which, and as what. Returns false if the
 * block is not saved. */
static bool choose(struct pp_shards *s, const struct pp_parameters *p,
                   enum pp_weights_block b, size_t save_bytes)
{
    enum pp_weights_block exact = exact_block(p);
    size_t bytes = pp_parameters_bytes(p, exact);
    s->blocks[b].source = b;
    if (save_bytes && b == PP_BLOCK_W) {
        s->blocks[b].source = pp_shards_source(p, save_bytes);
        s->blocks[b].element_bytes = save_bytes;
        return p->wanted[b];
    }
    s->blocks[b].element_bytes = pp_parameters_bytes(p, b);
    if (save_bytes && b == PP_BLOCK_MASTER) {
        s->blocks[b].source = exact;
        s->blocks[b].element_bytes = bytes;
        return save_bytes < bytes;
    }
    return pp_ckpt_stems[b] && p->wanted[b];
}

int pp_shards_init(struct pp_shards *s, const struct pp_model *m,
                   const struct pp_parameters *p, size_t limit,
                   size_t save_bytes, struct pp_err *err)
{
    *s = (struct pp_shards){0};
    size_t most = pp_model_n_tensors(m);
    s->tensors = pp_calloc(most, sizeof *s->tensors, err);
    s->mine = pp_calloc(most, sizeof *s->mine, err);
    if (!s->tensors || !s->mine)
        return -1;
    s->n = list_tensors(m, s->tensors);
    s->model = m;
    s->params = p;
    for (size_t i = 0; i < p->n; i++)
        if (!p->at[i].tied_copy && p->at[i].copy == 0) {
            assert(p->at[i].order < s->n);
            s->mine[p->at[i].order] = &p->at[i];
        }
    for (enum pp_weights_block b = PP_BLOCK_W; b < PP_N_BLOCKS; b++) {
        if (!choose(s, p, b, save_bytes))
            continue;
        s->blocks[b].first = pp_calloc(s->n + 1, sizeof(size_t), err);
        if (!s->blocks[b].first)
            return -1;
        s->blocks[b].n_files = cut(s, b, limit, s->blocks[b].first);
        s->n_files += s->blocks[b].n_files;
    }
    return 0;
}

void pp_shards_finish(struct pp_shards *s)
{
    for (int b = 0; b < PP_N_BLOCKS; b++)
        free(s->blocks[b].first);
    free(s->mine);
    free(s->tensors);
    *s = (struct pp_shards){0};
}

void pp_shards_keep_weights(struct pp_shards *s)
{
    for (int b = PP_BLOCK_W + 1; b < PP_N_BLOCKS; b++)
        s->blocks[b].n_files = 0;
    s->n_files = s->blocks[PP_BLOCK_W].n_files;
}

struct pp_shard pp_shards_at(const struct pp_shards *s, int i)
{
    enum pp_weights_block b = PP_BLOCK_W;
    while (i >= s->blocks[b].n_files)
        i -= s->blocks[b++].n_files;
    const size_t *first = s->blocks[b].first;
    struct pp_shard f = {.block = b, .first = first[i], .end = first[i + 1]};
    if (s->blocks[b].n_files == 1)
        snprintf(f.name, sizeof f.name, "%s.safetensors", pp_ckpt_stems[b]);
    else
        snprintf(f.name, sizeof f.name, "%s-%05d-of-%05d.safetensors",
                 pp_ckpt_stems[b], i + 1, s->blocks[b].n_files);
    return f;
}

/* Writes the index of the block whose files start at number `from`. */
static void print_index(FILE *f, const struct pp_shards *s, int from)
{
    enum pp_weights_block b = pp_shards_at(s, from).block;
    struct pp_json_writer w = {.f = f, .indent = 2};
    uint64_t total = 0;
    for (size_t i = 0; i < s->n; i++)
        total += pp_shards_bytes(s, b, i);
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_object(&w, "metadata", PP_JSON_BROKEN);
    pp_json_uint(&w, "total_size", total);
    pp_json_end(&w);
    pp_json_object(&w, "weight_map", PP_JSON_BROKEN);
    for (int k = 0; k < s->blocks[b].n_files; k++) {
        struct pp_shard file = pp_shards_at(s, from + k);
        const char *slash = strrchr(file.name, '/');
        for (size_t i = file.first; i < file.end; i++)
            if (stack_bytes(s, b, i) > 0)
                pp_json_string(&w, s->tensors[i].name,
                               slash ? slash + 1 : file.name);
    }
    pp_json_end(&w);
    pp_json_end(&w);
    putc('\n', f);
}

static int write_index(const struct pp_shards *s, int from,
                       const char *checkpoint, struct pp_ckpt_sums *sums,
                       struct pp_err *err)
{
    const char *stem = pp_ckpt_stems[pp_shards_at(s, from).block];
    char name[PP_PATH_TEXT], path[PP_PATH_TEXT], *text = NULL;
    size_t bytes = 0;
    if (pp_path(name, err, "%s.safetensors.index.json", stem) ||
        pp_path(path, err, "%s/%s", checkpoint, name))
        return -1;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail_errno(err, "%s", path);
    print_index(f, s, from);
    int rc = fclose(f) ? pp_fail_errno(err, "%s", path)
                       : pp_file_write(path, text, bytes, err);
    if (rc == 0)
        rc = pp_ckpt_sums_add(
            sums, name, pp_checksum_of(PP_CHECKSUM_XXH3, text, bytes), err);
    free(text);
    return rc;
}

int pp_shards_write_indexes(const struct pp_shards *s, const char *checkpoint,
                            struct pp_ckpt_sums *sums, struct pp_err *err)
{
    for (int b = 0, from = 0; b < PP_N_BLOCKS; b++) {
        if (s->blocks[b].n_files > 1 &&
            write_index(s, from, checkpoint, sums, err))
            return -1;
        from += s->blocks[b].n_files;
    }
    return 0;
}

int pp_shard_open(const char *stem, struct pp_tensors **out, struct pp_err *err)
{
    char one[PP_PATH_TEXT], index[PP_PATH_TEXT];
    if (pp_path(one, err, "%s.safetensors", stem) ||
        pp_path(index, err, "%s.index.json", one))
        return -1;
    if (!pp_file_exists(one) && !pp_file_exists(index))
        return pp_fail(err, PP_EXIT_INPUT,
                       "%s: is missing, and so is its index", one);
    return pp_tensors_open(pp_file_exists(one) ? one : index, out, err);
}
