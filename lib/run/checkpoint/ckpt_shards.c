/* SPDX-License-Identifier: MIT */
/* ckpt_shards - lists the tensors of all ranks, and writes a shard and the
 * index. */
#include "run/checkpoint/ckpt_shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "run/checkpoint/ckpt_files.h"
#include "run/parameters/weights.h"

/* Aborts when memory runs out between two messages: the other ranks would wait
 * forever. */
static int give_up(struct pp_comm *c, struct pp_err *err)
{
    c->ops->abort(c, "out of memory for a checkpoint");
    return pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
}

int pp_agree(struct pp_comm *c, int rc, struct pp_err *err)
{
    struct pp_err mine = {0}; /* allgather may fill err */
    if (rc != 0)
        mine = *err;
    struct pp_err *all = calloc((size_t)c->size, sizeof *all);
    if (!all)
        return give_up(c, err);
    rc = c->ops->allgather(c, &mine, all, sizeof mine, err);
    for (int r = 0; rc == 0 && r < c->size; r++)
        if (all[r].code != PP_EXIT_OK) {
            rc = pp_fail(err, all[r].code, "%s", all[r].text);
            if (mine.code == PP_EXIT_OK)
                pp_err_set_origin(err, PP_ORIGIN_RANK, r);
        }
    free(all);
    return rc;
}

static size_t count_saved(const struct pp_parameters *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += pp_parameter_counts(&p->at[i]);
    return n;
}

static void list_saved(const struct pp_parameters *p, int rank,
                       struct pp_saved_tensor *out)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (!pp_parameter_counts(t))
            continue;
        *out = (struct pp_saved_tensor){.rows = t->info.rows,
                                        .cols = t->info.cols,
                                        .order = t->order,
                                        .n_dims = t->info.n_dims,
                                        .rank = rank};
        memcpy(out->name, t->info.name, sizeof out->name);
        out++;
    }
}

static int send_list(struct pp_comm *c, const struct pp_parameters *p, size_t n,
                     struct pp_err *err)
{
    struct pp_saved_tensor *list = calloc(n + 1, sizeof *list);
    if (!list)
        return give_up(c, err);
    list_saved(p, c->rank, list);
    int rc = c->ops->send(c, 0, PP_DIRECTION_HOST, list, n * sizeof *list, err);
    if (rc == 0)
        rc = c->ops->send_wait(c, 0, PP_DIRECTION_HOST, 0, err);
    free(list);
    return rc;
}

static int receive_lists(struct pp_shard_map *map, struct pp_comm *c,
                         const struct pp_parameters *p, const uint64_t *counts,
                         struct pp_err *err)
{
    struct pp_saved_tensor *to;
    for (int r = 0; r < c->size; r++)
        map->n += (size_t)counts[r];
    map->at = to = calloc(map->n + 1, sizeof *to);
    if (!to)
        return give_up(c, err);
    list_saved(p, 0, to);
    for (int r = 1; r < c->size; r++) {
        to += counts[r - 1];
        if (pp_comm_receive(c, r, PP_DIRECTION_HOST, to,
                            (size_t)counts[r] * sizeof *to, err))
            return -1;
    }
    return 0;
}

int pp_shard_map_gather(struct pp_shard_map *map, struct pp_comm *c,
                        const struct pp_parameters *p, struct pp_err *err)
{
    uint64_t mine = count_saved(p);
    uint64_t *counts = calloc((size_t)c->size, sizeof *counts);
    *map = (struct pp_shard_map){0};
    if (!counts)
        return give_up(c, err);
    int rc = c->ops->allgather(c, &mine, counts, sizeof mine, err);
    for (int r = 0; rc == 0 && r < c->size; r++) {
        map->n_shards += counts[r] > 0;
        if (r == c->rank && counts[r] > 0)
            map->shard = map->n_shards;
    }
    if (rc == 0)
        rc = c->rank == 0 ? receive_lists(map, c, p, counts, err)
                          : send_list(c, p, (size_t)mine, err);
    free(counts);
    return rc;
}

void pp_shard_map_finish(struct pp_shard_map *map)
{
    free(map->at);
    *map = (struct pp_shard_map){0};
}

struct pp_tensor_spec pp_saved_tensor_spec(const struct pp_saved_tensor *t,
                                           enum pp_dtype dtype)
{
    return (struct pp_tensor_spec){.name = t->name,
                                   .dtype = dtype,
                                   .n_dims = t->n_dims,
                                   .dims = {t->rows, t->cols}};
}

int pp_shard_path(char buf[PP_PATH_TEXT], const char *stem, int shard,
                  int n_shards, struct pp_err *err)
{
    if (n_shards <= 1)
        return pp_path(buf, err, "%s.safetensors", stem);
    return pp_path(buf, err, "%s-%05d-of-%05d.safetensors", stem, shard,
                   n_shards);
}

