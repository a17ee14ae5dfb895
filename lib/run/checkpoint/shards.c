/* SPDX-License-Identifier: MIT */
/* shards - cuts the tensors into files, and writes their index. */
#include "run/checkpoint/shards.h"

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

/* The files of weights of each part of a model. */
enum model_part { PART_LANGUAGE, PART_GENERATOR, PART_CONNECTOR, N_PARTS };
static const char *const weight_stems[N_PARTS] = {
    [PART_LANGUAGE] = "model",
    [PART_GENERATOR] = "generator/model",
    [PART_CONNECTOR] = "generator/connector",
};

/* Returns the part that tensor i is in, of a block of files. */
static enum model_part part_of(const struct pp_shards *s,
                               enum pp_weights_block block, size_t i)
{
    return block != PP_BLOCK_W || i < s->generator ? PART_LANGUAGE
           : i < s->connector                      ? PART_GENERATOR
                                                   : PART_CONNECTOR;
}

static const char *stem_of(const struct pp_shards *s,
                           enum pp_weights_block block, enum model_part part)
{
    return block != PP_BLOCK_W ? pp_ckpt_stems[block]
           : s->params->adapts ? PP_ADAPTER_STEM
                               : weight_stems[part];
}

const char *pp_shards_name(const struct pp_shards *s,
                           enum pp_weights_block block, size_t i)
{
    static const char *const prefixes[N_PARTS] = {
        "", PP_GENERATOR_PREFIX, PP_GENERATOR_PREFIX PP_CONNECTOR_PREFIX};
    return s->tensors[i].name + strlen(prefixes[part_of(s, block, i)]);
}

static bool has_prefix(const struct pp_tensor_info *t, const char *prefix)
{
    return !strncmp(t->name, prefix, strlen(prefix));
}

/* Finds the generator's tensors, and puts those of its connector behind all
 * others. */
static int find_parts(struct pp_shards *s, struct pp_err *err)
{
    static const char connector[] = PP_GENERATOR_PREFIX PP_CONNECTOR_PREFIX;
    struct pp_tensor_info *t = s->tensors;
    size_t first = 0, end, n = s->n;
    while (first < n && !has_prefix(&t[first], PP_GENERATOR_PREFIX))
        first++;
    s->generator = first;
    while (first < n && !has_prefix(&t[first], connector))
        first++;
    for (end = first; end < n && has_prefix(&t[end], connector);)
        end++;
    size_t moved = end - first;
    s->connector = n - moved;
    if (!moved)
        return 0;
    struct pp_tensor_info *room = pp_try_calloc(moved, sizeof *room, err);
    if (!room)
        return -1;
    memcpy(room, t + first, moved * sizeof *t);
    memmove(t + first, t + end, (n - end) * sizeof *t);
    memcpy(t + s->connector, room, moved * sizeof *t);
    const struct pp_parameter *mine[2 * PP_N_END_PARAMS];
    memcpy(mine, s->mine + first, moved * sizeof *mine);
    memmove(s->mine + first, s->mine + end, (n - end) * sizeof *mine);
    memcpy(s->mine + s->connector, mine, moved * sizeof *mine);
    free(room);
    return 0;
}

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
    return pp_tensor_in(&s->tensors[i], source) ? source : PP_BLOCK_W;
}

size_t pp_shards_bytes(const struct pp_shards *s, enum pp_weights_block block,
                       size_t i)
{
    bool there = pp_tensor_in(&s->tensors[i], block) ||
                 s->blocks[block].source == PP_BLOCK_W;
    there &=
        !s->tensors[i].tied_to && !(s->params->adapts && s->tensors[i].frozen);
    return there ? pp_tensor_elements(&s->tensors[i]) *
                       s->blocks[block].element_bytes
                 : 0;
}

/* Returns the bytes of tensor i, including tensors fused with it in the file.
 */
static size_t stack_bytes(const struct pp_shards *s,
                          enum pp_weights_block block, size_t i)
{
    const struct pp_tensor_info *t = &s->tensors[i];
    bool there = pp_tensor_before(t) == 0 && pp_shards_bytes(s, block, i) > 0;
    return there ? pp_tensor_in_all(t) * s->blocks[block].element_bytes : 0;
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
        if (i == 0 || part_of(s, block, i) != part_of(s, block, i - 1) ||
            (bytes > 0 && more > 0 && bytes + more > limit &&
             part_of(s, block, i) != PART_CONNECTOR)) {
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
    s->tensors = pp_try_calloc(most, sizeof *s->tensors, err);
    s->mine = pp_try_calloc(most, sizeof *s->mine, err);
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
    if (find_parts(s, err))
        return -1;
    for (enum pp_weights_block b = PP_BLOCK_W; b < PP_N_BLOCKS; b++) {
        if (!choose(s, p, b, save_bytes))
            continue;
        s->blocks[b].first = pp_try_calloc(s->n + 1, sizeof(size_t), err);
        if (!s->blocks[b].first)
            return -1;
        /* PEFT knows no index. */
        bool one = p->adapts && b == PP_BLOCK_W;
        s->blocks[b].n_files =
            cut(s, b, one ? SIZE_MAX : limit, s->blocks[b].first);
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

/* The files of a part of the model, of a block. */
struct part_files {
    const char *stem;
    int first, n; /* among the files of the block */
};

/* Returns the files that file i of the block belongs to. */
static struct part_files files_of(const struct pp_shards *s,
                                  enum pp_weights_block b, int i)
{
    const size_t *first = s->blocks[b].first;
    enum model_part part = part_of(s, b, first[i]);
    struct part_files p = {.stem = stem_of(s, b, part)};
    for (int k = 0; k < s->blocks[b].n_files; k++) {
        if (part_of(s, b, first[k]) != part)
            continue;
        p.first = p.n ? p.first : k;
        p.n++;
    }
    return p;
}

struct pp_shard_file pp_shards_at(const struct pp_shards *s, int i)
{
    enum pp_weights_block b = PP_BLOCK_W;
    while (i >= s->blocks[b].n_files)
        i -= s->blocks[b++].n_files;
    const size_t *first = s->blocks[b].first;
    struct pp_shard_file f = {
        .block = b, .first = first[i], .end = first[i + 1]};
    const struct part_files p = files_of(s, b, i);
    if (p.n == 1)
        snprintf(f.name, sizeof f.name, "%s.safetensors", p.stem);
    else
        snprintf(f.name, sizeof f.name, "%s-%05d-of-%05d.safetensors", p.stem,
                 i + 1 - p.first, p.n);
    return f;
}

/* Writes the index of n files from number `from` on, of one block. */
static void print_index(FILE *f, const struct pp_shards *s, int from, int n)
{
    enum pp_weights_block b = pp_shards_at(s, from).block;
    struct pp_json_writer w = {.f = f, .indent = 2};
    uint64_t total = 0;
    for (int k = 0; k < n; k++) {
        struct pp_shard_file file = pp_shards_at(s, from + k);
        for (size_t i = file.first; i < file.end; i++)
            total += pp_shards_bytes(s, b, i);
    }
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_object(&w, "metadata", PP_JSON_BROKEN);
    pp_json_uint(&w, "total_size", total);
    pp_json_end(&w);
    pp_json_object(&w, "weight_map", PP_JSON_BROKEN);
    for (int k = 0; k < n; k++) {
        struct pp_shard_file file = pp_shards_at(s, from + k);
        const char *slash = strrchr(file.name, '/');
        for (size_t i = file.first; i < file.end; i++)
            if (stack_bytes(s, b, i) > 0)
                pp_json_string(&w, pp_shards_name(s, b, i),
                               slash ? slash + 1 : file.name);
    }
    pp_json_end(&w);
    pp_json_end(&w);
    putc('\n', f);
}

static int write_index(const struct pp_shards *s, int from, int n_files,
                       const char *stem, const char *checkpoint,
                       struct pp_ckpt_sums *sums, struct pp_err *err)
{
    char name[PP_PATH_TEXT], *text = NULL;
    size_t bytes = 0;
    if (pp_path(name, err, "%s.safetensors.index.json", stem))
        return -1;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail_errno(err, "%s", name);
    print_index(f, s, from, n_files);
    int rc = fclose(f)
                 ? pp_fail_errno(err, "%s", name)
                 : pp_ckpt_sums_put(sums, checkpoint, name, text, bytes, err);
    free(text);
    return rc;
}

int pp_shards_write_indexes(const struct pp_shards *s, const char *checkpoint,
                            struct pp_ckpt_sums *sums, struct pp_err *err)
{
    for (int b = 0, from = 0; b < PP_N_BLOCKS; b++) {
        const int n = s->blocks[b].n_files;
        for (int i = 0; i < n;) {
            struct part_files p = files_of(s, (enum pp_weights_block)b, i);
            if (p.n > 1 &&
                write_index(s, from + i, p.n, p.stem, checkpoint, sums, err))
                return -1;
            i += p.n;
        }
        from += n;
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