static int put_tensors(struct pp_tensor_writer *w,
                       const struct pp_parameters *p,
                       enum pp_weights_block block, struct pp_err *err)
{
    struct pp_staging s;
    int rc = pp_staging_init(&s, p, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct pp_parameter *t = &p->at[i];
        if (!pp_parameter_counts(t))
            continue;
        const void *data = pp_staging_read(&s, t, block, err);
        rc = data ? pp_tensor_writer_put(
                        w, data, t->n * pp_parameters_bytes(p, block), err)
                  : -1;
    }
    pp_staging_finish(&s);
    return rc;
}

static enum pp_dtype dtype_of(const struct pp_parameters *p,
                              enum pp_weights_block block)
{
    size_t bytes = pp_parameters_bytes(p, block);
    return bytes == sizeof(double)  ? PP_DTYPE_F64
           : bytes == sizeof(float) ? PP_DTYPE_F32
                                    : PP_DTYPE_BF16;
}

static int write_file(const char *path, const struct pp_parameters *p,
                      const struct pp_saved_tensor *list,
                      struct pp_tensor_spec *specs, size_t n,
                      enum pp_weights_block block, uint64_t *checksum,
                      struct pp_err *err)
{
    struct pp_tensor_writer *w;
    for (size_t i = 0; i < n; i++)
        specs[i] = pp_saved_tensor_spec(&list[i], dtype_of(p, block));
    if (pp_tensor_writer_open(path, specs, n, &w, err))
        return -1;
    if (put_tensors(w, p, block, err)) {
        pp_tensor_writer_abort(w);
        return -1;
    }
    *checksum = pp_tensor_writer_checksum(w);
    return pp_tensor_writer_close(w, err);
}

int pp_shard_write(const char *stem, const struct pp_shard_map *map,
                   const struct pp_parameters *p, enum pp_weights_block block,
                   uint64_t *checksum, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    size_t n = count_saved(p);
    int rc = -1;
    if (map->shard == 0)
        return 0;
    struct pp_saved_tensor *list = calloc(n, sizeof *list);
    struct pp_tensor_spec *specs = calloc(n, sizeof *specs);
    if (!list || !specs) {
        pp_fail(err, PP_EXIT_SYSTEM, "out of memory for a checkpoint");
    } else if (!pp_shard_path(path, stem, map->shard, map->n_shards, err)) {
        list_saved(p, 0, list);
        rc = write_file(path, p, list, specs, n, block, checksum, err);
    }
    free(specs);
    free(list);
    return rc;
}

static int print_index(FILE *f, const char *stem, const struct pp_shard_map *m,
                       size_t element_bytes, struct pp_err *err)
{
    char path[PP_PATH_TEXT];
    const char *base = strrchr(stem, '/');
    uint64_t total = 0;
    int shard = 0, rank = -1;
    base = base ? base + 1 : stem;
    for (size_t i = 0; i < m->n; i++)
        total += m->at[i].rows * m->at[i].cols * element_bytes;
    struct pp_json_writer w = {.f = f, .indent = 2};
    pp_json_object(&w, NULL, PP_JSON_BROKEN);
    pp_json_object(&w, "metadata", PP_JSON_BROKEN);
    pp_json_uint(&w, "total_size", total);
    pp_json_end(&w);
    pp_json_object(&w, "weight_map", PP_JSON_BROKEN);
    for (size_t i = 0; i < m->n; i++) {
        shard += m->at[i].rank != rank;
        rank = m->at[i].rank;
        if (pp_shard_path(path, base, shard, m->n_shards, err))
            return -1;
        pp_json_string(&w, m->at[i].name, path);
    }
    pp_json_end(&w);
    pp_json_end(&w);
    putc('\n', f);
    return 0;
}

int pp_shard_write_index(const char *checkpoint, const char *stem,
                         const struct pp_shard_map *map, size_t element_bytes,
                         struct pp_ckpt_sums *sums, struct pp_err *err)
{
    char name[PP_PATH_TEXT], path[PP_PATH_TEXT], *text = NULL;
    size_t bytes = 0;
    if (map->n_shards <= 1)
        return 0;
    if (pp_path(name, err, "%s.safetensors.index.json", stem) ||
        pp_path(path, err, "%s/%s", checkpoint, name))
        return -1;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail_errno(err, "%s", path);
    int rc = print_index(f, stem, map, element_bytes, err);
    if (fclose(f) != 0)
        rc = pp_fail_errno(err, "%s", path);
    if (rc == 0)
        rc = pp_file_write(path, text, bytes, err);
    if (rc == 0)
        rc = pp_ckpt_sums_add(
            sums, name, pp_checksum_of(PP_CHECKSUM_XXH3, text, bytes), err);
    free(text);
    return rc;
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
